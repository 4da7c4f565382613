"""The runs behind the attack of experiment 7: learners on a training set, evaluated on it and on the held-out set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.material import Seeds
from hiddenarm.research.data.load import load_pair
from hiddenarm.research.data.worlds import LabelWorld, split_features
from hiddenarm.research.experiments.attack import outcomes_of_halves
from hiddenarm.research.experiments.context_stream import ContextStream
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress
from hiddenarm.research.experiments.learners import FEATURES, BufferedCoins, checkpoints_within
from hiddenarm.research.experiments.setting import Data
from hiddenarm.ring.words import Floats

ARMS = 10

_STEPS_BETWEEN_NEWS = 500
_SECONDS_A_STEP = {"plain": (60e-6, 3e-6), "fast": (0.5e-3, 0.35e-3), "paper": (0.5e-3, 1.6e-3)}
"""On one core: for all replicates together, and for each."""


@dataclass(frozen=True)
class AttackedRun(Job):
    """Some replicates of a learner, plain or of one of the private suites; seeds alone decide order and coins, so equal
    seeds let learners be compared. The result, for the attacks of `attack`:

    members, others  [checkpoints, replicates, 2, arms, 2]   outcomes of the halves of the steps made so far, and of the
                     held-out set; nan once the scores of a private learner left their range (see `checkpoints_within`)
    """

    kind: ClassVar[str] = "attacked"

    data: Data
    learner: Literal["plain", "fast", "paper"]
    epsilon: float
    seeds: tuple[int, ...]
    steps: int

    @property
    def title(self) -> str:
        return f"{self.learner} learners to attack, epsilon {self.epsilon:g}, {len(self.seeds)} runs"

    @property
    def expected_seconds(self) -> float:
        together, each = _SECONDS_A_STEP[self.learner]
        return 2 + self.steps * (together + len(self.seeds) * each)

    @property
    def federation(self) -> Federation:
        """The configuration of the private learner; the plain one shares its ridge and its coins."""
        suite = "paper" if self.learner == "paper" else "fast"
        return Federation(ARMS, tuple(split_features(FEATURES, 2)), suite=suite, epsilon=self.epsilon)

    @property
    def epoch_key(self) -> bytes:
        """Reproducible, so not private."""
        return sha256(f"hiddenarm reproduce attack {self.data} {self.seeds}".encode()).digest()

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        training, held_out = load_pair(self.data, data_dir=data_dir if self.data == "mnist" else None)
        assert isinstance(training, LabelWorld)
        assert isinstance(held_out, LabelWorld)
        return self.attacked(training, held_out, progress)

    def attacked(self, training: LabelWorld, held_out: LabelWorld, progress: Progress) -> Arrays:
        """Train on one world, and evaluate the models on both."""
        course, learner = ContextStream(training, self.seeds, self.steps), self._learner()
        held_out_course = ContextStream(held_out, self.seeds, len(held_out.contexts))
        checkpoints = checkpoints_within(self.steps)
        members = np.full((len(checkpoints), len(self.seeds), 2, ARMS, 2), np.nan)
        others = members.copy()
        for place, models in _trained(learner, course, checkpoints, progress):
            members[place] = self._outcomes(models, training, course.rows[:, : checkpoints[place]])
            others[place] = self._outcomes(models, held_out, held_out_course.rows)
        return {"members": members, "others": others}

    def _learner(self) -> _Learner:
        return _Plain(self) if self.learner == "plain" else _Private(self)

    def _outcomes(self, models: Floats, world: LabelWorld, rows: NDArray[np.int64]) -> Floats:
        """Of every model on its own rows, which lie in a random order: so every other row is a random half."""
        return np.stack([
            outcomes_of_halves(model, world.contexts[own], world.labels[own], self.epsilon)
            for model, own in zip(models, rows, strict=True)
        ])  # fmt: skip


def _trained(
    learner: _Learner, course: ContextStream, checkpoints: Sequence[int], progress: Progress
) -> Iterator[tuple[int, Floats]]:
    """Train; give every checkpoint's number and the models [replicates, arms, features] then, as far as it goes."""
    steps = checkpoints[-1]
    for step in range(steps):
        contexts = course.contexts(step)
        try:
            arms = learner.decide(step, contexts)
        except ScoreRangeError:
            return
        learner.learn(step, contexts, arms, course.rewards(step, arms))
        if step + 1 in checkpoints:
            yield checkpoints.index(step + 1), learner.models
        if (step + 1) % _STEPS_BETWEEN_NEWS == 0:
            progress((step + 1) / steps, "")


class _Learner(Protocol):
    """Replicates that advance together."""

    @property
    def models(self) -> Floats:
        """[replicates, arms, features]."""

    def decide(self, step: int, contexts: Floats) -> NDArray[np.int64]:
        """The arms [replicates] for contexts [replicates, features]."""

    def learn(self, step: int, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        """Learn from what the arms of this step earned."""


class _Plain:
    def __init__(self, run: AttackedRun) -> None:
        copies, federation = len(run.seeds), run.federation
        self._bandits = federation.policy.twins(federation, copies)
        source = partial(audit_coins, Seeds(run.epoch_key), federation, replicates=copies)
        self._coins = BufferedCoins(source, run.steps)

    @property
    def models(self) -> Floats:
        return self._bandits.weights

    def decide(self, step: int, contexts: Floats) -> NDArray[np.int64]:
        return self._bandits.decide(contexts, *self._coins.at(step))

    def learn(self, step: int, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        self._bandits.learn(contexts, arms, rewards)


class _Private:
    def __init__(self, run: AttackedRun) -> None:
        self._learner = Lockstep(run.federation, run.epoch_key, replicates=len(run.seeds), deal_ahead=8)
        self._cuts = np.cumsum(run.federation.features)[:-1]

    @property
    def models(self) -> Floats:
        return self._learner.reveal_model()[1]

    def decide(self, step: int, contexts: Floats) -> NDArray[np.int64]:
        return self._learner.decide(np.split(contexts, self._cuts, axis=1))[1]

    def learn(self, step: int, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        self._learner.learn(step, rewards)
