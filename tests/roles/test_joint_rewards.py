"""Rewards of several requests as one lesson: each is known by its own name, and none is lost for another's sake."""

from __future__ import annotations

import pytest
from memory_network import KEYS, MemoryNetwork, small_federation, small_paper_federation

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ConflictError, DecisionIdError, HiddenArmError, RefusedRewardError, RewardedError
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.roles.client_records import MemoryRewarderRecords, RewarderRecords
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.joint_rewards import LEAST_TOGETHER, MOST_TOGETHER, JointRewarder, NamedReward
from hiddenarm.roles.ledger import Ledger
from hiddenarm.store.journal import DirectJournal

COUNT = 6


def network_of(*, lasting: bool) -> MemoryNetwork:
    network = MemoryNetwork(small_federation(2, arms=4), lasting=lasting).start()
    network.collecting = False
    return network


def decided(network: MemoryNetwork, count: int = COUNT) -> list[str]:
    with network.handouts:
        ticket = network.actor.ask(*KEYS[:count])
    network.settle()
    outcome = network.actor.outcomes.pop(ticket)
    assert isinstance(outcome, list)
    return [answer.id for answer in outcome if isinstance(answer, Decision)]


def rewards_of(decisions: list[str]) -> list[NamedReward]:
    return [NamedReward(one, place % 2, f"event {place}") for place, one in enumerate(decisions)]


def taught(network: MemoryNetwork, rewards: list[NamedReward]) -> list[int | HiddenArmError]:
    with network.handouts:
        outcomes = network.rewarder.teach_together(rewards)
    network.settle()
    return outcomes


@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "lasting"])
def test_each_is_known_by_its_own_name(lasting: bool) -> None:
    network = network_of(lasting=lasting)
    decisions = decided(network)
    rewards = rewards_of(decisions)
    assert taught(network, rewards) == [0] * COUNT, "one lesson"
    assert network.rewarder.ending(0) == ""
    assert taught(network, rewards[::-1]) == [0] * COUNT, "made again, in another order"
    assert taught(network, rewards[:1]) == [0], "or alone"
    assert network.rewarder._records.made == 1
    (other_value,) = taught(network, [rewards[0]._replace(reward=1.0)])
    for decision in decisions[1:]:
        (other_decision,) = taught(network, [rewards[0]._replace(decision=decision)])
        assert isinstance(other_decision, ConflictError)
    (other_name,) = taught(network, [rewards[0]._replace(request="event x")])
    assert isinstance(other_value, ConflictError)
    assert isinstance(other_name, RewardedError)
    network.check_nothing_is_left()


@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "lasting"])
def test_what_is_wrong_takes_no_part(lasting: bool) -> None:
    network = network_of(lasting=lasting)
    decisions = decided(network)
    first, second, third, *_ = rewards_of(decisions)
    forged = NamedReward(decisions[3][:-1] + ("0" if decisions[3][-1] != "0" else "1"), 1.0, "forged")
    outcomes = taught(
        network,
        [first, forged, first, first._replace(reward=1.0), second, second._replace(request="event x"), third],
    )
    assert [outcomes[place] for place in (0, 2, 4, 6)] == [0] * 4
    kinds = [type(outcomes[place]) for place in (1, 3, 5)]
    assert kinds == [DecisionIdError, ConflictError, RewardedError]
    assert taught(network, [NamedReward(decisions[3], 1.0, "event 3")]) == [1], "its mask was not used"


def test_names_last_with_the_lesson() -> None:
    """Another process knows them: the same request gets the same answer, another one is refused."""
    network = network_of(lasting=True)
    decisions = decided(network)
    rewards = [*rewards_of(decisions)[:-1], NamedReward(decisions[-1], 1.0)]
    taught(network, rewards)
    before = network.rewarder
    records = before._records
    assert isinstance(records, RewarderRecords)
    again = JointRewarder(
        network.federation,
        lambda *_: None,
        records=RewarderRecords(records._store, DirectJournal(records._store)),
        peer_loss=PeerLoss.ENDS_EPOCH,
    )
    assert again.teach_together(rewards) == [0] * COUNT
    (other,) = again.teach_together([rewards[0]._replace(reward=1.0)])
    assert isinstance(other, ConflictError)
    assert again.ending(0) == ""


@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "lasting"])
def test_no_reward_is_lost_for_the_sake_of_another(lasting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parties refuse a lesson in which they do not know one decision. Then each reward is a lesson of its own, with
    the masked word that it had."""
    network = network_of(lasting=lasting)
    decisions = decided(network)
    rewards = rewards_of(decisions)
    rewarder, name = network.rewarder, network.rewarder._name_of(decisions[2])
    waiting = Ledger._waiting
    monkeypatch.setattr(Ledger, "_waiting", lambda ledger, one: None if one == name else waiting(ledger, one))
    assert taught(network, rewards) == [0] * COUNT
    assert "was never made" in (rewarder.ending(0) or "")
    assert rewarder._records.made == 7, "nobody has to ask"
    masked = dict(rewarder._records.lesson(0).rewards)
    assert taught(network, rewards) == [1, 2, 3, 4, 5, 6]
    assert taught(network, rewards) == [1, 2, 3, 4, 5, 6], "once"
    for number in range(1, 7):
        ((again, word),) = rewarder._records.lesson(number).rewards
        assert word == masked[again], "a mask hides one reward"
        if again == name:
            assert "was never made" in (rewarder.ending(number) or "")
            with pytest.raises(RefusedRewardError):
                rewarder.check_learned(number)
        else:
            assert rewarder.ending(number) == ""
        assert rewarder._records.learned_in(again) == number
    network.check_nothing_is_left()


def rewarder_for(federation: Federation, max_batch: int = 256) -> JointRewarder:
    records = MemoryRewarderRecords()
    return JointRewarder(
        federation, lambda *_: None, records=records, peer_loss=PeerLoss.ENDS_FEDERATION, max_batch=max_batch
    )


def test_how_many_are_learned_together() -> None:
    """Powers of two, so that there are few programs; only where it takes less than one by one."""
    plain = rewarder_for(small_federation(2))
    assert [plain.together(waiting) for waiting in (1, 2, LEAST_TOGETHER - 1)] == [1, 1, 1]
    assert [plain.together(waiting) for waiting in (LEAST_TOGETHER, 31, 32, 1000)] == [16, 16, 32, MOST_TOGETHER]
    assert rewarder_for(small_federation(2), 20).together(1000) == LEAST_TOGETHER
    noisy = rewarder_for(Federation(arms=3, features=(2, 2), epsilon=0.1, privacy=NoisySums(4.0)))
    assert [noisy.together(waiting) for waiting in (1, 2, 3, 8)] == [1, 2, 2, 8]
    assert rewarder_for(small_paper_federation(2)).together(1000) == 1, "it learns one at a time"
