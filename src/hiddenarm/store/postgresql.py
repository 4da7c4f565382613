"""A store in a schema of a PostgreSQL server: the same records and seals as in a file, one writer, nothing in doubt.

Each role has a schema of its own, so that many roles can share a server. It must belong to the user who connects, and
nobody else may use it, as whoever may read it holds a share of everything. All records are compared with their seals
when the store is opened. The server must sync what it commits.

One writer. The connection that writes holds an advisory lock, and a row, the fence, has the number of the instance that
was opened last (its generation) and counts commits. Every commit is a transaction that counts the fence up, and is made
only if the fence still has this generation and the count that this instance knows. So an instance whose lock was lost,
however that came about, cannot write behind the next one.

A connection that is lost leaves open whether a commit under way was made. The fence knows: a new connection first gets
the lock, which the old one lets go of only when its transaction has ended, and then reads the fence. If the count is
one up, the commit was made; if it is the same, it was not, and is made now; anything else, and a server that does not
answer within `PATIENCE_SECONDS`, is an error, after which the role ends. Nothing is acknowledged meanwhile.

A path in this module is never shown with a password: messages name host, database and schema.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import AdminShutdown, CannotConnectNow, CrashShutdown, DiskFull, InsufficientPrivilege

from hiddenarm.errors import ConfigError, DamagedStoreError, StoreError, StoreLostError
from hiddenarm.store.contract import Change, Delete, DeleteFrom, Put, seal

PATIENCE_SECONDS: Final = 10.0
"""How long a lost connection is tried again: less than it takes peers to call a silent role lost."""
_LOCK_SECONDS: Final = 3.0
"""How long a new instance waits for the lock: the server takes a moment to notice that its holder was killed."""
_PAUSE_SECONDS: Final = 0.05
_PAGE: Final = 512
"""Records that are read at a time."""
_FORMAT: Final = 1
_OLDEST_SERVER: Final = 140000
_CONNECTION: Final[dict[str, Any]] = {
    "application_name": "hiddenarm",
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""So that a link that is cut is noticed within seconds, at this end."""
_SESSION: Final = {
    "search_path": "pg_catalog",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""And at the server's, which lets go of the lock then."""
_VERIFYING: Final = ("verify-full", "verify-ca")
_SYNCED: Final = ("on", "remote_apply")
_LOST: Final = (AdminShutdown, CrashShutdown, CannotConnectNow)

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Database:
    """A schema of a database, by the database's URL."""

    url: str = field(repr=False)
    schema: str

    def __str__(self) -> str:
        given = self._given
        host = given.get("host") or given.get("hostaddr") or given.get("service") or "the default host"
        return f"schema {self.schema} of PostgreSQL at {host}/{given.get('dbname') or 'the default database'}"

    @property
    def _given(self) -> dict[str, Any]:
        """The parts of the URL. What libpq says of a wrong one may show a piece of the password."""
        try:
            given = conninfo_to_dict(self.url)
        except psycopg.Error:
            raise ConfigError(_WRONG_URL) from None
        if any("@" in str(given.get(part, "")) for part in ("host", "dbname", "port")):
            raise ConfigError(_WRONG_URL)
        return dict(given)

    def connect(self) -> Connection:
        """A connection that syncs what it commits; whatever would not is refused."""
        given = self._given
        if not is_local(given):
            given["sslmode"] = _checked_mode(given.get("sslmode"))
        try:
            connection = psycopg.connect(**{**_CONNECTION, **given}, autocommit=True)
        except psycopg.Error as error:
            raise StoreLostError(f"{self} cannot be reached: {self._said(error)}") from None
        try:
            self._set_up(connection)
        except psycopg.Error as error:
            connection.close()
            raise self.failure(error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: Connection) -> None:
        version = connection.info.server_version
        if version < _OLDEST_SERVER:
            raise StoreError(f"{self} has version {version // 10_000}: {_OLDEST_SERVER // 10_000} or later is needed")
        for name, value in _SESSION.items():
            connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
        if _setting(connection, "synchronous_commit") not in _SYNCED:
            connection.execute("SET synchronous_commit = on")
        for name in ("fsync", "full_page_writes"):
            if _setting(connection, name) != "on":
                raise StoreError(f"{self} has {name} off, so a commit may not last: switch it on in postgresql.conf")
        if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
            raise StoreLostError(f"{self} is a standby, which cannot be written: name the primary")

    def failure(self, error: psycopg.Error) -> StoreError:
        """What went wrong, without anything of a record: only the first line of what the server says is shown."""
        if isinstance(error, DiskFull):
            return StoreError(f"{self} cannot be written: the disk is full. Make room and start again")
        if isinstance(error, InsufficientPrivilege):
            return StoreError(f"{self} cannot be used: {self._said(error)}. Grant it to the user of the URL")
        if isinstance(error, psycopg.OperationalError):
            return StoreLostError(f"{self} cannot be used: {self._said(error)}")
        return StoreError(f"{self} cannot be used: {self._said(error)}")

    def _said(self, error: psycopg.Error) -> str:
        text = error.diag.message_primary or str(error) or type(error).__name__
        password = self._given.get("password")
        text = text.replace(str(password), "***") if password else text
        return "".join(letter if " " <= letter <= "~" else " " for letter in text[:200]).strip()

    def table(self, name: str) -> sql.Identifier:
        return sql.Identifier(self.schema, name)

    @property
    def lock(self) -> int:
        """The number of the advisory lock."""
        digest = blake2b(self.schema.encode(), digest_size=8, person=b"hiddenarm lock").digest()
        return int.from_bytes(digest, "big", signed=True)


_WRONG_URL: Final = (
    "the store in kit.json is no URL that PostgreSQL reads. Letters of the password such as @ / : ? # are written as "
    "%40 %2F %3A %3F %23; or leave the password out, and put it in a file: ?passfile=/path/to/file"
)


class Fence(NamedTuple):
    """Who may write, and how often was written."""

    generation: int
    commits: int


class PostgresStore:
    """The records in a schema, which is made if it is not there. `commit` may be called from another thread than the
    rest, which reads through a connection of its own."""

    def __init__(self, database: Database) -> None:
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # it warns of lost connections, which are handled here
        self._database = database
        self._records, self._fence = database.table("records"), database.table("fence")
        self._writer = database.connect()
        try:
            with self._named():
                self._take_lock()
                self._make_schema()
                self._generation, self._commits = self._next_generation()
            self._reader = database.connect()
            try:
                for _ in self.records():  # which compares each with its seal
                    pass
            except BaseException:
                self._reader.close()
                raise
        except BaseException:
            self._writer.close()
            raise

    # Writing

    def commit(self, changes: Sequence[Change]) -> None:
        self._transact(lambda: self._apply_all(changes))

    def replace_all(self, records: Callable[[], Iterable[Put]]) -> None:
        """Put other records in the place of all, which are kept in the table `records_before_import`. They are read
        anew if the connection is lost and all is done again."""
        kept = self._database.table("records_before_import")
        if self._exists(self._writer, "records_before_import"):
            raise StoreError(
                f"{self._database} has a table records_before_import from an earlier import: rename it, or drop it if "
                "it is not needed"
            )

        def replace() -> None:
            self._writer.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(self._records))
            self._writer.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(kept, self._records))
            self._writer.execute(sql.SQL("DELETE FROM {}").format(self._records))
            self._apply_all(records())

        self._transact(replace)

    def _transact(self, write: Callable[[], None]) -> None:
        """Make changes, all or none, and be certain of it."""
        while True:
            try:
                with self._writer.pipeline(), self._writer.transaction():
                    count = sql.SQL(
                        "UPDATE {} SET commits = commits + 1 WHERE generation = %s AND commits = %s RETURNING commits"
                    )
                    counted = self._writer.execute(count.format(self._fence), (self._generation, self._commits))
                    write()
                    if counted.fetchone() is None:
                        raise self._fenced()
            except psycopg.Error as error:
                if not _is_lost(self._writer, error):
                    raise self._database.failure(error) from None
                if not self._was_made():
                    continue
            self._commits += 1
            return

    def _apply_all(self, changes: Iterable[Change]) -> None:
        put = sql.SQL(
            "INSERT INTO {} VALUES (%b, %b, %b, %b) "
            "ON CONFLICT (area, key) DO UPDATE SET payload = excluded.payload, seal = excluded.seal"
        ).format(self._records)
        delete = sql.SQL("DELETE FROM {} WHERE area = %b AND key = %b").format(self._records)
        delete_from = sql.SQL("DELETE FROM {} WHERE area = %b AND key >= %b").format(self._records)
        for change in changes:
            match change:
                case Put(area, key, payload):
                    self._writer.execute(put, (area, key, payload, seal(area, key, payload)))
                case Delete(area, key):
                    self._writer.execute(delete, (area, key))
                case DeleteFrom(area, key):
                    self._writer.execute(delete_from, (area, key))

    def _was_made(self) -> bool:
        """Whether the commit under which the connection was lost was made; with a new connection that may write."""
        self._writer.close()
        self._writer = self._regain(self._locked)
        fence = self._read_fence(self._writer)
        if fence.generation != self._generation:
            raise self._fenced()
        if fence.commits not in (self._commits, self._commits + 1):
            raise self._behind(fence)
        return fence.commits == self._commits + 1

    def _locked(self) -> Connection:
        connection = self._database.connect()
        try:
            if self._try_lock(connection):
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        raise StoreLostError(f"{self._database}: the lock of the lost connection is still held")

    def _regain(self, connect: Callable[[], Connection]) -> Connection:
        """Connect anew, as often as it takes; an error once that has taken too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return connect()
            except StoreLostError as error:
                if time.monotonic() > deadline:
                    raise StoreLostError(f"{error}; it was tried for {PATIENCE_SECONDS:g} seconds") from None
                time.sleep(_PAUSE_SECONDS)

    # Reading

    def get(self, area: str, key: bytes) -> bytes | None:
        query = sql.SQL("SELECT payload, seal FROM {} WHERE area = %b AND key = %b").format(self._records)
        for payload, kept in self._read(query, area, key):
            return sealed(self._database, area, key, payload, kept)
        return None

    def items(self, area: str, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """In pages: a record that is changed meanwhile is as it was when its page was read."""
        text = "SELECT key, payload, seal FROM {} WHERE area = %b AND key {} %b ORDER BY key LIMIT {}"
        begin, go_on = (sql.SQL(text).format(self._records, sql.SQL(sign), _PAGE) for sign in (">=", ">"))
        page = self._read(begin, area, first)
        while page:
            for key, payload, kept in page:
                yield key, sealed(self._database, area, key, payload, kept)
            page = self._read(go_on, area, page[-1][0]) if len(page) == _PAGE else []

    def records(self) -> Iterator[Put]:
        """All records, in the order of area and key."""
        return records_in(self._database, self._read)

    def _read(self, query: sql.Composed, *arguments: str | bytes) -> list[Any]:
        while True:
            try:
                return self._reader.execute(query, arguments, binary=True).fetchall()
            except psycopg.Error as error:
                if not _is_lost(self._reader, error):
                    raise self._database.failure(error) from None
                self._reader.close()
                self._reader = self._regain(self._connected_to_ours)

    def _connected_to_ours(self) -> Connection:
        """A connection that shows all that this instance has committed; a server that was put back is refused."""
        commits = self._commits
        connection = self._database.connect()
        try:
            fence = self._read_fence(connection)
        except BaseException:
            connection.close()
            raise
        if fence.generation != self._generation or fence.commits < commits:
            connection.close()
            raise self._fenced() if fence.generation > self._generation else self._behind(fence)
        return connection

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    # Who writes

    def _take_lock(self) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not self._try_lock(self._writer):
            if time.monotonic() > deadline:
                raise StoreError(f"{self._database} is in use by another instance of this role")
            time.sleep(_PAUSE_SECONDS)

    def _try_lock(self, connection: Connection) -> bool:
        return connection.execute("SELECT pg_try_advisory_lock(%s)", (self._database.lock,)).fetchone() == (True,)

    def _make_schema(self) -> None:
        """Make what is not there, all at once; refuse what is not this user's alone, or of another format."""
        schema = sql.Identifier(self._database.schema)
        if not self._exists(self._writer, "fence"):
            with self._writer.transaction():
                self._writer.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                self._writer.execute(sql.SQL(_RECORDS).format(self._records))
                self._writer.execute(sql.SQL(_FENCE).format(self._fence))
                self._writer.execute(sql.SQL("INSERT INTO {} VALUES (true, %s, 0, 0)").format(self._fence), (_FORMAT,))
        for row in self._writer.execute(_OPEN_TO, {"schema": self._database.schema}):
            raise StoreError(
                f"{self._database} holds shares, and {row[0]} may use its {row[1]}: it must belong to the user of the "
                "URL, and to nobody else (REVOKE ALL ... FROM ...)"
            )
        found = self._writer.execute(sql.SQL("SELECT format FROM {}").format(self._fence)).fetchall()
        if found != [(_FORMAT,)]:
            shown = ", ".join(str(row[0]) for row in found) or "none"
            raise StoreError(f"{self._database} has format {shown}, this is format {_FORMAT}")

    def _exists(self, connection: Connection, table: str) -> bool:
        name = self._database.table(table).as_string(connection)
        return connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,)

    def _next_generation(self) -> Fence:
        query = "UPDATE {} SET generation = generation + 1 RETURNING generation, commits"
        (found,) = self._writer.execute(sql.SQL(query).format(self._fence)).fetchall()
        return Fence(*found)

    def _read_fence(self, connection: Connection) -> Fence:
        try:
            query = sql.SQL("SELECT generation, commits FROM {}").format(self._fence)
            (found,) = connection.execute(query).fetchall()
        except psycopg.Error as error:
            raise self._database.failure(error) from None
        except ValueError:
            raise DamagedStoreError(f"{self._database} is damaged: its table fence must have one row") from None
        return Fence(*found)

    def _fenced(self) -> StoreError:
        return StoreError(f"{self._database} was taken over by another instance of this role: this one may not write")

    def _behind(self, fence: Fence) -> StoreError:
        return StoreError(
            f"{self._database} is not what it was: it has {fence.commits} commits where {self._commits} were "
            "confirmed. It was put back to an earlier state, or a standby took over that lacked some"
        )

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._database.failure(error) from None


