"""Where a party's features come from: a table that is read whole, or a place that is asked for one key at a time.

A kit has one of the tables features.csv, features.npz and features.parquet; or features.toml, which names another
source:

    source = "parquet"                      csv, npz, parquet: a file that is read whole
    file = "/data/users.parquet"
    key = "user_id"                         the column with the keys, if it is not `key`
    recipe = "recipe.toml"                  makes features of its columns (`hiddenarm features fit`)

    source = "sqlite"                       or postgresql, with url = "postgresql://..." and %(key)s in the query
    file = "/data/users.db"
    query = "SELECT nights, stars FROM users WHERE id = :key"

    source = "python"
    file = "lookup.py"
    function = "features"                   takes a key; gives numbers, a dict by column, or None for an unknown key

The last three are asked in threads (`live_features`), `workers` at a time, and a decision waits for `seconds` at most.
Paths are relative to the kit. All of these files are for their owner only. What goes wrong is told without the words of
a driver or of the function: those may hold data.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hiddenarm.errors import ConfigError, FeatureError, UnavailableError
from hiddenarm.service.features import StoredFeatures
from hiddenarm.service.modes import refuse_open
from hiddenarm.service.recipes import Recipe
from hiddenarm.service.tables import KEY_COLUMN, Cell, read_csv, read_parquet

SOURCE_FILE: Final = "features.toml"
TABLE_FILES: Final = {"features.csv": "csv", "features.npz": "npz", "features.parquet": "parquet"}
_TABLES: Final = ("csv", "npz", "parquet")
_NEEDED: Final = {"sqlite": ("file", "query"), "postgresql": ("url", "query"), "python": ("file",)}
_ONLY_OF: Final = {"url": ("postgresql",), "query": ("sqlite", "postgresql"), "function": ("python",)}
_PLACEHOLDERS: Final = {"sqlite": ":key", "postgresql": "%(key)s"}
_INSTRUCTIONS: Final = 10_000
"""Of SQLite, between two looks at the clock."""

Row = Mapping[str, Cell] | Sequence[Cell] | None
"""What a source has under a key: cells by column or in order, or nothing."""
Signature = tuple[tuple[int, int, int] | None, ...]
"""Of some files: when each was changed, its size and its place on disk."""


class SourceFile(BaseModel):
    """`features.toml`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: Literal["csv", "npz", "parquet", "sqlite", "postgresql", "python"]
    file: str | None = None
    """The table, the database or the Python file."""
    url: str | None = None
    """Of PostgreSQL, with what it needs to log in."""
    query: str | None = None
    function: str = "features"
    key: str = KEY_COLUMN
    """The column with the keys."""
    recipe: str | None = None
    """A file of `hiddenarm features fit`."""
    seconds: float = Field(default=2.0, ge=0.05, le=20.0)
    """How long a decision waits for its features at most."""
    workers: int = Field(default=4, ge=1, le=64)
    """How many keys are looked up at a time."""

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """The file, checked; whatever is wrong is one `ConfigError` that shows no value."""
        try:
            file = cls.model_validate(tomllib.loads(path.read_text("utf-8")))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        except ValidationError as error:
            raise ConfigError(f"{path}: {_explained(error)}") from None
        file._check(path)
        return file

    def _check(self, path: Path) -> None:
        for name in _NEEDED.get(self.source, ("file",)):
            if getattr(self, name) is None:
                raise ConfigError(f"{path}: source = {self.source!r} needs {name}")
        for name, sources in _ONLY_OF.items():
            if name in self.model_fields_set and self.source not in sources:
                raise ConfigError(f"{path}: {name} is of source = {' or '.join(map(repr, sources))} only")
        wanted = _PLACEHOLDERS.get(self.source)
        if wanted is not None and wanted not in (self.query or ""):
            raise ConfigError(f"{path}: the query must name the key as {wanted}")
        if self.source == "npz" and self.recipe is not None:
            raise ConfigError(f"{path}: arrays in an .npz file are features already: leave out the recipe")


