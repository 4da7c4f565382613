"""Copies of a store: whole while it is written, private, checked before they take its place."""

from __future__ import annotations

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
