"""Rewards of finished runs, put together over the jobs that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.experiments.learners import LearnerRun
from hiddenarm.research.experiments.result_store import ResultStore
from hiddenarm.research.plots import running_mean


@dataclass(frozen=True)
class Rewards:
    """All replicates of one learner: rewards [replicates, steps], private and plain, and where both chose alike."""

    private: NDArray[np.float64]
    plain: NDArray[np.float64]
    same: NDArray[np.bool_]
    steps_made: int

    @classmethod
    def of(cls, runs: Sequence[LearnerRun], kept: ResultStore) -> Rewards:
        """The results of jobs that differ in their seeds only."""
        results = [kept[run] for run in runs]
        private, plain, same = (
            np.concatenate([result[name] for result in results]) for name in ("rewards", "plain_rewards", "same")
        )
        return cls(private.astype(float), plain.astype(float), same, min(int(one["steps_made"]) for one in results))

    def averages(self, steps: int | None = None) -> NDArray[np.float64]:
        """The average reward of each replicate, over its first steps."""
        return np.asarray(self.private[:, :steps].mean(axis=1))

    def mean(self, steps: int | None = None) -> float:
        """The average reward over all replicates."""
        return float(self.private[:, :steps].mean())

    def plain_mean(self, steps: int | None = None) -> float:
        """That of the plain twins."""
        return float(self.plain[:, :steps].mean())

    def deviation(self, steps: int | None = None) -> float:
        """The standard deviation of the average reward across replicates."""
        return float(self.averages(steps).std())

    @property
    def agreement(self) -> float:
        """The share of steps in which private and plain learner chose the same arm."""
        return float(self.same.mean())

    def running(self, places: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The average reward since the start at some steps, private and plain: [replicates, places]."""
        return running_mean(self.private)[:, places - 1], running_mean(self.plain)[:, places - 1]


def summary_row(rewards: Rewards, steps: int | None = None) -> tuple[float, float, float, float]:
    """Private mean and deviation, plain mean, and agreement in percent, rounded for a table."""
    values = rewards.mean(steps), rewards.deviation(steps), rewards.plain_mean(steps)
    return (*(round(value, 4) for value in values), round(100 * rewards.agreement, 2))  # type: ignore[return-value]


SUMMARY_HEADER = ("reward", "standard deviation", "plain reward", "same arms (%)")
"""What `summary_row` gives."""
