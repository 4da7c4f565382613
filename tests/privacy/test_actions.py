"""The exact loss of many actions: against all adaptive policies, the figures of the design, and other ways to compute
it."""

from __future__ import annotations

from itertools import product
from math import exp, inf, isclose, log
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hiddenarm.bandit.accounting import planned_ledger
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.actions import (
    MOST_ACTIONS,
    delta_total,
    epsilon_total,
    eta,
    exploration_for,
    is_exact,
    largest_count,
    most_actions,
)
from hiddenarm.privacy.ledger import COIN_UNITS, statement
from hiddenarm.privacy.mechanisms import Unbounded

DELTA = 1e-6
COUNTS = (1, 10, 100, 1000, 10_000, 60_000)
FIGURES = [  # arms, epsilon, eta, loss of 1, 10, 100, ... actions
    (10, 0.01, 6.8987, (6.899, 68.99, 689.9, 6899, 68_620, 410_600)),
    (10, 0.1, 4.5109, (4.511, 45.11, 451.07, 4263.39, 41_290, 245_300)),
    (10, 0.3, 3.1918, (3.192, 31.92, 290.4, 2473, 23_120, 136_000)),
    (10, 0.9, 0.7472, (0.7472, 6.195, 25.40, 132.44, 931.0, 4935)),
    (2, 0.1, 2.9444, (2.944, 29.44, 294.4, 2821, 27_090, 160_500)),
    (100, 0.1, 6.8035, (6.804, 68.04, 680.3, 6409, 62_190, 369_800)),
]


@pytest.mark.parametrize(("arms", "epsilon", "one", "losses"), FIGURES)
def test_the_table_of_the_design(arms: int, epsilon: float, one: float, losses: tuple[float, ...]) -> None:
    assert eta(arms, epsilon) == pytest.approx(one, abs=5e-5)
    for count, loss in zip(COUNTS, losses, strict=True):
        digits = 5e-4 if loss < 1e5 else 2e-4
        assert epsilon_total(arms, {epsilon: count}, DELTA) == pytest.approx(loss, rel=digits)


def test_the_figures_that_are_known_to_more_digits() -> None:
    assert epsilon_total(10, {0.1: 1000}, DELTA) == pytest.approx(4263.385, abs=1e-3)
    assert epsilon_total(10, {0.9: 1000}, DELTA) == pytest.approx(132.437, abs=1e-3)
    assert epsilon_total(10, {0.1: 100}, DELTA) == pytest.approx(451.073402414076, abs=1e-9)
    assert epsilon_total(10, {0.1: 10}, DELTA) == pytest.approx(45.108592497218, abs=1e-9)
    assert epsilon_total(10, {0.9999: 60_000}, DELTA) == pytest.approx(0.4374, abs=5e-5)


@pytest.mark.parametrize(("total", "explored"), [(0.5, 0.999887), (1, 0.999784), (8, 0.998598)])
def test_how_much_exploration_a_bound_over_time_takes(total: float, explored: float) -> None:
    found = exploration_for(10, 60_000, total, DELTA)
    assert found == pytest.approx(explored, abs=1e-6)
    assert epsilon_total(10, {found: 60_000}, DELTA) <= total


def test_sixty_thousand_actions_take_seconds() -> None:
    start = process_time()
    epsilon_total(10, {0.123: 60_000}, DELTA)
    epsilon_total(10, {0.1 * 2**-halvings: 6_000 for halvings in range(10)}, DELTA)
    assert process_time() - start < 10


# Against all adaptive policies


def policies(arms: int, steps: int, epsilon: float) -> NDArray[np.float64]:
    """For each deterministic adaptive policy, the chance of each sequence of actions [policies, sequences]."""
    histories = [history for step in range(steps) for history in product(range(arms), repeat=step)]
    places = {history: place for place, history in enumerate(histories)}
    greedy, other = 1 - epsilon + epsilon / arms, epsilon / arms
    rows = []
    for choices in product(range(arms), repeat=len(histories)):
        row = []
        for sequence in product(range(arms), repeat=steps):
            taken = [choices[places[sequence[:step]]] == sequence[step] for step in range(steps)]
            row.append(float(np.prod([greedy if best else other for best in taken])))
        rows.append(row)
    return np.array(rows)


