"""Strictly online use: the actor asks for `step`, whose run goes on with the arm that it returns and with the reward,
or is dropped when another lesson comes first."""

from __future__ import annotations

import random

import pytest
from memory_network import KEYS, MemoryNetwork, party, small_federation, small_paper_federation

from hiddenarm.bandit.catalogue import DECIDE_ONE, LEARN_ONE, STEP_ONE
from hiddenarm.bandit.decisions import decision_number, split_number
from hiddenarm.errors import ClientError, FeatureError, UnavailableError
from hiddenarm.net.frames import Frame
from hiddenarm.roles import updater as updater_module
from hiddenarm.roles.messages import (
    ACTOR,
    NO_STOCK,
    PROGRAM_NUMBERS,
    Kind,
    decide_frame,
    program_and_step,
    refused_frame,
)
from hiddenarm.roles.party_epoch import LESSON_SECONDS

PARTIES = (2, 3, 5)
ROUNDS_TO_DECIDE = 3
ROUNDS_WITHOUT_REWARD = 5


def online(network: MemoryNetwork, steps: int) -> None:
    """Strictly online steps."""
    for step in range(steps):
        decision = network.decide(KEYS[step % len(KEYS)], after=len(network.taught))
        network.reward(decision.id, float(step % 2))


def is_step(number: int) -> bool:
    return split_number(number)[0] == STEP_ONE


# Which program the actor asks for


def test_the_actor_asks_for_a_step_when_the_model_has_one_lesson_more() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 4)
    assert [is_step(number) for number in network.versions] == [False, True, True, True]
    network.check_against_references()


def test_the_actor_asks_for_a_decision_alone_otherwise() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    first, second = (network.decide(key) for key in KEYS[:2])  # by the same model
    for decision in (first, second):
        network.reward(decision.id, 1.0)
    network.decide(KEYS[2], after=2)  # two lessons more
    network.actor.ask(*KEYS[:2], after=2)
    network.settle()
    network.reward(network.decide(KEYS[3], after=2).id, 1.0)  # after a batch
    assert not any(is_step(number) for number in network.versions)


def test_a_step_may_be_asked_for_while_the_one_before_is_under_way() -> None:
    """It names the lesson of the one before, and waits for it; a third one by the same model is decided alone."""
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 1)
    under_way, next_one, beside = (network.ask(KEYS[n], after=n if n < 3 else 2) for n in (1, 2, 3))
    assert is_step(under_way)
    assert is_step(next_one)
    assert not is_step(beside)
    network.settle()
    network.reward(network.decisions[under_way].id, 1.0)
    network.settle()
    network.check_against_references()


def test_a_request_leaves_with_the_arm_of_the_run_before() -> None:
    """No party could begin it before: two messages are one."""
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 1)
    first, second = network.ask(KEYS[1], after=1), network.ask(KEYS[2], after=2)
    sent = network.links[ACTOR, party(0)]
    assert [frame.kind for frame in sent if frame is not None] == [Kind.DECIDE], "the second one is held"
    while first not in network.decisions:
        network.deliver(*((one, other) for one, other in network.links if one != ACTOR or not arms_left(network)))
    assert [frame.kind for frame in sent if frame is not None] == [Kind.DECIDE, Kind.ARMS]
    network.reward(network.decisions[first].id, 1.0)
    network.settle()
    assert second in network.decisions
    network.check_against_references()


def arms_left(network: MemoryNetwork) -> bool:
    """Whether the actor has sent arms that have not come to party 0."""
    return any(frame is not None and frame.kind is Kind.ARMS for frame in network.links[ACTOR, party(0)])


def test_a_request_leaves_when_the_run_before_has_no_features() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    del network.tables[1].rows[KEYS[5]]
    before, held = network.ask(KEYS[5], after=2), network.ask(KEYS[6], after=3)
    assert is_step(held)
    network.settle()
    assert isinstance(network.refused[before], FeatureError)
    assert network.waiting_at(0), "it has left, and waits for its lesson"


def test_a_request_leaves_when_the_run_before_is_asked_for_again_by_another_program() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    before = network.ask(KEYS[5], after=2)
    network.ask(KEYS[6], after=3)
    network.inject(party(0), ACTOR, refused_frame(STEP_ONE, split_number(before)[1], NO_STOCK, retry=True))
    sent = [program_and_step(frame)[0] for frame in network.links[ACTOR, party(0)] if frame is not None]
    assert sent == [STEP_ONE, STEP_ONE, DECIDE_ONE]


