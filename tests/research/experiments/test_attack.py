"""The membership-inference attack, on outcomes whose advantage is known."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.research.experiments.attack import (
    attack,
    attack_across_halves,
    outcomes,
    outcomes_of_halves,
    policy,
    sampling_variance,
    without_arms,
)
from hiddenarm.ring.words import Floats

RNG = np.random.default_rng(7)


def random_outcomes(*shape: int) -> Floats:
    return RNG.integers(1, 30, size=(*shape, 2)).astype(np.float64)


def test_the_policy_is_greedy_but_for_epsilon() -> None:
    chances = policy(np.array([[0.1, 0.9, 0.2, 0.0], [3.0, -1.0, 2.0, 2.5]]), 0.2)
    assert chances == pytest.approx(np.array([[0.05, 0.85, 0.05, 0.05], [0.85, 0.05, 0.05, 0.05]]))


def test_arms_that_are_equally_good_share_alike() -> None:
    chances = policy(np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]), 0.2)
    assert chances == pytest.approx(np.array([[0.45, 0.45, 0.05, 0.05], [0.25, 0.25, 0.25, 0.25]]))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_the_policys_outcomes_are_those_of_many_samples(epsilon: float) -> None:
    rng = np.random.default_rng(1)
    arms, times = 4, 4_000
    contexts, labels = rng.normal(size=(25, 3)), rng.integers(arms, size=25)
    model = rng.normal(size=(arms, 3))
    exact = outcomes_of_halves(model, contexts, labels, epsilon).sum(axis=0)

    sampled = np.zeros((arms, 2))
    for _ in range(times):
        explore = rng.random(25) < epsilon
        chosen = np.where(explore, rng.integers(arms, size=25), (contexts @ model.T).argmax(axis=1))
        np.add.at(sampled, (chosen, (chosen == labels).astype(int)), 1 / times)
    error = 0.5 * np.sqrt(25 / times)
    assert np.abs(sampled - exact).max() < 5 * error
    assert exact.sum() == pytest.approx(25)


def test_halves_are_every_other_example() -> None:
    contexts, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 0, 2])
    halves = outcomes_of_halves(np.eye(3), contexts, labels, 0.0)
    assert halves.tolist() == [[[0, 1], [0, 0], [1, 0]], [[1, 0], [0, 1], [0, 0]]]


def test_outcomes_count_wins_at_the_label() -> None:
    chances = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])
    counts = outcomes(chances, np.array([0, 2]))
    assert counts == pytest.approx(np.array([[0.0, 0.7], [1.2, 0.0], [0.1, 0.0]]))


def test_equal_sets_give_no_advantage() -> None:
    counts = random_outcomes(10)
    for members, others in ((counts, counts), (without_arms(counts), without_arms(counts)), (counts, 3 * counts)):
        assert attack(members, others).advantage == pytest.approx(0, abs=1e-12)


def test_a_model_that_knows_its_examples_by_heart_gives_all_away() -> None:
    """Every member wins, nobody else does."""
    members, others = np.array([[0.0, 4.0], [0.0, 6.0]]), np.array([[50.0, 0.0], [50.0, 0.0]])
    for rates in (attack(members, others), attack(without_arms(members), without_arms(others))):
        assert rates.true_positive == 1
        assert rates.false_positive == 0
    halves = attack_across_halves(np.stack([members, members]), np.stack([others, others]))
    assert halves.advantage == 1


def test_a_small_case_by_hand() -> None:
    """p_train(1 | 0) = 3/4 > 1/2 and p_train(0 | 1) = 1/2 > 1/3, so members are suspected for (0, won), (1, lost)."""
    members, others = np.array([[1.0, 3.0], [1.0, 1.0]]), np.array([[3.0, 3.0], [1.0, 2.0]])
    rates = attack(members, others)
    assert rates.true_positive == pytest.approx((3 + 1) / 6)
    assert rates.false_positive == pytest.approx((3 + 1) / 9)
    assert rates.advantage == pytest.approx(2 / 9)


def test_looking_at_the_reward_alone_gains_the_difference_of_mean_rewards() -> None:
    members, others = random_outcomes(50, 10), random_outcomes(50, 10)
    mean = [counts[..., 1].sum(axis=1) / counts.sum(axis=(1, 2)) for counts in (members, others)]
    rates = attack(without_arms(members), without_arms(others))
    assert rates.advantage == pytest.approx(abs(mean[0] - mean[1]))


def test_an_arm_that_one_set_never_chose_is_no_sign_of_membership() -> None:
    members, others = np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([[0.0, 7.0], [2.0, 2.0]])
    for first, second in ((members, others), (others, members)):
        rates = attack(first, second)
        assert rates.true_positive == rates.false_positive == 0


def test_neither_the_names_of_arms_nor_the_sizes_of_sets_matter() -> None:
    members, others = random_outcomes(10), random_outcomes(10)
    order = RNG.permutation(10)
    rates = attack(members, others)
    for same in (attack(members[order], others[order]), attack(4 * members, others), attack(members, others / 8)):
        assert same.true_positive == pytest.approx(rates.true_positive)
        assert same.false_positive == pytest.approx(rates.false_positive)


def test_many_attacks_at_once_are_each_their_own() -> None:
    members, others = random_outcomes(3, 4, 2, 10), random_outcomes(3, 4, 2, 10)
    whole, halves = attack(members, others), attack_across_halves(members, others)
    assert whole.advantage.shape == (3, 4, 2)
    assert halves.advantage.shape == (3, 4)
    assert whole.advantage[1, 2, 0] == attack(members[1, 2, 0], others[1, 2, 0]).advantage
    assert halves.advantage[2, 3] == attack_across_halves(members[2, 3], others[2, 3]).advantage


def test_across_halves_the_one_is_judged_by_the_other() -> None:
    """The halves contradict each other: what is likelier among members in the one is less likely in the other."""
    members = np.array([[[1.0, 3.0]], [[3.0, 1.0]]])
    others = np.array([[[2.0, 2.0]], [[2.0, 2.0]]])
    assert attack_across_halves(members, others).advantage == pytest.approx(-0.25)
    assert attack(members, others).advantage == pytest.approx(0.25)


def test_where_nothing_leaks_only_the_stricter_attack_gains_nothing() -> None:
    """Members and others are drawn alike. Knowing the very sets that are attacked is worth something all the same."""
    rng = np.random.default_rng(3)
    runs, arms, size = 4_000, 5, 40
    chance = np.full((arms, 2), 0.5 / arms)
    members, others = (
        rng.multinomial(size, chance.ravel(), size=(runs, 2)).reshape(runs, 2, arms, 2).astype(np.float64)
        for _ in range(2)
    )
    within = attack(members.sum(axis=1), others.sum(axis=1)).advantage
    across = attack_across_halves(members, others).advantage
    assert within.mean() > 0.05
    assert abs(across.mean()) < 4 * across.std() / np.sqrt(runs)


def test_models_without_outcomes_have_no_advantage_at_all() -> None:
    members, others = random_outcomes(2, 10), random_outcomes(2, 10)
    members[0] = others[0] = np.nan
    assert np.isnan(attack(members, others).advantage).tolist() == [True, False]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
def test_tossing_the_coins_would_make_the_mean_reward_vary(epsilon: float) -> None:
    scores, labels = RNG.normal(size=(60, 4)), RNG.integers(4, size=60)
    chances = policy(scores, epsilon)
    wins = chances[np.arange(60), labels]
    variance = sampling_variance(outcomes(chances, labels), epsilon)
    assert variance == pytest.approx((wins * (1 - wins)).sum() / 60**2, abs=1e-12)
