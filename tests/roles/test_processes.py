"""All roles as processes over mutual TLS: they agree with the plain twin, and end together when one of them dies."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from role_processes import (
    EPOCH_KEY,
    KEYS,
    check_message,
    check_meter,
    contexts_of,
    ends,
    federation_of,
    kit_of,
    local_roles,
    log_of,
    members,
    serve,
)

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.catalogue import DECIDE_ONE, STEP_ONE
from hiddenarm.bandit.decisions import run_of
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.errors import FeatureError, HiddenArmError, PeerLost
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.kit import Kit

STEPS = 20
VICTIMS = [Identity(Role.PARTY, 0), Identity(Role.PARTY, 1), DEALER]


@pytest.mark.parametrize("parties", [2, 3])
def test_twenty_steps_agree_with_the_plain_twin_and_the_meters_with_the_declaration(
    tmp_path: Path, parties: int
) -> None:
    federation, contexts = federation_of(parties), contexts_of(federation_of(parties))
    seeds = Seeds(EPOCH_KEY)
    coins = {program: audit_coins(seeds, federation, 0, STEPS, program=program) for program in (DECIDE_ONE, STEP_ONE)}
    twin = PlainBandit(federation.arms, federation.dimension, federation.ridge)
    version = 0
    with local_roles(tmp_path, federation) as roles:
        for step in range(STEPS):
            identifier, arm = roles.decide(KEYS[step], version)
            program, place = run_of(identifier)
            assert program == (STEP_ONE if step else DECIDE_ONE)
            explore, tags = coins_at(coins[program], place)
            best, scores = twin.decide(contexts[step], explore, tags), twin.weights @ contexts[step]
            assert arm == best or (not explore and scores[best] - scores[arm] <= federation.score_rounding)
            reward = float(arm == step % 4)
            version = roles.reward(identifier, reward)
            assert version == step + 1
            twin.learn(contexts[step], arm, reward)
        meters = roles.stop()
    assert all(roles.process(member).returncode == 0 for member in members(federation))
    assert all("Traceback" not in log_of(tmp_path, member) for member in members(federation))
    for number, meter in enumerate(meters):
        check_meter(Kit.read(kit_of(tmp_path, Identity(Role.PARTY, number))), meter["sent"], STEPS)


@pytest.mark.parametrize(
    ("victim", "busy"),
    [*((victim, False) for victim in VICTIMS), (VICTIMS[1], True), (DEALER, True)],
    ids=lambda value: {True: "busy", False: "idle"}.get(value) or str(value),
)
def test_when_a_party_or_the_dealer_is_killed_the_others_end_and_say_who_is_gone(
    tmp_path: Path, victim: Identity, busy: bool
) -> None:
    """Idle: nobody asks anything after the kill, so everybody must notice by itself. Busy: requests are under way."""
    federation = federation_of(2)
    others = [member for member in members(federation) if member != victim]
    with local_roles(tmp_path, federation) as roles:
        for step in range(3):
            identifier, _ = roles.decide(KEYS[step], 0)
            roles.reward(identifier, 1.0)
        if busy:
            flood(roles.process(ACTOR).stdin)
        roles.process(victim).send_signal(signal.SIGKILL)
        codes = ends(roles, others)
        assert codes == dict.fromkeys(others, 4)
        with pytest.raises(PeerLost, match=f"{victim} is gone"):
            roles.reward(identifier, 1.0)
    for member in others:
        check_message(log_of(tmp_path, member), str(victim))


@pytest.mark.parametrize("victim", [ACTOR, REWARDER], ids=str)
def test_when_a_client_is_killed_the_others_go_on(tmp_path: Path, victim: Identity) -> None:
    """Decisions are made without the rewarder, and rewards learned without the actor. Started again, a client would
    need a second seed: that ends the federation, by name."""
    federation = federation_of(2)
    with local_roles(tmp_path, federation) as roles:
        ids = [roles.decide(KEYS[step], 0)[0] for step in range(3)]
        assert roles.reward(ids[0], 1.0) == 1
        roles.process(victim).send_signal(signal.SIGKILL)
        roles.process(victim).wait()
        for step in (1, 2):
            if victim == ACTOR:
                assert roles.reward(ids[step], 1.0) == step + 1
            else:
                roles.decide(KEYS[step], 1)
        others = [member for member in members(federation) if member != victim]
        assert [roles.process(member).poll() for member in others] == [None] * 4
        serve(kit_of(tmp_path, victim), stdin="")
        assert ends(roles, others) == dict.fromkeys(others, 4)
    for member in others:
        check_message(log_of(tmp_path, member), f"{victim} came back")


def flood(stdin) -> None:  # type: ignore[no-untyped-def]
    """More requests than can be answered before the kill; they fit into the pipe."""
    stdin.write("".join(json.dumps({"key": KEYS[number % 30]}) + "\n" for number in range(2000)))
    stdin.flush()


def test_a_party_killed_before_the_first_request(tmp_path: Path) -> None:
    federation = federation_of(3)
    victim = Identity(Role.PARTY, 2)
    others = [member for member in members(federation) if member != victim]
    with local_roles(tmp_path, federation) as roles:
        with pytest.raises(FeatureError):
            roles.decide("nobody", 0)
        with pytest.raises(HiddenArmError):  # the rewarder has met everybody too when it answers
            roles.reward("nothing", 1.0)
        roles.process(victim).kill()
        assert ends(roles, others) == dict.fromkeys(others, 4)
    for member in others:
        check_message(log_of(tmp_path, member), "party 2")


def test_refused_requests_do_not_end_the_federation(tmp_path: Path) -> None:
    """A key nobody has, a reward twice, a version nobody taught: an error each, and the next step works."""
    federation, contexts = federation_of(2), contexts_of(federation_of(2))
    with local_roles(tmp_path, federation) as roles:
        identifier, arm = roles.decide(KEYS[0], 0)
        with pytest.raises(FeatureError, match="refused key 'nobody'"):
            roles.decide("nobody", 0)
        with pytest.raises(FeatureError, match="version 7000 was not taught"):
            roles.decide(KEYS[1], 7000)
        with pytest.raises(FeatureError, match="must lie in"):
            roles.reward(identifier, 1.5)
        assert roles.reward(identifier, 0.5) == 1
        with pytest.raises(FeatureError, match="rewarded before"):
            roles.reward(identifier, 0.5)
        with pytest.raises(FeatureError, match="was never made"):
            roles.reward(identifier.replace("-000000-", "-000099-"), 0.5)
        coins = audit_coins(Seeds(EPOCH_KEY), federation, 0, 10)
        twin = PlainBandit(federation.arms, federation.dimension, federation.ridge)
        twin.learn(contexts[0], arm, 0.5)
        for number in range(3, 8):
            identifier, arm = roles.decide(KEYS[number], 1)
            assert identifier.split("-")[1] == f"{number:06d}"
            assert arm == twin.decide(contexts[number], *coins_at(coins, number))
        assert np.isfinite(twin.weights).all()
        roles.stop()


@pytest.mark.parametrize("durable", [False, True])
def test_when_whoever_started_parties_and_dealer_is_gone_they_end(tmp_path: Path, durable: bool) -> None:
    """Also if it ran the clients itself: their loss alone ends nobody."""
    federation = federation_of(2)
    servers = [member for member in members(federation) if member not in (ACTOR, REWARDER)]
    given = (tmp_path / "kits", federation, KEYS, contexts_of(federation), EPOCH_KEY)
    with LocalRoles(*given, clients=False, durable=durable) as roles:
        for server in servers:
            stdin = roles.process(server).stdin
            assert stdin is not None
            stdin.close()
        assert set(ends(roles, servers).values()) == {0}


def test_when_whoever_started_the_roles_is_gone_they_end_in_good_order(tmp_path: Path) -> None:
    federation = federation_of(2)
    with local_roles(tmp_path, federation) as roles:
        decision, _ = roles.decide(KEYS[0], 0)
        roles.reward(decision, 1.0)
        for client in (REWARDER, ACTOR):
            stdin = roles.process(client).stdin
            assert stdin is not None
            stdin.close()
            assert ends(roles, [client]) == {client: 0}
        assert set(ends(roles, members(federation)).values()) == {0}
    assert all(log_of(tmp_path, member) == "" for member in members(federation))