def _explained(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{where} is not a known key; known are {', '.join(SourceFile.model_fields)}"
    return f"{where}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


@dataclass(frozen=True, slots=True, repr=False)
class FeatureSource:
    """What a kit says of its features; `named` is the file that says so. `count` features are declared, and `names` are
    what they are called, if they have names."""

    folder: Path
    named: Path
    file: SourceFile
    count: int
    names: tuple[str, ...]

    @classmethod
    def find(cls, folder: Path, count: int, names: Sequence[str]) -> FeatureSource:
        """The one of a kit."""
        given = folder / SOURCE_FILE
        if given.exists():
            refuse_open(given)
            return cls(folder, given, SourceFile.read(given), count, tuple(names))
        found = [name for name in TABLE_FILES if (folder / name).exists()]
        if len(found) > 1:
            raise ConfigError(f"{folder} has both {' and '.join(found)}: remove the one that is out of date")
        if not found:
            table = folder / "features.csv"
            raise ConfigError(f"{folder} has no features: put them into {table} as features.sample.csv shows, mode 600")
        file = SourceFile.model_validate({"source": TABLE_FILES[found[0]], "file": found[0]})
        return cls(folder, folder / found[0], file, count, tuple(names))

    @property
    def waits(self) -> bool:
        """Whether features are looked up when they are asked for."""
        return self.file.source not in _TABLES

    @property
    def watched(self) -> list[Path]:
        """Files that make other features when they change. A database is asked anew in any case."""
        paths = [self.named]
        if self.file.file is not None and self.file.source != "sqlite":
            paths.append(self.folder / self.file.file)
        if self.file.recipe is not None:
            paths.append(self.folder / self.file.recipe)
        return list(dict.fromkeys(paths))

    def signature(self) -> Signature:
        """Another one whenever a file that is watched was changed or replaced."""
        return tuple(_signature(path) for path in self.watched)

    def load(self) -> StoredFeatures:
        """The features of a table."""
        path = self.folder / str(self.file.file)
        refuse_open(path)
        recipe = self._recipe()
        match self.file.source:
            case "npz":
                return StoredFeatures.read(path, self.count)
            case "csv" if recipe is None:
                return StoredFeatures.read_table(path, self.count, self.names, self.file.key)
            case _:
                table = (read_csv if self.file.source == "csv" else read_parquet)(path, self.file.key)
                if recipe is None:
                    return StoredFeatures.of_columns(table, self.count, self.names)
                return StoredFeatures.made(table, recipe, self.count)

    def open(self, *, zeros: bool) -> Lookup:
        """What looks features up; unknown keys have `zeros` or are refused."""
        return Lookup(self._rows(), self._recipe(), self.count, self.names, zeros)

    def _rows(self) -> RowSource:
        file = self.file
        match file.source:
            case "sqlite":
                path = self.folder / str(file.file)
                refuse_open(path)
                return SqliteRows(path, str(file.query), file.seconds)
            case "postgresql":
                return PostgresqlRows(str(file.url), str(file.query), file.seconds)
            case _:
                path = self.folder / str(file.file)
                refuse_open(path)
                return PythonRows(path, file.function)

    def _recipe(self) -> Recipe | None:
        if self.file.recipe is None:
            return None
        path = self.folder / self.file.recipe
        refuse_open(path)
        recipe = Recipe.read(path)
        if len(recipe.names) != self.count:
            raise ConfigError(f"{path} makes {len(recipe.names)} features, and the federation file has {self.count}")
        for place, (made, declared) in enumerate(zip(recipe.names, self.names, strict=False), start=1):
            if made != declared:
                raise ConfigError(f"{path}: feature {place} is {made!r}, and {declared!r} in the federation file")
        return recipe


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class RowSource(Protocol):
    """A place that is asked for one key at a time, by several threads."""

    def row(self, key: str) -> Row:
        """What it has under a key."""

    def columns(self) -> list[str] | None:
        """The columns that it gives, if that can be known; raises `UnavailableError` if it cannot be asked."""


class Lookup:
    """Features by key, from a place that is asked (`bandit.features.checked_row` clips and encodes them)."""

    def __init__(self, rows: RowSource, recipe: Recipe | None, count: int, names: Sequence[str], zeros: bool) -> None:
        self._rows = rows
        self._recipe = recipe
        self._count = count
        self._names = tuple(names)
        self._zeros = zeros

    def try_out(self) -> None:
        """Raise an error if it cannot be asked, or gives other columns than it should."""
        found = self._rows.columns()
        if found is None:
            return
        recipe = None if self._recipe is None else [column.name for column in self._recipe.file.column]
        wanted = recipe if recipe is not None else list(self._names)
        missing = [name for name in wanted if name not in found]
        if missing or (recipe is None and len(found) != self._count):
            needs = ", ".join(wanted) or f"{self._count} columns"
            raise ConfigError(f"the query must give {needs}; it gives {', '.join(found)}"[:1000])

    def lookup(self, key: str) -> ArrayLike:
        """The features under a key. `FeatureError` if there are none, `UnavailableError` if it does not answer."""
        found = self._rows.row(key)
        if found is None:
            if not self._zeros:
                raise FeatureError("no features are stored under this key")
            return np.zeros(self._count)
        if self._recipe is not None:
            if not isinstance(found, Mapping):
                raise UnavailableError("a recipe needs columns with names: give a dict")
            return self._recipe.row(found)
        return self._in_order(found)

    def _in_order(self, found: Mapping[str, Cell] | Sequence[Cell]) -> list[Cell]:
        if not isinstance(found, Mapping):
            return list(found)
        if not self._names:
            return list(found.values())
        if found.keys() != set(self._names):
            raise UnavailableError(f"the source must give the columns {', '.join(self._names)}"[:500])
        return [found[name] for name in self._names]


class SqliteRows:
    """A query to a SQLite file, which is opened for reading only."""

    def __init__(self, path: Path, query: str, seconds: float) -> None:
        self._path = path
        self._query = query
        self._seconds = seconds
        self._local = threading.local()

    def row(self, key: str) -> Row:
        return _only_row(*self._ask(key))

    def columns(self) -> list[str] | None:
        return self._ask("")[1]

    def _ask(self, key: str) -> tuple[list[Any], list[str]]:
        connection = self._connection()
        deadline = time.monotonic() + self._seconds
        connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _INSTRUCTIONS)
        try:
            cursor = connection.execute(self._query, {"key": key})
            return cursor.fetchmany(2), [column[0] for column in cursor.description or ()]
        except sqlite3.Error as error:
            self._local.connection = None
            raise _failed("SQLite", error) from None

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            try:
                uri = f"{self._path.absolute().as_uri()}?mode=ro"
                connection = sqlite3.connect(uri, uri=True, timeout=self._seconds, isolation_level=None)
            except sqlite3.Error as error:
                raise _failed("SQLite", error) from None
            self._local.connection = connection
        return connection


