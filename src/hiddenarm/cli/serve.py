"""`hiddenarm serve KIT...`: one role as a process; or party, actor and rewarder of one organisation as one.

A party and the dealer serve until the federation ends. The actor and the rewarder answer requests, lines of JSON on
standard input, until that ends (`request_lines`). A role whose kit says where it serves HTTP does so beside that
(`hiddenarm.web`); an actor or a rewarder then goes on when standard input has ended.

Roles that share a process share nothing else. Each has its own certificate, state, links, monitor and event loop, in a
thread of its own, and they reach each other by TLS as they reach the rest: the loop of a party stays with its peers
while it polls for their words, and so cannot be that of a client. The process ends when one of them does, with all of
them: first actor and rewarder, which finish what they were asked for, then the party. It ends with the code and the
reason of the role that failed, of several the first one that did not just lose a peer, so that a supervisor starts all
of them again.

What it does when it is sent a signal:

    SIGTERM, SIGINT   finish what is under way, say goodbye, end with code 0
    SIGHUP            read certificates, keys and features anew; links that stand go on

Once all roles have ended, SIGTERM and SIGINT are ignored: the process is on its way out with their code.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Final, TextIO

import structlog

from hiddenarm.cli.request_lines import Answer, Desk, RequestLines, actor_answer, end_of_input, rewarder_answer
from hiddenarm.errors import ConfigError, HiddenArmError, PeerLost
from hiddenarm.net.identity import Role
from hiddenarm.net.monitor import HOST
from hiddenarm.service.application import ActorClient, RewarderClient
from hiddenarm.service.kit import Kit
from hiddenarm.service.logs import configure_logs, name_thread
from hiddenarm.service.metrics import certificate_expiry, start_monitor
from hiddenarm.service.process import (
    LINGER_SECONDS,
    Endpoint,
    StopRequest,
    check_together,
    keep_freed_memory,
    serve,
)

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_SERVERS: Final = (Role.PARTY, Role.DEALER)
STOP_SECONDS: Final = 15.0
"""For the other roles of a process to stop, once one has failed."""
_WAKES: Final = 4096

Run = Callable[[StopRequest], None]
"""Serves a role until it has ended, or is to stop."""


def serve_kits(
    folders: Sequence[Path],
    listen_fd: int | None,
    report: Path | None,
    until_eof: bool,
    requests: int,
    answers: TextIO,
    log_level: str,
    log_format: str,
) -> None:
    """Run the roles of kits to their end; `requests` is a descriptor, `report` gets what the meter of a party or a
    dealer counted. With `until_eof` these stop when the requests end, as actor and rewarder always do."""
    kits = [Kit.read(folder) for folder in folders]
    check_together(kits)
    organisations = kits[0].organisations
    configure_logs(log_level, log_format, ", ".join(str(kit.identity) for kit in kits), organisations.in_text)
    try:
        _serve(kits, listen_fd, report, until_eof, RequestLines(requests, answers, kits[0].file.max_batch), requests)
    except HiddenArmError as error:
        organisations.put_into(error)
        raise


def _serve(
    kits: Sequence[Kit],
    listen_fd: int | None,
    report: Path | None,
    until_eof: bool,
    lines: RequestLines,
    requests: int,
) -> None:
    served, log = _Process(), structlog.get_logger("hiddenarm.serve")
    with served.obeying_signals():
        clients = _Clients(kits)
        for kit in kits:
            served.add(*_role(kit, listen_fd, lines, clients))
        lines.start()
        if until_eof and not lines.wanted:
            served.stop_after(lambda: end_of_input(requests))
        served.run()
    if lines.wanted and not lines.count and not served.told_to_stop and not any(kit.http for kit in kits):
        log.warning("no requests", hint=lines.hint)
    for endpoint in served.endpoints:
        if report is not None and endpoint.kit.identity.role in _SERVERS:
            ledger = endpoint.machine.health().ledger
            released = {} if ledger is None else {"privacy": ledger.to_dict()}
            _write_report(report, json.dumps({**endpoint.meter.as_dict(), **released}))


class _Clients:
    """Actor and rewarder of this process, which know of each other: a rewarder may ask the actor beside it which
    decision an event has."""

    def __init__(self, kits: Sequence[Kit]) -> None:
        by_role = {kit.identity.role: kit for kit in kits}
        self.actor = ActorClient(by_role[Role.ACTOR]) if Role.ACTOR in by_role else None
        self.rewarder = RewarderClient(by_role[Role.REWARDER]) if Role.REWARDER in by_role else None


def _role(kit: Kit, listen_fd: int | None, lines: RequestLines, clients: _Clients) -> tuple[Endpoint, Run]:
    """What connects a role, and what runs it."""
    actor, rewarder = clients.actor, clients.rewarder
    if actor is not None and kit.identity.role is Role.ACTOR:
        answer = actor_answer(actor, kit.file.names_of_arms)
        return actor.endpoint, _client_run(actor, lines.desk(Role.ACTOR, actor.wake), answer, _actor_web(actor))
    if rewarder is not None and kit.identity.role is Role.REWARDER:
        web = _rewarder_web(rewarder, actor)
        desk = lines.desk(Role.REWARDER, rewarder.wake)
        return rewarder.endpoint, _client_run(rewarder, desk, rewarder_answer(rewarder), web)
    keep_freed_memory()
    listener = None if listen_fd is None else _handed_over(listen_fd)
    endpoint = Endpoint(kit)
    return endpoint, _server_run(endpoint, listener, _plain_web(endpoint))


def _client_run(client: ActorClient | RewarderClient, desk: Desk, answer: Answer, web: _Web) -> Run:
    """Answers lines until there are no more of them, and goes on if it serves HTTP."""

    def run(stop: StopRequest) -> None:
        with _unless_told(stop), client, web or nullcontext():
            desk.answer_all(answer, client.idle, stop)
            while web is not None and not stop.made:
                client.idle(lambda: stop.made)

    return run


def _server_run(endpoint: Endpoint, listener: socket.socket | None, web: _Web) -> Run:
    def run(stop: StopRequest) -> None:
        with web or nullcontext():
            serve(endpoint, listener, stop)

    return run


_Web = AbstractContextManager[object] | None
"""The HTTP server of a role, if its kit has one."""


def _actor_web(actor: ActorClient) -> _Web:
    if actor.endpoint.kit.http is None:
        return None
    with _naming_extra():
        from hiddenarm.web.server import ActorServer
    return ActorServer(actor)


def _rewarder_web(rewarder: RewarderClient, actor: ActorClient | None) -> _Web:
    if rewarder.endpoint.kit.http is None:
        return None
    with _naming_extra():
        from hiddenarm.web.server import RewarderServer
    return RewarderServer(rewarder, None if actor is None else actor.decided_under)


def _plain_web(endpoint: Endpoint) -> _Web:
    if endpoint.kit.http is None:
        return None
    with _naming_extra():
        from hiddenarm.web.server import WebServer
    return WebServer(endpoint)


@contextmanager
def _naming_extra() -> Iterator[None]:
    """Say how to get the libraries of the web, which a role does without unless its kit asks for HTTP."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"http in kit.json needs {error.name}: pip install 'hiddenarm[http]'") from None


