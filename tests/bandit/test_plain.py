"""Many plain twins that advance together are each a plain twin."""

from __future__ import annotations

import os
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit, PlainBandits
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.privacy.actions import eta
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import World

REPLICATES, ARMS, FEATURES, STEPS = 4, 5, 6, 300
MNIST = Path(__file__).parents[3] / "shared" / "data" / "mnist"
CUBE_ROOT = "epsilon-schedule:initial=0.5,final=0,decay=1,power=0.333333333333"


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_twins_together_decide_and_learn_as_each_alone(ridge: float) -> None:
    rng = np.random.default_rng(11)
    together = PlainBandits(REPLICATES, ARMS, FEATURES, ridge)
    alone = [PlainBandit(ARMS, FEATURES, ridge) for _ in range(REPLICATES)]
    chosen = np.zeros(ARMS)
    for _ in range(STEPS):
        contexts = rng.normal(size=(REPLICATES, FEATURES))
        explore, tags = rng.random(REPLICATES) < 0.2, rng.permuted(np.tile(np.arange(ARMS), (REPLICATES, 1)), axis=1)
        arms = together.decide(contexts, explore, tags)
        each = [one.decide(*given) for one, *given in zip(alone, contexts, explore, tags, strict=True)]
        assert arms.tolist() == each

        rewards = (rng.random(REPLICATES) < 0.5).astype(np.float64)
        together.learn(contexts, arms, rewards)
        for one, *given in zip(alone, contexts, each, rewards, strict=True):
            one.learn(*given)
        np.add.at(chosen, arms, 1)
        assert np.allclose(together.weights, [one.weights for one in alone], rtol=0, atol=1e-12)
    assert np.allclose(together.inverses, [one.inverses for one in alone], rtol=0, atol=1e-12)
    assert (chosen > STEPS / 10).all()


def test_before_anything_is_learned_tags_decide() -> None:
    tags = np.array([[0, 2, 1], [2, 1, 0]])
    arms = PlainBandits(2, 3, 4).decide(np.ones((2, 4)), np.array([False, True]), tags)
    assert arms.tolist() == [1, 0]


def test_among_equally_good_arms_the_highest_tag_wins_but_not_over_a_better_arm() -> None:
    bandits = PlainBandits(2, 3, 1)
    bandits.weights[:, :, 0] = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    arms = bandits.decide(np.ones((2, 1)), np.zeros(2, np.bool_), np.array([[0, 1, 2], [2, 1, 0]]))
    assert arms.tolist() == [1, 2]


def test_only_the_pulled_arm_learns() -> None:
    bandits = PlainBandits(2, 3, 4)
    bandits.learn(np.ones((2, 4)), np.array([0, 2]), np.array([1.0, 1.0]))
    assert (bandits.weights != 0).any(axis=2).tolist() == [[True, False, False], [False, False, True]]


class TestAgreement:
    TAGS = np.array([0, 2, 1])

    def bandit(self) -> PlainBandit:
        bandit = PlainBandit(3, 1)
        bandit.weights[:, 0] = [0.5, 0.5 - 1e-4, 0.0]
        return bandit

    @pytest.mark.parametrize(("rounding", "expected"), [(0.0, [True, False, False]), (2e-4, [True, True, False])])
    def test_the_best_arm_and_those_within_the_rounding(self, rounding: float, expected: list[bool]) -> None:
        one = np.ones(1)
        assert [self.bandit().agrees(arm, one, False, self.TAGS, rounding) for arm in range(3)] == expected

    def test_an_explored_arm_is_that_of_the_highest_tag_whatever_the_scores(self) -> None:
        agreed = [self.bandit().agrees(arm, np.ones(1), True, self.TAGS, 1.0) for arm in range(3)]
        assert agreed == [False, True, False]

    def test_twins_together_agree_as_each_alone(self) -> None:
        rng = np.random.default_rng(12)
        together = PlainBandits(40, ARMS, FEATURES)
        together.weights[:] = rng.normal(size=together.weights.shape)
        contexts, explore = rng.normal(size=(40, FEATURES)), rng.random(40) < 0.3
        tags, arms = rng.permuted(np.tile(np.arange(ARMS), (40, 1)), axis=1), rng.integers(ARMS, size=40)
        agreed = together.agree(arms, contexts, explore, tags, 0.5)
        for replicate, expected in enumerate(agreed.tolist()):
            alone = PlainBandit(ARMS, FEATURES)
            alone.weights = together.weights[replicate]
            drawn = bool(explore[replicate]), tags[replicate]
            assert alone.agrees(int(arms[replicate]), contexts[replicate], *drawn, 0.5) == expected
        assert 0 < agreed[explore].sum() < explore.sum()
        assert 0 < agreed[~explore].sum() < (~explore).sum()


