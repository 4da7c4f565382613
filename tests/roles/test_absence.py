"""How soon a client whose state lasts says who is gone: a moment after an epoch, later before the first one."""

from __future__ import annotations

import pytest
from memory_network import party, small_federation

from hiddenarm.errors import FrameError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.client import RECONNECT_SECONDS, START_SECONDS, Client
from hiddenarm.roles.client_records import ActorRecords, RewarderRecords
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import INITIAL, Plan, Standing, decode_members, encode_members
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER, Kind, seed_payload
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

PARTIES = [party(0), party(1)]
LOSS = PeerLoss.ENDS_EPOCH


class World:
    """A client whose peers are played by the test, and a clock that the test sets."""

    def __init__(self, client: Identity) -> None:
        self.now = 1000.0
        self.client = client
        self.machine = self._machine()

    def _machine(self) -> Client:
        store = MemoryStore()
        journal, federation = DirectJournal(store), small_federation(2)
        machine: Client
        if self.client == ACTOR:
            machine = Actor(federation, self._send, records=ActorRecords(store, journal), peer_loss=LOSS)
        else:
            machine = Rewarder(federation, self._send, records=RewarderRecords(store, journal), peer_loss=LOSS)
        machine._clock = lambda: self.now
        machine._absent_since = self.now
        return machine

    def _send(self, identity: Identity, frame: Frame) -> None:
        pass

    def meet(self, *peers: Identity) -> None:
        for peer in peers:
            self.machine.on_ready(peer)

    def open(self, *missing: Identity) -> None:
        """All peers come to the next attempt; the parties say who is missing, and open an epoch if nobody is."""
        attempt = self.machine._attempts.number + 1
        for peer in PARTIES:
            self.machine.on_frame(peer, Frame(Kind.OPEN, step=attempt, payload=self._statement(missing)))
        name = attempt.to_bytes(6, "big")
        seed = seed_payload(name.hex(), bytes(32), bytes(32))
        self.machine.on_frame(DEALER, Frame(Kind.OPEN, step=attempt, payload=seed))
        if not missing:
            for peer in PARTIES:
                self.machine.on_frame(peer, Frame(Kind.ACTIVE, payload=Plan(attempt, name, INITIAL, 0).encode()))

    def _statement(self, missing: tuple[Identity, ...]) -> bytes:
        return encode_members(missing) if self.client == ACTOR else Standing(0, 0, 0, missing=missing).encode()

    @property
    def gone(self) -> list[Identity]:
        return self.machine.gone


@pytest.fixture(params=[ACTOR, REWARDER], ids=str)
def world(request: pytest.FixtureRequest) -> World:
    world = World(request.param)
    world.meet(*PARTIES, DEALER)
    return world


def other(world: World) -> Identity:
    return REWARDER if world.client == ACTOR else ACTOR


def test_nobody_is_gone_while_an_epoch_is_open(world: World) -> None:
    world.open()
    assert world.machine.active
    world.machine.on_lost(DEALER, "away", False)  # what it dealt is in stock
    world.now += 100
    assert world.machine.active
    assert world.gone == world.machine.absent == []


def test_a_peer_that_was_lost_is_gone_after_a_moment(world: World) -> None:
    world.open()
    world.now += 100
    world.machine.on_lost(party(1), "gone", False)
    assert world.gone == []
    world.now += RECONNECT_SECONDS
    assert world.gone == [party(1)]
    world.meet(party(1))
    assert world.gone == []


def test_a_role_to_which_there_is_no_link_is_named_by_the_parties(world: World) -> None:
    """The moment is counted once, however many attempts there are meanwhile."""
    world.open()
    world.now += 100
    for _ in range(4):
        world.open(other(world))
        assert world.gone == []
        world.now += RECONNECT_SECONDS / 4
    assert world.gone == [other(world)]
    world.open()
    assert world.machine.active
    assert world.gone == []


class Vanishing(dict[Identity, bytes]):
    """What was said, by peers that say something else as soon as one of them is looked for."""

    def __contains__(self, peer: object) -> bool:
        found = super().__contains__(peer)
        self.clear()
        return found


def test_who_is_gone_may_be_asked_while_the_loop_goes_on_in_another_thread(world: World) -> None:
    """Queues of requests ask so: an attempt may begin, and an absence end, between any two looks."""
    machine = world.machine
    world.open(other(world))
    world.now += START_SECONDS
    machine._attempts.said = Vanishing(machine._attempts.said)
    assert world.gone == [other(world)]

    def clock() -> float:
        machine._absent_since = None
        return world.now

    machine._clock = clock
    assert world.gone == [other(world)]
    assert world.gone == []


def test_before_the_first_epoch_roles_may_take_longer_to_start(world: World) -> None:
    world.open(other(world))
    world.now += START_SECONDS - 1
    assert world.gone == []
    assert world.machine.absent == [other(world)]
    world.now += 1
    assert world.gone == [other(world)]


@pytest.mark.parametrize("patience", [RECONNECT_SECONDS, START_SECONDS])
def test_who_was_gone_long_ago_gets_time_for_one_more_connection(world: World, patience: float) -> None:
    if patience == RECONNECT_SECONDS:
        world.open()
    world.open(other(world))
    world.now += 1000
    assert world.gone == [other(world)]
    world.machine.doubt_absence()
    assert world.gone == []
    world.now += RECONNECT_SECONDS
    assert world.gone == [other(world)]


def test_members_travel_as_bytes() -> None:
    members = (party(0), party(70), DEALER, ACTOR, REWARDER)
    assert decode_members(encode_members(members)) == members
    assert decode_members(b"") == ()
    for broken in (encode_members(members)[:-1], bytes([len(Role), 0, 0])):
        with pytest.raises(FrameError, match="wrong length"):
            decode_members(broken)
