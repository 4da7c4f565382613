"""What policies share that choose the best of w'x and a bonus for what is not known well, a function of x'Mx.

x'Mx is a quadratic form of masked inverses and of the context once more, with few bits: each party multiplies its own
features by a public factor, rounds them to whole numbers c, and masks them in the first round beside all else. The form
c'Mc then has 2L fractional bits and those of the square of the factor, and nothing is truncated; it need only be right
modulo 2^64, which leaves the factor so many bits:

    bonus           all that a key does not need                      x'Mx is added to w'x as it is
    root            all that x'Mx, at most R^2 / ridge, does not      x'Mx is looked up (`mpc.root`)

Where arms have features there is one M, of products phi_a = x z_a'. Then phi_a'M phi_a = z_a'Q z_a with Q = X'MX of the
context alone, d x d numbers, which are truncated in a round of their own; z is public, so that the form of every arm is
a linear map of their shares. Only `bonus` runs there: a root would take tables for every arm.

A rounded context is off by e, |e| <= sqrt(D) / (2 factor). So x'Mx is off by at most (2 |e| R + |e|^2) / ridge, and its
root by at most |e| / sqrt(ridge). A federation in which this is more than an eighth of the largest bonus, and more than
`LEAST_ERROR`, is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, isfinite, log2, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hiddenarm.bandit.arm_table import ARM_BITS
from hiddenarm.bandit.coins import Coins, Positions
from hiddenarm.bandit.plain import PlainBandit, PlainBandits, PlainSharedBandit, PlainSharedBandits
from hiddenarm.bandit.policy import Learner, check_epsilon
from hiddenarm.bandit.programs import LinearScores, ScoreFactors, Scores, SharedScores, linear_scores
from hiddenarm.bandit.ridge import RidgeLearner
from hiddenarm.bandit.ridge_policy import RidgePerArm
from hiddenarm.bandit.shared_model import SharedRidgeLearner
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.forms import form, public_form, quadratic_form
from hiddenarm.mpc.masking import input_segments, mask_symmetric, share_of
from hiddenarm.mpc.root import RootShape, RootTables, look_up_root, root_shape, root_tables
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.truncation import MAGNITUDE_BITS, truncate
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Floats, Words

if TYPE_CHECKING:
    from hiddenarm.bandit.federation import Federation

LEAST_ERROR = 0.01
"""Of a key: errors below it are accepted however small the bonus is."""
LARGEST_PART = 1 / 8
"""Of the largest bonus that may be an error."""
ROOT_ERROR = 2.0**-10
"""Largest error of alpha times a root, as tables have it; times the normal number in Thompson sampling."""
MAX_ROOT_WORDS = 4096
"""Most words dealt for a root."""
_MOST_ALPHA = 1e6
_MULTIPLIER_BITS = 30
_MOST_BONUS_BITS = 40
"""Of alpha x'Mx beyond 2L: with those of z z' they are truncated at once."""
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Confidence(RidgePerArm, ABC):
    """A policy that adds a bonus to scores: `alpha` is its weight. On top it explores with chance `epsilon`."""

    explores_alike: ClassVar[bool] = True
    shared_learner: ClassVar[type[Learner] | None] = None

    alpha: float
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon("epsilon", self.epsilon)
        if not (isfinite(self.alpha) and 0 < self.alpha <= _MOST_ALPHA):
            raise ConfigError(f"alpha must be positive and at most {_MOST_ALPHA:g}, got {self.alpha:g}")

    def epsilons(self, positions: Positions) -> Floats:
        return np.full(positions.shape, self.epsilon)

    @abstractmethod
    def bonus(self, quadratic: Floats, normals: Floats | None) -> Floats:
        """What is added to scores, in the clear: a function of x'Mx, and of normal numbers if it asks for them."""

    def twin(self, federation: Federation) -> PlainBandit:
        if (table := federation.arm_features) is not None:
            return PlainSharedBandit(table.features, federation.dimension, federation.ridge, self.bonus)
        return PlainBandit(federation.arms, federation.dimension, federation.ridge, self.bonus)

    def twins(self, federation: Federation, replicates: int) -> PlainBandits:
        if (table := federation.arm_features) is not None:
            return PlainSharedBandits(replicates, table.features, federation.dimension, federation.ridge, self.bonus)
        return PlainBandits(replicates, federation.arms, federation.dimension, federation.ridge, self.bonus)

    @abstractmethod
    def feature_factor(self, federation: Federation) -> float:
        """By what features are multiplied before they are rounded to whole numbers."""

    def feature_error(self, federation: Federation) -> float:
        """The largest length of what rounding changes in a context."""
        return sqrt(federation.dimension) / 2 / self.feature_factor(federation)


