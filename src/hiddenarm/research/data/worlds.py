"""A world: what a bandit sees and what it earns there.

    step ──order──▶ row ──▶ context x ──▶ the learner picks an arm ──▶ reward 0 or 1

A world never ends. Steps 0 to n-1 visit its n rows in a random order, each later pass in a fresh one.
Everything is a function of the seed and the step: two learners that pick the same arm at the same step earn
the same reward.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.errors import ConfigError, InputError
from hiddenarm.research.data.seeded import SeededOrder, uniform, uniforms

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class World(ABC):
    """Contexts [n, D] of unit norm, a number of arms and Bernoulli rewards."""

    name: str
    arms: int
    seed: int
    contexts: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.arms < 2:
            raise ConfigError(f"a bandit needs at least 2 arms, not {self.arms}")

    @abstractmethod
    def chances(self, rows: IntArray | int, arms: IntArray | int) -> FloatArray:
        """The probability of reward 1 for a row and an arm, or for each pair of them."""

    @property
    def features(self) -> int:
        """The length of a context."""
        return int(self.contexts.shape[1])

    def row(self, step: int) -> int:
        """The row visited at `step`."""
        return self._order.row(step)

    def rows(self, steps: ArrayLike) -> IntArray:
        """The rows visited at `steps`."""
        return self._order.rows(steps)

    def context(self, step: int) -> FloatArray:
        """What the learner sees at `step`: a view, not to be written to."""
        row: FloatArray = self.contexts[self.row(step)]
        return row

    def reward(self, step: int, arm: int) -> float:
        """What `arm` earns at `step`."""
        self._check_arms(arm, arm)
        return float(uniform(self.seed, step, arm) < self.chances(self.row(step), arm))

    def rewards(self, steps: ArrayLike, arms: ArrayLike) -> FloatArray:
        """What each of `arms` earns at the same place of `steps`."""
        steps, arms = np.asarray(steps, dtype=np.int64), np.asarray(arms, dtype=np.int64)
        self._check_arms(arms.min(initial=0), arms.max(initial=0))
        chances = self.chances(self.rows(steps), arms)
        return (uniforms(self.seed, steps, arms) < chances).astype(np.float64)

    def reseeded(self, seed: int) -> Self:
        """The same contexts and arms, met in another order and with other coins: a replicate."""
        return replace(self, seed=seed)

    def _check_arms(self, lowest: int, highest: int) -> None:
        if lowest < 0 or highest >= self.arms:
            raise InputError(f"an arm is a number from 0 to {self.arms - 1}")

    @cached_property
    def _order(self) -> SeededOrder:
        return SeededOrder(len(self.contexts), self.seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelWorld(World):
    """The arms are the classes: the right one earns 1 for sure, every other one 0."""

    labels: IntArray = field(repr=False)

    def chances(self, rows: IntArray | int, arms: IntArray | int) -> FloatArray:
        return np.asarray(self.labels[rows] == arms, dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelWorld(World):
    """The arms are cluster centres c_a: arm a earns 1 with probability nu_a = exp(-||c_a - x|| / (2 sigma)).

    The paper (section Experiments) gives nu_a up to a factor, nu_a ∝ e^{-||c_a - x||_2 / (2 sigma)} with
    sigma = 1/2. The factor here is 1, so that a context on the centre earns for sure and sigma alone sets the
    difficulty. The distance is not squared, as printed there, although the text calls the kernel Gaussian.
    """

    centres: FloatArray = field(repr=False)
    sigma: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.centres.shape != (self.arms, self.features):
            wanted = f"{self.arms} centres of {self.features} features"
            raise ConfigError(f"{wanted} are needed, not an array of shape {self.centres.shape}")
        if not 0.0 < self.sigma < math.inf:
            raise ConfigError(f"sigma is a number above 0, not {self.sigma}")

    def chances(self, rows: IntArray | int, arms: IntArray | int) -> FloatArray:
        distances = np.linalg.norm(self.centres[arms] - self.contexts[rows], axis=-1)
        return np.asarray(np.exp(-distances / (2.0 * self.sigma)), dtype=np.float64)


def unit_rows(points: FloatArray) -> FloatArray:
    """Every row at norm 1. A row of zeros has no direction and becomes the first axis."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    scaled = points / np.where(norms > 0.0, norms, 1.0)
    scaled[norms[:, 0] == 0.0, 0] = 1.0
    return scaled


def check_seed(seed: int) -> None:
    """Refuse a seed the generators cannot take."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"a seed is a number from 0 to 2^63 - 1, not {seed}")
