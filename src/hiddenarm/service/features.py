"""A party's features by key, as tables hold them.

CSV       a line of names, `key` first, then a line for each key; an empty cell is a missing feature; UTF-8, and a
          byte-order mark at its start is skipped
npz       NumPy arrays `keys` [n] (text) and `values` [n, features], for large tables
Parquet   a column `key` and one for each feature, by name (see `tables`)

Any table that has other columns is turned into features by a recipe (`recipes`). Where a kit's features come from is
said in `sources`. Errors name row and column and never show a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.bandit.features import checked_features, checked_row, why_unusable
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ConfigError, FeatureError
from hiddenarm.ring.words import Floats, Words
from hiddenarm.service.recipes import Recipe
from hiddenarm.service.tables import FIRST_ROW, KEY_COLUMN, Table, numbered, with_csv

_MOST_SHOWN: Final = 200
"""Characters of a wrong header that an error shows."""


class StoredFeatures:
    """Features that were read. `default_row` is that of all keys that have none of their own, if they have one."""

    def __init__(self, rows: dict[str, int], values: Floats, default_row: int | None = None) -> None:
        self._rows = rows
        self._values = values
        self._default_row = default_row

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def count(self) -> int:
        """How many features a row has."""
        return int(self._values.shape[1])

    @property
    def unusable(self) -> int:
        """Rows with a feature that is missing, not finite or too large: decisions about their keys will be refused."""
        return int((~self._usable).sum())

    @property
    def _usable(self) -> NDArray[np.bool_]:
        """The rows that have a finite norm."""
        usable: NDArray[np.bool_] = np.isfinite(np.einsum("ki,ki->k", self._values, self._values))
        return usable

    @classmethod
    def read(cls, path: Path, count: int) -> StoredFeatures:
        """From an .npz file."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                keys, values = arrays["keys"], np.asarray(arrays["values"], np.float64)
        except (OSError, KeyError, ValueError, EOFError, BadZipFile):
            raise ConfigError(f"{path} is not an .npz file with arrays `keys` and `values`") from None
        if keys.ndim != 1 or values.shape != (len(keys), count):
            raise ConfigError(
                f"{path}: {keys.shape} keys and {count} declared features do not go with values of {values.shape}"
            )
        return cls(numbered(path, [str(key) for key in keys], 0), values)

    @classmethod
    def read_table(cls, path: Path, count: int, names: Sequence[str], key: str = KEY_COLUMN) -> StoredFeatures:
        """From a .csv file, whose columns must be the declared features if these have names."""

        def read(lines: Iterator[list[str]]) -> list[tuple[str, list[float]]]:
            _check_header(path, next(lines, []), count, names, key)
            return list(_rows(path, lines, count))

        rows = with_csv(path, read)
        values = np.array([features for _, features in rows], np.float64).reshape(len(rows), count)
        return cls(numbered(path, [key for key, _ in rows], FIRST_ROW), values)

    @classmethod
    def of_columns(cls, table: Table, count: int, names: Sequence[str]) -> StoredFeatures:
        """From a table whose columns are the declared features, in any order if these have names."""
        if len(table.columns) != count or (names and set(table.columns) != set(names)):
            wanted = f"the features {', '.join(names)}" if names else f"{count} features"
            raise ConfigError(f"{table.path} must have the key and {wanted}; found {', '.join(table.columns)}"[:1000])
        ordered = [table.column(name) for name in names or table.columns]
        try:
            values = np.array(ordered, np.float64).T.reshape(len(table), count)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{table.path}: a column of features is not of numbers") from None
        return cls(table.rows(), values)

    @classmethod
    def made(cls, table: Table, recipe: Recipe, count: int) -> StoredFeatures:
        """From a table of other columns, by a recipe."""
        values = recipe.table(table)
        if values.shape[1] != count:
            raise ConfigError(f"{table.path}: the recipe makes {values.shape[1]} features, and {count} are declared")
        return cls(table.rows(), values)

    def clipped(self, norm: float) -> int:
        """Rows that exceed a norm, and will be clipped to it."""
        usable = self._usable_rows
        return int((np.sqrt(np.einsum("ki,ki->k", usable, usable)) > norm).sum())

    @property
    def constant(self) -> list[int]:
        """The features that are the same in all rows that can be used."""
        usable = self._usable_rows
        if len(usable) < 2:
            return []
        return [int(column) for column in np.flatnonzero((usable == usable[0]).all(axis=0))]

    @property
    def _usable_rows(self) -> Floats:
        """The features of all keys that can be used."""
        rows: Floats = self._values[: len(self._rows)][self._usable[: len(self._rows)]]
        return rows

    def with_zeros(self) -> StoredFeatures:
        """The same, and zeros under every other key."""
        zeros = np.zeros((1, self._values.shape[1]))
        return StoredFeatures(self._rows, np.concatenate([self._values, zeros]), len(self._values))

    def encoded(self, federation: Federation, party: int) -> EncodedFeatures:
        """The same as words, clipped to the party's norm."""
        usable = self._usable
        words = checked_features(np.where(usable[:, None], self._values, 0.0), federation, party)
        reasons = {int(row): why_unusable(self._values[row], party) for row in np.flatnonzero(~usable)}
        return EncodedFeatures(self._rows, words, reasons, self._default_row)


