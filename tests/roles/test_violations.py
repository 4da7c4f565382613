"""A peer that breaks the protocol is met with a typed error that says what it did, never with a bare exception."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_network import EPOCH_KEY, KEYS, Machine, MemoryNetwork, party, small_federation

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, LEARN, LEARN_ONE, ProgramId, program_text
from hiddenarm.bandit.decisions import decision_name
from hiddenarm.errors import (
    ClientError,
    FrameError,
    HiddenArmError,
    PeerError,
    PeerLost,
    ProtocolError,
    UnavailableError,
)
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.dealer import MAX_BATCH, Dealer
from hiddenarm.roles.epochs.attempts import MAX_ATTEMPTS
from hiddenarm.roles.epochs.plan import RewarderStatement
from hiddenarm.roles.messages import (
    ACTOR,
    CLIENTS,
    DEALER,
    PROGRAM_NUMBERS,
    REWARDER,
    Kind,
    ReturnedArms,
    Unlearning,
    arms_frame,
    decide_frame,
    learned_frame,
    payloads_frame,
    refused_frame,
    reward_frame,
    unlearn_frame,
    want_frame,
)
from hiddenarm.roles.party import Party
from hiddenarm.roles.runs import MAX_WAITING

ALLOWED = {
    (Role.PARTY, Role.PARTY): {Kind.ROUND, Kind.REFUSED, Kind.OPEN, Kind.PREPARED},
    (Role.DEALER, Role.PARTY): {Kind.CORRECTIONS, Kind.OPEN},
    (Role.ACTOR, Role.PARTY): {Kind.DECIDE, Kind.ARMS},
    (Role.REWARDER, Role.PARTY): {Kind.REWARD, Kind.UNLEARN},
    (Role.PARTY, Role.ACTOR): {Kind.PAYLOADS, Kind.ARMS_KEPT, Kind.LEARNED, Kind.REFUSED, Kind.OPEN, Kind.ACTIVE},
    (Role.DEALER, Role.ACTOR): {Kind.OPEN},
    (Role.PARTY, Role.REWARDER): {Kind.LEARNED, Kind.REFUSED, Kind.OPEN, Kind.ACTIVE},
    (Role.DEALER, Role.REWARDER): {Kind.OPEN},
    (Role.PARTY, Role.DEALER): {Kind.WANT, Kind.OPEN},
    (Role.ACTOR, Role.DEALER): set(),
    (Role.REWARDER, Role.DEALER): set(),
}
LAST = party(1)


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(small_federation(2)).start()


def answer(step: int, *shares: int) -> Frame:
    """What a party answers about a decision, for each arm."""
    return payloads_frame(DECIDE_ONE, step, np.array([shares], np.uint64))


def at_round(network: MemoryNetwork) -> Frame:
    """Ask for a decision and hold party 0's first round for party 1, which has begun."""
    network.ask(KEYS[0])
    to_party_1 = network.links[party(0), party(1)]
    held: list[Frame | None] = []
    while not held or network.round_at(1, 0) is None:
        network.deliver()
        held.extend(to_party_1)
        to_party_1.clear()
    first = held[0]
    assert first is not None
    return first


@pytest.mark.parametrize("pair", ALLOWED, ids=lambda pair: f"{pair[0]} to {pair[1]}")
def test_kinds_that_a_role_may_not_send(network: MemoryNetwork, pair: tuple[Role, Role]) -> None:
    sender, receiver = Identity(pair[0]), Identity(pair[1])
    if sender == receiver:
        sender = LAST
    for kind in set(Kind) - ALLOWED[pair]:
        with pytest.raises(FrameError, match=f"{sender} may not send {kind.name}"):
            network.inject(sender, receiver, Frame(kind, 1, 0, 0, bytes(16)))


def test_only_the_last_party_may_order_material(network: MemoryNetwork) -> None:
    with pytest.raises(FrameError, match="party 0 may not send WANT"):
        network.inject(party(0), DEALER, want_frame(DECIDE_ONE, 1000, 1))


