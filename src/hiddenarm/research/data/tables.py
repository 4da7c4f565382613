"""A world from one's own table: the features of all parties, and what each arm would have earned. From a CSV or Parquet
file, or a pandas DataFrame.

    hotel.nights,hotel.stars,airline.miles,reward.beach,reward.city      rewards in [0, 1], a column for each arm
    hotel.nights,hotel.stars,airline.miles,label                         or the name of the arm that earns 1

A column `PARTY.FEATURE` is a feature of a party; parties and arms come in the order of their first columns, and arms of
labels in the order of the alphabet. A table of the arms' own features gives its order, and may have arms that no label
names. Rows are met in random order, by the seed, and again when all were met. Features are taken as they are; each
party clips them to its norm.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.errors import DataError
from hiddenarm.research.data.worlds import FloatArray, IntArray, LabelWorld, World

if TYPE_CHECKING:
    from pandas import DataFrame

LABEL: Final = "label"
REWARD: Final = "reward"
TABLES: Final = (".csv", ".parquet")
"""How names of files with a table end."""
_SHOWN: Final = 5
"""Names that an error lists."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TableWorld(World):
    """What each arm earns in each row is known: [n, arms]."""

    earned: FloatArray = field(repr=False)

    def chances(self, rows: IntArray | int, arms: IntArray | int) -> FloatArray:
        """What is earned; it need not be 0 or 1."""
        return np.asarray(self.earned[rows, arms], dtype=np.float64)

    def reward(self, step: int, arm: int) -> float:
        self._check_arms(arm, arm)
        return float(self.earned[self.row(step), arm])

    def rewards(self, steps: ArrayLike, arms: ArrayLike) -> FloatArray:
        steps, arms = np.asarray(steps, dtype=np.int64), np.asarray(arms, dtype=np.int64)
        self._check_arms(arms.min(initial=0), arms.max(initial=0))
        return self.chances(self.rows(steps), arms)


@dataclass(frozen=True, slots=True, eq=False)
class TableData:
    """A table that was read: parties and arms by name, the number of features of each party, and its rows. Either the
    number of the right arm is known for each row, or what each arm would have earned."""

    name: str
    parties: tuple[str, ...]
    features: tuple[int, ...]
    arms: tuple[str, ...]
    contexts: FloatArray = field(repr=False)
    labels: IntArray | None = field(repr=False)
    earned: FloatArray | None = field(repr=False)

    @property
    def _called(self) -> str:
        return self.name.rpartition(" ")[0]

    def world(self, seed: int) -> World:
        if self.labels is not None:
            return LabelWorld(
                name=self.name, arms=len(self.arms), seed=seed, contexts=self.contexts, labels=self.labels
            )
        assert self.earned is not None
        return TableWorld(name=self.name, arms=len(self.arms), seed=seed, contexts=self.contexts, earned=self.earned)

    def with_arms(self, names: Sequence[str], catalogue: str) -> TableData:
        """The same with the arms of a catalogue, in its order. Those that no label names earn nothing."""
        places = {name: place for place, name in enumerate(names)}
        if unknown := [arm for arm in self.arms if arm not in places]:
            raise DataError(f"{catalogue} has no row for {_listed(unknown)}, which {self._called} names as arms")
        if self.labels is not None:
            numbers = np.array([places[arm] for arm in self.arms])
            return replace(self, arms=tuple(names), labels=numbers[self.labels])
        known = {arm: place for place, arm in enumerate(self.arms)}
        if silent := [name for name in names if name not in known]:
            raise DataError(
                f"{self._called} does not say what {_listed(silent)} of {catalogue} would have earned: add "
                f"columns {REWARD}.ARM, or leave out these rows"
            )
        assert self.earned is not None
        return replace(self, arms=tuple(names), earned=self.earned[:, [known[name] for name in names]])


def is_table(data: object) -> bool:
    """Whether data are a table of one's own: a DataFrame, or a file by the end of its name."""
    return not isinstance(data, str | Path) or str(data).endswith(TABLES)


def table_name(data: object) -> str:
    """What data are called in reports."""
    return str(data) if isinstance(data, str | Path) else "DataFrame"


@dataclass(frozen=True, slots=True, eq=False)
class _Sheet:
    """The cells of a table. `first_row` is what its first row of cells is called in errors."""

    called: str
    digest: str
    header: list[str]
    cells: list[Sequence[Any]]
    first_row: int

    def wrong(self, what: str, row: int, column: str | None = None) -> DataError:
        """An error that names the place of a cell, and does not show it."""
        at = f", column {column!r}" if column is not None else ""
        return DataError(f"{self.called}, row {row + self.first_row}{at}: {what}")

    def numbers(self, place: int) -> list[float]:
        """A column of finite numbers."""
        numbers = []
        for row, cells in enumerate(self.cells):
            try:
                numbers.append(float(cells[place]))
            except (TypeError, ValueError):
                raise self.wrong("not a number", row, self.header[place]) from None
            if not np.isfinite(numbers[-1]):
                raise self.wrong("not a finite number", row, self.header[place])
        return numbers


