"""Where a party keeps its decisions until they are rewarded, and notes how lessons ended.

What a party may say depends on what it has kept: the actor hears of a decision, and the rewarder of a lesson, only once
it is kept. In memory that is at once. `roles/durable_ledger.py` keeps the same in a store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.decisions import MAX_PENDING, decision_number
from hiddenarm.bandit.interactions import Decided, Interaction, interactions
from hiddenarm.ring.words import Words
from hiddenarm.roles.updater import Decisions, LessonEnded

Then = Callable[[], None]


class Ledger(Decisions, Protocol):
    """What a party keeps."""

    tells_early: bool
    """Whether the actor may hear of a decision before it is kept."""
    checkpoint_every: int
    """After so many lessons the state is kept; 0 if it never is."""

    @property
    def pending(self) -> int:
        """Decisions that wait for their reward."""

    def keep(self, program: ProgramId, step: int, features: Words, decided: Decided, then: Then) -> None:
        """Keep decisions that were made together; `then` is called when they are kept."""

    def lesson_ended(self, ended: LessonEnded, then: Then) -> None:
        """A lesson was learned, or refused; `then` is called when that is noted."""


class MemoryLedger(OrderedDict[int, Interaction]):
    """Keeps decisions in memory, by number: there is only one epoch. An ordered dictionary finds its oldest entry at
    once; a plain one searches past all that were removed."""

    tells_early = True
    checkpoint_every = 0

    @property
    def pending(self) -> int:
        return len(self)

    def keep(self, program: ProgramId, step: int, features: Words, decided: Decided, then: Then) -> None:
        for position, interaction in enumerate(interactions(features, decided)):
            self[decision_number(program.count, step, position)] = interaction
        while len(self) > MAX_PENDING:
            self.popitem(last=False)
        then()

    def lesson_ended(self, ended: LessonEnded, then: Then) -> None:
        then()
