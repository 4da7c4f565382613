"""Whatever the order in which the links deliver, the same decisions are made and the same model is learned."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, small_federation, small_paper_federation

from hiddenarm.bandit.federation import Federation

PARTIES = (2, 3, 5)


@dataclass
class FreeRun:
    network: MemoryNetwork
    most_in_flight: int = 0


def free_run(federation: Federation, seed: int, actions: int = 20) -> FreeRun:
    """Ask and reward at random moments, before earlier answers are there; a third of the rewards never come."""
    rng = random.Random(seed)
    network = MemoryNetwork(federation, seed=seed, stock=rng.choice((1, 2, 5, 16))).start()
    run, parties = FreeRun(network), federation.parties
    rewardable: list[str] = []
    seen: set[int] = set()
    pace = 0.12 / (parties * (parties - 1))
    while actions:
        for number in sorted(network.decisions.keys() - seen):
            seen.add(number)
            if rng.random() < 0.67:
                rewardable.append(network.decisions[number].id)
        choice = rng.random()
        if choice < pace:
            network.ask(rng.choice(KEYS))
            actions -= 1
        elif choice < 2 * pace and rewardable:
            network.teach(rewardable.pop(rng.randrange(len(rewardable))), rng.choice((0.0, 1.0, 0.25, rng.random())))
            actions -= 1
        else:
            network.deliver()
        run.most_in_flight = max(run.most_in_flight, len(network.versions) - len(network.decisions))
    network.settle()
    return run


@pytest.mark.parametrize(("parties", "seeds"), [(2, 40), (3, 24), (5, 12)])
def test_any_interleaving_agrees_with_the_references(parties: int, seeds: int) -> None:
    in_flight = out_of_order = never = 0
    for seed in range(seeds):
        run = free_run(small_federation(parties), seed)
        network = run.network
        assert not network.refused
        assert all(error is None for error in network.lessons.values())
        network.check_against_references()
        taught = [taught.decision for taught in network.taught]
        in_flight += run.most_in_flight > 1
        out_of_order += taught != sorted(taught)
        never += len(network.learned()) < len(network.decisions)
    assert min(in_flight, out_of_order, never) > seeds // 5, (in_flight, out_of_order, never)


@pytest.mark.parametrize(("parties", "seeds"), [(2, 10), (3, 6)])
def test_any_interleaving_of_the_papers_suite_agrees_with_lockstep(parties: int, seeds: int) -> None:
    """Bit for bit. Among three and more parties rounding breaks ties, so the plain twin judges two only."""
    for seed in range(seeds):
        network = free_run(small_paper_federation(parties), seed).network
        assert not network.refused
        assert all(error is None for error in network.lessons.values())
        network.check_nothing_is_left()
        network.check_against_lockstep()
        if parties == 2:
            network.check_against_twin()


@pytest.mark.parametrize("parties", PARTIES)
def test_several_decisions_and_lessons_at_once_end_alike_in_every_order(parties: int) -> None:
    """The clients act before anything is delivered, so versions are fixed and all runs must agree bit for bit."""

    def run(seed: int) -> tuple[list[int], tuple[np.ndarray, np.ndarray]]:
        network = MemoryNetwork(small_federation(parties), seed=seed).start()
        for key in KEYS[:4]:
            network.ask(key)
        network.settle()
        for number in (2, 0, 3):
            network.teach(network.decisions[number].id, number / 3)
        for key in KEYS[4:8]:
            network.ask(key)
        network.settle()
        for number in (7, 1):
            network.teach(network.decisions[number].id, 1.0)
        network.ask(KEYS[0], after=3)
        network.settle()
        network.check_against_references()
        return [network.decisions[number].arm for number in range(9)], network.shared_model()

    arms, (inverses, weights) = run(0)
    for seed in range(1, 8):
        other_arms, (other_inverses, other_weights) = run(seed)
        assert other_arms == arms
        assert np.array_equal(other_inverses, inverses)
        assert np.array_equal(other_weights, weights)


@pytest.mark.parametrize("parties", PARTIES)
def test_a_request_may_be_a_lesson_ahead(parties: int) -> None:
    """It waits at each party for the lesson, whichever link is quicker, and is decided by the model that holds it."""
    overtaken = 0
    for seed in range(12):
        network = MemoryNetwork(small_federation(parties), seed=seed).start()
        asked = [network.ask(KEYS[0]), network.ask(KEYS[1], after=1)]
        for step in range(6):
            while asked[step] not in network.decisions:
                network.deliver()
                overtaken += any(any(network.waiting_at(number)) for number in range(parties))
            assert network.versions[asked[step]] == step
            lesson = network.teach(network.decisions[asked[step]].id, float(step % 2))
            asked.append(network.ask(KEYS[(step + 2) % len(KEYS)], after=lesson + 2))
        network.settle()
        assert asked[-1] not in network.decisions, "its lesson was never taught"
        network.teach(network.decisions[asked[-2]].id, 1.0)
        network.settle()
        assert not network.refused
        network.check_against_references()
    assert overtaken


@pytest.mark.parametrize("parties", PARTIES)
def test_clients_may_act_while_the_others_still_meet(parties: int) -> None:
    """Parties that are not all connected yet, or have no material yet, keep requests until they can run them."""
    for seed in range(12):
        network = MemoryNetwork(small_federation(parties), seed=seed)
        while not network.actor.active:
            network.deliver()
        for key in KEYS[:3]:
            network.ask(key)
        network.settle()
        assert len(network.decisions) == 3
        network.check_against_references()


def test_a_decision_waits_for_the_lessons_it_wants() -> None:
    """The version the rewarder reported is good everywhere, before the actor has heard of it."""
    for seed in range(12):
        network = MemoryNetwork(small_federation(3), seed=seed).start()
        decision = network.decide(KEYS[0])
        lesson = network.teach(decision.id, 1.0)
        while lesson not in network.lessons:
            network.deliver()
        number = network.ask(KEYS[0], after=lesson + 1)
        network.settle()
        assert network.versions[number] == 1
        network.check_against_references()


def test_many_more_steps_than_the_stock_holds() -> None:
    network = MemoryNetwork(small_federation(2), stock=3).start()
    for step in range(40):
        decision = network.decide(KEYS[step])
        network.reward(decision.id, step % 2)
    network.check_against_references()


def test_a_decision_is_made_with_the_version_it_names_however_late_it_runs() -> None:
    """Two decisions of different versions in flight: the older weights are still there."""
    network = MemoryNetwork(small_federation(2)).start()
    decision = network.decide(KEYS[0])
    network.ask(KEYS[1])
    network.teach(decision.id, 1.0)
    network.settle()
    network.ask(KEYS[2])
    network.settle()
    assert list(network.versions.values()) == [0, 0, 1]
    network.check_against_references()
