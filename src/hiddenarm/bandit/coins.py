"""The dealer's coins of a decision: explore or not, and tags that break ties and choose the arm to explore.

All come from uniform words, so that whoever may know the words (the dealer, or an audit on one's own machine) can
recompute them. Exploration has probability floor(epsilon 2^63) / 2^63. The tags are the order of A uniform words: a
uniformly random permutation of 0 to A - 1, but for collisions, which have probability below A^2 / 2^65. The best arm
wins; among equally good arms the one with the highest tag; when exploring, all arms are made equally good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.ring.words import Words


@dataclass(slots=True, repr=False)
class Coins:
    """Coins of many decisions; leading axes as in the words they come from."""

    explore: NDArray[np.bool_]
    tags: NDArray[np.int64]

    @staticmethod
    def words(arms: int) -> int:
        """Uniform words a decision takes."""
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


def exploration_thresholds(epsilons: ArrayLike) -> Words:
    """Epsilon as a 63-bit threshold, exact for 0 and 1."""
    scaled = np.floor(np.asarray(epsilons, np.float64) * 2.0**63)
    return np.asarray(scaled.astype(np.uint64))
