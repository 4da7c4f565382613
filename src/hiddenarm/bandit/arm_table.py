"""Arms that have public features: a table with a row for each arm, from which one model learns of all of them.

All roles hold the table and compare its digest. A row is scaled down to norm 1 where it exceeds it, and rounded towards
zero to `ARM_BITS` fractional bits, so that its norm is at most 1 whatever the table: bounds that a federation was
checked for hold for every later table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Floats, Words

ARM_BITS = 8
"""Fractional bits of a feature of an arm. A context has as many fewer than numbers have, so that a product of both is
exact with the bits of numbers: it needs no truncation."""
_UNITS = 2.0**ARM_BITS
_MOST_ARMS = 100_000
_MOST_FEATURES = 256


@dataclass(frozen=True)
class ArmTable:
    """The features of all arms, as whole numbers of 2^-ARM_BITS, in the order of the arms; the names of the arms, and
    those of the features, if any."""

    rows: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, features: ArrayLike, names: Sequence[str] = (), columns: Sequence[str] = ()) -> ArmTable:
        """The table of features [arms, features], each row scaled down to norm 1 where it exceeds it.

        >>> ArmTable.of([[0.6, 0.8], [3.0, 4.0], [0.0, -0.5]]).features.tolist()
        [[0.59765625, 0.796875], [0.59765625, 0.796875], [0.0, -0.5]]
        """
        try:
            values = np.asarray(features, np.float64)
        except (TypeError, ValueError):
            raise ConfigError("features of arms must be numbers, with a row of the same length for each arm") from None
        if values.ndim != 2 or not values.size:
            raise ConfigError(f"features of arms must have a row for each arm, got an array of shape {values.shape}")
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(wrong):
            raise ConfigError(f"the features of arm {_named(names, int(wrong[0]))} are not all finite numbers")
        units = np.trunc(values / np.maximum(1, row_norms(values))[:, None] * _UNITS).astype(int)
        return cls(tuple(map(tuple, units.tolist())), tuple(names), tuple(columns))

    def __post_init__(self) -> None:
        if not 2 <= self.arms <= _MOST_ARMS:
            raise ConfigError(f"a table must have 2 to {_MOST_ARMS:,} arms, got {self.arms}")
        if not 1 <= self.width <= _MOST_FEATURES:
            raise ConfigError(f"arms must have 1 to {_MOST_FEATURES} features, got {self.width}")
        if self.names and (len(self.names) != self.arms or len(set(self.names)) != self.arms):
            raise ConfigError(f"a table of {self.arms} arms needs as many names, all of them different")
        if self.columns and (len(self.columns) != self.width or len(set(self.columns)) != self.width):
            raise ConfigError(f"a table of {self.width} features needs as many names of them, all of them different")
        if (np.square(self.units).sum(axis=1) > _UNITS**2).any():
            raise ConfigError("a row of the table has a norm above 1: make it with ArmTable.of")

    def __repr__(self) -> str:
        return f"ArmTable({self.arms} arms, {self.width} features)"

    @property
    def arms(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """Features of an arm."""
        return len(self.rows[0]) if self.rows else 0

    @cached_property
    def units(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """The features [arms, width] as whole numbers of 2^-ARM_BITS."""
        if len({len(row) for row in self.rows}) > 1:
            raise ConfigError("all arms of a table must have the same number of features")
        return np.array(self.rows, np.int64)

    @cached_property
    def words(self) -> Words:
        """The same as words [arms, width]."""
        return self.units.astype(np.uint64)

    @cached_property
    def features(self) -> Floats:
        """The same as numbers [arms, width], as the model sees them."""
        return self.units / _UNITS

    @cached_property
    def digest(self) -> str:
        """What roles compare, names included."""
        text = repr((self.rows, self.names, self.columns))
        return blake2b(text.encode(), digest_size=16).hexdigest()


def row_norms(values: Floats) -> Floats:
    """The norm of each row, also of rows whose squares would not fit."""
    largest = np.maximum(1, np.abs(values).max(axis=1, keepdims=True))
    norms: Floats = np.sqrt(np.square(values / largest).sum(axis=1)) * largest[:, 0]
    return norms


def _named(names: Sequence[str], arm: int) -> str:
    return repr(names[arm]) if arm < len(names) else str(arm)
