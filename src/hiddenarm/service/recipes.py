"""A recipe: how the features of a linear bandit are made of the columns of an organisation's own table.

    number      (value - mean) / scale, kept within +-limit; a missing value counts as `fill`
    category    one feature for each of its `values`, 1 for the one that it is; another or a missing one has none
    intercept   a feature that is 1 in every row

All of it times `factor`, which brings the norm of a row within what the party declares. `fit` learns the numbers from
the party's own table, the same from the same table, and forgets it; nothing leaves the party. A recipe is a TOML file
that people can read and change.

Every row takes the same operations, whatever its cells are: others see how long a party takes for its first words.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil, fsum, isfinite, sqrt
from pathlib import Path
from typing import Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hiddenarm.errors import ConfigError, FeatureError
from hiddenarm.ring.words import Floats
from hiddenarm.service.tables import KEY_COLUMN, Cell, Table

INTERCEPT: Final = "intercept"
LIMIT: Final = 3.0
"""Standard deviations beyond which a number counts as that many."""
_DIGITS: Final = 9
_LABEL_LETTERS: Final = 64
_NO_LABEL: Final = re.compile(r"[\x00-\x1f\x7f,\"]")
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class Column(BaseModel):
    """A column of the table, and what becomes of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    kind: Literal["number", "category"]
    mean: float = Field(default=0.0, allow_inf_nan=False)
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    fill: float = Field(default=0.0, allow_inf_nan=False)
    limit: float = Field(default=LIMIT, gt=0, allow_inf_nan=False)
    values: tuple[str, ...] = Field(default=(), strict=False)

    @property
    def width(self) -> int:
        return len(self.labels)

    @property
    def labels(self) -> list[str]:
        """What its features are called."""
        return [self.name] if self.kind == "number" else [f"{self.name}={value}" for value in self.values]


