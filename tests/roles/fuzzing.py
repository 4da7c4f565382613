"""Fuzzed frames against a live party, from strangers without and with a certificate, while honest decisions go on."""

from __future__ import annotations

import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deployment import Deployment
from hiddenarm.cli.status import parse_metrics
from hiddenarm.net.frames import HEADER, MAGIC, VERSION
from hiddenarm.net.tls import client_context
from hiddenarm.roles.messages import Kind
from hiddenarm.service.kit import Kit

FRAMES_A_CONNECTION = 100
PAUSE_SECONDS = 0.005
"""Between two honest decisions: nobody rewards them, and a party keeps each of them in memory."""
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


def attack(port: int, frames: int, kit: Path, seed: int) -> int:
    """Send frames to a port, many on a connection; return how many connections that took."""
    choice, context, connections = random.Random(seed), client_context(Kit.read(kit).tls), 0
    while connections * FRAMES_A_CONNECTION < frames:
        data = b"".join(fuzzed_frame(choice) for _ in range(FRAMES_A_CONNECTION))
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            sock = plain if connections % WITH_CERTIFICATE else context.wrap_socket(plain)
            sock.sendall(data)
        connections += 1
    return connections


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
    """Attack the hotel from another process, while its actor goes on asking."""
    kit = Kit.read(deployment.kits / "hotel")
    times(deployment, lambda: False, least=100)  # memory and programs as they are in use
    calm = statistics.median(times(deployment, lambda: False, least=200))
    before, began = memory(deployment), time.monotonic()
    arguments = [kit.address(kit.identity).port, frames, deployment.kits / "rewarder", seed]
    command = [sys.executable, __file__, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as attacker:
        attacked = statistics.median(times(deployment, lambda: attacker.poll() is None, least=200))
        connections = int(attacker.communicate()[0])
    seconds = time.monotonic() - began
    grown = memory(deployment) - before
    return Observed(connections * FRAMES_A_CONNECTION, connections, seconds, grown, 1000 * calm, 1000 * attacked)


def times(deployment: Deployment, more: Callable[[], bool], least: int) -> list[float]:
    """How long decisions take, one after another, at least so many and as long as `more` holds."""
    seconds: list[float] = []
    while len(seconds) < least or more():
        began = time.perf_counter()
        assert "arm" in deployment.ask("actor", key="user 17")
        seconds.append(time.perf_counter() - began)
        time.sleep(PAUSE_SECONDS)
    return seconds


def memory(deployment: Deployment) -> float:
    return parse_metrics(deployment.get("hotel", "/metrics")[1])["hiddenarm_resident_memory_bytes"][0][1]


if __name__ == "__main__":
    print(attack(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
