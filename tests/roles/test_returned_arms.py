"""The arms that the actor returns to the parties: kept before they are sent, sent until all keep them, one for each
mask; and what becomes of rewards meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party, small_federation, small_paper_federation

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, STEP_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_name, decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ClientError, DamagedStoreError, NoArmError
from hiddenarm.mpc.values import Shared
from hiddenarm.net.frames import Frame
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.client_records import ActorRecords, Deferral, MemoryActorRecords, Reply
from hiddenarm.roles.decision_records import DecidedRun
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import INITIAL, UNSPENT, Heard, Plan
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import (
    ACTOR,
    END_OF_ARMS,
    KEPT_AT_ONCE,
    Kind,
    ReturnedArms,
    arms_frame,
    arms_kept_frame,
    payloads_frame,
    read_arms,
    read_arms_kept,
)
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.store.contract import Change, Put
from hiddenarm.store.journal import DirectJournal, Then
from hiddenarm.store.memory import MemoryStore

ARMS = 3
FEDERATION = Federation(arms=ARMS, features=(2, 1), epsilon=0.1)
EARLIER, NOW = 76, 77
PARTIES = [party(0), party(1)]
PAIR = ProgramId(DECIDE, 2)


class LateJournal:
    """Commits when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.waiting: list[tuple[Sequence[Change], Then]] = []

    def append(self, changes: Sequence[Change], then: Then) -> None:
        self.waiting.append((changes, then))

    def sync(self) -> None:
        while self.waiting:
            changes, then = self.waiting.pop(0)
            self.store.commit(changes)
            then()


def nothing() -> None:
    return


def masked(program: ProgramId, first: int = 5) -> bytes:
    return np.arange(first, first + program.count * ARMS, dtype="<u8").tobytes()


def returned(program: ProgramId = DECIDE_ONE, step: int = 0, epoch: int = NOW, first: int = 5) -> ReturnedArms:
    return ReturnedArms(epoch, program, step, masked(program, first))


def decided(count: int) -> Decided:
    masks = [np.arange(count * ARMS, dtype=np.uint64).reshape(1, count, ARMS), np.zeros((1, count), np.uint64)]
    return Decided(None, Shared((count, ARMS), masks[0]), Shared((count,), masks[1]))


def keep(records: PartyRecords, program: ProgramId, step: int, epoch: int = NOW) -> None:
    features = np.zeros((1, program.count, 2), np.uint64)
    records.keep_decisions(DecidedRun(epoch, program, step, features, decided(program.count)), nothing)


def records_on(store: MemoryStore) -> PartyRecords:
    return PartyRecords(store, DirectJournal(store), FEDERATION, 0)


def arms_under_way(network: MemoryNetwork, number: int = 0) -> list[Frame]:
    return [frame for frame in network.links[ACTOR, party(number)] if frame is not None and frame.kind is Kind.ARMS]


# What a party writes down


