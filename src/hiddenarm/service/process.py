"""Roles at work: a kit, a state machine and a transport put together.

`serve` runs a party or a dealer until the federation ends. Actor and rewarder live in an application (`application`).
Party, actor and rewarder of one organisation may be served by one process, a thread and a transport each;
`check_together` says whether kits may.

A role keeps the memory that it has freed. Dealing and expanding seeds ask for a few megabytes at a time and let go of
them at once. The C library would hand such pieces back to the system every time, and the system would clear each of
their pages again: that takes longer than the arithmetic (`benchmarks/memory.py`).
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from threading import Event, Lock

from hiddenarm.bandit.catalogue import VALUE, ProgramId, deciding, program_text
from hiddenarm.bandit.schedule import GATHERED_BEFORE_A_BATCH
from hiddenarm.bandit.subsets import subset_sizes
from hiddenarm.errors import ConfigError, HiddenArmError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.frames import Frame
from hiddenarm.net.hello import differences
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.meter import Meter
from hiddenarm.net.transport import Limits, Transport
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.arms import arm_reports
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import committed_bytes, plan_bytes, statement_bytes
from hiddenarm.roles.joint_rewards import JointRewarder
from hiddenarm.roles.messages import (
    DEALER,
    MAX_KEY_BYTES,
    PROGRAM_NUMBERS,
    REWARD_BYTES,
    Kind,
    arms_bytes,
    arms_kept_bytes,
    bitmap_bytes,
    refused_bytes,
    slot_bytes,
    values_bytes,
)
from hiddenarm.roles.party import Party
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.stock import BATCHES_IN_STOCK, largest_batch_bytes
from hiddenarm.service.kit import Address, Kit
from hiddenarm.service.live_features import LiveFeatures
from hiddenarm.service.state import STATE_FOLDER, MemoryState, State, keeps_state, open_state

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 256 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have the C library keep up to 256 MB of freed memory for the next request. Does nothing where it cannot."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(option, _KEPT_BYTES)


DRAIN_SECONDS = 10.0
"""For what is under way when a role is told to stop."""
LINGER_SECONDS = 0.5
"""How long a role that has done its part stays before it leaves: its peers have to do theirs, and a goodbye must not
overtake their answers to the clients."""

Machine = Party | Dealer | Actor | Rewarder
Make = Callable[["Endpoint", State | MemoryState], Machine]
"""Makes the machine of an endpoint, on its state."""


class Endpoint:
    """A role's machine at its transport, and its state. The machine sends through the endpoint, which exists first:
    `make`, if it is given, makes it. With a `lock` it is for many threads (see `Transport`)."""

    def __init__(self, kit: Kit, lock: Lock | None = None, make: Make | None = None) -> None:
        self.kit = kit
        self.features: LiveFeatures | None = None
        """Of a party."""
        self._state = open_state(kit, self._call)
        self.machine = (make or make_machine)(self, self._state)
        caps = frame_caps(kit)
        self.transport = Transport(
            kit.identity,
            kit.tls,
            kit.hello,
            caps,
            self.machine,
            spin_seconds=_spin_seconds(kit),
            limits=_limits(caps),
            uses_idle_time=kit.identity.role in (Role.PARTY, Role.DEALER),
            lock=lock,
        )
        if self.features is not None:
            self.features.start()

    @property
    def meter(self) -> Meter:
        return self.transport.meter

    def close(self, reason: str) -> None:
        """Part with everybody in good order, and write what is to last."""
        self.transport.close(reason)
        self._close()

    def abort(self, reason: str) -> None:
        """Part with everybody, telling why."""
        self.transport.abort(reason)
        self._close()

    def _close(self) -> None:
        if self.features is not None:
            self.features.close()
        self._state.close()

    def _call(self, then: Callable[[], None]) -> None:
        self.transport.call(then)

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        self.transport.after(seconds, then)

    def watch_features(self) -> LiveFeatures:
        """A party's features, which change when their files do."""
        self.features = LiveFeatures(self.kit, self._call, self._after)
        return self.features

    def send(self, identity: Identity, frame: Frame) -> None:
        self.transport.send(identity, frame)

    def exchange(self, peers: Sequence[Identity], frame: Frame) -> list[bytes] | None:
        return self.transport.exchange(peers, frame)

    def send_later(self, identity: Identity, frame: Frame) -> None:
        self.transport.send_later(identity, frame)

    def connect(self, listener: socket.socket | None = None) -> None:
        """Listen where others dial us, on our address or on a socket handed in; dial those who listen before us."""
        me = self.kit.identity
        if listener is not None:
            self.transport.listen_on(listener)
        elif me.role in (Role.PARTY, Role.DEALER):
            address = self.kit.address(me)
            self._listen(Address(host=self.kit.file.listen or address.host, port=address.port))
        for identity in self._dialled():
            address = self.kit.address(identity)
            self.transport.dial(identity, address.host, address.port, lasting=self.kit.file.durable)

    def _listen(self, address: Address) -> None:
        try:
            self.transport.listen(address.host, address.port)
        except OSError as error:
            raise ConfigError(f"cannot listen at {address.host}:{address.port}: {error.strerror}") from None

    def _dialled(self) -> list[Identity]:
        """Everybody dials the dealer, clients dial all parties, a party dials those with smaller numbers."""
        me = self.kit.identity
        if me.role is Role.DEALER:
            return []
        parties = me.number if me.role is Role.PARTY else self.kit.federation.parties
        return [DEALER, *(Identity(Role.PARTY, number) for number in range(parties))]