def attempt_of(network: MemoryNetwork, receiver: Identity) -> int:
    machine: Any = network.machines[receiver]
    number: int = machine._attempts.number
    return number


@pytest.mark.parametrize("receiver", [party(0), LAST, ACTOR, REWARDER], ids=str)
def test_a_second_seed(network: MemoryNetwork, receiver: Identity) -> None:
    """In the attempt that is an open epoch, or in another one, which would end the epoch."""
    number = attempt_of(network, receiver)
    with pytest.raises(FrameError, match=f"dealer opened attempt {number} twice"):
        network.inject(DEALER, receiver, Frame(Kind.OPEN, step=number, payload=bytes(38)))
    with pytest.raises(PeerLost, match="another epoch was begun, and this federation has one"):
        network.inject(DEALER, receiver, Frame(Kind.OPEN, step=number + 1, payload=bytes(38)))


@pytest.mark.parametrize("receiver", [party(0), ACTOR, REWARDER], ids=str)
@pytest.mark.parametrize("size", [0, 6, 37, 39])
def test_a_seed_of_the_wrong_length(receiver: Identity, size: int) -> None:
    network = MemoryNetwork(small_federation(2))
    link = network.links[DEALER, receiver]

    def settle() -> None:
        while network.deliver():
            for at, frame in enumerate(link):
                if frame is not None and frame.kind is Kind.OPEN:
                    link[at] = frame._replace(payload=bytes(size))

    with pytest.raises(FrameError, match=f"{size} bytes"):
        settle()


def test_a_role_that_comes_back_gets_no_second_seed(network: MemoryNetwork) -> None:
    with pytest.raises(PeerLost, match="party 0 came back"):
        network.dealer.on_ready(party(0))


class TestRounds:
    @pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda _: b""])
    def test_wrong_length(self, network: MemoryNetwork, change: Callable[[bytes], bytes]) -> None:
        frame = at_round(network)
        with pytest.raises(FrameError, match=r"party 0 sent \d+ bytes in a round that takes"):
            network.inject(party(0), LAST, frame._replace(payload=change(frame.payload)))

    def test_the_same_round_again_while_it_waits(self) -> None:
        network = MemoryNetwork(small_federation(3)).start()
        frame = at_round(network)
        network.inject(party(0), party(1), frame)
        with pytest.raises(FrameError, match="party 0 sent round 0 of decide 0 twice"):
            network.inject(party(0), party(1), frame)

    def test_the_same_round_again_after_it_was_used(self, network: MemoryNetwork) -> None:
        frame = at_round(network)
        network.inject(party(0), LAST, frame)
        while network.round_at(1, 0) == 0:
            network.deliver()
        with pytest.raises(FrameError, match="party 0 sent round 0 of decide 0 twice"):
            network.inject(party(0), LAST, frame)

    def test_the_same_round_again_before_the_run_begins(self, network: MemoryNetwork) -> None:
        frame = Frame(Kind.ROUND, PROGRAM_NUMBERS[LEARN], 0, 0, b"")
        network.inject(party(0), LAST, frame)
        with pytest.raises(FrameError, match="twice"):
            network.inject(party(0), LAST, frame)

    @pytest.mark.parametrize("program", [DECIDE, LEARN])
    def test_a_round_that_the_program_does_not_have(self, network: MemoryNetwork, program: str) -> None:
        with pytest.raises(FrameError, match=f"round 5 of {program}"):
            network.inject(party(0), LAST, Frame(Kind.ROUND, PROGRAM_NUMBERS[program], 5, 0, b""))

    def test_too_many_runs_ahead(self, network: MemoryNetwork) -> None:
        for step in range(MAX_WAITING):
            network.inject(party(0), LAST, Frame(Kind.ROUND, 1, 0, step, b""))
        with pytest.raises(FrameError, match="party 0 is more than 1024 runs ahead"):
            network.inject(party(0), LAST, Frame(Kind.ROUND, 1, 0, MAX_WAITING, b""))

    @pytest.mark.parametrize("program", [DECIDE_ONE, LEARN_ONE], ids=lambda program: program.name)
    def test_too_many_refusals_ahead(self, network: MemoryNetwork, program: ProgramId) -> None:
        for step in range(MAX_WAITING):
            network.inject(party(0), LAST, refused_frame(program, step, "no"))
        with pytest.raises(FrameError, match="party 0 is more than 1024 refusals ahead"):
            network.inject(party(0), LAST, refused_frame(program, MAX_WAITING, "no"))


