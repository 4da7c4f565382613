"""The learner, as programs on secret values: `decide`, `learn`, and both as one, `step`.

This is the text that parties and dealer both run. L is the number of fractional bits; a `yield` is a round.
The linear model of arm a is kept as M_a, the inverse of ridge I + sum x x' (2L bits, upper triangle), and the weights
w_a = M_a sum r x (L bits). Learning is the exact Sherman-Morrison update of the chosen arm, applied to all arms under
the secret one-hot o, so that nobody sees which arm it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from hiddenarm.bandit.answers import ALL_BITS
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.mpc.forms import folded_form, form
from hiddenarm.mpc.lookup import PolynomialTable, lookup, reciprocal_table
from hiddenarm.mpc.masking import (
    ReturnedMask,
    dealt,
    dealt_share,
    input_segments,
    mask,
    mask_symmetric,
    returned_mask,
    share_of,
)
from hiddenarm.mpc.payloads import ByTag, answer_words
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.shuffle import Shuffle
from hiddenarm.mpc.tournament import open_winner
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words

_ELIGIBLE = "eligible arms: all bits set, or none"
_KEYS = "keys: scores, with distinct tags as their lowest bits"


@dataclass(slots=True, repr=False)
class Model:
    """Shared model: inverses [arms, D (D + 1) / 2] and weights [arms, D]."""

    inverses: Shared
    weights: Shared


@dataclass(slots=True, repr=False)
class LinearScores:
    """Scores w'x that are still products of masked weights [arms, D] and contexts [count, D]. They have 2L fractional
    bits."""

    weights: Masked
    contexts: Masked


@dataclass(slots=True, repr=False)
class SharedScores:
    """Scores as a sharing [count, arms], with so many fractional bits."""

    scores: Shared
    fraction_bits: int


Scores = LinearScores | SharedScores
"""What a policy makes of contexts: a score for each arm, the best of which is chosen."""
Scoring = Callable[[Coins | None], Rounds[Scores]]
"""How they are made; the dealer brings the coins of the decision."""


@dataclass(slots=True, repr=False)
class ScoreFactors:
    """What is masked in the first round of a decision, of which scores are made: contexts [count, D], weights
    [arms, D], the inverses [arms, D, D] if they are asked for, and what parties bring beside their features."""

    contexts: Masked
    weights: Masked
    inverses: Masked | None
    more: tuple[Masked, ...]


class Scorer(Protocol):
    """How a policy scores, after the round that masks model and contexts."""

    @property
    def scores_by_inverses(self) -> bool:
        """Whether the inverses are masked, too."""

    def more_inputs(self, run: Run, own: Words | None, count: int) -> tuple[Opening[Masked], ...]:
        """What else is masked with them."""

    def scored(self, run: Run, factors: ScoreFactors, coins: Coins | None) -> Rounds[Scores]:
        """The scores: no round, or a few."""


def own_features(run: Run, federation: Federation, *lead: int) -> Words | None:
    """The features that a party brings into the run; None at the dealer."""
    return None if run.party is None else run.given((*lead, federation.features[run.party]), "own features")


def decide(
    run: Run,
    federation: Federation,
    exploration: Exploration,
    scoring: Scoring,
    count: int = 1,
    known_by: Callable[[Shared], Shared] = lambda one_hot: one_hot,
) -> Rounds[Decided]:
    """Choose an arm for each of `count` contexts. The actor learns the arms; nobody learns anything else of them.

        scores, such as products of masked contexts and weights    1 round (`masked_scores`), or a few more
        keys: scores, rounded, with distinct tags below            none: each party shifts its own shares
        few arms: the winner by payloads                           2 rounds for one context, 3 for many
        many arms: shuffle, open the winning slot, shuffle back    see `shuffle` and `tournament`

    To explore, the dealer has the tags decide alone: they are a uniformly random permutation. Only arms that are
    eligible, which the request says, can win. `known_by` makes of the one-hots what a lesson knows the arms by.
    """
    eligible = run.given((count, federation.arms), _ELIGIBLE)
    coins = _dealt_coins(run, federation, exploration, count)
    if not federation.decides_by_payloads:
        reward_mask = _reward_mask(run, count).share
        kept = _kept_share(run, federation, coins, count)
        return (yield from _decide_by_shuffle(run, federation, scoring, coins, eligible, reward_mask, kept, known_by))
    answer = yield from _payloads(run, federation, (yield from scoring(coins)), coins, eligible, count)
    run.announce(answer)
    masks = _arm_mask(run, federation, count).share, _reward_mask(run, count).share
    return Decided(answer, *masks, kept=_kept_share(run, federation, coins, count))


class Both(Protocol):
    """What a learner brings into `step`: the parts of deciding and learning that are its own."""

    def masked(self) -> tuple[Opening[Masked], ...]:
        """What is masked in the first round, for both."""

    def scores(self, factors: Sequence[Masked], coins: Coins | None) -> Rounds[Scores]:
        """The scores of one context: no round, unless the policy needs some."""

    def learned(self, factors: Sequence[Masked], arm: Masked, reward: Callable[[], Masked]) -> Rounds[Model]:
        """The model after the lesson: rounds 2 to 5 of `learn`, where the reward is asked for after the third."""


def step(run: Run, federation: Federation, exploration: Exploration, both: Both) -> Rounds[Model]:
    """Decide for one context and learn from the decision: four rounds more than a decision takes, seven or eight unless
    the policy needs more for its scores.

        round 1      mask x, w and M, for both
        rounds 2, 3  decide by payloads, as `decide` does. What the party has of the decision is announced
        pause        the actor returns the one-hot as o + mu, or the features of the arm as z_o + mu: they are masked,
                     and need no round
        rounds 4, 5  learn, as `learn` does in its rounds 2 and 3
                     the rewarder returns the reward as r + mu, which is awaited only now
        rounds 6, 7  learn, as `learn` does in its rounds 4 and 5

    Both mu are dealt with the decision, at the address of this run. What is masked in round 1 is used in more products
    than in `decide` or `learn` alone; but it is opened once, and every other value has a mask of its own.
    """
    eligible = run.given((1, federation.arms), _ELIGIBLE)
    coins = _dealt_coins(run, federation, exploration, 1)
    arm_mask, reward_mask = _arm_mask(run, federation, 1), _reward_mask(run, 1)
    kept = _kept_share(run, federation, coins, 1)
    factors = yield both.masked()
    found = yield from both.scores(factors, coins)
    answer = yield from _payloads(run, federation, found, coins, eligible, 1)
    run.announce(Decided(answer, arm_mask.share, reward_mask.share, kept=kept))
    yield ()
    known_by = "one-hot o" if federation.arm_features is None else "features z"
    arm = arm_mask.awaited(run, f"{known_by} of the arm + mask").single()
    return (yield from both.learned(factors, arm, lambda: reward_mask.awaited(run, "reward r + mask").single()))


@dataclass(frozen=True, slots=True, repr=False)
class PerArm:
    """`step` of a learner with a model for each arm."""

    run: Run
    federation: Federation
    model: Model
    own_features: Words | None
    scorer: Scorer

    def masked(self) -> tuple[Opening[Masked], ...]:
        run, federation = self.run, self.federation
        return (
            input_segments(run, (1,), self.own_features, federation.features, "context x"),
            mask(run, self.model.weights, "weights w"),
            mask_symmetric(run, self.model.inverses, federation.dimension, "inverses M"),
            *self.scorer.more_inputs(run, self.own_features, 1),
        )

    def scores(self, factors: Sequence[Masked], coins: Coins | None) -> Rounds[Scores]:
        x, weights, inverses, *more = factors
        return (yield from self.scorer.scored(self.run, ScoreFactors(x, weights, inverses, tuple(more)), coins))

    def learned(self, factors: Sequence[Masked], arm: Masked, reward: Callable[[], Masked]) -> Rounds[Model]:
        x, weights, inverses, *_ = factors
        return (yield from _update(self.run, self.federation, self.model, (x.single(), arm, inverses, weights), reward))


def _arm_mask(run: Run, federation: Federation, count: int) -> ReturnedMask:
    shape, known_by = (count, federation.arm_width), "one-hot" if federation.arm_features is None else "features"
    return returned_mask(run, shape, lambda: run.actor_words(shape), f"mask of the {known_by} of the arm")


def _reward_mask(run: Run, count: int) -> ReturnedMask:
    return returned_mask(run, (count,), lambda: run.rewarder_words((count,)), "mask of the reward")


def _dealt_coins(run: Run, federation: Federation, exploration: Exploration, count: int) -> Coins | None:
    if not run.dealing:
        return None
    normals = federation.policy.normals
    words = run.coin_words((count, Coins.words(federation.arms, normals)))
    return Coins.from_words(words, exploration.at(run.first_step, run.batch[0], count), normals)


def _payloads(
    run: Run,
    federation: Federation,
    found: Scores,
    coins: Coins | None,
    eligible: Words | None,
    count: int,
) -> Rounds[Words | None]:
    """The party's answers to the actor: two rounds for one context, if few words are dealt for it; else three."""
    three = count == 1 and federation.decides_in_three_rounds
    tags = dealt_share(run, (count, federation.arms), lambda: _tags(coins), "tags that break ties")
    keys = (_rounded(run, federation, found) << federation.tag_bits) + tags
    run.note(_KEYS)
    by_tag = None if coins is None else ByTag(coins.explore.astype(np.uint64), _tags(coins))
    return (yield from answer_words(run, keys, federation.comparison_bits, eligible, by_tag, three=three))


