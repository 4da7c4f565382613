"""Beyond the paper: reward against the total epsilon of everything that a run releases, for noisy sums and for
exploration alone. Learners are emulated in floating point; the private ones earn the same (docs/noisy-sums.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.plain import PlainBandits
from hiddenarm.privacy.actions import exploration_for
from hiddenarm.privacy.correlated import MOST_LEAVES
from hiddenarm.privacy.mechanisms import DEFAULT_DELTA, NoisySums
from hiddenarm.research.attacks.noisy_sums import NoisyModels, NormalNumbers, Sums, intervals
from hiddenarm.research.attacks.sequence import best_arms
from hiddenarm.research.attacks.trials import Coins
from hiddenarm.research.experiments.experiment import Data, Findings, Picture, Scale, Setting, Table
from hiddenarm.research.experiments.figures import add_legend, add_line, empty_figure
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.research.experiments.learners import FEATURES, ContextStream, load_course
from hiddenarm.ring.streams import derive
from hiddenarm.ring.words import Floats

_ARMS = 10
_FRESH, _CORRELATED = "noisy sums", "noisy sums, correlated noise"
_TOTALS: Mapping[Scale, tuple[float, ...]] = {
    "full": (0.5, 1.0, 2.0, 4.0, 8.0),
    "quick": (1.0, 4.0, 8.0),
    "tiny": (1.0, 8.0),
}
_RUNS: Mapping[Scale, int] = {"full": 10, "quick": 5, "tiny": 2}
_FIRST: Mapping[Scale, int] = {"full": 500, "quick": 200, "tiny": 20}
"""Lessons before the first model."""
_EPSILON = 0.02
"""Exploration beside noisy sums: what the row's own action tells."""
_SECONDS_A_STEP = 20e-6


@dataclass(frozen=True)
class OverTimeRun(Job):
    """Some replicates of a learner with a total epsilon, or of one without any bound (0). The result: `rewards`, the
    mean of each replicate."""

    kind: ClassVar[str] = "over-time"

    data: Data
    mechanism: str
    total_epsilon: float
    epsilon: float
    first_refresh: int
    seeds: tuple[int, ...]
    steps: int

    @property
    def title(self) -> str:
        return f"{self.mechanism}, total epsilon {self.total_epsilon:g}, {len(self.seeds)} runs"

    @property
    def expected_seconds(self) -> float:
        return 2 + self.steps * (30e-6 + len(self.seeds) * _SECONDS_A_STEP)

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        course = load_course(self.data, _ARMS, "classes", self.seeds, self.steps, data_dir)
        key = sha256(f"hiddenarm reproduce over time {self.data} {self.seeds}".encode()).digest()
        coins = Coins.drawn(derive(key, "coins"), range(len(self.seeds)), self.steps, self.epsilon)
        learn = self._noisy if self.mechanism in (_FRESH, _CORRELATED) else self._plain
        return {"rewards": learn(course, coins, derive(key, "noise"), progress)}

    def _plain(self, course: ContextStream, coins: Coins, key: bytes, progress: Progress) -> Floats:
        bandits, earned = PlainBandits(course.replicates, _ARMS, FEATURES), np.zeros(course.replicates)
        for step in range(self.steps):
            contexts = course.contexts(step)
            arms = coins.choose(step, best_arms(bandits.scores(contexts)))
            rewards = course.rewards(step, arms)
            bandits.learn(contexts, arms, rewards)
            earned += rewards
            if step % 1000 == 0:
                progress(step / self.steps, "")
        return earned / self.steps

    def _noisy(self, course: ContextStream, coins: Coins, key: bytes, progress: Progress) -> Floats:
        """Between refreshes the model stays as it is: all decisions at once."""
        privacy = NoisySums(self.total_epsilon, first_refresh=self.first_refresh)
        if self.mechanism == _CORRELATED:
            privacy = replace(privacy, correlated=max(2, min(MOST_LEAVES, privacy.refreshes_by(self.steps))))
        models, earned = NoisyModels(course.replicates, _ARMS, FEATURES, privacy), np.zeros(course.replicates)
        for number, (steps, refreshed) in enumerate(intervals(privacy, self.steps)):
            within = np.s_[steps.start : steps.stop]
            contexts = course.world.contexts[course.rows[:, within]]
            arms = coins.choose(within, best_arms(np.matmul(contexts, models.weights.transpose(0, 2, 1))))
            rewards = np.stack([course.rewards(step, arms[:, step - steps.start]) for step in steps], axis=1)
            earned += rewards.sum(axis=1)
            if refreshed:
                gathered = Sums.of_lessons(contexts, arms, rewards, np.ones(arms.shape, np.bool_), _ARMS)
                normals = NormalNumbers(derive(key, number), models.normals)
                models.refresh(gathered, normals.at(0, course.replicates))
            progress(steps.stop / self.steps, "")
        return earned / self.steps