@pytest.mark.parametrize(
    ("sender", "receiver", "frame"),
    [
        (party(0), LAST, Frame(Kind.ROUND, 99, 0, 0, b"")),
        (party(0), LAST, Frame(Kind.REFUSED, 0, 0, 0, b"")),
        (LAST, DEALER, Frame(Kind.WANT, 77, 0, 0, bytes(4))),
        (DEALER, LAST, Frame(Kind.CORRECTIONS, 88, 0, 0, bytes(8))),
    ],
    ids=lambda value: getattr(getattr(value, "kind", None), "name", ""),
)
def test_a_program_that_nobody_knows(
    network: MemoryNetwork, sender: Identity, receiver: Identity, frame: Frame
) -> None:
    with pytest.raises(FrameError, match=f"no program has number {frame.program}"):
        network.inject(sender, receiver, frame)


class TestRequests:
    @pytest.mark.parametrize("number", [1, 5, 2**40])
    def test_a_decision_number_is_skipped(self, network: MemoryNetwork, number: int) -> None:
        with pytest.raises(FrameError, match=f"decision {number} where 0 was due"):
            network.inject(ACTOR, party(0), decide_frame(DECIDE_ONE, number, 0, ["k"]))

    def test_a_decision_number_is_repeated(self, network: MemoryNetwork) -> None:
        network.decide(KEYS[0])
        with pytest.raises(FrameError, match="decision 0 where 1 was due"):
            network.inject(ACTOR, party(0), decide_frame(DECIDE_ONE, 0, 0, KEYS[:1]))

    def test_a_lesson_number_is_skipped(self, network: MemoryNetwork) -> None:
        with pytest.raises(FrameError, match="lesson 1 where 0 was due"):
            network.inject(REWARDER, party(0), reward_frame(1, (0, 0)))

    @pytest.mark.parametrize("payload", [b"", bytes(8), bytes(8) + b"k" * 513, bytes(8) + b"\xff\xfe"])
    def test_a_decide_frame_that_is_none(self, network: MemoryNetwork, payload: bytes) -> None:
        with pytest.raises(FrameError, match="DECIDE"):
            network.inject(ACTOR, party(0), Frame(Kind.DECIDE, 1, 0, 0, payload))

    @pytest.mark.parametrize("size", [0, 15, 17])
    def test_a_reward_frame_that_is_none(self, network: MemoryNetwork, size: int) -> None:
        with pytest.raises(FrameError, match="REWARD"):
            network.inject(REWARDER, party(0), Frame(Kind.REWARD, 2, 0, 0, bytes(size)))

    def test_too_many_decisions_at_once(self, network: MemoryNetwork) -> None:
        """All of them wait for a lesson."""
        for number in range(MAX_WAITING):
            network.inject(ACTOR, party(0), decide_frame(DECIDE_ONE, number, 1, ["k"]))
        with pytest.raises(FrameError, match="more than 1024 requests waiting"):
            network.inject(ACTOR, party(0), decide_frame(DECIDE_ONE, MAX_WAITING, 1, ["k"]))

    def test_too_many_lessons_at_once(self, network: MemoryNetwork) -> None:
        """The first one is under way, and party 1 does not answer."""
        rewarded = network.name_of(network.decide(KEYS[0]).id)
        for number in range(MAX_WAITING):
            network.inject(REWARDER, party(0), reward_frame(number, (rewarded, 0)))
        with pytest.raises(FrameError, match="more than 1024 lessons waiting"):
            network.inject(REWARDER, party(0), reward_frame(MAX_WAITING, (rewarded, 0)))

    def test_a_client_that_has_not_met_everybody_waits(self) -> None:
        """The actor asks when it has; the rewarder cannot mask anything before."""
        network = MemoryNetwork(small_federation(2))
        ticket = network.actor.ask(KEYS[0])
        with pytest.raises(UnavailableError, match="no epoch has opened"):
            network.rewarder.teach(("0" * 12 + "-000000-" + "0" * 16, 1.0))
        network.collecting = False
        network.settle()
        assert isinstance(network.actor.outcomes[ticket], list)

    @pytest.mark.parametrize(
        "frame", [decide_frame(DECIDE_ONE, 0, 0, ["k"]), reward_frame(0, (0, 0))], ids=["DECIDE", "REWARD"]
    )
    def test_a_client_that_does_not_wait(self, frame: Frame) -> None:
        network = MemoryNetwork(small_federation(2))
        client = ACTOR if frame.kind is Kind.DECIDE else REWARDER
        with pytest.raises(ClientError, match=f"{client} sent {frame.kind.name} before this party was active"):
            network.inject(client, party(0), frame)


