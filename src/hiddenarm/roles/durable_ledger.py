"""A ledger that lasts: decisions and lessons of one epoch, on the records of all epochs."""

from __future__ import annotations

from collections import OrderedDict

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.decisions import MAX_PENDING, decision_name, decision_number
from hiddenarm.bandit.interactions import Decided, Interaction, interactions
from hiddenarm.ring.words import Words
from hiddenarm.roles.ledger import Then
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.updater import LessonEnded


class DurableLedger:
    """Decisions of this epoch are at hand in memory, the newest of them; all others are read when they are needed.
    Nothing is forgotten. `named` is the epoch's name as a number, of which names of decisions are made."""

    tells_early = False

    def __init__(self, records: PartyRecords, epoch: int, named: int, checkpoint_every: int) -> None:
        self._records = records
        self._epoch = epoch
        self._named = named
        self.checkpoint_every = checkpoint_every
        self._at_hand: OrderedDict[int, Interaction] = OrderedDict()
        self._begun: set[int] = set()

    @property
    def pending(self) -> int:
        return self._records.pending

    def keep(self, program: ProgramId, step: int, features: Words, decided: Decided, then: Then) -> None:
        for position, interaction in enumerate(interactions(features, decided)):
            number = decision_number(program.count, step, position)
            self._at_hand[decision_name(self._named, number)] = interaction
        while len(self._at_hand) > MAX_PENDING:
            self._at_hand.popitem(last=False)
        self._records.keep_decisions(self._named, program, step, features, decided, then)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, int) or name in self._begun or self._records.is_taught(name):
            return False
        return name in self._at_hand or self._records.interaction(name) is not None

    def __getitem__(self, name: int) -> Interaction:
        interaction = self._at_hand.get(name) or self._records.interaction(name)
        if interaction is None:
            raise KeyError(name)
        return interaction

    def __delitem__(self, name: int) -> None:
        self._at_hand.pop(name, None)
        self._begun.add(name)

    def lesson_ended(self, ended: LessonEnded, then: Then) -> None:
        lesson, checkpoint = ended.lesson, None if ended.checkpoint is None else (self._epoch, ended.checkpoint)
        if not lesson.logged:
            self._records.log_lesson(lesson, ended.refused, checkpoint, then)
            self._begun.difference_update(name for name, _ in lesson.rewards)
        elif checkpoint is not None:
            self._records.keep_checkpoint(*checkpoint)
