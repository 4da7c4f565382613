"""Reward slots between roles: when rewards are sent, what is sent for those that do not come, and that neither times
nor lengths of messages tell anything about rewards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party, user_contexts

from hiddenarm.bandit.catalogue import GATHER, LEARN, SOLVE
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.errors import DecisionIdError, FrameError, InputError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.roles.messages import (
    NAMED_AT_ONCE,
    REWARDER,
    Kind,
    read_rewards,
    read_slot,
    slot_frames,
)
from hiddenarm.roles.slots import HeardSlots, OwnSlots

SLOT = 60
every_kind_of_records = pytest.mark.parametrize("lasting", [False, True], ids=["memory", "lasting"])


def slotted(parties: int = 2, arms: int = 3, **numbers: object) -> Federation:
    return Federation(arms, (2,) * parties, epsilon=0.25, reward_slot=SLOT, **numbers)  # type: ignore[arg-type]


@dataclass
class Watched(MemoryNetwork):
    """Notes when a frame is sent, from whom to whom, of which kind and length."""

    sent: list[tuple[float, Identity, Identity, str, int]] = field(default_factory=list)

    def _sender(self, me: Identity) -> Callable[[Identity, Frame], None]:
        send = super()._sender(me)

        def noted(to: Identity, frame: Frame) -> None:
            self.sent.append((self.now, me, to, Kind(frame.kind).name, len(frame.payload)))
            send(to, frame)

        return noted

    def from_rewarder(self) -> list[tuple[float, str, str, int]]:
        return [(now, str(to), kind, size) for now, me, to, kind, size in self.sent if me == REWARDER]


def give(network: MemoryNetwork, decision: Decision, reward: float, request: str | None = None) -> None:
    with network.handouts:
        receipt = network.rewarder.give((decision.id, reward), request=request)
    assert network.rewarder.is_given(receipt)
    network.settle()


def expected_weights(network: MemoryNetwork, earned: list[tuple[str, Decision, float]]) -> np.ndarray:
    twin = network.federation.policy.twin(network.federation)
    contexts = user_contexts(network.federation)
    for key, decision, reward in earned:
        twin.learn(contexts[key], decision.arm, reward)
    return twin.weights


def check_model(network: MemoryNetwork, earned: list[tuple[str, Decision, float]]) -> None:
    assert network.shared_model()[1][0] == pytest.approx(expected_weights(network, earned), abs=1e-3)


@every_kind_of_records
@pytest.mark.parametrize("arms", [3, 50])
def test_rewards_of_a_slot_are_sent_at_the_end_of_the_next(lasting: bool, arms: int) -> None:
    network = MemoryNetwork(slotted(arms=arms), lasting=lasting).start()
    first = [(key, network.decide(key), 1.0) for key in KEYS[:3]]
    for _, decision, reward in first:
        give(network, decision, reward)
    network.wait(SLOT)
    assert network.version_at(0) == 0
    second = [(key, network.decide(key), 0.5) for key in KEYS[3:5]]
    give(network, second[0][1], 0.5)
    network.wait(SLOT - 1)
    assert network.version_at(0) == 0
    network.wait(1)
    assert network.version_at(0) == 2  # two rewards and one
    check_model(network, first)
    network.wait(SLOT)
    assert network.version_at(0) == 3
    second[1] = (*second[1][:2], 0.0)  # it has not come
    check_model(network, [*first, *second])
    network.check_nothing_is_left()


def test_what_has_not_come_is_sent_as_the_default() -> None:
    network = MemoryNetwork(slotted(default_reward=0.25)).start()
    decision = network.decide(KEYS[0])
    network.wait(SLOT)
    network.wait(SLOT)
    check_model(network, [(KEYS[0], decision, 0.25)])


@every_kind_of_records
def test_a_late_reward_gets_a_clear_answer(lasting: bool) -> None:
    network = MemoryNetwork(slotted(), lasting=lasting).start()
    decision = network.decide(KEYS[0])
    network.wait(SLOT)
    network.wait(SLOT)
    with pytest.raises(DecisionIdError, match="comes too late: its slot was sent without it, with 0 in its place"):
        network.rewarder.give((decision.id, 1.0))
    check_model(network, [(KEYS[0], decision, 0.0)])


@every_kind_of_records
def test_a_decision_is_rewarded_once_and_a_request_may_be_repeated(lasting: bool) -> None:
    network = MemoryNetwork(slotted(), lasting=lasting).start()
    decision = network.decide(KEYS[0])
    give(network, decision, 1.0, request="one")
    give(network, decision, 1.0, request="one")
    with pytest.raises(InputError, match="'one' was made before, with other"):
        network.rewarder.give((decision.id, 0.0), request="one")
    with pytest.raises(DecisionIdError, match="was rewarded before"):
        network.rewarder.give((decision.id, 0.0), request="two")
    for _ in range(2):
        network.wait(SLOT)
        give(network, decision, 1.0, request="one")
        with pytest.raises(DecisionIdError, match="was rewarded before"):
            network.rewarder.give((decision.id, 1.0), request="two")
    check_model(network, [(KEYS[0], decision, 1.0)])


def test_rewards_are_given_with_slots_and_taught_without() -> None:
    with_slots, without = MemoryNetwork(slotted()).start(), MemoryNetwork(Federation(3, (2, 2), epsilon=0.1)).start()
    with pytest.raises(InputError, match="sent in slots here"):
        with_slots.rewarder.teach((with_slots.decide(KEYS[0]).id, 1.0))
    with pytest.raises(InputError, match="not sent in slots here"):
        without.rewarder.give((without.decide(KEYS[0]).id, 1.0))


@every_kind_of_records
def test_slots_of_noisy_sums(lasting: bool) -> None:
    """Lessons of slots are gathered; the model changes with refreshes alone, which follow counts of lessons."""
    network = MemoryNetwork(slotted(privacy=NoisySums(1.0, first_refresh=4)), lasting=lasting).start()
    first = network.shared_model()[1]
    for key in KEYS[:3]:
        give(network, network.decide(key), 1.0)
    for _ in range(2):
        network.wait(SLOT)
    assert network.version_at(0) == 2
    assert np.array_equal(network.shared_model()[1], first)
    network.decide(KEYS[3])
    for _ in range(2):
        network.wait(SLOT)
    assert network.version_at(0) == 3
    assert not np.array_equal(network.shared_model()[1], first)


@pytest.mark.parametrize("policy", ["bonus:alpha=0.5", "linucb:alpha=0.25", "thompson:alpha=0.1"])
def test_slots_of_other_policies(policy: str) -> None:
    federation = Federation(3, (2, 2), parse_policy(policy), reward_slot=SLOT)
    network = MemoryNetwork(federation).start()
    made = [(key, network.decide(key), 1.0) for key in KEYS[:2]]
    for _, decision, reward in made:
        give(network, decision, reward)
    for _ in range(2):
        network.wait(SLOT)
    check_model(network, made)


def story(rewards: Callable[[int], float | None], lasting: bool) -> Watched:
    """The same decisions at the same times, in batches and singly, whatever is earned and however late it comes."""
    network = Watched(slotted(), lasting=lasting)
    network.start()
    chance = random.Random(7)
    waiting: list[tuple[Decision, float]] = []
    number = 0
    for second in range(5 * SLOT):
        if chance.random() < 0.1:
            decisions = [network.decide(chance.choice(KEYS)) for _ in range(chance.choice((1, 1, 3)))]
            for decision in decisions:
                if (reward := rewards(number)) is not None:
                    waiting.append((decision, reward))
                number += 1
        if second % 7 == int(5 * sum(reward for _, reward in waiting)) % 7:  # when they come depends on them
            for decision, reward in waiting:
                give(network, decision, reward)
            waiting = []
        network.wait(1)
    return network


@every_kind_of_records
def test_times_and_lengths_of_messages_do_not_depend_on_rewards(lasting: bool) -> None:
    """All zero, all one, half of them missing: the rewarder sends the same lengths at the same times, and so does
    everybody else."""
    stories = [
        story(rewards, lasting)
        for rewards in (
            lambda _: 0.0,
            lambda _: 1.0,
            lambda number: 1.0 if number % 2 else None,
        )
    ]
    first = stories[0].from_rewarder()
    assert sum(kind == "REWARD" for _, _, kind, _ in first) > 8
    assert {size for _, _, kind, size in first if kind == "REWARD"} > {24, 48}
    for other in stories[1:]:
        assert other.from_rewarder() == first
        assert other.sent == stories[0].sent


def test_without_slots_messages_do_depend_on_rewards() -> None:
    """The same comparison sees what slots are for."""
    sent = []
    for reward in (0.0, None):
        network = Watched(Federation(3, (2, 2), epsilon=0.1))
        network.start()
        decision = network.decide(KEYS[0])
        if reward is not None:
            network.reward(decision.id, reward)
        sent.append(network.from_rewarder())
    assert sent[0] != sent[1]


def test_lessons_of_slots_are_gathered() -> None:
    network = MemoryNetwork(slotted()).start()
    network.decide(KEYS[0])
    network.wait(SLOT)
    network.wait(SLOT)
    for epoch in network.epochs:
        names = set(epoch._runs.times)
        assert {GATHER, SOLVE} <= names
        assert LEARN not in names


def test_rewards_are_in_the_order_of_decisions() -> None:
    network = Watched(slotted())
    network.start()
    frames: list[Frame] = []
    decisions = [network.decide(key) for key in KEYS[:4]]
    for decision in reversed(decisions):
        give(network, decision, 1.0)
    send = network.machines[REWARDER]._send

    def noted(to: Identity, frame: Frame) -> None:
        frames.append(frame)
        send(to, frame)

    network.machines[REWARDER]._send = noted
    network.wait(SLOT)
    network.wait(SLOT)
    (one, other) = frames
    assert one.payload == other.payload
    names = [name for name, _ in read_rewards(one)]
    assert names == sorted(network.name_of(decision.id) for decision in decisions)


@pytest.mark.parametrize("payload", [b"x", bytes(15), bytes(16 * NAMED_AT_ONCE + 16)])
def test_a_slot_that_is_none_ends_the_epoch_of_the_rewarder(payload: bytes) -> None:
    network = MemoryNetwork(slotted()).start()
    with pytest.raises(FrameError, match="a SLOT frame is malformed"):
        network.inject(party(0), REWARDER, Frame(Kind.SLOT, payload=payload))


def test_what_one_party_names_alone_is_never_rewarded() -> None:
    network = MemoryNetwork(slotted()).start()
    decision = network.decide(KEYS[0])
    made_up = network.name_of(decision.id) + 1000
    network.epoch(0)._slots.add([made_up])  # type: ignore[union-attr]
    for _ in range(3):
        network.wait(SLOT)
    assert network.version_at(0) == 1
    check_model(network, [(KEYS[0], decision, 0.0)])


def test_a_federation_without_slots_takes_none() -> None:
    network = MemoryNetwork(Federation(3, (2, 2), epsilon=0.1)).start()
    with pytest.raises(FrameError, match="may not send SLOT"):
        network.inject(party(0), REWARDER, slot_frames(0, [])[0])


# What ends a slot


def test_a_slot_ends_when_its_time_is_over_and_names_each_decision_once() -> None:
    now = 0.0

    def clock() -> float:
        return now

    slots = OwnSlots(10, clock)
    slots.add([5, 3, 5])
    now = 9.9
    assert slots.end_if_due() == []
    now = 12
    (frame,) = slots.end_if_due()
    assert (frame.kind, frame.step, read_slot(frame)) == (Kind.SLOT, 0, ([5, 3], False))
    now = 21.9
    assert slots.end_if_due() == []
    now = 22
    (frame,) = slots.end_if_due()
    assert (frame.step, read_slot(frame)) == (1, ([], False))


@pytest.mark.parametrize("count", [0, 1, NAMED_AT_ONCE, NAMED_AT_ONCE + 1, 3 * NAMED_AT_ONCE])
def test_many_decisions_are_named_in_several_frames(count: int) -> None:
    frames = slot_frames(4, list(range(count)))
    read = [read_slot(frame) for frame in frames]
    assert [name for names, _ in read for name in names] == list(range(count))
    assert [more for _, more in read] == [True] * (len(frames) - 1) + [False]
    assert all(frame.step == 4 for frame in frames)


@pytest.mark.parametrize("frame", [Frame(Kind.SLOT, payload=b"x"), Frame(Kind.SLOT, 0, 2)])
def test_malformed_slots_are_refused(frame: Frame) -> None:
    with pytest.raises(FrameError, match="a SLOT frame is malformed"):
        read_slot(frame)


def both_ended(heard: HeardSlots, first: list[int], second: list[int], slot: int) -> Iterator[list[list[int]]]:
    yield heard.hear(party(0), slot, first, False)
    yield heard.hear(party(1), slot, second, False)


def test_a_decision_belongs_to_the_slot_in_which_the_last_party_names_it() -> None:
    heard = HeardSlots([party(0), party(1)])
    assert list(both_ended(heard, [1, 2], [2], 0)) == [[], [[2]]]
    assert list(both_ended(heard, [4, 3], [1, 3, 4], 1)) == [[], [[1, 3, 4]]]


def test_a_slow_party_ends_several_slots_later() -> None:
    heard = HeardSlots([party(0), party(1)])
    assert heard.hear(party(0), 0, [1], False) == []
    assert heard.hear(party(0), 1, [2], True) == []
    assert heard.hear(party(0), 1, [3], False) == []
    assert heard.hear(party(1), 0, [1], False) == [[1]]
    assert heard.hear(party(1), 1, [3, 2], False) == [[2, 3]]


def test_slots_are_ended_in_order() -> None:
    heard = HeardSlots([party(0), party(1)])
    with pytest.raises(FrameError, match="ended slot 1 where 0 was due"):
        heard.hear(party(0), 1, [], False)