def rounded_features(own: Words, factor: float, federation: Federation) -> Words:
    """Features times a factor, rounded to whole numbers. In a program, or in the clear."""
    bits = federation.context_bits
    more = max(0, min(_MULTIPLIER_BITS, 61 - bits - ceil(log2(factor * (max(federation.norms) + 1)))))
    product = own * np.uint64(round(factor * 2.0**more)) + np.uint64(1 << (bits + more - 1))
    moved: Words = (product + _SIGN) >> np.uint64(bits + more)
    return moved + np.uint64(2**64 - (1 << (63 - bits - more)))


class ConfidenceLearner(RidgeLearner):
    """Brings features a second time, rounded, and masks the inverses, too."""

    scores_by_inverses = True
    policy: Confidence

    def more_inputs(self, run: Run, own: Words | None, count: int) -> tuple[Opening[Masked], ...]:
        federation, factor = self.federation, self.policy.feature_factor(self.federation)
        rounded = None if own is None else rounded_features(own, factor, federation)
        return (input_segments(run, (count,), rounded, federation.features, "context x, rounded"),)

    def _scored(self, run: Run, factors: ScoreFactors) -> tuple[LinearScores, Masked, Masked]:
        """The scores w'x, and the factors of x'Mx."""
        assert factors.inverses is not None
        (rounded,) = factors.more
        return LinearScores(factors.weights, factors.contexts), factors.inverses, rounded


class BonusLearner(ConfidenceLearner):
    """Scores w'x + alpha x'Mx: no round beyond that which masks. The factor of features is the root of alpha 2^B, B
    being the bits that a word has to spare, so that the form is alpha x'Mx with 2L + B bits."""

    def scored(self, run: Run, factors: ScoreFactors, coins: Coins | None) -> Rounds[Scores]:
        yield from ()
        linear, inverses, rounded = self._scored(run, factors)
        spare = self.federation.spare_score_bits
        bonus = quadratic_form(run, inverses, rounded, "alpha x'Mx")
        scores = (linear_scores(run, linear) << spare) + bonus
        return SharedScores(scores, 2 * self.federation.fraction_bits + spare)


class SharedBonusLearner(SharedRidgeLearner):
    """Scores w'phi + alpha phi'M phi, phi = x z', where arms have features: one round more, which truncates

        alpha Q = X'MX,  Q_jk = sum of x_i M_(ij),(lk) x_l

    to 2L bits less those of z z'. The factor of features is the root of alpha 2^B, with as many bits B as leave alpha Q
    within 62. Nothing that is dealt depends on the number of arms.

    Security: M and the rounded context are masked by words of their own, and the truncation is that of every value.
    """

    scores_by_inverses = True
    policy: Confidence

    def masked_beside(
        self, run: Run, arrays: Mapping[str, Shared], own: Words | None, count: int
    ) -> tuple[Opening[Masked], ...]:
        federation, factor = self.federation, self.policy.feature_factor(self.federation)
        rounded = None if own is None else rounded_features(own, factor, federation)
        return (
            mask_symmetric(run, arrays["inverses"], federation.model_size, "inverse M"),
            input_segments(run, (count,), rounded, federation.features, "context x, rounded"),
        )

    def added(self, run: Run, scores: Shared, more: Sequence[Masked], table: Words | None) -> Rounds[Shared]:
        federation, (inverse, rounded) = self.federation, more
        size, width = federation.dimension, federation.arm_width
        matrix = inverse.reshaped(size, width, size, width)
        form_of_arms = form(run, "ijlk,bi,bl->bjk", matrix, rounded, rounded, label="alpha Q = alpha X'MX")
        dropped = shared_bonus_bits(self.policy, federation) + 2 * ARM_BITS
        (truncated,) = yield (truncate(run, form_of_arms, dropped, "alpha Q"),)
        arms = federation.arms, width
        by_arm = public_form(run, "bjk,aj->bak", share_of(run, truncated), table, arms)
        bonus = public_form(run, "bak,ak->ba", by_arm, table, arms)
        return scores + bonus


