"""What a role knows about how it is doing: counts and times, and nothing of what it computes on; of the actor also how
often it was told each arm, and of the rewarder the sum of its rewards, which are for their own pages only.

They are kept where they arise, once per run and never for a frame, and put together when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hiddenarm.bandit.evaluation import OpenedValues
from hiddenarm.privacy.ledger import PrivacyLedger

BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds; runs are counted by the first of these that they do not exceed."""


@dataclass(slots=True)
class RunTimes:
    """The runs of one program that came to their end: how long they took, and for how many interactions."""

    seconds: float = 0.0
    interactions: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    @property
    def runs(self) -> int:
        return sum(self.buckets)

    def observe(self, interactions: int, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        self.interactions += interactions


@dataclass(frozen=True, slots=True)
class LastRun:
    """The rounds of the run that ended last, of one program: when this party sent its words for each, in seconds since
    the first, and when the run ended; waiting for words from outside included."""

    interactions: int
    sent: tuple[float, ...]
    bytes: tuple[int, ...]
    """What it sent to each peer in each round."""
    ended: float


@dataclass(slots=True)
class RewardSums:
    """Of a rewarder: the rewards that it was given since it started."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def observe(self, rewards: Iterable[float]) -> None:
        for reward in rewards:
            self.count += 1
            self.total += reward
            self.squares += reward * reward


@dataclass(frozen=True, slots=True)
class Health:
    """What may be shown of a role's state. `stock` is there for the last party, `runs` for every party."""

    waiting: int = 0
    """Requests that were received, or made, and are not answered."""
    pending: int | None = None
    """Decisions that wait for their reward."""
    version: int | None = None
    """Lessons in the model."""
    stock: dict[str, int] = field(default_factory=dict)
    """Steps whose corrections are in stock, by program."""
    out_of_stock: bool = False
    """Whether the last party has refused a single decision, as the dealer is away and what it dealt is used up."""
    runs: dict[str, RunTimes] = field(default_factory=dict)
    """Runs by program."""
    last_runs: dict[str, LastRun] = field(default_factory=dict)
    """Of a party: the last run of each program."""
    arms: dict[int, int] = field(default_factory=dict)
    """Of the actor, who alone knows them: how often each arm was chosen since it started. Not for metrics."""
    rewards: RewardSums | None = None
    """Of the rewarder, who alone knows them. Not for metrics."""
    ledger: PrivacyLedger | None = None
    """Of a party: what was released over all epochs."""
    values: OpenedValues | None = None
    """Of the role that they are opened to: values of policies."""