class TestPartyRecords:
    @pytest.mark.parametrize("program", [DECIDE_ONE, STEP_ONE, PAIR], ids=lambda program: program.label)
    def test_they_come_back_with_their_decisions(self, program: ProgramId) -> None:
        store = MemoryStore()
        keep(records_on(store), program, 9)
        first = decision_name(NOW, decision_number(program, 9))
        kept = records_on(store).interaction(first)
        assert kept is not None
        assert kept.masked_arm is None
        assert records_on(store).keep_arms(returned(program, 9), nothing)
        for position in range(program.count):
            kept = records_on(store).interaction(first + position)
            assert kept is not None
            assert kept.masked_arm is not None
            assert kept.masked_arm.tolist() == [list(range(5 + 3 * position, 8 + 3 * position))]

    def test_single_decisions_and_steps_are_kept_apart(self) -> None:
        store = MemoryStore()
        records = records_on(store)
        keep(records, DECIDE_ONE, 4)
        keep(records, STEP_ONE, 4)
        records.keep_arms(returned(STEP_ONE, 4), nothing)
        again = records_on(store)
        assert again.committed.decisions == 2
        single, step = (again.interaction(decision_name(NOW, decision_number(p, 4))) for p in (DECIDE_ONE, STEP_ONE))
        assert single is not None
        assert step is not None
        assert single.masked_arm is None
        assert step.masked_arm is not None

    def test_the_same_again_is_kept_and_another_is_not(self) -> None:
        records, told = records_on(MemoryStore()), []
        for _ in range(2):
            assert records.keep_arms(returned(), lambda: told.append("lasts"))
        assert not records.keep_arms(returned(first=6), lambda: told.append("another"))
        assert told == ["lasts", "lasts"]

    def test_another_is_refused_before_the_first_lasts(self) -> None:
        store = MemoryStore()
        journal = LateJournal(store)
        records, told = PartyRecords(store, journal, FEDERATION, 0), []
        assert records.keep_arms(returned(), lambda: told.append("first"))
        assert not records.keep_arms(returned(first=6), lambda: told.append("another"))
        assert records.keep_arms(returned(), lambda: told.append("again"))
        assert not told
        journal.sync()
        assert told == ["first", "again"]

    def test_those_of_an_unknown_run_are_kept_too(self) -> None:
        """So that the actor may forget them."""
        records, told = records_on(MemoryStore()), []
        assert records.keep_arms(returned(), lambda: told.append("lasts"))
        assert told == ["lasts"]

    def test_a_party_that_has_lost_them_knows_from_the_actor(self) -> None:
        store = MemoryStore()
        records = records_on(store)
        keep(records, DECIDE_ONE, 0)
        name = returned().name
        assert not records.lacks(Heard(name))
        assert records.lacks(Heard(name, name))
        records.keep_arms(returned(), nothing)
        assert not records.lacks(Heard(name, name))

    def test_a_record_of_another_length_is_damaged(self) -> None:
        store = MemoryStore()
        keep(records_on(store), DECIDE_ONE, 0)
        store.commit([Put("arms", struct.pack(">QHQ", NOW, 1, 0), bytes(16))])
        with pytest.raises(DamagedStoreError, match="returned one-hots"):
            records_on(store).interaction(decision_name(NOW, 0))


# Whether a reward may be learned


class TestLedger:
    def ledger(self, store: MemoryStore | None = None) -> Ledger:
        records = MemoryPartyRecords(FEDERATION, 0) if store is None else records_on(store)
        return Ledger(records, Plan(2, NOW.to_bytes(6, "big"), INITIAL, 0), FEDERATION.policy, UNSPENT)

    def kept(self, ledger: Ledger, program: ProgramId) -> list[int]:
        ledger.keep(program, 0, np.zeros((1, program.count, 2), np.uint64), decided(program.count), nothing)
        return [decision_name(NOW, decision_number(program, 0, position)) for position in range(program.count)]

    @pytest.mark.parametrize("program", [DECIDE_ONE, STEP_ONE, PAIR], ids=lambda program: program.label)
    @pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
    def test_a_decision_of_this_epoch_waits_for_its_arm(self, program: ProgramId, store: MemoryStore | None) -> None:
        ledger = self.ledger(None if store is None else store.copy())
        names = self.kept(ledger, program)
        for _ in range(2):
            assert [ledger.awaits_arm(name) for name in names] == [True] * len(names)
            assert not any(name in ledger for name in names)
            ledger.end_arms()  # of other epochs, which says nothing of this one
        ledger.take_arms(returned(program), nothing)
        assert not any(ledger.awaits_arm(name) for name in names)
        assert all(name in ledger for name in names)
        del ledger[names[0]]
        assert names[0] not in ledger

    def test_a_decision_of_an_earlier_epoch_waits_until_all_were_sent(self) -> None:
        store = MemoryStore()
        keep(records_on(store), PAIR, 0, EARLIER)
        keep(records_on(store), DECIDE_ONE, 0, EARLIER)
        ledger = self.ledger(store)
        pair, single = (decision_name(EARLIER, decision_number(program, 0)) for program in (PAIR, DECIDE_ONE))
        assert ledger.awaits_arm(pair)
        ledger.take_arms(returned(PAIR, epoch=EARLIER), nothing)
        assert pair in ledger
        assert pair + 1 in ledger
        assert ledger.awaits_arm(single)
        ledger.end_arms()
        assert not ledger.awaits_arm(single)
        assert single not in ledger

    def test_an_unknown_decision_waits_for_nothing(self) -> None:
        ledger = self.ledger()
        assert not ledger.awaits_arm(decision_name(NOW, 5))
        ledger.take_arms(returned(step=5), nothing)
        assert decision_name(NOW, 5) not in ledger

    @pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
    def test_two_arms_for_one_decision_are_refused(self, store: MemoryStore | None) -> None:
        ledger = self.ledger(None if store is None else store.copy())
        self.kept(ledger, DECIDE_ONE)
        ledger.take_arms(returned(), nothing)
        ledger.take_arms(returned(), nothing)
        with pytest.raises(ClientError, match="two arms for one decision"):
            ledger.take_arms(returned(first=6), nothing)

    def test_a_decision_whose_one_hot_the_parties_share_is_complete(self) -> None:
        ledger = self.ledger()
        features, shared = np.zeros((1, 1, 2), np.uint64), decided(1)
        ledger.keep(DECIDE_ONE, 0, features, Decided.of_one_hots(None, shared.arm_mask, shared.reward_mask), nothing)
        assert decision_name(NOW, 0) in ledger


