"""How connections begin: callers are accepted, peers are dialled. What then happens on them is up to the transport."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from hiddenarm.errors import PeerLost
from hiddenarm.net.connection import Connection, reason_of
from hiddenarm.net.identity import Identity
from hiddenarm.net.poller import READ, Poller
from hiddenarm.net.timing import Throttle, Timers

Served = Connection | Callable[[], None]
"""What the loop serves: a link, or a callback for a socket that is none."""
Address = Any
"""Where a socket connects to, in the form of its family."""


class Listeners:
    """Accepts callers, no more per second than `throttle` lets pass: those beyond wait in the kernel's queue.
    `accepted` takes each caller's socket, and its address as text."""

    def __init__(
        self,
        poller: Poller[Served],
        timers: Timers,
        clock: Callable[[], float],
        throttle: Throttle,
        log: Any,
        accepted: Callable[[socket.socket, str], None],
    ) -> None:
        self._poller = poller
        self._timers = timers
        self._clock = clock
        self._throttle = throttle
        self._log = log
        self._accepted = accepted
        self._sockets: list[socket.socket] = []

    def add(self, listener: socket.socket) -> int:
        """Accept callers on a listening socket; return its port."""
        listener.setblocking(False)
        self._sockets.append(listener)
        self._poller.register(listener, READ, lambda: self._accept(listener))
        return int(listener.getsockname()[1])

    def close(self) -> None:
        """Accept nobody any more."""
        sockets, self._sockets = self._sockets, []
        for listener in sockets:
            with suppress(KeyError):  # it may not be looked at for the moment
                self._poller.unregister(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        if pause := self._throttle.pause(self._clock()):
            self._look_away(listener, pause)
            return
        try:
            sock, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._rest(listener, reason_of(error))
            return
        self._accepted(sock, f"{address[0]}:{address[1]}")

    def _rest(self, listener: socket.socket, reason: str) -> None:
        """Out of descriptors: the queue of callers would wake us for nothing, so look away for a second."""
        self._log.warning("not accepting", reason=reason)
        self._look_away(listener, 1.0)

    def _look_away(self, listener: socket.socket, seconds: float) -> None:
        accept = self._poller.unregister(listener)
        self._timers.at(self._clock() + seconds, lambda: self._resume(listener, accept))

    def _resume(self, listener: socket.socket, accept: Served) -> None:
        if listener in self._sockets:
            self._poller.register(listener, READ, accept)


@dataclass(slots=True)
class Dial:
    """A peer we want to be connected to, and until when we try."""

    identity: Identity
    host: str
    port: int
    deadline: float
    attempts: int = 0
    last_failure: str = "no answer"


class Dialler:
    """The peers that are not connected yet. Each is tried again and again until its deadline, when PeerLost is raised
    out of the loop. `connect` takes a new socket, the address to connect it to, and the peer it is for."""

    def __init__(
        self, timers: Timers, clock: Callable[[], float], connect: Callable[[socket.socket, Address, Dial], None]
    ) -> None:
        self.lasting: dict[Identity, tuple[str, int]] = {}
        """Where those listen who are to be dialled again whenever they are lost."""
        self._timers = timers
        self._clock = clock
        self._connect = connect
        self._dials: dict[Identity, Dial] = {}

    def __contains__(self, identity: Identity) -> bool:
        """Whether a peer is being dialled."""
        return identity in self._dials

    def dial(self, identity: Identity, host: str, port: int, deadline_seconds: float, *, lasting: bool) -> None:
        """Begin to try; with `lasting` there is no deadline."""
        dial = Dial(identity, host, port, inf if lasting else self._clock() + deadline_seconds)
        self._dials[identity] = dial
        if lasting:
            self.lasting[identity] = (host, port)
        else:
            self._timers.at(dial.deadline, lambda: self._give_up(dial))
        self._timers.at(self._clock(), lambda: self._attempt(dial))

    def try_again(self, identity: Identity, failure: str) -> None:
        """An attempt has failed: make another one soon, if the peer is still wanted."""
        if (dial := self._dials.get(identity)) is not None:
            self._try_later(dial, failure)

    def end(self, identity: Identity) -> None:
        """Try no more: it is connected, or never will be."""
        self._dials.pop(identity, None)

    def close(self) -> None:
        """Try nobody any more."""
        self._dials.clear()

    def _attempt(self, dial: Dial) -> None:
        """Begin one connection to the peer we want."""
        if self._dials.get(dial.identity) is not dial:
            return
        try:
            addresses = socket.getaddrinfo(dial.host, dial.port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = addresses[dial.attempts % len(addresses)]
            dial.attempts += 1
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            self._try_later(dial, reason_of(error))
            return
        self._connect(sock, address, dial)

    def _try_later(self, dial: Dial, failure: str) -> None:
        dial.last_failure = failure
        pause = min(0.02 * 1.5 ** min(dial.attempts, 8), 0.5)
        self._timers.at(self._clock() + pause, lambda: self._attempt(dial))

    def _give_up(self, dial: Dial) -> None:
        if self._dials.get(dial.identity) is dial:
            del self._dials[dial.identity]
            where = f"{dial.host}:{dial.port}"
            raise PeerLost(f"{dial.identity} could not be reached at {where}: {dial.last_failure}")


def tune(sock: socket.socket, silence_seconds: int) -> None:
    """Small frames leave at once; a peer that vanished without a word is noticed by the kernel."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": max(1, silence_seconds // 3),
        "TCP_KEEPINTVL": max(1, silence_seconds // 6),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": silence_seconds * 1000,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
