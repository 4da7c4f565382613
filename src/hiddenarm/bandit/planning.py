"""How `solve` is run, from public numbers alone: its steps, the bits of every value, and the error that is left.

Convergence. Let B interactions be new to M, of norm at most R each. The eigenvalues of W M lie in [1, 1 + B R^2 /
ridge]; started from c M with the public c = 2 / (2 + B R^2 / ridge) they lie in (0, 2), where Newton-Schulz converges:
the largest residual 1 - c is squared by every step, or better. A repair starts from c I, with c = 2 / (2 ridge + n R^2)
for the n interactions that W holds. Where W has noise, it is shifted so far that its eigenvalues lie in [ridge, n R^2 +
2 shift], and c = 2 / (ridge + n R^2 + 2 shift).

Boosts. While the eigenvalues of W M lie in [low, 1] with a small low, a step that is multiplied by a boost of up to 2 /
(1 + low) centres what it made of them, and low grows about fourfold a step instead of twofold. Boosts are multiples of
1/16; a boosted step computes the bracket with 4 bits less, whose error the steps after it correct.

Bits. Whatever is truncated must stay below 2^62, whatever the data: |w| <= sqrt(n / ridge) / 2, as sigma / (ridge +
sigma^2) <= 1 / (2 sqrt(ridge)) for every singular value sigma of the contexts of an arm. W M is not symmetric after a
batch, and its entries can exceed its eigenvalues (`largest_entry`).

Error. The bracket has b bits, so M is off by M E, with E of order 2^-b; W is rounded, too, which moves M by its error
over the ridge. Both together are the *contraction*: what a refinement leaves of an error. The first refinement leaves a
residual r1 of order 2^-b (|r| + n R^2 |w|), the second an error of order 2^-b r1 / ridge in the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, inf, log1p, log2, sqrt

import numpy as np

from hiddenarm.mpc.truncation import MAGNITUDE_BITS

BOOST_BITS = 4
_BOOST_UNITS = 1 << BOOST_BITS
_LAST_BOOST = 0.5
"""Boosts stop paying when the smallest eigenvalue of W M is above this."""
_REPAIR_BOOST = 30 / 16
"""Of all boosted steps of a repair, so that they are one program."""
_START_MARGIN = 1.01
"""Keeps the largest eigenvalue of W M below 2 despite rounding: c is rounded down, for a spread taken too large."""
_START_DIGITS = 8
"""Significant bits of c."""
_MARGIN = 1.05
"""For rounding on top of bounds that hold exactly."""
_LEAST_BITS = 4
"""Fewest fractional bits of any value in `solve`."""
TOLERANCE = 0.002
"""The largest error of a score that rounding may leave, as far as it is known before the data."""
_MOST_CONTRACTION = 1 / 512
"""By how much of itself rounding may move M."""
_MOST_BOOSTED_CONTRACTION = 1 / 32
"""The same for boosted steps, after which there are others."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The public numbers of a federation on which `solve` depends."""

    fraction_bits: int
    dimension: int
    norm: float
    ridge: float
    interactions: int
    repair_every: int
    always_gathers: bool = False
    """Whether also a lesson of one reward is learned as a batch."""

    @property
    def largest_quadratic_form(self) -> float:
        return self.norm**2 / self.ridge

    @property
    def largest_weights(self) -> float:
        """The largest norm of the weights of an arm."""
        return sqrt(self.interactions / self.ridge) / 2

    @property
    def largest_score(self) -> float:
        return self.norm * self.largest_weights

    @property
    def largest_gram(self) -> float:
        """The largest eigenvalue of W."""
        return self.ridge + self.interactions * self.norm**2

    @property
    def largest_moment(self) -> float:
        """The largest norm of b."""
        return self.interactions * self.norm

    @property
    def unrepaired(self) -> int:
        """Lessons whose rounding errors may add up before a repaired model is in place: it takes some lessons to gather
        and to catch up, and an epoch that ends meanwhile postpones it."""
        return 2 * self.repair_every + 25

    @property
    def weight_drift(self) -> float:
        """The standard deviation of a weight's rounding errors until it is repaired."""
        return sqrt(self.unrepaired) * 2.0 ** -(self.fraction_bits + 1)