class StopRequest:
    """Whether somebody wants the role to stop. May be made from another thread."""

    def __init__(self) -> None:
        self._event = Event()

    @property
    def made(self) -> bool:
        return self._event.is_set()

    def make(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait for it so long; whether it was made."""
        return self._event.wait(seconds)


def check_together(kits: Sequence[Kit]) -> None:
    """Refuse kits that one process must not serve together, before it opens anything: more than one of a kind of role,
    the dealer with anybody, kits of different federations, and kits that share a state folder or a port."""
    for one, other in combinations(kits, 2):
        _check_roles(one, other)
        _check_federation(one, other)
        _check_places(one, other)
        _check_ports(one, other)


def _check_roles(one: Kit, other: Kit) -> None:
    if one.identity == other.identity:
        raise ConfigError(f"{one.folder} and {other.folder} are both kits of {one.identity}: give each role once")
    if DEALER in (one.identity, other.identity):
        dealer, beside = (one, other) if one.identity == DEALER else (other, one)
        raise ConfigError(
            f"the dealer must not be in one hand with {beside.identity}: serve {dealer.folder} by itself, at an "
            "organisation that has no other role"
        )
    if one.identity.role is other.identity.role:
        raise ConfigError(
            f"{one.identity} and {other.identity} are different organisations: serve {one.folder} and {other.folder} "
            "each in a process of its own, where its organisation is"
        )


def _check_federation(one: Kit, other: Kit) -> None:
    if differing := differences(one.hello, other.hello, str(one.folder), str(other.folder)):
        raise ConfigError(
            f"{one.folder} and {other.folder} are not kits of one federation: {differing[0]}; "
            "serve together what was provisioned together, and each federation in a process of its own"
        )


def _check_places(one: Kit, other: Kit) -> None:
    if not (keeps_state(one) and keeps_state(other)):
        return
    state = (one.folder / STATE_FOLDER).resolve()
    if one.file.store is None and other.file.store is None and state == (other.folder / STATE_FOLDER).resolve():
        raise ConfigError(
            f"{one.folder} and {other.folder} share the state folder {state}: give each kit a folder `state` of its own"
        )


def _check_ports(one: Kit, other: Kit) -> None:
    for port in _ports(one) & _ports(other):
        raise ConfigError(
            f"{one.folder} and {other.folder} both use port {port}: set another monitor_port or http in one kit.json, "
            "or another port of the party in the federation file"
        )


def _ports(kit: Kit) -> set[int]:
    """Where a role listens, for its peers and for whoever watches over it."""
    own = kit.file.addresses.get(str(kit.identity))
    listening = None if own is None else own.port
    web = None if kit.http is None or kit.http.path is not None else kit.http.port
    return {port for port in (listening, kit.file.monitor_port, web) if port is not None}


def serve(endpoint: Endpoint, listener: socket.socket | None = None, stop: StopRequest | None = None) -> None:
    """Run a party or the dealer until the federation ends, or until it is to stop and has done what was asked of it.
    An error tells all peers before it is raised."""
    stop = stop or StopRequest()
    machine, transport = endpoint.machine, endpoint.transport
    try:
        endpoint.connect(listener)
        while not machine.finished and not stop.made:
            transport.run_once(None)
        if not machine.finished:
            transport.run_until(lambda: machine.finished or not machine.busy, DRAIN_SECONDS)
            transport.run_until(lambda: machine.finished, LINGER_SECONDS)
    except HiddenArmError as error:
        endpoint.abort(str(error))
        raise
    endpoint.close("the federation has ended" if machine.finished else f"{endpoint.kit.identity} was told to stop")


def frame_caps(kit: Kit) -> dict[Kind, int]:
    """The largest payload of each kind of frame, from the public configuration."""
    federation, many = kit.federation, kit.file.max_batch
    learner = federation.learner
    deciding_many = [deciding(many, size) for size in (None, *subset_sizes(federation))]
    largest = *deciding_many, *learner.single_programs, *learner.largest_programs
    values = federation.evaluation
    if values is not None:
        largest = *largest, ProgramId(VALUE, values.window)
    layouts = [layout_of(program_text(federation, program), federation.parties, 1) for program in largest]
    reports = arm_reports(federation)
    return {
        Kind.WANT: 16,
        Kind.CORRECTIONS: max(largest_batch_bytes(layout) for layout in layouts),
        Kind.DECIDE: 16 + 4 * federation.arms + many * (bitmap_bytes(federation.arms) + 2 + MAX_KEY_BYTES),
        **{kind: reports.most_bytes(kind, many) for kind in reports.kinds},
        Kind.ARMS: arms_bytes(many, federation.arm_width),
        Kind.ARMS_KEPT: arms_kept_bytes(),
        Kind.REWARD: REWARD_BYTES * many,
        Kind.UNLEARN: REWARD_BYTES,
        Kind.SLOT: slot_bytes(),
        Kind.VALUES: 0 if values is None else values_bytes(values.sums),
        Kind.LEARNED: 0,
        Kind.OPEN: max(128, statement_bytes(federation.parties)),
        Kind.PREPARED: plan_bytes(),
        Kind.ACTIVE: plan_bytes(),
        Kind.COMMITTED: committed_bytes(),
        Kind.REFUSED: refused_bytes(many),
        Kind.ROUND: max(size for layout in layouts for sizes in layout.round_bytes for size in sizes),
    }


def _spin_seconds(kit: Kit) -> float:
    """A party waits for its peers' next words. The others wait for whole programs, or for people: they sleep at
    once."""
    return kit.file.spin_microseconds / 1e6 if kit.identity.role is Role.PARTY else 0.0


def _limits(caps: dict[Kind, int]) -> Limits:
    """An honest peer may be behind by all that it has ordered: a stock for each program."""
    ordered = len(PROGRAM_NUMBERS) * BATCHES_IN_STOCK * caps[Kind.CORRECTIONS]
    return Limits(backlog_bytes=max(Limits().backlog_bytes, ordered))


def make_machine(endpoint: Endpoint, state: State | MemoryState) -> Machine:
    """The machine of the role whose kit it is."""
    match endpoint.kit.identity.role:
        case Role.PARTY:
            return make_party(endpoint, state)
        case Role.DEALER:
            return make_dealer(endpoint)
        case Role.ACTOR:
            return make_actor(endpoint, state)
        case Role.REWARDER:
            return make_rewarder(endpoint, state)


def make_party(endpoint: Endpoint, state: State | MemoryState) -> Party:
    kit, features = endpoint.kit, endpoint.watch_features()
    return Party(
        kit.federation,
        kit.identity.number,
        features.words,
        endpoint.send,
        endpoint.exchange,
        endpoint.send_later,
        records=state.party(),
        peer_loss=PeerLoss.of(kit.file.durable),
        stock=kit.file.stock,
        max_batch=kit.file.max_batch,
        checkpoint_every=kit.file.checkpoint_every,
        look_up=features.look_up,
    )


def make_dealer(endpoint: Endpoint) -> Dealer:
    """An `epoch.key` in the kit is the key of the only epoch of a federation in memory."""
    kit = endpoint.kit
    key = None if kit.file.durable else kit.take_epoch_key()
    return Dealer(
        kit.federation,
        endpoint.send,
        peer_loss=PeerLoss.of(kit.file.durable),
        max_batch=max(kit.file.max_batch, GATHERED_BEFORE_A_BATCH),
        make_key=fresh_key if key is None else lambda: key,
    )


def make_actor(endpoint: Endpoint, state: State | MemoryState) -> Actor:
    kit, many = endpoint.kit, endpoint.kit.file.max_batch
    loss, name_of = PeerLoss.of(kit.file.durable), kit.organisations.of
    return Actor(
        kit.federation,
        endpoint.send,
        endpoint.send_later,
        records=state.actor(),
        peer_loss=loss,
        max_batch=many,
        name_of=name_of,
    )


def make_rewarder(endpoint: Endpoint, state: State | MemoryState) -> JointRewarder:
    kit, many = endpoint.kit, endpoint.kit.file.max_batch
    loss, name_of = PeerLoss.of(kit.file.durable), kit.organisations.of
    return JointRewarder(
        kit.federation, endpoint.send, records=state.rewarder(), peer_loss=loss, max_batch=many, name_of=name_of
    )
