"""Single operations between real processes with TLS: each party is a process, and party 0 holds the clock.

All parties go through the same list of operations, block by block:

    1. every party draws its words; the last one also plays the dealer and makes its corrections   (not timed)
    2. an empty exchange, after which all are ready
    3. the operation, `block` times, one after the other                                            (timed by party 0)
    4. the same in NumPy, at party 0, while the others wait                                         (timed)
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from hiddenarm.errors import PeerLost
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.masking import given_share
from hiddenarm.mpc.material import Seeds
from hiddenarm.mpc.run import ProgramText
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import TlsFiles
from hiddenarm.net.transport import Transport
from hiddenarm.research.bench.operations import BITS, Operation
from hiddenarm.research.bench.timing import Spread, seconds_of
from hiddenarm.ring.streams import Stream, fresh_key
from hiddenarm.ring.words import Floats, Words, encode
from hiddenarm.roles.messages import Kind
from hiddenarm.service.logs import configure_logs

Operations = Callable[[], Sequence[Operation]]
"""Makes the list anew in every process: programs cannot be sent."""

_HOST = "127.0.0.1"
_LARGEST_FRAME = 1 << 26
_SPIN_SECONDS = 500e-6
_START_SECONDS = 60.0
_BLOCK_WORDS, _MOST_RUNS, _LEAST_RUNS = 1 << 21, 20, 3
_PLAIN_RUNS = 500


@dataclass(frozen=True, slots=True)
class LinkedCost:
    """What one operation costs between processes: microseconds, the rounds that were made, bytes to each peer."""

    name: str
    rounds: float
    bytes_to_each_peer: int
    private: Spread
    plain: Spread


@dataclass(frozen=True, slots=True)
class _Place:
    """All that a party needs to know to take part."""

    number: int
    ports: Sequence[int]
    tls: TlsFiles
    epoch_key: bytes
    operations: Operations
    blocks: int

    @property
    def parties(self) -> int:
        return len(self.ports)


def measure_linked(operations: Operations, parties: int, blocks: int) -> list[LinkedCost]:
    """Run `blocks` blocks of every operation between so many processes, of which this is one."""
    epoch_key = fresh_key()
    with tempfile.TemporaryDirectory(prefix="hiddenarm-operations-") as folder, _listeners(parties) as listeners:
        ports = [listener.getsockname()[1] for listener in listeners]
        files = _certificates(Path(folder), parties)
        places = [_Place(number, ports, files[number], epoch_key, operations, blocks) for number in range(parties)]
        with _processes(places[1:], listeners):
            return _take_part(places[0], listeners[0])


def _be_a_peer(place: _Place, listener: socket.socket) -> None:
    """The whole life of another party's process."""
    configure_logs("warning", "text", f"party {place.number}")
    _take_part(place, listener)


def _take_part(place: _Place, listener: socket.socket) -> list[LinkedCost]:
    """One party, from the first operation to the last."""
    links = _Links(place, listener)
    try:
        return [_run_operation(links, place, operation) for operation in place.operations()]
    finally:
        links.close()


def _run_operation(links: _Links, place: _Place, operation: Operation) -> LinkedCost:
    worker = _Worker(place, operation)
    private, plain = [], []
    for _ in range(place.blocks + 1):
        private.append(worker.run_block(links))
        if place.number == 0:
            plain.append(worker.plain_seconds())
    return LinkedCost(
        operation.name,
        worker.rounds_made / worker.runs_made,
        worker.layout.bytes_to_each_peer(0),
        Spread.of(private[1:]).scaled(1e6),
        Spread.of(plain[1:] or [0.0]).scaled(1e6),
    )


class _Links:
    """A party's connections to all others."""

    def __init__(self, place: _Place, listener: socket.socket) -> None:
        me = place.number
        self._peers = [Identity(Role.PARTY, number) for number in range(place.parties) if number != me]
        self._arrived: dict[int, dict[Identity, bytes]] = {}
        self._exchanges = 0
        spin = _SPIN_SECONDS if place.parties <= (os.cpu_count() or 1) else 0.0
        caps = {Kind.ROUND: _LARGEST_FRAME}
        self._board = Transport(Identity(Role.PARTY, me), place.tls, {}, caps, self, spin_seconds=spin)
        self._board.listen_on(listener)
        for peer in self._peers[:me]:
            self._board.dial(peer, _HOST, place.ports[peer.number])
        if not self._board.run_until(lambda: len(self._board.ready) == len(self._peers), _START_SECONDS):
            raise PeerLost("not all parties of an operation came")

    def exchange(self, payload: bytes) -> list[bytes]:
        """Send to all, and receive from all; in the order of the parties."""
        frame = Frame(Kind.ROUND, 1, 0, self._exchanges, payload)
        self._exchanges += 1
        answers = self._board.exchange(self._peers, frame)
        while answers is None:
            self._board.run_once(None)
            if len(self._arrived.get(frame.step, ())) == len(self._peers):
                arrived = self._arrived.pop(frame.step)
                answers = [arrived[peer] for peer in self._peers]
        return answers

    def close(self) -> None:
        self._board.close()

    def expects(self, identity: Identity) -> bool:
        return identity in self._peers

    def on_ready(self, identity: Identity) -> None: ...

    def on_idle(self) -> None: ...

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        if not graceful:
            raise PeerLost(f"{identity} left an operation: {reason}")

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        self._arrived.setdefault(frame.step, {})[identity] = frame.payload


