"""A small federation on loopback: certificates, a recording handler, and transports that run in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import structlog

from deployment import PATIENCE
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import TlsFiles
from hiddenarm.net.transport import Limits, Transport


class Kind(IntEnum):
    """What the tests' frames are for: a link knows no kinds but its own and those that it is given caps for."""

    WANT = 3
    DECIDE = 5
    ROUND = 9

    __hash__ = int.__hash__


CAPS = {Kind.ROUND: 8 * 1024 * 1024, Kind.DECIDE: 1024}
PARTY0, PARTY1 = Identity(Role.PARTY, 0), Identity(Role.PARTY, 1)
QUICK = Limits(linger_seconds=0.05)


@contextmanager
def captured_warnings() -> Iterator[list[Any]]:
    """What is logged meanwhile, above the level of information."""
    capture, processors = structlog.testing.LogCapture(), structlog.get_config()["processors"]
    before = processors.copy()
    processors[:] = [_drop_information, capture]
    structlog.configure(processors=processors)
    try:
        yield capture.entries
    finally:
        processors[:] = before
        structlog.configure(processors=processors)


def _drop_information(_: object, level: str, event: Any) -> Any:
    if level == "info":
        raise structlog.DropEvent
    return event


class Recorder:
    """A handler that writes down what happens; `answer` may be given to react to frames."""

    def __init__(self, expected: frozenset[Identity] = frozenset({PARTY0, PARTY1})) -> None:
        self.expected = expected
        self.ready: list[Identity] = []
        self.frames: list[Frame] = []
        self.lost: list[tuple[Identity, str, bool]] = []
        self.answer: Callable[[Identity, Frame], None] | None = None

    def expects(self, identity: Identity) -> bool:
        return identity in self.expected

    def on_ready(self, identity: Identity) -> None:
        self.ready.append(identity)

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        self.frames.append(frame)
        if self.answer:
            self.answer(identity, frame)

    def on_idle(self) -> None:
        return

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        self.lost.append((identity, reason, graceful))


class Station:
    """A transport and its recorder; `start` runs the loop in a thread."""

    def __init__(self, transport: Transport, recorder: Recorder) -> None:
        self.transport = transport
        self.recorder = recorder
        self.port = 0
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        self.port = self.transport.listen("127.0.0.1", 0)
        self.thread = threading.Thread(target=self.transport.run, daemon=True)
        self.thread.start()

    def until(self, predicate: Callable[[], bool]) -> None:
        """Run the loop, or wait for the thread that does, until `predicate` holds."""
        deadline = time.monotonic() + PATIENCE
        while not predicate():
            assert time.monotonic() < deadline, "nothing happened"
            if self.thread is None:
                self.transport.run_until(predicate, 0.002)
            else:
                time.sleep(0.002)

    def meet(self, other: Station, identity: Identity = PARTY0) -> None:
        """Dial `other`, whose thread runs, and wait until both are ready."""
        self.transport.dial(identity, "127.0.0.1", other.port)
        self.until(lambda: identity in self.transport.ready)
        other.until(lambda: bool(other.recorder.ready))

    def end(self) -> None:
        if self.thread is not None:
            self.transport.stop()
            self.thread.join(PATIENCE)
            self.thread = None
        self.transport.close()


class Office:
    """Issues certificates and builds stations with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create("test federation")
        self.stations: list[Station] = []
        self._issued = 0

    def files(self, identity: Identity, authority: Authority | None = None, valid_days: int = 1) -> TlsFiles:
        """Files for `identity`, signed by `authority`; whoever holds them trusts the office's own authority."""
        certificate, key = (authority or self.authority).issue(identity, valid_days)
        return self.write(certificate, key)

    def write(self, certificate: bytes, key: bytes) -> TlsFiles:
        self._issued += 1
        folder = self.folder / str(self._issued)
        files = TlsFiles(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
        write_private(files.ca, self.authority.certificate_pem)
        write_private(files.certificate, certificate)
        write_private(files.key, key)
        return files

    def station(
        self,
        me: Identity,
        hello: Mapping[str, int] | None = None,
        files: TlsFiles | None = None,
        limits: Limits | None = None,
        recorder: Recorder | None = None,
        spin_seconds: float = 0.0,
    ) -> Station:
        recorder = recorder or Recorder()
        files = files or self.files(me)
        transport = Transport(
            me, files, hello or {"arms": 10}, CAPS, recorder, spin_seconds=spin_seconds, limits=limits or QUICK
        )
        self.stations.append(Station(transport, recorder))
        return self.stations[-1]
