"""One suite for every store: what the contract promises holds in memory, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiddenarm.store.contract import Change, Delete, DeleteFrom, Place, Put, Store, seal
from hiddenarm.store.copies import Folder, schema_at
from hiddenarm.store.memory import MemoryStore
from hiddenarm.store.postgresql import Database, PostgresStore
from hiddenarm.store.sqlite import SqliteStore
from postgres_server import PostgresServer

Make = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a store on the same records every time, as a restart does; the one before is closed."""
    opened: list[Store] = []
    memory = MemoryStore()
    places: dict[str, Place] = {"sqlite": Folder(tmp_path / "state")}
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
        places["postgresql"] = schema_at(url, "hiddenarm_test", tmp_path / "scratch")

    def reopen() -> Store:
        if opened:
            opened.pop().close()
        opened.append(memory if request.param == "memory" else places[request.param].open())
        return opened[-1]

    yield reopen
    opened.pop().close()


def test_what_was_committed_is_there_after_a_restart(make: Make) -> None:
    make().commit([Put("a", b"1", b"one"), Put("b", b"1", b"other")])
    store = make()
    assert store.get("a", b"1") == b"one"
    assert store.get("b", b"1") == b"other"
    assert store.get("a", b"2") is None
    assert store.get("c", b"1") is None


def test_a_record_is_replaced_and_removed(make: Make) -> None:
    store = make()
    store.commit([Put("a", b"1", b"one")])
    store.commit([Put("a", b"1", b"two"), Put("a", b"2", b""), Delete("a", b"3")])
    assert list(store.items("a")) == [(b"1", b"two"), (b"2", b"")]
    store.commit([Delete("a", b"1")])
    assert list(make().items("a")) == [(b"2", b"")]


def test_items_come_in_the_order_of_their_keys_from_any_key_on(make: Make) -> None:
    store = make()
    keys = [bytes([number]) for number in (200, 3, 90, 0, 255)]
    store.commit([Put("a", key, key * 2) for key in keys])
    assert [key for key, _ in store.items("a")] == sorted(keys)
    assert [key for key, _ in store.items("a", bytes([90]))] == [bytes([90]), bytes([200]), bytes([255])]
    assert list(store.items("b")) == []


def test_everything_behind_a_key_is_removed_from_one_area_only(make: Make) -> None:
    store = make()
    store.commit([Put(area, bytes([number]), b"x") for area in "ab" for number in range(5)])
    store.commit([DeleteFrom("a", bytes([2])), Put("a", bytes([9]), b"new")])
    assert [key[0] for key, _ in make().items("a")] == [0, 1, 9]
    assert len(list(make().items("b"))) == 5


def test_changes_of_one_group_are_made_in_order(make: Make) -> None:
    store = make()
    store.commit([Put("a", b"1", b"one"), Delete("a", b"1"), Put("a", b"2", b"x"), Put("a", b"2", b"y")])
    assert list(store.items("a")) == [(b"2", b"y")]


CHANGES = st.lists(
    st.one_of(
        st.builds(Put, st.sampled_from("ab"), st.binary(max_size=2), st.binary(max_size=3)),
        st.builds(Delete, st.sampled_from("ab"), st.binary(max_size=2)),
        st.builds(DeleteFrom, st.sampled_from("ab"), st.binary(max_size=2)),
    ),
    max_size=12,
)


@settings(max_examples=20)
@given(groups=st.lists(CHANGES, max_size=4))
def test_both_stores_hold_the_same_after_any_changes(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Change]]
) -> None:
    memory, sqlite = MemoryStore(), SqliteStore(tmp_path_factory.mktemp("state", numbered=True) / "s")
    for changes in groups:
        memory.commit(changes)
        sqlite.commit(changes)
    for area in "ab":
        assert list(sqlite.items(area)) == list(memory.items(area))
        assert list(sqlite.items(area, b"\x80")) == list(memory.items(area, b"\x80"))
    sqlite.close()


@settings(max_examples=20)
@given(groups=st.lists(CHANGES, max_size=4))
def test_postgresql_holds_the_same_after_any_changes(postgres: PostgresServer, groups: list[list[Change]]) -> None:
    memory, store = MemoryStore(), PostgresStore(Database(postgres.url("postgres"), "hiddenarm_any_changes"))
    store.commit([DeleteFrom(area, b"") for area in "ab"])
    for changes in groups:
        memory.commit(changes)
        store.commit(changes)
    for area in "ab":
        assert list(store.items(area)) == list(memory.items(area))
        assert list(store.items(area, b"\x80")) == list(memory.items(area, b"\x80"))
    store.close()


def test_an_area_of_many_pages_is_read_whole(make: Make) -> None:
    store = make()
    keys = [number.to_bytes(2, "big") for number in range(1100)]
    store.commit([Put("a", key, b"x") for key in keys])
    assert [key for key, _ in store.items("a")] == keys
    assert [key for key, _ in store.items("a", keys[512])] == keys[512:]


def test_a_seal_covers_area_key_and_payload_and_where_they_end() -> None:
    seals = {seal("a", b"b", b"c"), seal("ab", b"", b"c"), seal("a", b"bc", b""), seal("", b"ab", b"c")}
    assert len(seals) == 4
