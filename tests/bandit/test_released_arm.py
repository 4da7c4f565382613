"""The released arm: its distribution on many draws, for payloads in three and in four rounds and for the shuffle.

Whatever the scores are, P(arm) lies in [epsilon / A, 1 - epsilon + epsilon / A], A the number of eligible arms. Ties
are broken evenly, and exploring is even among eligible arms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ScoreRangeError
from hiddenarm.ring.words import encode
from support import FORMS, SIGNIFICANCE, fixed_key

by_form = pytest.mark.parametrize("form", FORMS)
DRAWS, AT_ONCE = 100_000, 10_000


def arms_drawn(
    form: str,
    weights: Sequence[float],
    epsilon: float,
    *,
    eligible: Sequence[int] | None = None,
    parties: int = 2,
    draws: int = DRAWS,
) -> NDArray[np.int64]:
    """Decide many times with given scores of the arms. Weights are those of party 1's feature, which is one."""
    federation = FORMS[form](arms=len(weights), features=(1,) * parties, epsilon=epsilon)
    key = fixed_key("released", form, str(weights), str(epsilon), str(eligible), parties)
    lockstep = Lockstep(federation, key, replicates=AT_ONCE, deal_ahead=1)
    lockstep.states[1]["weights"][:, :, 1] = encode(weights, federation.fraction_bits)
    features = [np.full((AT_ONCE, 1), float(party == 1)) for party in range(parties)]
    return np.concatenate([lockstep.decide(features, eligible)[1] for _ in range(draws // AT_ONCE)])


def scores_at_the_bound(form: str, signs: Sequence[int], parties: int = 2) -> list[float]:
    """Scores of these signs, as large as legal data can bring about."""
    federation = FORMS[form](arms=len(signs), features=(1,) * parties, epsilon=0.1)
    return [sign * federation.score_bound for sign in signs]


def check_distribution(arms: NDArray[np.int64], best: Sequence[int], eligible: Sequence[int], epsilon: float) -> None:
    """The best arms share what is not explored, all eligible ones what is; and each arm keeps to its bounds, by exact
    tails of the binomial distribution."""
    counts = np.bincount(arms, minlength=max(eligible) + 1)
    assert counts.sum() == counts[list(eligible)].sum(), "an arm was chosen that is not eligible"
    least, most = epsilon / len(eligible), 1 - epsilon + epsilon / len(eligible)
    for arm in eligible:
        expected = least + (1 - epsilon) / len(best) * (arm in best)
        assert stats.binomtest(int(counts[arm]), len(arms), expected).pvalue > SIGNIFICANCE, f"arm {arm} is off"
        assert stats.binom.cdf(counts[arm], len(arms), least) > SIGNIFICANCE, f"arm {arm} is chosen too rarely"
        assert stats.binom.sf(counts[arm] - 1, len(arms), most) > SIGNIFICANCE, f"arm {arm} is chosen too often"


@by_form
@pytest.mark.parametrize(
    ("weights", "best"),
    [([0.0] * 4, [0, 1, 2, 3]), ([0.5, -0.1, 0.5, 0.5], [0, 2, 3]), ([0.3, 0.1, -0.2, 0.7], [3])],
    ids=["all tied", "three tied", "none tied"],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_ties_are_broken_evenly(weights: list[float], best: list[int], epsilon: float, form: str) -> None:
    check_distribution(arms_drawn(form, weights, epsilon), best, range(4), epsilon)


@by_form
def test_ties_of_three_parties_are_broken_evenly(form: str) -> None:
    """By rounding and tags; of scores whose last bits are dropped, too."""
    for weight in (0.5, 1 / 3):
        arms = arms_drawn(form, [weight, -0.1, weight, weight], 0.2, parties=3)
        check_distribution(arms, [0, 2, 3], range(4), 0.2)


@by_form
@pytest.mark.parametrize(
    ("signs", "best"), [([-1, -1, 1, -1], [2]), ([-1, -1, 1, 1], [2, 3]), ([-1, 1], [1]), ([-1, -1], [0, 1])], ids=str
)
def test_scores_at_their_bound_are_compared_and_explored(signs: list[int], best: list[int], form: str) -> None:
    arms = arms_drawn(form, scores_at_the_bound(form, signs), 0.3)
    check_distribution(arms, best, range(len(signs)), 0.3)


@by_form
@pytest.mark.parametrize("parties", [3, 5])
def test_no_decision_of_many_parties_fails_at_the_bound(parties: int, form: str) -> None:
    weights = scores_at_the_bound(form, [-1, 1, -1], parties)
    assert set(arms_drawn(form, weights, 0.0, parties=parties)) == {1}


@by_form
@pytest.mark.parametrize("weights", [[0.25, 0.25], [0.25, -0.25]], ids=["tied", "not tied"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_two_arms(weights: list[float], epsilon: float, form: str) -> None:
    check_distribution(arms_drawn(form, weights, epsilon), [0, 1] if weights[1] > 0 else [0], [0, 1], epsilon)


@by_form
@pytest.mark.parametrize(
    ("weights", "eligible", "best"),
    [
        ([0.9, 0.1, 0.1, -0.9, 0.8], [1, 2, 3], [1, 2]),
        ([0.9, 0.1, 0.1, -0.9, 0.8], [0, 4], [0]),
        ([0.9, 0.1, 0.1, -0.9, 0.8], [3], [3]),
    ],
    ids=["three, two tied", "two", "one"],
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_only_eligible_arms_are_chosen(
    weights: list[float], eligible: list[int], best: list[int], epsilon: float, form: str
) -> None:
    check_distribution(arms_drawn(form, weights, epsilon, eligible=eligible), best, eligible, epsilon)


@by_form
def test_an_eligible_arm_at_the_lower_bound_wins_over_others_at_the_upper(form: str) -> None:
    weights = scores_at_the_bound(form, [1, -1, 1, -1])
    check_distribution(arms_drawn(form, weights, 0.3, eligible=[1, 3]), [1, 3], [1, 3], 0.3)


@by_form
def test_exploring_does_not_look_at_scores_far_out_of_range(form: str) -> None:
    """Everything is explored: the arm is uniform, and no decision ends for want of an order."""
    weights = [2.0**40, -(2.0**42), 0.0, 2.0**43 - 1]
    check_distribution(arms_drawn(form, weights, 1.0), range(4), range(4), 1.0)
    check_distribution(arms_drawn(form, weights, 1.0, eligible=[0, 3]), [0, 3], [0, 3], 1.0)


@by_form
def test_scores_out_of_range_that_have_no_order_are_noticed(form: str) -> None:
    """Three keys a third of the circle apart beat each other in a ring."""
    federation = FORMS[form](arms=3, features=(1, 1), epsilon=0.1)
    third = 2.0 ** (federation.comparison_bits - federation.key_fraction_bits - federation.tag_bits) / 3
    with pytest.raises((ScoreRangeError, ValueError)):
        arms_drawn(form, [0.0, third, -third], 0.0, draws=AT_ONCE)
