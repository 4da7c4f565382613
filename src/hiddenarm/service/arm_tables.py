"""Tables of arms in files: as the members of a federation give them, and as kits and signed versions hold them.

Members give CSV or Parquet, with a column `name` and a column of numbers for each feature. Rows are scaled down to norm
1 where they exceed it (`bandit.arm_table`). What is handed on is the table as the model sees it, so that all roles hold
the same numbers whatever file they came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from hiddenarm.bandit.arm_table import ArmTable, row_norms
from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Floats
from hiddenarm.service.tables import Cell, Table, read_any

NAME_COLUMN: Final = "name"
LABEL: Final = r"^[^\x00-\x1f,\"]{1,64}$"
"""What arms and features are called: text without commas, quotes and control characters."""
_MAX_FILE_BYTES: Final = 128 * 1024 * 1024
_NAMES_SHOWN: Final = 5


class ArmFile(NamedTuple):
    """A table that was read, and how many of its rows were scaled down to norm 1."""

    table: ArmTable
    scaled: int


class StoredArms(BaseModel):
    """A table of arms in a kit, in a signed version and at the authority: a row is its numbers as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    own: tuple[int, ...] = ()
    """The arms with a model of their own, whose columns are the last of the rows."""
    rows: tuple[str, ...]

    @classmethod
    def of(cls, table: ArmTable) -> StoredArms:
        rows = tuple(" ".join(map(repr, row)) for row in table.features.tolist())
        return cls(columns=table.columns, names=table.names, own=table.own, rows=rows)

    @classmethod
    def parse(cls, text: str, where: str) -> StoredArms:
        """From JSON, as `text` gives it; whatever is wrong with it is one ConfigError."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise ConfigError(f"{where} holds no table of arms, or a damaged one") from None

    @property
    def text(self) -> str:
        return self.model_dump_json(indent=1)

    def table(self) -> ArmTable:
        """The table as it was."""
        try:
            values = [[float(number) for number in row.split(" ")] for row in self.rows]
        except ValueError:
            raise ConfigError("the rows of a table of arms must be numbers") from None
        return ArmTable.of(values, self.names, self.columns, self.own)


def read_arms(path: Path | str) -> ArmTable:
    """The table of arms in a CSV or Parquet file, as `arm_table` of a federation's file reads it: a column `name` and a
    column of numbers for each feature. Parquet needs the extra `parquet`."""
    return read_arm_file(Path(path)).table


def read_arm_file(path: Path) -> ArmFile:
    """The table of arms in a file of the members."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if size > _MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes")
    found = read_any(path, NAME_COLUMN)
    names, columns = _names(found), list(found.columns)
    _check_labels(path, columns, "column")
    values = np.array([_numbers(found, column) for column in columns], np.float64).reshape(len(columns), len(names)).T
    try:
        table = ArmTable.of(values, names, columns)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return ArmFile(table, _beyond_norm(values))


def changes_of_arms(before: ArmTable | None, after: ArmTable | None) -> Iterator[str]:
    """What differs between two tables whose arms have names, a line for each kind of change."""
    old, new = _rows_by_name(before), _rows_by_name(after)
    for what, names in (
        ("added", [name for name in new if name not in old]),
        ("with other features", [name for name in new if name in old and new[name] != old[name]]),
    ):
        if names:
            yield f"arm_table: {len(names):,} {what}: {_listed(names)}"


def check_labels(what: str, names: Sequence[str]) -> None:
    """Refuse names that a federation's file could not have."""
    for name in names:
        if not re.fullmatch(LABEL, name) or name != name.strip():
            raise ConfigError(f"{what}: a name must be 1 to 64 letters, without commas, quotes and control characters")


def _check_labels(path: Path, names: Sequence[str], what: str) -> None:
    for number, name in enumerate(names, start=1):
        check_labels(f"{path}, {what} {number}", [name])


def _names(found: Table) -> list[str]:
    names = [name.strip() for name in found.keys]
    rows: dict[str, int] = {}
    for row, name in enumerate(names, start=found.first_row):
        check_labels(f"{found.path}, row {row}, column {NAME_COLUMN!r}", [name])
        if name in rows:
            raise ConfigError(
                f"{found.path}: rows {rows[name]} and {row} are both arm {name!r}; give each its own name"
            )
        rows[name] = row
    return names


def _numbers(found: Table, column: str) -> list[float]:
    return [
        _number(cell, f"{found.path}, row {row}, column {column!r}")
        for row, cell in enumerate(found.column(column), start=found.first_row)
    ]


def _number(cell: Cell, where: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{where}: a feature of an arm must be a number; leave out what is none") from None
    if not np.isfinite(value):
        raise ConfigError(f"{where}: a feature of an arm must be a finite number")
    return value


def _beyond_norm(values: Floats) -> int:
    return int((row_norms(values) > 1 + 1e-9).sum())


def _rows_by_name(table: ArmTable | None) -> dict[str, tuple[int, ...]]:
    if table is None:
        return {}
    return dict(zip(table.names or map(str, range(table.arms)), table.rows, strict=True))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