_RECORDS: Final = (
    'CREATE TABLE IF NOT EXISTS {} (area text COLLATE "C" NOT NULL, key bytea NOT NULL, payload bytea NOT NULL, '
    "seal bytea NOT NULL, PRIMARY KEY (area, key))"
)
_FENCE: Final = (
    "CREATE TABLE {} (one boolean PRIMARY KEY CHECK (one), format integer NOT NULL, generation bigint NOT NULL, "
    "commits bigint NOT NULL)"
)
_OPEN_TO: Final = """
WITH parts (what, owner, acl) AS (
    SELECT 'schema', nspowner, nspacl FROM pg_namespace WHERE nspname = %(schema)s
    UNION ALL
    SELECT 'table ' || relname, relowner, relacl FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s) AND relkind = 'r'
)
SELECT coalesce(rolname, 'everybody'), what FROM (
    SELECT owner AS holder, what FROM parts
    UNION
    SELECT (aclexplode(acl)).grantee, what FROM parts
) AS holders LEFT JOIN pg_roles ON pg_roles.oid = holder
WHERE rolname IS DISTINCT FROM current_user
"""
"""Who, besides the user, owns the schema or one of its tables, or was granted anything of them."""


def read_record(database: Database, area: str, key: bytes) -> bytes | None:
    """The payload of one record, None if there is none or no store. The store may be in use; nothing is written."""
    connection = database.connect()
    try:
        name = database.table("records").as_string(connection)
        if connection.execute("SELECT to_regclass(%s) IS NULL", (name,)).fetchone() == (True,):
            return None
        query = sql.SQL("SELECT payload, seal FROM {} WHERE area = %b AND key = %b").format(database.table("records"))
        found = connection.execute(query, (area, key), binary=True).fetchone()
    except psycopg.Error as error:
        raise database.failure(error) from None
    finally:
        connection.close()
    return None if found is None else sealed(database, area, key, *found)


