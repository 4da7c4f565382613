"""Keys that parties refuse, in worlds with crashes: a named request has one answer, refusals and all."""

from __future__ import annotations

import pytest
from world import KEYS, Faults, World

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import HiddenArmError, RefusedKeyError, UnavailableError
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.client_records import KeyAnswer
from hiddenarm.roles.messages import ACTOR

FEDERATION = Federation(arms=3, features=(2, 1), epsilon=0.2)
MAX_EVENTS = 20_000


def answered(world: World, name: str, keys: list[str]) -> list[KeyAnswer]:
    """Make a request until it is answered, whoever crashes meanwhile."""
    ticket, life = -1, -1
    node = world.nodes[ACTOR]
    for _ in range(MAX_EVENTS):
        machine = node.machine
        if isinstance(machine, Actor):
            if node.lives != life:
                ticket, life = world.run(node, lambda: machine.ask(*keys, request=name)), node.lives  # noqa: B023
            elif ticket in machine.outcomes:
                outcome = machine.outcomes.pop(ticket)
                if isinstance(outcome, list):
                    return outcome
                assert isinstance(outcome, UnavailableError), outcome
                life = -1
        world.step()
    raise AssertionError(f"request {name} was not answered")


def shown(answers: list[KeyAnswer]) -> list[object]:
    return [str(one) if isinstance(one, HiddenArmError) else one for one in answers]


@pytest.mark.parametrize("seed", range(8))
def test_a_repeated_request_gets_the_same_decisions_and_the_same_refusals(seed: int) -> None:
    world = World(seed, Faults(crash=0.004, cut=0.002), FEDERATION)
    first = {name: answered(world, name, [KEYS[0], "nobody", KEYS[1]]) for name in ("one", "two", "three")}
    for answers in first.values():
        assert [type(one) for one in answers] == [Decision, RefusedKeyError, Decision]
        assert "refused key 'nobody': it has no usable features under this key" in str(answers[1])
    world.crash(world.nodes[ACTOR])
    for name, answers in first.items():
        assert shown(answered(world, name, [KEYS[0], "nobody", KEYS[1]])) == shown(answers)
    identifiers = [one.id for answers in first.values() for one in answers if isinstance(one, Decision)]
    assert len(set(identifiers)) == 6


def test_no_key_is_kept_at_the_actor_with_its_refusal() -> None:
    world = World(1, Faults(crash=0, cut=0), FEDERATION)
    answered(world, "one", [KEYS[0], "nobody"])
    disk = world.nodes[ACTOR].disk
    assert disk is not None
    kept = [payload for _, payload in disk.store.items("request")]
    assert kept
    assert not any(b"nobody" in payload for payload in kept)


def test_a_request_of_which_every_key_was_refused_is_asked_anew() -> None:
    world = World(1, Faults(crash=0, cut=0), FEDERATION)
    assert [type(one) for one in answered(world, "one", ["late"])] == [RefusedKeyError]
    for party in world.parties:
        table = world.tables[party]
        table.rows["late"] = table.rows[KEYS[0]]
    assert [type(one) for one in answered(world, "one", ["late"])] == [Decision]
