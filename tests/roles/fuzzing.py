"""Fuzzed frames against a live party, from strangers without and with a certificate, while honest decisions go on."""

from __future__ import annotations

import random
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from deployment import Deployment
from hiddenarm.cli.status import parse_metrics
from hiddenarm.net.frames import HEADER, MAGIC, VERSION, Kind
from hiddenarm.net.tls import client_context
from hiddenarm.roles.kit import Kit

FRAMES_A_CONNECTION = 100
WITH_CERTIFICATE = 10
"""One connection in so many shows a certificate of the federation, that of the rewarder, which is not running."""


def fuzzed_frame(choice: random.Random) -> bytes:
    """Garbage, a header with odd fields, a length as large as it can be, a frame that is cut, or a TLS record."""
    payload = choice.randbytes(choice.randrange(64))
    length = choice.choice([len(payload), 0, 2**31, 2**32 - 1, choice.randrange(2**32)])
    header = HEADER.pack(
        choice.choice([MAGIC, MAGIC, MAGIC, b"HB"]),
        choice.choice([VERSION, VERSION, choice.randrange(256)]),
        choice.choice([*Kind, choice.randrange(256)]),
        choice.randrange(256),
        choice.randrange(256),
        choice.choice([0, 0, choice.randrange(2**16)]),
        choice.choice([0, 2**63, 2**64 - 1, choice.randrange(2**64)]),
        length,
    )
    match choice.randrange(5):
        case 0:
            return choice.randbytes(choice.randrange(1, 100))
        case 1:
            return b"\x16\x03\x01" + choice.randbytes(choice.randrange(60))
        case 2:
            return header[: choice.randrange(1, len(header))]
    return header + payload


@dataclass
class Attack:
    """Sends frames to a port until all are sent. `sent` counts them."""

    port: int
    frames: int
    context: ssl.SSLContext
    seed: int
    sent: int = 0
    connections: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        choice = random.Random(self.seed)
        while self.sent < self.frames:
            with_certificate = self.connections % WITH_CERTIFICATE == 0
            self._call(b"".join(fuzzed_frame(choice) for _ in range(FRAMES_A_CONNECTION)), with_certificate)
            self.connections += 1
            self.sent += FRAMES_A_CONNECTION
        self.done.set()

    def _call(self, data: bytes, with_certificate: bool) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
            sock = self.context.wrap_socket(plain) if with_certificate else plain
            sock.sendall(data)


@dataclass
class Observed:
    """What an attack did."""

    frames: int
    connections: int
    seconds: float
    grown_bytes: float
    calm_ms: float
    attacked_ms: float


def attack_a_party(deployment: Deployment, frames: int, seed: int = 1) -> Observed:
    """Attack the hotel, whose actor goes on asking."""
    kit = Kit.read(deployment.kits / "rewarder")
    port = Kit.read(deployment.kits / "hotel").address(Kit.read(deployment.kits / "hotel").identity).port
    times(deployment, lambda: False, least=100)  # memory and programs as they are in use
    calm = statistics.median(times(deployment, lambda: False, least=200))
    before, began = memory(deployment), time.monotonic()
    attack = Attack(port, frames, client_context(kit.tls), seed)
    attack.start()
    attacked = statistics.median(times(deployment, lambda: not attack.done.is_set(), least=200))
    seconds = time.monotonic() - began
    grown = memory(deployment) - before
    return Observed(attack.sent, attack.connections, seconds, grown, 1000 * calm, 1000 * attacked)


def times(deployment: Deployment, more: Callable[[], bool], least: int) -> list[float]:
    """How long decisions take, one after another, at least so many and as long as `more` holds."""
    seconds: list[float] = []
    while len(seconds) < least or more():
        began = time.perf_counter()
        assert "arm" in deployment.ask("actor", key="user 17")
        seconds.append(time.perf_counter() - began)
    return seconds


def memory(deployment: Deployment) -> float:
    return parse_metrics(deployment.get("hotel", "/metrics")[1])["hiddenarm_resident_memory_bytes"][0][1]