@contextmanager
def _unless_told(stop: StopRequest) -> Iterator[None]:
    """A client whose peers have left has lost them, unless it is to stop, too. Where all roles are told at once, some
    hear of it later than of a peer that has left already."""
    try:
        yield
    except PeerLost:
        if not stop.wait(LINGER_SECONDS):
            raise


class _ServedRole:
    """A role of this process: a thread that runs it, and its monitor."""

    def __init__(self, endpoint: Endpoint, run: Run, on_end: Callable[[_ServedRole], None]) -> None:
        self.endpoint = endpoint
        self.error: BaseException | None = None
        self._run = run
        self._on_end = on_end
        self._stop = StopRequest()
        self._monitor = start_monitor(endpoint)
        self._log = structlog.get_logger("hiddenarm.serve")
        self._thread = Thread(target=self._serve, name=str(endpoint.kit.identity), daemon=True)

    @property
    def is_server(self) -> bool:
        return self.endpoint.kit.identity.role in _SERVERS

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.make()
        self.endpoint.transport.wake()

    def join(self, seconds: float | None) -> None:
        self._thread.join(seconds)

    def renew(self) -> None:
        """Take the certificate and the features that lie in the kit now. May be called from a signal handler."""
        self.endpoint.transport.call(self._renew)

    def _serve(self) -> None:
        kit, monitor = self.endpoint.kit, self._monitor
        name_thread(str(kit.identity))
        at = monitor and f"{HOST}:{monitor.port}"
        self._log.info("serving", federation=kit.file.name, monitor=at, **({"http": str(kit.http)} if kit.http else {}))
        try:
            self._run(self._stop)
        except HiddenArmError as error:
            self._log.error("failed", reason=str(error), exit_code=error.exit_code)
            self.error = error
        except BaseException as error:
            self.error = error
        else:
            self._log.info("stopped")
        finally:
            if monitor is not None:
                monitor.close()
            self._on_end(self)

    def _renew(self) -> None:
        """If the new certificate cannot be used, go on with the one in use."""
        if self.endpoint.features is not None:
            self.endpoint.features.reload()
        try:
            kit = Kit.read(self.endpoint.kit.folder)
            self.endpoint.transport.renew(kit.tls)
        except HiddenArmError as error:
            self._log.error("certificate not renewed", reason=str(error))
        else:
            self._log.info("certificate renewed", expires=round(certificate_expiry(kit.tls.certificate)))


