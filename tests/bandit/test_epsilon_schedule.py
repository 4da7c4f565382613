"""Epsilon-greedy with a public schedule: every coin follows the position of its decision."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.catalogue import DECIDE_ONE, ProgramId, program_text
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import LocalFederation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import coins_at
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.privacy.ledger import coarse
from support import fixed_key

STEEP = EpsilonSchedule(initial=1.0, final=0.05, decay=8.0)


def federation_of(policy: EpsilonSchedule = STEEP, **options: Any) -> Federation:
    return Federation(arms=4, features=(3, 2), policy=policy, **options)


def exploring(key: bytes, first: int, runs: int, batch: int, origin: int = 0, *, fast: bool = True) -> np.ndarray:
    """Which decisions explore, from the raw words of the coins and the formula, in whole numbers: [runs, batch]. In the
    fast suite a payload for each pair of arms follows the coins."""
    words, pairs = Coins.words(4), 6
    stream = program_stream(Seeds(key).coins(), ProgramId("decide", batch).label, batch * (words + pairs * fast))
    rows = stream.steps(first, runs)[:, : batch * words].reshape(runs, batch, words)
    explore = np.zeros((runs, batch), bool)
    for run in range(runs):
        for place in range(batch):
            position = origin + (first + run) * batch + place
            epsilon = max(STEEP.final, STEEP.initial / (1 + position / STEEP.decay))
            threshold = max(coarse(int(Fraction(epsilon) * 2**63)), int(Fraction(STEEP.final) * 2**63))
            explore[run, place] = int(rows[run, place, 0]) >> 1 < threshold
    return explore


def test_epsilon_falls_to_its_half_after_decay_and_not_below_final() -> None:
    policy = EpsilonSchedule(initial=0.5, final=0.02, decay=1000)
    positions = np.array([0, 500, 1000, 10**6])
    assert policy.epsilons(positions).tolist() == [0.5, 0.5 / 1.5, 0.25, 0.02]
    assert policy.guarantee(10, 1000).epsilon == 0.25
    assert policy.guarantee(10, 0).eta < policy.guarantee(10, 1000).eta < policy.guarantee(10, 10**6).eta


def test_it_may_fall_as_a_root_of_the_number_of_decisions() -> None:
    """Half of the cube root of 1 / n at the n-th decision; what was written without a power still is the same."""
    policy = EpsilonSchedule(initial=0.5, final=0.0, decay=1.0, power=1 / 3)
    numbers = np.array([1, 8, 1000, 60_000])
    assert policy.epsilons(numbers - 1) == pytest.approx(0.5 * numbers ** (-1 / 3))
    assert policy.options["power"] == pytest.approx(1 / 3)
    assert parse_policy(str(policy)) == policy
    assert "power" not in EpsilonSchedule().options
    assert str(EpsilonSchedule(0.5)) == "epsilon-schedule:initial=0.5,final=0.01,decay=1000.0"


@pytest.mark.parametrize("policy", [STEEP, EpsilonSchedule(0.9, 0.03, 50.0, 0.5)])
def test_the_coin_has_the_thresholds_that_are_counted(policy: EpsilonSchedule) -> None:
    """Of five binary digits, a sixteenth below the formula at most, and never below `final`."""
    positions = np.arange(3000)
    thresholds, formula = policy.thresholds(positions), policy.epsilons(positions)
    assert policy.levels(0, 3000) == thresholds.tolist()
    chances = thresholds / 2.0**63
    assert (chances <= formula).all()
    assert (chances >= np.maximum(formula * 15 / 16, policy.final * (1 - 1e-12))).all()
    assert len(set(thresholds.tolist())) <= 100
    coins = audit_coins(Seeds(fixed_key("levels")), federation_of(policy), 0, 3000, 1, DECIDE_ONE)
    assert coins.explore.mean() == pytest.approx(chances.mean(), abs=4 * (chances.mean() / 3000) ** 0.5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"initial": 1.5}, "initial must lie in"),
        ({"final": -0.1}, "final must lie in"),
        ({"final": 1e-20}, "least chance"),
        ({"initial": 0.1, "final": 0.2}, "at most initial"),
        ({"decay": 0}, "decay must be a positive"),
        ({"decay": float("inf")}, "decay must be a positive"),
        ({"decay": "fast"}, "decay must be a number"),
        ({"power": 0}, "power must lie above 0"),
        ({"power": 5}, "at most 4"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        EpsilonSchedule(**options)


@pytest.mark.parametrize(("batch", "origin"), [(1, 0), (4, 0), (1, 30), (3, 30)])
def test_coins_are_those_of_the_positions(batch: int, origin: int) -> None:
    key = fixed_key("epsilon schedule", batch, origin)
    exploration = STEEP.exploration(origin)
    coins = audit_coins(Seeds(key), federation_of(), 5, 60, 1, ProgramId("decide", batch), exploration)
    assert np.array_equal(coins.explore.reshape(60, batch), exploring(key, 5, 60, batch, origin))
    assert coins.explore.any()
    assert not coins.explore.all()


@pytest.mark.parametrize(("suite", "steps", "origin"), [("fast", 120, 0), ("fast", 60, 50), ("paper", 25, 0)])
def test_single_decisions_are_those_of_the_twin_at_the_same_positions(suite: str, steps: int, origin: int) -> None:
    """The dealer deals three steps at a time: had it taken other positions, other decisions would have explored."""
    federation, key = federation_of(suite=suite), fixed_key("epsilon schedule", suite)
    lockstep = Lockstep(federation, key, deal_ahead=3, origin=origin)
    twin, rng = federation.policy.twin(federation), np.random.default_rng(0)
    coins, explore = lockstep.coins(0, steps), exploring(key, 0, steps, 1, origin, fast=suite == "fast")
    assert np.array_equal(coins.explore, explore)
    uniform = 0
    for step in range(steps):
        x = rng.uniform(-0.4, 0.4, 5)
        number, arms = lockstep.decide([x[None, :3], x[None, 3:]])
        assert int(arms[0]) == twin.decide(x, *coins_at(coins, step)), step
        uniform += int(arms[0]) != twin.decide(x, False, coins.tags[step, 0])
        lockstep.learn(number, [float(arms[0] == 2)])
        twin.learn(x, int(arms[0]), float(arms[0] == 2))
    assert 0 < uniform <= explore.sum()


def test_batches_count_apart_and_follow_their_places() -> None:
    federation, key = federation_of(), fixed_key("epsilon schedule", "batches")
    lockstep, twin = Lockstep(federation, key, deal_ahead=8), federation.policy.twin(federation)
    rng = np.random.default_rng(2)
    for step in range(12):
        rows = rng.uniform(-0.4, 0.4, (1, 4, 5))
        if step % 3 == 0:
            lockstep.decide([rows[:, 0, :3], rows[:, 0, 3:]])  # of the single ones, which count apart
        name, arms = lockstep.decide_batch([rows[..., :3], rows[..., 3:]])
        coins = lockstep.coins(step, 1, batch=4)
        assert np.array_equal(coins.explore[0], exploring(key, step, 1, 4))
        expected = [twin.decide(rows[0, b], bool(coins.explore[0, 0, b]), coins.tags[0, 0, b]) for b in range(4)]
        assert arms[0].tolist() == expected
        rewards = (arms == 1).astype(float)
        lockstep.learn_batch(name, rewards)
        for b in range(4):
            twin.learn(rows[0, b], int(arms[0, b]), float(rewards[0, b]))


def test_what_is_dealt_depends_on_the_steps_and_not_on_how_many_are_dealt_at_once() -> None:
    federation, seeds = federation_of(), Seeds(fixed_key("epsilon schedule", "dealing"))

    def dealer(origin: int = 0) -> ProgramDealer:
        text = program_text(federation, DECIDE_ONE, STEEP.exploration(origin))
        return ProgramDealer("decide", text, layout_of(text, 2, 1), seeds, 1)

    at_once, singly = dealer().deal(0, 40), dealer()
    assert np.array_equal(at_once, np.concatenate([singly.deal(step, 1) for step in range(40)]))
    assert np.array_equal(at_once[5:], dealer().deal(5, 35))
    assert not np.array_equal(at_once, dealer(origin=1000).deal(0, 40))


def test_replicates_may_still_have_epsilons_of_their_own() -> None:
    lockstep = Lockstep(federation_of(), fixed_key("epsilon schedule", "own"), replicates=2, epsilons=[0.0, 1.0])
    assert lockstep.coins(0, 50).explore.tolist() == [[False, True]] * 50


def test_it_costs_no_round_and_no_word() -> None:
    plain = Federation(arms=4, features=(3, 2), epsilon=0.1)
    layouts = [layout_of(program_text(federation, DECIDE_ONE), 2, 1) for federation in (plain, federation_of())]
    assert layouts[0] == layouts[1]


def test_a_local_federation_takes_it() -> None:
    local = LocalFederation(arms=4, features=[3, 2], policy=EpsilonSchedule(0.5, decay=10))
    decision = local.decide([[0.1, 0.2, 0.3], [0.1, 0.1]])
    local.reward(decision.id, 1.0)
    assert local.federation.policy.options["initial"] == 0.5
