"""Tables as an organisation has them: a column with the key, and columns of numbers or text. From CSV or Parquet.

They are not features yet: a recipe makes features of them (`recipes`). Errors name row and column, and show no cell.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from hiddenarm.errors import ConfigError

KEY_COLUMN: Final = "key"
FIRST_ROW: Final = 2
"""Of a CSV file: row 1 is the header."""
_ROWS_SHOWN: Final = 5
"""Rows with the same key that an error names."""
_PARQUET: Final = ".parquet"

T = TypeVar("T")
Cell = Any
"""Text, a number or None, which is a missing one."""


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Rows by key. `first_row` is what the file's first row of cells is called in errors."""

    path: Path
    keys: list[str]
    columns: dict[str, list[Cell]]
    first_row: int = FIRST_ROW

    def __len__(self) -> int:
        return len(self.keys)

    def column(self, name: str) -> list[Cell]:
        try:
            return self.columns[name]
        except KeyError:
            raise ConfigError(f"{self.path} has no column {name!r}; it has {', '.join(self.columns)}") from None

    def rows(self) -> dict[str, int]:
        """The place of every key, each of which may be there once."""
        return numbered(self.path, self.keys, self.first_row)


def read_any(path: Path, key: str = KEY_COLUMN) -> Table:
    """A table by the end of its name: Parquet, or else CSV."""
    return read_parquet(path, key) if path.suffix == _PARQUET else read_csv(path, key)


def read_csv(path: Path, key: str = KEY_COLUMN) -> Table:
    """A CSV file with a header; cells are text, and an empty one is missing."""
    header, *rows = with_csv(path, list) or [[]]
    _check_columns(path, header, key)
    for number, row in enumerate(rows, start=FIRST_ROW):
        if len(row) != len(header):
            raise ConfigError(f"{path}, row {number}: {len(row)} cells where {len(header)} are due")
    place = header.index(key)
    columns = {name: [row[at].strip() or None for row in rows] for at, name in enumerate(header) if at != place}
    return Table(path, [row[place] for row in rows], columns)


def with_csv(path: Path, read: Callable[[Iterator[list[str]]], T]) -> T:
    """What `read` makes of the lines of a CSV file; whatever is wrong with the file is a `ConfigError`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return read(csv.reader(file, strict=True))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise ConfigError(f"{path} is not a table of comma-separated values in UTF-8") from None


def read_parquet(path: Path, key: str = KEY_COLUMN) -> Table:
    """A Parquet file; pyarrow reads it."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
    except ImportError:
        raise ConfigError(f"to read {path}, install hiddenarm with its extra `parquet`") from None
    try:
        found = read_table(path, partitioning=None)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or 'it is not a Parquet file'}") from None
    except (ArrowException, ValueError):
        raise ConfigError(f"{path} is not a Parquet file") from None
    _check_columns(path, found.column_names, key)
    keys = found.column(key).to_pylist()
    if None in keys:
        raise ConfigError(f"{path}, row {keys.index(None) + 1}: the key is missing")
    columns = {name: found.column(name).to_pylist() for name in found.column_names if name != key}
    return Table(path, [str(one) for one in keys], columns, first_row=1)


def _check_columns(path: Path, names: Sequence[str], key: str) -> None:
    if key not in names:
        raise ConfigError(f"{path} has no column {key!r} with the keys: name another one, or put a header above it")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path} has the column {name!r} twice")


def numbered(path: Path, keys: list[str], first_row: int) -> dict[str, int]:
    """The place of every key. Errors count rows from `first_row`, and do not show the key."""
    rows = {key: row for row, key in enumerate(keys)}
    if len(rows) == len(keys):
        return rows
    again = next(key for row, key in enumerate(keys) if rows[key] != row)
    same = [str(row + first_row) for row, key in enumerate(keys) if key == again]
    raise ConfigError(f"{path}: rows {' and '.join(same[:_ROWS_SHOWN])} have the same key; leave one of them")
