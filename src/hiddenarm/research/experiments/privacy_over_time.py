"""Beyond the paper: reward against the total epsilon of everything that a run releases, for noisy sums, for the noisy
gradient and for exploration alone, on digits and on two worlds that are drawn. Learners are emulated in floating point;
the private ones earn the same (docs/noisy-sums.md)."""

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
from hiddenarm.privacy.mechanisms import DEFAULT_DELTA, NoisyGradient, NoisySums
from hiddenarm.research.attacks.noisy_sums import GradientModels, NoisyModels, NormalNumbers, Sums, intervals
from hiddenarm.research.attacks.sequence import best_arms
from hiddenarm.research.attacks.trials import Coins, Ints
from hiddenarm.research.data.synthetic import SYNTHETIC
from hiddenarm.research.experiments.experiment import Findings, Picture, Scale, Setting, Table
from hiddenarm.research.experiments.figures import add_legend, add_line, empty_figure
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.research.experiments.learners import ContextStream
from hiddenarm.research.experiments.policies import load_named
from hiddenarm.ring.streams import derive
from hiddenarm.ring.words import Floats

_FRESH, _CORRELATED, _GRADIENT = "noisy sums", "noisy sums, correlated noise", "noisy gradient"
_WORLDS: Mapping[Scale, tuple[str, ...]] = {"full": tuple(SYNTHETIC), "quick": (), "tiny": ("cover",)}
"""Beside digits."""
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
_EVERY: Mapping[Scale, int] = {"full": 200, "quick": 100, "tiny": 10}
"""Lessons between two steps along the gradient."""
_SECONDS_A_STEP = 20e-6


@dataclass(frozen=True)
class OverTimeRun(Job):
    """Some replicates of a learner with a total epsilon, or of one without any bound (0). The result: `rewards`, the
    mean of each replicate."""

    kind: ClassVar[str] = "over-time"

    world: str
    mechanism: str
    total_epsilon: float
    epsilon: float
    lessons: int
    """Before the first model, or between two of the noisy gradient."""
    seeds: tuple[int, ...]
    steps: int

    @property
    def title(self) -> str:
        return f"{self.world}, {self.mechanism}, total epsilon {self.total_epsilon:g}, {len(self.seeds)} runs"

    @property
    def expected_seconds(self) -> float:
        return 2 + self.steps * (30e-6 + len(self.seeds) * _SECONDS_A_STEP)

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        course = ContextStream(load_named(self.world, data_dir), self.seeds, self.steps)
        key = sha256(f"hiddenarm reproduce over time {self.world} {self.seeds}".encode()).digest()
        coins = Coins.drawn(derive(key, "coins"), range(len(self.seeds)), self.steps, self.epsilon)
        noisy = {_FRESH: self._noisy, _CORRELATED: self._noisy, _GRADIENT: self._downhill}
        learn = noisy.get(self.mechanism, self._plain)
        return {"rewards": learn(course, coins, derive(key, "noise"), progress)}

    def _plain(self, course: ContextStream, coins: Coins, key: bytes, progress: Progress) -> Floats:
        bandits = PlainBandits(course.replicates, course.world.arms, course.world.features)
        earned = np.zeros(course.replicates)
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
        world, privacy = course.world, NoisySums(self.total_epsilon, first_refresh=self.lessons)
        if self.mechanism == _CORRELATED:
            privacy = replace(privacy, correlated=max(2, min(MOST_LEAVES, privacy.refreshes_by(self.steps))))
        models, earned = (
            NoisyModels(course.replicates, world.arms, world.features, privacy),
            np.zeros(course.replicates),
        )
        for number, (steps, refreshed) in enumerate(intervals(privacy, self.steps)):
            contexts, arms, rewards = _decided(course, coins, steps, models.weights)
            earned += rewards.sum(axis=1)
            if refreshed:
                gathered = Sums.of_lessons(contexts, arms, rewards, np.ones(arms.shape, np.bool_), world.arms)
                normals = NormalNumbers(derive(key, number), models.normals)
                models.refresh(gathered, normals.at(0, course.replicates))
            progress(steps.stop / self.steps, "")
        return earned / self.steps

    def _downhill(self, course: ContextStream, coins: Coins, key: bytes, progress: Progress) -> Floats:
        world, privacy = course.world, NoisyGradient(self.total_epsilon, refresh_every=self.lessons)
        models = GradientModels(course.replicates, world.arms, world.features, privacy)
        earned = np.zeros(course.replicates)
        for number, (steps, refreshed) in enumerate(intervals(privacy, self.steps)):
            contexts, arms, rewards = _decided(course, coins, steps, models.weights)
            earned += rewards.sum(axis=1)
            if refreshed:
                normals = NormalNumbers(derive(key, number), models.normals).at(0, course.replicates)
                models.refresh(contexts, arms, rewards, normals)
            progress(steps.stop / self.steps, "")
        return earned / self.steps