# What the actor writes down


class TestActorRecords:
    def test_they_are_kept_until_all_parties_keep_them(self) -> None:
        store = MemoryStore()
        records = ActorRecords(store, DirectJournal(store))
        all_of_them = [returned(), returned(STEP_ONE), returned(PAIR, 3)]
        for one in all_of_them:
            records.keep_arms(one, nothing)
        assert (
            ActorRecords(store, DirectJournal(store)).unkept
            == records.unkept
            == sorted(all_of_them, key=lambda one: one.name)
        )
        for _ in range(2):
            records.arms_kept(0, [one.name for one in all_of_them], 2)
        assert len(records.unkept) == 3
        records.arms_kept(1, [all_of_them[0].name, all_of_them[2].name], 2)
        again = ActorRecords(store, DirectJournal(store))
        assert again.unkept == records.unkept == [all_of_them[1]]
        again.arms_kept(0, [all_of_them[1].name], 2)
        assert again.unkept == [all_of_them[1]]  # who kept it is asked again after a crash
        again.arms_kept(1, [all_of_them[1].name, 12345], 2)
        assert not ActorRecords(store, DirectJournal(store)).unkept

    def test_what_is_forgotten_is_noted_with_who_keeps_it(self) -> None:
        store = MemoryStore()
        records = ActorRecords(store, DirectJournal(store))
        records.keep_arms(returned(), nothing)
        records.heard[0] = Heard(55)
        for number in (0, 1):
            records.arms_kept(number, [returned().name], 2)
        assert ActorRecords(store, DirectJournal(store)).heard == {
            0: Heard(55, returned().name),
            1: Heard(0, returned().name),
        }

    def test_they_may_be_sent_when_they_last(self) -> None:
        store = MemoryStore()
        journal = LateJournal(store)
        records, told = ActorRecords(store, journal), []
        records.keep_arms(returned(), lambda: told.append("arms"))
        reply = Reply("named", bytes(32), [Decision("id", 1)])
        records.answer([reply], lambda: told.append("reply"), returned(STEP_ONE))
        assert not told
        assert not records.unkept
        journal.sync()
        assert told == ["arms", "reply"]
        assert records.unkept == [returned(), returned(STEP_ONE)]
        assert ActorRecords(store, journal).unkept == records.unkept

    def test_notes_of_an_earlier_version_are_read(self) -> None:
        store = MemoryStore()
        old = struct.pack("<HQHQ", 0, NOW, 1, 12) + struct.pack("<HQHQ", 1, NOW, 4, 3)
        store.commit([Put("heard", b"", old)])
        four = decision_name(NOW, decision_number(ProgramId(DECIDE, 4), 3))
        assert ActorRecords(store, DirectJournal(store)).heard == {0: Heard(decision_name(NOW, 12)), 1: Heard(four)}

    def test_in_memory_nothing_is_kept(self) -> None:
        records, told = MemoryActorRecords(), []
        records.keep_arms(returned(), lambda: told.append("at once"))
        assert told == ["at once"]
        assert not records.unkept


# Between roles


def test_all_parties_are_returned_the_same_for_every_decision() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    number = network.ask(KEYS[0])
    while number not in network.decisions:
        network.deliver()
    frames = [arms_under_way(network, party.number)[-1] for party in PARTIES]
    assert frames[0] == frames[1]
    network.settle()
    kept = [epoch._interactions[network.name_of(network.decisions[number].id)] for epoch in network.epochs]
    one_hot = np.add.reduce([own.arm_share(place == 0) for place, own in enumerate(kept)])[0]
    assert one_hot.tolist() == [int(arm == network.decisions[number].arm) for arm in range(3)]


