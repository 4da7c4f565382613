"""How the actor learns the arms of some decisions. It is the one thing that parties and actor do differently by suite:

    fast    SLOT      all parties tell the same public slots; the actor's seed says which arm lies in each
    paper   ONE_HOT   each party sends its share of the one-hots; the actor, who alone gets them all, adds them up

The shares of a one-hot are those of a sharing made in the last operation of `decide`, with words dealt for it: all but
one of them are uniform, and the last is what is missing to the one-hot. So the actor learns the arm and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.shuffle import permutation_of
from hiddenarm.net.frames import Frame
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import (
    Kind,
    one_hot_bytes,
    one_hot_frame,
    read_one_hots,
    read_slots,
    slot_frame,
    slots_bytes,
)


class Answer(Protocol):
    """What the parties have told the actor about decisions made together."""

    def take(self, frame: Frame) -> None:
        """Take what one party tells."""

    def arms(self) -> list[int] | None:
        """The arms, once all parties have told; None if the parties are not in step."""


class ArmReports(Protocol):
    """What travels from a party to the actor, in one suite."""

    kind: Kind
    actor_words: int
    """Words of the actor's seed for one decision."""

    def frame(self, step: int, announced: Words) -> Frame:
        """What a party tells the actor: what `decide` announced to this party."""

    def most_bytes(self, count: int) -> int:
        """The largest payload that tells of so many decisions."""

    def answers(self, count: int, words: Words) -> Sequence[Answer]:
        """Where the actor collects the answers to some requests, of `count` decisions each; `words` are those of its
        seed, a row for each request."""


class SlotReports:
    """Of the fast suite: public slots."""

    kind = Kind.SLOT

    def __init__(self, arms: int) -> None:
        self.actor_words = arms

    def frame(self, step: int, announced: Words) -> Frame:
        return slot_frame(step, *announced[0].tolist())

    def most_bytes(self, count: int) -> int:
        return slots_bytes(count)

    def answers(self, count: int, words: Words) -> Sequence[Answer]:
        orders = permutation_of(words.reshape(len(words), count, self.actor_words))
        return [_SlotAnswer(arms_by_slot) for arms_by_slot in orders.tolist()]


class OneHotReports:
    """Of the paper's suite: shares of one-hots."""

    kind = Kind.ONE_HOT
    actor_words = 0

    def __init__(self, arms: int) -> None:
        self._arms = arms

    def frame(self, step: int, announced: Words) -> Frame:
        return one_hot_frame(step, announced[0])

    def most_bytes(self, count: int) -> int:
        return one_hot_bytes(count, self._arms)

    def answers(self, count: int, words: Words) -> Sequence[Answer]:
        return [_OneHotAnswer(count, self._arms) for _ in words]


class _SlotAnswer:
    """Knows what each slot will mean before the first one is told."""

    def __init__(self, arms_by_slot: list[list[int]]) -> None:
        self._arms_by_slot = arms_by_slot
        self._told: list[list[int]] = []

    def take(self, frame: Frame) -> None:
        self._told.append(read_slots(frame))

    def arms(self) -> list[int] | None:
        slots = self._told[0]
        if self._told.count(slots) < len(self._told) or max(slots) >= len(self._arms_by_slot[0]):
            return None
        return [arms[slot] for arms, slot in zip(self._arms_by_slot, slots, strict=True)]


class _OneHotAnswer:
    """Adds up shares; what comes out must be one-hot."""

    def __init__(self, count: int, arms: int) -> None:
        self._sum = np.zeros((count, arms), np.uint64)

    def take(self, frame: Frame) -> None:
        self._sum += read_one_hots(frame, self._sum.shape[1])

    def arms(self) -> list[int] | None:
        arms = self._sum.argmax(axis=1)
        if not np.array_equal(self._sum, np.eye(self._sum.shape[1], dtype=np.uint64)[arms]):
            return None
        return list(map(int, arms))


def arm_reports(federation: Federation) -> ArmReports:
    """How the actor of a federation learns the arms."""
    return SlotReports(federation.arms) if federation.learner.tells_slots else OneHotReports(federation.arms)
