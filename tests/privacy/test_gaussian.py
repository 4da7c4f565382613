"""Gaussian differential privacy: the figures of the design, and the properties that its functions must have."""

from __future__ import annotations

from math import exp, inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.gaussian import (
    REPLACED,
    advantage,
    composed,
    delta_at,
    epsilon_for,
    mu_for,
    own_action_epsilon,
    tpr_at,
)

DELTA = 1e-6
FIGURES = [  # epsilon of a dropped row, mu, epsilon of a replaced row, TPR at FPR 1 %, advantage
    (0.5, 0.12411, 0.772, 0.0138, 0.050),
    (1, 0.23670, 1.551, 0.0183, 0.094),
    (2, 0.44833, 3.128, 0.0302, 0.177),
    (4, 0.83786, 6.352, 0.0683, 0.325),
    (8, 1.53155, 13.019, 0.2134, 0.556),
]


@pytest.mark.parametrize(("epsilon", "mu", "replaced", "tpr", "most"), FIGURES)
def test_the_figures_of_the_design(epsilon: float, mu: float, replaced: float, tpr: float, most: float) -> None:
    found = mu_for(epsilon, DELTA)
    assert found == pytest.approx(mu, abs=1e-5)
    assert epsilon_for(REPLACED * found, DELTA) == pytest.approx(replaced, abs=5e-4 + 1e-9)
    assert tpr_at(found, 0.01) == pytest.approx(tpr, abs=5e-5)
    assert advantage(found) == pytest.approx(most, abs=6e-4)


@pytest.mark.parametrize(("explored", "epsilon"), [(0.1, 5.506), (0.02, 7.195), (0.5, 3.366)])
def test_own_action_and_all_others(explored: float, epsilon: float) -> None:
    assert own_action_epsilon(mu_for(1, DELTA), 10, explored, DELTA) == pytest.approx(epsilon, abs=5e-4)


def test_an_own_action_that_tells_nothing_or_everything() -> None:
    mu = mu_for(1, DELTA)
    assert own_action_epsilon(mu, 10, 1.0, DELTA) == pytest.approx(1, abs=1e-9)
    assert own_action_epsilon(mu, 10, 0.0, DELTA) == inf
    assert own_action_epsilon(0.0, 10, 0.1, DELTA) == pytest.approx(4.5109, abs=1e-4)


@given(st.floats(1e-3, 60), st.sampled_from([1e-3, 1e-6, 1e-9, 1e-12]))
def test_mu_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    assert epsilon_for(mu_for(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)
    assert delta_at(mu_for(epsilon, delta), epsilon) <= delta * (1 + 1e-9)


@given(st.floats(0.05, 3), st.floats(-5, 8))
def test_delta_is_the_hockey_stick_divergence(mu: float, epsilon: float) -> None:
    """By quadrature of (p - e^epsilon q)_+ over the line."""
    x = np.linspace(-14, 14, 200_001)
    p, q = (np.exp(-((x - middle) ** 2) / 2) / np.sqrt(2 * np.pi) for middle in (mu, 0.0))
    area = float(np.trapezoid(np.maximum(p - exp(epsilon) * q, 0), x))
    assert delta_at(mu, epsilon) == pytest.approx(area, abs=2e-8)


@given(st.floats(0.01, 5))
def test_no_threshold_does_better_than_the_bound_on_attacks(mu: float) -> None:
    """The test x > c tells N(mu, 1) from N(0, 1) best: its rates are on the curve, and its best difference is the
    advantage."""
    rates = np.linspace(0.001, 0.999, 401)
    differences = np.array([tpr_at(mu, rate) - rate for rate in rates])
    assert differences.max() <= advantage(mu) + 1e-12
    assert differences.max() == pytest.approx(advantage(mu), abs=2e-3)
    assert tpr_at(mu, 0.01) <= exp(epsilon_for(mu, DELTA)) * 0.01 + DELTA + 1e-12


def test_extremes_stay_finite_and_ordered() -> None:
    large = [epsilon_for(mu, DELTA) for mu in (10, 40, 100, 1000)]
    assert large == sorted(large)
    assert large[-1] == pytest.approx(1000**2 / 2 + 4.7534 * 1000, rel=1e-3)
    assert delta_at(1000, 1e5) == 1.0
    assert delta_at(0, 0.1) == 0.0
    assert delta_at(0, -0.1) == pytest.approx(1 - exp(-0.1))
    assert epsilon_for(inf, DELTA) == inf
    assert composed([3.0, 4.0]) == 5.0
    assert epsilon_for(composed([0.1] * 10), DELTA) == pytest.approx(epsilon_for(0.1 * sqrt(10), DELTA))


@pytest.mark.parametrize("delta", [0, 1, -1e-6, float("nan")])
def test_what_is_no_delta_is_refused(delta: float) -> None:
    for inverse in (mu_for, epsilon_for):
        with pytest.raises(ConfigError, match="delta must lie between 0 and 1"):
            inverse(1, delta)
