"""A world of the real state machines with simulated links, disks and crashes, all from one seed.

A handler of a machine runs at once. What it does to the world, sending a frame or handing changes to its disk, are
effects; a crash may come between any two of them. Links keep their order and may break at any point, which loses the
end of what is under way. A disk has what was synced; a crash loses the rest. The application's requests to actor and
rewarder are lost, repeated and reordered.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from handouts import HandOuts
from hiddenarm.bandit.decisions import split_name
from hiddenarm.bandit.federation import DEFAULT_MAX_BATCH, Federation
from hiddenarm.bandit.subsets import width_of
from hiddenarm.errors import FeatureError, HiddenArmError, PeerLost, StaleStateError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import Floats, decode, encode
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.arms import arm_reports
from hiddenarm.roles.client_records import ActorRecords, MemoryActorRecords, MemoryRewarderRecords, RewarderRecords
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.joint_rewards import JointRewarder
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import (
    ACTOR,
    DEALER,
    END_OF_ARMS,
    REWARDER,
    Kind,
    ReturnedArms,
    program_and_step,
    read_arms,
    read_rewards,
)
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_areas import read_ledger
from hiddenarm.roles.party_records import PartyRecords, Records
from hiddenarm.roles.supply import CompiledPrograms
from hiddenarm.service.features import words_by_key
from hiddenarm.store.contract import Change
from hiddenarm.store.memory import MemoryStore

Machine = Party | Dealer | Actor | JointRewarder
KEYS = [f"user {number}" for number in range(6)]
EVENT_SECONDS = 0.1


class Crash(BaseException):
    """The power of a node goes off."""


class Violation(AssertionError):
    """Something that must never happen has happened."""


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong, for each event, and what is broken on purpose."""

    crash: float = 0.003
    cut: float = 0.001
    lost: float = 0.1
    repeated: float = 0.1
    synced_late: bool = True
    """Off: a disk says that changes last before they do, and they are read until the power goes off."""
    atomic: bool = True
    """Off: a crash may leave the first changes of a group without the rest."""
    fresh_keys: bool = True
    """Off: the dealer resumes with the seeds it had."""


@dataclass
class Disk:
    """What is read at a node, which lasts, and what does not last yet. A disk that lies has what lasts in `lasting`."""

    world: World
    node: Node
    store: MemoryStore = field(default_factory=MemoryStore)
    lasting: MemoryStore = field(default_factory=MemoryStore)
    pending: deque[tuple[list[Change], Callable[[], None]]] = field(default_factory=deque)
    told_from: tuple[object, int] = (None, 0)
    """With which store, and how many decisions were told from it."""

    @property
    def told(self) -> int:
        """Decisions that were told since this store was put in its place."""
        store, count = self.told_from
        return count if store is self.store else 0

    def append(self, changes: Sequence[Change], then: Callable[[], None]) -> None:
        self.world.effect(self.node)
        if self.world.faults.synced_late:
            self.pending.append((list(changes), then))
        else:
            self.store.commit(changes)
            self.pending.append((list(changes), lambda: None))
            self.world.later.append((self.node, self.node.lives, then))

    def sync(self) -> None:
        """Some of what was handed over lasts from now on; who waits for it is told."""
        for _ in range(self.world.random.randint(1, len(self.pending))):
            changes, then = self.pending.popleft()
            (self.store if self.world.faults.synced_late else self.lasting).commit(changes)
            then()
            if not self.node.up:
                return

    def lose_power(self) -> None:
        if self.pending and not self.world.faults.atomic:
            changes = self.pending[0][0]
            self.store.commit(changes[: self.world.random.randint(0, len(changes))])
        self.pending.clear()
        if not self.world.faults.synced_late:
            self.store = self.lasting.copy()


@dataclass
class Node:
    """One role: its machine while it is up, its disk always."""

    identity: Identity
    machine: Machine | None = None
    disk: Disk | None = None
    fuse: int | None = None
    lives: int = 0

    @property
    def up(self) -> bool:
        return self.machine is not None


@dataclass
class End:
    """One direction of a link: what is under way, whether the receiver knows the link, whether it is cut."""

    queue: deque[Frame | None] = field(default_factory=lambda: deque([None]))
    ready: bool = False
    cut: bool = False


class Table:
    """A party's features by key."""

    def __init__(self, rows: dict[str, ArrayLike]) -> None:
        self.rows = rows

    def lookup(self, key: str) -> ArrayLike:
        if key not in self.rows:
            raise FeatureError("no features are stored under this key")
        return self.rows[key]


@lru_cache
def _compiled(federation: Federation, number: int) -> CompiledPrograms:
    """Recording programs takes most of the time; all worlds share them."""
    return CompiledPrograms(federation, number)


def entered(contexts: Floats, bits: int) -> Floats:
    """Contexts as they are entered, with so many fractional bits."""
    return decode(encode(contexts, bits), bits)