class _Process:
    """The roles of this process, which end together. The main thread sleeps until a byte comes from a role that has
    ended, or from a signal: the system may give that to any thread, and only a byte wakes the one that obeys it."""

    def __init__(self) -> None:
        self.told_to_stop = False
        self._roles: list[_ServedRole] = []
        self._ended: list[_ServedRole] = []
        self._waker, self._wakes = socket.socketpair()
        self._waker.setblocking(False)

    @property
    def endpoints(self) -> list[Endpoint]:
        return [role.endpoint for role in self._roles]

    def add(self, endpoint: Endpoint, run: Run) -> None:
        """A role, to be run. If it cannot be watched over, nothing of it runs."""
        self._roles.append(_ServedRole(endpoint, run, self._note_end))

    def stop_after(self, wait: Callable[[], None]) -> None:
        """Stop when `wait` returns, which a thread calls."""

        def run() -> None:
            wait()
            self._tell_to_stop()

        Thread(target=run, daemon=True).start()

    def run(self) -> None:
        """Run all roles until the first of them ends, or they are to stop; then end all, and raise what failed."""
        for role in self._roles:
            role.start()
        while not self._ended and not self.told_to_stop:
            self._wakes.recv(_WAKES)
        for servers in (False, True):
            group = [role for role in self._roles if role.is_server is servers]
            for role in group:
                role.stop()
            for role in group:
                role.join(STOP_SECONDS if self._errors() else None)
        if errors := self._errors():
            raise next((error for error in errors if not isinstance(error, PeerLost)), errors[0])

    @contextmanager
    def obeying_signals(self) -> Iterator[None]:
        """Obey signals meanwhile. Handlers only leave a note. This is for a process that ends with its roles."""
        log = structlog.get_logger("hiddenarm.serve")

        def on_stop(number: int, _: object) -> None:
            if not self.told_to_stop:
                log.info("stopping", signal=signal.Signals(number).name)
            self._tell_to_stop()

        def on_renew(_: int, __: object) -> None:
            for role in self._roles:
                role.renew()

        for number in _STOPS:
            signal.signal(number, on_stop)
        before = signal.signal(signal.SIGHUP, on_renew)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGHUP, before)
            for number in _STOPS:
                signal.signal(number, signal.SIG_IGN)

    def _tell_to_stop(self) -> None:
        self.told_to_stop = True
        self._wake()

    def _note_end(self, role: _ServedRole) -> None:
        self._ended.append(role)
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):
            self._waker.send(b"\0")

    def _errors(self) -> list[BaseException]:
        """What failed, in the order in which it did."""
        return [role.error for role in self._ended if role.error is not None]


def _handed_over(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(f"--listen-fd {descriptor} is not a socket: {error.strerror}") from None


def _write_report(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
