"""`hiddenarm serve KIT`: one role as a process.

A party and the dealer serve until the federation ends. The actor and the rewarder read requests from standard input, a
line of JSON each, and answer on standard output:

    actor      {"key": "user 17", "after": 3}  ->  {"id": "3f9c02d17ab4-000017-5d0e9a71c2b84f36", "arm": 4}
    rewarder   {"id": "3f9c02d17ab4-000017-5d0e9a71c2b84f36", "reward": 1}  ->  {"id": ..., "version": 4}

Many at once: {"keys": [...], "after": 3} -> {"decisions": [{"id": ..., "arm": ...}, ...]}, and
{"rewards": [{"id": ..., "reward": ...}, ...]} -> {"version": 4}. A key for which a party has no features gets
{"key": ..., "error": ...} in its place; the others are decided. "eligible": [0, 3] names the arms that may be chosen,
by their numbers, for all keys of the request; all may where it is left out.

A request may have a name, "request": "order 4711". Made again under this name, it gets the same answer; after a
restart only where state lasts (`durable` in kit.json). What cannot be answered now gets {"error": ...,
"retry_after": seconds}.

A request that is refused is answered by {"error": ...}; the role goes on. "after" is optional: the model must hold at
least so many lessons. A line has room for the longest keys, as many as the kit's `max_batch` allows, even if every
letter is escaped (`max_line_bytes`). A longer line is not kept, and refused as a whole.

What it does when it is sent a signal:

    SIGTERM, SIGINT   finish what is under way, say goodbye, end with code 0
    SIGHUP            read certificate and key anew; links that stand go on

Once it has ended, SIGTERM and SIGINT are ignored: the process is on its way out with the role's own code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Final, TextIO

import structlog

from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ConfigError, HiddenArmError, InputError, NoArmError, UnavailableError
from hiddenarm.net.identity import Role
from hiddenarm.net.monitor import HOST
from hiddenarm.roles.client_records import KeyAnswer
from hiddenarm.roles.messages import MAX_KEY_BYTES
from hiddenarm.service.application import ActorClient, RewarderClient
from hiddenarm.service.kit import Kit
from hiddenarm.service.logs import configure_logs
from hiddenarm.service.metrics import certificate_expiry, start_monitor
from hiddenarm.service.process import Endpoint, StopRequest, keep_freed_memory, serve

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def obeying_signals(endpoint: Endpoint, stop: StopRequest) -> Iterator[None]:
    """Obey signals meanwhile. Handlers only leave a note: the loop acts on it between two events. This is for a process
    that ends with its role."""
    transport, log = endpoint.transport, structlog.get_logger("hiddenarm.serve")

    def on_stop(number: int, _: object) -> None:
        if not stop.made:
            stop.made = True
            log.info("stopping", signal=signal.Signals(number).name)
        transport.wake()

    def on_renew(_: int, __: object) -> None:
        transport.after(0.0, lambda: _renew(endpoint))
        transport.wake()

    for number in _STOPS:
        signal.signal(number, on_stop)
    before = signal.signal(signal.SIGHUP, on_renew)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)


def _renew(endpoint: Endpoint) -> None:
    """Take the certificate that lies in the kit now; if it cannot be used, go on with the one in use."""
    log = structlog.get_logger("hiddenarm.serve")
    try:
        kit = Kit.read(endpoint.kit.folder)
        endpoint.transport.renew(kit.tls)
    except HiddenArmError as error:
        log.error("certificate not renewed", reason=str(error))
    else:
        log.info("certificate renewed", expires=round(certificate_expiry(kit.tls.certificate)))


Request = dict[str, Any]

MAX_LINE_BYTES = 64 * 1024
"""What a line may have in every kit; `max_line_bytes` says how much more where batches are large."""

_LETTER_BYTES = 6
"""JSON takes at most so many bytes for a byte of text: \\u0001."""
_ITEM_BYTES = 64
"""For quotes, commas, names and blanks around a text, and for the reward beside an id."""
_READ_BYTES = 64 * 1024
_HINTS = {
    Role.ACTOR: 'standard input ended at once: pipe in one request per line, such as {"key": "user 17"}',
    Role.REWARDER: 'standard input ended at once: pipe in one request per line, such as {"id": ID, "reward": 1}',
}
"""For somebody who starts a role without requests, which ends it."""


def max_line_bytes(max_batch: int) -> int:
    """The longest line of requests for `max_batch` at once. The longest key is longer than any id of a decision."""
    return max(MAX_LINE_BYTES, (max_batch + 1) * (_LETTER_BYTES * MAX_KEY_BYTES + _ITEM_BYTES))


def serve_kit(
    folder: Path,
    listen_fd: int | None,
    report: Path | None,
    until_eof: bool,
    requests: int,
    answers: TextIO,
    log_level: str,
    log_format: str,
) -> None:
    """Run the role of a kit to its end; `requests` is a descriptor, `report` gets what the link's meter counted. With
    `until_eof` parties and dealer stop when the requests end, as actor and rewarder always do."""
    kit = Kit.read(folder)
    configure_logs(log_level, log_format, str(kit.identity), kit.organisations.in_text)
    try:
        _serve_role(kit, listen_fd, report, until_eof, requests, answers)
    except HiddenArmError as error:
        kit.organisations.put_into(error)
        raise


def _serve_role(
    kit: Kit, listen_fd: int | None, report: Path | None, until_eof: bool, requests: int, answers: TextIO
) -> None:
    match kit.identity.role:
        case Role.ACTOR:
            _serve_actor(kit, requests, answers)
        case Role.REWARDER:
            _serve_rewarder(kit, requests, answers)
        case _:
            keep_freed_memory()
            endpoint = Endpoint(kit)
            with _on_duty(endpoint) as stop:
                if until_eof:
                    _stop_at_eof(requests, endpoint, stop)
                serve(endpoint, None if listen_fd is None else _handed_over(listen_fd), stop)
            if report is not None:
                _write_report(report, json.dumps(endpoint.meter.as_dict()))


@contextmanager
def _on_duty(endpoint: Endpoint) -> Iterator[StopRequest]:
    """JobProgress over a role while it serves: health and metrics, signals, and a line in the log at both ends."""
    kit, stop, log = endpoint.kit, StopRequest(), structlog.get_logger("hiddenarm.serve")
    monitor = start_monitor(endpoint)
    with obeying_signals(endpoint, stop):
        log.info("serving", federation=kit.file.name, monitor=monitor and f"{HOST}:{monitor.port}")
        try:
            yield stop
        except HiddenArmError as error:
            log.error("failed", reason=str(error), exit_code=error.exit_code)
            raise
        finally:
            if monitor is not None:
                monitor.close()
        log.info("stopped")


def _stop_at_eof(descriptor: int, endpoint: Endpoint, stop: StopRequest) -> None:
    """Have a thread read to the end of a descriptor, and then stop the role."""

    def read() -> None:
        with suppress(OSError):
            while os.read(descriptor, _READ_BYTES):
                pass
        stop.made = True
        endpoint.transport.wake()

    Thread(target=read, daemon=True).start()


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


def _serve_actor(kit: Kit, requests: int, answers: TextIO) -> None:
    names = kit.file.arm_names

    def shown(answer: KeyAnswer) -> Request:
        if not isinstance(answer, Decision):
            return {"key": answer.key, "error": str(answer)}
        return asdict(answer) | ({"name": names[answer.arm]} if names else {})

    actor = ActorClient(kit)
    with _on_duty(actor.endpoint) as stop, actor:

        def answer(request: Request) -> Request:
            after, name, eligible = _count(request, "after"), _name(request), _arms(request, "eligible")
            if "keys" not in request:
                return shown(actor.decide(_text(request, "key"), after, name, eligible=eligible))
            keys = request["keys"]
            if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
                raise InputError("'keys' must be a list of texts")
            return {"decisions": [shown(one) for one in actor.decide_many(keys, after, name, eligible=eligible)]}

        _answer_all(actor, kit, requests, answers, answer, stop)


def _serve_rewarder(kit: Kit, requests: int, answers: TextIO) -> None:
    rewarder = RewarderClient(kit)
    with _on_duty(rewarder.endpoint) as stop, rewarder:

        def answer(request: Request) -> Request:
            if "rewards" not in request:
                version = rewarder.reward(*_reward(request), _name(request))
                return {"id": _text(request, "id"), "version": version}
            rewards = request["rewards"]
            if not isinstance(rewards, list) or not all(isinstance(one, dict) for one in rewards):
                raise InputError("'rewards' must be a list of objects with 'id' and 'reward'")
            return {"version": rewarder.reward_many([_reward(one) for one in rewards], _name(request))}

        _answer_all(rewarder, kit, requests, answers, answer, stop)


def _answer_all(
    client: ActorClient | RewarderClient,
    kit: Kit,
    requests: int,
    answers: TextIO,
    answer: Callable[[Request], Request],
    stop: StopRequest,
) -> None:
    limit = max_line_bytes(kit.file.max_batch)
    lines, answered = _Lines(requests, client.wake, limit), 0
    while (line := lines.next(client.idle, stop)) is not None:
        try:
            if len(line) > limit:
                raise InputError(_too_long(limit, kit.file.max_batch))
            reply = answer(_parsed(line))
        except (InputError, NoArmError) as error:
            reply = {"error": str(error)}
        except UnavailableError as error:
            reply = {"error": str(error), "retry_after": error.retry_after}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        answered += 1
    if not answered and not stop.made:
        log = structlog.get_logger("hiddenarm.serve")
        log.warning("no requests", hint=_HINTS[kit.identity.role])


class _Lines:
    """Lines of a descriptor, read by a thread one at a time, so that the links are served while none is there.

    Of a line with more than `limit` bytes, one byte more than that comes, and the rest is dropped.
    """

    def __init__(self, descriptor: int, wake: Callable[[], None], limit: int) -> None:
        self._descriptor = descriptor
        self._wake = wake
        self._limit = limit
        self._wanted = Semaphore(0)
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def next(self, idle: Callable[[Callable[[], bool]], None], stop: StopRequest) -> bytes | None:
        """The next line, None at the end or when it is time to stop; `idle` runs until `wake` or its argument."""
        self._wanted.release()
        while self._lines.empty() and not stop.made:
            idle(lambda: stop.made)
        return None if stop.made else self._lines.get()

    def _read(self) -> None:
        """Not through `sys.stdin`: a thread that waits in there keeps the interpreter from ending."""
        rest = b""
        while True:
            self._wanted.acquire()
            line, rest = self._line(rest)
            self._lines.put(line)
            self._wake()

    def _line(self, chunk: bytes) -> tuple[bytes | None, bytes]:
        """The line that begins with `chunk`, or None if the stream ends there, and what was read beyond it."""
        line, newline, rest = bytearray(), b"", b""
        while True:
            head, newline, rest = chunk.partition(b"\n")
            line += head[: self._limit + 1 - len(line)]
            if newline or not (chunk := self._chunk()):
                return bytes(line) if line or newline else None, rest

    def _chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except OSError:
            return b""


def _too_long(limit: int, max_batch: int) -> str:
    return (
        f"a line may have {limit:,} bytes, enough for `max_batch` = {max_batch} in kit.json; "
        "this one has more and was not read: put its requests on several lines"
    )


def _parsed(line: bytes) -> Request:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("a request must be one JSON object a line") from None
    if not isinstance(request, dict):
        raise InputError("a request must be a JSON object")
    return request


def _reward(request: Request) -> tuple[str, Any]:
    if "reward" not in request:
        raise InputError("a request of the rewarder needs a reward")
    return _text(request, "id"), request["reward"]


def _text(request: Request, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise InputError(f"a request needs {name!r}, a text")
    return value


def _name(request: Request) -> str | None:
    """The name that the application gave its request."""
    return _text(request, "request") if "request" in request else None


def _arms(request: Request, name: str) -> list[int] | None:
    """Some arms by their numbers, if the request names any."""
    arms = request.get(name)
    if arms is not None and not isinstance(arms, list):
        raise InputError(f"{name!r} must be a list of arms, by their numbers")
    return arms


def _count(request: Request, name: str) -> int:
    value = request.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**63:
        raise InputError(f"{name!r} must be a whole number, not negative")
    return value
