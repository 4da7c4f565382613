"""Where the time of a step goes, for the party that works longest.

Parts of a step are measured apart, in one process and without waiting:

    randomness    expanding the step's words from the seed (AES), as far ahead as a party does
    serialising   words to bytes and back, and adding them up, for all rounds
    local work    everything else that the party's state machine does with its frames, mostly evaluating
    frames, TLS   framing, encrypting, one system call to write, one to read, decrypting: for every round and peer

What is left of the measured step is waiting: for the other roles, for the system to wake a process up, for a core.

All roles of a federation as state machines in this process, with a queue for a network; each one is timed.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from hiddenarm.bandit.catalogue import program_texts
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.codec import payload_bytes
from hiddenarm.mpc.dealing import DealerRun, layout_of, walk
from hiddenarm.mpc.evaluation import DealtWords, Evaluation, compile_program
from hiddenarm.mpc.material import CountingTape, program_stream
from hiddenarm.mpc.run import Opening, Openings, Program, ProgramText, Run
from hiddenarm.net.connection import Connection
from hiddenarm.net.frames import Frame, LinkKind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import client_context, server_context
from hiddenarm.research.bench.timing import seconds_of
from hiddenarm.research.data.worlds import World
from hiddenarm.ring.streams import fresh_key
from hiddenarm.ring.words import Floats, Words
from hiddenarm.roles.actor import Actor, all_decided
from hiddenarm.roles.client_records import MemoryActorRecords, MemoryRewarderRecords
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER, Kind
from hiddenarm.roles.party import Party
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.runs import Send
from hiddenarm.service.features import words_by_key
from hiddenarm.service.kit import Kit
from hiddenarm.service.process import Machine, keep_freed_memory


class _Slice:
    """One party's features of a world's rows; the key is the row."""

    def __init__(self, values: Floats) -> None:
        self._values = values

    def lookup(self, key: str) -> Floats:
        features: Floats = self._values[int(key)]
        return features


class Machines:
    """A federation without a network. `seconds` tells how long each machine has worked."""

    def __init__(self, federation: Federation, world: World) -> None:
        self._world = world
        self._queue: deque[tuple[Identity, Identity, Frame]] = deque()
        self._machines: dict[Identity, Machine] = {}
        self.seconds: dict[Identity, float] = {}
        self.parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        loss = PeerLoss.ENDS_FEDERATION
        self._actor = Actor(federation, self._sender(ACTOR), records=MemoryActorRecords(), peer_loss=loss)
        self._rewarder = Rewarder(federation, self._sender(REWARDER), records=MemoryRewarderRecords(), peer_loss=loss)
        self._machines[DEALER] = Dealer(federation, self._sender(DEALER), peer_loss=loss)
        start = 0
        for party, count in zip(self.parties, federation.features, strict=True):
            source = _Slice(world.contexts[:, start : start + count])
            own_words = words_by_key(source, federation, party.number)
            records = MemoryPartyRecords(federation, party.number)
            send = self._sender(party)
            self._machines[party] = Party(federation, party.number, own_words, send, records=records, peer_loss=loss)
            start += count
        self._machines |= {ACTOR: self._actor, REWARDER: self._rewarder}
        self._introduce()

    def step(self, number: int) -> None:
        """Decide, reward, learn."""
        row = number % len(self._world.contexts)
        asked = self._actor.ask(str(row))
        self._run()
        outcome = self._actor.outcomes.pop(asked)
        assert not isinstance(outcome, Exception)
        [decision] = all_decided(outcome)
        lesson = self._rewarder.teach((decision.id, self._world.reward(row, decision.arm)))
        self._run()
        self._rewarder.check_learned(lesson)

    def _sender(self, source: Identity) -> Send:
        return partial(self._post, source)

    def _post(self, source: Identity, target: Identity, frame: Frame) -> None:
        self._queue.append((source, target, frame))

    def _introduce(self) -> None:
        """Everybody meets everybody it expects."""
        for one, machine in self._machines.items():
            for other in self._machines:
                if other != one and machine.expects(other):
                    machine.on_ready(other)
        self._run()

    def _run(self) -> None:
        """Deliver until nobody has anything to say."""
        while self._queue:
            source, target, frame = self._queue.popleft()
            start = perf_counter()
            self._machines[target].on_frame(source, frame)
            self.seconds[target] = self.seconds.get(target, 0.0) + perf_counter() - start


_AHEAD = 16
_SAMPLES = 15
_BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Microseconds of one step at one party."""

    randomness_us: float
    serialising_us: float
    local_work_us: float
    frames_us: float
    waiting_us: float

    def rows(self) -> list[tuple[str, float]]:
        """What each is called in the table."""
        return [
            ("randomness", self.randomness_us),
            ("local work", self.local_work_us),
            ("serialising", self.serialising_us),
            ("frames, TLS, system calls", self.frames_us),
            ("waiting", self.waiting_us),
        ]


