"""Experiment 1: the average reward during training, for four epsilons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.experiments.experiment import EPSILONS, Claim, Findings, Picture, Scale, Setting, Table, judged
from hiddenarm.research.experiments.figures import add_curve, add_legend, empty_figure
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.learners import LearnerRun, learner_runs
from hiddenarm.research.experiments.rewards import SUMMARY_HEADER, Rewards, summary_row

_RUNS: Mapping[Scale, int] = {"full": 10, "quick": 10, "tiny": 2}
_POINTS = 200
_EQUAL_REWARD, _EQUAL_ARMS = 0.01, 0.99

_Curves = Mapping[float, Rewards]


class Training:
    """One curve for each epsilon: the mean over runs, shaded by their standard deviation."""

    name = "training"
    title = "Average reward during training"
    place = "Figure 2 (fig:bandits_epsilon)"

    def jobs(self, setting: Setting) -> Sequence[LearnerRun]:
        return [run for epsilon in EPSILONS for run in training_runs(setting, epsilon)]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        curves = {epsilon: Rewards.of(training_runs(setting, epsilon), kept) for epsilon in EPSILONS}
        return Findings(
            pictures=[_picture(setting, curves)],
            tables=[_summary(curves), _points(setting, curves)],
            claims=[_same_rewards(curves)],
        )


def training_runs(setting: Setting, epsilon: float) -> list[LearnerRun]:
    """The runs behind one curve."""
    return learner_runs(
        setting.sized(_RUNS), data=setting.data, suite=setting.suites[0], epsilon=epsilon, steps=setting.sweep
    )


def _places(setting: Setting) -> NDArray[np.int64]:
    """Steps to draw: denser at the start, where the curves bend."""
    return np.unique((np.linspace(0.05, 1, _POINTS) ** 2 * setting.sweep).round().astype(np.int64)).clip(min=1)


def _picture(setting: Setting, curves: _Curves) -> Picture:
    figure, (axes,) = empty_figure()
    places = _places(setting)
    for style, (epsilon, rewards) in enumerate(curves.items()):
        private, _ = rewards.running(places)
        label = f"{epsilon:g}  ({rewards.mean():.3f} at the end)"
        add_curve(axes, style, places, private.mean(axis=0), private.std(axis=0), label)
    axes.set(xlabel="step t (decisions made)", ylabel="average reward of steps 1 to t", ylim=(0, 1))
    axes.set_xlim(0, setting.sweep)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    add_legend(axes, "epsilon", loc="lower right")
    runs = len(next(iter(curves.values())).private)
    caption = f"Average reward of the private bandit during training. Mean of {runs} runs; shaded: standard deviation."
    return Picture("training", caption, figure)


def _summary(curves: _Curves) -> Table:
    rows = [(epsilon, len(rewards.private), *summary_row(rewards)) for epsilon, rewards in curves.items()]
    title = "Reward of a whole run, private and plain, with the same coins"
    return Table("training-summary", title, ("epsilon", "runs", *SUMMARY_HEADER), rows)


def _points(setting: Setting, curves: _Curves) -> Table:
    rows, places = [], _places(setting)
    for epsilon, rewards in curves.items():
        private, plain = rewards.running(places)
        for column, step in enumerate(places):
            values = private[:, column].mean(), private[:, column].std(), plain[:, column].mean()
            rows.append((epsilon, int(step), *(round(float(value), 5) for value in values)))
    header = ("epsilon", "step", "average reward", "standard deviation", "plain average reward")
    return Table("training", "The points of the figure", header, rows, shown=False)


def _same_rewards(curves: _Curves) -> Claim:
    worst = max(abs(rewards.mean() - rewards.plain_mean()) for rewards in curves.values())
    least = min(rewards.agreement for rewards in curves.values())
    equal = worst < _EQUAL_REWARD and least >= _EQUAL_ARMS
    return Claim(
        sentence="We compared the results obtained by our algorithm to that of a non-private implementation ... and "
        "confirmed that the observed rewards are the same for a range of epsilon values.",
        place="Experiments, Reward and privacy",
        measured=f"largest difference of the mean reward {worst:.5f}; a plain learner taught the same "
        f"would choose alike in at least {100 * least:.2f} % of the steps, under the same coins",
        verdict=judged(equal),
        explanation="" if equal else "The private learner and its twin part; see the table of the learning curves.",
    )
