"""The integer sampler: its law, and that no bit of it is bare."""

from __future__ import annotations

from itertools import pairwise
from math import exp, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.noise import BASE, LEAST_WIDTH, Gaussian, digit_table
from hiddenarm.ring.words import Floats, Words
from support import SIGNIFICANCE

MOST = 1000
WIDEST = 33.0


def uniform_words(rows: int, words: int, seed: int) -> Words:
    drawn = np.random.default_rng(seed).bytes(rows * words * 8)
    return np.frombuffer(drawn, np.uint64).reshape(rows, words)


def sampled(noise: Gaussian, count: int, seed: int) -> NDArray[np.int64]:
    return noise.sample(uniform_words(count, noise.words, seed)).view(np.int64)


def discrete_gaussian(deviation: float, most: int = MOST) -> Floats:
    """Probabilities of -most to most."""
    weights = np.array([exp(-(value**2) / (2 * deviation**2)) for value in range(-most, most + 1)])
    probabilities: Floats = weights / weights.sum()
    return probabilities


@pytest.mark.parametrize("deviation", [8.0, 13.3, 31.9, 40.0, 100.0])
def test_law_is_that_of_the_discrete_gaussian(deviation: float) -> None:
    count = 200_000
    found = sampled(Gaussian(deviation), count, seed=int(deviation))
    expected = count * discrete_gaussian(deviation)
    counts = np.bincount(found + MOST, minlength=2 * MOST + 1)
    usual = expected >= 10
    rest = count - expected[usual].sum()
    observed = [*counts[usual], count - counts[usual].sum()]
    assert stats.chisquare(observed, [*expected[usual], rest]).pvalue > SIGNIFICANCE


def test_digits_of_one_word_have_the_exact_probabilities() -> None:
    """The table against the formula, to the last of 63 bits."""
    for width in (8.0, 21.7, 31.99):
        table, least = digit_table(width)
        ends = [0, *table.tolist(), 1 << 63]
        found = np.array([end - start for start, end in pairwise(ends)]) / 2.0**63
        expected = discrete_gaussian(width, -least)
        assert len(found) == len(expected)
        assert np.abs(found - expected).max() < 2e-17
        assert ends == sorted(ends)


def largest_log_ratio(width: float, base: int) -> float:
    """Of two digits to the discrete Gaussian of their variance, within 7 deviations."""
    low = discrete_gaussian(width, 40 * int(width))
    high = np.zeros(base * (len(low) - 1) + 1)
    high[::base] = low
    both = np.convolve(low, high)
    deviation = width * sqrt(1 + base**2)
    exact = discrete_gaussian(deviation, len(both) // 2)
    near = np.abs(np.arange(len(both)) - len(both) // 2) <= 7 * deviation
    return float(np.abs(np.log(both[near] / exact[near])).max())


def test_two_digits_are_a_discrete_gaussian() -> None:
    assert largest_log_ratio(LEAST_WIDTH, BASE) < 1e-13  # what float64 can tell
    assert largest_log_ratio(4.0, BASE) > 1e-9, "the measure tells a width that is too small"
    assert largest_log_ratio(8.0, 16) > 1e-3, "and a base that is too large"


def test_wide_noise_has_its_deviation_and_no_bare_bit() -> None:
    noise = Gaussian(13.7 * 2.0**40)
    assert noise.words == 21
    assert LEAST_WIDTH <= noise.width < WIDEST
    found = sampled(noise, 100_000, seed=3)
    scaled = found / noise.deviation
    assert abs(scaled.mean()) < 5 / sqrt(len(found))
    assert abs(scaled.var() - 1) < 5 * sqrt(2 / len(found))
    assert stats.kstest(scaled, "norm").pvalue > SIGNIFICANCE
    for bit in range(40):
        ones = int((found >> bit & 1).sum())
        assert stats.binomtest(ones, len(found)).pvalue > SIGNIFICANCE, f"bit {bit}"
    low = np.bincount(found & 255, minlength=256)
    assert stats.chisquare(low).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("deviation", [8.0, 31.99, 32.0, 32.99, 33.0, 200.0, 2.0**30, 2.0**57])
def test_width_lies_in_its_range_and_gives_the_variance(deviation: float) -> None:
    noise = Gaussian(deviation)
    assert LEAST_WIDTH <= noise.width < WIDEST
    places = sum(float(BASE) ** (2 * digit) for digit in range(noise.words))
    assert noise.width**2 * places == pytest.approx(deviation**2, rel=1e-12)


def test_noise_is_a_function_of_its_words() -> None:
    noise = Gaussian(1e6)
    words = uniform_words(50, noise.words, seed=8)
    assert np.array_equal(noise.sample(words), noise.sample(words.copy()))
    assert noise.sample(words.reshape(5, 10, -1)).shape == (5, 10)
    assert noise.sample(np.zeros((0, noise.words), np.uint64)).shape == (0,)


@pytest.mark.parametrize("deviation", [0.0, 7.9, -1.0, float("nan"), float("inf"), 2.0**58])
def test_what_cannot_be_drawn_is_rejected(deviation: float) -> None:
    with pytest.raises(ConfigError, match="integer noise has a deviation of 8 to"):
        Gaussian(deviation)