def _decided(course: ContextStream, coins: Coins, steps: range, weights: Floats) -> tuple[Floats, Ints, Floats]:
    """Contexts, arms and rewards of some steps, decided by one model for each replicate."""
    within = np.s_[steps.start : steps.stop]
    contexts = course.world.contexts[course.rows[:, within]]
    arms = coins.choose(within, best_arms(np.matmul(contexts, weights.transpose(0, 2, 1))))
    rewards = np.stack([course.rewards(step, arms[:, step - steps.start]) for step in steps], axis=1)
    return contexts, arms, rewards


class PrivacyOverTime:
    """A panel for each world, a line for each mechanism, and the reward without any bound."""

    name = "privacy-over-time"
    title = "Reward against privacy over time"
    place = "beyond the paper: docs/privacy.md"

    def jobs(self, setting: Setting) -> Sequence[OverTimeRun]:
        return [run for lines in _worlds(setting).values() for line in lines.values() for run in line.values()]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        found = {
            world: {name: {total: kept[run]["rewards"] for total, run in line.items()} for name, line in lines.items()}
            for world, lines in _worlds(setting).items()
        }
        return Findings(
            pictures=[_picture(setting, found)],
            tables=[_table(setting, found)],
            remarks=[
                f"Total epsilon at delta {DEFAULT_DELTA:g} of all that {setting.sweep:,} steps release: about a "
                "dropped row for noisy sums, which do not grow with the steps, with noise that is fresh at each "
                "refresh or correlated over all of them, and for the noisy gradient; of all actions for exploration "
                "alone, whose chance to explore is then so near 1 that nothing is learned. Learners are emulated in "
                "floating point.",
            ],
        )


Lines = Mapping[str, Mapping[float, Floats]]
_UNBOUNDED = "no bound"


def _worlds(setting: Setting) -> dict[str, dict[str, dict[float, OverTimeRun]]]:
    drawn = setting.sized(_WORLDS)
    arms = {setting.data: 10, **{world: SYNTHETIC[world]().arms for world in drawn}}
    return {world: _lines(setting, world, arms[world]) for world in (setting.data, *drawn)}


def _lines(setting: Setting, world: str, arms: int) -> dict[str, dict[float, OverTimeRun]]:
    totals = setting.sized(_TOTALS)

    def run(mechanism: str, total: float, epsilon: float) -> OverTimeRun:
        seeds = tuple(range(setting.sized(_RUNS)))
        lessons = setting.sized(_EVERY if mechanism == _GRADIENT else _FIRST)
        return OverTimeRun(world, mechanism, total, epsilon, lessons, seeds, setting.sweep)

    return {
        _FRESH: {total: run(_FRESH, total, _EPSILON) for total in totals},
        _CORRELATED: {total: run(_CORRELATED, total, _EPSILON) for total in totals},
        _GRADIENT: {total: run(_GRADIENT, total, _EPSILON) for total in totals},
        "exploration alone": {
            total: run("exploration alone", total, exploration_for(arms, setting.sweep, total, DEFAULT_DELTA))
            for total in totals
        },
        _UNBOUNDED: {0.0: run(_UNBOUNDED, 0.0, _EPSILON)},
    }


def _picture(setting: Setting, found: Mapping[str, Lines]) -> Picture:
    figure, panels = empty_figure(columns=len(found))
    for axes, (world, lines) in zip(panels, found.items(), strict=True):
        for style, (name, points) in enumerate(lines.items()):
            if name == _UNBOUNDED:
                axes.axhline(float(points[0.0].mean()), color="0.45", linewidth=1, linestyle=(0, (1, 2)), label=name)
                continue
            rewards = list(points.values())
            add_line(axes, style, list(points), [one.mean() for one in rewards], name, [one.std() for one in rewards])
        axes.set(title=world, xscale="log", xlabel="total epsilon", ylabel="average reward of a run", ylim=(0, None))
    add_legend(panels[0], loc="lower right", fontsize=8)
    caption = f"Average reward of {setting.sweep:,} steps; mean and deviation of {setting.sized(_RUNS)} orders."
    return Picture("privacy-over-time", caption, figure)


def _table(setting: Setting, found: Mapping[str, Lines]) -> Table:
    runs = _worlds(setting)
    rows = [
        (
            *(world, name, total or None, round(runs[world][name][total].epsilon, 6)),
            *(round(float(number), 4) for number in (rewards.mean(), rewards.std())),
        )
        for world, lines in found.items()
        for name, points in lines.items()
        for total, rewards in points.items()
    ]
    header = ("world", "mechanism", "total epsilon", "exploration", "reward", "deviation")
    return Table("privacy-over-time", "Reward against the total epsilon of a run", header, rows)