class TestCorrections:
    def columns(self, network: MemoryNetwork) -> int:
        text = program_text(network.federation, DECIDE_ONE)
        return layout_of(text, network.federation.parties, 1).correction_words

    @pytest.mark.parametrize("step", [0, 7, 8, 2**40])
    def test_not_asked_for(self, network: MemoryNetwork, step: int) -> None:
        rows = bytes(8 * self.columns(network))
        with pytest.raises(FrameError, match="not asked for"):
            network.inject(DEALER, LAST, Frame(Kind.CORRECTIONS, 1, 0, step, rows))

    @pytest.mark.parametrize("size", [0, 1, 7, 8, 1001])
    def test_of_the_wrong_length(self, network: MemoryNetwork, size: int) -> None:
        with pytest.raises(FrameError, match="not asked for"):
            network.inject(DEALER, LAST, Frame(Kind.CORRECTIONS, 1, 0, 0, bytes(size)))

    def test_to_a_party_that_needs_none(self, network: MemoryNetwork) -> None:
        rows = bytes(8 * self.columns(network))
        with pytest.raises(FrameError, match="not asked for"):
            network.inject(DEALER, party(0), Frame(Kind.CORRECTIONS, 1, 0, 0, rows))

    @pytest.mark.parametrize("count", [0, MAX_BATCH + 1, 2**32 - 1])
    def test_an_order_of_no_or_too_many_steps(self, network: MemoryNetwork, count: int) -> None:
        with pytest.raises(FrameError, match=f"party 1 asked for {count} steps"):
            network.inject(LAST, DEALER, want_frame(DECIDE_ONE, 100, count))

    def test_an_order_of_steps_that_were_dealt(self, network: MemoryNetwork) -> None:
        with pytest.raises(ProtocolError, match="handed out before"):
            network.inject(LAST, DEALER, want_frame(DECIDE_ONE, 0, 1))

    def test_an_order_of_the_wrong_length(self, network: MemoryNetwork) -> None:
        with pytest.raises(FrameError, match="WANT"):
            network.inject(LAST, DEALER, Frame(Kind.WANT, 1, 0, 0, bytes(3)))


