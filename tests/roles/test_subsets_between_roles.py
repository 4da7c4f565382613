"""Some of many arms, between roles: a request that names 40 of 10,000 arms costs what 40 arms cost. The machines decide
and learn as the plain twin does, and bit for bit as the programs do in lockstep, whose joint views are tested
(tests/bandit/test_subsets.py)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import DECIDE_ONE, deciding
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.subsets import subset_sizes
from hiddenarm.errors import ClientError, RefusedKeyError
from hiddenarm.net.frames import Frame
from hiddenarm.roles.actor import RUNS_AT_ONCE
from hiddenarm.roles.arms import arm_reports
from hiddenarm.roles.messages import (
    ACTOR,
    DEALER,
    NO_STOCK,
    Eligible,
    Kind,
    decide_among_frame,
    one_hot_frame,
    program_and_step,
    read_decide,
    refused_frame,
)

MODELS = ["a model for each arm", "one model"]
SOME = [3, 17, 40, 59]
ALL_ELIGIBLE_SLOTS = Eligible([], None)


def federation_of(model: str, arms: int = 60, parties: int = 2, **numbers: Any) -> Federation:
    numbers = {"epsilon": 0.25, **numbers}
    if model == "one model":
        numbers["arm_features"] = ArmTable.of(np.random.default_rng(arms).uniform(-0.6, 0.6, (arms, 3)))
    return Federation(arms, (2,) * parties, **numbers)


def network_of(model: str, seed: int = 1, lasting: bool = False, **numbers: Any) -> MemoryNetwork:
    return MemoryNetwork(federation_of(model, **numbers), seed=seed, lasting=lasting).start()


def answers_of(network: MemoryNetwork, *keys: str, **asked: Any) -> list[Any]:
    network.collecting = False
    with network.handouts:
        ticket = network.actor.ask(*keys, **asked)
    network.settle()
    outcome = network.actor.outcomes.pop(ticket)
    assert isinstance(outcome, list)
    return outcome


def noted_requests(network: MemoryNetwork) -> list[Frame]:
    """The requests that party 0 gets."""
    frames: list[Frame] = []
    machine = network.party(0)
    honest = machine.on_frame

    def noting(identity: Any, frame: Frame) -> None:
        if frame.kind is Kind.DECIDE:
            frames.append(frame)
        honest(identity, frame)

    machine.on_frame = noting  # type: ignore[method-assign]
    return frames


@pytest.mark.parametrize(("parties", "lasting"), [(2, True), (3, False)])
@pytest.mark.parametrize("model", MODELS)
def test_roles_decide_and_learn_as_the_twin_and_as_in_lockstep(model: str, parties: int, lasting: bool) -> None:
    """Among few arms, among many, and among all in turn."""
    network = network_of(model, parties=parties, lasting=lasting)
    choice, version = random.Random(3), 0
    for turn in range(10):
        size = (1, 3, 50, 8)[turn % 4]
        eligible = None if turn % 5 == 4 else sorted(choice.sample(range(60), size))
        decision = network.decide(choice.choice(KEYS), version, eligible)
        assert eligible is None or decision.arm in eligible
        version = network.reward(decision.id, float(decision.arm % 2))
    network.check_against_references()


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_is_decided_among_the_arms_of_its_request(model: str) -> None:
    network = network_of(model, lasting=True)
    requests = noted_requests(network)
    decisions = answers_of(network, *KEYS[:5], eligible=SOME)
    assert {decision.arm for decision in decisions} <= set(SOME)
    assert program_and_step(requests[0]) == (deciding(5, 4), 0)
    assert read_decide(requests[0], 60)[2] == Eligible([], tuple(SOME))
    with network.handouts:
        network.rewarder.teach(*((decision.id, 0.5) for decision in decisions))
    network.settle()
    network.check_nothing_is_left()
    assert network.version_at(0) == 1


# What it costs


def bytes_of_a_decision(network: MemoryNetwork, **asked: Any) -> Counter[str]:
    """What travels for one decision, by kind; corrections that were ordered ahead are there before."""
    answers_of(network, KEYS[0], **asked)
    network.wait(1.0)
    sent: Counter[str] = Counter()
    for machine in network.machines.values():
        honest = machine.on_frame

        def noting(identity: Any, frame: Frame, honest: Any = honest) -> None:
            sent[frame.kind.name] += len(frame.payload)
            honest(identity, frame)

        machine.on_frame = noting  # type: ignore[method-assign]
    answers_of(network, KEYS[0], **asked)
    del sent["CORRECTIONS"], sent["WANT"]
    return sent


@pytest.mark.parametrize("model", MODELS)
def test_what_travels_follows_from_the_slots_and_not_from_the_arms(model: str) -> None:
    """Requests, rounds, answers and what is returned: the same at 200 and at 1,000 arms."""
    some = list(range(5, 45))
    few, many = (bytes_of_a_decision(network_of(model, arms=arms), eligible=some) for arms in (200, 1_000))
    assert few == many
    assert {"DECIDE", "ROUND", "PAYLOADS", "ARMS"} <= set(many)
    whole = bytes_of_a_decision(network_of(model, arms=1_000))
    assert many.total() < whole.total() / 3
    assert many["DECIDE"] < 2 * 200


@pytest.mark.parametrize("model", MODELS)
def test_what_is_dealt_follows_from_the_slots(model: str) -> None:
    networks = [network_of(model, arms=arms) for arms in (200, 1_000)]
    for network in networks:
        answers_of(network, KEYS[0], eligible=SOME)
    few, many = (network.epoch(1)._supply.layout(deciding(1, 4)) for network in networks)
    assert few.correction_words == many.correction_words
    assert few.rounds == many.rounds == 3
    whole = networks[1].epoch(1)._supply.layout(DECIDE_ONE)
    assert many.correction_words < whole.correction_words / 50


# Requests that share a run


@pytest.mark.parametrize("model", MODELS)
def test_requests_of_the_same_arms_share_a_run_and_others_do_not_make_it_larger(model: str) -> None:
    network = network_of(model)
    network.collecting = False
    requests = noted_requests(network)
    wanted = [None, None, [1, 2, 3], SOME, [1, 2], [2], None, SOME, list(range(20)), [3, 1]]
    with network.handouts:
        tickets = [
            network.actor.ask(KEYS[place], eligible=eligible, together=True) for place, eligible in enumerate(wanted)
        ]
    network.settle()
    for ticket, eligible in zip(tickets, wanted, strict=True):
        (decision,) = network.actor.outcomes.pop(ticket)  # type: ignore[misc]
        assert isinstance(decision, Decision)
        assert eligible is None or decision.arm in eligible
    programs = [program_and_step(frame)[0] for frame in requests]
    assert programs[RUNS_AT_ONCE:] == [deciding(4, 4), deciding(2, 4), DECIDE_ONE, deciding(1, 32)]
    assert [read_decide(frame, 60)[2].arms for frame in requests[RUNS_AT_ONCE:]] == [
        (1, 2, 3),
        tuple(SOME),
        None,
        tuple(range(20)),
    ]
    network.check_nothing_is_left()


def test_a_key_that_a_party_refuses_leaves_the_others_among_the_same_arms() -> None:
    network = network_of(MODELS[1])
    del network.tables[0].rows[KEYS[1]]
    requests = noted_requests(network)
    answers = answers_of(network, *KEYS[:4], eligible=SOME)
    assert [isinstance(answer, RefusedKeyError) for answer in answers] == [False, True, False, False]
    assert [program_and_step(frame)[0] for frame in requests] == [deciding(4, 4), deciding(3, 4)]


# Retired arms


@pytest.mark.parametrize("model", MODELS)
def test_retired_arms_cost_nothing(model: str) -> None:
    network = network_of(model, retired=tuple(range(3, 60)))
    requests = noted_requests(network)
    arms = {answers_of(network, key)[0].arm for key in KEYS}
    assert arms == {0, 1, 2}
    assert {program_and_step(frame)[0] for frame in requests} == {deciding(1, 4)}
    assert all(read_decide(frame, 60)[2] == ALL_ELIGIBLE_SLOTS for frame in requests)
    (decision,) = answers_of(network, KEYS[0], eligible=[2, 40])
    assert decision.arm == 2


@pytest.mark.parametrize(
    ("arms", "why"),
    [
        ((1, 2, 59), "one of which is retired"),
        ((58, 59), "all arms that are named as eligible are retired"),
        ((1, 2, 3, 4), ""),
    ],
)
def test_a_party_lets_no_retired_arm_have_a_slot(arms: tuple[int, ...], why: str) -> None:
    network = network_of(MODELS[1], retired=(58, 59))
    frame = decide_among_frame(deciding(1, 4), 0, 0, [KEYS[0]], Eligible((), arms))
    if why:
        with pytest.raises(ClientError, match=why):
            network.inject(ACTOR, party(0), frame)
    else:
        network.inject(ACTOR, party(0), frame)


@pytest.mark.parametrize(("arms", "slots"), [((1, 2), 8), (tuple(range(5)), 8), ((1,), 48)])
def test_a_party_takes_the_program_that_goes_with_the_arms_only(arms: tuple[int, ...], slots: int) -> None:
    network = network_of(MODELS[0])
    frame = decide_among_frame(deciding(1, slots), 0, 0, [KEYS[0]], Eligible((), arms))
    if len(arms) > 4:
        network.inject(ACTOR, party(0), frame)
        return
    with pytest.raises(ClientError, match="arms that take another program"):
        network.inject(ACTOR, party(0), frame)


def test_few_arms_and_schedules_have_no_subsets() -> None:
    schedule = federation_of(MODELS[0], epsilon=None, policy=EpsilonSchedule(1.0, 0.01, 1.0))
    for federation in (federation_of(MODELS[0], arms=40), schedule):
        assert subset_sizes(federation) == ()
        network = MemoryNetwork(federation, seed=2).start()
        requests = noted_requests(network)
        assert answers_of(network, KEYS[0], eligible=SOME[:2])[0].arm in SOME[:2]
        assert program_and_step(requests[0])[0] == DECIDE_ONE
        with pytest.raises(ClientError, match="arms that take another program"):
            network.inject(ACTOR, party(0), decide_among_frame(deciding(1, 4), 0, 0, [KEYS[0]], Eligible((), (1, 2))))


# What roles hold against each other


def test_an_answer_of_another_kind_is_refused() -> None:
    """Few slots are answered by payloads, all arms by shares of a one-hot."""
    network = network_of(MODELS[0])
    network.actor.ask(KEYS[0], eligible=SOME)
    assert {kind.name for kind in arm_reports(network.federation).kinds} == {"PAYLOADS", "ONE_HOT"}
    with pytest.raises(Exception, match="does not wait for it"):
        network.inject(party(0), ACTOR, one_hot_frame(deciding(1, 4), 0, np.zeros((1, 4), np.uint64)))


def test_a_decision_among_some_arms_is_refused_for_stock_as_all_are() -> None:
    network = network_of(MODELS[1])
    network.collecting = False
    ticket = network.actor.ask(KEYS[0], eligible=SOME)
    network.inject(party(1), ACTOR, refused_frame(deciding(1, 4), 0, NO_STOCK, retry=True))
    assert network.actor.health().out_of_stock
    assert isinstance(network.actor.outcomes[ticket], Exception)
    assert DEALER in network.machines
