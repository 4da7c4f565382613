"""One model for all arms, where arms have public features: score(x, a) = x'T z_a = w'phi, phi = x z_a' as one vector.

A ridge regression on the products phi of a context's D features and an arm's d: M and W are [1, D d (D d + 1) / 2], w
and b [1, D d]. x has L - ARM_BITS fractional bits and z ARM_BITS, so phi is exact at L.

    scores     v = T'x on masked values, d words; z_a'v of every arm is a linear map of shares. Nothing that is dealt
               for it depends on the number of arms. Shares of zero are added, for ties (`even_ties`)
    lesson     knows the arm by z_o, d words: the actor returns it as z_o + mu, as it returns a one-hot elsewhere; or
               the parties make it of their shares of the one-hot, a linear map. Of one interaction phi is never made:
               M phi, w'phi and phi'u are products of three masked factors. Of many it is one product, and is masked

What is opened is uniform: every masked value has a mask of its own, and z_o + mu goes out once, under a mask that only
actor and dealer know (`answers.masked_arms`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.batches import Sums
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import Model, Scores, SharedScores, decide, gained, own_features, reciprocals, step
from hiddenarm.bandit.ridge import MODEL, RidgeLearner
from hiddenarm.bandit.subsets import Subset
from hiddenarm.mpc.forms import folded_form, form, public_form
from hiddenarm.mpc.masking import given_share, input_segments, mask, mask_symmetric, share_of, triangle_indices
from hiddenarm.mpc.run import Opening, Program, Rounds, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words

ARM_FEATURES = "public features of the arms"
_MULTIPLIER = np.uint64(0xD1342543DE82EF95)
"""Of a multiplicative random number generator with a good spectrum; 5 modulo 8."""


class SharedRidgeLearner(RidgeLearner):
    """One ridge regression for all arms, in the fast suite."""

    @property
    def has_step(self) -> bool:
        return (
            type(self) is SharedRidgeLearner and self.goes_on
        )  # what a policy adds to scores is masked for them alone

    def public_inputs(self, eligible: Words, subset: Subset | None = None) -> Sequence[Words]:
        table = self.federation.arm_features
        assert table is not None
        words = table.words if subset is None else table.words[subset.rows]
        return (np.broadcast_to(words, (len(eligible), *words.shape)), eligible)

    def rows(self, words: Words, subset: Subset) -> Words:
        return words  # the model of all arms

    def _decide(self, run: Run, exploration: Exploration, count: int) -> Program:
        federation, arrays = self.federation, self.given(run, self.decide_reads)
        own = own_features(run, federation, count)
        shape = federation.arms, federation.arm_width
        table = run.given(shape, ARM_FEATURES)

        def scoring(coins: Coins | None) -> Rounds[Scores]:
            return self._scored_by(run, arrays, own, count, table)

        def known_by(one_hots: Shared) -> Shared:
            return public_form(run, "ba,aj->bj", one_hots, table, shape)

        return decide(run, federation, exploration, scoring, count, known_by)

    def _step(self, run: Run, exploration: Exploration) -> Program:
        federation, arrays = self.federation, self.given(run, MODEL)
        own = own_features(run, federation, 1)
        table = run.given((federation.arms, federation.arm_width), ARM_FEATURES)
        model = Model(arrays["inverses"], arrays["weights"])
        model = yield from step(run, federation, exploration, _Both(run, federation, model, own, table))
        return model.inverses, model.weights

    def _scored_by(
        self, run: Run, arrays: Mapping[str, Shared], own: Words | None, count: int, table: Words | None
    ) -> Rounds[Scores]:
        """One round, which masks contexts and weights; then the scores of all arms, and what a policy adds to them."""
        federation = self.federation
        x, weights, *more = yield (
            input_segments(run, (count,), own, federation.features, "context x"),
            mask(run, arrays["weights"], "weights w"),
            *self.masked_beside(run, arrays, own, count),
        )
        scores = even_ties(run, linear_scores(run, federation, weights, x, table), arrays["weights"], weights)
        scores = yield from self.added(run, scores, more, table)
        return SharedScores(scores, 2 * federation.fraction_bits)

    def masked_beside(
        self, run: Run, arrays: Mapping[str, Shared], own: Words | None, count: int
    ) -> tuple[Opening[Masked], ...]:
        """What is masked with contexts and weights, for a policy that adds to scores."""
        return ()

    def added(self, run: Run, scores: Shared, more: Sequence[Masked], table: Words | None) -> Rounds[Shared]:
        """The scores [count, arms] with what the policy adds, at 2L bits, of what was masked beside them."""
        yield from ()
        return scores

    def _learn(self, run: Run) -> Program:
        federation, arrays = self.federation, self.given(run, MODEL)
        own = own_features(run, federation)
        arm = given_share(run, federation.arm_width, label="features of the arm")
        reward = given_share(run, label="reward")
        model = Model(arrays["inverses"], arrays["weights"])
        learned = yield from learn_products(run, federation, model, own, arm, reward)
        return learned.inverses, learned.weights

    def gained(self, run: Run, own: Words | None, arms: Shared, rewards: Shared) -> Rounds[Sums]:
        return gained_products(run, self.federation, own, arms, rewards)


def linear_scores(run: Run, federation: Federation, weights: Masked, x: Masked, table: Words | None) -> Shared:
    """The scores z_a'T'x of all arms [count, arms], at 2L bits, from masked weights and contexts [count, D]."""
    matrix = weights.reshaped(federation.dimension, federation.arm_width)
    v = form(run, "ij,bi->bj", matrix, x, label="v = T'x")
    return public_form(run, "bj,aj->ba", v, table, (federation.arms, federation.arm_width))


def even_ties(run: Run, scores: Shared, weights: Shared, masked: Masked) -> Shared:
    """The same scores [count, arms] in other shares, so that ties are broken evenly: no round.

    A key is a score that is shifted share by share, which loses up to a unit for every party but one. The score of an
    arm whose features are zero has shares of zero, which lose nothing: it would win every tie, and so every decision by
    an empty model. So shares of zero are added: the weights as they came, less the weights as they are masked. Party p
    has what it has sent to mask them, the first party minus the sum of what the others have: words that everybody
    knows, and that are uniform in every run. Where there are more scores than weights, a word is used again, times a
    power of a public odd number: it is uniform too, and arms that share it do not lose alike.
    """
    size = prod(weights.shape)
    again, places = np.divmod(np.arange(prod(scores.shape)), size)
    zeros = (weights - share_of(run, masked)).reshaped(size).take(places.reshape(scores.shape))
    return scores + (zeros.scaled(_powers(again).reshape(scores.shape)) if again.any() else zeros)


def _powers(exponents: NDArray[np.intp]) -> Words:
    """Powers of a number whose multiples modulo 2^k have little to do with each other, for every k from 10 on."""
    powers = np.full(exponents.max() + 1, _MULTIPLIER, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)[exponents]


@dataclass(frozen=True, slots=True, repr=False)
class _Both:
    """`step`, with one model."""

    run: Run
    federation: Federation
    model: Model
    own_features: Words | None
    table: Words | None

    def masked(self) -> tuple[Opening[Masked], ...]:
        run, federation = self.run, self.federation
        return (
            input_segments(run, (1,), self.own_features, federation.features, "context x"),
            mask(run, self.model.weights, "weights w"),
            mask_symmetric(run, self.model.inverses, federation.model_size, "inverse M"),
        )

    def scores(self, factors: Sequence[Masked], coins: Coins | None) -> Rounds[Scores]:
        x, weights, _ = factors
        yield from ()
        scores = linear_scores(self.run, self.federation, weights, x, self.table)
        scores = even_ties(self.run, scores, self.model.weights, weights)
        return SharedScores(scores, 2 * self.federation.fraction_bits)

    def learned(self, factors: Sequence[Masked], arm: Masked, reward: Callable[[], Masked]) -> Rounds[Model]:
        x, weights, inverses = factors
        return (yield from _update(self.run, self.federation, self.model, (x.single(), arm, inverses, weights), reward))


def learn_products(
    run: Run, federation: Federation, model: Model, own_features: Words | None, arm: Shared, reward: Shared
) -> Rounds[Model]:
    """Learn from one interaction: five rounds, whose words do not depend on the number of arms.

    Sherman-Morrison as in `programs.learn`, but no arm has to be selected, and phi = x z_o' is made in products only:

    u = M phi;  g = 1 / (1 + phi'u);  v = g u;  M -= v u';  w += v (r - w'phi)
    """
    *factors, masked = yield (
        input_segments(run, (), own_features, federation.features, "context x"),
        mask(run, arm, "features z of the arm"),
        mask_symmetric(run, model.inverses, federation.model_size, "inverse M"),
        mask(run, model.weights, "weights w"),
        mask(run, reward, "reward r"),
    )
    return (yield from _update(run, federation, model, factors, lambda: masked))


def _update(
    run: Run, federation: Federation, model: Model, factors: Sequence[Masked], reward: Callable[[], Masked]
) -> Rounds[Model]:
    """Rounds 2 to 5 of learning, from masked factors x, z_o, M and w. `reward` is asked for after round 3."""
    x, z, inverses, weights = factors
    lead, width, bits = federation.dimension, federation.arm_width, federation.fraction_bits
    matrix, weights = inverses.reshaped(lead, width, lead, width), weights.reshaped(lead, width)

    # Round 2: u = M phi (3L bits) and the score (2L), to L bits.  u twice, rounded independently: see `programs.learn`.
    u = form(run, "jbia,i,a->jb", matrix, x, z, label="u = M phi").reshaped(federation.model_size)
    score = form(run, "ia,i,a->", weights, x, z, label="score = w'phi")
    u, half_u, score = yield (
        truncate(run, u, 2 * bits, "u"),
        truncate(run, u, 2 * bits + 1, "a second u, for u / 2: u"),
        truncate(run, score, bits, "score"),
    )

    # Round 3: mask q and u / 2.  Rounds 4 and 5: v and v (r - score).
    scale = reciprocals(federation).scale
    q = form(run, "ia,i,a->", u.reshaped(lead, width), x, z, label="q = phi'u").times(scale)
    q, half_u = yield mask(run, q, f"{scale} q"), mask(run, share_of(run, half_u), "u / 2")
    v, correction = yield from gained(run, federation, u, q, lambda: reward() - score)
    update = folded_form(run, "i,j->ij", half_u, v, label="what M loses, (u v' + v u') / 2")
    return Model(
        model.inverses - update.reshaped(*model.inverses.shape),
        model.weights + share_of(run, correction).reshaped(*model.weights.shape),
    )


def gained_products(
    run: Run, federation: Federation, own_features: Words | None, arms: Shared, rewards: Shared
) -> Rounds[Sums]:
    """What interactions [count] are in the sums, exactly: phi phi' and r phi of phi = x z', for arms by their features
    z; returns `Sums`. Two rounds."""
    (count,) = rewards.shape
    rows, columns = triangle_indices(federation.model_size)

    # Round 1: mask contexts, features of the arms and rewards.  Round 2: mask phi, with which both sums are products.
    x, z, r = yield (
        input_segments(run, (count,), own_features, federation.features, "contexts x"),
        mask(run, arms, "features z of the arms"),
        mask(run, rewards, "rewards r"),
    )
    products: Masked
    (products,) = yield (mask(run, form(run, "ki,kj->kij", x, z, label="phi = x z'"), "phi"),)
    phi = products.reshaped(count, federation.model_size)
    grams = form(run, "kt,kt->t", phi.take(rows), phi.take(columns), label="what W gains, phi phi'")
    moments = form(run, "ki,k->i", phi, r, label="what b gains, r phi")
    return Sums(grams.reshaped(1, *grams.shape), moments.reshaped(1, *moments.shape))