class EncodedFeatures:
    """Features as words, clipped and encoded before anybody asks for them: to look them up takes the same work for all
    keys."""

    def __init__(
        self, rows: dict[str, int], words: Words, unusable: dict[int, str], default_row: int | None = None
    ) -> None:
        self._rows = rows
        self._words = words
        self._unusable = unusable
        self._default_row = default_row

    def words(self, key: str) -> Words:
        row = self._rows.get(key, self._default_row)
        if row is None:
            raise FeatureError("no features are stored under this key")
        if row in self._unusable:
            raise FeatureError(self._unusable[row])
        features: Words = self._words[row]
        return features


class LooksUp(Protocol):
    """Any other place where a party finds its own features."""

    def lookup(self, key: str) -> ArrayLike:
        """The features under a key; raises `FeatureError` if there are none."""


def words_by_key(source: LooksUp, federation: Federation, party: int) -> Callable[[str], Words]:
    """How a party gets its own features as words, clipped to its norm, where they are not encoded before."""
    return lambda key: checked_row(source.lookup(key), federation, party)


def sample_table(names: Sequence[str]) -> str:
    """A table as a party has to make it."""
    example = [f"{(column % 3 - 1) / 10:g}" for column in range(len(names))]
    lines = [[KEY_COLUMN, *names], ["user 17", *example], ["user 18", *reversed(example)]]
    return "".join(",".join(line) + "\n" for line in lines)


def _check_header(path: Path, header: list[str], count: int, names: Sequence[str], key: str) -> None:
    if len(header) != 1 + count or header[0] != key:
        wanted = ",".join((key, *names)) if names else f"{key!r} and the names of {count} features"
        raise ConfigError(f"{path}, line 1: the header must be {wanted}; {_described(header)}")
    for position, (found, declared) in enumerate(zip(header[1:], names, strict=False), start=2):
        if found != declared:
            raise ConfigError(f"{path}, line 1: column {position} must be {declared!r}, as the federation declared it")


def _described(header: list[str]) -> str:
    """A header that is wrong, for an error. One with numbers in it is a row of features, and is not shown."""
    if any(_is_number(cell) for cell in header[1:]):
        return f"found {len(header)} columns with numbers: put the header above them"
    return f"found {','.join(header)[:_MOST_SHOWN]!r}, which has {len(header)} columns"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows(path: Path, lines: Iterator[list[str]], count: int) -> Iterator[tuple[str, list[float]]]:
    for number, line in enumerate(lines, start=FIRST_ROW):
        if len(line) != 1 + count:
            raise ConfigError(f"{path}, row {number}: {len(line)} cells where {1 + count} are due")
        yield line[0], [_number(path, number, column, cell) for column, cell in enumerate(line[1:], start=2)]


def _number(path: Path, row: int, column: int, cell: str) -> float:
    try:
        return float(cell) if cell.strip() else float("nan")
    except ValueError:
        raise ConfigError(f"{path}, row {row}, column {column}: not a number") from None
