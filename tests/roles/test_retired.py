"""Retired arms between roles: no program chooses one, whatever the actor asks, and requests keep their names."""

from __future__ import annotations

from typing import Any

import pytest
from memory_network import KEYS, MemoryNetwork, party

from hiddenarm.bandit.catalogue import DECIDE_ONE
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ClientError, InputError
from hiddenarm.roles.actor import Asked
from hiddenarm.roles.messages import ACTOR, decide_frame, eligible_bitmap


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
