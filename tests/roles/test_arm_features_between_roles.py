"""Arms that have features, between roles: the machines decide and learn as the plain twin does, and bit for bit as the
programs do in lockstep, whose views are tested (tests/bandit/test_views.py)."""

from __future__ import annotations

import random

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.roles.messages import END_OF_ARMS, Kind
from hiddenarm.roles.party import Party


def federation_of(arms: int, parties: int = 2, repair_every: int = 10_000) -> Federation:
    table = ArmTable.of(np.random.default_rng(arms).uniform(-0.6, 0.6, (arms, 3)))
    return Federation(arms, (2,) * parties, epsilon=0.25, repair_every=repair_every, arm_features=table)


def run_online(network: MemoryNetwork, steps: int) -> None:
    version, choice = 0, random.Random(network.seed)
    for _ in range(steps):
        decision = network.decide(choice.choice(KEYS), version)
        version = network.reward(decision.id, float(decision.arm % 2))


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize(("arms", "parties"), [(3, 2), (4, 3), (60, 2)])
def test_roles_decide_and_learn_as_the_twin_and_as_in_lockstep(arms: int, parties: int, lasting: bool) -> None:
    network = MemoryNetwork(federation_of(arms, parties), seed=arms, lasting=lasting).start()
    run_online(network, 25)
    network.check_against_references()
    assert len({decision.arm for decision in network.decisions.values()}) > 1


def test_repairs_between_roles_are_those_in_lockstep() -> None:
    network = MemoryNetwork(federation_of(3, repair_every=7), seed=6).start()
    run_online(network, 30)
    network.check_nothing_is_left()
    network.check_against_lockstep()


def test_a_schedule_of_epsilon_explores_as_its_twin() -> None:
    table = ArmTable.of([[0.5, 0.2], [0.1, 0.8], [-0.6, 0.3]])
    federation = Federation(3, (2, 2), EpsilonSchedule(1.0, 0.05, 6.0), arm_features=table)
    network = MemoryNetwork(federation, seed=3).start()
    run_online(network, 20)
    network.check_against_references()


def test_the_actor_returns_features_and_not_a_one_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many words as an arm has features, however many arms there are."""
    sizes, honest = set(), Party.on_frame

    def noting(machine: Party, identity: Identity, frame: Frame) -> None:
        if frame.kind is Kind.ARMS and frame != END_OF_ARMS:
            sizes.add(len(frame.payload))
        honest(machine, identity, frame)

    monkeypatch.setattr(Party, "on_frame", noting)
    for arms in (5, 30):
        run_online(MemoryNetwork(federation_of(arms), seed=1).start(), 3)
    assert len(sizes) == 1
    assert 8 * 3 <= sizes.pop() < 8 * 5
