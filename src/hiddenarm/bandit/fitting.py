"""Whether the numbers of a federation fit the ring, on the worst data that it allows.

Each party clips its own features to its declared norm; nobody sees the joint norm, so everything must hold for the
worst case R^2 = sum of the squared bounds. With W >= ridge I the inverse M is at most I / ridge, hence

    |u| = |M x| <= R / ridge         q = x'Mx in [0, R^2 / ridge]        |g u| <= 1 / (2 sqrt(ridge))

and after n interactions with rewards in [0, 1]

    |w| <= sqrt(n / ridge) / 2       |score| <= (R / 2) sqrt(n / ridge)

since w = (ridge I + X'X)^-1 X'r, |r| <= sqrt(n), and sigma / (ridge + sigma^2) <= 1 / (2 sqrt(ridge)) for every
singular value sigma of X. So a federation declares the most interactions that it is to hold; beyond them it does not
learn. Whatever is truncated must stay below 2^62: fractional plus integer bits within 62. What does not fit its worst
legal data is refused when it is made, with what would fit.

Where arms have features (`arm_features`), there is one model of products x z' in place of a model for each arm. As
|z| <= 1, a product has at most the norm R, and all bounds hold as they stand, with D d numbers in place of D.

All this is for the fast suite. The paper's has no such bounds: too few or too many bits make its divisions fail.
"""

from __future__ import annotations

from math import log2, sqrt
from typing import TYPE_CHECKING

from hiddenarm.bandit.planning import (
    RESIDUAL_NODES,
    TOLERANCE,
    GradientNumbers,
    SolvePlan,
    batch_plan,
    boosted_repair,
    last_repair,
)
from hiddenarm.mpc.comparison import MAX_BITS
from hiddenarm.mpc.truncation import MAGNITUDE_BITS
from hiddenarm.privacy.correlated import COEFFICIENT_BITS
from hiddenarm.privacy.mechanisms import STEP_BITS, NoisyGradient, NoisySums
from hiddenarm.privacy.noise import LARGEST_DEVIATION, LARGEST_SAMPLE, LEAST_WIDTH

if TYPE_CHECKING:
    from hiddenarm.bandit.federation import Federation

HEADROOM = 1 + 2.0**-8
"""Rounding may carry a value a little past its bound."""
MAX_RECIPROCAL_WORDS = 1 << 17
"""Most words of the table of reciprocals, dealt for every interaction learned: a megabyte."""
_MOST_LEAF_ROUNDING = 2.0**-10
"""Of correlated noise: by how much of itself rounding may add to what a row changes; leaves are wider by as much."""
_LARGEST_DRIFT = 0.002
"""Of a score between two repairs, as a standard deviation: scores that differ by 0.01 keep their order but for a chance
below one in a million."""


def fit_problem(federation: Federation) -> str | None:
    """What of a federation does not fit its worst legal data; None if all does."""
    for find in (
        _truncation_problem,
        _table_problem,
        comparison_problem,
        federation.policy.problem,
        _sums_problem,
        _drift_problem,
        _noise_problem,
        _gradient_problem,
        _solve_problem,
    ):
        problem = find(federation)
        if problem is not None:
            return problem
    return None


def _learns_singly(federation: Federation) -> bool:
    """Whether there are `learn` and `solve`; where there is noise, models change at refreshes only."""
    return federation.noisy is None


def _truncation_problem(federation: Federation) -> str | None:
    for name, fraction_bits, bound in truncated_values(federation):
        bits = fraction_bits + log2(bound * HEADROOM)
        if bits > MAGNITUDE_BITS:
            return (
                f"{name} (up to {bound:.4g}) with {fraction_bits} fractional bits needs {bits:.2f} bits; the limit "
                f"is {MAGNITUDE_BITS}"
            )
    return None