def _decide_by_shuffle(
    run: Run,
    federation: Federation,
    scoring: Scoring,
    coins: Coins | None,
    eligible: Words | None,
    reward_mask: Shared,
    kept_share: Shared | None,
    known_by: Callable[[Shared], Shared],
) -> Rounds[Decided]:
    """A round to mask the scores, a turn for each party, the rounds of a tournament, and the turns backwards.

    Beside the scores goes a public list, which lowers the keys of arms that are not eligible below all others. Scores
    are erased to explore, this list is not.
    """
    shape = (*reward_mask.shape, federation.arms)
    shuffle = Shuffle(run, reward_mask.shape, federation.arms, federation.parties)
    tags = dealt_share(run, shape, lambda: _shuffled(_tags(coins), shuffle), "tags that break ties, in a secret order")
    kept = dealt(run, reward_mask.shape, lambda: _kept(coins), "1, or 0 to explore")
    lower = np.uint64(1 << (federation.score_range_bits + federation.key_fraction_bits))
    found = yield from scoring(coins)
    (masked,) = yield (mask(run, _rounded(run, federation, found), "scores"),)
    lowered = shuffle.public(None if eligible is None else (eligible ^ ALL_BITS) & lower)
    masked, lowered = yield from shuffle.apply(masked, lowered)
    erased = form(run, "b,bs->bs", kept, masked, label="scores in a secret order, or zeros to explore")
    keys = ((erased - share_of(run, lowered)) << federation.tag_bits) + tags
    run.note(_KEYS)
    slot = yield from open_winner(run, keys, federation.comparison_bits)
    arm = yield from shuffle.one_hot(slot)
    run.announce(arm.share)
    return Decided.of_one_hots(arm.share, known_by(arm), reward_mask, kept_share)


