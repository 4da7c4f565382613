"""Copies of a store: whole while it is written, private, checked before they take its place."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.store.contract import Put
from hiddenarm.store.copies import BEFORE_FILE, export_store, import_store
from hiddenarm.store.sqlite import FILE, SqliteStore


def records(folder: Path) -> dict[bytes, bytes]:
    store = SqliteStore(folder)
    try:
        return dict(store.items("a"))
    finally:
        store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "state")
    store.commit([Put("a", b"1", b"one" * 2000), Put("a", b"2", b"two")])
    store.close()
    return tmp_path / "state"


def test_a_copy_of_a_store_in_use_is_put_back_later(folder: Path, tmp_path: Path) -> None:
    running = SqliteStore(folder)
    running.commit([Put("a", b"3", b"three")])
    export_store(folder, tmp_path / "copy")
    running.commit([Put("a", b"4", b"after the copy")])
    running.close()
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    import_store(folder, tmp_path / "copy")
    assert records(folder).keys() == {b"1", b"2", b"3"}
    assert {file.name for file in folder.iterdir()} == {FILE, "lock", BEFORE_FILE}
    assert not folder.with_name("state.import").exists()


def test_a_store_in_use_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    export_store(folder, tmp_path / "copy")
    running = SqliteStore(folder)
    with pytest.raises(StoreError, match="in use by another instance"):
        import_store(folder, tmp_path / "copy")
    running.close()
    assert records(folder).keys() == {b"1", b"2"}


def test_a_damaged_copy_is_refused_and_the_store_stays(folder: Path, tmp_path: Path) -> None:
    export_store(folder, tmp_path / "copy")
    whole = (tmp_path / "copy").read_bytes()
    at = whole.index(b"oneone") + 100
    (tmp_path / "copy").write_bytes(whole[:at] + b"x" + whole[at + 1 :])
    with pytest.raises(DamagedStoreError):
        import_store(folder, tmp_path / "copy")
    assert records(folder).keys() == {b"1", b"2"}


def test_a_copy_is_never_written_over_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("something else")
    with pytest.raises(StoreError, match="cannot be written"):
        export_store(folder, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "something else"
    with pytest.raises(StoreError, match="has no state yet"):
        export_store(tmp_path / "nowhere", tmp_path / "other")


def test_what_an_import_has_kept_is_not_written_over_by_the_next(folder: Path, tmp_path: Path) -> None:
    export_store(folder, tmp_path / "copy")
    newest = SqliteStore(folder)
    newest.commit([Put("a", b"3", b"only here")])
    newest.close()
    import_store(folder, tmp_path / "copy")
    with pytest.raises(StoreError, match="from an earlier import: move it away"):
        import_store(folder, tmp_path / "copy")
    assert b"only here" in (folder / BEFORE_FILE).read_bytes()
    (folder / BEFORE_FILE).rename(tmp_path / "kept")
    import_store(folder, tmp_path / "copy")
    assert records(folder).keys() == {b"1", b"2"}


def test_an_import_that_ends_half_way_leaves_the_store_and_can_be_made_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_store(folder, tmp_path / "copy")
    newest = SqliteStore(folder)
    newest.commit([Put("a", b"3", b"only here")])
    newest.close()

    def fail(source: Path, target: Path) -> None:
        if target.name == FILE:
            raise OSError(5, "Input/output error")
        source.rename(target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(StoreError, match="cannot be imported"):
            import_store(folder, tmp_path / "copy")
    assert records(folder).keys() == {b"1", b"2", b"3"}
    import_store(folder, tmp_path / "copy")
    assert records(folder).keys() == {b"1", b"2"}
    assert b"only here" in (folder / BEFORE_FILE).read_bytes()


def test_a_store_that_somebody_reads_is_not_brought_into_one_file(folder: Path) -> None:
    store = SqliteStore(folder)
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()
        store._writer.execute("PRAGMA busy_timeout = 50")
        store.commit([Put("a", b"3", b"three")])
        with pytest.raises(StoreError, match="read by somebody else"):
            store.checkpoint()
    store.checkpoint()
    store.close()