class TestAnswers:
    def test_an_answer_that_nobody_asked_for(self, network: MemoryNetwork) -> None:
        with pytest.raises(FrameError, match="decision 0, which does not wait"):
            network.inject(party(0), ACTOR, answer(0, 1, 2, 3))

    def test_an_answer_that_comes_twice(self, network: MemoryNetwork) -> None:
        number = network.ask(KEYS[0])
        network.inject(party(0), ACTOR, answer(number, 1, 2, 3))
        with pytest.raises(FrameError, match="party 0 reported decision 0"):
            network.inject(party(0), ACTOR, answer(number, 1, 2, 3))

    @pytest.mark.parametrize("payload", [b"", bytes(11), bytes(13), bytes(24)])
    def test_an_answer_of_the_wrong_length(self, network: MemoryNetwork, payload: bytes) -> None:
        number = network.ask(KEYS[0])
        with pytest.raises(FrameError, match="PAYLOADS"):
            network.inject(party(0), ACTOR, answer(number, 1, 2, 3)._replace(payload=payload))

    def test_an_answer_of_one_hots(self, network: MemoryNetwork) -> None:
        number = network.ask(KEYS[0])
        with pytest.raises(FrameError, match="may not send ONE_HOT"):
            network.inject(party(0), ACTOR, answer(number, 1, 2, 3)._replace(kind=Kind.ONE_HOT))

    @pytest.mark.parametrize("frame", [learned_frame(2**63), learned_frame(0)._replace(payload=b"!")])
    def test_a_lesson_learned_that_cannot_be(self, network: MemoryNetwork, frame: Frame) -> None:
        with pytest.raises(FrameError, match="LEARNED"):
            network.inject(party(0), ACTOR, frame)

    @pytest.mark.parametrize("frame", [learned_frame(0), refused_frame(LEARN_ONE, 0, "no")])
    def test_a_lesson_that_nobody_taught(self, network: MemoryNetwork, frame: Frame) -> None:
        with pytest.raises(FrameError, match="lesson 0, which does not wait"):
            network.inject(party(0), REWARDER, frame)

    @pytest.mark.parametrize("refuser", [0, 1])
    def test_parties_that_disagree_on_a_lesson(self, network: MemoryNetwork, refuser: int) -> None:
        decision = network.decide(KEYS[0])
        lesson = network.teach(decision.id, 1.0)
        replies = [learned_frame(lesson), learned_frame(lesson)]
        replies[refuser] = refused_frame(LEARN_ONE, lesson, "no")
        network.inject(party(0), REWARDER, replies[0])
        with pytest.raises(PeerError, match="do not agree on lesson 0"):
            network.inject(party(1), REWARDER, replies[1])

    def test_a_refusal_is_shown_without_what_could_harm_a_terminal(self, network: MemoryNetwork) -> None:
        number = network.ask(KEYS[0])
        network.inject(party(0), ACTOR, Frame(Kind.REFUSED, 1, 0, number, b"\0\0\x1b[2Jno\r\n\xff such key"))
        (ticket,) = network.asked
        assert network.asked[ticket] == number
        shown = str(network.actor.outcomes[ticket])
        assert shown.isprintable()
        assert "such key" in shown


@pytest.mark.parametrize("me", [party(0), LAST, DEALER, ACTOR, REWARDER], ids=str)
@pytest.mark.parametrize("graceful", [False, True])
def test_who_leaves_and_who_is_lost(network: MemoryNetwork, me: Identity, graceful: bool) -> None:
    """Whoever is lost is named; a client that is ends nothing. A goodbye ends parties and dealer in peace; the
    rewarder's ends nothing."""
    machine: Machine = network.machines[me]
    peers = [other for other in network.machines if other != me and {other, me} != {ACTOR, REWARDER}]
    for peer in peers:
        if graceful and me.role in (Role.PARTY, Role.DEALER):
            network = MemoryNetwork(small_federation(2)).start()
            machine = network.machines[me]
            machine.on_lost(peer, "done", True)
            ends = peer != REWARDER if me.role is Role.PARTY else peer.role is Role.PARTY
            assert machine.finished is ends
        elif peer in CLIENTS:
            machine.on_lost(peer, "why", graceful)
            assert machine.finished is False
        else:
            with pytest.raises(PeerLost, match=f"{peer} .*: why"):
                machine.on_lost(peer, "why", graceful)


def test_the_rewarder_may_leave_while_lessons_are_under_way(network: MemoryNetwork) -> None:
    """Nobody is told, nothing breaks, and all parties learn the same."""
    decision = network.decide(KEYS[0])
    network.teach(decision.id, 1.0)
    network.teach(network.id_of(9), 1.0)
    while any(network.links[REWARDER, party(number)] for number in range(2)):
        network.deliver()
    for number in range(2):
        network.part(number, REWARDER)
    network.settle()
    assert [network.version_at(number) for number in range(2)] == [2, 2]
    network.decide(KEYS[1], after=2)


