"""Where a party keeps its decisions until they are rewarded, and notes how lessons ended, in one epoch.

A decision is *complete* when the one-hot of its arm is there: with it, or returned by the actor. The one-hot of a
decision of an earlier epoch may still be returned until the actor has said that all were (`end_arms`); one of this
epoch always.

What a party may say depends on what it has kept: the rewarder hears of a lesson only once it is kept; so does the actor
of a decision where state lasts. A decision is charged to the privacy ledger before anything is said of it, and that is
written down with it: no answer leaves that is not counted, whatever ends in between.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.decisions import MAX_PENDING, decision_name, decision_number, split_name
from hiddenarm.bandit.interactions import Decided, Interaction, interactions
from hiddenarm.bandit.policy import Policy
from hiddenarm.bandit.subsets import Subset
from hiddenarm.errors import ClientError
from hiddenarm.privacy.ledger import COIN_UNITS, PrivacyLedger
from hiddenarm.ring.words import Words
from hiddenarm.roles.decision_records import DecidedRun
from hiddenarm.roles.epochs.plan import Plan, Spent
from hiddenarm.roles.messages import ReturnedArms, Unlearning
from hiddenarm.roles.party_records import Records
from hiddenarm.roles.updater import LessonEnded
from hiddenarm.store.journal import Then


class Ledger:
    """Decisions of this epoch are at hand, the newest of them. What the records hold besides is read when it is needed:
    in memory nothing, so older decisions are forgotten, at all parties alike; on disk everything. An ordered dictionary
    finds its oldest entry at once; a plain one searches past all that were removed."""

    def __init__(self, records: Records, plan: Plan, policy: Policy, spent: Spent) -> None:
        self._records = records
        self._policy = policy
        self._origin = spent.decisions
        self._epoch = plan.epoch
        self._named = plan.named
        self._at_hand: OrderedDict[int, Interaction] = OrderedDict()
        self._begun: set[int] = set()
        self._arms_ended = False

    @property
    def pending(self) -> int:
        """Decisions that wait for their reward."""
        kept = self._records.pending
        return len(self._at_hand) if kept is None else kept

    @property
    def released(self) -> PrivacyLedger:
        """All that was counted."""
        return self._records.ledger

    @property
    def charged(self) -> int:
        """Decisions that were counted, over all epochs, but for those that were purely explored."""
        return self._records.ledger.telling

    def charge(self, program: ProgramId, step: int, *, pure: bool) -> None:
        """Count decisions that are about to be told, by the chance with which they were explored; `pure` if that was
        certain."""
        if pure:
            self._records.charge([COIN_UNITS] * program.count)
            return
        self._records.charge(self._policy.levels(self._origin + step * program.count, program.count))

    def left_range(self, decisions: int, then: Then) -> None:
        """Count decisions that ended as their scores were out of range; `then` is called when that lasts."""
        self._records.left_range(decisions, then)

    def keep(
        self,
        program: ProgramId,
        step: int,
        features: Words,
        decided: Decided,
        then: Then,
        *,
        version: int = 0,
        rows_of: Sequence[int] = (),
        slots: Subset | None = None,
    ) -> None:
        """Keep decisions that were made together by a version of the model, and whose rows they are, where these are
        counted; where what is kept of the arms is of slots, with their arms. `then` is called when they are kept."""
        for position, interaction in enumerate(interactions(features, decided, rows_of, slots)):
            number = decision_number(program, step, position)
            self._at_hand[decision_name(self._named, number)] = interaction
        while len(self._at_hand) > MAX_PENDING:
            self._at_hand.popitem(last=False)
        run = DecidedRun(self._named, program, step, features, decided, version, rows_of, slots)
        self._records.keep_decisions(run, then)

    def take_arms(self, returned: ReturnedArms, then: Then) -> None:
        """Keep the one-hots that the actor has returned for a run; `then` is called when they last. The mask of a
        decision hides one one-hot: another is refused."""
        fits = self._records.keep_arms(returned, then)
        first, words = returned.name, returned.words
        for position in range(returned.program.count):
            interaction = self._at_hand.get(first + position)
            if interaction is None:
                continue
            masked = words[:, position]
            if masked.shape != interaction.arm_mask.shape:
                fits = False
            elif interaction.masked_arm is None:
                interaction.masked_arm = masked
            elif not np.array_equal(interaction.masked_arm, masked):
                fits = False
        if not fits:
            raise ClientError("the actor has returned two arms for one decision")

    def end_arms(self) -> None:
        """The actor has returned all that it will return for decisions of earlier epochs."""
        self._arms_ended = True

    def complete_before(self) -> list[int]:
        """Decisions of earlier epochs that wait for their reward and can be rewarded."""
        return [name for name in self._records.untaught() if name in self]

    def awaits_arm(self, name: int) -> bool:
        """Whether a decision waits for its reward, and its one-hot is still to be returned."""
        at_hand = self._at_hand.get(name)
        if at_hand is not None and at_hand.masked_arm is not None:
            return False
        if self._arms_ended and split_name(name)[0] != self._named:
            return False
        waiting = self._waiting(name)
        return waiting is not None and waiting.masked_arm is None

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, int):
            return False
        waiting = self._waiting(name)
        return waiting is not None and waiting.masked_arm is not None

    def _waiting(self, name: int) -> Interaction | None:
        """A decision that waits for its reward, whether its one-hot is there or not."""
        if name in self._begun or self._records.is_taught(name):
            return None
        return self._at_hand.get(name) or self._records.interaction(name)

    def __getitem__(self, name: int) -> Interaction:
        interaction = self._at_hand.get(name) or self._records.interaction(name)
        if interaction is None:
            raise KeyError(name)
        return interaction

    def __delitem__(self, name: int) -> None:
        interaction = self._at_hand.pop(name, None)
        if interaction is not None:
            self._records.begin_to_learn(name, interaction)
        self._begun.add(name)

    def why_not_unlearned(self, unlearning: Unlearning) -> str:
        """Why a decision cannot be unlearned, or dropped; empty if it can."""
        return self._records.why_not_unlearned(unlearning)

    def learned_reward(self, unlearning: Unlearning) -> int | None:
        """The masked reward with which a decision was learned; None if it was not, in this lesson."""
        return self._records.learned_reward(unlearning)

    def lesson_ended(self, ended: LessonEnded, then: Then) -> None:
        """A lesson was learned, or refused; `then` is called when that is noted. Of one that was learned again, only a
        checkpoint is."""
        lesson, checkpoint = ended.lesson, None if ended.checkpoint is None else (self._epoch, ended.checkpoint)
        if not lesson.logged:
            self._records.log_lesson(
                lesson, ended.refused, checkpoint, then, refreshed=ended.refreshed, values=ended.values
            )
            self._begun.difference_update(name for name, _ in lesson.rewards)
            if lesson.unlearning is not None:
                self._begun.discard(lesson.unlearning.name)
        elif checkpoint is not None:
            self._records.keep_checkpoint(*checkpoint, then, refreshed=ended.refreshed)
