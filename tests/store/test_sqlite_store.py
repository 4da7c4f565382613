"""What only a file can do wrong: modes, a second instance, damage, a full disk, a crash in the middle of a commit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.store.contract import Put
from hiddenarm.store.memory import MemoryStore
from hiddenarm.store.sqlite import FILE, SqliteStore

FLIPS = 1000


def filled(folder: Path, records: int = 60) -> dict[bytes, bytes]:
    """A store with records of several sizes, closed in good order; what is in there."""
    words = random.Random(1)
    content = {number.to_bytes(8, "big"): words.randbytes(words.choice((10, 300, 6000))) for number in range(records)}
    store = SqliteStore(folder)
    for key, payload in content.items():
        store.commit([Put("lesson", key, payload)])
    store.close()
    return content


@pytest.mark.parametrize(("path", "mode", "advice"), [("", 0o750, "chmod 0700"), (FILE, 0o640, "chmod 0600")])
def test_wrong_modes_are_refused_with_the_command_that_mends_them(
    tmp_path: Path, path: str, mode: int, advice: str
) -> None:
    filled(tmp_path / "state", 1)
    (tmp_path / "state" / path).chmod(mode)
    with pytest.raises(StoreError, match=advice):
        SqliteStore(tmp_path / "state")


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_wrong_modes_of_what_a_crash_has_left_are_refused(tmp_path: Path, end: str) -> None:
    filled(tmp_path / "state", 1)
    path = tmp_path / "state" / f"{FILE}{end}"
    path.touch()
    path.chmod(0o644)
    with pytest.raises(StoreError, match=f"chmod 0600 {path}"):
        SqliteStore(tmp_path / "state")


def test_files_are_private_from_the_start(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = SqliteStore(tmp_path / "state")
        store.commit([Put("a", b"1", b"x")])
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "state").iterdir()}
        assert set(modes) >= {FILE, f"{FILE}-wal"}
        assert set(modes.values()) == {0o600}
        store.close()
    finally:
        os.umask(before)


def test_a_second_instance_is_refused(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "state")
    with pytest.raises(StoreError, match="in use by another instance"):
        SqliteStore(tmp_path / "state")
    first.close()
    SqliteStore(tmp_path / "state").close()


def test_a_thousand_flipped_bytes_are_refused_or_change_nothing(tmp_path: Path) -> None:
    content = filled(tmp_path / "state")
    whole = (tmp_path / "state" / FILE).read_bytes()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        assert refusals(Path(folder), whole, content) > FLIPS / 2


def refusals(folder: Path, whole: bytes, content: dict[bytes, bytes]) -> int:
    """How many of the damaged files are refused; what is not refused must be as it was."""
    choose, refused = random.Random(2), 0
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        at = choose.randrange(len(whole))
        damaged[at] ^= 1 << choose.randrange(8)
        for old in folder.iterdir():
            old.unlink()
        (folder / FILE).touch(mode=0o600)
        (folder / FILE).write_bytes(damaged)
        try:
            store = SqliteStore(folder)
            try:
                assert dict(store.items("lesson")) == content, f"byte {at} went unnoticed"
            finally:
                store.close()
        except StoreError:
            refused += 1
    return refused


def test_a_damaged_write_ahead_log_leaves_whole_commits_up_to_some_point(tmp_path: Path) -> None:
    """As after `kill -9`: SQLite drops the damaged commit and all behind it, and says nothing."""
    store = SqliteStore(tmp_path / "state")
    words = random.Random(1)
    commits = [[Put(area, bytes([number]), words.randbytes(900)) for area in "ab"] for number in range(50)]
    for commit in commits:
        store.commit(commit)
    files = {name: (tmp_path / "state" / name).read_bytes() for name in (FILE, f"{FILE}-wal")}
    store.close()
    prefixes = [[change for commit in commits[:length] for change in commit] for length in range(len(commits) + 1)]
    states = [sorted(prefix) for prefix in prefixes]
    lengths = set()
    for number in range(200):
        found = records_in(copy_with_a_flip(tmp_path / str(number), files, random.Random(number)))
        if found is not None:
            lengths.add(states.index(found))
    assert len(lengths) > 10


def copy_with_a_flip(folder: Path, files: dict[str, bytes], choose: random.Random) -> Path:
    """The files of a store, with one bit of the log changed."""
    folder.mkdir(mode=0o700)
    log = bytearray(files[f"{FILE}-wal"])
    log[choose.randrange(len(log))] ^= 1 << choose.randrange(8)
    for name, content in {**files, f"{FILE}-wal": log}.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(bytes(content))
    return folder


def records_in(folder: Path) -> list[Put] | None:
    """All records, None if the store is refused."""
    try:
        store = SqliteStore(folder)
    except StoreError:
        return None
    try:
        return [Put(area, key, payload) for area in "ab" for key, payload in store.items(area)]
    finally:
        store.close()


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    content = filled(tmp_path / "state", 3)
    path = tmp_path / "state" / FILE
    key, payload = next((key, payload) for key, payload in content.items() if len(payload) < 1000)
    whole = path.read_bytes()
    at = whole.index(payload)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(DamagedStoreError, match=f"record {key.hex()} of lesson does not match its seal"):
        SqliteStore(tmp_path / "state")


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state")
    store._writer.execute("PRAGMA user_version = 9")
    store.close()
    with pytest.raises(StoreError, match="format 9"):
        SqliteStore(tmp_path / "state")


WRITER = """
import sys
import tempfile
from pathlib import Path
from hiddenarm.store.contract import Put
from hiddenarm.store.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
for number in range(10**6):
    key = number.to_bytes(8, "big")
    store.commit([Put("a", key, bytes(100)), Put("b", key, bytes(5000))])
    print(number, flush=True)
"""


@pytest.mark.processes
def test_a_killed_writer_leaves_whole_groups_and_all_it_acknowledged(tmp_path: Path) -> None:
    choose = random.Random(3)
    acknowledged = -1
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "state")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(choose.randrange(5, 40)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        store = SqliteStore(tmp_path / "state")
        first, second = ([key for key, _ in store.items(area)] for area in "ab")
        assert first == second
        assert len(first) > acknowledged
        store.close()
        shutil.rmtree(tmp_path / "state")


def test_a_full_disk_is_named_and_what_was_committed_stays(tmp_path: Path) -> None:
    """SQLite's own limit of pages stands in for a file system without room."""
    store = SqliteStore(tmp_path / "state")
    store.commit([Put("a", b"1", b"kept")])
    store._writer.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreError, match="the disk is full"):
        store.commit([Put("a", b"2", bytes(100)), Put("a", b"3", bytes(200_000))])
    store.close()
    again = SqliteStore(tmp_path / "state")
    assert list(again.items("a")) == [(b"1", b"kept")]
    again.commit([Put("a", b"2", b"goes on")])
    again.close()


def test_a_copy_in_memory_lives_apart() -> None:
    store = MemoryStore()
    store.commit([Put("a", b"1", b"x")])
    copy = store.copy()
    store.commit([Put("a", b"1", b"y")])
    assert copy.get("a", b"1") == b"x"
