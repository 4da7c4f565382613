"""Lessons that are begun before their reward is there: the rule that all parties follow, and what they do by it."""

from __future__ import annotations

import random

import pytest
from memory_network import KEYS, MemoryNetwork, party, small_federation, small_paper_federation

from hiddenarm.bandit.catalogue import LEARN_ONE, LEARN_ONE_AHEAD
from hiddenarm.errors import UnavailableError
from hiddenarm.net.frames import Kind
from hiddenarm.roles.foresight import Foresight
from hiddenarm.roles.messages import ACTOR, PROGRAM_NUMBERS, refused_frame
from hiddenarm.roles.party_epoch import LESSON_SECONDS

PARTIES = (2, 3, 5)
ROUNDS_WITHOUT_REWARD = 3


class TestTheRule:
    def test_the_first_single_decision_that_names_a_newer_version_is_fresh(self) -> None:
        foresight = Foresight(enabled=True)
        for version, decision in [(0, 10), (0, 11), (2, 12), (1, 13), (2, 14), (3, None), (3, 15), (4, 16)]:
            foresight.note_request(version, decision)
        fresh = {version: foresight.fresh_decision(version) for version in range(6)}
        assert fresh == {0: 10, 1: None, 2: 12, 3: None, 4: 16, 5: None}

    def test_it_is_promising_when_it_was_made_and_the_lesson_before_was_run_ahead(self) -> None:
        foresight = Foresight(enabled=True)
        foresight.note_request(0, 10)
        foresight.note_request(1, 11)
        foresight.note_decision(0, 10)
        assert foresight.promising_decision(0) is None  # nothing is known of the rewarder's habits
        foresight.forget(0)
        foresight.hopeful = True
        assert foresight.promising_decision(1) is None  # not made yet
        foresight.note_decision(1, 11)
        assert foresight.promising_decision(1) == 11
        foresight.forget(1)
        foresight.hopeful = False
        foresight.note_request(2, 12)
        foresight.note_decision(2, 12)
        assert foresight.promising_decision(2) is None

    def test_nothing_is_kept_of_what_is_over(self) -> None:
        foresight = Foresight(enabled=True)
        for version in range(100):
            foresight.note_request(version, version)
            foresight.note_decision(version, version)
            foresight.forget(version)
        assert not foresight._fresh
        assert not foresight._made

    def test_a_suite_that_cannot_run_ahead_has_no_fresh_decisions(self) -> None:
        foresight = Foresight(enabled=False)
        foresight.note_request(0, 10)
        assert foresight.fresh_decision(0) is None


def online(network: MemoryNetwork, steps: int) -> None:
    """Strictly online steps."""
    for step in range(steps):
        decision = network.decide(KEYS[step % len(KEYS)], after=len(network.taught))
        network.reward(decision.id, float(step % 2))


def rounds_ahead(network: MemoryNetwork, number: int, decision: int) -> int | None:
    """How many rounds a party has sent of the lesson of a decision whose reward is still to come."""
    active = network.epoch(number)._runs._runs.get((LEARN_ONE_AHEAD, decision))
    return None if active is None else active.evaluation.round + 1


@pytest.mark.parametrize("parties", PARTIES)
def test_three_rounds_are_run_before_the_reward_is_there(parties: int) -> None:
    network = MemoryNetwork(small_federation(parties)).start()
    online(network, 2)
    decision = network.decide(KEYS[5], after=2)
    number = int(decision.id.split("-")[1])
    assert [rounds_ahead(network, p, number) for p in range(parties)] == [ROUNDS_WITHOUT_REWARD] * parties
    assert not any(machine.busy for machine in network.parties)
    assert all(machine.vitals().waiting == 0 for machine in network.parties)
    network.reward(decision.id, 1.0)
    network.check_against_references()


def test_the_first_lesson_is_not_begun_before_its_reward() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    network.decide(KEYS[0])
    assert not any(machine._updater.runs_beside for machine in network.epochs)


@pytest.mark.parametrize("parties", PARTIES)
def test_what_was_begun_in_vain_is_dropped(parties: int) -> None:
    """The reward of another decision comes; that of the fresh one comes later, and is learned at its own number."""
    network = MemoryNetwork(small_federation(parties)).start()
    online(network, 2)
    fresh, other = network.decide(KEYS[5], after=2), network.decide(KEYS[6], after=2)
    assert all(machine._updater.runs_beside for machine in network.epochs)
    network.reward(other.id, 1.0)
    assert not any(machine._updater.runs_beside or machine._runs._runs for machine in network.epochs)
    network.reward(fresh.id, 0.5)
    network.check_against_references()
    online(network, 3)
    network.check_against_references()


