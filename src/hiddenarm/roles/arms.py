"""How the actor learns the arms of a run from what all parties answer (`bandit.answers`).

    PAYLOADS   shares of 32-bit words, by xor: zero at the chosen arm, uniform at the others. The parties do not have
               the arm: the actor returns its one-hot, under a mask of its seed that the parties have shares of.
    ONE_HOT    additive shares of the one-hot, which the parties have

Where none of the words is zero a score has left its range, and where two are it is a coincidence. Then the actor's
caller gets an error, and the parties a masked zero vector, so that they do not notice.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hiddenarm.bandit.answers import ALL_BITS, NO_ARM, TWO_ARMS, Answers, arms_in
from hiddenarm.bandit.catalogue import ProgramId, slots_of
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policy import Learner
from hiddenarm.bandit.subsets import subset_sizes
from hiddenarm.net.frames import Frame
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import (
    Kind,
    one_hot_bytes,
    one_hot_frame,
    payloads_bytes,
    payloads_frame,
    read_one_hots,
    read_payloads,
)


class Collected(Protocol):
    """What the parties have told the actor about a run."""

    def take(self, frame: Frame) -> None:
        """Take what one party tells."""

    def arms(self) -> list[int] | None:
        """The arms, once all parties have told, with NO_ARM or TWO_ARMS in place of one; None if the parties are not in
        step."""


class ArmReports(Protocol):
    """What travels from a party to the actor."""

    kind: Kind

    def frame(self, program: ProgramId, step: int, answer: Words) -> Frame:
        """What a party tells the actor: the answer of its run."""

    def most_bytes(self, count: int) -> int:
        """The largest payload that tells of so many decisions."""

    def collected(self, may_win: Sequence[frozenset[int]]) -> Collected:
        """Where the actor collects the answers about a run, in each decision of which these arms may win."""


class PayloadReports:
    """Words that are zero at the chosen arm."""

    kind = Kind.PAYLOADS

    def __init__(self, arms: int) -> None:
        self._arms = arms

    def frame(self, program: ProgramId, step: int, answer: Words) -> Frame:
        return payloads_frame(program, step, answer)

    def most_bytes(self, count: int) -> int:
        return payloads_bytes(count, self._arms)

    def collected(self, may_win: Sequence[frozenset[int]]) -> Collected:
        return _CollectedPayloads(self._arms, may_win)


class OneHotReports:
    """Shares of one-hots."""

    kind = Kind.ONE_HOT

    def __init__(self, arms: int) -> None:
        self._arms = arms

    def frame(self, program: ProgramId, step: int, answer: Words) -> Frame:
        return one_hot_frame(program, step, answer)

    def most_bytes(self, count: int) -> int:
        return one_hot_bytes(count, self._arms)

    def collected(self, may_win: Sequence[frozenset[int]]) -> Collected:
        return _CollectedOneHots(self._arms, may_win)


class _CollectedPayloads:
    """The exclusive or of all shares, as one large number: of one decision nothing is quicker."""

    def __init__(self, arms: int, may_win: Sequence[frozenset[int]]) -> None:
        self._arms = arms
        self._may_win = may_win
        self._xor = 0

    def take(self, frame: Frame) -> None:
        self._xor ^= int.from_bytes(read_payloads(frame, self._arms), "little")

    def arms(self) -> list[int]:
        arms, count = self._arms, len(self._may_win)
        each = struct.unpack(f"<{count * arms}I", self._xor.to_bytes(payloads_bytes(count, arms), "little"))
        return [_only(each[at * arms : (at + 1) * arms], may_win) for at, may_win in enumerate(self._may_win)]


class _CollectedOneHots:
    """The sum of all shares; what comes out must be one-hots of eligible arms."""

    def __init__(self, arms: int, may_win: Sequence[frozenset[int]]) -> None:
        self._sum = np.zeros((len(may_win), arms), np.uint64)
        self._eligible = np.zeros_like(self._sum)
        for row, allowed in zip(self._eligible, may_win, strict=True):
            row[list(allowed)] = ALL_BITS

    def take(self, frame: Frame) -> None:
        self._sum += read_one_hots(frame, self._sum.shape[1])

    def arms(self) -> list[int] | None:
        arms: list[int] = arms_in(Answers.ONE_HOTS, [self._sum], self._eligible).tolist()
        return None if min(arms) < 0 else arms


def _only(words: tuple[int, ...], may_win: frozenset[int]) -> int:
    """The arm that may win and whose word is zero."""
    found = [arm for arm, word in enumerate(words) if not word and arm in may_win]
    return found[0] if len(found) == 1 else TWO_ARMS if found else NO_ARM


class ReportsBySlots:
    """How the actor of a federation learns the arms: by program, as few slots are compared pair by pair where many arms
    are shuffled."""

    def __init__(self, federation: Federation) -> None:
        self._whole = _reports_of(federation.learner, federation.arms)
        self._among = {size: _reports_of(federation.learner.among(size), size) for size in subset_sizes(federation)}
        every = self._whole, *self._among.values()
        self.kinds = frozenset(reports.kind for reports in every)
        self.may_return = any(_returned(reports) for reports in every)
        """Whether the actor returns arms that were found by any program."""

    def of(self, program: ProgramId) -> ArmReports:
        """Those about runs of a program."""
        slots = slots_of(program)
        return self._whole if slots is None else self._among[slots]

    def returned(self, program: ProgramId) -> bool:
        """Whether the actor returns the arms that it has found."""
        return _returned(self.of(program))

    def most_bytes(self, kind: Kind, count: int) -> int:
        """The largest payload of a kind that tells of so many decisions."""
        every = self._whole, *self._among.values()
        return max(reports.most_bytes(count) for reports in every if reports.kind is kind)


def _reports_of(learner: Learner, arms: int) -> ArmReports:
    return PayloadReports(arms) if learner.answers is Answers.PAYLOADS else OneHotReports(arms)


def _returned(reports: ArmReports) -> bool:
    return reports.kind is Kind.PAYLOADS


def arm_reports(federation: Federation) -> ReportsBySlots:
    """How the actor of a federation learns the arms."""
    return ReportsBySlots(federation)
