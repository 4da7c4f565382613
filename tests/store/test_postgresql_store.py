"""What only a server can do wrong: be killed, be shared, be put back, not sync; and what its messages may not show."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hiddenarm.errors import ConfigError, DamagedStoreError, StoreError, StoreLostError
from hiddenarm.store import postgresql
from hiddenarm.store.contract import Put
from hiddenarm.store.copies import Folder, schema_at
from hiddenarm.store.postgresql import Database, PostgresStore, read_record
from hiddenarm.store.sqlite import SqliteStore
from postgres_server import PostgresServer

SCHEMA = "hiddenarm_test_party_0"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(Database(url, SCHEMA))
    yield store
    store.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "_LOCK_SECONDS", 0.2)
    monkeypatch.setattr(postgresql, "PATIENCE_SECONDS", 0.5)


def backends(postgres: PostgresServer, url: str) -> list[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hiddenarm'"
    return [row[0] for row in postgres.run(url, query)]


def cut(postgres: PostgresServer, url: str) -> None:
    """End all connections of stores."""
    for pid in backends(postgres, url):
        postgres.run(url, "SELECT pg_terminate_backend(%s, 5000)", pid)


@pytest.mark.usefixtures("hurried")
def test_a_second_instance_is_refused_and_another_schema_is_not(url: str, store: PostgresStore) -> None:
    with pytest.raises(StoreError, match="in use by another instance"):
        PostgresStore(Database(url, SCHEMA))
    PostgresStore(Database(url, "hiddenarm_test_party_1")).close()
    store.commit([Put("a", b"1", b"goes on")])


def test_a_lost_connection_is_made_anew_and_the_commit_made_once(
    postgres: PostgresServer, url: str, store: PostgresStore
) -> None:
    store.commit([Put("a", b"1", b"one")])
    cut(postgres, url)
    store.commit([Put("a", b"2", b"two")])
    cut(postgres, url)
    assert list(store.items("a")) == [(b"1", b"one"), (b"2", b"two")]
    assert postgres.run(url, f"SELECT commits FROM {SCHEMA}.fence") == [(2,)]


@pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
def test_a_connection_lost_in_a_commit_leaves_no_doubt_whether_it_was_made(
    postgres: PostgresServer, url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """The answer to COMMIT is lost, after the server made it or before."""
    begun, apply_all = [0], PostgresStore._apply_all

    def and_lose(self: PostgresStore, changes: list[Put]) -> None:
        apply_all(self, changes)
        begun[0] += 1
        if begun[0] == 1:
            if made:
                self._writer.execute("COMMIT")
                self._writer.execute("SELECT 1").fetchone()
            cut(postgres, url)

    monkeypatch.setattr(PostgresStore, "_apply_all", and_lose)
    store.commit([Put("a", b"1", b"one")])
    assert begun == [1 if made else 2]
    assert list(store.items("a")) == [(b"1", b"one")]
    assert postgres.run(url, f"SELECT commits FROM {SCHEMA}.fence") == [(1,)]


def test_an_import_that_loses_its_connection_puts_all_records_in_place(
    postgres: PostgresServer, url: str, store: PostgresStore
) -> None:
    """It is done again from the first record on, not from where it was."""
    store.commit([Put("a", b"old", b"gone")])
    wanted, begun = [Put("a", b"1", b"one"), Put("a", b"2", b"two")], [0]

    def records() -> Iterator[Put]:
        begun[0] += 1
        yield wanted[0]
        if begun[0] == 1:
            cut(postgres, url)
        yield wanted[1]

    store.replace_all(records)
    assert begun == [2]
    assert list(store.items("a")) == [(b"1", b"one"), (b"2", b"two")]


def test_an_instance_whose_lock_was_lost_cannot_write_behind_the_next(
    postgres: PostgresServer, url: str, store: PostgresStore
) -> None:
    store.commit([Put("a", b"1", b"one")])
    cut(postgres, url)
    following = PostgresStore(Database(url, SCHEMA))
    following.commit([Put("a", b"1", b"of the next")])
    following.close()  # the lock is free again, the fence is not
    with pytest.raises(StoreError, match="taken over by another instance"):
        store.commit([Put("a", b"1", b"of the old")])
    with pytest.raises(StoreError, match="taken over by another instance"):
        store.get("a", b"1")
    assert postgres.run(url, f"SELECT payload FROM {SCHEMA}.records") == [(b"of the next",)]


def test_without_a_lock_at_all_the_fence_still_refuses(
    postgres: PostgresServer, url: str, store: PostgresStore
) -> None:
    """As behind a pool of connections, which gives the lock to whoever comes."""
    postgres.run(url, f"UPDATE {SCHEMA}.fence SET generation = generation + 1")
    with pytest.raises(StoreError, match="taken over by another instance"):
        store.commit([Put("a", b"1", b"x")])
    assert list(store.items("a")) == []


def test_a_server_that_was_put_back_is_refused(postgres: PostgresServer, url: str, store: PostgresStore) -> None:
    """As a standby that lacked the last commits and took over."""
    for number in range(3):
        store.commit([Put("a", bytes([number]), b"x")])
    postgres.run(url, f"UPDATE {SCHEMA}.fence SET commits = 1")
    cut(postgres, url)
    with pytest.raises(StoreError, match="1 commits where 3 were confirmed"):
        store.get("a", b"0")
    with pytest.raises(StoreError, match="1 commits where 3 were confirmed"):
        store.commit([Put("a", b"9", b"x")])


@pytest.mark.usefixtures("hurried")
def test_a_server_that_does_not_answer_ends_the_store_and_one_that_is_back_goes_on(
    postgres: PostgresServer, url: str
) -> None:
    database = Database(url, SCHEMA)
    store = PostgresStore(database)
    store.commit([Put("a", b"1", b"one")])
    postgres.kill()
    try:
        with pytest.raises(StoreLostError, match=r"cannot be reached.*it was tried for 0.5 seconds"):
            store.commit([Put("a", b"2", b"two")])
        with pytest.raises(StoreLostError, match="cannot be reached"):
            PostgresStore(database)
    finally:
        postgres.start()
    again = PostgresStore(database)
    assert list(again.items("a")) == [(b"1", b"one")]
    again.close()


def test_a_server_that_does_not_sync_is_refused(postgres: PostgresServer, url: str) -> None:
    postgres.stop()
    try:
        postgres.start("fsync=off")
        with pytest.raises(StoreError, match="has fsync off, so a commit may not last"):
            PostgresStore(Database(url, SCHEMA))
        postgres.stop()
    finally:
        postgres.start()


WRITER = """
import sys
from hiddenarm.store.contract import Put
from hiddenarm.store import postgresql
from hiddenarm.store.postgresql import Database, PostgresStore
postgresql.PATIENCE_SECONDS = 120.0
store = PostgresStore(Database(sys.argv[1], sys.argv[2]))
first = len(list(store.items("a")))
for number in range(first, 10**6):
    key = number.to_bytes(8, "big")
    store.commit([Put("a", key, bytes(100)), Put("b", key, bytes(5000))])
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_whole_groups_and_all_it_acknowledged(url: str) -> None:
    choose, acknowledged = random.Random(3), -1
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, url, SCHEMA]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(choose.randrange(5, 40)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        store = PostgresStore(Database(url, SCHEMA))
        first, second = ([key for key, _ in store.items(area)] for area in "ab")
        assert first == second
        assert len(first) > acknowledged
        store.close()


def test_a_killed_server_has_all_that_it_acknowledged(postgres: PostgresServer, url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, url, SCHEMA], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(25):
            acknowledged = int(writer.stdout.readline())
        postgres.kill()
        postgres.start()
        for _ in range(25):  # the same process goes on
            acknowledged = int(writer.stdout.readline())
        writer.kill()
    store = PostgresStore(Database(url, SCHEMA))
    keys = [key for key, _ in store.items("a")]
    assert keys == [number.to_bytes(8, "big") for number in range(len(keys))]
    assert len(keys) > acknowledged
    store.close()


@pytest.mark.parametrize("column", ["payload", "key", "seal"])
def test_a_record_that_was_changed_is_named_and_the_store_refused(
    postgres: PostgresServer, url: str, column: str
) -> None:
    database = Database(url, SCHEMA)
    store = PostgresStore(database)
    store.commit([Put("lesson", bytes([number]), bytes(40)) for number in range(5)])
    store.close()
    flip = f"set_bit({column}, 6, 1 - get_bit({column}, 6))"
    postgres.run(url, f"UPDATE {SCHEMA}.records SET {column} = {flip} WHERE key = '\\x03'")
    with pytest.raises(DamagedStoreError, match=r"record \w\w of lesson does not match its seal"):
        PostgresStore(database)
    if column != "key":
        with pytest.raises(DamagedStoreError, match="record 03 of lesson does not match its seal"):
            read_record(database, "lesson", b"\x03")


def test_synchronous_commit_is_on_whatever_the_user_has_by_default(postgres: PostgresServer, url: str) -> None:
    name = postgres.run(url, "SELECT current_database()")[0][0]
    postgres.run(url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    connection = Database(url, SCHEMA).connect()
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    connection.close()


def test_a_schema_that_others_may_use_is_refused(postgres: PostgresServer, url: str, store: PostgresStore) -> None:
    store.close()
    postgres.run(url, f"GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC")
    with pytest.raises(StoreError, match="everybody may use its schema"):
        PostgresStore(Database(url, SCHEMA))
    postgres.run(url, f"REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC")
    postgres.run(url, f"GRANT SELECT ON {SCHEMA}.records TO pg_monitor")
    with pytest.raises(StoreError, match="pg_monitor may use its table records"):
        PostgresStore(Database(url, SCHEMA))


def test_a_format_that_is_newer_is_refused(postgres: PostgresServer, url: str, store: PostgresStore) -> None:
    store.close()
    postgres.run(url, f"UPDATE {SCHEMA}.fence SET format = 9")
    with pytest.raises(StoreError, match="has format 9, this is format 1"):
        PostgresStore(Database(url, SCHEMA))


SECRET = "hunter2-canary"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:x@{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:x/{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:1/{SECRET}@127.0.0.1/db",
        f"postgresql://me:{SECRET}?x@127.0.0.1:1/db",
        f"postgresql://me@127.0.0.1:1/db?password={SECRET}",
        f"postgresql://me:{SECRET}@db.example/db?sslmode=require",
        f"postgresql://me:{SECRET}@127.0.0.1:1/db?bogus=1",
    ],
)
def test_no_message_and_no_text_shows_a_password(url: str) -> None:
    with pytest.raises((StoreError, ConfigError)) as raised:
        PostgresStore(Database(url, SCHEMA))
    shown = f"{raised.value!r} {raised.value} {Database(url, SCHEMA)!r}"
    assert SECRET not in shown
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require"])
def test_a_server_elsewhere_must_show_who_it_is(mode: str) -> None:
    with pytest.raises(ConfigError, match=f"sslmode={mode} does not say who it is"):
        Database(f"postgresql://me@db.example/db?sslmode={mode}", SCHEMA).connect()


def test_a_copy_goes_from_postgresql_to_a_file_and_back(url: str, store: PostgresStore, tmp_path: Path) -> None:
    schema, folder = schema_at(url, SCHEMA, tmp_path / "scratch"), Folder(tmp_path / "state")
    records = [Put(area, number.to_bytes(2, "big"), b"x" * number) for area in "ab" for number in range(700)]
    store.commit(records)
    schema.export(tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match="cannot be written"):
        schema.export(tmp_path / "copy")
    folder.restore(tmp_path / "copy")
    moved = SqliteStore(tmp_path / "state")
    assert list(moved.records()) == sorted(records)
    moved.commit([Put("c", b"1", b"since")])
    moved.close()
    folder.export(tmp_path / "other")
    store.close()
    schema.restore(
        tmp_path / "other", lambda former, copy: copy.commit([Put("d", b"1", former.get("a", b"\0\5") or b"")])
    )
    back = PostgresStore(Database(url, SCHEMA))
    assert list(back.records()) == [*sorted(records), Put("c", b"1", b"since"), Put("d", b"1", b"x" * 5)]
    back.close()
    with pytest.raises(StoreError, match="records_before_import from an earlier import"):
        schema.restore(tmp_path / "other")
    assert not (tmp_path / "scratch").exists()
    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT count(*) FROM {SCHEMA}.records_before_import").fetchone() == (1400,)


@pytest.mark.usefixtures("hurried")
def test_a_store_in_use_is_not_replaced_and_a_damaged_copy_is_refused(
    url: str, store: PostgresStore, tmp_path: Path
) -> None:
    schema = schema_at(url, SCHEMA, tmp_path / "scratch")
    store.commit([Put("a", b"1", b"one" * 2000)])
    schema.export(tmp_path / "copy")
    with pytest.raises(StoreError, match="in use by another instance"):
        schema.restore(tmp_path / "copy")
    store.close()
    whole = (tmp_path / "copy").read_bytes()
    at = whole.index(b"oneone") + 100
    (tmp_path / "copy").write_bytes(whole[:at] + b"x" + whole[at + 1 :])
    with pytest.raises(DamagedStoreError):
        schema.restore(tmp_path / "copy")
    assert schema.read_record("a", b"1") == b"one" * 2000


def test_a_schema_without_state_has_none(url: str, tmp_path: Path) -> None:
    schema = schema_at(url, SCHEMA, tmp_path / "scratch")
    assert schema.read_record("a", b"1") is None
    with pytest.raises(StoreError, match="has no state yet"):
        schema.export(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_without_psycopg_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hiddenarm.store.postgresql", None)
    with pytest.raises(ConfigError, match=r"pip install 'hiddenarm\[postgresql\]'"):
        schema_at("postgresql://me@/db", SCHEMA, tmp_path)
