"""A few pages on a port, for whoever watches over a role: GET, nothing else. Unless told otherwise the port is on
loopback. Some pages are for callers on this machine only, some for others if they are `admitted`.

HTTP is spoken by the standard library, in threads of its own. A page is made by the loop of the transport when it is
asked for, so an answer also says that the loop runs; if it does not run the page within a deadline, the answer is 503.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from hiddenarm.net.transport import Transport

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

HOST: Final = "127.0.0.1"
IPV4: Final = r"^(\d{1,3}\.){3}\d{1,3}$"
"""What an address at which to listen looks like."""
_LOOPBACK: Final = (HOST, "::1")
EVERYWHERE: Final = "0.0.0.0"
"""All addresses of the machine, loopback among them."""
LOOP_SECONDS: Final = 4.0
"""For the loop to make a page. `hiddenarm status` waits a little longer."""
MAX_CALLERS: Final = 16
_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
_PHRASES: Final = {
    200: "OK",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


_HEADERS: Final = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
Ticks = tuple[float, Callable[[], None]]
"""Every so many seconds, what the loop is to do."""


def is_loopback(host: str) -> bool:
    """Whether a caller names this machine as such. A web site whose name is pointed here does not: its script
    must not read what only somebody on this machine may."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name in (HOST, "localhost")


class Page(NamedTuple):
    """What a path answers."""

    body: str
    status: int = 200
    kind: str = "text/plain; charset=utf-8"
    complete: Callable[[], str] | None = None
    """Makes the body in its place, where that takes longer than a loop has time for: in the thread of the caller."""


class Monitor:
    """Serves pages that the loop of a transport makes, at a port of this machine. Raises OSError if it cannot. Those of
    `own` are given only to callers on this machine who name it as such; those of `guarded` also to callers elsewhere
    whose header `Authorization` is `admitted`."""

    def __init__(
        self,
        transport: Transport,
        port: int,
        pages: Mapping[str, Callable[[], Page]],
        loop_seconds: float = LOOP_SECONDS,
        host: str = HOST,
        own: frozenset[str] = frozenset(),
        guarded: frozenset[str] = frozenset(),
        admitted: Callable[[str], bool] = lambda _: True,
        ticks: Ticks | None = None,
    ) -> None:
        self._transport = transport
        self._pages = dict(pages)
        self._own = own
        self._guarded = guarded
        self._admitted = admitted
        self._loop_seconds = loop_seconds
        self._server = _Server((host, port), _Handler)
        self._server.set_app(self._answer)
        self._closed = False
        self.port = self._server.server_port
        self._thread = Thread(target=self._serve, name="monitor", daemon=True)
        self._thread.start()
        self._ended = Event()
        if ticks is not None:
            Thread(target=self._tick, args=ticks, name="ticks", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed = True
        self._ended.set()
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for callers
        self._thread.join(1.0)
        self._server.server_close()

    def _serve(self) -> None:
        """Not `serve_forever`: that wakes up twice a second, beside a loop that counts microseconds."""
        while not self._closed:
            self._server.handle_request()

    def _tick(self, seconds: float, tick: Callable[[], None]) -> None:
        """Have the loop do something every so often; not again before it has done it."""
        done = Event()
        done.set()

        def run() -> None:
            try:
                tick()
            finally:
                done.set()

        while not self._ended.wait(seconds):
            if done.is_set():
                done.clear()
                self._transport.call(run)

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """The WSGI application."""
        page = self._refusal(environ) or self._page(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        body = page.body.encode()
        headers = [("Content-Type", page.kind), ("Content-Length", str(len(body))), *_HEADERS]
        if page.status == 405:
            headers.append(("Allow", "GET"))
        if page.status == 401:
            headers.append(("WWW-Authenticate", "Bearer"))
        start(f"{page.status} {_PHRASES[page.status]}", headers)
        return [body]

    def _refusal(self, environ: WSGIEnvironment) -> Page | None:
        """Why a caller does not get what it asks for, if it is not for everybody."""
        path, local = environ["PATH_INFO"], environ.get("REMOTE_ADDR", "") in _LOOPBACK
        if path in self._own and not (local and is_loopback(environ.get("HTTP_HOST", ""))):
            return Page(f"only on this machine, under {HOST}\n", 403)
        if path in self._guarded and not local and not self._admitted(environ.get("HTTP_AUTHORIZATION", "")):
            return Page("send Authorization: Bearer with the token in monitor.token of the role's kit\n", 401)
        return None

    def _page(self, method: str, path: str) -> Page:
        if method != "GET":
            return Page("only GET\n", 405)
        if path not in self._pages:
            return Page(f"here are {', '.join(self._pages)}\n", 404)
        try:
            page = self._made_by_loop(self._pages[path])
            return page if page.complete is None else page._replace(body=page.complete(), complete=None)
        except (LateError, CancelledError):
            return _late_page(self._loop_seconds)
        except Exception as error:
            return Page(f"this page cannot be made: {type(error).__name__}\n", 500)

    def _made_by_loop(self, make: Callable[[], Page]) -> Page:
        """Have the loop make a page, and wait for it. What the loop did not begin in time it need not make."""
        made: Future[Page] = Future()

        def run() -> None:
            if made.set_running_or_notify_cancel():
                try:
                    made.set_result(make())
                except Exception as error:
                    made.set_exception(error)

        self._transport.call(run)
        try:
            return made.result(self._loop_seconds)
        finally:
            made.cancel()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each caller. Of more callers than `MAX_CALLERS` the oldest is cut off."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._callers: dict[socket.socket, None] = {}
        self._guard = Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without asking the name service what this machine is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> Any:
        """Where the process has no descriptors left, try again later."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(_PATIENCE_SECONDS)
        with self._guard:
            if len(self._callers) >= MAX_CALLERS:
                oldest = next(iter(self._callers))
                del self._callers[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._callers[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._callers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away or said nothing is nothing to print a trace about."""


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """The log is for events of the role."""


def _late_page(seconds: float) -> Page:
    """Whatever was asked for."""
    reason = f"the loop of this role has not answered for {seconds:g} seconds"
    return Page(
        json.dumps({"live": False, "ready": False, "reasons": [reason], "notes": []}) + "\n", 503, "application/json"
    )