def read_table_data(source: str | Path | DataFrame) -> TableData:
    """The table in a file or a DataFrame; whatever is wrong with it is a `DataError` that names row and column."""
    sheet = _sheet(source)
    if not sheet.cells:
        raise DataError(f"{sheet.called} has no rows: a header, and a line for each context")
    by_party = _parties(sheet)
    contexts = [sheet.numbers(place) for places in by_party.values() for place in places]
    arms, labels, earned = _arms(sheet)
    return TableData(
        name=f"{Path(sheet.called).name} {sheet.digest[:16]}",
        parties=tuple(by_party),
        features=tuple(len(places) for places in by_party.values()),
        arms=arms,
        contexts=np.array(contexts).T,
        labels=labels,
        earned=earned,
    )


def _sheet(source: str | Path | DataFrame) -> _Sheet:
    if not isinstance(source, str | Path):
        return _from_frame(source, table_name(source))
    path = Path(source)
    return _from_parquet(path) if path.suffix == TABLES[1] else _from_csv(path)


def _from_csv(path: Path) -> _Sheet:
    try:
        raw = path.read_bytes()
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise DataError(f"{path} is not a table of comma-separated values in UTF-8") from None
    header, cells = (rows[0], rows[1:]) if rows else ([], [])
    sheet = _Sheet(str(path), sha256(raw).hexdigest(), header, [*cells], first_row=2)
    for number, row in enumerate(cells):
        if len(row) != len(header):
            raise sheet.wrong(f"{len(row)} cells where {len(header)} are due", number)
    return sheet


def _from_parquet(path: Path) -> _Sheet:
    from pandas import read_parquet

    try:
        return _from_frame(read_parquet(path), str(path))
    except ImportError:
        raise DataError(f"to read {path}, install hiddenarm with its extra `parquet`") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or 'it is not a Parquet file'}") from None
    except ValueError:  # which errors of pyarrow are
        raise DataError(f"{path} is not a Parquet file") from None


def _from_frame(frame: DataFrame, called: str) -> _Sheet:
    header = [str(name) for name in frame.columns]
    cells = list(frame.itertuples(index=False, name=None))
    return _Sheet(called, sha256(repr((header, cells)).encode()).hexdigest(), header, cells, first_row=1)


def _parties(sheet: _Sheet) -> dict[str, list[int]]:
    """The places of each party's features."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(sheet.header):
        party, dot, feature = name.partition(".")
        if sheet.header.count(name) > 1:
            raise DataError(f"{sheet.called}: the column {name!r} stands there twice")
        if name != LABEL and not (dot and party and feature):
            raise DataError(f"{sheet.called}: the column {name!r} is no PARTY.FEATURE, {REWARD}.ARM or {LABEL}")
        if name != LABEL and party != REWARD:
            found.setdefault(party, []).append(place)
    if len(found) < 2:
        raise DataError(f"{sheet.called} has features of {len(found)} parties: a federation has two or more")
    return found


def _arms(sheet: _Sheet) -> tuple[tuple[str, ...], IntArray | None, FloatArray | None]:
    """The arms, and either the right one of each row, or what each earns in each row."""
    places = [place for place, name in enumerate(sheet.header) if name.startswith(f"{REWARD}.")]
    if bool(places) == (LABEL in sheet.header):
        raise DataError(f"{sheet.called} must have either a column {LABEL!r} or columns {REWARD}.ARM")
    labels, earned = None, None
    if not places:
        arms, labels = _labels(sheet)
    else:
        arms, earned = tuple(sheet.header[place].partition(".")[2] for place in places), _earned(sheet, places)
    if len(arms) < 2:
        raise DataError(f"{sheet.called} has {len(arms)} arms: a bandit has two or more")
    return arms, labels, earned


def _labels(sheet: _Sheet) -> tuple[tuple[str, ...], IntArray]:
    cells = [row[sheet.header.index(LABEL)] for row in sheet.cells]
    for row, cell in enumerate(cells):
        if cell in ("", None) or cell != cell:  # NaN, which is what pandas calls missing
            raise sheet.wrong("the label is missing", row)
    arms, labels = np.unique([str(cell) for cell in cells], return_inverse=True)
    return tuple(arms.tolist()), labels.astype(np.int64)


def _earned(sheet: _Sheet, places: list[int]) -> FloatArray:
    earned = np.array([sheet.numbers(place) for place in places]).T
    wrong = np.argwhere(~((earned >= 0) & (earned <= 1)))
    if len(wrong):
        row, arm = wrong[0].tolist()
        raise sheet.wrong("a reward lies in [0, 1]", row, sheet.header[places[arm]])
    return earned


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
