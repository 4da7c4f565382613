"""A world from one's own table: a CSV file with the features of all parties, and what each arm would have earned.

    hotel.nights,hotel.stars,airline.miles,reward.beach,reward.city      rewards in [0, 1], a column for each arm
    hotel.nights,hotel.stars,airline.miles,label                         or the name of the arm that earns 1

A column `PARTY.FEATURE` is a feature of a party; parties and arms come in the order of their first columns, and arms of
labels in the order of the alphabet. Rows are met in random order, by the seed, and again when all were met. Features
are taken as they are; each party clips them to its norm.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.errors import DataError
from hiddenarm.research.data.worlds import FloatArray, IntArray, World

LABEL: Final = "label"
REWARD: Final = "reward"


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
    """A table that was read: parties and arms by name, the number of features of each party, and its rows."""

    name: str
    parties: tuple[str, ...]
    features: tuple[int, ...]
    arms: tuple[str, ...]
    contexts: FloatArray = field(repr=False)
    earned: FloatArray = field(repr=False)

    def world(self, seed: int) -> TableWorld:
        return TableWorld(name=self.name, arms=len(self.arms), seed=seed, contexts=self.contexts, earned=self.earned)


def read_table_data(path: Path) -> TableData:
    """The table in a CSV file; whatever is wrong with it is a `DataError` that names row and column."""
    try:
        raw = path.read_bytes()
        rows = list(csv.reader(raw.decode("utf-8-sig").splitlines(), strict=True))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise DataError(f"{path} is not a table of comma-separated values in UTF-8") from None
    if len(rows) < 2:
        raise DataError(f"{path} has no rows: a header, and a line for each context")
    header, cells = rows[0], rows[1:]
    for number, row in enumerate(cells, start=2):
        if len(row) != len(header):
            raise DataError(f"{path}, row {number}: {len(row)} cells where {len(header)} are due")
    by_party = _parties(path, header)
    contexts = [_column(path, cells, header, place) for places in by_party.values() for place in places]
    arms, earned = _earned(path, cells, header)
    return TableData(
        name=f"{path.name} {sha256(raw).hexdigest()[:16]}",
        parties=tuple(by_party),
        features=tuple(len(places) for places in by_party.values()),
        arms=arms,
        contexts=np.array(contexts).T,
        earned=earned,
    )


def _parties(path: Path, header: list[str]) -> dict[str, list[int]]:
    """The places of each party's features."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(header):
        party, dot, feature = name.partition(".")
        if header.count(name) > 1:
            raise DataError(f"{path}: the column {name!r} stands there twice")
        if name != LABEL and not (dot and party and feature):
            raise DataError(f"{path}: the column {name!r} is no PARTY.FEATURE, {REWARD}.ARM or {LABEL}")
        if name != LABEL and party != REWARD:
            found.setdefault(party, []).append(place)
    if len(found) < 2:
        raise DataError(f"{path} has features of {len(found)} parties: a federation has two or more")
    return found


def _earned(path: Path, cells: list[list[str]], header: list[str]) -> tuple[tuple[str, ...], FloatArray]:
    """The arms, and what each earns in each row."""
    places = [place for place, name in enumerate(header) if name.startswith(f"{REWARD}.")]
    if bool(places) == (LABEL in header):
        raise DataError(f"{path} must have either a column {LABEL!r} or columns {REWARD}.ARM")
    if not places:
        labels = [row[header.index(LABEL)] for row in cells]
        if "" in labels:
            raise DataError(f"{path}, row {labels.index('') + 2}: the label is missing")
        arms = tuple(sorted(set(labels)))
        earned = np.array([[label == arm for arm in arms] for label in labels], np.float64)
    else:
        arms = tuple(header[place].partition(".")[2] for place in places)
        earned = np.array([_column(path, cells, header, place) for place in places]).T
        if not ((earned >= 0) & (earned <= 1)).all():
            row, arm = np.argwhere(~((earned >= 0) & (earned <= 1)))[0]
            raise DataError(f"{path}, row {row + 2}, column {header[places[arm]]!r}: a reward lies in [0, 1]")
    if len(arms) < 2:
        raise DataError(f"{path} has {len(arms)} arms: a bandit has two or more")
    return arms, earned


def _column(path: Path, cells: list[list[str]], header: list[str], place: int) -> list[float]:
    numbers = []
    for number, row in enumerate(cells, start=2):
        try:
            numbers.append(float(row[place]))
        except ValueError:
            raise DataError(f"{path}, row {number}, column {header[place]!r}: not a number") from None
        if not np.isfinite(numbers[-1]):
            raise DataError(f"{path}, row {number}, column {header[place]!r}: not a finite number")
    return numbers
