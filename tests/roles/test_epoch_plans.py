"""Opening an epoch, by its parts: coming to one attempt, who is behind, and the plan that all compute."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from itertools import combinations
from unittest.mock import Mock

import pytest

from hiddenarm.bandit.decisions import decision_name
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.state import initial_state
from hiddenarm.errors import FrameError, PeerLost, UnavailableError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.actor import MAX_ASKED, Actor
from hiddenarm.roles.client_records import ActorRecords
from hiddenarm.roles.epochs.attempts import MAX_ATTEMPTS, Attempts, PeerLoss
from hiddenarm.roles.epochs.plan import (
    INITIAL,
    UNSPENT,
    CheckpointName,
    Committed,
    Heard,
    PartyStatement,
    Plan,
    RewarderStatement,
    Standing,
    find_behind,
    make_plan,
    plan_bytes,
    statement_bytes,
)
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import ACTOR, CLIENTS, DEALER, Kind
from hiddenarm.roles.party_epoch import Links, PartyEpoch, Setup
from hiddenarm.roles.runs import MAX_WAITING, Send
from hiddenarm.roles.supply import CompiledPrograms
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

NAME = bytes(range(6))
PARTIES = [Identity(Role.PARTY, number) for number in range(4)]
MEMBERS = [*PARTIES[:2], DEALER, *CLIENTS]
"""Of a federation of two parties."""
LOSS = PeerLoss.ENDS_EPOCH


def statement(lessons: int = 10, prepared: int = 3, activated: int = 3, **changes: object) -> PartyStatement:
    checkpoints = (CheckpointName(4, 2), CheckpointName(8, 3))
    noted = (Committed(0, 0), Committed(0, 0))
    plain = PartyStatement(prepared, activated, Committed(lessons, 20), checkpoints, noted)
    return replace(plain, **changes)  # type: ignore[arg-type]


# Statements and plans


def test_what_is_said_is_what_is_heard() -> None:
    said = statement(noted=(Committed(1, 2), Committed(3, 4)), consents=True)
    assert PartyStatement.decode(said.encode()) == said
    assert len(said.encode()) <= statement_bytes(2)
    plan = Plan(7, NAME, CheckpointName(8, 3), 10, True)
    assert Plan.decode(plan.encode()) == plan
    assert len(plan.encode()) == plan_bytes()
    assert plan.named == int(NAME.hex(), 16)
    assert RewarderStatement.decode(RewarderStatement(5, 4, True).encode()) == RewarderStatement(5, 4, True)
    assert Committed.decode(Committed(5, 4).encode()) == Committed(5, 4)
    assert Standing.decode(Standing(5, 4, 3).encode()) == Standing(5, 4, 3)
    heard = Heard(decision_name(2**48 - 1, 256), decision_name(3, 2**40))
    assert Heard.decode(heard.encode()) == heard
    assert Heard.decode(Heard(0).encode()) == Heard(0, 0)


def test_a_message_of_another_length_is_refused() -> None:
    messages: list[PartyStatement | Plan | RewarderStatement | Committed | Standing | Heard] = [
        statement(),
        Plan(7, NAME, INITIAL, 0),
        RewarderStatement(5, 4),
        Committed(1, 1),
        Standing(1, 2, 3),
        Heard(1, 2),
    ]
    for message in messages:
        whole = message.encode()
        for wrong in (b"", whole[:-1], whole + b"\0"):
            with pytest.raises(FrameError, match=r"wrong length|ledger in a party's statement"):
                type(message).decode(wrong)


def test_the_plan_is_the_shortest_log_and_the_newest_checkpoint_of_all() -> None:
    one, other = statement(lessons=10), statement(lessons=12, prepared=5)
    assert make_plan(NAME, [one, other]) == Plan(6, NAME, CheckpointName(8, 3), 10)
    assert make_plan(NAME, [statement(lessons=7), other]) == Plan(6, NAME, CheckpointName(4, 2), 7)


def test_checkpoints_of_one_version_from_two_epochs_do_not_go_together() -> None:
    one = statement(checkpoints=(CheckpointName(8, 3),))
    other = statement(checkpoints=(CheckpointName(8, 4),))
    assert make_plan(NAME, [one, other]).checkpoint == INITIAL


# Who is behind


def behind(*parties: PartyStatement, made: int = 20, kept: int = 0, consents: bool = False) -> list[str]:
    return [role for role, _ in find_behind(parties, RewarderStatement(made, kept, consents))]


def test_nobody_is_behind_for_what_a_crash_can_do() -> None:
    assert behind(statement(), statement()) == []
    assert behind(statement(prepared=4), statement(lessons=14)) == []
    assert behind(statement(prepared=4, activated=4), statement(prepared=4, activated=3)) == []


def test_who_has_lost_state_is_named() -> None:
    told = (Committed(0, 0), Committed(11, 0))
    decided = (Committed(0, 0), Committed(0, 21))
    assert behind(statement(prepared=4, activated=4), statement()) == ["party 1"]
    assert behind(statement(noted=told), statement()) == ["party 1"]
    assert behind(statement(noted=decided), statement()) == ["party 1"]
    assert behind(statement(), statement(lessons=12), kept=11) == ["party 0"]
    assert behind(statement(), statement(), made=9) == ["rewarder"]
    assert behind(statement(), statement(lessons=14), made=12) == ["rewarder"]


def test_consent_of_one_is_not_enough_and_the_rewarder_needs_its_own() -> None:
    new, old = statement(prepared=4, activated=4), statement()
    agreeing = [replace(party, consents=True) for party in (new, old)]
    assert behind(agreeing[0], old) == ["party 1"]
    assert behind(*agreeing) == []
    assert behind(*agreeing, made=9) == ["rewarder"]
    assert behind(*agreeing, made=9, consents=True) == []
    assert make_plan(NAME, agreeing).recovers
    assert not make_plan(NAME, [agreeing[0], old]).recovers


# Attempts


class Net:
    """Roles that only count attempts, and links that keep their order."""

    def __init__(self, seed: int, loss: PeerLoss = LOSS) -> None:
        self.random = random.Random(seed)
        self.loss = loss
        self.links: dict[tuple[Identity, Identity], deque[Frame | None]] = {}
        self.roles = {me: self._role(me) for me in MEMBERS}

    def _role(self, me: Identity) -> Attempts:
        def send(to: Identity, frame: Frame) -> None:
            self.links[me, to].append(frame)

        return Attempts(me, 2, self.loss, send, lambda: None, lambda peer: str(me).encode())

    def connect(self, one: Identity, other: Identity) -> None:
        self.links[one, other], self.links[other, one] = deque(), deque()
        self.roles[one].on_ready(other)
        self.roles[other].on_ready(one)

    def cut(self, one: Identity, other: Identity) -> None:
        for link in ((one, other), (other, one)):
            del self.links[link]
        self.roles[one].on_lost(other, "cut")
        self.roles[other].on_lost(one, "cut")

    def settle(self) -> None:
        for _ in range(10_000):
            waiting = [link for link, queue in self.links.items() if queue]
            if not waiting:
                return
            sender, receiver = self.random.choice(waiting)
            frame = self.links[sender, receiver].popleft()
            assert frame is not None
            self.roles[receiver].on_open(sender, frame)
        raise AssertionError("attempts go on for ever")


@pytest.mark.parametrize("seed", range(20))
def test_all_come_to_one_attempt_whatever_the_order(seed: int) -> None:
    net = Net(seed)
    pairs = [pair for pair in combinations(MEMBERS, 2) if set(pair) != set(CLIENTS)]
    net.random.shuffle(pairs)
    for one, other in pairs:
        assert not all(role.complete for role in net.roles.values())
        net.connect(one, other)
        if net.random.random() < 0.5:
            net.settle()
    net.settle()
    assert all(role.complete for role in net.roles.values())
    number = {role.number for role in net.roles.values()}
    assert len(number) == 1
    net.cut(PARTIES[0], PARTIES[1])
    net.settle()
    assert not any(net.roles[cut_off].complete for cut_off in PARTIES[:2])
    assert net.roles[PARTIES[0]].missing == [PARTIES[1]]
    net.connect(PARTIES[0], PARTIES[1])
    net.settle()
    assert all(role.complete for role in net.roles.values())
    assert min(role.number for role in net.roles.values()) > max(number)


@pytest.mark.parametrize("seed", range(20))
def test_where_a_loss_ends_the_federation_clients_follow_whenever_they_come(seed: int) -> None:
    """Parties and dealer come to one attempt without them, and do not move on for them."""
    net = Net(seed, PeerLoss.ENDS_FEDERATION)
    pairs = [pair for pair in combinations(MEMBERS, 2) if set(pair) != set(CLIENTS)]
    net.random.shuffle(pairs)
    servers = [pair for pair in pairs if not set(pair) & set(CLIENTS)]
    early = net.random.randrange(len(pairs))
    for one, other in [*pairs[:early], *(pair for pair in servers if pair not in pairs[:early])]:
        net.connect(one, other)
        if net.random.random() < 0.5:
            net.settle()
    net.settle()
    number = {net.roles[member].number for member in (*PARTIES[:2], DEALER)}
    assert len(number) == 1
    assert all(net.roles[member].complete for member in (*PARTIES[:2], DEALER))
    for one, other in pairs[early:]:
        if (one, other) not in net.links:
            net.connect(one, other)
    net.settle()
    assert all(role.complete for role in net.roles.values())
    assert {role.number for role in net.roles.values()} == number
    net.roles[PARTIES[0]].on_lost(ACTOR, "gone")
    assert net.roles[PARTIES[0]].complete
    for peer in (PARTIES[1], DEALER):
        with pytest.raises(PeerLost, match=f"{peer} is gone: cut"):
            net.roles[PARTIES[0]].on_lost(peer, "cut")
    with pytest.raises(PeerLost, match="party 0 has left: done"):
        net.roles[ACTOR].on_lost(PARTIES[0], "done", graceful=True)


def attempts_of_party_1(send: Send) -> Attempts:
    return Attempts(PARTIES[1], 3, LOSS, send, lambda: None, lambda _: b"mine")


def test_a_peer_is_current_only_after_it_has_opened_this_attempt() -> None:
    sent: list[Frame] = []
    role = attempts_of_party_1(lambda _, frame: sent.append(frame))
    role.on_ready(PARTIES[0])
    assert [frame.step for frame in sent] == [1]
    role.on_open(PARTIES[0], Frame(Kind.OPEN, step=1, payload=b"theirs"))
    assert role.is_current(PARTIES[0])
    role.on_ready(PARTIES[2])
    assert not role.is_current(PARTIES[0])
    role.on_open(PARTIES[0], Frame(Kind.OPEN, step=1))
    assert not role.is_current(PARTIES[0])
    role.on_open(PARTIES[0], Frame(Kind.OPEN, step=9, payload=b"later"))
    assert role.number == 9
    assert role.said == {PARTIES[0]: b"later"}
    assert [frame.step for frame in sent] == [1, 2, 2, 9, 9]


@pytest.mark.parametrize("step", [0, MAX_ATTEMPTS])
def test_an_attempt_that_cannot_be_is_refused(step: int) -> None:
    role = attempts_of_party_1(lambda *_: None)
    role.on_ready(PARTIES[0])
    with pytest.raises(FrameError, match="cannot be"):
        role.on_open(PARTIES[0], Frame(Kind.OPEN, step=step))


def test_an_attempt_is_opened_once() -> None:
    role = attempts_of_party_1(lambda *_: None)
    role.on_ready(PARTIES[0])
    role.on_open(PARTIES[0], Frame(Kind.OPEN, step=1))
    with pytest.raises(FrameError, match="twice"):
        role.on_open(PARTIES[0], Frame(Kind.OPEN, step=1))


# What piles up while nobody answers


def test_an_actor_keeps_no_more_requests_than_the_parties_take() -> None:
    store = MemoryStore()
    records = ActorRecords(store, DirectJournal(store))
    actor = Actor(Federation(arms=2, features=(1, 1), epsilon=0.1), lambda *_: None, records=records, peer_loss=LOSS)
    for number in range(MAX_ASKED):
        actor.ask("user", request=f"request {number}")
    assert actor.ask("user", request="request 3") == MAX_ASKED
    with pytest.raises(UnavailableError, match="wait already"):
        actor.ask("user", request="one more")


def opened(federation: Federation) -> PartyEpoch:
    """An epoch of party 0, in which nothing has happened."""
    setup = Setup(federation, 0, Mock(), 8, 2, 256, True, 0, CompiledPrograms(federation, 0), lambda: 0.0)
    records = MemoryPartyRecords(federation, 0)
    links = Links(lambda *_: None, lambda *_: None, lambda *_: None)
    return PartyEpoch(
        setup, links, Ledger(records, Plan(1, NAME, INITIAL, 0), federation.policy, UNSPENT), named=1, present=()
    )


def test_lessons_learned_again_do_not_count_among_those_that_may_wait() -> None:
    federation = Federation(arms=2, features=(1, 1), epsilon=0.1)
    party = opened(federation)
    again = [Lesson(number, [(number, 0)], logged=True) for number in range(300)]
    state = LearnedState(0, initial_state(federation.learner.arrays, 0))
    party.resume(state, [], again)
    for number in range(300, 300 + MAX_WAITING):
        party._updater.receive(Lesson(number, [(number, 0)]))
    with pytest.raises(FrameError, match="lessons waiting"):
        party._updater.receive(Lesson(300 + MAX_WAITING, [(1, 0)]))


def test_two_peers_may_refuse_all_lessons_that_wait() -> None:
    party = opened(Federation(arms=2, features=(1, 1, 1), epsilon=0.1))
    for peer in PARTIES[1:3]:
        for number in range(MAX_WAITING):
            party._updater.refused_by_peer(peer, number, "unknown")
    with pytest.raises(FrameError, match="refusals ahead"):
        party._updater.refused_by_peer(PARTIES[1], MAX_WAITING, "unknown")