def test_a_reward_that_comes_before_the_arm_waits_for_it() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    number = network.ask(KEYS[0])
    while number not in network.decisions:
        network.deliver()
    lesson = network.teach(network.decisions[number].id, 1.0)
    while network.deliver(*(link for link in network.links if link[0] != ACTOR)):
        pass
    assert [network.version_at(0), network.version_at(1)] == [0, 0]
    network.settle()
    assert network.lessons[lesson] is None
    network.check_against_references()


def test_a_lesson_that_waits_for_an_arm_lets_no_other_pass() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    early, late = network.decide(KEYS[0]), network.ask(KEYS[1])
    while late not in network.decisions:
        network.deliver()
    network.teach(network.decisions[late].id, 1.0)
    network.teach(early.id, 0.0)
    while network.deliver(*(link for link in network.links if link[0] != ACTOR)):
        pass
    assert network.version_at(0) == 0
    network.settle()
    network.check_against_references()


def test_two_arms_for_one_decision_end_the_link_of_the_actor_only() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    number = network.ask(KEYS[0])
    while number not in network.decisions:
        network.deliver()
    frame = arms_under_way(network)[-1]
    network.settle()
    network.inject(ACTOR, party(0), frame)  # the same again is taken
    other = frame._replace(payload=frame.payload[:-1] + bytes([frame.payload[-1] ^ 1]))
    with pytest.raises(ClientError, match="two arms for one decision"):
        network.inject(ACTOR, party(0), other)
    network.reward(network.decisions[number].id, 1.0)
    network.check_against_references()


def test_the_suites_that_share_the_one_hot_return_nothing() -> None:
    for federation in (small_paper_federation(2), small_federation(2, arms=49)):
        network = MemoryNetwork(federation).start()
        number = network.ask(KEYS[0])
        while number not in network.decisions:
            network.deliver()
        assert not arms_under_way(network)
        network.settle()
        network.reward(network.decisions[number].id, 1.0)


class TestAcknowledging:
    def lasting(self) -> MemoryNetwork:
        return MemoryNetwork(small_federation(2), lasting=True).start()

    def kept_frames(self, network: MemoryNetwork) -> list[Frame]:
        return [frame for frame in network.links[party(0), ACTOR] if frame is not None and frame.kind is Kind.ARMS_KEPT]

    def test_it_is_done_when_there_is_nothing_else_to_do(self) -> None:
        network = self.lasting()
        decision = network.decide(KEYS[0])
        records = network.actor._records
        assert [one.name for one in records.unkept] == [network.name_of(decision.id)]
        network.wait(0.1)
        assert not records.unkept

    def test_many_are_named_together(self) -> None:
        network = self.lasting()
        for number in range(KEPT_AT_ONCE):
            assert not self.kept_frames(network)
            network.ask(KEYS[number % len(KEYS)])
            while not network.actor.idle or arms_under_way(network):
                network.deliver()
        (frame,) = self.kept_frames(network)
        assert len(read_arms_kept(frame)) == KEPT_AT_ONCE
        network.settle()
        assert not network.actor._records.unkept

    def test_in_memory_nobody_asks(self) -> None:
        network = MemoryNetwork(small_federation(2)).start()
        network.decide(KEYS[0])
        network.wait(0.1)
        assert not network.epoch(0)._arms_kept

    def test_what_was_never_sent_may_be_kept(self) -> None:
        network = self.lasting()
        network.inject(party(0), ACTOR, arms_kept_frame([decision_name(1, 2)]))
        assert network.actor._records.heard[0] == Heard(0, decision_name(1, 2))


# What the actor gives when there is no arm


def answer_of(network: MemoryNetwork, number: int, *words: int) -> None:
    """Have the parties answer such that these are the words of the arms."""
    shares = np.array([[7, 8, 9]], np.uint64)
    network.inject(party(0), ACTOR, payloads_frame(DECIDE_ONE, number, shares))
    network.inject(party(1), ACTOR, payloads_frame(DECIDE_ONE, number, shares ^ np.array([words], np.uint64)))


@pytest.mark.parametrize(("words", "text"), [((1, 2, 3), "no arm beats all"), ((0, 2, 0), "two arms look chosen")])
def test_no_arm_or_two_is_an_error_for_the_key_and_zeros_for_the_parties(words: tuple[int, ...], text: str) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    number = network.ask(KEYS[0])
    masks = network.asking._runs[DECIDE_ONE, number].masks
    assert masks is not None
    answer_of(network, number, *words)
    network._collect()
    error = network.refused[number]
    assert isinstance(error, NoArmError)
    assert text in str(error)
    assert error.key == KEYS[0]
    sent = read_arms(arms_under_way(network)[-1], ARMS)
    assert np.array_equal(sent.words[0], masks)


