"""Copies of a store: taken while it is in use, and put in the place of one that is not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from hiddenarm.errors import StoreError
from hiddenarm.store.contract import Store
from hiddenarm.store.sqlite import FILE, SqliteStore

BEFORE_FILE = "state.db.before-import"
Carry = Callable[[Store, Store], None]
"""(the records, the copy that takes their place)."""


def export_store(folder: Path, path: Path) -> None:
    """Write a consistent copy of all records to a new file (0600). The role may be running."""
    source = folder / FILE
    if not source.exists():
        raise StoreError(f"{source} is not there: this role has no state yet")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(path)) as copy:
            store.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        path.unlink()
        raise StoreError(f"{path} could not be written: {error}") from None


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
