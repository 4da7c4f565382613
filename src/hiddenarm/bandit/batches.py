"""Learning many interactions at once, and repairing a model that was learned one by one.

The model of arm a solves W_a w_a = b_a with W_a = ridge I + sum x x' and b_a = sum r x. `gather` adds interactions to
the shared sums W and b (2L bits, exact: nothing is truncated). `solve` then brings the inverse M_a up to date by
Newton-Schulz,

    M <- M (2 I - W M),

and the weights by one step of iterative refinement, w <- w + M (b - W w). Both are self-correcting: whatever error M
and w came with is gone, so `solve` also repairs the drift of repeated Sherman-Morrison updates.

Convergence. Let B interactions be new to M, of norm at most R each. The eigenvalues of W M lie in [1, 1 + B R^2 /
ridge]; started from c M with the public c = 2 / (2 + B R^2 / ridge) they lie in (0, 2), where Newton-Schulz converges:
the largest residual 1 - c is squared by every step, or better (`NewtonSchulz`). A repair has B = 0 and c = 1.

Rounds: `gather` 2; `solve` 2, 4 for every Newton-Schulz step, and 1. M has 2L bits; W enters products at L bits, as
does the bracket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import Model
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import input_segments, mask, mask_symmetric, share_of, triangle_indices
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.truncation import MAGNITUDE_BITS, truncate
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words, encode

_START_MARGIN = 1.01
"""Keeps the largest eigenvalue of W M below 2 despite rounding: c is rounded down, for a spread taken too large."""
_MARGIN = 1.05
"""For rounding on top of bounds that hold exactly."""
_WEIGHT_HEADROOM = 4
"""Bits for weights that change by more than 4 at once."""
_BOOST_BITS = 4
_BOOST_UNITS = 1 << _BOOST_BITS
_LAST_BOOST = 0.5
"""Boosts stop paying when the smallest eigenvalue of W M is above this."""
GATHERED_AT_ONCE = 100
"""Interactions that a repair adds to the sums at a time."""
SUMS_FULL = "the sums hold as many interactions as fit their numbers: learn one by one, or start with smaller norms"
REPAIR_STEPS = 3
"""Newton-Schulz steps of a repair: the residual of a drifted inverse is far below one half, and is squared by each."""


@dataclass(slots=True, repr=False)
class Sums:
    """What a model solves, shared: W as upper triangles [arms, D (D + 1) / 2] and b [arms, D], at 2L bits."""

    grams: Shared
    moments: Shared


@dataclass(frozen=True, slots=True)
class NewtonSchulz:
    """How to bring M to the inverse: scale it by `start`, then for each of `boosts` replace M by boost M (2I - W M).

    All public. While the eigenvalues of W M lie in [low, 1] with a small low, a boost of up to 2 / (1 + low) centres
    what the step made of them, and low grows about fourfold a step instead of twofold. Boosts are multiples of 1/16; a
    boosted step computes the bracket with 4 bits less, whose error the steps after it correct.
    """

    start: float
    boosts: tuple[float, ...]
    headroom: int = 0
    """Bits that W is coarser than L, so that the entries of W M fit."""

    @classmethod
    def for_new(cls, federation: Federation, count: int) -> NewtonSchulz:
        """For `count` interactions that M does not hold yet: as many steps as bring the worst residual below 2^-L. With
        none, M only drifted, and a few steps do."""
        if count == 0:
            return cls(1.0, (1.0,) * REPAIR_STEPS)
        spread = count * federation.largest_quadratic_form
        unit = 2.0 ** (_WEIGHT_HEADROOM - federation.fraction_bits)
        start = max(1, floor(2 / (2 + spread * _START_MARGIN) / unit)) * unit
        low, high = start, start * (1 + spread)
        boosts: list[float] = []
        while not boosts or max(1 - low, high - 1) > 2.0**-federation.fraction_bits:
            low, high = min(low * (2 - low), high * (2 - high)), 1.0
            boost = floor(_BOOST_UNITS * 2 / (1 + low)) / _BOOST_UNITS if low < _LAST_BOOST else 1.0
            low, high = low * boost, high * boost
            boosts.append(boost)
        largest = largest_entry(start, boosts, spread)
        return cls(start, tuple(boosts), _bits_too_many(3 * federation.fraction_bits, largest))


def largest_entry(start: float, boosts: Sequence[float], spread: float) -> float:
    """A bound on the entries of W M at every step. W M is not symmetric, and its entries can exceed its eigenvalues.

    At each step W M = p(W M_0) with a public polynomial p and W = M_0^-1 + A A'. With G = A' M_0 A, whose eigenvalues y
    lie in [0, spread], W M - p(1) I = A q(G) A' M_0, q(y) = (p(1 + y) - p(1)) / y, and the norm of this is at most
    sqrt(spread) times the largest |p(1 + y) - p(1)| / sqrt(y).
    """
    y = np.geomspace(spread * 1e-9, spread, 20_000)
    at_one, at_more, largest = start, start * (1 + y), 0.0
    for boost in boosts:
        largest = max(largest, at_one + np.sqrt(spread) * float((np.abs(at_more - at_one) / np.sqrt(y)).max()))
        at_one, at_more = boost * at_one * (2 - at_one), boost * at_more * (2 - at_more)
    return largest


def _bits_too_many(fraction_bits: int, largest: float) -> int:
    """How many bits a value with so many fractional bits must lose to be truncated."""
    return max(0, ceil(fraction_bits + log2(largest * _MARGIN) - MAGNITUDE_BITS))


def gather(
    run: Run,
    federation: Federation,
    sums: Sums,
    own_features: Words | None,
    arms: Shared,
    rewards: Shared,
) -> Program:
    """Add interactions [count] to the sums; returns `Sums`."""
    (count,) = rewards.shape
    rows, columns = triangle_indices(federation.dimension)

    # Round 1: mask contexts, one-hots of arms and rewards.  Round 2: mask o x, with which both sums are products.
    x, o, r = yield (
        input_segments(run, (count,), own_features, federation.features),
        mask(run, arms),
        mask(run, rewards),
    )
    (chosen_x,) = yield (mask(run, form(run, "ka,ki->kai", o, x)),)
    return Sums(
        sums.grams + form(run, "kat,kt->at", chosen_x.take(rows), x.take(columns)),
        sums.moments + form(run, "kai,k->ai", chosen_x, r),
    )


def solve(run: Run, federation: Federation, model: Model, sums: Sums, plan: NewtonSchulz) -> Program:
    """Bring the model up to date with the sums; returns `Model`."""
    bits, dimension, headroom = federation.fraction_bits, federation.dimension, plan.headroom
    spare = _WEIGHT_HEADROOM

    # Round 1: W to L bits, or fewer if its products need it, and the start c M.  Round 2: mask them, and the weights.
    start = model.inverses.times(round(plan.start * 2 ** (bits - spare)))
    gram, inverse = yield truncate(run, sums.grams, bits + headroom), truncate(run, start, bits - spare)
    gram, inverse, w = yield (
        mask_symmetric(run, share_of(run, gram), dimension),
        mask_symmetric(run, share_of(run, inverse), dimension),
        mask(run, model.weights),
    )
    residual = sums.moments - (form(run, "aij,aj->ai", gram, w) << headroom)

    # Four rounds a step: W M to L bits, mask the bracket 2I - W M, M times it to 2L bits, mask.  In the first step
    # b - W w comes along, with a few bits less for the size of the weights, for their refinement.
    for step, boost in enumerate(plan.boosts):
        boost_bits = _BOOST_BITS if boost != 1.0 else 0
        surplus = _bits_too_many(3 * bits, 2 * boost / federation.ridge)
        bracket_bits = bits - boost_bits - surplus
        first = step == 0
        product, *rest = yield (
            truncate(run, form(run, "aij,ajk->aik", gram, inverse), 3 * bits - headroom - bracket_bits),
            *((truncate(run, residual, bits + spare),) if first else ()),
        )
        bracket, *rest = yield (
            mask(run, _bracket(run, product, dimension, bracket_bits)),
            *((mask(run, share_of(run, rest[0])),) if first else ()),
        )
        if first:
            (masked_residual,) = rest
        better = _both_triangles(form(run, "aij,ajk->aik", inverse, bracket), dimension)
        (better,) = yield (truncate(run, better.times(int(boost * (1 << boost_bits))), bits - surplus + 1),)
        inverses = share_of(run, better)
        (inverse,) = yield (mask_symmetric(run, inverses, dimension),)

    # Last round: w + M (b - W w).
    change = form(run, "aij,aj->ai", inverse, masked_residual)
    (change,) = yield (truncate(run, change, 2 * bits - spare),)
    return Model(inverses, model.weights + share_of(run, change))


def initial_sums(federation: Federation, party: int | None, replicates: int = 1) -> Sums:
    """W = ridge I, b = 0: public, held by party 0. `party` is None at the dealer."""
    rows, columns = triangle_indices(federation.dimension)
    grams = np.zeros((replicates, federation.arms, len(rows)), np.uint64)
    if party == 0:
        grams[..., rows == columns] = encode(federation.ridge, 2 * federation.fraction_bits)
    moments = np.zeros((replicates, federation.arms, federation.dimension), np.uint64)
    return Sums(
        Shared((federation.arms, len(rows)), None if party is None else grams),
        Shared((federation.arms, federation.dimension), None if party is None else moments),
    )


def _bracket(run: Run, product: Masked, size: int, bits: int) -> Shared:
    """[2I - W M] at L bits."""
    share = share_of(run, product).share
    if share is None:
        return Shared(product.shape, None)
    if not run.adds_constants:
        return Shared(product.shape, -share)
    return Shared(product.shape, (np.eye(size, dtype=np.uint64) << np.uint64(bits + 1)) - share)


def _both_triangles(matrices: Shared, size: int) -> Shared:
    """The sum of upper and lower triangle of matrices that are symmetric but for rounding: twice the matrix.

    Mirroring one triangle instead would keep the part of the rounding that is not symmetric, which in a well-known
    direction outgrows M itself and makes it indefinite.
    """
    rows, columns = triangle_indices(size)
    shape = (*matrices.shape[:-2], len(rows))
    if matrices.share is None:
        return Shared(shape, None)
    flat = matrices.share.reshape(*matrices.share.shape[:-2], size * size)
    return Shared(shape, flat.take(size * rows + columns, axis=-1) + flat.take(size * columns + rows, axis=-1))
