"""Commits in groups: what is to last is handed over, and what waits for it is called back when it does.

A sync takes milliseconds, whatever it covers. So one thread commits, in one go, all that was handed over while its last
commit was under way. Nobody computes slower for it; only what must not be said before it lasts waits. After a failure
nothing more is committed, and nothing is called back: no acknowledgement leaves for what may not last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, Protocol

from hiddenarm.errors import StoreError
from hiddenarm.store.contract import Change, Store

Then = Callable[[], None]


class Journal(Protocol):
    """Takes changes in order."""

    def append(self, changes: Sequence[Change], then: Then) -> None:
        """Make changes last, all or none, after all that were appended before; then call `then`, from the loop."""


class DirectJournal:
    """Commits at once, in the caller's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, changes: Sequence[Change], then: Then) -> None:
        self._store.commit(changes)
        then()


class _Entry(NamedTuple):
    changes: Sequence[Change]
    then: Then


class GroupJournal:
    """Commits in a thread of its own. `call` has a function called from the role's loop, and may itself be called from
    any thread. A failure to commit is raised there."""

    def __init__(self, store: Store, call: Callable[[Then], None]) -> None:
        self._store = store
        self._call = call
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, changes: Sequence[Change], then: Then) -> None:
        self._queue.put(_Entry(changes, then))

    def close(self) -> None:
        """Commit what was handed over, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (group := self._group()) is not None:
            try:
                self._store.commit([change for entry in group for change in entry.changes])
            except StoreError as error:
                self._call(_raiser(error))
                return
            except Exception as error:
                self._call(_raiser(StoreError(f"a commit has failed for no known reason: {type(error).__name__}")))
                return
            self._call(_caller([entry.then for entry in group]))

    def _group(self) -> list[_Entry] | None:
        """All that waits, at least one entry; None at the end."""
        entries: list[_Entry] = []
        while not entries or not self._queue.empty():
            entry = self._queue.get()
            if entry is None:
                if entries:
                    self._queue.put(None)
                return entries or None
            entries.append(entry)
        return entries


def _raiser(error: StoreError) -> Then:
    def fail() -> None:
        raise error

    return fail


def _caller(thens: Sequence[Then]) -> Then:
    def call_all() -> None:
        for then in thens:
            then()

    return call_all