# What twins earn in the clear


@pytest.mark.skipif(not os.environ.get("HIDDENARM_SOAK"), reason="a part of `make soak`: two minutes")
@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is no part of the project: it may lie beside it")
@pytest.mark.parametrize(
    ("policy", "reward", "room", "first_thousand"),
    [
        (CUBE_ROOT, 0.828, 0.008, (0.4, 0.6)),
        ("epsilon-greedy:epsilon=0", 0.832, 0.013, (0.4, 0.55)),
        ("epsilon-greedy:epsilon=0.1", 0.768, 0.01, (0.4, 0.55)),
        ("softmax", 0.358, 0.01, (0.1, 0.3)),
        ("bonus:alpha=0.5", 0.848, 0.004, (0.6, 0.75)),
        ("linucb:alpha=0.25", 0.845, 0.004, (0.6, 0.75)),
        ("thompson:alpha=0.1", 0.847, 0.005, (0.6, 0.75)),
    ],
)
def test_rewards_of_twins_on_mnist(
    policy: str, reward: float, room: float, first_thousand: tuple[float, float]
) -> None:
    """60,000 steps, and the first thousand of them. Softmax of the scores loses as much of one action as epsilon-greedy
    with 0.1."""
    earned = rewards_of(load_world("mnist", data_dir=MNIST).reseeded(2), policy, 60_000)
    assert earned.mean() == pytest.approx(reward, abs=room)
    assert first_thousand[0] < earned[:1000].mean() < first_thousand[1]


def test_twins_learn_in_the_clear_and_softmax_loses_what_it_is_said_to() -> None:
    world = load_world("digits")
    greedy, softmax, cube_root = (
        rewards_of(world, one, 400)[200:].mean() for one in ("epsilon-greedy:epsilon=0.1", "softmax", CUBE_ROOT)
    )
    assert min(greedy, cube_root) > softmax > 0.1
    u = inverse_temperature(10, eta(10, 0.1))
    best, other = np.zeros(10), np.zeros(10)
    best[0], other[0], other[1:] = 1.0, 0.0, 1.0
    assert log(probabilities(best, u)[0] / probabilities(other, u)[0]) == pytest.approx(eta(10, 0.1))


def rewards_of(world: World, policy: str, steps: int) -> NDArray[np.float64]:
    """What the twin of a policy earns by itself, or the greedy learner whose arm softmax draws."""
    chosen = parse_policy("epsilon-greedy:epsilon=0" if policy == "softmax" else policy)
    half = world.features // 2
    twin = chosen.twin(Federation(arms=world.arms, features=(half, world.features - half), policy=chosen))
    generator, earned, u = np.random.default_rng(2), np.empty(steps), inverse_temperature(world.arms, eta(10, 0.1))
    explored = chosen.thresholds(np.arange(steps)) / 2.0**63
    for step in range(steps):
        context = world.context(step)
        if policy == "softmax":
            arm = int(generator.choice(world.arms, p=probabilities(twin.scores(context), u)))
        else:
            normals = generator.standard_normal(world.arms)
            tags = generator.permutation(world.arms)
            arm = twin.decide(context, bool(generator.random() < explored[step]), tags, normals)
        earned[step] = world.reward(step, arm)
        twin.learn(context, arm, float(earned[step]))
    return earned


def probabilities(scores: NDArray[np.float64], u: float) -> NDArray[np.float64]:
    """Of softmax, on scores from 0 to 1."""
    weights = np.exp(u * (np.clip(scores, 0, 1) - 1))
    return np.asarray(weights / weights.sum())


def inverse_temperature(arms: int, loss: float) -> float:
    """Whose softmax loses so much of one action: between the best arm of all others at 0, and the worst of all others
    at 1."""
    low, high = 0.0, 2 * loss
    for _ in range(60):
        u = (low + high) / 2
        found = u + log(1 + (arms - 1) * exp(u)) - log(exp(u) + arms - 1)
        low, high = (u, high) if found < loss else (low, u)
    return low
