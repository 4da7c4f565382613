"""A store in one SQLite file: write-ahead log, a sync for every commit, and a lock against a second instance.

The folder must be the role's own, 0700, and the file 0600; other modes are refused, as whoever may read the file holds
a share of everything. All records are compared with their seals when the store is opened. A record that is damaged is
named, and the store is not used: a wrong share would go unnoticed and spoil the model of all parties.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.store.contract import Change, Delete, DeleteFrom, Put, seal

FILE: Final = "state.db"
LOCK_FILE: Final = "lock"
_FORMAT: Final = 1
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS records (area TEXT NOT NULL, key BLOB NOT NULL, payload BLOB NOT NULL, "
    "seal BLOB NOT NULL, PRIMARY KEY (area, key)) WITHOUT ROWID"
)
_PUT: Final = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)"


class SqliteStore:
    """The records in `folder`, which is made if it is not there. `commit` may be called from another thread than the
    rest, which reads through a connection of its own."""

    def __init__(self, folder: Path) -> None:
        _check_folder(folder)
        self._path = folder / FILE
        self._lock = _lock(folder / LOCK_FILE)
        try:
            _check_file(self._path)
            self._writer = self._connect()
            self._reader = self._connect()
            self._verify()
        except BaseException:
            os.close(self._lock)
            raise

    def commit(self, changes: Sequence[Change]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for change in changes:
                self._apply(change)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def get(self, area: str, key: bytes) -> bytes | None:
        for payload, kept in self._read("SELECT payload, seal FROM records WHERE area = ? AND key = ?", area, key):
            return self._sealed(area, key, payload, kept)
        return None

    def items(self, area: str, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        query = "SELECT key, payload, seal FROM records WHERE area = ? AND key >= ? ORDER BY key"
        for key, payload, kept in self._read(query, area, first):
            yield key, self._sealed(area, key, payload, kept)

    def records(self) -> Iterator[Put]:
        """All records, in the order of area and key."""
        for area, key, payload, kept in self._read("SELECT area, key, payload, seal FROM records ORDER BY area, key"):
            yield Put(area, key, self._sealed(area, key, payload, kept))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        os.close(self._lock)

    def checkpoint(self) -> None:
        """Bring all that was committed into the one file."""
        try:
            busy = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise self._failure(error) from None
        if busy:
            raise StoreError(f"{self._path} is being read by somebody else, and could not be brought into one file")

    def _apply(self, change: Change) -> None:
        match change:
            case Put(area, key, payload):
                self._writer.execute(_PUT, (area, key, payload, seal(area, key, payload)))
            case Delete(area, key):
                self._writer.execute("DELETE FROM records WHERE area = ? AND key = ?", (area, key))
            case DeleteFrom(area, key):
                self._writer.execute("DELETE FROM records WHERE area = ? AND key >= ?", (area, key))

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _FORMAT):
                raise StoreError(f"{self._path} has format {version}, this is format {_FORMAT}")
            if version == 0:
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
        except sqlite3.Error as error:
            raise self._failure(error) from None
        return connection

    def _verify(self) -> None:
        """The file is whole, and every record matches its seal."""
        problems = [row[0] for row in self._read("PRAGMA integrity_check(1)")]
        if problems != ["ok"]:
            raise DamagedStoreError(f"{self._path} is damaged: {_printable(str(problems[0]))}")
        for _ in self.records():  # which compares each with its seal
            pass

    def _sealed(self, area: str, key: bytes, payload: bytes, kept: bytes) -> bytes:
        """The payload, if it and its name match the seal; damage may have changed even the types of the columns."""
        whole = isinstance(area, str) and all(isinstance(part, bytes) for part in (key, payload, kept))
        if not whole or not hmac.compare_digest(kept, seal(area, key, payload)):
            name = key.hex() if isinstance(key, bytes) else "?"
            raise DamagedStoreError(f"{self._path}: record {name} of {_printable(str(area))} does not match its seal")
        return payload

    def _read(self, query: str, *arguments: str | bytes) -> Iterator[Any]:
        try:
            yield from self._reader.execute(query, arguments)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> StoreError:
        text = _printable(str(error))
        if isinstance(error, sqlite3.OperationalError) and "full" in text:
            return StoreError(f"{self._path} cannot be written: the disk is full. Make room and start again")
        if isinstance(error, sqlite3.OperationalError):
            return StoreError(f"{self._path} cannot be used: {text}")
        return DamagedStoreError(f"{self._path} is damaged: {text}")


def write_copy(path: Path, records: Iterable[Put]) -> None:
    """Make a file of these records where an empty one is, as it is after all was brought into one file."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
            for area, key, payload in records:
                connection.execute(_PUT, (area, key, payload, seal(area, key, payload)))
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(f"{path} could not be written: {_printable(str(error))}") from None


def read_record(folder: Path, area: str, key: bytes) -> bytes | None:
    """The payload of one record, None if there is none or no store. The store may be in use; nothing is written."""
    path = folder / FILE
    if not path.exists():
        return None
    query = "SELECT payload, seal FROM records WHERE area = ? AND key = ?"
    in_use = path.with_name(f"{FILE}-wal").exists()  # if not, SQLite would make one, and leave it
    address = f"{path.resolve().as_uri()}?mode=ro{'' if in_use else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            found = connection.execute(query, (area, key)).fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read: {_printable(str(error))}") from None
    if found is None:
        return None
    payload, kept = found
    if not (
        isinstance(payload, bytes) and isinstance(kept, bytes) and hmac.compare_digest(kept, seal(area, key, payload))
    ):
        raise DamagedStoreError(f"{path}: record {key.hex()} of {area} does not match its seal")
    return payload


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise StoreError(f"{folder} cannot be used: {error.strerror}") from None
    if status.st_uid != os.geteuid():
        raise StoreError(f"{folder} belongs to another user")
    _check_mode(folder, status, 0o700)


def _check_file(path: Path) -> None:
    """Make the file before SQLite does, so that it never has other modes; its journal gets the same, and may be there
    from before a crash."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if file.exists():
                _check_mode(file, file.stat(), 0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be used: {error.strerror}") from None


def _check_mode(path: Path, status: os.stat_result, allowed: int) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & ~(allowed | stat.S_ISGID):  # which a folder inherits, and which lets nobody in
        raise StoreError(f"{path} has mode {mode:04o} and holds shares: run chmod {allowed:04o} {path}")


def _lock(path: Path) -> int:
    """Hold the lock of the folder until the process ends, however it ends."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreError(f"{path.parent} is in use by another instance of this role") from None
    return descriptor


def _printable(text: str) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:200])
