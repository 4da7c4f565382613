"""Learning many interactions at once, and solving the model anew from exact sums.

The model of arm a solves W_a w_a = b_a with W_a = ridge I + sum x x' and b_a = sum r x. `gather` adds interactions to
the shared sums W and b (2L bits, exact: nothing is truncated). `solve` then brings the inverse M_a up to date by
Newton-Schulz,

    M <- M (2 I - W M),

and the weights by two steps of iterative refinement, w <- w + M (b - W w). The first uses the M before the last step,
the second the final M and a residual that is almost exact. Which steps are taken, and how many bits each value has, is
public: a `SolvePlan` (`bandit.planning`).

After a batch, M holds all interactions but those of the batch, and is the start (scaled by a public factor). A repair
starts from a public multiple of the identity and from weights of zero: it depends on the sums alone, so whatever error
M and w came with is gone.

Rounds: `gather` 2; `solve` 2, 4 for every Newton-Schulz step, and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.planning import BOOST_BITS, SolvePlan
from hiddenarm.bandit.programs import Model
from hiddenarm.mpc.forms import folded_form, form
from hiddenarm.mpc.masking import input_segments, mask, mask_symmetric, share_of, triangle_indices
from hiddenarm.mpc.parallel import in_parallel
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words

FULL = "the model holds as many interactions as the federation declared (`max_interactions`): it learns no more"


@dataclass(slots=True, repr=False)
class Sums:
    """What a model solves, shared: W as upper triangles [arms, D (D + 1) / 2] and b [arms, D], at 2L bits."""

    grams: Shared
    moments: Shared


def gather(sums: Sums, gains: Rounds[Sums]) -> Rounds[Sums]:
    """Add what interactions are in the sums to them; returns `Sums`."""
    gained = yield from gains
    return Sums(sums.grams + gained.grams, sums.moments + gained.moments)


def gained_sums(
    run: Run, federation: Federation, own_features: Words | None, arms: Shared, rewards: Shared
) -> Rounds[Sums]:
    """What interactions [count] are in the sums, exactly: o x x' and o r x; returns `Sums`. Two rounds."""
    (count,) = rewards.shape
    rows, columns = triangle_indices(federation.dimension)

    # Round 1: mask contexts, one-hots and rewards.  Round 2: mask o x, with which both sums are products.
    x, o, r = yield (
        input_segments(run, (count,), own_features, federation.features, "contexts x"),
        mask(run, arms, "one-hots o of the arms"),
        mask(run, rewards, "rewards r"),
    )
    (chosen_x,) = yield (mask(run, form(run, "ka,ki->kai", o, x, label="o x'"), "o x'"),)
    return Sums(
        form(run, "kat,kt->at", chosen_x.take(rows), x.take(columns), label="what W gains, o x x'"),
        form(run, "kai,k->ai", chosen_x, r, label="what b gains, o r x"),
    )


def solve(run: Run, federation: Federation, model: Model, sums: Sums, plan: SolvePlan) -> Rounds[Model]:
    """Bring the model up to date with the sums; returns `Model`."""
    work = _Solving(run, federation, plan)

    # Round 1: W to the bits of its products, and the start c M.  Round 2: mask them, and the weights.
    inverses = model.inverses.times(plan.start_units)
    opened = yield (
        work.rounded_gram(sums),
        *((truncate(run, inverses, plan.start_bits, "c M, the start"),) if plan.start_bits else ()),
    )
    gram_share = share_of(run, opened[0])
    start = share_of(run, opened[1]) if plan.start_bits else inverses
    gram, inverse, *weights = yield (
        mask_symmetric(run, gram_share, federation.model_size, "W"),
        mask_symmetric(run, start, federation.model_size, "c M, the start"),
        *((mask(run, model.weights, "weights w"),) if plan.solves_weights else ()),
    )

    if not plan.solves_weights:
        for boost in plan.boosts[:-1]:
            _, inverse = yield from work.masked_step(gram, inverse, boost)
        better = yield from work.step(gram, inverse, plan.boosts[-1])
        return Model(better, model.weights)

    # Four rounds per step.  Beside the first the residual b - W w, beside the last the first refinement of the weights.
    residual = work.residual(gram, weights[0], sums)
    (_, inverse), residual = yield from in_parallel(work.masked_step(gram, inverse, plan.boosts[0]), residual)
    for boost in plan.boosts[1:-1]:
        _, inverse = yield from work.masked_step(gram, inverse, boost)
    (better, inverse), (refined, residual) = yield from in_parallel(
        work.masked_step(gram, inverse, plan.boosts[-1]),
        work.first_refinement(inverse, residual, model.weights, sums),
    )

    # Last round: the second refinement.
    change = form(run, "aij,aj->ai", inverse, residual, label="M (b - W w)")
    (change,) = yield (truncate(run, change, federation.fraction_bits + plan.fine_bits, "M (b - W w)"),)
    return Model(better, refined + share_of(run, change))