def test_the_papers_suite_and_many_arms_have_no_step() -> None:
    for federation in (small_paper_federation(2), small_federation(2, arms=49)):
        network = MemoryNetwork(federation).start()
        online(network, 2)
        assert not any(is_step(number) for number in network.versions)
        with pytest.raises(ClientError, match="does not have"):
            network.inject(ACTOR, party(0), decide_frame(STEP_ONE, 0, 2, [KEYS[0]]))


# A run that goes on


@pytest.mark.parametrize("parties", PARTIES)
def test_five_rounds_are_run_before_the_reward_is_there(parties: int) -> None:
    network = MemoryNetwork(small_federation(parties)).start()
    online(network, 2)
    decision = network.decide(KEYS[5], after=2)
    number = int(decision.id.split("-")[1])
    rounds = [network.round_at(p, number) for p in range(parties)]
    assert rounds == [ROUNDS_WITHOUT_REWARD - 1] * parties  # the fifth is sent, and waits for the reward to be finished
    assert not any(machine.busy for machine in network.parties)
    assert all(machine.health().waiting == 0 for machine in network.parties)
    network.reward(decision.id, 1.0)
    network.check_against_references()


@pytest.mark.parametrize("parties", PARTIES)
def test_a_step_waits_for_the_arm(parties: int) -> None:
    """Decided, it needs the one-hot; the reward may come before that."""
    network = MemoryNetwork(small_federation(parties)).start()
    online(network, 2)
    number = network.ask(KEYS[5], after=2)
    to_parties = [(ACTOR, party(p)) for p in range(parties)]
    while number not in network.decisions:
        network.deliver()
    held = [list(network.links[link]) for link in to_parties]
    assert all(any(frame is not None and frame.kind is Kind.ARMS for frame in frames) for frames in held)
    lesson = network.teach(network.decisions[number].id, 1.0)
    while network.deliver(*(link for link in network.links if link not in to_parties)):
        pass
    assert [network.version_at(p) for p in range(parties)] == [2] * parties
    assert lesson not in network.lessons
    network.settle()
    assert network.lessons[lesson] is None
    network.check_against_references()


@pytest.mark.parametrize("parties", PARTIES)
def test_a_run_is_dropped_when_another_lesson_comes_first(parties: int) -> None:
    """The reward of another decision comes; that of the step comes later, and is learned by `learn`."""
    network = MemoryNetwork(small_federation(parties)).start()
    online(network, 2)
    first, other = network.decide(KEYS[5], after=2), network.decide(KEYS[6], after=2)
    assert all(machine._updater.runs_beside for machine in network.epochs)
    network.reward(other.id, 1.0)
    assert not any(machine._updater.runs_beside or machine._runs._runs for machine in network.epochs)
    network.reward(first.id, 0.5)
    network.check_against_references()
    online(network, 3)
    network.check_against_references()


def test_a_request_does_not_wait_for_a_lesson_whose_reward_may_never_come() -> None:
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


def test_a_refused_lesson_ends_the_run_everywhere() -> None:
    network = MemoryNetwork(small_federation(3)).start()
    online(network, 2)
    decision = network.decide(KEYS[5], after=2)
    del network.epoch(1)._interactions[network.name_of(decision.id)]
    lesson = network.teach(decision.id, 1.0)
    network.settle()
    assert network.lessons[lesson] is not None
    assert not any(machine._updater.runs_beside or machine._runs._runs for machine in network.epochs)
    for number in (0, 2):
        network.epoch(number)._interactions._at_hand.pop(network.name_of(decision.id), None)
    online(network, 3)
    network.check_against_twin()


def test_a_lesson_that_a_peer_has_refused_ends_the_run() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    decision = network.decide(KEYS[5], after=2)
    network.inject(party(1), party(0), refused_frame(LEARN_ONE, 2, "no"))
    network.teach(decision.id, 1.0)
    while network.version_at(0) == 2:
        network.deliver(*(link for link in network.links if link[1] == party(0)))
    assert not network.epoch(0)._runs._runs


def test_a_key_without_features_is_refused_in_a_step_too() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    del network.tables[1].rows[KEYS[5]]
    number = network.ask(KEYS[5], after=2)
    assert is_step(number)
    network.settle()
    assert isinstance(network.refused[number], FeatureError)
    online(network, 2)
    network.check_against_twin()


