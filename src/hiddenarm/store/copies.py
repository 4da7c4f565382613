"""Where the records of a role lie, a folder or a schema of PostgreSQL, and copies of them: taken while they are in use,
and put in the place of those that are not. A copy is a file of SQLite, wherever it was taken, so that it may be put in
a place of the other kind.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hiddenarm.errors import ConfigError, StoreError
from hiddenarm.store.contract import Carry, Place
from hiddenarm.store.sqlite import FILE, SqliteStore, read_record, write_copy

if TYPE_CHECKING:
    from hiddenarm.store.postgresql import Database, PostgresStore

BEFORE_FILE = "state.db.before-import"


class Folder:
    """A folder with a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def open(self) -> SqliteStore:
        return SqliteStore(self._path)

    def read_record(self, area: str, key: bytes) -> bytes | None:
        return read_record(self._path, area, key)

    def export(self, path: Path) -> None:
        export_store(self._path, path)

    def restore(self, path: Path, carry: Carry | None = None) -> None:
        import_store(self._path, path, carry)


class Schema:
    """A schema of PostgreSQL. `scratch` is a folder to be made, and removed, while a copy is checked."""

    def __init__(self, database: Database, scratch: Path) -> None:
        self._database = database
        self._scratch = scratch

    def __str__(self) -> str:
        return str(self._database)

    def open(self) -> PostgresStore:
        from hiddenarm.store.postgresql import PostgresStore

        return PostgresStore(self._database)

    def read_record(self, area: str, key: bytes) -> bytes | None:
        from hiddenarm.store import postgresql

        return postgresql.read_record(self._database, area, key)

    def export(self, path: Path) -> None:
        from hiddenarm.store.postgresql import snapshot

        with snapshot(self._database) as records, _new_file(path):
            write_copy(path, records)

    def restore(self, path: Path, carry: Carry | None = None) -> None:
        """The copy is opened and checked, record by record, before it takes the place, in one transaction."""
        try:
            self._scratch.mkdir(mode=0o700)
            _copy(path, self._scratch / FILE)
            copy = SqliteStore(self._scratch)
            try:
                current = self.open()  # holds the lock: no role runs on it
                try:
                    if carry is not None:
                        carry(current, copy)
                    current.replace_all(copy.records)
                finally:
                    current.close()
            finally:
                copy.close()
        except OSError as error:
            raise StoreError(f"{path} cannot be imported: {error.strerror}") from None
        finally:
            _remove(self._scratch)


def schema_at(url: str, schema: str, scratch: Path) -> Place:
    """A schema of the database at a URL."""
    try:
        from hiddenarm.store.postgresql import Database
    except ImportError:
        raise ConfigError(
            "the store in kit.json is in PostgreSQL, for which psycopg is needed: pip install 'hiddenarm[postgresql]'"
        ) from None
    return Schema(Database(url, schema), scratch)


def export_store(folder: Path, path: Path) -> None:
    """Write a consistent copy of all records to a new file (0600). The role may be running."""
    source = folder / FILE
    if not source.exists():
        raise StoreError(f"{source} is not there: this role has no state yet")
    with _new_file(path):
        try:
            with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(path)) as copy:
                store.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise StoreError(f"{path} could not be written: {error}") from None


@contextmanager
def _new_file(path: Path) -> Iterator[None]:
    """An empty file that only its owner may read, until it is written; none is left if that fails."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None
    try:
        yield
    except BaseException:
        path.unlink()
        raise


def import_store(folder: Path, path: Path, carry: Carry | None = None) -> None:
    """Put a copy in the place of the records, which are kept beside it. The role must not be running. `carry` takes
    over into the copy what must not be lost of the records.

    The copy is opened and checked, record by record, before it takes the place. At every moment there is one whole file
    in that place: the old one gets a second name, and then the new one replaces it in one step."""
    staging = folder.with_name(f"{folder.name}.import")
    try:
        _check_room(folder)
        staging.mkdir(mode=0o700)
        _copy(path, staging / FILE)
        SqliteStore(staging).close()
        current = SqliteStore(folder)  # holds the lock: no role runs on it
        try:
            current.checkpoint()
            _check_room(folder)
            if carry is not None:
                _carry_over(carry, current, staging)
            (folder / BEFORE_FILE).unlink(missing_ok=True)
            os.link(folder / FILE, folder / BEFORE_FILE)
            _sync(folder)
            os.replace(staging / FILE, folder / FILE)
            _sync(folder)
        finally:
            current.close()
        for name in (f"{FILE}-wal", f"{FILE}-shm"):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be imported: {error.strerror}") from None
    finally:
        _remove(staging)


def _carry_over(carry: Carry, current: SqliteStore, staging: Path) -> None:
    """Complete a copy, and have all of it in its file."""
    copy = SqliteStore(staging)
    try:
        carry(current, copy)
        copy.checkpoint()
    finally:
        copy.close()


def _check_room(folder: Path) -> None:
    """Refuse to write over what an earlier import has kept; a second name of the present file is of one that was
    interrupted."""
    file, before = folder / FILE, folder / BEFORE_FILE
    if before.exists() and not (file.exists() and before.samefile(file)):
        raise StoreError(f"{before} is there from an earlier import: move it away, or remove it if it is not needed")


def _copy(source: Path, target: Path) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(source.read_bytes())
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
