"""Opening a value among N parties: everybody to everybody, or through a collector that changes with every opening.

    direct       1. each party sends its words to all others                       N (N - 1) messages, one delay
    collector    1. each party sends its words to the collector of this opening
                 2. the collector sends their sum to all                           2 (N - 1) messages, two delays

Both with TLS on loopback, in one run, for as many parties as processes; the machine's cores are shared, so what is
compared is the work of all parties together. Bytes are those a party sends for one opening, on average.

    python -m benchmarks.collector [--rounds 200] [--most 8]
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
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import numpy as np

from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import TlsFiles
from hiddenarm.net.transport import Transport
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import Kind

SIZES = (1024, 18 * 1024)
CHUNKS = 5


class Opener:
    """One party: opens words with its peers by either pattern."""

    def __init__(self, number: int, listeners: list[socket.socket], files: TlsFiles, size: int) -> None:
        self.peers = [Identity(Role.PARTY, peer) for peer in range(len(listeners)) if peer != number]
        self._number = number
        self._words = np.zeros(size // 8, np.uint64)
        self._arrived: dict[int, list[bytes]] = {}
        self._board = Transport(Identity(Role.PARTY, number), files, {}, {Kind.ROUND: size}, self)
        ports = [listener.getsockname()[1] for listener in listeners]
        self._board.listen_on(listeners[number])
        for peer in self.peers[:number]:
            self._board.dial(peer, "127.0.0.1", ports[peer.number])
        self._board.run_until(lambda: len(self._board.ready) == len(self.peers), 60)

    def expects(self, identity: Identity) -> bool:
        return True

    def on_ready(self, identity: Identity) -> None: ...

    def on_idle(self) -> None: ...

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None: ...

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        self._arrived.setdefault(frame.step, []).append(frame.payload)

    def direct(self, step: int) -> Words:
        self._send(self.peers, step, self._words)
        return self._sum(self._await(step, len(self.peers)))

    def collected(self, step: int) -> Words:
        parties = len(self.peers) + 1
        collector = step // 2 % parties
        if collector != self._number:
            self._send([Identity(Role.PARTY, collector)], step, self._words)
            return np.frombuffer(self._await(step + 1, 1)[0], np.uint64)
        total = self._sum(self._await(step, parties - 1))
        self._send(self.peers, step + 1, total)
        return total

    def close(self) -> None:
        self._board.close()

    def _send(self, peers: list[Identity], step: int, words: Words) -> None:
        frame = Frame(Kind.ROUND, 1, 0, step, words.tobytes())
        for peer in peers:
            self._board.send(peer, frame)

    def _await(self, step: int, count: int) -> list[bytes]:
        while len(self._arrived.get(step, ())) < count:
            self._board.run_once(None)
        return self._arrived.pop(step)

    def _sum(self, messages: list[bytes]) -> Words:
        total = self._words.copy()
        for message in messages:
            total += np.frombuffer(message, np.uint64)
        return total


def party(
    number: int, listeners: list[socket.socket], files: TlsFiles, size: int, rounds: int, result: Pipe | None
) -> None:
    """Open with both patterns in turn, in stretches; party 0 reports microseconds an opening of each."""
    opener = Opener(number, listeners, files, size)
    figures: list[list[float]] = [[], []]
    step = 0
    for _ in range(CHUNKS + 1):
        for pattern, times in zip((opener.direct, opener.collected), figures, strict=True):
            start = time.perf_counter()
            step = _openings(pattern, step, rounds // CHUNKS)
            times.append((time.perf_counter() - start) / (rounds // CHUNKS) * 1e6)
    if result is not None:
        result.send([statistics.median(times[1:]) for times in figures])
    opener.close()


def _openings(pattern: Callable[[int], Words], step: int, count: int) -> int:
    for _ in range(count):
        pattern(step)
        step += 2
    return step


def compare(parties: int, files: list[TlsFiles], size: int, rounds: int) -> None:
    """Run as many parties and print one line."""
    ours, theirs = multiprocessing.Pipe()
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(parties)]
    processes = [
        multiprocessing.Process(
            target=party, args=(number, listeners, files[number], size, rounds, theirs if number == 0 else None)
        )
        for number in range(parties)
    ]
    for process in processes:
        process.start()
    direct, collected = ours.recv()
    for process in processes:
        process.join()
    for listener in listeners:
        listener.close()
    sent_direct, sent_collected = (parties - 1) * size, 2 * (parties - 1) * size // parties
    print(
        f"{size // 1024:3d} KB  {parties} parties   direct {direct:8.0f} us {sent_direct:8,d} bytes"
        f"   collector {collected:8.0f} us {sent_collected:8,d} bytes   collector / direct {collected / direct:.2f}",
        flush=True,
    )


def issue(folder: Path, parties: int) -> list[TlsFiles]:
    """Certificates for all parties."""
    authority = Authority.create("benchmark")
    write_private(folder / "ca.pem", authority.certificate_pem)
    files = []
    for number in range(parties):
        certificate, key = authority.issue(Identity(Role.PARTY, number))
        paths = TlsFiles(folder / "ca.pem", folder / f"{number}.pem", folder / f"{number}.key")
        write_private(paths.certificate, certificate)
        write_private(paths.key, key)
        files.append(paths)
    return files


def main() -> None:
    """Issue certificates, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--most", type=int, default=8)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.rounds} openings each")
    with tempfile.TemporaryDirectory() as folder:
        files = issue(Path(folder), options.most)
        for size in SIZES:
            for parties in range(2, options.most + 1):
                compare(parties, files, size, options.rounds)


if __name__ == "__main__":
    main()