@dataclass(frozen=True, slots=True)
class NoisyNumbers(Numbers):
    """The same where W and b have noise: `shift` is what is added to the diagonal of W in the end, as much as any noise
    takes off it and the ridge besides, and `moment_noise` the largest norm of the noise of b.

    With S = sum x x' and A = S + noise + shift I >= S + ridge I, |A^-1 X'| <= 1 / (2 sqrt(ridge)) as without noise, and
    |r - 1/2| <= 1/2. The model is solved from the sums each time, so rounding errors do not add up.
    """

    shift: float = 0.0
    moment_noise: float = 0.0

    @property
    def largest_weights(self) -> float:
        return sqrt(self.interactions / self.ridge) / 4 + self.moment_noise / self.ridge

    @property
    def largest_gram(self) -> float:
        return self.interactions * self.norm**2 + 2 * self.shift

    @property
    def largest_moment(self) -> float:
        return self.interactions * self.norm / 2 + self.moment_noise

    @property
    def unrepaired(self) -> int:
        return 1


RESIDUAL_NODES = 1024
"""Of the table by which the gradient is clipped, dealt for every interaction gathered."""
_FINEST_RESIDUAL, _COARSEST_RESIDUAL = 6, 1
"""Bits of the distance of its nodes: 2^-1 at most, so that -1/2, 0 and 1/2 are nodes."""


@dataclass(frozen=True, slots=True)
class GradientNumbers(Numbers):
    """The same where models go down a noisy gradient: `refresh_every` lessons and `max_batch` at once, steps that fall
    from `first_step` as first_step / (1 + first_step t / model), `model` weights of all arms, and noise that has moved
    the weights of an arm by at most `noise`, and all its gradients together by at most `gradient_noise`.

    Weights are v + n, n what noise has added, |n| <= nu. With c = clip(e) off by at most h of e = r - 1/2 - x'(v + n),
    c x'v = c (r - 1/2) - c e - c x'n <= 1/16 + h/2 + R nu / 2. So a step s with B lessons adds at most
    s B (1/8 + h + R nu) + (s B R / 2)^2 to |v|^2. A step is that of a time up to B = refresh_every - 1 + max_batch
    lessons before, as lessons may come in batches: at most first_step for the first B of them, and then
    first_step / (1 + first_step t / model). That adds up to `steps` over all lessons, and the squares to `squares`.
    """

    refresh_every: int = 1
    max_batch: int = 1
    first_step: float = 1.0
    model: int = 1
    noise: float = 0.0
    gradient_noise: float = 0.0

    @property
    def residual_bits(self) -> int:
        """Fractional bits of a node of the table: as many as let it reach the largest residual."""
        for bits in range(_FINEST_RESIDUAL, _COARSEST_RESIDUAL, -1):
            if self._reaches(bits):
                return bits
        return _COARSEST_RESIDUAL

    @property
    def holds(self) -> bool:
        """Whether the table reaches the largest residual."""
        return self._reaches(self.residual_bits)

    def _reaches(self, bits: int) -> bool:
        largest = self.norm * self._weights(2.0**-bits) + 0.5
        words = 2 * self.fraction_bits - bits + log2(RESIDUAL_NODES)
        return words <= 64 and largest * _MARGIN + 2.0**-bits <= RESIDUAL_NODES / 2 * 2.0**-bits

    def _weights(self, spacing: float) -> float:
        first, gathered = self.first_step, self.refresh_every - 1 + self.max_batch
        steps = first * gathered + self.model * log1p(first * self.interactions / self.model)
        squares = first * (self.model + gathered * first)
        pulled = steps * (1 / 8 + spacing + self.norm * self.noise)
        return sqrt(pulled + gathered * squares * self.norm**2 / 4) + self.noise

    @property
    def largest_weights(self) -> float:
        return self._weights(2.0**-self.residual_bits)

    @property
    def largest_gram(self) -> float:
        return self.ridge

    @property
    def largest_gradient(self) -> float:
        """The largest norm of what a refresh gathers for an arm, without noise."""
        return (self.refresh_every - 1 + self.max_batch) * self.norm / 2

    @property
    def largest_moment(self) -> float:
        return self.largest_gradient + 2 * self.gradient_noise

    @property
    def unrepaired(self) -> int:
        """Each refresh rounds the weights once, and nothing repairs them."""
        return 1 + self.interactions // self.refresh_every