class RecipeFile(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    key: str
    norm: float = Field(gt=0, allow_inf_nan=False)
    factor: float = Field(gt=0, allow_inf_nan=False)
    intercept: bool
    names: tuple[str, ...] = Field(strict=False)
    """What the features are called, in their order."""
    column: tuple[Column, ...] = Field(strict=False)


class Recipe:
    """A recipe that can be applied: to a table, or to one row after another."""

    def __init__(self, file: RecipeFile) -> None:
        self.file = file
        self._numbers = [column for column in file.column if column.kind == "number"]
        self._categories = [column for column in file.column if column.kind == "category"]
        self._mean, self._scale, self._fill, self._limit = (
            np.array([getattr(column, name) for column in self._numbers]) for name in ("mean", "scale", "fill", "limit")
        )
        self._places: list[dict[str | None, int]] = [
            {value: place for place, value in enumerate(column.values)} for column in self._categories
        ]
        self._one_hots = [np.eye(column.width + 1, column.width) for column in self._categories]

    @property
    def names(self) -> tuple[str, ...]:
        return self.file.names

    @property
    def key(self) -> str:
        return self.file.key

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """A recipe from its file."""
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise ConfigError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes")
            file = RecipeFile.model_validate(tomllib.loads(path.read_text("utf-8")))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])
            raise ConfigError(f"{path}: {where}: {problem['msg']}") from None
        made = sum(column.width for column in file.column) + file.intercept
        if len(file.names) != made:
            raise ConfigError(f"{path}: names has {len(file.names)} entries, and {made} features are made")
        return cls(file)

    def table(self, table: Table) -> Floats:
        """The features of all rows of a table."""
        numbers = [_numbers(table, column.name) for column in self._numbers]
        stacked = np.array(numbers).reshape(len(numbers), len(table)).T
        return self._made(stacked, [table.column(column.name) for column in self._categories])

    def row(self, cells: Mapping[str, Cell]) -> Floats:
        """The features of one row, by the names of its columns."""
        try:
            numbers = np.array([[cells[column.name] for column in self._numbers]], np.float64)
            found: Floats = self._made(numbers, [[cells[column.name]] for column in self._categories])[0]
        except KeyError as error:
            raise FeatureError(f"the source gives no column {error.args[0]!r}, which the recipe needs") from None
        except (TypeError, ValueError, OverflowError):
            raise FeatureError("a column that the recipe has as a number is none") from None
        return found

    def _made(self, numbers: Floats, categories: list[list[Cell]]) -> Floats:
        """Features [rows, features], in the order of the columns."""
        filled = np.where(np.isfinite(numbers), numbers, self._fill)
        scaled = np.clip((filled - self._mean) / self._scale, -self._limit, self._limit)
        parts = {column.name: scaled[:, place, None] for place, column in enumerate(self._numbers)}
        for column, cells, places, one_hots in zip(
            self._categories, categories, self._places, self._one_hots, strict=True
        ):
            parts[column.name] = one_hots[[places.get(_category(cell), column.width) for cell in cells]]
        ordered = [parts[column.name] for column in self.file.column]
        if self.file.intercept:
            ordered.append(np.ones((len(numbers), 1)))
        made: Floats = np.concatenate(ordered, axis=1) * self.file.factor
        return made

    def csv(self, table: Table) -> str:
        """The features of a table as text, as a kit takes them."""
        table.rows()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([KEY_COLUMN, *self.names])
        for key, features in zip(table.keys, self.table(table).tolist(), strict=True):
            writer.writerow([key, *(f"{feature:.{_DIGITS}g}" for feature in features)])
        return text.getvalue()

    def text(self, made_of: str) -> str:
        """The file's content; `made_of` goes into its first line, a comment."""
        file = self.file
        lines = [
            f"# {made_of}",
            "version = 1",
            f"key = {_quoted(file.key)}",
            f"norm = {file.norm!r}",
            f"factor = {file.factor!r}",
            f"intercept = {str(file.intercept).lower()}",
            f"names = {_listed(file.names)}",
        ]
        for column in file.column:
            lines += ["", "[[column]]", f"name = {_quoted(column.name)}", f"kind = {_quoted(column.kind)}"]
            if column.kind == "number":
                lines += [f"{name} = {getattr(column, name)!r}" for name in ("mean", "scale", "fill", "limit")]
            else:
                lines.append(f"values = {_listed(column.values)}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class FitOptions:
    """What `fit` is to do. `quantile` of all rows come within the norm, the others are clipped to it when they are
    looked up. A value of a category has a feature if it is in at least `min_count` rows, and among the `max_values`
    most frequent ones. With `numbered` features are called f1, f2, ..., so that their names tell nothing."""

    key: str = "key"
    leave_out: Collection[str] = ()
    categories: Collection[str] = ()
    norm: float = 1.0
    quantile: float = 0.99
    intercept: bool = True
    min_count: int = 10
    max_values: int = 20
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A recipe, and what was done, a line each."""

    recipe: Recipe
    notes: list[str] = field(default_factory=list)


def fit(table: Table, options: FitOptions) -> Fitted:
    """Learn a recipe from a table."""
    _check(table, options)
    notes: list[str] = []
    columns = [
        column
        for name in table.columns
        if name not in options.leave_out and (column := _fit_column(table, name, options, notes)) is not None
    ]
    if not columns:
        raise ConfigError(f"{table.path}: no column is left that tells rows apart")
    for name in options.leave_out:
        notes.append(f"{name}: left out")
    whole = _with_factor(columns, 1.0, options)
    lengths = np.sort(np.sqrt(np.square(whole.table(table)).sum(axis=1)))
    typical = float(lengths[max(0, ceil(options.quantile * len(lengths)) - 1)])
    recipe = _with_factor(columns, _rounded(options.norm / typical if typical else 1.0), options)
    beyond = int((np.sqrt(np.square(recipe.table(table)).sum(axis=1)) > options.norm * (1 + 1e-6)).sum())
    if options.intercept:
        notes.append(f"{INTERCEPT}: a feature that is the same in every row")
    notes.append(f"norm {options.norm:g}: {beyond} of {len(table)} rows are beyond it, and will be clipped to it")
    return Fitted(recipe, notes)


def _check(table: Table, options: FitOptions) -> None:
    for name in (*options.leave_out, *options.categories):
        table.column(name)
    if not len(table):
        raise ConfigError(f"{table.path} has no rows to learn from")
    if not 0 < options.norm < float("inf"):
        raise ConfigError(f"the norm must be a positive number, got {options.norm:g}")
    if not 0 < options.quantile <= 1:
        raise ConfigError(f"the quantile must lie in (0, 1], got {options.quantile:g}")
    table.rows()


def _fit_column(table: Table, name: str, options: FitOptions, notes: list[str]) -> Column | None:
    cells = table.column(name)
    present = [cell for cell in cells if cell is not None]
    missing = len(cells) - len(present)
    gaps = f", {missing} missing" if missing else ""
    if name in options.categories or not all(_is_number(cell) for cell in present):
        return _fit_category(name, present, gaps, options, notes)
    values = [float(cell) for cell in present if isfinite(float(cell))]
    mean = fsum(values) / len(values) if values else 0.0
    scale = sqrt(fsum((value - mean) ** 2 for value in values) / len(values)) if values else 0.0
    if not scale > 1e-9 * abs(mean):
        notes.append(f"{name}: left out, it is the same in all rows" if values else f"{name}: left out, it is empty")
        return None
    notes.append(f"{name}: number, mean {mean:.6g}, scale {scale:.6g}{gaps and gaps + ' count as the mean'}")
    mean = _rounded(mean)
    return Column(name=name, kind="number", mean=mean, scale=_rounded(scale), fill=mean)


def _fit_category(name: str, present: list[Cell], gaps: str, options: FitOptions, notes: list[str]) -> Column | None:
    counts = Counter(str(_category(cell)) for cell in present)
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    kept = sorted(value for value in ranked[: options.max_values] if counts[value] >= options.min_count)
    if len(counts) < 2 or not kept:
        why = "it is the same in all rows" if len(counts) == 1 else f"no value is in {options.min_count} rows"
        notes.append(f"{name}: left out, {why if counts else 'it is empty'}")
        return None
    rest = len(counts) - len(kept)
    others = f", {rest} rarer values have no feature" if rest else ""
    notes.append(f"{name}: category, {len(kept)} features{others}{gaps and gaps + ' have none either'}")
    return Column(name=name, kind="category", values=tuple(kept))


def _with_factor(columns: Sequence[Column], factor: float, options: FitOptions) -> Recipe:
    names = [name for column in columns for name in column.labels]
    if options.intercept:
        names.append(INTERCEPT)
    labels = [f"f{place + 1}" for place in range(len(names))] if options.numbered else _labels(names)
    return Recipe(
        RecipeFile(
            version=1,
            key=options.key,
            norm=options.norm,
            factor=factor,
            intercept=options.intercept,
            names=tuple(labels),
            column=tuple(columns),
        )
    )


def _labels(names: Sequence[str]) -> list[str]:
    """Names as a federation file may have them: short, without commas and quotes, no two the same."""
    labels: list[str] = []
    for name in names:
        label = _NO_LABEL.sub("_", name).strip()[:_LABEL_LETTERS].strip() or "_"
        stem, again = label, 1
        while label in labels:
            again += 1
            end = f"~{again}"
            label = stem[: _LABEL_LETTERS - len(end)] + end
        labels.append(label)
    return labels


def _numbers(table: Table, name: str) -> list[float]:
    cells = table.column(name)
    try:
        return [float("nan") if cell is None else float(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError):
        row = next(row for row, cell in enumerate(cells) if cell is not None and not _is_number(cell))
        raise ConfigError(f"{table.path}, row {row + table.first_row}, column {name!r}: not a number") from None


def _is_number(cell: Cell) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _category(cell: Cell) -> str | None:
    """A value of a category as text, the same wherever it comes from: 7, 7.0 and "7" are one value. A row of text takes
    the same operations whether a value is there or not."""
    if isinstance(cell, str | None):
        return cell
    whole = isinstance(cell, float | Decimal) and isfinite(cell) and cell == int(cell)
    return str(int(cell)) if whole else str(cell)


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(_quoted(name) for name in names)}]"
