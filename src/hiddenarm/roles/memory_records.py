"""The records of a party whose state ends with it: the same methods as `PartyRecords`, and nothing is encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Interaction
from hiddenarm.bandit.retained import Retained
from hiddenarm.privacy.ledger import NOTHING_RELEASED, PrivacyLedger
from hiddenarm.roles.decision_records import DecidedRun
from hiddenarm.roles.epochs.plan import CheckpointName, Committed, Heard, PartyStatement, Plan
from hiddenarm.roles.messages import ReturnedArms, Unlearning
from hiddenarm.roles.party_areas import public_start
from hiddenarm.roles.retention import NOT_KEPT, WAS_TAUGHT
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.roles.values import WindowTotals
from hiddenarm.store.journal import Then

KEPT_IN_MEMORY = 1000
"""Interactions that were learned, and are kept to be unlearned."""


class _Retained(NamedTuple):
    """An interaction that was learned in a lesson, with its masked reward."""

    lesson: int
    interaction: Interaction
    masked: int


class MemoryPartyRecords:
    """There is one epoch, and nothing to read back: of lessons their number is kept, and the newest interactions;
    decisions that wait for a reward are in the `ledger`."""

    consents = False
    refreshed = 0
    releases = 1
    pending = None
    """They are counted in the ledger."""

    def __init__(self, federation: Federation, number: int) -> None:
        self.prepared = self.activated = self.epoch = 0
        self.committed = Committed(0, 0)
        self.ledger = NOTHING_RELEASED
        self._federation = federation
        self._number = number
        self._learning: dict[int, Interaction] = {}
        self._retained: Retained[_Retained] = Retained(
            0 if federation.learner.schedule().no_unlearning else federation.keep_interactions or KEPT_IN_MEMORY
        )

    def statement(self) -> PartyStatement:
        noted = (Committed(0, 0),) * self._federation.parties
        return PartyStatement(self.prepared, self.activated, self.committed, (), noted)

    def prepare(self, plan: Plan, then: Then, ledger: PrivacyLedger = NOTHING_RELEASED) -> None:
        self.prepared = plan.epoch
        then()

    def activate(self, plan: Plan, then: Then) -> None:
        self.activated, self.epoch = plan.epoch, plan.named
        then()

    def note(self, party: int, committed: Committed) -> None:
        return

    def charge(self, thresholds: Sequence[int]) -> None:
        self.ledger = self.ledger.decided(*thresholds)

    def left_range(self, decisions: int, then: Then) -> None:
        self.ledger = self.ledger.left_range(decisions)
        then()

    def window_totals(self) -> WindowTotals | None:
        """There is no epoch before this one."""
        return None

    def keep_decisions(self, run: DecidedRun, then: Then) -> None:
        then()

    def interaction(self, name: int) -> Interaction | None:
        """One that was learned, and is kept to be unlearned."""
        kept = self._retained.get(name)
        return None if kept is None else kept.interaction

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """They are in the ledger. The actor sends them once, and does not ask."""
        return True

    def lacks(self, heard: Heard) -> bool:
        return False

    def untaught(self) -> Iterator[int]:
        """There is no epoch before this one."""
        return iter(())

    def is_taught(self, name: int) -> bool:
        return name in self._retained

    def begin_to_learn(self, name: int, interaction: Interaction) -> None:
        """Keep it until the lesson has ended."""
        self._learning[name] = interaction

    def why_not_unlearned(self, unlearning: Unlearning) -> str:
        if unlearning.drops:
            return WAS_TAUGHT if self.is_taught(unlearning.name) else ""
        return NOT_KEPT if self.learned_reward(unlearning) is None else ""

    def learned_reward(self, unlearning: Unlearning) -> int | None:
        kept = self._retained.get(unlearning.name)
        return None if kept is None or kept.lesson != unlearning.learned_in else kept.masked

    def _retain(self, lesson: Lesson, refused: str | None) -> None:
        """Keep what was learned, so that it can be unlearned; not what was unlearned."""
        for name, masked in lesson.rewards:
            interaction = self._learning.pop(name, None)
            if refused is None and interaction is not None:
                self._retained.add(name, _Retained(lesson.number, interaction, masked))
        if lesson.unlearning is not None:
            self._learning.pop(lesson.unlearning.name, None)
            if refused is None:
                self._retained.pop(lesson.unlearning.name, None)

    def log_lesson(
        self,
        lesson: Lesson,
        refused: str | None,
        checkpoint: tuple[int, LearnedState] | None,
        then: Then,
        *,
        refreshed: bool = False,
        values: WindowTotals | None = None,
    ) -> None:
        self.committed = Committed(lesson.number + 1, 0)
        self._retain(lesson, refused)
        if values is not None and self._federation.evaluation is not None:
            for _ in range(values.new):
                self.ledger = self.ledger.opened_with(self._federation.evaluation.mu)
        if refreshed:
            self.ledger = self.ledger.refreshed()
        then()

    def keep_checkpoint(self, epoch: int, state: LearnedState, then: Then, *, refreshed: bool = False) -> None:
        then()

    def undoes_used(self, plan: Plan) -> bool:
        return False

    def lacks_pruned(self, plan: Plan) -> int | None:
        return None

    def lessons(self, first: int, end: int) -> list[Lesson]:
        return []

    def state(self, name: CheckpointName) -> LearnedState:
        return public_start(self._federation, self._number)
