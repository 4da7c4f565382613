"""The dealer's coins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hiddenarm.bandit.coins import Coins, exploration_thresholds
from support import SIGNIFICANCE, evenness, independence, words_from

LAST = 2**64 - 1


def one(words: list[int], epsilon: float) -> Coins:
    return Coins.from_words(np.array(words, np.uint64), exploration_thresholds(epsilon))


def test_thresholds_are_exact_at_both_ends() -> None:
    assert int(exploration_thresholds(0.0)) == 0
    assert int(exploration_thresholds(1.0)) == 2**63
    assert int(exploration_thresholds(0.5)) == 2**62
    for word in (0, 1, 2**63, LAST):
        assert not one([word, 0, 0], 0.0).explore
        assert one([word, 0, 0], 1.0).explore


def test_exploring_starts_at_the_threshold() -> None:
    assert one([2**63 - 1, 0, 0], 0.5).explore
    assert not one([2**63, 0, 0], 0.5).explore
    assert int(one([2**63 - 1, 0, 0], 0.5).kept) == 0
    assert int(one([2**63, 0, 0], 0.5).kept) == 1


@pytest.mark.parametrize("arms", [2, 7, 10])
def test_coins_are_fair(arms: int) -> None:
    count, epsilon = 100_000, 0.1
    words = words_from((count, Coins.words(arms)), "coins", arms)
    coins = Coins.from_words(words, exploration_thresholds(epsilon))
    assert stats.binomtest(int(coins.explore.sum()), count, epsilon).pvalue > SIGNIFICANCE
    highest = np.argmax(coins.tags, axis=-1)
    for cells in (coins.tags[:, 0], coins.tags[:, -1], highest, highest[coins.explore]):
        assert evenness(cells, arms) > SIGNIFICANCE
    assert independence(coins.explore.astype(int), highest) > SIGNIFICANCE
    assert np.array_equal(np.sort(coins.tags, axis=-1), np.broadcast_to(np.arange(arms), coins.tags.shape))


def test_the_same_words_give_the_same_coins() -> None:
    words = words_from((50, 3, 6), "same")
    thresholds = exploration_thresholds([0.0, 0.5, 1.0])
    first, second = (Coins.from_words(words.copy(), thresholds) for _ in range(2))
    assert np.array_equal(first.explore, second.explore)
    assert np.array_equal(first.tags, second.tags)
    assert first.explore[:, 2].all()
    assert not first.explore[:, 0].any()
    assert first.tags.shape == (50, 3, 5)


def test_coins_show_nothing() -> None:
    assert "object at" in repr(one([0, 0, 0], 0.5))