def test_rounds_of_a_run_that_was_dropped_are_of_no_use() -> None:
    """A peer may have sent them before it knew."""
    network = MemoryNetwork(small_federation(2)).start()
    sent = []
    link = network.links[party(0), party(1)]
    online(network, 2)
    step, other = network.ask(KEYS[5], after=2), network.ask(KEYS[6], after=2)
    while network.deliver():
        sent += [frame for frame in link if frame is not None and frame.program == PROGRAM_NUMBERS["step"]]
    network.reward(network.decisions[other].id, 1.0)
    assert step in network.decisions
    late = next(frame for frame in sent if frame.kind is Kind.ROUND and frame.round == ROUNDS_TO_DECIDE)
    network.inject(party(0), party(1), late)
    assert not network.epoch(1)._runs._early


# A party that cannot run it


def behind(network: MemoryNetwork) -> None:
    """The parties learn more lessons than the actor hears of, or they keep whole models of."""
    ids = [network.decide(key).id for key in KEYS[:6]]
    for lesson, identifier in enumerate(ids):
        network.teach(identifier, 1.0)
        for number in range(2):
            while network.version_at(number) <= lesson:
                network.deliver(*(link for link in network.links if ACTOR not in link))
    network.asking.version, network.asking._single_version = 1, 0


def test_a_party_that_has_no_longer_the_model_refuses_and_the_actor_asks_again() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    behind(network)
    number = network.ask(KEYS[7])
    assert is_step(number)
    assert network.versions[number] == 1
    network.settle()
    made = int(network.decisions[number].id.split("-")[1])
    assert split_number(made)[0] == DECIDE_ONE
    assert not network.refused
    network.reward(network.decisions[number].id, 1.0)


def test_a_party_takes_part_with_the_model_of_an_earlier_version_while_it_has_it() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    ids = [network.decide(key).id for key in KEYS[:3]]
    for lesson, identifier in enumerate(ids):
        network.teach(identifier, 1.0)
        for number in range(2):
            while network.version_at(number) <= lesson:
                network.deliver(*(link for link in network.links if ACTOR not in link))
    network.asking.version, network.asking._single_version = 1, 0
    number = network.ask(KEYS[7])
    network.settle()
    assert is_step(int(network.decisions[number].id.split("-")[1]))
    assert not any(machine._runs._runs for machine in network.epochs)  # the lesson that it could be of is over
    network.reward(network.decisions[number].id, 1.0)
    network.check_against_twin()


def test_runs_that_wait_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater_module, "MAX_STEPS", 2)
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 2)
    made = []
    for _ in range(4):
        network.asking._single_version = 1  # as if each were the first that names this version
        made.append(int(network.decide(KEYS[5], after=2).id.split("-")[1]))
    assert [is_step(number) for number in made] == [True, True, False, False]
    assert [machine._updater.runs_beside for machine in network.epochs] == [2, 2]


# All of it together


@pytest.mark.parametrize(("parties", "seeds"), [(2, 30), (3, 20), (5, 8)])
def test_habits_that_change_in_every_order_of_delivery(parties: int, seeds: int) -> None:
    """Mostly strictly online, asked for ahead or not, sometimes another reward first, or none: the model is that of the
    references bit for bit, and both things have happened that can happen to a step that has decided."""
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


def test_an_arm_that_is_returned_again_in_the_same_epoch_changes_nothing() -> None:
    """The run of a `step` was told it, and waits for the reward: the same words are not taken for that."""
    network = MemoryNetwork(small_federation(2)).start()
    online(network, 1)
    number = network.ask(KEYS[1], after=1)
    returned = None
    while network.deliver():
        returned = next((frame for frame in network.links[ACTOR, party(0)] if _is_arms_of(frame, number)), returned)
    assert is_step(number)
    assert returned is not None
    network.inject(ACTOR, party(0), returned)
    assert network.reward(network.decisions[number].id, 1.0) == 2
    network.inject(ACTOR, party(0), returned)  # also after it
    online(network, 2)
    network.check_against_references()


def _is_arms_of(frame: Frame | None, number: int) -> bool:
    return frame is not None and frame.kind is Kind.ARMS and decision_number(*program_and_step(frame)) == number
