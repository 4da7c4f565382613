"""Decisions that get no reward: they expire, at all parties alike, and are learned with the reward that was agreed for
them, or dropped. Rewards that come in time are sent when they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party, user_contexts

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ConfigError, DecisionIdError
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.roles.messages import ACTOR
from hiddenarm.roles.party import Party

SECONDS = 60
UNIT = 2.0**-16
every_kind_of_records = pytest.mark.parametrize("lasting", [False, True], ids=["memory", "lasting"])


def expiring(**numbers: Any) -> Federation:
    return Federation(**{"arms": 3, "features": (2, 2), "epsilon": 0.25, "expires_after": SECONDS, **numbers})


def decide(network: MemoryNetwork, key: str, after: int = 0) -> Decision:
    network.collecting = False
    with network.handouts:
        ticket = network.actor.ask(key, after=after)
    network.settle()
    outcome = network.actor.outcomes.pop(ticket)
    assert isinstance(outcome, list)
    (decision,) = outcome
    assert isinstance(decision, Decision)
    return decision


def teach(network: MemoryNetwork, decision: Decision, reward: float) -> None:
    with network.handouts:
        network.rewarder.teach((decision.id, reward))
    network.settle()


def wait(network: MemoryNetwork, seconds: float) -> None:
    """Time passes, and everybody looks at the clock."""
    for _ in range(6):
        network.now += seconds / 6
        with network.handouts:
            for machine in network.machines.values():
                machine.on_idle()
        network.settle()


def weights(network: MemoryNetwork) -> Any:
    parties = [network.machines[party(number)] for number in range(network.federation.parties)]
    states = [machine._epoch._updater.state for machine in parties if isinstance(machine, Party) and machine._epoch]
    return network.federation.learner.reveal(states)[1][0]


def pending(network: MemoryNetwork) -> set[int | None]:
    parties = [network.machines[party(number)] for number in range(network.federation.parties)]
    return {machine.health().pending for machine in parties}


def twin_of(network: MemoryNetwork, *learned: tuple[str, Decision, float]) -> Any:
    twin, contexts = network.federation.policy.twin(network.federation), user_contexts(network.federation)
    for key, decision, reward in learned:
        twin.learn(contexts[key], decision.arm, reward)
    return twin.weights


@every_kind_of_records
@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_what_has_expired_is_learned_with_the_reward_that_was_agreed(lasting: bool, suite: str) -> None:
    network = MemoryNetwork(expiring(expired_reward=0.25, suite=suite), lasting=lasting).start()
    first, second, third = (decide(network, KEYS[number]) for number in range(3))
    teach(network, second, 1.0)
    expected = [(KEYS[1], second, 1.0)]
    tolerance = UNIT * 8 if suite == "fast" else 0.01
    np.testing.assert_allclose(weights(network), twin_of(network, *expected), atol=tolerance)
    wait(network, SECONDS * 0.9)
    assert pending(network) == {2}, "nothing expires before its time"
    wait(network, SECONDS * 1.3)
    assert pending(network) == {0}
    expected += [(KEYS[0], first, 0.25), (KEYS[2], third, 0.25)]
    np.testing.assert_allclose(weights(network), twin_of(network, *expected), atol=tolerance)
    with pytest.raises(DecisionIdError, match=r"was rewarded before, or has expired \(expires_after is 60 s\)"):
        network.rewarder.teach((first.id, 1.0))
    wait(network, SECONDS * 3)
    np.testing.assert_allclose(weights(network), twin_of(network, *expected), atol=tolerance)


@every_kind_of_records
def test_what_has_expired_is_dropped_by_all_parties_unless_a_reward_was_agreed(lasting: bool) -> None:
    network = MemoryNetwork(expiring(), lasting=lasting).start()
    first, second = decide(network, KEYS[0]), decide(network, KEYS[1])
    teach(network, second, 1.0)
    wait(network, SECONDS * 2.2)
    assert pending(network) == {0}
    with pytest.raises(DecisionIdError, match="has expired"):
        network.rewarder.teach((first.id, 1.0))
    np.testing.assert_allclose(weights(network), twin_of(network, (KEYS[1], second, 1.0)), atol=UNIT * 4)
    later = decide(network, KEYS[2], after=network.rewarder._records.made)
    teach(network, later, 1.0)
    expected = twin_of(network, (KEYS[1], second, 1.0), (KEYS[2], later, 1.0))
    np.testing.assert_allclose(weights(network), expected, atol=UNIT * 4)


def test_nothing_expires_unless_the_file_says_so() -> None:
    network = MemoryNetwork(expiring(expires_after=0)).start()
    decision = decide(network, KEYS[0])
    wait(network, SECONDS * 100)
    assert pending(network) == {1}
    teach(network, decision, 1.0)
    assert pending(network) == {0}


def test_rewards_in_time_are_not_held_back() -> None:
    """Unlike with reward slots, and in strictly online use, too: the next decision is by `step`."""
    network = MemoryNetwork(expiring(expired_reward=0.0)).start()
    for version in range(4):
        decision = decide(network, KEYS[version], after=version)
        teach(network, decision, 1.0)
        assert network.rewarder._records.kept == version + 1
    assert network.machines[ACTOR] is not None
    assert network.federation.learner.has_step


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"expires_after": -1}, "expires_after must lie in 0"),
        ({"expires_after": 10**9}, "expires_after must lie in 0"),
        ({"expires_after": 1.5}, "expires_after must be a whole number"),
        ({"expires_after": 0, "expired_reward": 0.5}, "set expires_after too"),
        ({"expired_reward": 1.5}, r"expired_reward must lie in \[0, 1\]"),
        ({"expired_reward": True}, r"expired_reward must lie in \[0, 1\]"),
        ({"reward_slot": 60}, "not for reward slots"),
        ({"suite": "paper"}, "in suite paper with privacy none cannot drop decisions that have expired"),
        ({"privacy": NoisySums(1.0)}, "with privacy noisy-sums cannot drop decisions that have expired"),
    ],
)
def test_what_cannot_be_agreed_is_refused(numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        expiring(**numbers)


def test_all_roles_agree_on_it() -> None:
    terms = expiring(expired_reward=0).terms
    assert (terms["expires_after"], terms["expired_reward"]) == (SECONDS, 0.0)
    assert "expired_reward" not in expiring().terms
    assert "expires_after" not in expiring(expires_after=0).terms
