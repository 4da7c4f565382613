"""The learner, as two programs on secret values: `decide` and `learn`.

This is the text that parties and dealer both run. L is the number of fractional bits; a `yield` is a round.
The linear model of arm a is kept as M_a, the inverse of ridge I + sum x x' (2L bits, upper triangle), and the weights
w_a = M_a sum r x (L bits). Learning is the exact Sherman-Morrison update of the chosen arm, applied to all arms under the
secret one-hot o, so that nobody sees which arm it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.comparison import combine, compare, reveal
from hiddenarm.mpc.dealing import ProgramText
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import LineTable, lookup, reciprocal_table
from hiddenarm.mpc.masking import (
    dealt_share,
    input_segments,
    mask,
    mask_dropping,
    mask_symmetric,
    share_of,
    triangle_indices,
)
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.shuffle import dealt_permutation, pair_differences, shuffle, winner
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Index, Masked, Shared
from hiddenarm.ring.words import Words, encode

DECIDE = "decide"
LEARN = "learn"


@dataclass(slots=True, repr=False)
class Model:
    """Shared model: inverses [arms, D (D + 1) / 2] and weights [arms, D]."""

    inverses: Shared
    weights: Shared


@dataclass(slots=True, repr=False)
class Decided:
    """What a party keeps of a decision: the public slot, the shared one-hot of the arm, its share of the reward's mask."""

    slot: Index
    arm: Shared
    reward_mask: Shared


def decide(
    run: Run,
    federation: Federation,
    thresholds: Words,
    weights: Shared,
    own_features: Words | None,
    party: int | None,
) -> Program:
    """Choose an arm: five rounds. Every party learns a uniformly random slot; the actor knows which arm lies there."""
    permutation = dealt_permutation(run, federation.arms)
    reward_mask = dealt_share(run, (), lambda: run.rewarder_words(()))
    tags = dealt_share(
        run,
        (federation.arms,),
        partial(_shuffled_tags_and_exploration, run, federation, thresholds, permutation),
    )

    # Round 1: mask the context and the weights.  Scores have 2L fractional bits.
    x, w = yield input_segments(run, own_features, federation.features, party), mask(run, weights)
    scores = form(run, "ai,i->a", w, x)

    # Round 2: mask as many bits of the scores as are compared.  Shuffle; scores become keys, distinct by their tags.
    (scores,) = yield (mask_dropping(run, scores, 2 * federation.fraction_bits - federation.key_fraction_bits),)
    keys = (shuffle(run, permutation, scores) << federation.tag_bits) + tags

    # Rounds 3 to 5: compare all pairs of keys and open the order, which is uniform.
    (borrow,) = yield (compare(run, pair_differences(keys), federation.comparison_bits),)
    (less,) = yield (combine(run, borrow),)
    (order,) = yield (reveal(less),)
    if run.dealing:
        return None
    slot = winner(order, federation.arms)
    return Decided(slot, _row(share_of(run, permutation), slot), reward_mask)


def learn(
    run: Run,
    federation: Federation,
    model: Model,
    own_features: Words | None,
    party: int | None,
    arm: Shared,
    reward: Shared,
) -> Program:
    """Learn from one interaction: five rounds.

    u = M_o x;  g = 1 / (1 + x'u);  v = g u;  M_o -= v u';  w_o += v (r - w_o'x)
    """
    bits = federation.fraction_bits
    rows, columns = triangle_indices(federation.dimension)

    # Round 1: mask everything; select the chosen arm's u = M x (3L bits) and score (2L bits) with the one-hot.
    x, o, inverses, weights = yield (
        input_segments(run, own_features, federation.features, party),
        mask(run, arm),
        mask_symmetric(run, model.inverses, federation.dimension),
        mask(run, model.weights),
    )
    u = form(run, "a,aij,j->i", o, inverses, x)
    error = (reward << bits) - form(run, "a,ai,i->", o, weights, x)

    # Round 2: bring both to L bits; they come back masked.
    u, error = yield truncate(run, u, 2 * bits), truncate(run, error, bits)

    # Round 3: mask q = x'u and o u'; look up g = 1 / (1 + q) at 3L bits.
    q, chosen_u = yield mask(run, form(run, "i,i->", u, x)), mask(run, form(run, "a,i->ai", o, u))
    g = lookup(run, _reciprocals(federation), q)

    # Round 4: g to L bits.
    (g,) = yield (truncate(run, g, 2 * bits),)

    # Round 5: v = g u, and v (r - score) from three factors.
    v, correction = yield (
        truncate(run, form(run, ",i->i", g, u), bits),
        truncate(run, form(run, ",,i->i", g, error, u), 2 * bits),
    )
    update = form(run, "at,t->at", chosen_u.take(columns), v.take(rows))
    return Model(
        model.inverses - update,
        model.weights + form(run, "a,i->ai", o, correction),
    )


def initial_model(federation: Federation, party: int | None, replicates: int = 1) -> Model:
    """M = I / ridge, w = 0: public, so party 0 holds it and the others hold zero. `party` is None at the dealer."""
    rows, columns = triangle_indices(federation.dimension)
    inverses = np.zeros((replicates, federation.arms, len(rows)), np.uint64)
    if party == 0:
        inverses[..., rows == columns] = encode(1 / federation.ridge, 2 * federation.fraction_bits)
    weights = np.zeros((replicates, federation.arms, federation.dimension), np.uint64)
    return Model(
        Shared((federation.arms, len(rows)), None if party is None else inverses),
        Shared((federation.arms, federation.dimension), None if party is None else weights),
    )


def program_texts(federation: Federation, thresholds: Words) -> dict[str, ProgramText]:
    """Both programs as the dealer runs them: on shapes and masks only."""
    model = initial_model(federation, None)
    arm, reward = Shared((federation.arms,), None), Shared((), None)
    return {
        DECIDE: lambda run: decide(run, federation, thresholds, model.weights, None, None),
        LEARN: lambda run: learn(run, federation, model, None, None, arm, reward),
    }


def reward_share(masked_reward: Words, reward_mask: Shared, adds_constants: bool) -> Shared:
    """A share of the reward from its masked form, which the rewarder sent to all."""
    assert reward_mask.share is not None
    share = np.negative(reward_mask.share)
    return Shared((), share + masked_reward if adds_constants else share)


def _shuffled_tags_and_exploration(run: Run, federation: Federation, thresholds: Words, permutation: Masked) -> Words:
    """The dealer's secret addition to the shuffled keys: distinct tags, and with probability epsilon a lift of one
    uniform arm above all others."""
    coins = Coins.from_words(run.coin_words((Coins.words(federation.arms),)), thresholds, federation.arms)
    lift_bits = federation.tag_bits + federation.key_fraction_bits
    lift = np.uint64(int(2 * federation.score_bound * 2.0**lift_bits))
    lifted = (np.arange(federation.arms) == coins.arm[..., None]) & coins.explore[..., None]
    additions = coins.tags.astype(np.uint64) + lift * lifted
    matrix = np.negative(permutation.parts[0].mask)
    shuffled: Words = (matrix @ additions[..., None])[..., 0]
    return shuffled


def _row(matrix: Shared, slot: Index) -> Shared:
    assert matrix.share is not None
    return Shared(matrix.shape[1:], np.take_along_axis(matrix.share, slot[..., None, None], axis=-2)[..., 0, :])


@lru_cache
def _reciprocals(federation: Federation) -> LineTable:
    return reciprocal_table(federation.reciprocal_bits, federation.largest_quadratic_form, federation.fraction_bits)
