"""Many plain twins that advance together are each a plain twin."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.bandit.plain import PlainBandit, PlainBandits

REPLICATES, ARMS, FEATURES, STEPS = 4, 5, 6, 300


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
