"""The learner in the paper's protocol: a federation that is run by the programs of `hiddenarm.paper`.

The suite is part of what all roles agree on: a `PaperFederation` in place of a `Federation` is all it takes to choose
it. The coins are those of the other suite, so both can be compared with the same plain twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import MAX_INTERACTIONS, Federation
from hiddenarm.bandit.programs import Decided, Model, opened, own_features
from hiddenarm.errors import ConfigError, ProtocolError
from hiddenarm.mpc.masking import dealt_share, given_share
from hiddenarm.mpc.run import Program, ProgramText, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.learner import Samples, Setting, decide, learn
from hiddenarm.ring.words import Floats, Words, decode, encode

NEWTON_ITERATIONS = 7
"""Of the reciprocal, unless a federation says otherwise."""


@dataclass(frozen=True)
class PaperFederation(Federation):
    """A federation that uses the paper's protocol. There is no budget of bits: too many make divisions fail.

    `max_interactions`, `max_batch`, `reciprocal_bits` and `repair_every` have no meaning here.
    """

    newton_iterations: int = NEWTON_ITERATIONS

    def _default_interactions(self) -> int:
        return MAX_INTERACTIONS

    def _problem(self) -> str | None:
        check_iterations(self.newton_iterations)
        return None

    @property
    def setting(self) -> Setting:
        return Setting(self.arms, self.features, self.fraction_bits, self.newton_iterations)


def check_iterations(iterations: object) -> None:
    """Refuse what is no number of Newton iterations."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or not 0 <= iterations <= 20:
        raise ConfigError(f"newton_iterations must be a whole number in 0..20, got {iterations!r}")


def paper_text(federation: PaperFederation, thresholds: Words, name: str, count: int) -> ProgramText:
    """`decide` or `learn` as parties and dealer run it. What a party brings into a run, in this order:

    decide          inverses, biases, own features
    learn           inverses, biases, own features, arm, reward
    """
    match name, count:
        case "decide", _:
            return lambda run: _decide(run, federation, thresholds, count)
        case "learn", 1:
            return lambda run: _learn(run, federation)
    raise ProtocolError(f"the paper's suite has no program {name!r} for {count} at once")


def initial_model(federation: PaperFederation, party: int | None, replicates: int) -> Model:
    """M = I / ridge and b = 0: public, so party 0 holds them and the others hold zero."""
    arms, size = federation.arms, federation.dimension
    inverses = np.zeros((replicates, arms, size, size), np.uint64)
    if party == 0:
        inverses[:] = encode(np.eye(size) / federation.ridge, federation.fraction_bits)
    biases = np.zeros((replicates, arms, size), np.uint64)
    held = party is not None
    return Model(Shared((arms, size, size), inverses if held else None), Shared((arms, size), biases if held else None))


def reveal_model(federation: PaperFederation, models: Sequence[Model]) -> tuple[Floats, Floats]:
    """Add up all parties' shares: inverses [replicates, arms, D, D], and the weights that follow from the biases."""
    inverses = decode(opened([model.inverses for model in models]), federation.fraction_bits)
    biases = decode(opened([model.weights for model in models]), federation.fraction_bits)
    return inverses, np.einsum("raij,raj->rai", inverses, biases)


def samples_of(words: Words, thresholds: Words, fraction_bits: int) -> Samples:
    """The paper's private samples from the words of the coins [..., 1 + arms].

    v has the order of the tags, so that the highest tag wins, as in the plain twin. The tags are a uniformly random
    permutation that says nothing of how large the words are; so v, the words from the smallest to the largest arranged
    by the tags, are independent and uniform.
    """
    coins = Coins.from_words(words, thresholds)
    uniform = np.take_along_axis(np.sort(words[..., 1:], axis=-1), coins.tags, axis=-1)
    return Samples(
        explore=coins.explore.astype(np.uint64),
        uniform=uniform >> np.uint64(64 - fraction_bits),
        permutation=coins.tags.astype(np.uint64) + np.uint64(1),
    )


def chosen_arms(decided: Sequence[Decided]) -> NDArray[np.int64]:
    """What the actor finds when it adds up the parties' shares of the one-hots [replicates, count, arms]."""
    arms: NDArray[np.int64] = opened([party.arm for party in decided]).argmax(axis=-1)
    return arms


def _decide(run: Run, federation: PaperFederation, thresholds: Words, count: int) -> Program:
    @cache
    def samples() -> Samples:
        words = run.coin_words((count, Coins.words(federation.arms)))
        return samples_of(words, thresholds[..., None], federation.fraction_bits)

    inverses, biases = _model(run, federation)
    own = own_features(run, federation, count)
    arm = yield from decide(run, federation.setting, inverses, biases, own, samples, count)
    run.announce(arm.share)
    reward_mask = dealt_share(run, (count,), lambda: run.rewarder_words((count,)))
    return Decided(None, arm, reward_mask)


def _learn(run: Run, federation: PaperFederation) -> Program:
    inverses, biases = _model(run, federation)
    own = own_features(run, federation)
    arm, reward = given_share(run, federation.arms), given_share(run)
    return Model(*(yield from learn(run, federation.setting, inverses, biases, own, arm, reward)))


def _model(run: Run, federation: PaperFederation) -> tuple[Shared, Shared]:
    arms, size = federation.arms, federation.dimension
    return given_share(run, arms, size, size), given_share(run, arms, size)