def truncated_values(federation: Federation) -> list[tuple[str, int, float]]:
    """Everything that `decide` and `learn` truncate, and M: name, fractional bits, largest magnitude."""
    bits, gain_bits = federation.fraction_bits, federation.gain_bits
    step = 1 / (2 * sqrt(federation.ridge))
    error = 1 + federation.score_bound
    always = [("score", 2 * bits, federation.score_bound), ("M", 2 * bits, 1 / federation.ridge)]
    if isinstance(federation.numbers, GradientNumbers):
        return [always[0], ("step times gradient", 2 * bits + STEP_BITS, federation.numbers.largest_moment)]
    if not _learns_singly(federation):
        return always
    return [
        ("M x", 3 * bits, federation.joint_norm / federation.ridge),
        *always,
        ("1 / (1 + x'Mx)", federation.wide_gain_bits, 1.0),
        ("g u", bits + gain_bits, step),
        ("u (reward - score)", 2 * bits, federation.joint_norm / federation.ridge * error),
        ("g u (reward - score)", bits + gain_bits, step * error),
    ]


def _table_problem(federation: Federation) -> str | None:
    if not _learns_singly(federation):
        return None
    rounding = federation.joint_norm * sqrt(federation.model_size) * 2.0**-federation.fraction_bits
    if rounding > 2.0**-federation.reciprocal_bits:
        return (
            f"rounding may move x'Mx by {rounding:.2g}, more than the distance that two nodes of the table of its "
            "reciprocal may have: it takes more fraction_bits or fewer reciprocal_bits"
        )
    if federation.reciprocal_shape.words > MAX_RECIPROCAL_WORDS:
        return (
            f"a table of 1 / (1 + x'Mx) up to {federation.largest_quadratic_form:.4g} with "
            f"{federation.reciprocal_bits} reciprocal_bits has more than {MAX_RECIPROCAL_WORDS} words, all dealt anew "
            "at every step"
        )
    if federation.largest_quadratic_form * 2.0**-federation.fraction_bits > TOLERANCE:
        return (
            f"x'Mx up to {federation.largest_quadratic_form:.4g} leaves too few of "
            f"{federation.fraction_bits} fraction_bits to what is learned first"
        )
    return None


def comparison_problem(federation: Federation) -> str | None:
    if federation.spare_score_bits < 0:
        return (
            f"scores up to {federation.key_bound:.4g} with 2 x {federation.fraction_bits} fractional bits do not fit "
            "a word when they are compared"
        )
    if federation.key_fraction_bits < federation.least_key_bits:
        return (
            f"scores of {federation.arms} arms up to {federation.key_bound:.4g} leave "
            f"{federation.key_fraction_bits} fractional bits to compare them in the limit of {MAX_BITS}; "
            f"{federation.least_key_bits} are needed"
        )
    return None


def _sums_problem(federation: Federation) -> str | None:
    """W and b must stay below 2^62 at 2L bits, even if all interactions are of one arm, and M must be resolved."""
    bits = 2 * federation.fraction_bits
    largest = max(federation.numbers.largest_gram, federation.ridge + federation.numbers.largest_moment)
    if bits + log2(largest * HEADROOM) > MAGNITUDE_BITS:
        return (
            f"the sums of {federation.max_interactions:,} interactions (up to {largest:.4g}) with {bits} fractional "
            f"bits need {bits + log2(largest * HEADROOM):.2f} bits; the limit is {MAGNITUDE_BITS}"
        )
    noise = federation.numbers.largest_gram * sqrt(federation.model_size * federation.numbers.unrepaired) * 2.0**-bits
    if noise > 1 / 32:
        return (
            f"after {federation.max_interactions:,} interactions M is too small for its {bits} fractional bits: "
            f"rounding errors of {federation.numbers.unrepaired:,} lessons are {noise:.2g} of it; 1/32 is the limit"
        )
    return None


