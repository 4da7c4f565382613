"""What a seed decides about a world: the order of its rows and the coins behind its rewards.

This is data, not cryptography: the same seed gives the same run on every machine, and nothing here is secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
