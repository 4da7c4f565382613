"""The dealer's coins of a decision: explore or not, and tags that break ties and choose the arm to explore.

All come from uniform words, so that whoever may know the words (the dealer, or an audit on one's own machine) can
recompute them. Exploration has probability floor(epsilon 2^63) / 2^63. The tags are the order of A uniform words: a
uniformly random permutation of 0 to A - 1, but for collisions, which have probability below A^2 / 2^65. The best arm
wins; among equally good arms the one with the highest tag; when exploring, all arms are made equally good.

Epsilon may depend on the public *position* of a decision: how many decisions were begun before it, over all epochs.

    position = origin of the epoch + step * count + place in the batch

Steps are counted by program: decisions by `decide`, by `step` and those of each batch size are counted apart within an
epoch, all from its origin. So a position is known when a step is dealt, long before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.ring.words import Words

Positions = NDArray[np.int64]


@dataclass(slots=True, repr=False)
class Coins:
    """Coins of many decisions; leading axes as in the words they come from."""

    explore: NDArray[np.bool_]
    tags: NDArray[np.int64]

    @staticmethod
    def words(arms: int) -> int:
        """Uniform words that a decision takes."""
        return 1 + arms

    @classmethod
    def from_words(cls, words: Words, thresholds: Words) -> Coins:
        """Read coins off uniform words [..., 1 + arms]; `thresholds` come from `exploration_thresholds`."""
        return cls(
            explore=(words[..., 0] >> np.uint64(1)) < thresholds,
            tags=np.argsort(words[..., 1:], axis=-1, kind="stable"),
        )

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


def exploration_thresholds(epsilons: ArrayLike) -> Words:
    """Epsilon as a 63-bit threshold, exact for 0 and 1."""
    scaled = np.floor(np.asarray(epsilons, np.float64) * 2.0**63)
    return np.asarray(scaled.astype(np.uint64))
