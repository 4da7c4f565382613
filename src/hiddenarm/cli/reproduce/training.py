"""Experiment 1: the average reward during training, for four epsilons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hiddenarm.cli.plots import running_mean
from hiddenarm.cli.reproduce.figures import add_curve, add_legend, empty_figure
from hiddenarm.cli.reproduce.findings import Claim, Findings, Picture, Table, judged
from hiddenarm.cli.reproduce.kept import Kept
from hiddenarm.cli.reproduce.learners import LearnerRun, learner_runs
from hiddenarm.cli.reproduce.setting import EPSILONS, Scale, Setting

_RUNS: Mapping[Scale, int] = {"full": 10, "quick": 10, "tiny": 2}
_POINTS = 300
_EQUAL_REWARD, _EQUAL_ARMS = 0.01, 0.99


class Training:
    """One curve for each epsilon: the mean over runs, shaded by their standard deviation."""

    name = "training"
    title = "Average reward during training"
    place = "Figure 2 (fig:bandits_epsilon)"

    def jobs(self, setting: Setting) -> Sequence[LearnerRun]:
        return [run for epsilon in EPSILONS for run in training_runs(setting, epsilon)]

    def conclude(self, setting: Setting, kept: Kept) -> Findings:
        curves = {epsilon: _Curve(training_runs(setting, epsilon), kept) for epsilon in EPSILONS}
        return Findings(
            pictures=[_picture(setting, curves)],
            tables=[_summary(curves), _points(curves)],
            claims=[_same_rewards(curves)],
        )


def training_runs(setting: Setting, epsilon: float) -> list[LearnerRun]:
    """The runs behind one curve; the attack of experiment 7 looks at their models."""
    return learner_runs(
        setting.sized(_RUNS), data=setting.data, suite=setting.suites[0], epsilon=epsilon, steps=setting.sweep
    )


class _Curve:
    """All runs of one epsilon."""

    def __init__(self, runs: Sequence[LearnerRun], kept: Kept) -> None:
        results = [kept[run] for run in runs]
        self.rewards = np.concatenate([result["rewards"] for result in results]).astype(np.float64)
        self.plain_rewards = np.concatenate([result["plain_rewards"] for result in results]).astype(np.float64)
        self.agreement = float(np.concatenate([result["same"] for result in results]).mean())

    @property
    def places(self) -> NDArray[np.int64]:
        """Steps to draw: dense at the start, where the curves bend."""
        steps = self.rewards.shape[1]
        return np.unique(np.geomspace(10, steps, _POINTS).round().astype(np.int64))

    @property
    def final(self) -> NDArray[np.float64]:
        """The average reward of each run."""
        return np.asarray(self.rewards.mean(axis=1))

    @property
    def difference(self) -> float:
        """Between private and plain reward."""
        return float(abs(self.rewards.mean() - self.plain_rewards.mean()))


def _picture(setting: Setting, curves: dict[float, _Curve]) -> Picture:
    figure, (axes,) = empty_figure()
    for style, (epsilon, curve) in enumerate(curves.items()):
        means = running_mean(curve.rewards)[:, curve.places - 1]
        add_curve(axes, style, curve.places, means.mean(axis=0), means.std(axis=0), f"{epsilon:g}")
    axes.set(xlabel="step t (decisions made)", ylabel="average reward of steps 1 to t", ylim=(0, 1), xscale="log")
    axes.set_xlim(10, setting.sweep)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    add_legend(axes, "epsilon", loc="lower right")
    runs = len(next(iter(curves.values())).rewards)
    caption = f"Average reward of the private bandit during training. Mean of {runs} runs; shaded: standard deviation."
    return Picture("training", caption, figure)


def _summary(curves: dict[float, _Curve]) -> Table:
    header = ("epsilon", "runs", "private reward", "standard deviation", "plain reward", "difference", "same arms (%)")
    rows = [
        (
            epsilon,
            len(curve.final),
            round(float(curve.final.mean()), 4),
            round(float(curve.final.std()), 4),
            round(float(curve.plain_rewards.mean()), 4),
            round(curve.difference, 5),
            round(100 * curve.agreement, 3),
        )
        for epsilon, curve in curves.items()
    ]
    return Table("training-summary", "Reward of a whole run, private and plain, with the same coins", header, rows)


def _points(curves: dict[float, _Curve]) -> Table:
    rows = []
    for epsilon, curve in curves.items():
        private = running_mean(curve.rewards)[:, curve.places - 1]
        plain = running_mean(curve.plain_rewards)[:, curve.places - 1]
        for column, step in enumerate(curve.places):
            values = private[:, column].mean(), private[:, column].std(), plain[:, column].mean()
            rows.append((epsilon, int(step), *(round(float(value), 5) for value in values)))
    header = ("epsilon", "step", "average reward", "standard deviation", "plain average reward")
    return Table("training", "The points of the figure", header, rows, shown=False)


def _same_rewards(curves: dict[float, _Curve]) -> Claim:
    worst = max(curve.difference for curve in curves.values())
    least = min(curve.agreement for curve in curves.values())
    equal = worst < _EQUAL_REWARD and least >= _EQUAL_ARMS
    return Claim(
        sentence="We compared the results obtained by our algorithm to that of a non-private implementation ... and "
        "confirmed that the observed rewards are the same for a range of epsilon values.",
        place="Experiments, Reward and privacy",
        measured=f"largest difference of the mean reward {worst:.5f}; same arm in at least {100 * least:.2f} % of the "
        "steps under the same coins",
        verdict=judged(equal),
        explanation="" if equal else "The private learner and its twin part; see the table of the learning curves.",
    )