@pytest.mark.parametrize("parties", PARTIES)
def test_a_party_that_has_not_begun_keeps_what_its_peers_send(parties: int) -> None:
    network = MemoryNetwork(small_federation(parties)).start()
    online(network, 2)
    network.epoch(0)._updater._foresight.hopeful = False
    decision = network.decide(KEYS[5], after=2)
    number = int(decision.id.split("-")[1])
    assert [rounds_ahead(network, p, number) for p in range(parties)] == [None] + [1] * (parties - 1)
    assert (LEARN_ONE_AHEAD, number) in network.epoch(0)._runs._early
    network.reward(decision.id, 1.0)
    network.check_against_references()


def test_a_request_does_not_wait_for_a_lesson_that_was_only_begun_ahead() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    decision = network.decide(KEYS[5], after=2)
    late = network.ask(KEYS[6], after=3)
    network.settle()
    network.wait(LESSON_SECONDS / 2)
    assert late not in network.refused
    network.wait(LESSON_SECONDS)
    assert isinstance(network.refused[late], UnavailableError)
    network.reward(decision.id, 1.0)
    online(network, 2)
    network.check_against_twin()


def test_a_refused_lesson_ends_what_was_begun_ahead_everywhere() -> None:
    network = MemoryNetwork(small_federation(3)).start()
    online(network, 2)
    decision = network.decide(KEYS[5], after=2)
    forgetful = network.epoch(1)
    del forgetful._interactions[network.name_of(decision.id)]
    lesson = network.teach(decision.id, 1.0)
    network.settle()
    assert network.lessons[lesson] is not None
    assert not any(machine._updater.runs_beside or machine._runs._runs for machine in network.epochs)
    for number in (0, 2):
        network.epoch(number)._interactions._at_hand.pop(network.name_of(decision.id), None)
    online(network, 3)
    network.check_against_twin()


def test_the_papers_suite_begins_nothing_before_its_reward() -> None:
    network = MemoryNetwork(small_paper_federation(2)).start()
    online(network, 2)
    network.decide(KEYS[5], after=2)
    assert not any(machine._updater.runs_beside for machine in network.epochs)


@pytest.mark.parametrize(("parties", "seeds"), [(2, 30), (3, 20), (5, 8)])
def test_habits_that_change_in_every_order_of_delivery(parties: int, seeds: int) -> None:
    """Mostly strictly online, asked for ahead or not, sometimes another reward first, or none: the model is that of the
    references bit for bit, and both things have happened that can happen to a lesson begun ahead."""
    used = vain = 0
    for seed in range(seeds):
        rng = random.Random(seed)
        network = MemoryNetwork(small_federation(parties), seed=seed, stock=rng.choice((2, 16))).start()
        unrewarded: list[str] = []
        for _ in range(12):
            number = network.ask(rng.choice(KEYS), after=len(network.taught))
            while number not in network.decisions:
                network.deliver()
            for _ in range(rng.randrange(4 * parties)):
                network.deliver()
            begun = [machine._updater.runs_beside for machine in network.epochs]
            unrewarded.append(network.decisions[number].id)
            choice = rng.random()
            if choice < 0.9:
                network.teach(unrewarded.pop(-1 if choice < 0.7 else 0), rng.random())
                used += any(begun) and choice < 0.7
                vain += any(begun) and choice >= 0.7 and len(unrewarded) > 0
        network.settle()
        network.check_against_references()
    assert min(used, vain) >= seeds // 5, (used, vain)


def test_rounds_of_a_lesson_that_is_over_are_of_no_use() -> None:
    """A peer may have sent them before it knew."""
    network = MemoryNetwork(small_federation(2)).start()
    sent = []
    link = network.links[party(0), party(1)]
    online(network, 2)
    fresh, other = network.ask(KEYS[5], after=2), network.ask(KEYS[6], after=2)
    while network.deliver():
        sent += [frame for frame in link if frame is not None and frame.program == PROGRAM_NUMBERS["learn ahead"]]
    network.reward(network.decisions[other].id, 1.0)
    late = next(frame for frame in sent if frame.kind is Kind.ROUND and frame.step == fresh)
    network.inject(party(0), party(1), late)
    assert not network.epoch(1)._runs._early


def test_nothing_is_kept_for_requests_that_come_after_their_lesson() -> None:
    """An actor that hears late of lessons names versions that are new to its parties' eyes, and over."""
    network = MemoryNetwork(small_federation(2)).start()
    decisions = [network.decide(KEYS[step]).id for step in range(8)]
    for version, decision in enumerate(decisions):
        lesson = network.teach(decision, 1.0)
        for number in range(2):
            while network.version_at(number) <= lesson:
                network.deliver(*(link for link in network.links if ACTOR not in link))
        network.asking._version = version
        network.ask(KEYS[version], after=version)
        network.settle()
    for machine in network.epochs:
        assert not machine._updater._foresight._fresh.keys() - {8}
        assert len(machine._updater._foresight._made) <= 1
        assert not machine._runs._early
    network.check_against_twin()


def test_a_lesson_that_a_peer_has_refused_is_not_begun() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    network.inject(party(1), party(0), refused_frame(LEARN_ONE, 2, "no"))
    network.decide(KEYS[5], after=2)
    assert [machine._updater.runs_beside for machine in network.epochs] == [False, True]
