"""Policies between roles: machines that know none of them run those of the package and of other kinds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork

from hiddenarm.bandit.catalogue import DECIDE_ONE, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.bandit.policy import Policy
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.dealer import Dealer, DealerEpoch
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.messages import ACTOR, REWARDER, Kind, decided_payload, want_frame
from other_policies import Refreshed, RoundedBonus


def federation_of(policy: Policy, **options: Any) -> Federation:
    return Federation(arms=3, features=(2, 2), policy=policy, **options)


def run_online(network: MemoryNetwork, steps: int, choice: random.Random) -> None:
    """Decide by the newest model, reward, learn."""
    version = 0
    for _ in range(steps):
        decision = network.decide(choice.choice(KEYS), version)
        version = network.reward(decision.id, float(decision.arm == 1))


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_a_schedule_of_epsilon_explores_at_the_same_positions_as_its_twin(suite: str) -> None:
    network = MemoryNetwork(federation_of(EpsilonSchedule(1.0, 0.05, 6.0), suite=suite), seed=3).start()
    run_online(network, 30 if suite == "fast" else 8, random.Random(3))
    network.check_against_references()


def test_a_policy_that_scores_in_another_way_runs_as_in_lockstep() -> None:
    network = MemoryNetwork(federation_of(RoundedBonus(0.2), max_interactions=200), seed=4).start()
    run_online(network, 25, random.Random(4))
    network.check_nothing_is_left()
    network.check_against_lockstep()


@pytest.mark.parametrize("policy", [Bonus(0.5, 0.2), LinUcb(0.25), Thompson(0.1, 0.2)], ids=str)
def test_policies_with_a_bonus_run_as_in_lockstep(policy: Policy) -> None:
    network = MemoryNetwork(federation_of(policy), seed=7).start()
    run_online(network, 20, random.Random(7))
    network.check_nothing_is_left()
    network.check_against_lockstep()


def test_a_policy_with_another_schedule_runs_as_in_lockstep() -> None:
    """Lessons wait for the model that is solved beside them, and no party has another one then."""
    network = MemoryNetwork(federation_of(Refreshed(0.5)), seed=5).start()
    run_online(network, 10, random.Random(5))
    network.check_nothing_is_left()
    network.check_against_lockstep()
    assert all(machine._updater.schedule.gathered == 10 for machine in network.epochs)


def test_repairs_between_roles_are_those_in_lockstep() -> None:
    """Bit for bit, over several of them: both follow one schedule."""
    federation = Federation(arms=3, features=(2, 2), epsilon=0.25, repair_every=7)
    network = MemoryNetwork(federation, seed=6).start()
    run_online(network, 60, random.Random(6))
    network.check_nothing_is_left()
    network.check_against_lockstep()


def test_the_dealer_of_a_later_epoch_counts_from_its_origin() -> None:
    policy, key = EpsilonSchedule(1.0, 0.0, 5.0), bytes(range(32))
    federation = federation_of(policy)
    last = Identity(Role.PARTY, 1)

    def dealt(decided_before: int) -> bytes:
        frames: list[Frame] = []
        dealer = DealerEpoch(federation, key, "00" * 6, lambda _, frame: frames.append(frame))
        dealer.decided_before = decided_before
        dealer.on_frame(last, want_frame(DECIDE_ONE, 0, 20))
        return frames[-1].payload

    text = program_text(federation, DECIDE_ONE, policy.exploration(400))
    expected = ProgramDealer("decide", text, layout_of(text, 2, 1), Seeds(key), 1).deal(0, 20)
    assert dealt(400) == np.ascontiguousarray(expected, "<u8").tobytes()
    assert dealt(0) != dealt(400)


def test_the_last_party_tells_the_dealer_from_where_positions_are_counted() -> None:
    """In every attempt anew; a later one has a key of its own, and another origin."""
    policy, key, sent = EpsilonSchedule(1.0, 0.0, 5.0), bytes(range(32)), []
    federation = federation_of(policy)
    parties = [Identity(Role.PARTY, number) for number in range(2)]
    members = [*parties, ACTOR, REWARDER]
    dealer = Dealer(
        federation,
        lambda identity, frame: sent.append((identity, frame)),
        peer_loss=PeerLoss.ENDS_EPOCH,
        make_key=lambda: key,
    )
    for member in members:
        dealer.on_ready(member)
    for attempt, held in ((10, (0, 0)), (11, (9, 400))):
        for member in members:
            payload = decided_payload(held[member.number]) if member in parties else b""
            dealer.on_frame(member, Frame(Kind.OPEN, step=attempt, payload=payload))
        dealer.on_frame(parties[1], want_frame(DECIDE_ONE, 0, 20))
        text = program_text(federation, DECIDE_ONE, policy.exploration(held[1]))
        expected = ProgramDealer("decide", text, layout_of(text, 2, 1), Seeds(key), 1).deal(0, 20)
        to, frame = sent[-1]
        assert (to, frame.kind) == (parties[1], Kind.CORRECTIONS)
        assert frame.payload == np.ascontiguousarray(expected, "<u8").tobytes()