class _Worker:
    """One party's part of one operation. Party 0 holds the inputs: a sharing like any other."""

    def __init__(self, place: _Place, operation: Operation) -> None:
        assert operation.size is not None
        self._place, self._operation = place, operation
        text = program_of(operation)
        seeds = Seeds(place.epoch_key)
        self.layout = layout_of(text, place.parties, 1)
        self._script = compile_program(text, place.number, place.parties)
        self._block = min(_MOST_RUNS, max(_LEAST_RUNS, _BLOCK_WORDS // max(1, self.layout.party_words[0])))
        self._dealer = ProgramDealer(operation.name, text, self.layout, seeds, 1)
        self._material = ProgramMaterial(
            place.number, place.parties, operation.name, self.layout, seeds.party(place.number), ahead=1
        )
        self._inputs = [_numbers(operation.size, number) for number in range(operation.inputs)]
        self._given = [self._share(value[None]) for value in self._inputs]
        self.rounds_made = self.runs_made = 0

    def run_block(self, links: _Links) -> float:
        """Seconds for one run."""
        if self._place.number == self._place.parties - 1:
            self._material.add_corrections(self.runs_made, self._dealer.deal(self.runs_made, self._block))
        links.exchange(b"")
        start = perf_counter()
        for _ in range(self._block):
            self._run(links)
        return (perf_counter() - start) / self._block

    def plain_seconds(self) -> float:
        """Seconds for the same in NumPy."""
        assert self._operation.plain is not None
        work = partial(self._operation.plain, *self._inputs)
        return seconds_of(lambda: [work() for _ in range(_PLAIN_RUNS)]) / _PLAIN_RUNS

    def _run(self, links: _Links) -> Any:
        evaluation = Evaluation(self._script, self._material.take(self.runs_made), self._given)
        while (payload := evaluation.payload) is not None:
            received: list[bytes | None] = [*links.exchange(payload)]
            received.insert(self._place.number, None)
            evaluation.advance(tuple(received))
            self.rounds_made += 1
        self.runs_made += 1
        return evaluation.result

    def _share(self, value: Floats) -> Words:
        words = encode(value, BITS)
        return words if self._place.number == 0 else np.zeros_like(words)


def program_of(operation: Operation) -> ProgramText:
    """An operation on inputs that the parties are given shares of."""
    size = operation.size
    assert size is not None
    return lambda run: operation.text(run, *(given_share(run, size) for _ in range(operation.inputs)))


def _numbers(size: int, number: int) -> Floats:
    """Some numbers in [1, 2)."""
    words = Stream(bytes(32), size).step(number)
    return np.asarray(1.0 + (words >> np.uint64(11)) * 2.0**-53, np.float64)


@contextmanager
def _listeners(parties: int) -> Iterator[list[socket.socket]]:
    listeners = [socket.create_server((_HOST, 0)) for _ in range(parties)]
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


@contextmanager
def _processes(places: Sequence[_Place], listeners: Sequence[socket.socket]) -> Iterator[None]:
    """The other parties; on exit none of them keeps running."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_be_a_peer, args=(place, listeners[place.number])) for place in places]
    for process in processes:
        process.start()
    try:
        yield
        for process in processes:
            process.join(_START_SECONDS)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _certificates(folder: Path, parties: int) -> list[TlsFiles]:
    """An authority that lives as long as the measurement, and a certificate for each party."""
    authority = Authority.create("operations")
    write_private(folder / "ca.pem", authority.certificate_pem)
    files = [TlsFiles(folder / "ca.pem", folder / f"{one}.pem", folder / f"{one}.key") for one in range(parties)]
    for number, paths in enumerate(files):
        certificate, key = authority.issue(Identity(Role.PARTY, number))
        write_private(paths.certificate, certificate)
        write_private(paths.key, key)
    return files
