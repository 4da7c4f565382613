"""The public description of a federation, and the check that its numbers fit the ring.

Each party clips its own features to its declared norm; nobody sees the joint norm, so everything must hold for the
worst case R^2 = sum of the squared bounds. With W >= ridge I the inverse M is at most I / ridge, hence

    |u| = |M x| <= R / ridge         q = x'Mx in [0, R^2 / ridge]        |g u| <= 1 / (2 sqrt(ridge))

Whatever is truncated must stay below 2^62: fractional plus integer bits within 62.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite, log2, sqrt

from hiddenarm.errors import ConfigError
from hiddenarm.mpc.comparison import MAX_BITS, NARROW_BITS, dealt_words
from hiddenarm.mpc.truncation import MAGNITUDE_BITS

_HEADROOM = 1 + 2.0**-8
"""Rounding may carry a value a little past its bound."""
_LEAST_REAL = 1e-9
"""Ridge and norm bounds lie between this and its inverse, so that no formula below overflows."""
MAX_RECIPROCAL_NODES = 1 << 16
"""Two words for each are dealt for every interaction learnt: a megabyte at this limit."""
MAX_EXACT_WORDS = 8192
"""Most words dealt, 64 KiB, to save a decision the round that rounds its scores."""


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Federation:
    """What all roles know and must agree on.

    `features` and `norms` have an entry for each party. `score_bound` limits |score|: rewards lie in [0, 1] and so do
    scores that predict them, up to the error of the fit. After `repair_every` interactions learned one by one the
    model is solved anew, so that rounding errors do not add up.
    """

    arms: int
    features: tuple[int, ...]
    epsilon: float
    ridge: float = 1.0
    norms: tuple[float, ...] = ()
    fraction_bits: int = 20
    score_bound: float = 32.0
    reciprocal_bits: int = 8
    repair_every: int = 10_000

    def __post_init__(self) -> None:
        for name in ("features", "norms"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_types()
        if not self.norms:
            object.__setattr__(self, "norms", (1.0,) * len(self.features))
        self._check_counts()
        self._check_reals()
        self._check_budget()

    @property
    def parties(self) -> int:
        return len(self.features)

    @property
    def dimension(self) -> int:
        return sum(self.features)

    @cached_property
    def joint_norm(self) -> float:
        """R: the largest norm a whole context can have, after each party has clipped and rounded its features."""
        rounding = 2.0 ** -(self.fraction_bits + 1)
        bounds = (norm + sqrt(count) * rounding for norm, count in zip(self.norms, self.features, strict=True))
        return sqrt(sum(bound**2 for bound in bounds))

    @property
    def largest_quadratic_form(self) -> float:
        """The largest x'Mx."""
        return self.joint_norm**2 / self.ridge

    @property
    def most_gathered(self) -> int:
        """Interactions that the sums for batches and repairs hold, even if all are of one arm: W = ridge I + sum x x'
        must stay below 2^62 at 2L bits."""
        room = 2.0 ** (MAGNITUDE_BITS - 2 * self.fraction_bits) / _HEADROOM - self.ridge
        return max(0, int(room / max(self.joint_norm, self.joint_norm**2)))

    @property
    def tag_bits(self) -> int:
        """Bits below a score that make keys distinct."""
        return max(1, (self.arms - 1).bit_length())

    @property
    def score_range_bits(self) -> int:
        """Integer bits of a difference of keys: that of two scores within the bound, and a factor of two to spare."""
        return ceil(log2(4 * self.score_bound))

    @property
    def key_fraction_bits(self) -> int:
        """Fractional bits that are left of a score when it is rounded to be compared."""
        return min(2 * self.fraction_bits, NARROW_BITS - 1 - self.score_range_bits - self.tag_bits)

    @property
    def comparison_bits(self) -> int:
        """Bits of a key of a rounded score."""
        return 1 + self.score_range_bits + self.key_fraction_bits + self.tag_bits

    @property
    def exact_comparison_bits(self) -> int:
        """Bits of a key of a score as it is, with 2L fractional bits."""
        return 1 + self.score_range_bits + 2 * self.fraction_bits + self.tag_bits

    @property
    def compares_exactly(self) -> bool:
        """Whether single decisions compare scores as they are, in a round less: if the keys fit a comparison, and few
        words are dealt for the products of permutation, weights and context and for the wider comparisons."""
        if self.exact_comparison_bits > MAX_BITS:
            return False
        comparisons = self.arms * (self.arms - 1) // 2
        words = self.arms**2 * self.dimension + comparisons * dealt_words(self.exact_comparison_bits)
        return words <= MAX_EXACT_WORDS

    def _check_types(self) -> None:
        for name in ("features", "norms"):
            if not isinstance(getattr(self, name), tuple):
                raise ConfigError(f"{name} must have an entry for each party, got {getattr(self, name)!r}")
        for name in ("arms", "fraction_bits", "reciprocal_bits", "repair_every"):
            if not _is_whole(getattr(self, name)):
                raise ConfigError(f"{name} must be a whole number, got {getattr(self, name)!r}")
        reals = [(name, getattr(self, name)) for name in ("epsilon", "ridge", "score_bound")]
        for name, value in (*reals, *self._named_norms()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{name} must be a number, got {value!r}")

    def _check_counts(self) -> None:
        if len(self.features) < 2:
            raise ConfigError(f"a federation needs at least two parties, got {len(self.features)}")
        for number, count in enumerate(self.features):
            if not _is_whole(count) or count < 1:
                raise ConfigError(f"party {number} must contribute at least one feature, got {count!r}")
        if self.arms < 2:
            raise ConfigError(f"a bandit needs at least two arms, got {self.arms!r}")
        if len(self.norms) != len(self.features):
            raise ConfigError(f"{len(self.features)} parties but {len(self.norms)} norm bounds")
        if not 12 <= self.fraction_bits <= 30:
            raise ConfigError(f"fraction_bits must lie in 12..30, got {self.fraction_bits}")
        if not 1 <= self.repair_every <= 1_000_000:
            raise ConfigError(f"repair_every must lie in 1..1000000, got {self.repair_every}")
        if not 4 <= self.reciprocal_bits <= 12:
            raise ConfigError(f"reciprocal_bits must lie in 4..12, got {self.reciprocal_bits}")

    def _check_reals(self) -> None:
        if not (isfinite(self.epsilon) and 0 <= self.epsilon <= 1):
            raise ConfigError(f"epsilon must lie in [0, 1], got {self.epsilon}")
        for name, value in (("ridge", self.ridge), *self._named_norms()):
            if not _LEAST_REAL <= value <= 1 / _LEAST_REAL:
                raise ConfigError(f"{name} must lie in {_LEAST_REAL:g}..{1 / _LEAST_REAL:g}, got {value}")
        if not 1 <= self.score_bound <= 1 / _LEAST_REAL:
            raise ConfigError(f"score_bound must be at least 1, as rewards reach 1, and finite, got {self.score_bound}")

    def _named_norms(self) -> list[tuple[str, float]]:
        return [(f"the norm bound of party {number}", norm) for number, norm in enumerate(self.norms)]

    def _check_budget(self) -> None:
        for name, fraction_factor, bound in self._truncated_values():
            bits = fraction_factor * self.fraction_bits + log2(bound * _HEADROOM)
            if bits > MAGNITUDE_BITS:
                fitting = int((MAGNITUDE_BITS - log2(bound * _HEADROOM)) // fraction_factor)
                raise ConfigError(
                    f"{name} (up to {bound:.4g}) with {fraction_factor} x {self.fraction_bits} fractional bits needs "
                    f"{bits:.2f} bits; the limit is {MAGNITUDE_BITS}. At most {fitting} fraction_bits fit; "
                    "or lower the norm bounds or raise the ridge"
                )
        rounding = self.joint_norm * sqrt(self.dimension) * 2.0**-self.fraction_bits
        if rounding > 2.0**-self.reciprocal_bits:
            raise ConfigError(
                f"rounding may move x'Mx by {rounding:.2g}, more than the distance of two nodes of the table of its "
                "reciprocal; raise fraction_bits or lower reciprocal_bits"
            )
        nodes = self.largest_quadratic_form * 2**self.reciprocal_bits
        if nodes > MAX_RECIPROCAL_NODES:
            raise ConfigError(
                f"a table of 1 / (1 + x'Mx) up to {self.largest_quadratic_form:.4g} with {self.reciprocal_bits} "
                f"reciprocal_bits has more than {MAX_RECIPROCAL_NODES} nodes, all dealt anew at every step; lower the "
                "reciprocal_bits or the norm bounds, or raise the ridge"
            )
        if self.key_fraction_bits < 8:
            raise ConfigError(
                f"{self.arms} arms with score_bound {self.score_bound:g} leave {self.key_fraction_bits} fractional "
                f"bits to compare scores in the limit of {NARROW_BITS}; lower the score_bound or the number of arms"
            )

    def _truncated_values(self) -> list[tuple[str, int, float]]:
        """Everything that is truncated, and M: name, how many times L its fractional bits are, largest magnitude."""
        step = 1 / (2 * sqrt(self.ridge))
        error = 1 + self.score_bound
        return [
            ("M x", 3, self.joint_norm / self.ridge),
            ("score", 2, self.score_bound),
            ("1 / (1 + x'Mx)", 3, 1.0),
            ("g u", 2, step),
            ("u (reward - score)", 2, self.joint_norm / self.ridge * error),
            ("g u (reward - score)", 2, step * error),
            ("M", 2, 1 / self.ridge),
        ]