@dataclass(frozen=True, slots=True)
class SolvePlan:
    """How to bring M to the inverse of W, and the weights to M b.

    M is multiplied by start_units / 2^start_bits; then for each of `boosts` M is replaced by boost M (2I - W M).
    The other numbers are fractional bits: of W and of the bracket in these steps, of the residual of the first
    refinement, of W in the residual of the second, and of that residual.
    """

    boosts: tuple[float, ...]
    gram_bits: int
    bracket_bits: int
    boosted_bits: int
    start_units: int = 1
    start_bits: int = 0
    solves_weights: bool = False
    coarse_bits: int = 0
    fine_gram_bits: int = 0
    fine_bits: int = 0
    error: float = 0.0
    """What rounding may leave in a score, as a standard deviation."""
    contraction: float = 0.0
    """By how much of itself rounding may move M in the last step."""

    @property
    def least_bits(self) -> int:
        """The fewest fractional bits of any value."""
        used = [self.gram_bits, self.bracket_bits]
        if any(boost != 1.0 for boost in self.boosts):
            used.append(self.boosted_bits)
        return min([*used, self.coarse_bits, self.fine_gram_bits, self.fine_bits] if self.solves_weights else used)

    @property
    def holds(self) -> bool:
        """Whether every value has bits enough, and the errors are small."""
        most = _MOST_CONTRACTION if self.boosts[-1] == 1.0 else _MOST_BOOSTED_CONTRACTION
        return self.least_bits >= _LEAST_BITS and self.error <= TOLERANCE and self.contraction <= most


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """A repair as several runs, each of two Newton-Schulz steps: so many boosted, so many plain, and a last plain one
    that also solves the weights. They start from `start` times the identity."""

    start: float
    boosted_runs: int
    plain_runs: int

    @property
    def runs(self) -> int:
        return self.boosted_runs + self.plain_runs + 1


@lru_cache(maxsize=256)
def batch_plan(numbers: Numbers, count: int) -> SolvePlan:
    """For `count` interactions that M does not hold yet: as many steps as bring the worst residual below 2^-L."""
    spread = count * numbers.largest_quadratic_form
    wanted = 2 / (2 + spread * _START_MARGIN)
    start_bits = ceil(-log2(wanted)) + _START_DIGITS
    start_units = floor(wanted * 2.0**start_bits)
    start = start_units / 2.0**start_bits
    boosts, before_last = _boosts(start, start * (1 + spread), numbers.fraction_bits)
    residual = count * numbers.norm * (1 + numbers.largest_score) + numbers.largest_gram * numbers.weight_drift
    steps = _steps(numbers, boosts, largest_entry(start, boosts, spread))
    plan = _with_weights(numbers, steps, residual, before_last)
    if 2 * numbers.fraction_bits + log2(start_units / numbers.ridge * _MARGIN) > MAGNITUDE_BITS:
        return replace(plan, error=inf)
    return replace(plan, start_units=start_units, start_bits=start_bits)


