"""The runs behind every reward: private learners in lockstep, and beside each its plain twins with the same coins.

One twin goes its own way; the other is taught what the private learner did, and may agree (see `research.results`).

A `ContextStream` is what several replicates meet, step by step: contexts and rewards of one world, each in its own
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ScoreRangeError
from hiddenarm.research.data.load import ArmKind, load_world
from hiddenarm.research.data.worlds import LabelWorld, World, split_features
from hiddenarm.research.experiments.experiment import Data, Suite
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress
from hiddenarm.ring.words import Floats


class ContextStream:
    """Replicate r lives in the world reseeded with seeds[r]."""

    def __init__(self, world: World, seeds: Sequence[int], steps: int) -> None:
        self.world = world
        self.replicates = len(seeds)
        self._worlds = [world.reseeded(seed) for seed in seeds]
        self.rows = np.stack([one.rows(np.arange(steps)) for one in self._worlds])
        self._labels = world.labels if isinstance(world, LabelWorld) else None

    def contexts(self, step: int) -> Floats:
        """[replicates, features]."""
        contexts: Floats = self.world.contexts[self.rows[:, step]]
        return contexts

    def rewards(self, step: int, arms: NDArray[np.int64]) -> Floats:
        """[replicates]: what each earns with its arm."""
        if self._labels is not None:
            return np.asarray(self._labels[self.rows[:, step]] == arms, np.float64)
        return np.array([one.reward(step, int(arm)) for one, arm in zip(self._worlds, arms, strict=True)])


def load_course(
    data: Data, arms: int, kind: ArmKind, seeds: Sequence[int], steps: int, folder: Path | None
) -> ContextStream:
    """A course through digits or MNIST."""
    world = load_world(data, arms=arms, kind=kind, data_dir=folder if data == "mnist" else None)
    return ContextStream(world, seeds, steps)


FEATURES = 20
RUNS_TOGETHER = 5
"""Replicates of a job. More would share work better, but jobs are also what two cores share."""

_CHECKPOINTS = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 40_000, 60_000)
_COINS_AT_A_TIME = 512
_STEPS_BETWEEN_NEWS = 100
_SECONDS_A_STEP = {"fast": 0.35e-3, "paper": 1.6e-3}
"""At 10 arms, on one core."""


def checkpoints_within(steps: int) -> list[int]:
    """The numbers of steps after which models are kept: a fixed series, and the end."""
    return [*(place for place in _CHECKPOINTS if place < steps), steps]


@dataclass(frozen=True)
class LearnerRun(Job):
    """Some replicates of one learner. The result:

    rewards, plain_rewards  [replicates, steps]   0 or 1
    agreed                  [replicates, steps]   whether the twin that is taught agreed
    weights, plain_weights  [checkpoints, replicates, arms, features]   see `checkpoints_within`
    steps_made              how many steps the private learner made: fewer if its scores left their range
    """

    kind: ClassVar[str] = "learners"
    """Names the files: results of earlier versions, which compared with another twin, are not taken for these."""

    data: Data
    suite: Suite
    epsilon: float
    seeds: tuple[int, ...]
    steps: int
    arms: int = 10
    arm_kind: ArmKind = "classes"
    parties: int = 2
    fraction_bits: int = 20
    newton_iterations: int = 7

    @property
    def title(self) -> str:
        return f"{self.suite}, {self.arms} arms, epsilon {self.epsilon:g}, {self.fraction_bits} bits"

    @property
    def expected_seconds(self) -> float:
        growth = (self.arms / 10) ** (2 if self.suite == "paper" else 1.05) * self.parties / 2
        return 1 + self.steps * len(self.seeds) * _SECONDS_A_STEP[self.suite] * growth

    @property
    def federation(self) -> Federation:
        """The configuration of the learner."""
        features = tuple(split_features(FEATURES, self.parties))
        return Federation(
            self.arms,
            features,
            suite=self.suite,
            epsilon=self.epsilon,
            fraction_bits=self.fraction_bits,
            newton_iterations=self.newton_iterations if self.suite == "paper" else None,
        )

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        course = load_course(self.data, self.arms, self.arm_kind, self.seeds, self.steps, data_dir)
        return Pair(self.federation, _epoch_key(self), len(self.seeds), self.steps, course).run(progress)


class Pair:
    """Private learners, so many copies, and their twins on the same course."""

    def __init__(self, federation: Federation, key: bytes, copies: int, steps: int, course: ContextStream) -> None:
        self._steps, self._course = steps, course
        self._cuts = np.cumsum(federation.features)[:-1]
        self._private = Lockstep(federation, key, replicates=copies, deal_ahead=8)
        self._plain = federation.policy.twins(federation, copies)
        self._taught = federation.policy.twins(federation, copies)
        self._rounding = federation.score_rounding
        self._coins = BufferedCoins(self._private.coins, steps)
        self._rewards = np.zeros((2, copies, steps), np.uint8)
        self._agreed = np.zeros((copies, steps), np.bool_)
        self._weights: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._steps_made = steps

    def run(self, progress: Progress) -> Arrays:
        steps, checkpoints = self._steps, checkpoints_within(self._steps)
        for step in range(steps):
            self._step(step)
            if step + 1 in checkpoints:
                self._weights.append((self._private.reveal_model()[1], self._plain.weights.copy()))
            if (step + 1) % _STEPS_BETWEEN_NEWS == 0:
                progress((step + 1) / steps, f"reward {self._rewards[0, :, : step + 1].mean():.3f}")
        return {
            "rewards": self._rewards[0],
            "plain_rewards": self._rewards[1],
            "agreed": self._agreed,
            "weights": np.stack([private for private, _ in self._weights]),
            "plain_weights": np.stack([plain for _, plain in self._weights]),
            "steps_made": np.array(self._steps_made),
        }

    def _step(self, step: int) -> None:
        contexts = self._course.contexts(step)
        coins = self._coins.drawn(step)
        plain_arms = self._plain.decide(contexts, coins.explore, coins.tags, coins.normals)
        plain_rewards = self._course.rewards(step, plain_arms)
        self._plain.learn(contexts, plain_arms, plain_rewards)
        self._rewards[1, :, step] = plain_rewards
        if step < self._steps_made:
            self._private_step(step, contexts, coins)

    def _private_step(self, step: int, contexts: NDArray[np.float64], coins: Coins) -> None:
        """A learner whose scores leave their range decides no more, and earns nothing from there on."""
        try:
            decision, arms = self._private.decide(np.split(contexts, self._cuts, axis=1))
        except ScoreRangeError:
            self._steps_made = step
            return
        drawn = coins.explore, coins.tags, self._rounding, coins.normals
        self._agreed[:, step] = self._taught.agree(arms, contexts, *drawn)
        rewards = self._course.rewards(step, arms)
        self._private.learn(decision, rewards)
        self._taught.learn(contexts, arms, rewards)
        self._rewards[0, :, step] = rewards


class BufferedCoins:
    """Coins of single decisions, from a source that gives many at a time."""

    def __init__(self, source: Callable[[int, int], Coins], steps: int) -> None:
        self._source = source
        self._steps = steps
        self._first = -_COINS_AT_A_TIME
        self._coins: Coins | None = None

    def at(self, step: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Explore [replicates], and tags [replicates, arms]."""
        coins = self.drawn(step)
        return coins.explore, coins.tags

    def drawn(self, step: int) -> Coins:
        """The coins of one decision in all replicates."""
        if self._coins is None or step >= self._first + _COINS_AT_A_TIME:
            self._first = step
            self._coins = self._source(step, min(_COINS_AT_A_TIME, self._steps - step))
        return self._coins.of(step - self._first)


def _epoch_key(run: LearnerRun) -> bytes:
    """The same coins for the same seeds, whatever the epsilon and the bits. Reproducible, so not private."""
    return sha256(f"hiddenarm reproduce {run.data} {run.arms} {run.seeds}".encode()).digest()


def learner_runs(runs: int, **fields: object) -> list[LearnerRun]:
    """`runs` replicates with seeds 0, 1, ... as jobs of a few each, so that experiments with fewer share the first."""
    starts = range(0, runs, RUNS_TOGETHER)
    groups = [tuple(range(start, min(start + RUNS_TOGETHER, runs))) for start in starts]
    return [LearnerRun(seeds=seeds, **fields) for seeds in groups]  # type: ignore[arg-type]
