"""Retired arms between roles: no program chooses one, whatever the actor asks, and requests keep their names, also from
one version of the federation to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import DECIDE_ONE
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ClientError, ConflictError, InputError
from hiddenarm.roles.actor import Asked
from hiddenarm.roles.client_records import ActorRecords
from hiddenarm.roles.messages import ACTOR, decide_frame, eligible_bitmap
from hiddenarm.store.contract import Put
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore


def network_of(arms: int = 5, retired: tuple[int, ...] = (0, 3), parties: int = 2) -> MemoryNetwork:
    return MemoryNetwork(Federation(arms, (2,) * parties, epsilon=0.5, retired=retired)).start()


def decided(network: MemoryNetwork, *keys: str, **asked: Any) -> list[int]:
    network.collecting = False
    with network.handouts:
        ticket = network.actor.ask(*keys, **asked)
    network.settle()
    outcome = network.actor.outcomes.pop(ticket)
    assert isinstance(outcome, list)
    decisions = [answer for answer in outcome if isinstance(answer, Decision)]
    with network.handouts:
        network.rewarder.teach(*((decision.id, 1.0) for decision in decisions))
    network.settle()
    return [decision.arm for decision in decisions]


@pytest.mark.parametrize("arms", [5, 49], ids=["payloads", "shuffle"])
@pytest.mark.parametrize("parties", [2, 3])
def test_no_program_chooses_a_retired_arm(arms: int, parties: int) -> None:
    """Explored or not, singly, in batches, and by `step`."""
    retired = tuple(sorted({*range(arms)} - {1, 2, 4}))
    network = network_of(arms, retired, parties)
    chosen = {arm for version in range(10) for arm in decided(network, KEYS[version], after=version)}
    for _ in range(6):
        chosen |= set(decided(network, *KEYS[:2]))
    assert chosen == {1, 2, 4}


def test_eligible_arms_are_those_of_them_that_are_not_retired() -> None:
    network = network_of()
    assert {arm for _ in range(8) for arm in decided(network, KEYS[0], eligible=[0, 1, 3])} == {1}
    with pytest.raises(InputError, match="all arms that are named as eligible are retired: name another"):
        network.actor.ask(KEYS[0], eligible=[0, 3])


def test_a_party_refuses_an_actor_that_asks_for_retired_arms_only() -> None:
    network = network_of()
    frame = decide_frame(DECIDE_ONE, 0, 0, [KEYS[0]], eligible_bitmap(5, [0, 3]))
    with pytest.raises(ClientError, match="the actor asked for no arm that can be chosen"):
        network.machines[party(0)].on_frame(ACTOR, frame)


def test_a_request_is_the_same_request_after_an_arm_was_retired() -> None:
    """What is asked is compared, not what may be chosen: a request that is made again gets its answer."""
    network = network_of()
    network.collecting = False
    ticket = network.actor.ask(KEYS[0], request="first")
    assert network.actor._by_ticket[ticket].digest == Asked((KEYS[0],)).digest


ASKED_BEFORE: dict[str, dict[str, Any]] = {
    "answered": {},
    "answered, of two arms": {"eligible": [0, 1]},
    "not answered": {},
    "not answered, of two arms": {"eligible": [0, 1]},
    "not answered, without two": {"excluded": [1, 2]},
    "not answered, of one arm": {"eligible": [0]},
}
"""Requests under the first version, by name: in the second one arm 0 is retired and arm 3 is new."""


def changed_network(before: MemoryNetwork, federation: Federation) -> MemoryNetwork:
    """A network of the next version, whose actor has the requests of the one before."""
    store = MemoryStore()
    kept = before.actor._records
    assert isinstance(kept, ActorRecords)
    store.commit([Put("request", name, payload) for name, payload in kept._store.items("request")])
    network = MemoryNetwork(federation, lasting=True)
    network.actor._records = ActorRecords(store, DirectJournal(store))
    return network.start()


def again(network: MemoryNetwork, name: str, key: str = KEYS[0], **asked: Any) -> Decision:
    network.collecting = False
    with network.handouts:
        ticket = network.actor.ask(key, request=name, **asked)
    network.settle()
    outcome = network.actor.outcomes.pop(ticket)
    assert isinstance(outcome, list), outcome
    (decision,) = outcome
    assert isinstance(decision, Decision)
    return decision


def test_a_request_of_the_version_before_is_the_same_request_in_the_next_one() -> None:
    """What was answered is answered the same, whatever arms there are now, and no decision is made for it. What was not
    answered is decided now, among the arms that are left of those that it named."""
    first = MemoryNetwork(Federation(3, (2, 2), epsilon=0.5), lasting=True).start()
    decided = {name: again(first, name, **asked) for name, asked in ASKED_BEFORE.items() if name.startswith("answ")}
    assert decided["answered, of two arms"].arm in (0, 1)
    for name, asked in ASKED_BEFORE.items():
        if name not in decided:
            first.actor.ask(KEYS[0], request=name, **asked)  # it is noted; its answer is lost with the network

    next_one = changed_network(first, Federation(4, (2, 2), epsilon=0.5, retired=(0,)))
    for name, decision in decided.items():
        assert again(next_one, name, **ASKED_BEFORE[name]) == decision
    assert not next_one.actor.health().arms, "nothing was decided for them"
    for name in ("answered", "not answered"):
        with pytest.raises(ConflictError, match="was made before"):
            next_one.actor.ask(KEYS[1], request=name)
        with pytest.raises(ConflictError, match="was made before"):
            next_one.actor.ask(KEYS[0], request=name, eligible=[1])
    for name, arms in (
        ("not answered", {1, 2, 3}),
        ("not answered, of two arms", {1}),
        ("not answered, without two", {3}),
    ):
        decision = again(next_one, name, **ASKED_BEFORE[name])
        assert decision.arm in arms, name
        assert again(next_one, name, **ASKED_BEFORE[name]) == decision
    with pytest.raises(InputError, match="all arms that are named as eligible are retired"):
        next_one.actor.ask(KEYS[0], request="not answered, of one arm", **ASKED_BEFORE["not answered, of one arm"])


def test_a_request_of_the_catalogue_before_is_the_same_request_in_the_next_one() -> None:
    """The same where arms have features, and the rows of some have changed."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-0.5, 0.5, (5, 2))
    tables = ArmTable.of(rows[:3]), ArmTable.of([*(rows[:2] / 2), *rows[2:]])
    versions = [
        Federation(arms=table.arms, features=(2, 2), epsilon=0.5, arm_features=table, retired=retired)
        for table, retired in zip(tables, ((), (0,)), strict=True)
    ]
    first = MemoryNetwork(versions[0], lasting=True).start()
    decision = again(first, "answered", eligible=[0])
    first.actor.ask(KEYS[0], request="not answered", eligible=[0, 2])
    next_one = changed_network(first, versions[1])
    assert again(next_one, "answered", eligible=[0]) == decision
    assert decision.arm == 0
    assert again(next_one, "not answered", eligible=[0, 2]).arm == 2
