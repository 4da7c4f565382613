"""The learner, as two programs on secret values: `decide` and `learn`.

This is the text that parties and dealer both run. L is the number of fractional bits; a `yield` is a round.
The linear model of arm a is kept as M_a, the inverse of ridge I + sum x x' (2L bits, upper triangle), and the weights
w_a = M_a sum r x (L bits). Learning is the exact Sherman-Morrison update of the chosen arm, applied to all arms under
the secret one-hot o, so that nobody sees which arm it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.mpc.forms import folded_form, form
from hiddenarm.mpc.lookup import PolynomialTable, lookup, reciprocal_table
from hiddenarm.mpc.masking import (
    dealt_share,
    input_segments,
    mask,
    mask_dropping,
    mask_symmetric,
)
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.shuffle import MatrixShuffle, SharedLater, Shuffle, deal_shuffle
from hiddenarm.mpc.tournament import open_winner
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Masked, MaskPart, Shared
from hiddenarm.ring.words import Words


@dataclass(slots=True, repr=False)
class Model:
    """Shared model: inverses [arms, D (D + 1) / 2] and weights [arms, D]."""

    inverses: Shared
    weights: Shared


@dataclass(slots=True, repr=False)
class LinearScores:
    """Scores w'x that are still products of masked weights [arms, D] and contexts [count, D]: a shuffle may take them
    as they are. They have 2L fractional bits."""

    weights: Masked
    contexts: Masked


@dataclass(slots=True, repr=False)
class SharedScores:
    """Scores as a sharing [count, arms], with so many fractional bits."""

    scores: Shared
    fraction_bits: int


Scores = LinearScores | SharedScores
"""What a policy makes of contexts: a score for each arm, the best of which is chosen."""


def own_features(run: Run, federation: Federation, *lead: int) -> Words | None:
    """The features that a party brings into the run; None at the dealer."""
    return None if run.party is None else run.given((*lead, federation.features[run.party]), "own features")


def decide(
    run: Run, federation: Federation, exploration: Exploration, scores: Rounds[Scores], count: int = 1
) -> Rounds[Decided]:
    """Choose an arm for each of `count` contexts: four or five rounds (with many arms more, see `tournament` and
    `shuffle`), where `scores` takes one.

        scores, such as products of masked contexts and weights             1 round (`linear_scores`)
        shuffle the scores: as they are, or rounded to what is compared      none, or 1
        compare all keys, which are scores and tags; open the results        3

    Every party learns a uniformly random slot for each; the actor knows which arm lies there. To explore, the dealer
    has all scores erased in the shuffle: then only the tags differ, and they are a uniformly random permutation.
    """
    coin_shape = (count, Coins.words(federation.arms))
    coins = None
    if run.dealing:
        thresholds = exploration.at(run.first_step, run.batch[0], count)
        coins = Coins.from_words(run.coin_words(coin_shape), thresholds)
    kept = None if coins is None else coins.kept
    shuffle = deal_shuffle(run, (count,), federation.arms, federation.parties, kept)
    tags = dealt_share(run, (count, federation.arms), lambda: _shuffled_tags(coins, shuffle), "tags that break ties")
    reward_mask = dealt_share(run, (count,), lambda: run.rewarder_words((count,)), "mask of the reward")

    found = yield from scores

    # Shuffle.  One context and few arms: the products as they are, no round.  Otherwise one round: rounded scores.
    exact = count == 1 and federation.compares_exactly and isinstance(shuffle, MatrixShuffle)
    if exact and isinstance(shuffle, MatrixShuffle) and isinstance(found, LinearScores):
        shuffled, bits = shuffle.apply_to_products(found.weights, found.contexts), federation.exact_comparison_bits
    else:
        shuffled, bits = (yield from _shuffled_rounded(run, federation, shuffle, found)), federation.comparison_bits

    # Three rounds: scores become keys, distinct by their tags.  Compare them and open the results: those of a uniformly
    # random order.
    run.note("keys: scores, with distinct tags as their lowest bits")
    slot = yield from open_winner(run, (shuffled << federation.tag_bits) + tags, bits)
    run.announce(slot)
    arm = yield from shuffle.one_hot(slot)
    return Decided(slot, arm, reward_mask)


def linear_scores(
    run: Run, federation: Federation, weights: Shared, own_features: Words | None, count: int
) -> Rounds[Scores]:
    """The scores w'x: one round, which masks contexts and weights."""
    x, w = yield (
        input_segments(run, (count,), own_features, federation.features, "context x"),
        mask(run, weights, "weights w"),
    )
    return LinearScores(w, x)


def learn(
    run: Run,
    federation: Federation,
    model: Model,
    own_features: Words | None,
    arm: Shared,
    reward: Shared,
) -> Rounds[Model]:
    """Learn from one interaction: five rounds.

    u = M_o x;  g = 1 / (1 + x'u);  v = g u;  M_o -= v u';  w_o += v (r - w_o'x)
    """
    *factors, masked = yield *_mask_factors(run, federation, model, own_features, arm), mask(run, reward, "reward r")
    return (yield from _update(run, federation, model, factors, lambda: masked))