class _Solving:
    """The parts of `solve`, each a few rounds."""

    def __init__(self, run: Run, federation: Federation, plan: SolvePlan) -> None:
        self._run = run
        self._bits = federation.fraction_bits
        self._size = federation.model_size
        self._plan = plan

    def rounded_gram(self, sums: Sums) -> Opening[Masked]:
        """W with as many bits as its product with M allows."""
        return truncate(self._run, sums.grams, 2 * self._bits - self._plan.gram_bits, "W")

    def step(self, gram: Masked, inverse: Masked, boost: float) -> Rounds[Shared]:
        """M times the bracket 2I - W M times the boost, at 2L bits: three rounds."""
        run, plan = self._run, self._plan
        boost_bits, bracket_bits = (BOOST_BITS, plan.boosted_bits) if boost != 1.0 else (0, plan.bracket_bits)
        product = form(run, "aij,ajk->aik", gram, inverse, label="W M")
        (product,) = yield (truncate(run, product, plan.gram_bits + 2 * self._bits - bracket_bits, "W M"),)
        (bracket,) = yield (mask(run, _bracket(run, product, self._size, bracket_bits), "2I - W M"),)
        better = folded_form(run, "aij,ajk->aik", inverse, bracket, label="M (2I - W M)")
        better = better.times(round(boost * 2**boost_bits))
        (better,) = yield (truncate(run, better, bracket_bits + boost_bits + 1, "M (2I - W M)"),)
        return share_of(run, better)

    def masked_step(self, gram: Masked, inverse: Masked, boost: float) -> Rounds[tuple[Shared, Masked]]:
        """A step whose result is masked for the next: four rounds."""
        better = yield from self.step(gram, inverse, boost)
        (masked,) = yield (mask_symmetric(self._run, better, self._size, "the new M"),)
        return better, masked

    def residual(self, gram: Masked, weights: Masked, sums: Sums) -> Rounds[Masked]:
        """b - W w, masked, with so few bits that M times it fits: two rounds."""
        run, plan, bits = self._run, self._plan, self._bits
        more = max(0, plan.gram_bits - bits)
        product = form(run, "aij,aj->ai", gram, weights, label="W w") << max(0, bits - plan.gram_bits)
        residual = (sums.moments << more) - product
        (rounded,) = yield (truncate(run, residual, 2 * bits + more - plan.coarse_bits, "b - W w"),)
        masked: Masked
        (masked,) = yield (mask(run, share_of(run, rounded), "b - W w"),)
        return masked

    def first_refinement(
        self, inverse: Masked, residual: Masked, weights: Shared, sums: Sums
    ) -> Rounds[tuple[Shared, Masked]]:
        """w + M (b - W w), and the residual of that, masked, from W at almost all of its bits: four rounds."""
        run, plan, bits = self._run, self._plan, self._bits
        change = form(run, "aij,aj->ai", inverse, residual, label="M (b - W w)")
        change, gram = yield (
            truncate(run, change, bits + plan.coarse_bits, "M (b - W w)"),
            truncate(run, sums.grams, 2 * bits - plan.fine_gram_bits, "W, with more bits"),
        )
        refined = weights + share_of(run, change)
        w, gram = yield (
            mask(run, refined, "the new w"),
            mask_symmetric(run, share_of(run, gram), self._size, "W, with more bits"),
        )
        left = (sums.moments << (plan.fine_gram_bits - bits)) - form(run, "aij,aj->ai", gram, w, label="W w")
        (rounded,) = yield (truncate(run, left, plan.fine_gram_bits + bits - plan.fine_bits, "b - W w"),)
        (masked,) = yield (mask(run, share_of(run, rounded), "b - W w"),)
        return refined, masked


def _bracket(run: Run, product: Masked, size: int, bits: int) -> Shared:
    """[2I - W M] at `bits` bits."""
    share = share_of(run, product).share
    if share is None:
        return Shared(product.shape, None)
    if not run.adds_constants:
        return Shared(product.shape, -share)
    return Shared(product.shape, (np.eye(size, dtype=np.uint64) << np.uint64(bits + 1)) - share)
