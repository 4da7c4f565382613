"""A few pages on a loopback port, for whoever watches over a role: GET, nothing else, and from this machine only.

Answered by the loop of the switchboard, so that an answer also says that the loop runs. A page is made when it is asked
for. Callers are few, small and quick, or dropped.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from hiddenarm.net.switchboard import Switchboard

HOST: Final = "127.0.0.1"
_MAX_CALLERS: Final = 16
_MAX_REQUEST_BYTES: Final = 4096
_PATIENCE_SECONDS: Final = 5.0
_END: Final = b"\r\n\r\n"
_PHRASES: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Unavailable"}


class Page(NamedTuple):
    """What a path answers."""

    body: str
    status: int = 200
    kind: str = "text/plain; charset=utf-8"


class Monitor:
    """Serves pages by path at a port of this machine, from the loop of a switchboard. Raises OSError if it cannot."""

    def __init__(self, switchboard: Switchboard, port: int, pages: Mapping[str, Callable[[], Page]]) -> None:
        self._switchboard = switchboard
        self._pages = dict(pages)
        self._callers: dict[socket.socket, bytearray] = {}
        self._listener = socket.create_server((HOST, port))
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        switchboard.attach(self._listener, self._accept)

    def close(self) -> None:
        """Answer nobody any more."""
        for sock in list(self._callers):
            self._drop(sock)
        self._switchboard.detach(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            if len(self._callers) >= _MAX_CALLERS:
                self._drop(next(iter(self._callers)))
            self._callers[sock] = bytearray()
            self._switchboard.attach(sock, lambda: self._read(sock))
            self._switchboard.after(_PATIENCE_SECONDS, lambda: self._drop(sock))

    def _read(self, sock: socket.socket) -> None:
        request = self._callers[sock]
        try:
            piece = sock.recv(_MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        request += piece
        if piece and _END not in request and len(request) < _MAX_REQUEST_BYTES:
            return
        if piece:
            with suppress(OSError):
                sock.send(_response(self._page(bytes(request))))  # a page fits into the kernel's buffer
        self._drop(sock)

    def _page(self, request: bytes) -> Page:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].decode("ascii", "replace").partition("?")[0]
        if _END not in request:
            return Page("not a request\n", 400)
        if method != b"GET":
            return Page("only GET\n", 405)
        if path not in self._pages:
            return Page(f"here are {', '.join(self._pages)}\n", 404)
        return self._pages[path]()

    def _drop(self, sock: socket.socket) -> None:
        if self._callers.pop(sock, None) is not None:
            self._switchboard.detach(sock)
            sock.close()


def _response(page: Page) -> bytes:
    body = page.body.encode()
    head = f"HTTP/1.1 {page.status} {_PHRASES[page.status]}\r\nContent-Type: {page.kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
