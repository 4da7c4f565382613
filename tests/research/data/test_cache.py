"""The cache is where the user wants it, and its files are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hiddenarm.errors import DataError
from hiddenarm.research.data.cache import cache_folder, write_whole


def test_the_users_choice_is_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "hiddenarm"


@pytest.mark.parametrize("named", ["", "relative/folder", None])
def test_otherwise_it_is_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str | None) -> None:
    """A relative folder is invalid, says the XDG specification, and must be ignored."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_folder() == tmp_path / ".cache" / "hiddenarm"
    assert not cache_folder().exists()


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(DataError, match="set XDG_CACHE_HOME"):
        cache_folder()


def test_folders_are_made_and_files_replaced(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "file"
    for content in (b"first", b"second"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_whole(path, b"old")
    monkeypatch.setattr(os if failing == "fsync" else Path, failing, full)
    with pytest.raises(DataError, match=r"file: No space left on device. Free some space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_name_appears_only_when_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.exists()))
    write_whole(path, b"content")
    assert seen == [False]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="XDG_CACHE_HOME"):
        write_whole(tmp_path / "file" / "below", b"")
