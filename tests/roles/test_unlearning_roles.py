"""Unlearning between roles: who may ask, what becomes of it, and what parties refuse."""

from __future__ import annotations

import random

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party, small_federation, small_paper_federation
from test_batched_lessons import UNIT, Class

from hiddenarm.bandit.decisions import decision_name
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ClientError, DecisionIdError, InputError, UnavailableError
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.roles.client_records import MadeLesson, RewarderRecords
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import REWARDER, Unlearning, read_unlearn, unlearn_frame
from hiddenarm.roles.retention import NOT_KEPT, NOT_LEARNED, UNLEARNED_BEFORE, WAS_TAUGHT
from hiddenarm.roles.updater import Lesson
from hiddenarm.store.contract import Put
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

BOTH = pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "lasting"])


class Forgetful(Class):
    """A class that unlearns, and remembers what is left."""

    def unlearn(self, decision: Decision) -> int:
        with self.network.handouts:
            lesson = self.network.rewarder.unlearn(decision.id)
        self.network.settle()
        assert self.network.rewarder.has_ended(lesson)
        self.network.rewarder.check_learned(lesson)
        return lesson + 1

    def forget(self, decision: Decision, reward: float) -> None:
        self.unlearn(decision)
        self.lessons.remove((self.keys[decision.id], decision.arm, reward))


def room(lasting: bool = False, parties: int = 2, **numbers: int) -> Forgetful:
    return Forgetful(MemoryNetwork(small_federation(parties, **numbers), lasting=lasting).start())


@BOTH
@pytest.mark.parametrize("parties", [2, 3])
def test_single_lessons_and_batches_are_unlearned_in_any_order(lasting: bool, parties: int) -> None:
    draw, own = random.Random(parties), room(lasting, parties, repair_every=5)
    held: list[tuple[Decision, float]] = []
    for _ in range(8):
        decisions = own.decide(*draw.sample(KEYS, draw.choice((1, 1, 3))))
        rewards = [(decision, draw.random()) for decision in decisions]
        own.reward(*rewards)
        held += rewards
        if draw.random() < 0.6:
            own.forget(*held.pop(draw.randrange(len(held))))
            own.check_model(UNIT)
    for decision, reward in list(held):
        own.forget(decision, reward)
    own.check_model(UNIT)
    _, weights = own.network.shared_model()
    assert np.abs(weights).max() == 0


@BOTH
def test_a_decision_is_unlearned_once_and_the_answer_is_the_same(lasting: bool) -> None:
    own = room(lasting)
    (decision,) = own.decide(KEYS[0])
    own.reward((decision, 1.0))
    first = own.unlearn(decision)
    assert own.unlearn(decision) == first == 2
    with pytest.raises(DecisionIdError, match="was unlearned"):
        own.reward((decision, 1.0))
    own.lessons.clear()
    own.check_model(UNIT)


@BOTH
def test_a_pending_decision_is_dropped_with_the_run_of_step_that_waits_for_it(lasting: bool) -> None:
    own = room(lasting)
    pending, other = own.decide(KEYS[0])[0], own.decide(KEYS[1])[0]
    assert own.unlearn(pending) == 1
    with pytest.raises(DecisionIdError, match="was unlearned"):
        own.reward((pending, 1.0))
    own.reward((other, 1.0))
    own.check_model(UNIT)
    assert [epoch.health().pending for epoch in own.network.epochs] == [0, 0]


@BOTH
def test_room_is_made_in_a_model_that_is_full(lasting: bool) -> None:
    own = room(lasting, max_interactions=2)
    decisions = [own.decide(key)[0] for key in KEYS[:3]]
    own.reward((decisions[0], 1.0), (decisions[1], 0.0))
    own.forget(decisions[0], 1.0)
    own.reward((decisions[2], 1.0))
    own.check_model(UNIT)


def test_an_unlearning_may_be_asked_for_before_its_lesson_has_ended() -> None:
    """It is behind it in the rewarder's order."""
    own = room(lasting=True)
    (decision,) = own.decide(KEYS[0])
    with own.network.handouts:
        own.network.rewarder.teach((decision.id, 1.0))
        lesson = own.network.rewarder.unlearn(decision.id)
    own.network.settle()
    own.network.rewarder.check_learned(lesson)
    own.check_model(UNIT)


def test_what_was_never_made_or_never_learned_is_refused_by_name() -> None:
    own = room(lasting=True, max_interactions=1)
    first, second = own.decide(KEYS[0])[0], own.decide(KEYS[1])[0]
    own.reward((first, 1.0))
    with pytest.raises(DecisionIdError, match="max_interactions"):
        own.reward((second, 1.0))
    with pytest.raises(DecisionIdError, match="was not learned: refused by party"):
        own.unlearn(second)
    with pytest.raises(DecisionIdError, match="never made"):
        own.network.rewarder.unlearn(f"{first.id[:-16]}{'0' * 16}")
    with pytest.raises(DecisionIdError, match="not the id"):
        own.network.rewarder.unlearn("17")