def shared_bonus_bits(policy: Confidence, federation: Federation) -> int:
    """The bits that alpha x'Mx has beyond 2L before it is truncated, where arms have features."""
    largest = policy.alpha * federation.largest_quadratic_form * (1 + LARGEST_PART) ** 2
    return min(_MOST_BONUS_BITS, MAGNITUDE_BITS - 1 - 2 * federation.fraction_bits - ceil(log2(largest)))


class RootLearner(ConfidenceLearner):
    """Scores w'x + alpha sqrt(x'Mx), times a normal number of the dealer's if the policy asks for it: one round to mask
    x'Mx, and one to put together what tables of several scales give."""

    policy: RootConfidence
    ties_without_a_model = False
    """The table is rounded, and Thompson sampling scales it by normal numbers: scores differ though M is zero."""

    def scored(self, run: Run, factors: ScoreFactors, coins: Coins | None) -> Rounds[Scores]:
        linear, inverses, rounded = self._scored(run, factors)
        tables = _root_tables(self.policy.alpha, self.policy.root_shape(self.federation), self.federation.fraction_bits)
        normals = (lambda: _normals(coins)) if self.policy.normals else None
        quadratic = quadratic_form(run, inverses, rounded, "x'Mx")
        bonus = yield from look_up_root(run, tables, quadratic, "x'Mx", _root_label(self.policy), normals)
        return SharedScores(linear_scores(run, linear) + bonus, 2 * self.federation.fraction_bits)


@dataclass(frozen=True)
class RootConfidence(Confidence, ABC):
    """One whose bonus is in proportion to the root of x'Mx."""

    @property
    @abstractmethod
    def largest_factor(self) -> float:
        """The largest of what the root is multiplied by, beside alpha."""

    def largest_bonus(self, federation: Federation) -> float:
        return self.alpha * self.largest_factor * sqrt(_largest_quadratic(federation)) + LEAST_ERROR

    def root_shape(self, federation: Federation) -> RootShape:
        """How the root is cut into polynomials."""
        shape = root_shape(_largest_quadratic(federation), ROOT_ERROR / self.alpha)
        assert shape is not None
        return shape

    def feature_factor(self, federation: Federation) -> float:
        units = 2.0 ** (64 - 2 * federation.fraction_bits) / self.root_shape(federation).range
        return sqrt(units)

    def problem(self, federation: Federation) -> str | None:
        largest = _largest_quadratic(federation)
        shape = root_shape(largest, ROOT_ERROR / self.alpha)
        if shape is None or shape.words > MAX_ROOT_WORDS:
            return (
                f"tables of alpha sqrt(x'Mx), alpha = {self.alpha:g}, for x'Mx up to {largest:.4g} have more than "
                f"{MAX_ROOT_WORDS} words, all dealt anew for every arm and decision"
            )
        error = self.feature_error(federation) / sqrt(federation.ridge)
        if error > max(LARGEST_PART * sqrt(federation.largest_quadratic_form), LEAST_ERROR / self.alpha):
            return _too_coarse("alpha sqrt(x'Mx)", self.alpha * error)
        return None


def _largest_quadratic(federation: Federation) -> float:
    """The largest x'Mx of rounded features."""
    return federation.largest_quadratic_form * (1 + LARGEST_PART) ** 2


def _too_coarse(bonus: str, error: float) -> str:
    return f"the features of which {bonus} is made have too few bits in a word: it may be off by {error:.2g}"


def bonus_problem(policy: Confidence, federation: Federation) -> str | None:
    """What of a federation does not fit alpha x'Mx."""
    error = policy.feature_error(federation)
    off = (2 * error * federation.joint_norm + error**2) / federation.ridge * policy.alpha
    if off > max(LARGEST_PART * policy.alpha * federation.largest_quadratic_form, LEAST_ERROR):
        return _too_coarse("alpha x'Mx", off)
    return None


def _root_label(policy: RootConfidence) -> str:
    return "alpha z sqrt(x'Mx)" if policy.normals else "alpha sqrt(x'Mx)"


def _normals(coins: Coins | None) -> Floats:
    assert coins is not None
    assert coins.normals is not None
    return coins.normals


@lru_cache
def _root_tables(alpha: float, shape: RootShape, fraction_bits: int) -> RootTables:
    return root_tables(shape, alpha, fraction_bits, 2 * fraction_bits)