FRAMES = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.integers(0, 255) | st.sampled_from([1, 2]),
    st.integers(0, 6),
    st.integers(0, 3) | st.sampled_from([2**62, 2**64 - 1]),
    st.binary(max_size=64) | st.integers(0, 400).map(lambda count: struct.pack("<Q", count) * 2),
)
NO_NUMBER = 0x1000 << 48
"""Names no decision: it was made among some arms, of no context."""
BAD_FRAMES = [
    (ACTOR, decide_frame(DECIDE_ONE, 7, 0, ["k"])),
    (ACTOR, decide_frame(ProgramId(DECIDE, 257), 0, 0, ["k"] * 257)),
    (ACTOR, Frame(Kind.DECIDE, 1, 0, 0, bytes(8) + b"\xff\xfe")),
    (ACTOR, Frame(Kind.DECIDE, 99, 0, 0, bytes(8))),
    (ACTOR, reward_frame(0, (0, 0))),
    (ACTOR, Frame(Kind.OPEN, step=1)),
    (REWARDER, reward_frame(7, (0, 0))),
    (REWARDER, Frame(Kind.REWARD, 2, 0, 0, bytes(15))),
    (REWARDER, decide_frame(DECIDE_ONE, 0, 0, ["k"])),
    (REWARDER, Frame(Kind.PREPARED)),
    (REWARDER, reward_frame(0, (NO_NUMBER, 0))),
    (REWARDER, unlearn_frame(0, Unlearning(NO_NUMBER))),
    (ACTOR, arms_frame(ReturnedArms(0, ProgramId(DECIDE, 2), 2**32, bytes(8 * 2 * small_federation(2).arms)))),
]


@pytest.mark.parametrize(("client", "frame"), BAD_FRAMES, ids=lambda value: str(value))
@pytest.mark.parametrize("victims", [(0,), (1,), (0, 1)], ids=str)
def test_a_client_that_errs_ends_its_own_link_and_nothing_else(
    network: MemoryNetwork, client: Identity, frame: Frame, victims: tuple[int, ...]
) -> None:
    """One party has got the bad frame, or all: what was asked for before is done, and the other client goes on."""
    rewarded, left = network.decide(KEYS[0]), network.decide(KEYS[1])
    network.teach(rewarded.id, 1.0)
    asked = network.ask(KEYS[2])
    for number in victims:
        with pytest.raises(ClientError):
            network.inject(client, party(number), frame)
    for machine in (party(0), party(1), DEALER):
        network.lose(machine, client)
    network.settle()
    if client == ACTOR:
        assert network.reward(left.id, 1.0) == 2
    else:
        assert network.decide(KEYS[3], after=network.version_at(0))
        assert asked in network.decisions
    servers: list[Party | Dealer] = [*network.parties, network.dealer]
    assert not any(machine.finished for machine in servers)


@pytest.mark.parametrize("number", [2**47, 2 << 48 | 2**47], ids=["alone", "of two"])
def test_a_decision_that_was_never_made_can_be_dropped_and_takes_no_room(number: int) -> None:
    """However large its number is."""
    network = MemoryNetwork(small_federation(2), lasting=True).start()
    frame = unlearn_frame(0, Unlearning(decision_name(5, number)))
    for receiver in (party(0), LAST):
        network.inject(REWARDER, receiver, frame)
    assert [network.version_at(number) for number in range(2)] == [1, 1]


@pytest.mark.parametrize("client", [ACTOR, REWARDER], ids=str)
@pytest.mark.parametrize("kind", [Kind.DECIDE, Kind.REWARD, Kind.WANT, Kind.OPEN])
def test_a_client_that_errs_does_not_end_the_dealer(network: MemoryNetwork, client: Identity, kind: Kind) -> None:
    with pytest.raises(ClientError, match=f"{client} may not send {kind.name}"):
        network.inject(client, DEALER, Frame(kind, 1, 0, 0, bytes(16)))


