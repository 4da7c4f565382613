"""The dealer's coins of a decision: explore or not, which arm then, and how ties break.

All come from uniform words, so that whoever may know the words (the dealer, or an audit on one's own machine) can
recompute them. Exploration has probability floor(epsilon 2^63) / 2^63; the explored arm is floor(word A / 2^64), which
departs from uniform by less than A / 2^64; tags are the order of A uniform words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.ring.words import Words

_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


@dataclass(slots=True, repr=False)
class Coins:
    """Coins of many decisions; leading axes as in the words they come from."""

    explore: NDArray[np.bool_]
    arm: NDArray[np.int64]
    tags: NDArray[np.int64]

    @staticmethod
    def words(arms: int) -> int:
        """Uniform words a decision takes."""
        return 2 + arms

    @classmethod
    def from_words(cls, words: Words, thresholds: Words, arms: int) -> Coins:
        """Read coins off uniform words; `thresholds` come from `exploration_thresholds`."""
        return cls(
            explore=(words[..., 0] >> np.uint64(1)) < thresholds,
            arm=_scaled(words[..., 1], arms),
            tags=np.argsort(words[..., 2:], axis=-1, kind="stable"),
        )


def exploration_thresholds(epsilons: ArrayLike) -> Words:
    """Epsilon as a 63-bit threshold, exact for 0 and 1."""
    scaled = np.floor(np.asarray(epsilons, np.float64) * 2.0**63)
    return np.asarray(scaled.astype(np.uint64))


def _scaled(words: Words, size: int) -> NDArray[np.int64]:
    """floor(word * size / 2^64) without overflow."""
    factor = np.uint64(size)
    high, low = words >> _HALF, words & _LOW_HALF
    return ((high * factor + ((low * factor) >> _HALF)) >> _HALF).astype(np.int64)
