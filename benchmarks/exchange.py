"""How long one exchange takes: both ends send a frame and wait for the other's, as parties do in every round.

Compares, in one run and between two processes on loopback, bare blocking sockets (no TLS, no frames), a blocking TLS
socket, and the transport with and without polling before it sleeps. Polling needs a core for each process.

    python benchmarks/exchange.py [--rounds 3000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import TlsFiles, client_context, server_context
from hiddenarm.net.transport import Transport
from hiddenarm.roles.messages import Kind

PARTIES = (Identity(Role.PARTY, 0), Identity(Role.PARTY, 1))
SIZES = (4 * 1024, 17 * 1024)
CHUNKS = 10
Exchange = Callable[[], None]


def issue(folder: Path) -> list[TlsFiles]:
    """Certificates for two parties."""
    authority = Authority.create("benchmark")
    write_private(folder / "ca.pem", authority.certificate_pem)
    files = []
    for party in PARTIES:
        certificate, key = authority.issue(party)
        paths = TlsFiles(folder / "ca.pem", folder / f"{party}.pem", folder / f"{party}.key")
        write_private(paths.certificate, certificate)
        write_private(paths.key, key)
        files.append(paths)
    return files


def measure(exchange: Exchange, rounds: int) -> list[float]:
    """Microseconds per exchange, one figure for each of CHUNKS stretches."""
    for _ in range(rounds // CHUNKS):
        exchange()
    figures = []
    for _ in range(CHUNKS):
        start = time.perf_counter()
        for _ in range(rounds // CHUNKS):
            exchange()
        figures.append((time.perf_counter() - start) / (rounds // CHUNKS) * 1e6)
    return figures


def connect(number: int, port: int) -> socket.socket:
    """A blocking TCP connection: party 0 accepts, party 1 calls."""
    if number == 0:
        with socket.create_server(("127.0.0.1", port)) as listener:
            sock = listener.accept()[0]
    else:
        sock = call(port)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def call(port: int) -> socket.socket:
    """Connect to a listener that may not be there yet."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)


def blocking(sock: socket.socket, size: int) -> Exchange:
    """Send, then read until as much has come."""
    message, buffer = bytes(size), memoryview(bytearray(size))

    def exchange() -> None:
        sock.sendall(message)
        received = 0
        while received < size:
            received += sock.recv_into(buffer[received:])

    return exchange


def bare(number: int, port: int, files: TlsFiles, size: int, rounds: int) -> list[float]:
    """Blocking sockets, no TLS."""
    return measure(blocking(connect(number, port), size), rounds)


def tls(number: int, port: int, files: TlsFiles, size: int, rounds: int) -> list[float]:
    """Blocking TLS sockets."""
    sock = connect(number, port)
    context = client_context(files) if number else server_context(files)
    return measure(blocking(context.wrap_socket(sock, server_side=number == 0), size), rounds)


class Counter:
    """A handler that counts."""

    def __init__(self) -> None:
        self.frames = 0

    def expects(self, identity: Identity) -> bool:
        return True

    def on_ready(self, identity: Identity) -> None: ...

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        self.frames += 1

    def on_idle(self) -> None: ...

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None: ...


def transport(number: int, port: int, files: TlsFiles, size: int, rounds: int, *, spin: float) -> list[float]:
    """The transport, as a party uses it: answers that come at once, and others from the loop."""
    counter, peer = Counter(), PARTIES[1 - number]
    board = Transport(PARTIES[number], files, {}, {Kind.ROUND: size}, counter, spin_seconds=spin)
    if number == 0:
        board.listen("127.0.0.1", port)
    else:
        board.dial(peer, "127.0.0.1", port)
    board.run_until(lambda: peer in board.ready, 30)
    payload, sent = bytes(size), 0

    def exchange() -> None:
        nonlocal sent
        answers = board.exchange([peer], Frame(Kind.ROUND, 1, 0, sent, payload))
        sent += 1
        counter.frames += answers is not None
        while counter.frames < sent:
            board.run_once(None)

    figures = measure(exchange, rounds)
    board.close()
    return figures


VARIANTS: dict[str, Callable[[int, int, TlsFiles, int, int], list[float]]] = {
    "bare sockets": bare,
    "TLS sockets": tls,
    "transport, no spin": partial(transport, spin=0.0),
    "transport, 100 us spin": partial(transport, spin=100e-6),
    "transport, 500 us spin": partial(transport, spin=500e-6),
}


def free_port() -> int:
    """A port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def compare(files: list[TlsFiles], size: int, rounds: int) -> None:
    """Measure all variants with frames of one size and print them beside the first."""
    baseline = 0.0
    for name, variant in VARIANTS.items():
        port = free_port()
        peer = multiprocessing.Process(target=variant, args=(1, port, files[1], size, rounds))
        peer.start()
        figures = variant(0, port, files[0], size, rounds)
        peer.join()
        typical = statistics.median(figures)
        baseline = baseline or typical
        print(
            f"{size // 1024:3d} KB  {name:26s} median {typical:7.1f} us  best {min(figures):7.1f} us"
            f"  x {typical / baseline:.2f}",
            flush=True,
        )


def main() -> None:
    """Issue certificates, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {rounds} exchanges each")
    with tempfile.TemporaryDirectory() as folder:
        files = issue(Path(folder))
        for size in SIZES:
            compare(files, size, rounds)


if __name__ == "__main__":
    main()
