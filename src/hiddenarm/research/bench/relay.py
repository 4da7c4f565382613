"""A process that stands between the roles and delays everything they say by a fixed time, in both directions.

Every listening role gets a listening relay in front of it; what is dialled there is dialled on. Each piece of a
stream leaves `delay` after it came, in order: the delay of a long line without its limits of bandwidth, slow start or
loss. Making a TCP connection is not delayed; nothing is measured then.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
from collections import deque
from time import perf_counter
from types import TracebackType
from typing import Self

from hiddenarm.service.kit import Address

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

_HOST = "127.0.0.1"
_CHUNK = 256 * 1024
_POLL_SECONDS = 200e-6
"""Sleeping ends late: sleep until this long before the next delivery is due, then poll."""


class Relay:
    """The relay's process. `route` an address before entering; inside, the relay runs until exit."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        self._routes: list[tuple[socket.socket, Address]] = []
        self._process: multiprocessing.process.BaseProcess | None = None

    def route(self, address: Address) -> Address:
        """Where to dial to reach `address` with the delay."""
        listener = socket.create_server((_HOST, 0), backlog=128)
        self._routes.append((listener, address))
        return Address(host=_HOST, port=listener.getsockname()[1])

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        routes = [(listener, address.host, address.port) for listener, address in self._routes]
        self._process = context.Process(target=_relay, args=(routes, self._delay), daemon=True)
        self._process.start()
        for listener, _ in self._routes:
            listener.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.join()


def _relay(routes: list[tuple[socket.socket, str, int]], delay: float) -> None:
    loop = _Loop(delay)
    for listener, host, port in routes:
        loop.listen(listener, host, port)
    while True:
        loop.run_once()


class _End:
    """One end of a relayed connection: a socket and what waits to be written to it. What it says goes to `other`."""

    other: _End

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self.waiting: deque[memoryview] = deque()
        self.reading = True
        self.interest = 0

    def write(self) -> None:
        """Write what waits as far as the kernel takes it; an empty piece is the end of the stream."""
        try:
            while self.waiting:
                data = self.waiting[0]
                if not data:
                    self.socket.shutdown(socket.SHUT_WR)
                elif (taken := self.socket.send(data)) < len(data):
                    self.waiting[0] = data[taken:]
                    continue
                self.waiting.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.waiting.clear()


class _Loop:
    """Reads from all ends, keeps what came in the order it came, writes it to the other end when it is due."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        # Deadlines of microseconds, which epoll would round up to milliseconds.
        self._selector = selectors.SelectSelector()
        self._line: deque[tuple[float, _End, bytes]] = deque()

    def listen(self, listener: socket.socket, host: str, port: int) -> None:
        self._selector.register(listener, READ, lambda: self._accept(listener, (host, port)))

    def run_once(self) -> None:
        """Wait for something to happen or to be due, and see to it."""
        for key, events in self._wait():
            if not isinstance(key.data, _End):
                key.data()
                continue
            if events & WRITE:
                self._write(key.data)
            if events & READ:
                self._read(key.data)
        while self._line and self._line[0][0] <= perf_counter():
            _, end, data = self._line.popleft()
            end.waiting.append(memoryview(data))
            self._write(end)

    def _wait(self) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._line:
            return self._selector.select(None)
        left = self._line[0][0] - perf_counter()
        return self._selector.select(max(0.0, left - _POLL_SECONDS))

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        near = _End(listener.accept()[0])
        try:
            far = _End(socket.create_connection(target))
        except OSError:
            near.socket.close()
            return
        near.other, far.other = far, near
        for end in (near, far):
            self._watch(end)

    def _read(self, end: _End) -> None:
        try:
            data = end.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._line.append((perf_counter() + self._delay, end.other, data))
        if not data:
            end.reading = False
            self._watch(end)

    def _write(self, end: _End) -> None:
        end.write()
        self._watch(end)

    def _watch(self, end: _End) -> None:
        """Watch for what can still happen at an end."""
        wanted = (READ if end.reading else 0) | (WRITE if end.waiting else 0)
        if wanted == end.interest:
            return
        if not wanted:
            self._selector.unregister(end.socket)
        elif end.interest:
            self._selector.modify(end.socket, wanted, end)
        else:
            self._selector.register(end.socket, wanted, end)
        end.interest = wanted
