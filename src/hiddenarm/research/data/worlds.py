"""A world: what a bandit sees and what it earns there.

    step ──order──▶ row ──▶ context x ──▶ the learner picks an arm ──▶ reward 0 or 1

A world never ends. Steps 0 to n-1 visit its n rows in a random order, each later pass in a fresh one.
Everything is a function of the seed and the step: two learners that pick the same arm at the same step earn
the same reward.

What a seed decides about a world: the order of its rows and the coins behind its rewards.

This is data, not cryptography: the same seed gives the same run on every machine, and nothing here is secret.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.errors import ConfigError, InputError

_MASK = 2**64 - 1


class SeededOrder:
    """An endless order of `rows` rows: every pass is a fresh random permutation, drawn when first needed."""

    def __init__(self, rows: int, seed: int) -> None:
        self._rows = rows
        self._seed = seed
        self._passes: dict[int, NDArray[np.int64]] = {}

    def row(self, step: int) -> int:
        """The row visited at `step`."""
        turn, place = divmod(step, self._rows)
        return int(self._permutation(turn)[place])

    def rows(self, steps: ArrayLike) -> NDArray[np.int64]:
        """The rows visited at `steps`, in their order."""
        turns, places = np.divmod(np.asarray(steps, dtype=np.int64), self._rows)
        visited = np.empty_like(places)
        for turn in np.unique(turns):
            here = turns == turn
            visited[here] = self._permutation(int(turn))[places[here]]
        return visited

    def _permutation(self, turn: int) -> NDArray[np.int64]:
        if turn not in self._passes:
            self._passes[turn] = np.random.default_rng([self._seed, turn]).permutation(self._rows)
        return self._passes[turn]


def sampled_rows(rows: int, count: int, seed: int, samples: Sequence[int]) -> NDArray[np.int64]:
    """`count` of so many rows, none twice, in random order: [samples, count], each by the seed and its own number."""
    drawn = [np.random.default_rng([seed, one]).choice(rows, count, replace=False) for one in samples]
    return np.array(drawn, dtype=np.int64)


def uniform(seed: int, step: int, arm: int) -> float:
    """One number in [0, 1) for (seed, step, arm), whatever was asked before: a hash, not a stream."""
    hashed: int = _mix(_mix(_mix(seed) ^ step) ^ arm)
    return (hashed >> 11) * 2.0**-53


def uniforms(seed: int, steps: NDArray[np.int64], arms: NDArray[np.int64]) -> NDArray[np.float64]:
    """`uniform` for each pair of a step and an arm."""
    hashed: NDArray[np.uint64] = _mix(_mix(_mix(seed) ^ steps.astype(np.uint64)) ^ arms.astype(np.uint64))
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(word: Any) -> Any:
    """The step of SplitMix64 (Steele, Lea and Flood, 2014), on one int or on an array of uint64 alike."""
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


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

    def arm_points(self) -> FloatArray:
        """A point [arms, D] among the contexts that stands for each arm."""
        raise ConfigError(f"the arms of the world {self.name} have no features")

    def with_constant(self) -> Self:
        """The same world, whose contexts have one more feature, a constant, and norm 1 again."""
        constant = np.ones((len(self.contexts), 1))
        return replace(self, contexts=np.hstack([self.contexts, constant]) / math.sqrt(2))

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

    def arm_points(self) -> FloatArray:
        """The mean of the contexts of each class; zeros for one that does not occur."""
        sums = np.zeros((self.arms, self.features))
        np.add.at(sums, self.labels, self.contexts)
        counts = np.bincount(self.labels, minlength=self.arms)
        means: FloatArray = sums / np.maximum(1, counts)[:, None]
        return means


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

    def arm_points(self) -> FloatArray:
        return self.centres

    def with_constant(self) -> Self:
        """Rewards stay those of the world without it: centres get the same constant, and distances grow back."""
        constant = np.ones((self.arms, 1))
        centres = np.hstack([self.centres, constant]) / math.sqrt(2)
        contexts = np.hstack([self.contexts, np.ones((len(self.contexts), 1))]) / math.sqrt(2)
        return replace(self, contexts=contexts, centres=centres, sigma=self.sigma / math.sqrt(2))


def unit_rows(points: FloatArray) -> FloatArray:
    """Every row at norm 1. A row of zeros has no direction and becomes the first axis."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    scaled = points / np.where(norms > 0.0, norms, 1.0)
    scaled[norms[:, 0] == 0.0, 0] = 1.0
    return scaled


def features_of_arms(points: FloatArray, count: int) -> FloatArray:
    """So many features of each arm: principal components of the points that stand for arms, as many as there are if
    all fit, and a constant. The largest norm is 1."""
    arms, size = points.shape
    if not 2 <= count <= size + 1:
        raise ConfigError(f"arms can have 2 to {size + 1} features here, a constant among them; got {count}")
    components = points
    if count <= size:
        centred = points - points.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        components = np.zeros((arms, count - 1))
        components[:, : len(axes)] = centred @ axes[: count - 1].T
    features = np.hstack([components, np.ones((arms, 1))])
    scaled: FloatArray = features / np.linalg.norm(features, axis=1).max()
    return scaled


def check_seed(seed: int) -> None:
    """Refuse a seed the generators cannot take."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"a seed is a number from 0 to 2^63 - 1, not {seed}")


def split_features(features: int, parties: int) -> list[int]:
    """How many features each party holds, party 0 first: contiguous slices, the longer ones first."""
    if parties < 1:
        raise ConfigError(f"features are split over at least 1 party, not {parties}")
    if features < parties:
        raise ConfigError(f"{features} features cannot be split over {parties} parties: each needs at least one")
    size, longer = divmod(features, parties)
    return [size + 1] * longer + [size] * (parties - longer)