def learn_ahead(
    run: Run,
    federation: Federation,
    model: Model,
    own_features: Words | None,
    arm: Shared,
    reward_mask: Shared,
) -> Rounds[Model]:
    """The same from a decision whose reward is still to come: it is needed after round 3.

    What the rewarder sends to all parties, r + mu, is the reward masked, and mu was dealt with the decision; so it
    takes no round. The dealer knows mu; a party brings its share of it.
    """
    mu = MaskPart(run.rewarder_words(()) if reward_mask.share is None else reward_mask.share)
    factors = yield _mask_factors(run, federation, model, own_features, arm)
    return (
        yield from _update(
            run, federation, model, factors, lambda: Masked((), run.awaited((), "reward r + mask"), (mu,))
        )
    )


def _mask_factors(
    run: Run, federation: Federation, model: Model, own_features: Words | None, arm: Shared
) -> tuple[Opening[Masked], ...]:
    """Round 1 of learning: mask x, the one-hot o, and the model."""
    return (
        input_segments(run, (), own_features, federation.features, "context x"),
        mask(run, arm, "one-hot o of the arm"),
        mask_symmetric(run, model.inverses, federation.dimension, "inverses M"),
        mask(run, model.weights, "weights w"),
    )


def _update(
    run: Run,
    federation: Federation,
    model: Model,
    factors: Sequence[Masked],
    reward: Callable[[], Masked],
) -> Rounds[Model]:
    """Rounds 2 to 5 of learning, from the factors masked in round 1. `reward` is asked for after round 3."""
    x, o, inverses, weights = factors
    bits = federation.fraction_bits

    # Select the chosen arm's u = M x (3L bits) with the one-hot; scores of all arms (2L bits).
    u = form(run, "a,aij,j->i", o, inverses, x, label="u = M x of the chosen arm")
    scores = form(run, "ai,i->a", weights, x, label="scores = w'x of all arms")

    # Round 2: bring u to L bits; it comes back masked.  u is rounded twice, independently, the second time as u / 2: in
    # the product v u' a rounding error times itself would not average out, and would make M indefinite.  Mask scores.
    u, half_u, scores = yield (
        truncate(run, u, 2 * bits, "u"),
        truncate(run, u, 2 * bits + 1, "a second u, for u / 2: u"),
        mask(run, scores, "scores"),
    )

    # Round 3: mask q = x'u, times the public scale of the table, and o u' / 2; bring the chosen arm's score to L bits.
    # Look up g = 1 / (1 + q).
    table = _reciprocals(federation)
    q = form(run, "i,i->", u, x, label="q = x'u").times(table.scale)
    score = form(run, "a,a->", o, scores, label="score of the chosen arm")
    q, chosen_half_u, score = yield (
        mask(run, q, f"{table.scale} q"),
        mask(run, form(run, "a,i->ai", o, half_u, label="o u' / 2"), "o u' / 2"),
        truncate(run, score, bits, "score"),
    )
    g = lookup(run, table, q, "g = 1 / (1 + q)")

    # Round 4: g to its bits, u (r - score) to L bits.
    correction = form(run, "i,->i", u, reward() - score, label="u (r - score)")
    g, correction = yield (
        truncate(run, g, federation.wide_gain_bits - federation.gain_bits, "g"),
        truncate(run, correction, bits, "u (r - score)"),
    )

    # Round 5: v = g u and v (r - score), to L bits.
    v, correction = yield (
        truncate(run, form(run, ",i->i", g, u, label="v = g u"), federation.gain_bits, "v"),
        truncate(
            run,
            form(run, ",i->i", g, correction, label="v (r - score)"),
            federation.gain_bits,
            "v (r - score)",
        ),
    )

    # M -= (v u' + u v') / 2.  Both halves are the same but for rounding.  Their sum is symmetric, rounding included:
    # its error in a direction d is at most 2 |v'd| times a rounding error, and v is small in a direction that is known
    # well.  One of them mirrored would keep an error that does not depend on v'd, and M would become indefinite.
    update = folded_form(run, "ai,j->aij", chosen_half_u, v, label="what M loses, o (u v' + v u') / 2")
    return Model(
        model.inverses - update,
        model.weights + form(run, "a,i->ai", o, correction, label="what w gains, o v (r - score)"),
    )


def _shuffled_rounded(run: Run, federation: Federation, shuffle: Shuffle, found: Scores) -> SharedLater:
    """The scores in shuffled order, with as many bits as are compared. One round, and those of the shuffle."""
    if isinstance(found, LinearScores):
        scores = form(run, "ai,bi->ba", found.weights, found.contexts, label="scores = w x")
        found = SharedScores(scores, 2 * federation.fraction_bits)
    dropped = found.fraction_bits - federation.key_fraction_bits
    (masked,) = yield (mask_dropping(run, found.scores, dropped, "scores"),)
    return (yield from shuffle.apply(masked))


def _shuffled_tags(coins: Coins | None, shuffle: Shuffle) -> Words:
    """The dealer's distinct tags in shuffled order: they break ties, and choose the arm when scores are erased."""
    assert coins is not None
    assert shuffle.items is not None
    tags: Words = np.take_along_axis(coins.tags.astype(np.uint64), shuffle.items, axis=-1)
    return tags


@lru_cache
def _reciprocals(federation: Federation) -> PolynomialTable:
    return reciprocal_table(
        federation.reciprocal_shape,
        2 * federation.fraction_bits,
        federation.reciprocal_power_bits,
        federation.wide_gain_bits,
    )
