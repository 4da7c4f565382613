"""One event loop for all threads of an application: whoever waits first runs it, the others wait for it.

A thread that waits alone runs the loop itself, and pays for a lock that nobody else wants. When several wait, one of
them runs the loop; after each of its turns the others look whether what they wait for has come. When it has what it
wanted, another goes on. While the loop sleeps the lock is free, so that the others can send their questions.

An error that leaves the loop ends it. It is raised in every thread that waits, and in whatever is called afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from threading import Condition, Lock

from hiddenarm.errors import HiddenArmError, PeerLost
from hiddenarm.net.transport import Transport


class SharedLoop:
    """Runs a transport for many threads. `lock` is the one that the transport was given; whoever calls a method,
    other than `wake`, holds it."""

    def __init__(self, transport: Transport, lock: Lock) -> None:
        self._transport = transport
        self._turn_ended = Condition(lock)
        self._running = False
        self._others = 0  # threads that wait for the one that runs the loop
        self._failure: HiddenArmError | None = None
        self._served_at = time.monotonic()

    @property
    def unserved_seconds(self) -> float:
        """For how long nobody has run the loop; one that sleeps wakes up every second."""
        return time.monotonic() - self._served_at

    def check(self) -> None:
        """Raise what ended the loop, if it has ended."""
        if self._failure is not None:
            raise copy(self._failure).with_traceback(None)

    def wait_until(self, predicate: Callable[[], bool], seconds: float | None = None) -> bool:
        """Serve until `predicate` holds, or so many seconds have passed; return whether it holds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not predicate():
            self.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._take_turn(left)
        return True

    def look(self) -> None:
        """See to what has come, without waiting. If another thread runs the loop, that is done anyway."""
        if not self._running and self._failure is None:
            self._take_turn(0.0)

    def wake(self) -> None:
        """Have everybody who waits look again. May be called from any thread and from a signal handler."""
        self._transport.wake()

    def end(self) -> None:
        """Let no other thread run the loop any more; those that wait are told that the client was closed."""
        self._failure = self._failure or PeerLost("the client was closed")
        while self._running:
            self.wake()
            self._await_turn(None)

    def _take_turn(self, seconds: float | None) -> None:
        """Run the loop for a turn, or wait until the thread that runs it has done so."""
        if self._running:
            self._await_turn(seconds)
            return
        self._running = True
        try:
            self._transport.run_once(seconds)
        except HiddenArmError as error:
            self._failure = error
            raise
        finally:
            self._running = False
            self._served_at = time.monotonic()
            if self._others:
                self._turn_ended.notify_all()

    def _await_turn(self, seconds: float | None) -> None:
        self._others += 1
        try:
            self._turn_ended.wait(seconds)
        finally:
            self._others -= 1
