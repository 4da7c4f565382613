"""Arms that have public features: a table with a row for each arm, from which one model learns of all of them.

All roles hold the table and compare its digest. A row is scaled down to norm 1 where it exceeds it, and rounded towards
zero to `ARM_BITS` fractional bits, so that its norm is at most 1 whatever the table: bounds that a federation was
checked for hold for every later table.

Some arms may have a model of their own on top of that of all arms (hybrid LinUCB, Li et al. 2010, algorithm 2): then

    score(x, a) = x'T z_a + x'b_a,    for the arms without one b_a = 0

which is the same model of products for longer features, (z_a, e_a) / sqrt 2, e_a being the unit vector of the arm among
those that have a model of their own. All rows have the factor, so that what is shared is the same for all arms; it
keeps norms within 1, and is a prior twice as strong for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Floats, Words

ARM_BITS = 8
"""Fractional bits of a feature of an arm. A context has as many fewer than numbers have, so that a product of both is
exact with the bits of numbers: it needs no truncation."""
_UNITS = 2.0**ARM_BITS
OWN_UNITS = 181
"""1 / sqrt 2, rounded down to ARM_BITS fractional bits."""
_MOST_ARMS = 100_000
_MOST_FEATURES = 256


@dataclass(frozen=True)
class ArmTable:
    """The features of all arms, as whole numbers of 2^-ARM_BITS, in the order of the arms; the names of the arms, and
    those of the features, if any; which arms have a model of their own, whose columns come last (`with_own`)."""

    rows: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    own: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, features: ArrayLike, names: Sequence[str] = (), columns: Sequence[str] = (), own: Sequence[int] = ()
    ) -> ArmTable:
        """The table of features [arms, features], each row scaled down to norm 1 where it exceeds it. Features of
        `own` arms are those of a table that has their columns already.

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
        return cls(tuple(map(tuple, units.tolist())), tuple(names), tuple(columns), tuple(own))

    @classmethod
    def of_frame(cls, frame: Any, name: str = "name") -> ArmTable:
        """The table in a data frame, of pandas or another library: a row for each arm, whose name is in the column
        `name`; all other columns are its features, and are numbers.

        >>> import pandas
        >>> frame = pandas.DataFrame({"name": ["beach", "city"], "sun": [1.0, 0.2], "art": [0, 0.5]})
        >>> table = ArmTable.of_frame(frame)
        >>> table.names, table.columns
        (('beach', 'city'), ('sun', 'art'))
        """
        columns = [str(column) for column in getattr(frame, "columns", ())]
        if columns.count(name) != 1:
            raise ConfigError(
                f"a data frame with one column {name!r}, the names of the arms, is due; this has the columns "
                f"{', '.join(columns) or 'of none'}"
            )
        if twice := [column for column in columns if columns.count(column) > 1]:
            raise ConfigError(f"the data frame has the column {twice[0]!r} twice")
        names = list(frame[name])
        for row, one in enumerate(names):
            if one is None or one != one or not str(one).strip():
                raise ConfigError(f"row {row} of the data frame has no name in column {name!r}")
        features = [column for column in frame.columns if str(column) != name]
        values = [_numbers_of(frame[column], str(column)) for column in features]
        rows = np.array(values, np.float64).reshape(len(features), len(names)).T
        return cls.of(rows, [str(one) for one in names], [column for column in columns if column != name])

    def with_own(self, arms: Sequence[int | str]) -> ArmTable:
        """The same with a model of their own for some arms, by number or name, on top of that of all arms.

        >>> ArmTable.of([[0.5, 0.5], [1.0, 0.0]], ["beach", "city"]).with_own(["city"]).rows
        ((90, 90, 0), (181, 0, 181))
        """
        if self.own:
            raise ConfigError("this table has arms with a model of their own: name all of them at once")
        own = tuple(self._number_of(arm) for arm in arms)
        if not own or len(set(own)) != len(own):
            raise ConfigError("arms with a model of their own must be named, each of them once")
        shared = np.sign(self.units) * (np.abs(self.units) * OWN_UNITS // int(_UNITS))
        units = np.hstack([shared, _indicators(self.arms, own)])
        return replace(self, rows=tuple(map(tuple, units.tolist())), own=own)

    def _number_of(self, arm: int | str) -> int:
        if isinstance(arm, str) and arm in self.names:
            return self.names.index(arm)
        if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < self.arms:
            raise ConfigError(f"own_models names {arm!r}, which is no arm of the table")
        return int(arm)

    def __post_init__(self) -> None:
        if not 2 <= self.arms <= _MOST_ARMS:
            raise ConfigError(f"a table must have 2 to {_MOST_ARMS:,} arms, got {self.arms}")
        if not 1 <= self.width <= _MOST_FEATURES:
            raise ConfigError(f"arms must have 1 to {_MOST_FEATURES} features, got {self.width}")
        if self.names and (len(self.names) != self.arms or len(set(self.names)) != self.arms):
            raise ConfigError(f"a table of {self.arms} arms needs as many names, all of them different")
        shared = self.width - len(self.own)
        if self.columns and (len(self.columns) != shared or len(set(self.columns)) != shared):
            raise ConfigError(f"a table of {shared} features needs as many names of them, all of them different")
        if self.own and not (
            shared > 0
            and all(0 <= arm < self.arms for arm in self.own)
            and np.array_equal(self.units[:, shared:], _indicators(self.arms, self.own))
        ):
            raise ConfigError("the columns of arms with a model of their own do not go with them: use with_own")
        if (np.square(self.units).sum(axis=1) > _UNITS**2).any():
            raise ConfigError("a row of the table has a norm above 1: make it with ArmTable.of")

    def __repr__(self) -> str:
        own = f", {len(self.own)} of them with a model of their own" if self.own else ""
        return f"ArmTable({self.arms} arms{own}, {self.width} features)"

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
        text = repr((self.rows, self.names, self.columns, *([self.own] if self.own else [])))
        return blake2b(text.encode(), digest_size=16).hexdigest()


def _numbers_of(column: Any, called: str) -> list[float]:
    """The numbers of a column; NumPy would parse text without a word."""
    values = list(column)
    for row, value in enumerate(values):
        if not isinstance(value, Real) or value != value:
            raise ConfigError(f"column {called!r} of the data frame has no number in row {row}; leave out what is none")
    return [float(value) for value in values]


def _indicators(arms: int, own: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The columns of arms with a model of their own."""
    columns = np.zeros((arms, len(own)), np.int64)
    columns[list(own), np.arange(len(own))] = OWN_UNITS
    return columns


def row_norms(values: Floats) -> Floats:
    """The norm of each row, also of rows whose squares would not fit."""
    largest = np.maximum(1, np.abs(values).max(axis=1, keepdims=True))
    norms: Floats = np.sqrt(np.square(values / largest).sum(axis=1)) * largest[:, 0]
    return norms


def _named(names: Sequence[str], arm: int) -> str:
    return repr(names[arm]) if arm < len(names) else str(arm)
