"""The policies with a bonus for what is not known well: private decisions beside those of the plain twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hiddenarm.bandit.coins import LARGEST_NORMAL, normal_numbers
from hiddenarm.bandit.confidence import Confidence, rounded_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import coins_at, normals_at
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Floats, encode
from support import FORMS, SIGNIFICANCE, fixed_key, suggested, words_from

POLICIES: list[Confidence] = [Bonus(0.5), LinUcb(0.25), Thompson(0.1)]
ARMS, FEATURES = 4, (3, 2)


def contexts_of(count: int, seed: int = 0) -> Floats:
    drawn = np.random.default_rng(seed).standard_normal((count, sum(FEATURES)))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def reward_of(context: Floats, arm: int) -> float:
    return float(np.random.default_rng(9).standard_normal((ARMS, sum(FEATURES)))[arm] @ context > 0)


def parts(context: Floats) -> list[Floats]:
    return np.split(context[None], np.cumsum(FEATURES)[:-1], axis=-1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", [*POLICIES, Bonus(0.3, 0.3), LinUcb(1.0, 0.3), Thompson(0.5, 0.3)], ids=str)
def test_decisions_are_those_of_the_twin(policy: Confidence, form: str) -> None:
    federation = FORMS[form](arms=ARMS, features=FEATURES, policy=policy)
    lockstep, twin = Lockstep(federation, fixed_key(str(policy)), online=True), federation.policy.twin(federation)
    coins, same, by_weights = lockstep.coins(0, 200), 0, 0
    for step, x in enumerate(contexts_of(200)):
        number, (arm,) = lockstep.decide(parts(x))
        (explore, tags), normals = coins_at(coins, step), normals_at(coins, step)
        same += twin.agrees(int(arm), x, explore, tags, federation.score_rounding, normals)
        by_weights += int(arm) == int((twin.weights @ x).argmax())
        reward = reward_of(x, int(arm))
        lockstep.learn(number, [reward])
        twin.learn(x, int(arm), reward)
    assert same >= 199
    assert by_weights < 196  # the bonus matters
    greedy = Federation(arms=ARMS, features=FEATURES, epsilon=0.1)
    if form == "three rounds":
        more = 0 if isinstance(policy, Bonus) else 2
        assert federation.learner.has_step
        assert lockstep.meter.rounds == {"step": (7 + more) * 200}
        assert (
            lockstep.layouts["decide"].rounds == Lockstep(greedy, fixed_key("greedy")).layouts["decide"].rounds + more
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_batches_and_eligible_arms(policy: Confidence, form: str) -> None:
    federation = FORMS[form](arms=ARMS, features=FEATURES, policy=policy)
    lockstep, twin = Lockstep(federation, fixed_key("batch")), federation.policy.twin(federation)
    same, eligible = 0, (0, 2)
    for batch in range(6):
        seen = contexts_of(20, seed=batch)
        may_win: Sequence[int] | None = eligible if batch % 2 else None
        slices = np.split(seen[None], np.cumsum(FEATURES)[:-1], axis=-1)
        name, (arms,) = lockstep.decide_batch(slices, may_win)
        coins = lockstep.coins(name[1], 1, batch=20)
        for place, (x, arm) in enumerate(zip(seen, arms.tolist(), strict=True)):
            scores = twin.scores(x, None if coins.normals is None else coins.normals[0, 0, place])
            best = max(scores[list(may_win or range(ARMS))])
            same += best - scores[arm] <= federation.score_rounding + 2e-3  # tables of the root
            assert may_win is None or arm in may_win
        rewards = [reward_of(x, arm) for x, arm in zip(seen, arms.tolist(), strict=True)]
        lockstep.learn_batch(name, [rewards])
        for x, arm, reward in zip(seen, arms.tolist(), rewards, strict=True):
            twin.learn(x, arm, reward)
    assert same >= 118


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_many_twins_are_as_one(policy: Confidence) -> None:
    federation = Federation(arms=ARMS, features=FEATURES, policy=policy)
    together, alone = policy.twins(federation, 3), [policy.twin(federation) for _ in range(3)]
    rng = np.random.default_rng(0)
    for step in range(30):
        x, tags, normals = contexts_of(3, step), np.tile(np.arange(ARMS), (3, 1)), rng.standard_normal((3, ARMS))
        explore = np.zeros(3, np.bool_)
        arms = together.decide(x, explore, tags, normals)
        assert arms.tolist() == [one.decide(x[r], False, tags[r], normals[r]) for r, one in enumerate(alone)]
        assert together.agree(arms, x, explore, tags, 0.0, normals).all()
        rewards = np.array([reward_of(row, arm) for row, arm in zip(x, arms.tolist(), strict=True)])
        together.learn(x, arms, rewards)
        for replicate, one in enumerate(alone):
            one.learn(x[replicate], int(arms[replicate]), float(rewards[replicate]))


def test_bonuses_are_what_they_are_said_to_be() -> None:
    q, z = np.array([0.0, 0.25, 4.0]), np.array([1.0, -1.0, 2.0])
    assert Bonus(0.5).bonus(q, None).tolist() == [0.0, 0.125, 2.0]
    assert LinUcb(0.5).bonus(q, None).tolist() == [0.0, 0.25, 1.0]
    assert Thompson(0.5).bonus(q, z).tolist() == [0.0, -0.25, 2.0]


@pytest.mark.parametrize("bits", [16, 18, 20])
def test_features_are_rounded_to_the_nearest_number(bits: int) -> None:
    federation = Federation(arms=2, features=(4, 4), policy=Bonus(0.3), fraction_bits=bits, max_interactions=1000)
    features = np.random.default_rng(0).uniform(-1, 1, 4000)
    for factor in (0.4, 45.3, 2471.9):
        rounded = rounded_features(encode(features, bits), factor, federation).view(np.int64)
        off = np.abs(rounded - features * factor)
        assert off.max() < 0.5 + factor * 2.0 ** -(bits + 1) + 1e-5
        assert abs((rounded - features * factor).mean()) < 0.02


# Ranges


@pytest.mark.parametrize("form", ["three rounds", "shuffled"])
@pytest.mark.parametrize("policy", [Bonus(2.0), LinUcb(2.0), Thompson(0.5)], ids=str)
def test_keys_at_their_bounds_are_compared_rightly(policy: Confidence, form: str) -> None:
    """One arm was never tried, and has the whole bonus; scores of the others are as large as any can be, or as low."""
    numbers: dict[str, Any] = {"ridge": 0.3, "norms": (1.0, 1.0), "fraction_bits": 16, "max_interactions": 600}
    federation = FORMS[form](arms=3, features=(1, 1), policy=policy, **numbers)
    lockstep, twin = Lockstep(federation, fixed_key("bound")), federation.policy.twin(federation)
    x, wrong = np.ones(2), 0
    states = lockstep.states
    for case, weights in enumerate(([0.0, 1.0, -1.0], [1.0, 1.0, 0.99], [-1.0, -0.99, -1.0])):
        scaled = np.array(weights) * 0.999 * federation.score_bound / 2
        twin.weights[:] = scaled[:, None]
        for party, state in enumerate(states):
            words = encode(scaled, federation.fraction_bits)[:, None] * np.uint64(party == 0)
            state["weights"] = np.repeat(words, 2, axis=1)[None]
        for _ in range(30):
            number, (arm,) = lockstep.decide([x[None, :1], x[None, 1:]])
            coins = lockstep.coins(number, 1)
            scores = twin.scores(x, normals_at(coins, 0))
            wrong += scores.max() - scores[arm] > 0.05
        assert not wrong, case


@pytest.mark.parametrize(
    ("policy", "numbers", "problem"),
    [
        (Bonus(0.5), {"features": (40, 40), "max_interactions": 1_000_000}, "alpha x'Mx is made have too few bits"),
        (Bonus(1e6), {"arms": 60, "max_interactions": 1000}, "do not fit a word"),
        (LinUcb(100.0), {"max_interactions": 1000}, "tables of alpha sqrt"),
        (Thompson(1e5), {"norms": (0.1, 0.1), "max_interactions": 1000}, "tables of alpha sqrt"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    policy: Confidence, numbers: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        Federation(**{"arms": 2, "features": (1, 1), "policy": policy, **numbers})
    for change in suggested(str(refused.value)):
        Federation(**{"arms": 2, "features": (1, 1), "policy": policy, **numbers, **change})


def test_fewer_interactions_leave_more_bits_to_features() -> None:
    many = Federation(arms=10, features=(10, 10), policy=Bonus(0.5))
    few = replace(many, max_interactions=60_000)
    assert (many.spare_score_bits, few.spare_score_bits) == (12, 14)
    assert few.policy.feature_error(few) == many.policy.feature_error(many) / 2  # type: ignore[attr-defined]


def test_options_are_checked() -> None:
    for text in ("bonus:alpha=0", "linucb:alpha=-1", "thompson:alpha=1e9"):
        with pytest.raises(ConfigError, match="alpha must be positive"):
            parse_policy(text)
    with pytest.raises(ConfigError, match="policy bonus needs alpha"):
        parse_policy("bonus")
    with pytest.raises(ConfigError, match="epsilon must lie in"):
        parse_policy("linucb:alpha=.5,epsilon=2")
    for policy in POLICIES:
        assert parse_policy(str(policy)) == policy
        with pytest.raises(ConfigError, match=f"policy {policy.name} does not run in suite paper"):
            Federation(arms=2, features=(1, 1), policy=policy, suite="paper")


def test_exploration_on_top_has_its_guarantee() -> None:
    for policy in (Bonus(0.5, 0.1), LinUcb(0.5, 0.1), Thompson(0.5, 0.1)):
        assert policy.guarantee(10).eta == pytest.approx(4.5109, abs=1e-4)
    assert "no differential privacy" in Thompson(0.5).guarantee(10).sentence


# Normal numbers


def test_normal_numbers_are_normal() -> None:
    numbers = normal_numbers(words_from(100_000, "first"), words_from(100_000, "second"))
    assert stats.kstest(numbers, "norm").pvalue > SIGNIFICANCE
    top, zero = np.array([0], np.uint64), np.array([2**64 - 1], np.uint64)
    assert normal_numbers(top, top)[0] == pytest.approx(LARGEST_NORMAL)
    assert normal_numbers(zero, top)[0] == 0


def test_normal_numbers_are_new_for_every_arm_and_decision_and_leave_other_coins_as_they_are() -> None:
    federation = Federation(arms=ARMS, features=FEATURES, policy=Thompson(0.1, 0.5))
    lockstep = Lockstep(federation, fixed_key("normals"), replicates=2)
    coins = lockstep.coins(0, 500)
    assert coins.normals is not None
    assert coins.normals.shape == (500, 2, ARMS)
    assert len(np.unique(coins.normals)) == coins.normals.size
    flat = coins.normals.reshape(-1, ARMS)
    assert np.abs(np.corrcoef(flat.T) - np.eye(ARMS)).max() < 0.15
    assert 0.4 < coins.explore.mean() < 0.6
    assert np.array_equal(np.sort(coins.tags, axis=-1), np.broadcast_to(np.arange(ARMS), coins.tags.shape))
    assert Lockstep(replace(federation, policy=LinUcb(0.1)), fixed_key("normals")).coins(0, 5).normals is None