class World:
    """All roles of a small federation. `step` lets one thing happen."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        federation: Federation,
        checkpoint_every: int = 3,
        peer_loss: PeerLoss = PeerLoss.ENDS_EPOCH,
    ) -> None:
        self.random = random.Random(seed)
        self.peer_loss = peer_loss
        self.lasting = peer_loss is PeerLoss.ENDS_EPOCH
        self.ended: dict[Identity, str] = {}
        self.tables: dict[Identity, Table] = {}
        self.faults = faults
        self.federation = federation
        self.checkpoint_every = checkpoint_every
        self.calm = False
        self.now = 0.0
        self.crashes = 0
        self.later: list[tuple[Node, int, Callable[[], None]]] = []
        self.sent: dict[tuple[object, ...], bytes] = {}
        self.masked: dict[int, int] = {}
        self.returned: dict[int, bytes] = {}
        self.handouts = HandOuts()
        self.told: Counter[Identity] = Counter()
        """Decisions of which each party has told the actor, ever."""
        self._answers = arm_reports(federation).kinds
        self.refused: list[Identity] = []
        self.links: dict[tuple[Identity, Identity], End] = {}
        rows = np.random.default_rng(5).standard_normal((len(KEYS), federation.dimension))
        self.contexts = entered(rows / np.linalg.norm(rows, axis=1, keepdims=True), federation.context_bits)
        self.parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self.nodes = {identity: Node(identity) for identity in (*self.parties, DEALER, ACTOR, REWARDER)}
        self._programs = [_compiled(federation, number) for number in range(federation.parties)]
        self._key = self.random.randbytes(32)
        for node in self.nodes.values():
            node.disk = Disk(self, node)
            self.start(node)

    # Nodes

    def start(self, node: Node) -> None:
        """Start a role from what is on its disk."""
        node.lives += 1
        node.fuse = None
        try:
            node.machine = self._machine(node)
        except HiddenArmError:
            if self.faults.atomic:
                raise
            raise Violation(f"{node.identity} cannot start from its disk") from None

    def _machine(self, node: Node) -> Machine:
        identity, disk = node.identity, node.disk
        assert disk is not None

        def send(to: Identity, frame: Frame) -> None:
            self.effect(node)
            self._note(identity, frame)
            back, forth = self.links.get((to, identity)), self.links.get((identity, to))
            if back is None or not back.ready:
                raise Violation(f"{identity} sent {frame.kind.name} to {to}, to whom it is not connected")
            if forth is not None and not forth.cut:
                forth.queue.append(frame)

        match identity.role:
            case Role.PARTY:
                own = sum(self.federation.features[: identity.number])
                columns = slice(own, own + self.federation.features[identity.number])
                table = self.tables[identity] = Table(dict(zip(KEYS, self.contexts[:, columns], strict=True)))
                number = identity.number
                memory = MemoryPartyRecords(self.federation, number)
                lasting = PartyRecords(disk.store, disk, self.federation, number)
                records: Records = lasting if self.lasting else memory
                return Party(
                    self.federation,
                    identity.number,
                    words_by_key(table, self.federation, identity.number),
                    send,
                    records=records,
                    peer_loss=self.peer_loss,
                    stock=8,
                    expand_ahead=2,
                    checkpoint_every=self.checkpoint_every,
                    compiled=self._programs[identity.number],
                    clock=lambda: self.now,
                )
            case Role.DEALER:
                fresh = self.faults.fresh_keys
                return Dealer(
                    self.federation,
                    send,
                    peer_loss=self.peer_loss,
                    make_key=lambda: self.random.randbytes(32) if fresh else self._key,
                    make_name=lambda: self.random.randbytes(6).hex(),
                )
            case Role.ACTOR:
                kept = ActorRecords(disk.store, disk) if self.lasting else MemoryActorRecords()
                return Actor(self.federation, send, records=kept, peer_loss=self.peer_loss, max_batch=self._max_batch)
            case Role.REWARDER:
                made = RewarderRecords(disk.store, disk) if self.lasting else MemoryRewarderRecords()
                return JointRewarder(
                    self.federation, send, records=made, peer_loss=self.peer_loss, max_batch=self._max_batch
                )

    @property
    def _max_batch(self) -> int:
        return self.federation.max_batch or DEFAULT_MAX_BATCH

    def effect(self, node: Node) -> None:
        """Something is about to happen to the world; the power may go off before."""
        if node.fuse is not None:
            node.fuse -= 1
            if node.fuse < 0:
                raise Crash

    def run(self, node: Node, act: Callable[[], Any]) -> Any:
        """Let a machine do something."""
        if not node.up:
            return None
        try:
            with self.handouts:
                return act()
        except Crash:
            self.crash(node)
        except PeerLost as error:
            if self.lasting:
                raise
            self.ended[node.identity] = str(error)
            self.crash(node)
        except StaleStateError:
            self.refused.append(node.identity)
            self.crash(node)
        return None

    def crash(self, node: Node) -> None:
        """The power of a node goes off: its memory, its unsynced changes and its links are gone."""
        assert node.disk is not None
        self.crashes += 1
        node.machine = None
        told = node.disk.told
        node.disk.lose_power()
        if self.lasting and read_ledger(node.disk.store).count < told:
            raise Violation(f"{node.identity} told {told} answers since its disk was put in, and forgot some")
        for peer in self.nodes:
            self._cut(node.identity, peer)
            self.links.pop((peer, node.identity), None)

    # Links

    def _cut(self, sender: Identity, receiver: Identity) -> None:
        """Lose the end of what is under way; the receiver finds the end of the stream after the rest."""
        end = self.links.get((sender, receiver))
        if end is None or end.cut:
            return
        end.cut = True
        for _ in range(self.random.randint(0, len(end.queue))):
            end.queue.pop()

    def _connectable(self) -> list[tuple[Identity, Identity]]:
        up = [identity for identity, node in self.nodes.items() if node.up]
        pairs = (pair for pair in combinations(up, 2) if set(pair) != {ACTOR, REWARDER})
        return [pair for pair in pairs if pair not in self.links and pair[::-1] not in self.links]

    def _connect(self, one: Identity, other: Identity) -> None:
        self.links[one, other] = End()
        self.links[other, one] = End()

    def _deliver(self, sender: Identity, receiver: Identity) -> None:
        end, node = self.links[sender, receiver], self.nodes[receiver]
        machine = node.machine
        assert machine is not None
        if not end.queue:
            del self.links[sender, receiver]
            self._cut(receiver, sender)
            if end.ready:
                self.run(node, lambda: machine.on_lost(sender, "cut", False))
            return
        frame = end.queue.popleft()
        if frame is None:
            end.ready = True
            self.run(node, lambda: machine.on_ready(sender))
        else:
            self.run(node, lambda: machine.on_frame(sender, frame))

    # What may happen

    def step(self) -> None:
        """Let one thing happen."""
        self.now += EVENT_SECONDS
        events = self._events()
        if not self.calm and self.random.random() < self.faults.crash:
            node = self.random.choice([node for node in self.nodes.values() if node.up] or [self.nodes[DEALER]])
            node.fuse = self.random.randint(0, 6)
        if not self.calm and self.links and self.random.random() < self.faults.cut:
            one, other = self.random.choice(list(self.links))
            self._cut(one, other)
            self._cut(other, one)
        if events:
            self.random.choice(events)()

    def _events(self) -> list[Callable[[], None]]:
        events: list[Callable[[], None]] = []
        for sender, receiver in self.links:
            end = self.links[sender, receiver]
            if (end.queue or end.cut) and self.nodes[receiver].up:
                events.append(lambda link=(sender, receiver): self._deliver(*link))  # type: ignore[misc]
        for node in self.nodes.values():
            assert node.disk is not None
            if node.up and node.disk.pending:
                events.append(lambda node=node: self.run(node, node.disk.sync))  # type: ignore[misc]
            if not node.up and self.lasting:
                events.append(lambda node=node: self.start(node))  # type: ignore[misc]
            elif node.up and self.random.random() < 0.2:
                events.append(lambda node=node: self.run(node, node.machine.on_idle))  # type: ignore[misc]
        events.extend(lambda pair=pair: self._connect(*pair) for pair in self._connectable())  # type: ignore[misc]
        events.extend(self._call_back for _ in self.later[:1])
        return events

    def _call_back(self) -> None:
        node, lives, then = self.later.pop(0)
        if node.lives == lives:
            self.run(node, then)

    # The oracle: an address has one value

    def _note(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is Kind.ROUND:
            machine = self.nodes[identity].machine
            assert isinstance(machine, Party)
            assert machine._epoch is not None
            seed = machine._epoch._supply._seed
            self._once((identity, seed, *program_and_step(frame), frame.round), frame.payload)
        elif frame.kind is Kind.REWARD:
            for name, word in read_rewards(frame):
                if self.masked.setdefault(name, word) != word:
                    raise Violation(f"the mask of decision {split_name(name)[1]} hides two rewards")
        elif frame.kind is Kind.ARMS and frame != END_OF_ARMS:
            self._note_arms(read_arms(frame, width_of(self.federation, program_and_step(frame)[0]), epoch=-1))
        elif frame.kind in self._answers:
            self._note_answer(identity, frame)

    def _note_answer(self, identity: Identity, frame: Frame) -> None:
        """A share of an answer leaves: the party must have counted it, also if its power goes off now."""
        machine = self.nodes[identity].machine
        assert isinstance(machine, Party)
        assert machine._epoch is not None
        program, _ = program_and_step(frame)
        disk = self.nodes[identity].disk
        assert disk is not None
        disk.told_from = disk.store, disk.told + program.count
        self.told[identity] += program.count
        counted = machine.records.ledger.count
        if counted < self.told[identity]:
            raise Violation(f"{identity} has told {self.told[identity]} answers and counts {counted}")

    def _note_arms(self, returned: ReturnedArms) -> None:
        if self.returned.setdefault(returned.name, returned.masked) != returned.masked:
            raise Violation(f"the mask of decision {split_name(returned.name)[1]} hides two arms")

    def _once(self, address: tuple[object, ...], payload: bytes) -> None:
        if self.sent.setdefault(address, payload) != payload:
            raise Violation(f"{address[0]} sent two values under {address[2:]}")