HEARD_OF_NONE = struct.pack("<QQQQ", 0, 0, 1, NO_NUMBER)
BAD_STATEMENTS = [(ACTOR, b"!"), (ACTOR, HEARD_OF_NONE), (REWARDER, b""), (REWARDER, b"!")]


@pytest.mark.parametrize(("client", "payload"), BAD_STATEMENTS, ids=lambda value: str(value)[:10])
def test_a_client_that_says_nonsense_when_an_epoch_is_opened_ends_its_own_link(
    client: Identity, payload: bytes
) -> None:
    network = MemoryNetwork(small_federation(2), lasting=True).start()
    for number in range(2):
        attempt = attempt_of(network, party(number)) + 1
        with pytest.raises(ClientError):
            network.inject(client, party(number), Frame(Kind.OPEN, step=attempt, payload=payload))


@pytest.mark.parametrize("client", [ACTOR, REWARDER], ids=str)
def test_a_client_leads_nobody_to_where_attempts_end(client: Identity) -> None:
    """Who follows it counts on, and is no client."""
    network = MemoryNetwork(small_federation(2), lasting=True).start()
    network.dealer._make_key = fresh_key
    made = RewarderStatement(0, 0).encode() if client == REWARDER else b""
    for receiver in (party(0), LAST):
        with pytest.raises(ClientError, match="cannot be"):
            network.inject(client, receiver, Frame(Kind.OPEN, step=MAX_ATTEMPTS - 1, payload=made))
    network.inject(client, party(0), Frame(Kind.OPEN, step=2**32, payload=made))
    network.lose(party(0), client)
    network.settle()
    assert attempt_of(network, LAST) == 2**32 + 1


@settings(max_examples=150)
@given(data=st.data())
def test_whatever_a_client_sends_the_error_is_its_own(data: st.DataObject) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    network.decide(KEYS[0])
    network.ask(KEYS[1])
    for _ in range(data.draw(st.integers(0, 20))):
        network.deliver()
    client, receiver = data.draw(st.sampled_from([ACTOR, REWARDER])), data.draw(st.sampled_from([party(0), LAST]))
    for _ in range(4):
        with suppress(ClientError):
            network.inject(client, receiver, data.draw(FRAMES))
        network.machines[receiver].on_idle()


@settings(max_examples=150)
@given(data=st.data())
def test_random_frames_meet_typed_errors_only(data: st.DataObject) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    network.ask(KEYS[0])
    links = sorted(network.links)
    for _ in range(data.draw(st.integers(0, 40))):
        network.deliver()
    for _ in range(4):
        sender, receiver = data.draw(st.sampled_from(links))
        said = offend(network, sender, receiver, data.draw(FRAMES))
        if said is not None:
            assert said
            assert EPOCH_KEY.hex() not in said
            return


def offend(network: MemoryNetwork, sender: Identity, receiver: Identity, frame: Frame) -> str | None:
    """Hand a machine a frame; what it complained of, if it did. Only typed errors are complaints."""
    try:
        network.inject(sender, receiver, frame)
        network.settle()
    except HiddenArmError as error:
        return str(error)
    return None


def test_too_many_refused_lessons_ahead(network: MemoryNetwork) -> None:
    for lesson in range(MAX_WAITING):
        network.inject(party(0), LAST, refused_frame(LEARN_ONE, lesson, "no"))
    with pytest.raises(FrameError, match="party 0 is more than 1024 refusals ahead"):
        network.inject(party(0), LAST, refused_frame(LEARN_ONE, MAX_WAITING, "no"))


@pytest.mark.parametrize(
    "frame",
    [
        decide_frame(ProgramId(DECIDE, 257), 0, 0, ["k"] * 257),
        reward_frame(0, *[(number, 0) for number in range(257)]),
    ],
    ids=["DECIDE", "REWARD"],
)
def test_a_batch_beyond_the_limit(network: MemoryNetwork, frame: Frame) -> None:
    sender = ACTOR if frame.kind is Kind.DECIDE else REWARDER
    with pytest.raises(FrameError, match="257 at once; the limit is 256"):
        network.inject(sender, party(0), frame)