def test_the_arm_is_where_the_word_is_zero() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    for step, words in enumerate([(0, 1, 2), (1, 0, 2), (2**32 - 1, 1, 0)]):
        number = network.ask(KEYS[0])
        answer_of(network, number, *words)
        network._collect()
        assert network.decisions[number].arm == step


def test_a_named_request_gets_the_same_error_again() -> None:
    network = MemoryNetwork(small_federation(2), lasting=True).start()
    actor = network.actor
    ticket = actor.ask(*KEYS[:2], request="both")
    one, other = ProgramId(DECIDE, 2), np.array([[7, 8, 9], [1, 2, 3]], np.uint64)
    network.inject(party(0), ACTOR, payloads_frame(one, 0, other))
    network.inject(party(1), ACTOR, payloads_frame(one, 0, other ^ np.array([[0, 1, 1], [1, 1, 1]], np.uint64)))
    for _ in range(2):
        outcome = actor.outcomes.pop(ticket)
        assert isinstance(outcome, list)
        decision, error = outcome
        assert isinstance(decision, Decision)
        assert decision.arm == 0
        assert isinstance(error, NoArmError)
        assert not error.ambiguous
        assert KEYS[1] in str(error)
        ticket = actor.ask(*KEYS[:2], request="both")


# What comes first in an epoch


def test_the_end_of_arms_comes_before_anything_is_asked() -> None:
    network = MemoryNetwork(small_federation(2), lasting=True)
    while not network.actor.active:
        network.deliver()
    network.ask(KEYS[0])
    sent = [
        frame
        for frame in network.links[ACTOR, party(0)]
        if frame is not None and frame.kind in (Kind.ARMS, Kind.DECIDE)
    ]
    assert [frame.kind for frame in sent] == [Kind.ARMS, Kind.DECIDE]
    assert sent[0] == END_OF_ARMS
    assert arms_frame(returned()) != END_OF_ARMS


def find(actor: Actor, arms: ReturnedArms) -> None:
    """The actor has found arms, and hands them to its records."""
    actor._unwritten.add(arms.name)
    actor._records.keep_arms(arms, lambda: actor._arms_last(arms, nothing))


def test_the_end_of_arms_waits_until_all_of_earlier_epochs_last() -> None:
    """Otherwise the reward of an arm that is given meanwhile could come before the arm, and would be refused."""
    network = MemoryNetwork(small_federation(2)).start()
    store, sent = MemoryStore(), []
    journal = LateJournal(store)
    records = ActorRecords(store, journal)
    actor = Actor(FEDERATION, lambda _, frame: sent.append(frame), records=records, peer_loss=PeerLoss.ENDS_EPOCH)
    find(actor, returned(epoch=EARLIER))
    actor._active = True
    actor._start(Plan(2, NOW.to_bytes(6, "big"), INITIAL, 0), network.dealer._say(ACTOR))
    assert not sent
    find(actor, returned())  # of this epoch: it is not waited for
    changes, then = journal.waiting.pop(0)
    store.commit(changes)
    then()
    assert sent == [arms_frame(returned(epoch=EARLIER))] * 2 + [END_OF_ARMS] * 2
    journal.sync()
    assert sent[4:] == [arms_frame(returned())] * 2


def test_whether_a_decision_is_deferred_is_known_at_once_and_later_read_from_the_store() -> None:
    store = MemoryStore()
    journal = LateJournal(store)
    records = ActorRecords(store, journal)
    for number in range(50):
        records.ask(f"deferred {number}", bytes(32), nothing, deferred=True)
        records.ask(f"plain {number}", bytes(32), nothing)
        assert records.deferral(f"deferred {number}") is Deferral.WAITING
    journal.sync()
    records.activate("deferred 0", nothing)
    assert records.deferral("deferred 0") is Deferral.WAITING, "it does not last yet"
    journal.sync()
    for known in (records, ActorRecords(store, journal)):
        states = [known.deferral(request) for request in ("deferred 0", "deferred 1", "plain 0", "unknown")]
        assert states == [Deferral.ACTIVE, Deferral.WAITING, Deferral.NONE, Deferral.NONE]
    assert not records._deferring, "nothing is at hand of what lasts"
