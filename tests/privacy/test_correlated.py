"""Correlated noise: what it adds up to, that no row moves it by more than fresh noise, and what users tell."""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.correlated import COEFFICIENT_BITS, MOST_LEAVES, Correlation, correlation
from hiddenarm.privacy.gaussian import epsilon_for
from hiddenarm.privacy.ledger import PrivacyLedger, statement
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.ring.words import Floats


def added(of: Correlation) -> Floats:
    """E: what leaves add at each refresh."""
    matrix = np.eye(of.leaves)
    for k, row in enumerate(of.taken_back):
        matrix[k, :k] = -np.array(row) / 2**COEFFICIENT_BITS
    return matrix


def strategy(of: Correlation) -> Floats:
    """C in units of the widths of the leaves: what a row moves them by."""
    return np.asarray(np.linalg.inv(added(of)) / np.array(of.widths)[:, None])


@pytest.mark.parametrize(("leaves", "largest"), [(8, 1.57), (19, 1.84), (60, 2.19)])
def test_the_largest_deviation_is_that_of_the_design(leaves: int, largest: float) -> None:
    found = correlation(leaves)
    assert max(found.spreads) == pytest.approx(largest, abs=0.006)
    in_sums = np.cumsum(added(found), axis=0) * np.array(found.widths)
    assert found.spreads == pytest.approx(np.sqrt((in_sums**2).sum(axis=1)))


@pytest.mark.parametrize("leaves", [2, 3, 19, MOST_LEAVES])
def test_no_row_moves_the_leaves_by_more_than_one(leaves: int) -> None:
    lengths = np.linalg.norm(strategy(correlation(leaves)), axis=0)
    assert lengths.max() == pytest.approx(1, abs=1e-12)
    assert lengths.max() <= 1 + 1e-12
    assert lengths.min() > 0.99  # nor by much less: nothing is wasted


@pytest.mark.parametrize("leaves", [2, 19, MOST_LEAVES])
def test_a_leaf_hides_its_own_refresh_and_takes_back_no_more_than_there_is(leaves: int) -> None:
    found = correlation(leaves)
    assert [len(row) for row in found.taken_back] == list(range(leaves))
    for row in found.taken_back[1:]:
        assert min(row) >= 0
        assert sum(row) < 2**COEFFICIENT_BITS
    assert min(found.widths) >= 1


def test_blocks_follow_each_other_and_leave_their_noise_behind() -> None:
    found = correlation(3)
    assert [found.place(refresh) for refresh in range(1, 8)] == [
        *((0, 1), (0, 2), (0, 3)),
        *((1, 1), (1, 2), (1, 3)),
        (2, 1),
    ]
    assert found.spread(3) == pytest.approx(found.spreads[2])
    assert found.spread(7) == pytest.approx(sqrt(2 * found.spreads[2] ** 2 + found.spreads[0] ** 2))


def test_rows_in_several_refreshes_tell_no_more_than_is_stated() -> None:
    """All subsets of the refreshes of a block, and rows at random: what all of them move together, at worst."""
    privacy = NoisySums(1.0, correlated=6)
    moved = strategy(correlation(6))
    for count in range(1, 7):
        for chosen in combinations(range(6), count):
            worst = np.linalg.norm(moved[:, list(chosen)].sum(axis=1))
            assert worst <= privacy.of_rows([1.0] * count) + 1e-12
    rng = np.random.default_rng(3)
    for _ in range(200):
        rows = rng.integers(0, 5, size=6).tolist()
        assert np.linalg.norm(moved @ np.array(rows)) <= privacy.of_rows(rows) + 1e-12
    assert privacy.of_rows([1.0]) == 1
    assert privacy.of_rows([3.0]) == 3


def test_one_row_loses_the_same_as_with_fresh_noise_and_a_user_more() -> None:
    fresh, correlated = NoisySums(1.0), NoisySums(1.0, correlated=19)
    ledger = PrivacyLedger({2**60: 1000}, refreshes=19)
    usual, found = (statement(ledger, 10, each) for each in (fresh, correlated))
    for relation in ("dropped", "replaced", "with_own_action", "own_action"):
        assert found[relation].epsilon == usual[relation].epsilon
    assert usual["user"].epsilon == pytest.approx(epsilon_for(fresh.mu * sqrt(19), 1e-6))
    coupling = correlation(19).coupling
    assert found["user"].epsilon == pytest.approx(epsilon_for(fresh.mu * sqrt(19 * coupling), 1e-6))
    again = statement(PrivacyLedger({}, refreshes=19, repeated=1), 10, correlated)
    assert again["dropped"].epsilon == pytest.approx(epsilon_for(fresh.mu * sqrt(2), 1e-6))
    assert again["user"].epsilon > found["user"].epsilon


def test_the_adaptive_mechanism_is_that_of_a_row_that_moves_it_by_one() -> None:
    """The log likelihood ratio of what is released, by an adversary who chooses the direction of the row by what was
    released before. 20,000 seeded runs: mean mu^2 / 2 and deviation mu, of which standard errors are 0.007 mu."""
    found, mu, runs = correlation(5), 0.5, 20_000
    rng, matrix, widths = np.random.default_rng(8), added(found), np.array(found.widths) / mu
    leaves = rng.standard_normal((runs, 5, 2)) * widths[:, None]
    noise = np.einsum("kj,rji->rki", matrix, leaves)
    angle = 7 * noise[:, 0, 0]  # the row is of the second refresh, and reacts to the first
    row = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    released = noise.copy()
    released[:, 1] += row
    back = np.linalg.inv(matrix)
    explained = [np.einsum("kj,rji->rki", back, each) / widths[:, None] for each in (released, noise)]
    ratio = ((explained[0] ** 2).sum(axis=(1, 2)) - (explained[1] ** 2).sum(axis=(1, 2))) / 2
    assert ratio.std() == pytest.approx(mu, rel=0.03)
    assert ratio.mean() == pytest.approx(mu**2 / 2, abs=0.03 * mu)


@pytest.mark.parametrize("leaves", [1, -1, MOST_LEAVES + 1])
def test_what_is_no_block_is_refused(leaves: int) -> None:
    with pytest.raises(ConfigError, match="correlated must be 0, or a block of 2 to 64"):
        NoisySums(1.0, correlated=leaves)