def one_hots_of_best(run: Run, federation: Federation, scoring: Scoring, count: int) -> Rounds[Shared]:
    """The one-hots of the arms of best scores [count, arms], which stay shared: nobody learns an arm. By a shuffle, as
    in decisions with many arms; ties are broken at random. The dealer draws coins for it, none of which explores."""
    coins = _dealt_coins(run, federation, Exploration.of_replicates(0.0), count)
    shuffle = Shuffle(run, (count,), federation.arms, federation.parties)
    shape = count, federation.arms
    tags = dealt_share(run, shape, lambda: _shuffled(_tags(coins), shuffle), "tags that break ties, in a secret order")
    found = yield from scoring(coins)
    (masked,) = yield (mask(run, _rounded(run, federation, found), "scores"),)
    (masked,) = yield from shuffle.apply(masked)
    keys = (share_of(run, masked) << federation.tag_bits) + tags
    run.note(_KEYS)
    slot = yield from open_winner(run, keys, federation.comparison_bits)
    return (yield from shuffle.one_hot(slot))


def masked_scores(
    run: Run,
    federation: Federation,
    arrays: Mapping[str, Shared],
    own_features: Words | None,
    count: int,
    scorer: Scorer,
    coins: Coins | None,
) -> Rounds[Scores]:
    """The scores of contexts: one round, which masks contexts, weights, and what else the scorer asks for; then what
    it takes."""
    by_inverses = scorer.scores_by_inverses
    x, weights, *others = yield (
        input_segments(run, (count,), own_features, federation.features, "context x"),
        mask(run, arrays["weights"], "weights w"),
        *((mask_symmetric(run, arrays["inverses"], federation.dimension, "inverses M"),) if by_inverses else ()),
        *scorer.more_inputs(run, own_features, count),
    )
    inverses = others.pop(0) if by_inverses else None
    return (yield from scorer.scored(run, ScoreFactors(x, weights, inverses, tuple(others)), coins))


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
    """Rounds 2 to 5 of learning, from masked factors x, o, M and w. `reward` is asked for after round 3."""
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
    scale = reciprocals(federation).scale
    q = form(run, "i,i->", u, x, label="q = x'u").times(scale)
    score = form(run, "a,a->", o, scores, label="score of the chosen arm")
    q, chosen_half_u, score = yield (
        mask(run, q, f"{scale} q"),
        mask(run, form(run, "a,i->ai", o, half_u, label="o u' / 2"), "o u' / 2"),
        truncate(run, score, bits, "score"),
    )
    # Rounds 4 and 5.
    v, correction = yield from gained(run, federation, u, q, lambda: reward() - score)

    # M -= (v u' + u v') / 2.  Both halves are the same but for rounding.  Their sum is symmetric, rounding included:
    # its error in a direction d is at most 2 |v'd| times a rounding error, and v is small in a direction that is known
    # well.  One of them mirrored would keep an error that does not depend on v'd, and M would become indefinite.
    update = folded_form(run, "ai,j->aij", chosen_half_u, v, label="what M loses, o (u v' + v u') / 2")
    return Model(
        model.inverses - update,
        model.weights + form(run, "a,i->ai", o, correction, label="what w gains, o v (r - score)"),
    )