def break_down(federation: Federation, world: World, step_us: float, steps: int, kits: tuple[Kit, Kit]) -> Breakdown:
    """Measure the parts and take them from the measured step. `kits` of two parties give the certificates for TLS."""
    keep_freed_memory()  # as a party does
    texts = program_texts(federation)
    party = 0
    randomness = sum(_randomness(name, text, federation, party) for name, text in texts.items())
    rounds = [openings for text in texts.values() for openings in _rounds(text, federation)]
    serialising = sum(_serialising(openings, federation, party) for openings in rounds)
    machine = _machine_us(federation, world, steps)
    sizes = [payload_bytes(openings, party) for openings in rounds]
    frames = _frames(kits, sizes) * (federation.parties - 1)
    local = max(0.0, machine - randomness - serialising)
    waiting = max(0.0, step_us - randomness - serialising - local - frames)
    return Breakdown(randomness, serialising, local, frames, waiting)


def _typical(work: Callable[[], object]) -> float:
    """Microseconds of one call."""
    work()
    return 1e6 * float(np.median([seconds_of(work) for _ in range(_SAMPLES)]))


def _randomness(name: str, text: ProgramText, federation: Federation, party: int) -> float:
    words = layout_of(text, federation.parties, 1).party_words[party]
    stream = program_stream(fresh_key(), name, words)
    first = iter(range(0, 10**9, _AHEAD))
    return _typical(lambda: stream.steps(next(first), _AHEAD)) / _AHEAD


def _rounds(text: ProgramText, federation: Federation) -> list[Openings]:
    """What a program opens, round by round."""
    tapes = [CountingTape() for _ in range(federation.parties)]
    return walk(text(DealerRun(0, 1, [*tapes], CountingTape(), CountingTape(), CountingTape())))


def _serialising(openings: Openings, federation: Federation, party: int) -> float:
    """A round that sends words as they are and opens what all parties sent."""

    def text(run: Run) -> Program:
        here = [replace(opening, outgoing=_given(run, opening), finish=lambda words: words) for opening in openings]
        return (yield tuple(here))

    script = compile_program(text, party, federation.parties)
    given = [np.zeros(words, np.uint64) for words in script.expected.given_words]
    (sizes,) = script.expected.round_bytes
    received = tuple(None if sender == party else bytes(size) for sender, size in enumerate(sizes))
    nothing = np.empty(0, np.uint64)
    return _typical(lambda: Evaluation(script, DealtWords(nothing, nothing), given).advance(received))


def _given(run: Run, opening: Opening[object]) -> Words | None:
    return None if run.party is None else run.given(opening.sent_shape(run.party))


def _machine_us(federation: Federation, world: World, steps: int) -> float:
    """All that a party's state machine does in a step: the party that works longest."""
    machines = Machines(federation, world)
    samples = []
    for step in range(steps + 1):
        before = dict(machines.seconds)
        machines.step(step)
        samples.append([machines.seconds[party] - before.get(party, 0.0) for party in machines.parties])
    return 1e6 * float(np.mean(np.sort(samples[1:], axis=0)[: max(1, int(0.9 * steps))], axis=0).max())


def _frames(kits: tuple[Kit, Kit], sizes: list[int]) -> float:
    """Send a frame and receive one, for payloads of each of these sizes, between two ends in this process."""
    near, far = _connected(kits, max(sizes))
    buffer = memoryview(bytearray(_BUFFER_BYTES))

    def exchange(frame: Frame) -> None:
        near.send(frame)
        while not far.receive(buffer):
            near.flush()

    exchange(Frame(LinkKind.HELLO))
    total = sum(_typical(partial(exchange, Frame(Kind.ROUND, payload=bytes(size)))) for size in sizes)
    for end in (near, far):
        end.close()
    return total


def _connected(kits: tuple[Kit, Kit], cap: int) -> tuple[Connection, Connection]:
    """Two ends of a connection with TLS: the one that dialled and the one that was called."""
    near_kit, far_kit = kits
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        called = listener.accept()[0]
    near = Connection(dialled, "dialled", {Kind.ROUND: cap}, far_kit.identity)
    far = Connection(called, "called", {Kind.ROUND: cap})
    near.start_tls(client_context(near_kit.tls))
    far.start_tls(server_context(far_kit.tls))
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    for end in (dialled, called):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unfinished = [near, far]
    while unfinished:
        unfinished = [end for end in unfinished if not end.handshake(buffer)]
    return near, far