def divergence(one: NDArray[np.float64], other: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """The hockey-stick divergence of all pairs."""
    return np.asarray(np.maximum(one[:, None, :] - exp(epsilon) * other[None, :, :], 0).sum(axis=-1))


@pytest.mark.parametrize(("arms", "steps", "number"), [(2, 1, 2), (2, 2, 8), (2, 3, 128), (3, 1, 3), (3, 2, 81)])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.9])
def test_no_pair_of_adaptive_policies_tells_more_and_one_tells_as_much(
    arms: int, steps: int, number: int, epsilon: float
) -> None:
    laws = policies(arms, steps, epsilon)
    assert len(laws) == number
    for share in (-0.5, 0.0, 0.2, 0.5, 0.8, 0.95, 1.0):
        at = share * steps * eta(arms, epsilon)
        worst = float(divergence(laws, laws, at).max())
        assert delta_total(arms, {epsilon: steps}, at) == pytest.approx(worst, abs=1e-12)


@given(st.integers(0, 2**32), st.sampled_from([(2, 3), (3, 2)]), st.floats(0.05, 0.9), st.floats(0, 1))
@settings(max_examples=30)
def test_no_mixture_of_policies_tells_more(seed: int, sizes: tuple[int, int], epsilon: float, share: float) -> None:
    (arms, steps), generator = sizes, np.random.default_rng(seed)
    laws = policies(arms, steps, epsilon)
    mixtures = generator.dirichlet(np.full(len(laws), 0.05), 20) @ laws
    at = share * steps * eta(arms, epsilon)
    assert divergence(mixtures, mixtures, at).max() <= delta_total(arms, {epsilon: steps}, at) + 1e-12


# Against other ways to compute it


def by_convolution(arms: int, levels: dict[float, int], epsilon: float) -> float:
    """delta of all actions, one by one, over all values that the loss can have."""
    losses, chances = np.zeros(1), np.ones(1)
    for level, count in levels.items():
        low, step = level / arms, eta(arms, level)
        one = np.array([low, (arms - 2) * low, 1 - level + low])
        law = np.ones(1)
        for _ in range(count):
            law = np.convolve(law, one)
        losses = (losses[:, None] + step * np.arange(-count, count + 1)).ravel()
        chances = (chances[:, None] * law).ravel()
    return float(np.sum(chances * np.maximum(0, -np.expm1(np.minimum(epsilon - losses, 0)))))


LEVELS = [
    {0.2: 30},
    {0.9: 40},
    {0.2: 20, 0.5: 30},
    {0.1: 5, 0.5: 30, 0.97: 12},
    {0.3: 12, 0.45: 12, 0.6: 12, 0.95: 6},
]


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("arms", [2, 3, 10])
def test_levels_together(levels: dict[float, int], arms: int) -> None:
    """Exact for one and two levels. For more, never below, and hardly above."""
    for delta in (1e-3, 1e-6, 1e-9):
        found = epsilon_total(arms, levels, delta)
        assert by_convolution(arms, levels, found) <= delta * (1 + 1e-9)
        assert delta_total(arms, levels, found) <= delta * (1 + 1e-9)
        tight = 1e-9 if is_exact(levels) else 1e-4
        assert by_convolution(arms, levels, found * (1 - tight)) > delta
    assert is_exact(levels) == (len(levels) < 3)


