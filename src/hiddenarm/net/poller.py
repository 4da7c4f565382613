"""Which sockets can be read or written, and what serves each of them.

The kernel is asked directly: that is done several times for every frame, and the selectors of the standard library take
longer to put the answer into words than the kernel takes to find it.
"""

from __future__ import annotations

import select
import socket
from math import ceil
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT
"""What to watch for. What is told may have further bits: errors and hang-ups, which whoever reads or writes finds."""
MOST_AT_ONCE: Final = 64

Served = TypeVar("Served")


class Kernel(Protocol):
    """What is asked: an epoll object, or something like it."""

    def register(self, number: int, events: int, /) -> None: ...

    def modify(self, number: int, events: int, /) -> None: ...

    def unregister(self, number: int, /) -> None: ...

    def poll(self, seconds: float | None, most: int, /) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


class Poller(Generic[Served]):
    """Watches sockets; each comes with what serves it."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = kernel or (select.epoll() if hasattr(select, "epoll") else Poll())
        self._ask = self._kernel.poll
        self._served: dict[int, Served] = {}

    def register(self, sock: socket.socket, events: int, served: Served) -> None:
        """Watch a socket that is not watched yet."""
        self._kernel.register(sock.fileno(), events)
        self._served[sock.fileno()] = served

    def modify(self, sock: socket.socket, events: int) -> None:
        """Watch a socket for other events than before."""
        self._kernel.modify(sock.fileno(), events)

    def unregister(self, sock: socket.socket) -> Served:
        """Stop watching a socket, which must still be open; KeyError if it is not watched."""
        served = self._served.pop(sock.fileno())
        self._kernel.unregister(sock.fileno())
        return served

    def poll(self, seconds: float | None) -> list[tuple[Served, int]]:
        """Wait for something to happen, at most so many seconds: what serves it, and the events."""
        if seconds is not None and seconds < 0:
            seconds = 0  # the kernel would wait forever
        happened, served = self._ask(seconds, MOST_AT_ONCE), self._served
        return [(served[number], events) for number, events in happened] if happened else []

    def poll_unlocked(self, seconds: float | None, lock: Lock) -> list[tuple[Served, int]]:
        """The same, with a lock that the caller holds let go of meanwhile: others may register and unregister."""
        lock.release()
        try:
            happened = self._ask(None if seconds is None else max(0.0, seconds), MOST_AT_ONCE)
        finally:
            lock.acquire()
        served = self._served
        return [(served[number], events) for number, events in happened if number in served]

    def close(self) -> None:
        """Stop watching at all."""
        self._kernel.close()
        self._served.clear()


class Poll:
    """poll in the manner of epoll, for systems without it."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, seconds: float | None, most: int, /) -> list[tuple[int, int]]:
        return self._poll.poll(None if seconds is None else ceil(seconds * 1000))[:most]

    def close(self) -> None:
        return
