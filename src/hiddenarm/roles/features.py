"""A party's features by key, as its kit holds them.

features.csv   a line of names, `key` first, then a line for each key; an empty cell is a missing feature
features.npz   NumPy arrays `keys` [n] (text) and `values` [n, features], for large tables

Errors name row and column and never show a value.
"""

from __future__ import annotations

import csv
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

FEATURES_FILE: Final = "features.npz"
TABLE_FILE: Final = "features.csv"
KEY_COLUMN: Final = "key"


class StoredFeatures:
    """Features that were read."""

    def __init__(self, rows: dict[str, int], values: Floats) -> None:
        self._rows = rows
        self._values = values

    def __len__(self) -> int:
        return len(self._rows)

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
        return cls(_numbered(path, [str(key) for key in keys]), values)

    @classmethod
    def read_table(cls, path: Path, count: int, names: Sequence[str]) -> StoredFeatures:
        """From a .csv file, whose columns must be the declared features if these have names."""
        try:
            with path.open(newline="", encoding="utf-8") as file:
                lines = csv.reader(file, strict=True)
                _check_header(path, next(lines, []), count, names)
                rows = list(_rows(path, lines, count))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, csv.Error):
            raise ConfigError(f"{path} is not a table of comma-separated values in UTF-8") from None
        values = np.array([features for _, features in rows], np.float64).reshape(len(rows), count)
        return cls(_numbered(path, [key for key, _ in rows]), values)

    def encoded(self, federation: Federation, party: int) -> EncodedFeatures:
        """The same as words, clipped to the party's norm."""
        usable = self._usable
        words = checked_features(np.where(usable[:, None], self._values, 0.0), federation, party)
        reasons = {int(row): why_unusable(self._values[row], party) for row in np.flatnonzero(~usable)}
        return EncodedFeatures(self._rows, words, reasons)


class EncodedFeatures:
    """Features as words, clipped and encoded before anybody asks for them: to look them up takes the same work for all
    keys."""

    def __init__(self, rows: dict[str, int], words: Words, unusable: dict[int, str]) -> None:
        self._rows = rows
        self._words = words
        self._unusable = unusable

    def words(self, key: str) -> Words:
        row = self._rows.get(key)
        if row is None:
            raise FeatureError("no features are stored under this key")
        if row in self._unusable:
            raise FeatureError(self._unusable[row])
        features: Words = self._words[row]
        return features


class FeatureSource(Protocol):
    """Any other place where a party finds its own features."""

    def lookup(self, key: str) -> ArrayLike:
        """The features under a key; raises `FeatureError` if there are none."""


def words_by_key(source: FeatureSource | EncodedFeatures, federation: Federation, party: int) -> Callable[[str], Words]:
    """How a party gets its own features as words, clipped to its norm."""
    if isinstance(source, EncodedFeatures):
        return source.words
    return lambda key: checked_row(source.lookup(key), federation, party)


def find_features(folder: Path, count: int, names: Sequence[str]) -> StoredFeatures:
    """The features in a kit: one of the two files."""
    table, arrays = folder / TABLE_FILE, folder / FEATURES_FILE
    if table.exists() and arrays.exists():
        raise ConfigError(f"{folder} has both {TABLE_FILE} and {FEATURES_FILE}: remove the one that is out of date")
    if not table.exists() and not arrays.exists():
        raise ConfigError(f"{folder} has no features: put them into {table} as features.sample.csv shows, mode 600")
    return StoredFeatures.read_table(table, count, names) if table.exists() else StoredFeatures.read(arrays, count)


def sample_table(names: Sequence[str]) -> str:
    """A table as a party has to make it."""
    example = [f"{(column % 3 - 1) / 10:g}" for column in range(len(names))]
    lines = [[KEY_COLUMN, *names], ["user 17", *example], ["user 18", *reversed(example)]]
    return "".join(",".join(line) + "\n" for line in lines)


def _check_header(path: Path, header: list[str], count: int, names: Sequence[str]) -> None:
    if len(header) != 1 + count or header[0] != KEY_COLUMN:
        raise ConfigError(
            f"{path}, line 1: the columns must be {KEY_COLUMN!r} and {count} features, found {len(header)} columns"
        )
    for position, (found, declared) in enumerate(zip(header[1:], names, strict=False), start=2):
        if found != declared:
            raise ConfigError(f"{path}, line 1: column {position} must be {declared!r}, as the federation declared it")


def _rows(path: Path, lines: Iterator[list[str]], count: int) -> Iterator[tuple[str, list[float]]]:
    for number, line in enumerate(lines, start=2):
        if len(line) != 1 + count:
            raise ConfigError(f"{path}, row {number}: {len(line)} cells where {1 + count} are due")
        yield line[0], [_number(path, number, column, cell) for column, cell in enumerate(line[1:], start=2)]


def _number(path: Path, row: int, column: int, cell: str) -> float:
    try:
        return float(cell) if cell.strip() else float("nan")
    except ValueError:
        raise ConfigError(f"{path}, row {row}, column {column}: not a number") from None


def _numbered(path: Path, keys: list[str]) -> dict[str, int]:
    rows = {key: row for row, key in enumerate(keys)}
    if len(rows) != len(keys):
        raise ConfigError(f"{path}: a key stands there twice")
    return rows
