"""The dealer's coins of a decision: explore or not, and tags that break ties and choose the arm to explore.

All come from uniform words, so that whoever may know the words (the dealer, or an audit on one's own machine) can
recompute them. Exploration has probability floor(epsilon 2^63) / 2^63. The tags are the order of A uniform words: a
uniformly random permutation of 0 to A - 1, but for collisions, which have probability below A^2 / 2^65. The best arm
wins; among equally good arms the one with the highest tag; when exploring, all arms are made equally good.

A policy may ask for a normal number for each arm, which only the dealer knows; it comes from two more words per arm.

Epsilon may depend on the public *position* of a decision: how many decisions were begun before it, over all epochs.

    position = origin of the epoch + step * count + place in the batch

Steps are counted by program: decisions by `decide`, by `step` and those of each batch size are counted apart within an
epoch, all from its origin. So a position is known when a step is dealt, long before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.ring.words import Floats, Words

Positions = NDArray[np.int64]
LARGEST_NORMAL = sqrt(2 * 53 * log(2))
"""The largest of `normal_numbers`, about 8.57."""


@dataclass(slots=True, repr=False)
class Coins:
    """Coins of many decisions; leading axes as in the words they come from."""

    explore: NDArray[np.bool_]
    tags: NDArray[np.int64]
    normals: Floats | None = None
    """A normal number for each arm, if the policy asks for them."""

    @staticmethod
    def words(arms: int, normals: bool = False) -> int:
        """Uniform words that a decision takes."""
        return 1 + (3 if normals else 1) * arms

    @classmethod
    def from_words(cls, words: Words, thresholds: Words, normals: bool = False) -> Coins:
        """Read coins off uniform words [..., 1 + arms], or [..., 1 + 3 arms] with normal numbers; `thresholds` come
        from `exploration_thresholds`."""
        arms = (words.shape[-1] - 1) // (3 if normals else 1)
        return cls(
            explore=(words[..., 0] >> np.uint64(1)) < thresholds,
            tags=np.argsort(words[..., 1 : 1 + arms], axis=-1, kind="stable"),
            normals=normal_numbers(words[..., 1 + arms : 1 + 2 * arms], words[..., 1 + 2 * arms :])
            if normals
            else None,
        )

    def of(self, index: Any) -> Coins:
        """Some of them, by an index of leading axes."""
        return Coins(self.explore[index], self.tags[index], None if self.normals is None else self.normals[index])

    @property
    def kept(self) -> Words:
        """1 where the scores count, 0 where they are to be erased."""
        return (~self.explore).astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Exploration:
    """Which decisions explore, as the dealer of one epoch knows it.

    `thresholds` gives those of some positions [steps, count]; the result has an axis of replicates between the two, or
    of length 1 where all replicates explore alike. `origin` is how many decisions all epochs before this one made.
    """

    thresholds: Callable[[Positions], Words]
    origin: int = 0

    @classmethod
    def of_replicates(cls, epsilons: ArrayLike) -> Exploration:
        """An epsilon for each replicate, the same for all its decisions."""
        thresholds = exploration_thresholds(epsilons).reshape(1, -1, 1)
        return cls(lambda positions: thresholds)

    def at(self, first: int, steps: int, count: int) -> Words:
        """The thresholds of some steps of `decide` for `count` contexts: [steps, replicates or 1, count]."""
        return self.thresholds(self.positions(first, steps, count))

    def positions(self, first: int, steps: int, count: int) -> Positions:
        """The positions [steps, count] of the decisions of some steps."""
        by_step = self.origin + np.arange(first, first + steps, dtype=np.int64) * count
        return by_step[:, None] + np.arange(count, dtype=np.int64)


def normal_numbers(first: Words, second: Words) -> Floats:
    """Normal numbers of mean 0 and deviation 1, one from two uniform words each (Box and Muller).

    z = sqrt(-2 log u) cos(2 pi v) with u = (first's top 53 bits + 1) / 2^53 and v = second's top 53 bits / 2^53. So |z|
    is at most `LARGEST_NORMAL`."""
    low = np.uint64(11)
    u = ((first >> low).astype(np.float64) + 1) / 2.0**53
    v = (second >> low).astype(np.float64) / 2.0**53
    numbers: Floats = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    return numbers


def exploration_thresholds(epsilons: ArrayLike) -> Words:
    """Epsilon as a 63-bit threshold, exact for 0 and 1."""
    scaled = np.floor(np.asarray(epsilons, np.float64) * 2.0**63)
    return np.asarray(scaled.astype(np.uint64))
