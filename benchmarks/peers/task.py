"""What every peer is given, what it hands back, and whether that is right.

A task is a run of the bandit: contexts, the arm that earns at each, and the coins of exploration. A party of a peer
reads it from a file, as it runs in an environment without hiddenarm, and takes of it only what that party would know.
What party 0 found is compared with plain NumPy: step by step the arm, and at the end the whole model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.features import clipped_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import ConfigError
from hiddenarm.research.data.load import cluster_world
from hiddenarm.ring.words import Floats

EPSILON = 0.1
TIE = 1e-3
"""Scores closer than this may come in either order: tags are added in units of 2^-16, and products are rounded."""
MODEL_TOLERANCE = 1e-3
"""How far an entry of the model may be off; entries are up to 1."""
WARM_UP = 2
"""Steps that are not timed: caches are cold, and code is compiled."""


@dataclass(frozen=True)
class Task:
    """Contexts [steps, features], of which party 0 holds the first `cut` columns; labels and whether to explore
    [steps]; tags [steps, arms]."""

    contexts: Floats
    labels: NDArray[np.int64]
    explore: NDArray[np.bool_]
    tags: NDArray[np.int64]
    cut: int
    ridge: float
    fraction_bits: int

    @classmethod
    def of(cls, federation: Federation, steps: int) -> Task:
        """The world of `hiddenarm bench step`, clipped as a party clips it, with coins of a fixed seed."""
        rng, arms = np.random.default_rng(14), federation.arms
        world = cluster_world(arms=arms, features=federation.dimension, seed=1, rows=steps)
        parts = np.split(world.contexts, np.cumsum(federation.features)[:-1], axis=1)
        clipped = [
            np.stack([clipped_features(row, federation, party) for row in part]) for party, part in enumerate(parts)
        ]
        tags = rng.permuted(np.tile(np.arange(arms), (steps, 1)), axis=1)
        explore = rng.random(steps) < EPSILON
        cut = federation.features[0]
        contexts = np.concatenate(clipped, axis=1)
        return cls(contexts, world.labels, explore, tags, cut, federation.ridge, federation.fraction_bits)

    def write(self, path: Path) -> None:
        np.savez(path, **{name: getattr(self, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Outcome:
    """What party 0 of a peer hands back: the arms, when it knew each (beside the start and the end), and the model.
    `bytes_sent` is what it sent in all, or negative where the peer does not tell."""

    arms: NDArray[np.int64]
    times: Floats
    inverses: Floats
    weights: Floats
    bytes_sent: int

    @classmethod
    def read(cls, path: Path) -> Outcome:
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = {name: found[name] for name in cls.__dataclass_fields__}
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"party 0 wrote no result: {error}") from None
        return cls(**{**arrays, "bytes_sent": int(arrays["bytes_sent"])})

    @property
    def us_per_step(self) -> float:
        """The median time from arm to arm: between them lie a lesson and a decision that needs it."""
        return float(1e6 * np.median(np.diff(self.times[1:-1])[WARM_UP - 1 :]))

    @property
    def bytes_per_step(self) -> float | None:
        """With inputs at the start and the opening of the model at the end, which are little of it."""
        return self.bytes_sent / len(self.arms) if self.bytes_sent >= 0 else None


@dataclass(frozen=True)
class Comparison:
    """An outcome beside plain NumPy."""

    agreement: float
    """The share of steps in which a plain learner that was taught the same would choose the same arm, or a tied one."""
    inverse_error: float
    weight_error: float

    @property
    def distance(self) -> tuple[float, float]:
        """From plain NumPy: first in arms, then in the model."""
        return 1 - self.agreement, max(self.inverse_error, self.weight_error)

    @property
    def right(self) -> bool:
        arms, model = self.distance
        return arms == 0 and model <= MODEL_TOLERANCE


def compare(task: Task, outcome: Outcome) -> Comparison:
    """Teach a plain learner what the peer did, and compare."""
    steps, size = task.contexts.shape
    arms = task.tags.shape[1]
    bandit = PlainBandit(arms, size, task.ridge)
    if outcome.arms.shape != (steps,) or outcome.inverses.shape != bandit.inverses.shape:
        raise ConfigError("the result is of another shape than the task")
    agreed = []
    for step, arm in enumerate(outcome.arms.tolist()):
        context = task.contexts[step]
        agreed.append(bandit.agrees(arm, context, bool(task.explore[step]), task.tags[step], TIE))
        bandit.learn(context, arm, float(arm == task.labels[step]))
    return Comparison(
        float(np.mean(agreed)),
        float(np.abs(outcome.inverses - bandit.inverses).max()),
        float(np.abs(outcome.weights - bandit.weights).max()),
    )