@lru_cache(maxsize=256)
def repair_plan(numbers: Numbers, gathered: int, shift: float | None = None) -> RepairPlan:
    """For sums that hold `gathered` interactions; where they are noisy, with this shift."""
    largest = gathered * numbers.norm**2 + (numbers.ridge if shift is None else 2 * shift)
    start = 2 / (numbers.ridge + largest * _START_MARGIN)
    low, high = start * numbers.ridge, start * largest
    boosted = 0
    while low < _LAST_BOOST / 2 or boosted % 2:
        low, high = _stepped(low, high, _REPAIR_BOOST)
        boosted += 1
    plain = 0
    while max(1 - low, high - 1) > 2.0**-numbers.fraction_bits or plain % 2 or plain < 2:
        low, high = _stepped(low, high, 1.0)
        plain += 1
    return RepairPlan(start, boosted // 2, plain // 2 - 1)


def boosted_repair(numbers: Numbers) -> SolvePlan:
    """Two boosted steps of a repair. M is a polynomial of W here, so W M is symmetric."""
    return _steps(numbers, (_REPAIR_BOOST, _REPAIR_BOOST), 2.0)


def plain_repair(numbers: Numbers) -> SolvePlan:
    """Two plain steps of a repair."""
    return _steps(numbers, (1.0, 1.0), 2.0)


def last_repair(numbers: Numbers) -> SolvePlan:
    """The last two steps of a repair, and the weights from zero. Before the last step the residual is below the root of
    what it is at the end."""
    residual = numbers.largest_moment
    return _with_weights(numbers, plain_repair(numbers), residual, 2.0 ** (-numbers.fraction_bits / 2))


def largest_entry(start: float, boosts: Sequence[float], spread: float) -> float:
    """A bound on the entries of W M at every step after a batch.

    At each step W M = p(W M_0) with a public polynomial p and W = M_0^-1 + A A'. With G = A' M_0 A, whose eigenvalues y
    lie in [0, spread], W M - p(1) I = A q(G) A' M_0, q(y) = (p(1 + y) - p(1)) / y, and the norm of this is at most
    sqrt(spread) times the largest |p(1 + y) - p(1)| / sqrt(y).
    """
    y = np.geomspace(spread * 1e-9, spread, 4_000)
    at_one, at_more, largest = start, start * (1 + y), 0.0
    for boost in boosts:
        largest = max(largest, at_one + np.sqrt(spread) * float((np.abs(at_more - at_one) / np.sqrt(y)).max()))
        at_one, at_more = boost * at_one * (2 - at_one), boost * at_more * (2 - at_more)
    return largest


def _stepped(low: float, high: float, boost: float) -> tuple[float, float]:
    """Where a step takes eigenvalues of W M in [low, high]."""
    return min(low * (2 - low), high * (2 - high)) * boost, boost


def _boosts(low: float, high: float, fraction_bits: int) -> tuple[tuple[float, ...], float]:
    """The boosts of as many steps as it takes, at least two, and the largest residual before the last."""
    boosts: list[float] = []
    residual = before_last = max(1 - low, high - 1)
    while len(boosts) < 2 or residual > 2.0**-fraction_bits:
        before_last = residual
        stepped, _ = _stepped(low, high, 1.0)
        boost = floor(_BOOST_UNITS * 2 / (1 + stepped)) / _BOOST_UNITS if stepped < _LAST_BOOST else 1.0
        low, high = stepped * boost, boost
        residual = max(1 - low, high - 1)
        boosts.append(boost)
    return tuple(boosts), before_last


def _fitting_bits(numbers: Numbers, others: int, magnitude: float) -> int:
    """Fractional bits, at most L, of a factor whose product with one of `others` fractional bits is so large."""
    return min(numbers.fraction_bits, floor(MAGNITUDE_BITS - others - log2(magnitude * _MARGIN)))


def _steps(numbers: Numbers, boosts: tuple[float, ...], largest: float) -> SolvePlan:
    """The bits of W, for entries of W M up to `largest`, and of the brackets. Twice M is truncated, and M is at most
    1 / ridge, or twice that after a boost."""
    inverse_bits = 2 * numbers.fraction_bits
    gram_bits = min(inverse_bits, floor(MAGNITUDE_BITS - inverse_bits - log2(largest * _MARGIN)))
    bracket_bits = _fitting_bits(numbers, inverse_bits, 2 / numbers.ridge)
    boosted_bits = _fitting_bits(numbers, inverse_bits + BOOST_BITS, 4 / numbers.ridge)
    last = bracket_bits if boosts[-1] == 1.0 else boosted_bits
    contraction = _contraction(numbers, gram_bits, last)
    return SolvePlan(boosts, gram_bits, bracket_bits, boosted_bits, contraction=contraction)


def _contraction(numbers: Numbers, gram_bits: int, bracket_bits: int) -> float:
    """By how much of itself rounding W and the bracket to so many bits moves M."""
    moved = 2.0 ** -(gram_bits + 1) / numbers.ridge + 2.0 ** -(bracket_bits + 1)
    return moved * sqrt(numbers.dimension)


def _with_weights(numbers: Numbers, steps: SolvePlan, residual: float, before_last: float) -> SolvePlan:
    """The same with the bits of the two refinements, for a first residual of so much, and with the error that they
    leave. `before_last` is how far W M may be from I before the last step."""
    bits, ridge, weights = numbers.fraction_bits, numbers.ridge, numbers.largest_weights
    gram_bits = min(steps.gram_bits, max(bits, floor(MAGNITUDE_BITS - bits - log2(residual * _MARGIN))))
    contraction = _contraction(numbers, gram_bits, steps.bracket_bits)
    change = 3 * weights + 1
    coarse_bits = _fitting_bits(numbers, 2 * bits, change)
    bracket, gram, coarse = (2.0 ** -(b + 1) for b in (steps.bracket_bits, gram_bits, coarse_bits))
    root = sqrt(numbers.dimension)
    left = (
        bracket * (residual + numbers.largest_gram * weights)
        + before_last * residual
        + (2 * gram * weights + 2 * coarse + numbers.largest_gram * 2.0**-bits) * root
    )
    left_change = (bracket * residual + 2 * gram * weights + coarse * root) / ridge
    left_change += (before_last + contraction) * change
    fine_gram_bits = floor(MAGNITUDE_BITS - bits - log2(2 * left))
    fine_bits = _fitting_bits(numbers, 2 * bits, 2 * left_change)
    error = numbers.norm * (
        bracket * left / ridge
        + 2.0 ** -(fine_bits + 1) / ridge
        + 2.0 ** -(fine_gram_bits + 1) * weights / ridge
        + 2.0 ** -(bits + 1) * root
        + contraction * contraction * change
    )
    in_range = 2 * bits + log2(residual * _MARGIN) <= MAGNITUDE_BITS and fine_gram_bits >= bits
    return replace(
        steps,
        gram_bits=gram_bits,
        solves_weights=True,
        coarse_bits=coarse_bits,
        fine_gram_bits=min(2 * bits, fine_gram_bits),
        fine_bits=fine_bits,
        error=error if in_range else inf,
        contraction=contraction,
    )