class PrivacyOverTime:
    """One line for each mechanism, and the reward without any bound."""

    name = "privacy-over-time"
    title = "Reward against privacy over time"
    place = "beyond the paper: docs/privacy.md"

    def jobs(self, setting: Setting) -> Sequence[OverTimeRun]:
        return [run for line in _lines(setting).values() for run in line.values()]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        lines = {
            name: {total: kept[run]["rewards"] for total, run in line.items()} for name, line in _lines(setting).items()
        }
        return Findings(
            pictures=[_picture(setting, lines)],
            tables=[_table(setting, lines)],
            remarks=[
                f"Total epsilon at delta {DEFAULT_DELTA:g} of all that {setting.sweep:,} steps release: about a "
                "dropped row for noisy sums, which do not grow with the steps, with noise that is fresh at each "
                "refresh or correlated over all of them; of all actions for exploration alone, "
                "whose chance to explore is then so near 1 that nothing is learned. Learners are emulated in floating "
                "point.",
            ],
        )


Lines = Mapping[str, Mapping[float, Floats]]
_UNBOUNDED = "no bound"


def _lines(setting: Setting) -> dict[str, dict[float, OverTimeRun]]:
    totals = setting.sized(_TOTALS)

    def run(mechanism: str, total: float, epsilon: float) -> OverTimeRun:
        seeds, first = tuple(range(setting.sized(_RUNS))), setting.sized(_FIRST)
        return OverTimeRun(setting.data, mechanism, total, epsilon, first, seeds, setting.sweep)

    return {
        _FRESH: {total: run(_FRESH, total, _EPSILON) for total in totals},
        _CORRELATED: {total: run(_CORRELATED, total, _EPSILON) for total in totals},
        "exploration alone": {
            total: run("exploration alone", total, exploration_for(_ARMS, setting.sweep, total, DEFAULT_DELTA))
            for total in totals
        },
        _UNBOUNDED: {0.0: run(_UNBOUNDED, 0.0, _EPSILON)},
    }


def _picture(setting: Setting, lines: Lines) -> Picture:
    figure, (axes,) = empty_figure()
    for style, (name, points) in enumerate(lines.items()):
        if name == _UNBOUNDED:
            axes.axhline(float(points[0.0].mean()), color="0.45", linewidth=1, linestyle=(0, (1, 2)), label="no bound")
            continue
        rewards = list(points.values())
        add_line(axes, style, list(points), [one.mean() for one in rewards], name, [one.std() for one in rewards])
    axes.axhline(1 / _ARMS, color="0.8", linewidth=1)
    axes.set(xscale="log", xlabel="total epsilon", ylabel="average reward of a run", ylim=(0, 1))
    add_legend(axes, loc="center right")
    caption = f"Average reward of {setting.sweep:,} steps; mean and deviation of {setting.sized(_RUNS)} orders."
    return Picture("privacy-over-time", caption, figure)


def _table(setting: Setting, lines: Lines) -> Table:
    runs = _lines(setting)
    rows = [
        (
            *(name, total or None, round(runs[name][total].epsilon, 6)),
            *(round(float(number), 4) for number in (rewards.mean(), rewards.std())),
        )
        for name, points in lines.items()
        for total, rewards in points.items()
    ]
    header = ("mechanism", "total epsilon", "exploration", "reward", "deviation")
    return Table("privacy-over-time", "Reward against the total epsilon of a run", header, rows)