def test_slots_are_sent_first() -> None:
    federation = Federation(arms=3, features=(2, 2), epsilon=0.25, reward_slot=10)
    own = Forgetful(MemoryNetwork(federation).start())
    (decision,) = own.decide(KEYS[0])
    with pytest.raises(UnavailableError, match="with its slot; ask again after that"):
        own.unlearn(decision)


@pytest.mark.parametrize(
    ("federation", "why"),
    [
        (small_paper_federation(2), "keeps no sums"),
        (Federation(arms=3, features=(2, 2), epsilon=0.25, privacy=NoisySums(1.0)), "sums are noisy"),
    ],
    ids=["paper", "noisy"],
)
def test_where_it_cannot_be_done_rewarder_and_parties_refuse(federation: Federation, why: str) -> None:
    own = Forgetful(MemoryNetwork(federation).start())
    (decision,) = own.decide(KEYS[0])
    with pytest.raises(InputError, match=why):
        own.unlearn(decision)
    with pytest.raises(ClientError, match="where there is none"):
        own.network.inject(REWARDER, party(0), unlearn_frame(0, Unlearning(0)))


@BOTH
@pytest.mark.parametrize("case", ["twice", "another lesson", "as if it had no reward"])
def test_parties_refuse_what_a_rewarder_should_not_ask_for(lasting: bool, case: str) -> None:
    """All of them alike, and the federation goes on."""
    own = room(lasting)
    decisions = [own.decide(key)[0] for key in KEYS[:2]]
    for decision in decisions:
        own.reward((decision, 1.0))
    name = own.network.rewarder._name_of(decisions[0].id)
    match case:
        case "twice":
            own.forget(decisions[0], 1.0)
            bad, why = Unlearning(name, 0), UNLEARNED_BEFORE if lasting else NOT_KEPT
        case "another lesson":
            bad, why = Unlearning(name, 1), NOT_LEARNED if lasting else NOT_KEPT
        case _:
            bad, why = Unlearning(name), WAS_TAUGHT
    for epoch in own.network.epochs:
        assert epoch._updater._ledger.why_not_unlearned(bad) == why
    for number in range(2):
        own.network.epoch(number)._updater.receive(
            Lesson(own.network.epoch(number)._updater.taught, [], unlearning=bad)
        )
    before = own.network.epoch(0)._updater.version
    for epoch in own.network.epochs:
        epoch._interactions.lesson_ended = lambda ended, then: None  # type: ignore[method-assign]
        epoch._learn()
    own.network.settle()
    assert [epoch._updater.version for epoch in own.network.epochs] == [before + 1] * 2
    own.check_model(UNIT)


def test_a_party_that_no_longer_has_it_refuses_for_all() -> None:
    own = room()
    (decision,) = own.decide(KEYS[0])
    own.reward((decision, 1.0))
    records = own.network.party(1).records
    assert isinstance(records, MemoryPartyRecords)
    records._retained.clear()
    with pytest.raises(DecisionIdError, match=f"refused by party .*: {NOT_KEPT}"):
        own.unlearn(decision)
    own.check_model(UNIT)
    own.reward((own.decide(KEYS[1])[0], 1.0))
    own.check_model(UNIT)


def test_a_lesson_to_come_cannot_be_unlearned() -> None:
    own = room()
    with pytest.raises(ClientError, match="still to come"):
        own.network.inject(REWARDER, party(0), unlearn_frame(0, Unlearning(0, 0)))
    assert read_unlearn(unlearn_frame(3, Unlearning(5, 1))) == Unlearning(5, 1)


def test_no_word_is_handed_out_twice() -> None:
    own = room(repair_every=4)
    for key in KEYS[:6]:
        (decision,) = own.decide(key)
        own.reward((decision, 1.0))
        own.forget(decision, 1.0)
        own.reward(*((decision, 0.5) for decision in own.decide(*KEYS[6:8])))
    own.check_model(UNIT)
    assert {"unlearn", "invert boosted", "invert", "invert last", "gather 2"} <= own.network.handouts.dealt


def test_a_rewarder_finds_every_unlearning_again_and_has_a_bit_of_it_at_hand() -> None:
    """Where decisions expire, most of all may be dropped."""
    store, count = MemoryStore(), 2000
    records = RewarderRecords(store, DirectJournal(store))
    for number in range(count):
        records.make(MadeLesson("", [], Unlearning(decision_name(7, 3 * number))), lambda: None)
        assert records.unlearned_by(decision_name(7, 3 * number)) == number
        if number < count - 2:
            records.end(number, "", lambda: None)
    earlier = MemoryStore()
    for area in ("lesson", "kept"):
        earlier.commit([Put(area, key, payload) for key, payload in store.items(area)])
    of_earlier = RewarderRecords(earlier, DirectJournal(earlier))
    for found in (records, RewarderRecords(store, DirectJournal(store)), of_earlier):
        for number in (0, count // 2, count - 3, count - 1):
            assert found.unlearned_by(decision_name(7, 3 * number)) == number
            assert found.unlearned_by(decision_name(7, 3 * number + 1)) is None
        assert len(found._unlearned._pages) < count / 100
