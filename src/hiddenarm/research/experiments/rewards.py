"""Rewards of finished runs, put together over the jobs that made them, and the privacy loss to draw them against.

The privacy loss eta of one decision follows from epsilon. An arm has probability epsilon / A at least and 1 - epsilon +
epsilon / A at most, whatever the scores are. The loss is the logarithm of their ratio, eta = log(A / epsilon - A + 1),
and no smaller one holds. The paper states the larger log(A / epsilon).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.experiments.jobs import Job, ResultStore
from hiddenarm.research.plots import running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Rewards:
    """All replicates of one learner, [replicates, steps]: rewards, private and plain, and where the taught twin
    agreed."""

    private: NDArray[np.float64]
    plain: NDArray[np.float64]
    agreed: NDArray[np.bool_]
    steps_made: int

    @classmethod
    def of(cls, runs: Sequence[Job], kept: ResultStore) -> Rewards:
        """The results of jobs that differ in their seeds only."""
        results = [kept[run] for run in runs]
        private, plain, agreed = (
            np.concatenate([result[name] for result in results]) for name in ("rewards", "plain_rewards", "agreed")
        )
        return cls(private.astype(float), plain.astype(float), agreed, min(int(one["steps_made"]) for one in results))

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
        """The share of steps in which a plain learner that was taught the same would choose as the private one."""
        return float(self.agreed.mean())

    def running(self, places: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The average reward since the start at some steps, private and plain: [replicates, places]."""
        return running_mean(self.private)[:, places - 1], running_mean(self.plain)[:, places - 1]


def summary_row(rewards: Rewards, steps: int | None = None) -> tuple[float, float, float, float]:
    """Private mean and deviation, plain mean, and agreement in percent, rounded for a table."""
    values = rewards.mean(steps), rewards.deviation(steps), rewards.plain_mean(steps)
    return (*(round(value, 4) for value in values), round(100 * rewards.agreement, 2))  # type: ignore[return-value]


SUMMARY_HEADER = ("reward", "standard deviation", "plain reward", "agreement (%)")
"""What `summary_row` gives."""


LOSS_HEADER = ("eta", "eta: the paper's bound")
"""What `loss_cells` gives."""
_GAP = 1.0
"""How far right of the largest finite eta the non-private point is drawn."""


def privacy_loss(arms: int, epsilon: float) -> float:
    """eta = log(A / epsilon - A + 1); infinite without exploration."""
    return log(arms / epsilon - arms + 1) if epsilon > 0 else inf


def papers_bound(arms: int, epsilon: float) -> float:
    """What the paper states: log(A / epsilon)."""
    return log(arms / epsilon) if epsilon > 0 else inf


def loss_cells(arms: int, epsilon: float) -> tuple[float | str, float | str]:
    """The loss and the paper's bound, for a table."""
    return _cell(privacy_loss(arms, epsilon)), _cell(papers_bound(arms, epsilon))


def _cell(loss: float) -> float | str:
    return "infinite" if loss == inf else round(loss, 3)


def places_of(losses: Sequence[float], largest: float) -> list[float]:
    """Where to draw: infinity at a place of its own, right of the largest finite loss."""
    return [largest + _GAP if loss == inf else loss for loss in losses]


def mark_infinity(axes: Axes, largest: float) -> None:
    """Label the axis of losses up to `largest`, and infinity."""
    finite = [float(tick) for tick in range(int(largest) + 1)]
    axes.set_xlim(left=0, right=largest + _GAP + 0.3)
    axes.set_xticks([*finite, largest + _GAP], [*(f"{tick:.0f}" for tick in finite), "∞"])
    axes.axvline(largest + _GAP / 2, color="0.7", linewidth=0.8, linestyle=":")
    axes.set_xlabel("privacy loss of a decision, η = log(A / ε - A + 1)    (less private →)")
