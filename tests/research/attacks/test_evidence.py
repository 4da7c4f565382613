"""Curves, rates and their intervals, calibration and lower bounds, on scores whose law is known."""

from __future__ import annotations

from math import erf, exp, log, sqrt

import numpy as np
import pytest
from scipy.special import betaincinv

from hiddenarm.research.attacks.bounds import clopper_pearson_lower, lower_bound
from hiddenarm.research.attacks.evidence import Evidence, calibration, mean_of_trials
from hiddenarm.ring.words import Floats

KEY = bytes(range(32))
MU = 1.0


def gaussian_scores(trials: int, seed: int) -> tuple[Floats, np.ndarray]:
    """Log likelihood ratios of N(0, 1) and N(mu, 1)."""
    present = np.arange(trials) % 2 == 1
    seen = np.random.default_rng(seed).standard_normal(trials) + MU * present
    return MU * seen - MU**2 / 2, present


def responses(trials: int, seed: int, eta: float) -> tuple[Floats, np.ndarray]:
    """Randomised response on one bit."""
    present = np.arange(trials) % 2 == 1
    truthful = np.random.default_rng(seed).random(trials) < 1 / (1 + exp(-eta))
    return np.where(present == truthful, eta, -eta), present


def test_the_curve_counts_ties_together() -> None:
    scores, present = np.array([2.0, 2.0, 1.0, 1.0, 0.0, -1.0]), np.array([True, False, True, True, False, False])
    curve = Evidence.of_trials(scores, present).curve
    assert curve.false_positive.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 1])
    assert curve.true_positive.tolist() == pytest.approx([0, 1 / 3, 1, 1, 1])
    assert curve.true_positive_at(0) == 0
    assert curve.true_positive_at(0.01) == pytest.approx(0.01)  # a coin decides whom of the first two to accuse
    assert curve.true_positive_at(1 / 3) == 1
    assert curve.true_positive_at(1) == 1


def test_rates_of_gaussians_are_those_of_theory() -> None:
    evidence = Evidence.of_trials(*gaussian_scores(40_000, 1))
    hits, advantage = evidence.true_positive_at(0.01, KEY), evidence.advantage(KEY)
    assert hits.low < 0.0924 < hits.high
    assert advantage.low < erf(MU / (2 * sqrt(2))) < advantage.high
    assert hits.high - hits.low < 0.03
    assert advantage.high - advantage.low < 0.02


def test_outcomes_of_known_mass_count_as_such() -> None:
    """One trial of two outcomes is as good as many trials that are made."""
    evidence = Evidence(np.array([[1.0, -1.0]]), np.array([[0.7, 0.3]]), np.array([[0.2, 0.8]]))
    assert evidence.advantage(KEY).value == pytest.approx(0.5)
    assert evidence.curve.true_positive.tolist() == pytest.approx([0, 0.7, 1])


def test_the_interval_of_a_mean_is_two_standard_errors_wide() -> None:
    values = np.random.default_rng(4).standard_normal(10_000)
    estimate = mean_of_trials(values, KEY)
    assert estimate.value == pytest.approx(values.mean())
    assert (estimate.high - estimate.low) / 2 == pytest.approx(0.0196, rel=0.1)


@pytest.mark.parametrize("limit", [0.5, 1.0, 3.0])
def test_likelihood_ratios_are_calibrated_and_other_scores_are_not(limit: float) -> None:
    scores, present = gaussian_scores(100_000, 2)
    assert abs(calibration(scores, present, limit).deviations) < 4
    assert abs(calibration(scores + 0.3, present, limit).deviations) > 4


@pytest.mark.parametrize(("successes", "trials"), [(1, 10), (7, 7), (3, 1000), (800, 1000), (9_990, 10_000)])
def test_intervals_are_those_of_clopper_and_pearson(successes: int, trials: int) -> None:
    expected = betaincinv(successes, trials - successes + 1, 0.025)
    assert clopper_pearson_lower(successes, trials, 0.025) == pytest.approx(expected, abs=1e-9)


def test_no_success_bounds_nothing() -> None:
    assert clopper_pearson_lower(0, 100, 0.025) == 0


def test_the_lower_bound_is_near_the_loss_and_seldom_above_it() -> None:
    eta = log(10)
    bounds = [lower_bound(*responses(2_000, seed, eta), 1e-6).epsilon for seed in range(200)]
    assert np.mean(np.array(bounds) > eta) <= 0.05
    assert np.median(bounds) > 0.8 * eta


def test_scores_that_say_nothing_bound_nothing() -> None:
    scores, present = np.random.default_rng(5).standard_normal(4_000), np.arange(4_000) % 2 == 1
    assert lower_bound(scores, present, 1e-6).epsilon == 0
    assert lower_bound(np.zeros(4_000), present, 1e-6).epsilon == 0


def test_the_bound_also_looks_at_absence() -> None:
    """Scores that exclude world 1 now and then, and never world 0."""
    present = np.arange(8_000) % 2 == 1
    scores = np.where(~present & (np.arange(8_000) % 20 < 10), -np.inf, 0.7)
    bound = lower_bound(scores, present, 1e-6)
    assert bound.of_absence
    assert bound.false_alarms == 0
    assert bound.epsilon > 5