def gained(
    run: Run, federation: Federation, u: Masked, q: Masked, error: Callable[[], Masked]
) -> Rounds[tuple[Masked, Masked]]:
    """v = g u, by which M changes, and v (r - score), which w gains, both at L bits, with g = 1 / (1 + q): two rounds.
    `q` is that times the scale of the table; `error`, r - score, is asked for after the look-up."""
    g = lookup(run, reciprocals(federation), q, "g = 1 / (1 + q)")
    correction = form(run, "i,->i", u, error(), label="u (r - score)")

    # First round: g to its bits, u (r - score) to L bits.
    g, correction = yield (
        truncate(run, g, federation.wide_gain_bits - federation.gain_bits, "g"),
        truncate(run, correction, federation.fraction_bits, "u (r - score)"),
    )

    # Second round: v = g u and v (r - score), to L bits.
    v, correction = yield (
        truncate(run, form(run, ",i->i", g, u, label="v = g u"), federation.gain_bits, "v"),
        truncate(
            run,
            form(run, ",i->i", g, correction, label="v (r - score)"),
            federation.gain_bits,
            "v (r - score)",
        ),
    )
    return v, correction


def linear_scores(run: Run, found: LinearScores) -> Shared:
    """The scores w'x [count, arms], at 2L bits."""
    return form(run, "ai,bi->ba", found.weights, found.contexts, label="scores = w x")


def _rounded(run: Run, federation: Federation, found: Scores) -> Shared:
    """The scores with as many fractional bits as are compared. Each party shifts its share, which loses up to a unit of
    the last bit for every party but one. What is left holds modulo 2^(64 - bits dropped), and keys need no more."""
    if isinstance(found, LinearScores):
        found = SharedScores(linear_scores(run, found), 2 * federation.fraction_bits)
    dropped = found.fraction_bits - federation.key_fraction_bits
    return found.scores >> dropped if dropped >= 0 else found.scores << -dropped


def _tags(coins: Coins | None) -> Words:
    """The dealer's distinct tags, by arm."""
    assert coins is not None
    return coins.tags.astype(np.uint64)


def _kept_share(run: Run, federation: Federation, coins: Coins | None, count: int) -> Shared | None:
    """The coins k, for whoever evaluates policies: shares that the parties keep until the rewards come."""
    if federation.evaluation is None:
        return None
    purpose = "1 where the policy's own arm is chosen, 0 where it is explored, for values of policies"
    return dealt_share(run, (count,), lambda: _kept(coins), purpose)


def _kept(coins: Coins | None) -> Words:
    assert coins is not None
    return coins.kept


def _shuffled(words: Words, shuffle: Shuffle) -> Words:
    shuffled: Words = np.take_along_axis(words, shuffle.items(), axis=-1)
    return shuffled


@lru_cache
def reciprocals(federation: Federation) -> PolynomialTable:
    """The table of g = 1 / (1 + q)."""
    return reciprocal_table(
        federation.reciprocal_shape,
        2 * federation.fraction_bits,
        federation.reciprocal_power_bits,
        federation.wide_gain_bits,
    )
