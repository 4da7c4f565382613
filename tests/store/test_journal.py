"""Commits in groups: in order, after the sync, together when they wait together, and never after a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Event

import pytest

from deployment import PATIENCE
from hiddenarm.errors import StoreError
from hiddenarm.store.contract import Change, Put
from hiddenarm.store.journal import DirectJournal, GroupJournal
from hiddenarm.store.memory import MemoryStore


class SlowStore(MemoryStore):
    """A store whose commits wait to be let through, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate, self.groups = Event(), Event(), 0
        self.failure: Exception | None = None

    def commit(self, changes: Sequence[Change]) -> None:
        self.begun.set()
        assert self.gate.wait(10)
        if self.failure is not None:
            raise self.failure
        self.groups += 1
        super().commit(changes)


def put(number: int) -> list[Change]:
    return [Put("a", bytes([number]), b"x")]


def test_what_gathers_during_a_commit_is_committed_together_and_called_back_in_order() -> None:
    store, calls, done = SlowStore(), SimpleQueue[Callable[[], None]](), list[int]()
    journal = GroupJournal(store, calls.put)
    journal.append(put(0), lambda: done.append(0))
    assert store.begun.wait(10)
    for number in range(1, 50):
        journal.append(put(number), lambda number=number: done.append(number))  # type: ignore[misc]
    assert calls.empty()
    assert store.get("a", bytes([0])) is None
    store.gate.set()
    journal.close()
    while not calls.empty():
        calls.get()()
    assert done == list(range(50))
    assert store.groups == 2
    assert len(list(store.items("a"))) == 50


def test_after_a_failure_nothing_is_committed_or_called_back() -> None:
    store, calls, done = SlowStore(), SimpleQueue[Callable[[], None]](), list[int]()
    store.failure = StoreError("the disk is full")
    journal = GroupJournal(store, calls.put)
    journal.append(put(0), lambda: done.append(0))
    store.gate.set()
    with pytest.raises(StoreError, match="the disk is full"):
        calls.get(timeout=PATIENCE)()
    store.failure = None
    journal.append(put(1), lambda: done.append(1))
    journal.close()
    assert done == []
    assert calls.empty()
    assert list(store.items("a")) == []


def test_any_other_error_ends_the_role_too_and_shows_nothing_of_the_records() -> None:
    store, calls, done = SlowStore(), SimpleQueue[Callable[[], None]](), list[int]()
    store.failure = OverflowError("of the record 12345")
    journal = GroupJournal(store, calls.put)
    journal.append(put(0), lambda: done.append(0))
    store.gate.set()
    with pytest.raises(StoreError, match="OverflowError") as failure:
        calls.get(timeout=PATIENCE)()
    assert "12345" not in str(failure.value)
    journal.close()
    assert done == []


def test_a_direct_journal_commits_before_it_calls_back() -> None:
    store = MemoryStore()
    seen: list[bytes | None] = []
    DirectJournal(store).append(put(7), lambda: seen.append(store.get("a", bytes([7]))))
    assert seen == [b"x"]