@contextmanager
def snapshot(database: Database) -> Iterator[Iterator[Put]]:
    """All records as they are at one moment; the store may be in use."""
    connection = database.connect()
    try:
        name = database.table("records").as_string(connection)
        if connection.execute("SELECT to_regclass(%s) IS NULL", (name,)).fetchone() == (True,):
            raise StoreError(f"{database} is not there: this role has no state yet")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")

        def read(query: sql.Composed, *arguments: str | bytes) -> list[Any]:
            return connection.execute(query, arguments, binary=True).fetchall()

        yield records_in(database, read)
    except psycopg.Error as error:
        raise database.failure(error) from None
    finally:
        with suppress(psycopg.Error):
            connection.close()


def records_in(database: Database, read: Callable[..., list[Any]]) -> Iterator[Put]:
    """All records of a schema, page by page."""
    text = "SELECT area, key, payload, seal FROM {} {} ORDER BY area, key LIMIT {}"
    table = database.table("records")
    begin = sql.SQL(text).format(table, sql.SQL(""), _PAGE)
    go_on = sql.SQL(text).format(table, sql.SQL("WHERE (area, key) > (%b, %b)"), _PAGE)
    page = read(begin)
    while page:
        for area, key, payload, kept in page:
            yield Put(area, key, sealed(database, area, key, payload, kept))
        page = read(go_on, *page[-1][:2]) if len(page) == _PAGE else []


