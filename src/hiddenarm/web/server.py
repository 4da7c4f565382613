"""The HTTP server of a role: a thread of its own, beside the role's loop.

    with WebServer(endpoint, [router]):
        ...

It listens where the kit says: on this machine, or with TLS (`service.web_address`). It is bound when it is made, so
that an address that is taken is told before the role runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Final, Self

import uvicorn
from fastapi import APIRouter
from uvicorn.protocols.http.h11_impl import H11Protocol

from hiddenarm.errors import ConfigError
from hiddenarm.service.application import ActorClient, RewarderClient
from hiddenarm.service.modes import refuse_open
from hiddenarm.service.process import Endpoint
from hiddenarm.service.request_queue import RankQueue, RewardQueue
from hiddenarm.service.tokens import own_token
from hiddenarm.service.web_address import WebAddress
from hiddenarm.web.api import Resolve, action_ids_of, actor_router, rewarder_router
from hiddenarm.web.app import build_app
from hiddenarm.web.guard import Guard

MAX_CONNECTIONS: Final = 256
SILENT_SECONDS: Final = 10.0
"""For a caller to make its next request."""
BACKLOG: Final = 256
DRAIN_SECONDS: Final = 3
"""For what is under way when the server stops; then it is refused."""
REFUSE_SECONDS: Final = 5
"""For the refusals to leave. A request that is still not answered then is cut off."""


class _Hasty(H11Protocol):
    """Closes a connection on which no request is made for a while: it holds a descriptor of the role's process."""

    _seen: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._timer = self.loop.call_later(SILENT_SECONDS, self._look)

    def _look(self) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is self._seen:
            self.transport.close()
        else:
            self._seen = self.cycle
            self._look_later()


class WebServer:
    """Serves the paths of a role. `routers` are for whatever a role shows besides."""

    def __init__(self, endpoint: Endpoint, routers: Sequence[APIRouter] = ()) -> None:
        kit = endpoint.kit
        assert kit.http is not None
        self.address = kit.http
        app = build_app(endpoint, Guard(own_token(kit.folder)), routers)
        self._socket = _bound(self.address)
        self._server = uvicorn.Server(_configured(app, kit.http_tls))
        self._thread = Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(lambda: None)

    def stop(self, refuse: Callable[[], None]) -> None:
        """Take no more requests, and have those that wait too long refused by `refuse`."""
        end(self._server, self._thread, refuse)
        self._socket.close()
        if self.address.path is not None:
            self.address.path.unlink(missing_ok=True)


def end(server: uvicorn.Server, thread: Thread, refuse: Callable[[], None]) -> None:
    """Take no more requests, and leave time for those under way; then refuse those that still wait, so that they are
    told to be made again: else the server would cut them off, as if it had failed."""
    server.should_exit = True
    thread.join(DRAIN_SECONDS)
    refuse()
    thread.join()


class _QueuedServer:
    """The server of a role, and the queue of its requests."""

    def __init__(self, queue: RankQueue | RewardQueue, server: WebServer) -> None:
        self._queue = queue
        self._server = server

    def __enter__(self) -> Self:
        self._queue.start()
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(self._queue.close)


class ActorServer(_QueuedServer):
    """The server of the actor."""

    def __init__(self, client: ActorClient, routers: Sequence[APIRouter] = ()) -> None:
        queue = RankQueue(client)
        paths = actor_router(client, queue, action_ids_of(client.endpoint.kit))
        super().__init__(queue, WebServer(client.endpoint, [paths, *routers]))


class RewarderServer(_QueuedServer):
    """The server of the rewarder."""

    def __init__(
        self, client: RewarderClient, resolve: Resolve | None = None, routers: Sequence[APIRouter] = ()
    ) -> None:
        queue = RewardQueue(client)
        paths = rewarder_router(queue, has_slots=client.has_slots, resolve=resolve)
        super().__init__(queue, WebServer(client.endpoint, [paths, *routers]))


def _bound(address: WebAddress) -> socket.socket:
    """A socket at an address."""
    try:
        if address.path is not None:
            return _bound_file(address.path)
        host = "127.0.0.1" if address.host == "localhost" else address.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, address.port))
    except OSError as error:
        raise ConfigError(f"cannot serve HTTP at {address}: {error.strerror}; set another http in kit.json") from None
    return bound


def _bound_file(path: Path) -> socket.socket:
    """A socket file for its owner alone, in the place of one that nobody listens at any more."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            try:
                caller.connect(str(path))
            except OSError:
                with suppress(FileNotFoundError):
                    path.unlink()
    bound.bind(str(path))
    path.chmod(0o600)
    return bound


def _configured(app: object, tls: tuple[Path, Path] | None) -> uvicorn.Config:
    """Without logs of requests: a path names an event."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=_Hasty,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=DRAIN_SECONDS + REFUSE_SECONDS,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    if tls is not None:
        refuse_open(tls[1])
    try:
        config.load()
    except OSError as error:
        raise ConfigError(f"HTTP cannot be served by TLS with {tls and tls[0]}: {error.strerror or error}") from None
    return config