def _noise_problem(federation: Federation) -> str | None:
    """Noise is drawn in units of the last of 2L bits."""
    privacy = federation.noisy
    if privacy is None:
        return None
    norm, bits, unit = federation.joint_norm, 2 * federation.fraction_bits, 2.0 ** (-2 * federation.fraction_bits)
    positions = range(1, max(1, privacy.correlated) + 1)
    widths = [privacy.leaf_width(position, norm, federation.model_size, bits) for position in positions]
    least, largest = min(widths) * privacy.sigma_moment(norm), max(widths) * privacy.sigma_moment(norm)
    if isinstance(privacy, NoisySums):
        gram = privacy.sigma_gram(norm)
        least, largest = min(min(widths) * gram / 2, least), max(max(widths) * gram, largest)
    if least < LEAST_WIDTH * unit or largest > LARGEST_DEVIATION * unit:
        return (
            f"noise of {least:.2g} to {largest:.2g} cannot be drawn with {bits} fractional bits: it must lie in "
            f"{2 * LEAST_WIDTH * unit:.2g}..{LARGEST_DEVIATION * unit:.2g}"
        )
    if privacy.correlation is None:
        return None
    needed = bits + COEFFICIENT_BITS + log2(largest * LARGEST_SAMPLE)
    if needed > MAGNITUDE_BITS or privacy.leaf_rounding(norm, federation.model_size, bits) > _MOST_LEAF_ROUNDING:
        return (
            f"correlated noise of {least:.2g} to {largest:.2g} does not fit {bits} fractional bits: "
            f"what is taken back of it takes {needed:.2f} bits, where {MAGNITUDE_BITS} is the limit; a larger "
            "total_epsilon, smaller norms or fresh noise (correlated = 0) would fit"
        )
    if privacy.correlated > federation.max_batch:
        return (
            f"correlated noise of {privacy.correlated} refreshes takes programs of as many positions, and "
            f"max_batch {federation.max_batch} is the limit"
        )
    return None


def _gradient_problem(federation: Federation) -> str | None:
    """The table that clips must reach the largest residual; else learning would be wrong, though not less private.
    And each step has a program, whose number is a count."""
    numbers, privacy = federation.numbers, federation.privacy
    if not isinstance(numbers, GradientNumbers) or not isinstance(privacy, NoisyGradient):
        return None
    if not numbers.holds:
        return (
            f"scores up to {federation.score_bound:.4g} are beyond the table that clips the gradient, of "
            f"{RESIDUAL_NODES} nodes: a larger total_epsilon or a smaller first_step would fit"
        )
    last = max(1, privacy.refreshes_by(federation.max_interactions))
    levels = privacy.step_level(last, federation.models * federation.model_size) + 1
    if levels > federation.max_batch:
        return f"steps fall {levels} times, in a program each; max_batch {federation.max_batch} is the limit"
    divided = federation.fraction_bits + privacy.step_of(levels - 1)[1].bit_length() - 1
    if divided > MAGNITUDE_BITS:
        return (
            f"steps fall so low in {federation.max_interactions:,} interactions that gradients are divided by "
            f"2^{divided}, with {federation.fraction_bits} fractional bits; 2^{MAGNITUDE_BITS} is the limit"
        )
    return None


def _drift_problem(federation: Federation) -> str | None:
    if federation.score_drift > _LARGEST_DRIFT:
        return (
            f"rounding errors of {federation.numbers.unrepaired:,} lessons between repairs move a score by "
            f"{federation.score_drift:.2g}; "
            f"{_LARGEST_DRIFT} is the limit"
        )
    return None


def _solve_problem(federation: Federation) -> str | None:
    if isinstance(federation.privacy, NoisyGradient):
        return None  # there is nothing to solve
    plans: dict[str, SolvePlan] = {}
    if _learns_singly(federation):
        batch = f"solving the model after a batch of {federation.max_batch}"
        plans[batch] = batch_plan(federation.numbers, federation.max_batch)
    name = "a repair" if _learns_singly(federation) else "a refresh"
    plans |= {name: boosted_repair(federation.numbers), f"the end of {name}": last_repair(federation.numbers)}
    for name, plan in plans.items():
        if not plan.holds:
            return (
                f"{name} leaves {max(0, plan.least_bits)} fractional bits to its values, an error of "
                f"{plan.error:.2g} to scores, where {TOLERANCE} is the limit, and of {plan.contraction:.2g} to M"
            )
    return None