def sealed(database: Database, area: str, key: bytes, payload: bytes, kept: bytes) -> bytes:
    """The payload, if it and its name match the seal."""
    if not hmac.compare_digest(kept, seal(area, key, payload)):
        shown = "".join(letter if " " <= letter <= "~" else "?" for letter in area[:200])
        raise DamagedStoreError(f"{database}: record {key.hex()} of {shown} does not match its seal")
    return payload


def _setting(connection: Connection, name: str) -> str:
    (value,) = connection.execute("SELECT pg_catalog.current_setting(%s)", (name,)).fetchone() or ("",)
    return str(value)


def _is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Whether a connection is no more, rather than a statement wrong."""
    return connection.closed or isinstance(error, _LOST)


def is_local(given: Mapping[str, Any]) -> bool:
    """Whether a server is reached on this machine only."""
    hosts = [given.get(name) for name in ("hostaddr", "host") if given.get(name)]
    if not hosts or "service" in given:
        return False
    return all(_is_loopback(host) for named in hosts for host in str(named).split(","))


def _is_loopback(host: str) -> bool:
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_mode(mode: str | None) -> str:
    if mode is not None and mode not in _VERIFYING:
        raise ConfigError(
            f"the store in kit.json is on another machine, and sslmode={mode} does not say who it is: shares must not "
            "leave so. Leave it out, or give sslmode=verify-full and sslrootcert=/path/to/authority.pem"
        )
    return mode or _VERIFYING[0]