class PostgresqlRows:
    """A query to PostgreSQL, a connection for each thread, opened again after an error."""

    def __init__(self, url: str, query: str, seconds: float) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict

            from hiddenarm.store.postgresql import is_local
        except ImportError:
            raise ConfigError("to ask PostgreSQL, install hiddenarm with its extra `postgresql`") from None
        self._psycopg: Any = psycopg
        try:
            self._server: dict[str, Any] = dict(conninfo_to_dict(url))
        except psycopg.Error:
            raise ConfigError("PostgreSQL cannot read the url in features.toml: see its documents on URLs") from None
        if not is_local(self._server):
            self._server["sslmode"] = _verifying(self._server.get("sslmode"))
        self._query = query
        self._seconds = seconds
        self._local = threading.local()

    def row(self, key: str) -> Row:
        found = self._ask(key)
        return None if found is None else _only_row(*found)

    def columns(self) -> list[str] | None:
        found = self._ask("")
        return None if found is None else found[1]

    def _ask(self, key: str) -> tuple[list[Any], list[str]] | None:
        """Rows and the names of their columns; None for a key that cannot be one, as it is no number, say."""
        try:
            with self._connection().cursor() as cursor:
                cursor.execute(self._query, {"key": key})
                return cursor.fetchmany(2), [column.name for column in cursor.description or ()]
        except self._psycopg.errors.InvalidTextRepresentation:
            return None
        except self._psycopg.Error as error:
            self._local.connection = None
            raise _failed("PostgreSQL", error) from None

    def _connection(self) -> Any:
        connection = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            timeout = round(1000 * self._seconds)
            own = {
                "connect_timeout": max(2, round(self._seconds)),
                "options": f"-c statement_timeout={timeout} -c default_transaction_read_only=on",
            }
            connection = self._psycopg.connect(**{**self._server, **own}, autocommit=True)
            self._local.connection = connection
        return connection


def _verifying(mode: str | None) -> str:
    """How the certificate of a server on another machine is checked: keys and features go over the line."""
    if mode not in (None, "verify-full", "verify-ca"):
        raise ConfigError(
            f"the url in features.toml names another machine, and sslmode={mode} does not say who it is: leave it out, "
            "or give sslmode=verify-full and sslrootcert=/path/to/authority.pem"
        )
    return mode or "verify-full"


class PythonRows:
    """A function of a Python file. The source is compiled here, so that no bytecode of an earlier one is taken: that is
    told from the source by its time in whole seconds and its size."""

    def __init__(self, path: Path, function: str) -> None:
        try:
            source = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        try:
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        except Exception as error:
            raise ConfigError(f"{path} cannot be run: {type(error).__name__}{_line(error)}") from None
        found = module.__dict__.get(function)
        if not callable(found):
            raise ConfigError(f"{path} has no function {function!r}")
        self._function: Callable[[str], Row] = found
        self._name = function

    def row(self, key: str) -> Row:
        try:
            return self._function(key)
        except Exception as error:
            raise UnavailableError(f"the function {self._name} raised {type(error).__name__}{_line(error)}") from None

    def columns(self) -> list[str] | None:
        return None


def _only_row(rows: Sequence[Sequence[Cell]], names: Sequence[str]) -> Row:
    if len(rows) > 1:
        raise FeatureError("the query gives more than one row under this key")
    return dict(zip(names, rows[0], strict=True)) if rows else None


def _failed(what: str, error: Exception) -> UnavailableError:
    """That a database did not answer. Its own words may hold the key, or data."""
    code = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    return UnavailableError(f"{what} did not answer: {type(error).__name__}{f' ({code})' if code else ''}")


def _line(error: Exception) -> str:
    """Where in the file an error arose, without its words."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    trace, line = error.__traceback__, None
    while trace is not None:
        line, trace = trace.tb_lineno, trace.tb_next
    return f" in line {line}" if line else ""