@pytest.mark.parametrize(
    ("policy", "tight"),
    [(EpsilonSchedule(1.0, 0.5, 1.0), 1e-9), (EpsilonSchedule(1.0, 0.5, 4.0), 1e-4)],
    ids=["one level and pure exploration", "five levels"],
)
def test_a_schedule_is_counted_as_its_coins_are(policy: EpsilonSchedule, tight: float) -> None:
    """Against a convolution of the loss of every action, with the chance that its coin has."""
    levels, delta = planned_ledger(policy, 40).levels, 1e-6
    counts: dict[float, int] = {}
    for threshold in policy.thresholds(np.arange(40)).tolist():
        counts[threshold / COIN_UNITS] = counts.get(threshold / COIN_UNITS, 0) + 1
    found = statement(planned_ledger(policy, 40), 5, Unbounded()).headline.epsilon
    assert levels == counts
    assert by_convolution(5, counts, found) <= delta * (1 + 1e-9)
    assert by_convolution(5, counts, found * (1 - tight)) > delta


def test_one_level_cut_into_many_is_the_same_within_a_ten_thousandth() -> None:
    """Levels that differ by a trillionth have grids of their own."""
    for level, count in ((0.1, 1000), (0.9, 1000), (0.9998, 60_000)):
        whole = epsilon_total(10, {level: count}, DELTA)
        for pieces in (2, 3, 50):
            cut = {level * (1 + 1e-13 * piece): count // pieces for piece in range(pieces)}
            whole = epsilon_total(10, {level: count // pieces * pieces}, DELTA)
            assert whole * (1 - 1e-8) <= epsilon_total(10, cut, DELTA) <= whole * (1 + 1e-4)


@given(st.integers(2, 50), st.floats(0.01, 0.99), st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=30)
def test_more_actions_lose_more_and_more_exploration_less(arms: int, level: float, count: int, more: int) -> None:
    loss = epsilon_total(arms, {level: count}, DELTA)
    assert loss <= epsilon_total(arms, {level: count + more}, DELTA) * (1 + 1e-9) + 1e-12
    assert loss >= epsilon_total(arms, {level + (1 - level) / 2: count}, DELTA) * (1 - 1e-9)
    assert loss <= count * eta(arms, level) * (1 + 1e-12)


def test_what_tells_nothing_and_what_tells_all() -> None:
    assert epsilon_total(10, {}, DELTA) == 0
    assert epsilon_total(10, {1.0: 10**6}, DELTA) == 0
    assert epsilon_total(10, {0.1: 100, 1.0: 10**6}, DELTA) == epsilon_total(10, {0.1: 100}, DELTA)
    assert epsilon_total(10, {0.0: 1}, DELTA) == inf
    assert delta_total(10, {0.0: 1}, 5.0) == 1.0
    assert epsilon_total(10, {0.0: 0, 0.1: 1}, DELTA) == pytest.approx(log(91), abs=1e-5)


def test_a_delta_below_all_that_is_summed_gives_the_pure_bound() -> None:
    assert epsilon_total(10, {0.9: 1000}, 1e-40) == pytest.approx(1000 * eta(10, 0.9))


def test_how_many_actions_a_budget_holds() -> None:
    count = most_actions(10, 0.9, 100.0, DELTA)
    assert epsilon_total(10, {0.9: count}, DELTA) <= 100 < epsilon_total(10, {0.9: count + 1}, DELTA)
    assert most_actions(10, 0.1, 4.5, DELTA) == 0
    assert most_actions(10, 0.1, 4.52, DELTA) == 1
    assert most_actions(10, 1.0, 1e-9, DELTA) == MOST_ACTIONS
    for most in (0, 1, 2, 63, 1000):
        assert largest_count(most.__ge__) == most


def test_what_is_no_question_is_refused() -> None:
    for arms, levels, problem in (
        (1, {0.1: 1}, "at least two arms"),
        (2, {1.1: 1}, r"chance to explore lies in \[0, 1\]"),
        (2, {0.1: -1}, "cannot be negative"),
    ):
        with pytest.raises(ConfigError, match=problem):
            epsilon_total(arms, levels, DELTA)
    assert isclose(eta(2, 1.0), 0)
