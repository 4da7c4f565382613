"""A bound over time without any inverse: models go down gradients with dealt noise.

    one reward or many   gather: add o x clip(r - 1/2 - w_o'x) to the gradient; decisions read nothing of it
    refresh              after every so many lessons: noise is added to the gradient (refresh), as to noisy sums; then
                         w += step gradient, and the gradient is zero (descend, one round)

The clip is to [-1/2, 1/2], so an interaction moves the gradient by |x| / 2 at most, whatever the scores are: it is read
off a table of constants, not of lines, and no word of the table is larger. What decisions use is a function of noisy
gradients. A lesson changes one of them, its weights being those of refreshes before: so all that holds for the times,
the noise, the leaves and the durability of noisy sums holds here (`bandit.noisy_sums`), with half of |x| as what a row
changes, and a replaced row changing twice as much as a dropped one.

Rounds of `gather` for some interactions at once, L fractional bits:

    1. mask contexts x, one-hots o, rewards r and the weights w
    2. mask u = o x
    3. mask e = r - 1/2 - sum over all arms of w'u, at 2L bits; look clip(e) up, to 2^-b, rounded up or down at random
    4. mask clip(e); the gradient gains u clip(e), exactly

Everything that is opened has a new uniform mask. Policies that need inverses do not run here: there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.catalogue import DESCEND, GATHER, REFRESH, ProgramId
from hiddenarm.bandit.coins import Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.noisy_sums import GatheringSchedule, GatheringTwin, centred, combined, leaf_names, sampled
from hiddenarm.bandit.planning import RESIDUAL_NODES, GradientNumbers
from hiddenarm.bandit.policy import Brings, LearnerProgram
from hiddenarm.bandit.programs import own_features
from hiddenarm.bandit.ridge import DECIDES, RidgeLearner, given_leaves
from hiddenarm.bandit.schedule import BeginSecond, Run, Schedule, TakeSecond
from hiddenarm.bandit.state import State, StateArray, reveal
from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import PolynomialTable, lookup
from hiddenarm.mpc.masking import dealt_share, given_share, input_segments, mask, share_of
from hiddenarm.mpc.run import Program, Rounds
from hiddenarm.mpc.run import Run as ProgramRun
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.privacy.correlated import COEFFICIENT_BITS
from hiddenarm.privacy.mechanisms import NoisyGradient
from hiddenarm.privacy.noise import Gaussian
from hiddenarm.ring.words import Floats, Words, decode

GRADIENT = "gradient"
_MODEL = ("weights", GRADIENT)
_CLIP = 0.5


def noisy_gradient(federation: Federation) -> NoisyGradient:
    """The mechanism of a federation that has it."""
    assert isinstance(federation.privacy, NoisyGradient)
    return federation.privacy


# The schedule


@dataclass(frozen=True, slots=True)
class GradientSchedule(GatheringSchedule):
    """Of models that go down a noisy gradient."""

    def refresh(self, number: int, before: int) -> tuple[Run | BeginSecond | TakeSecond, ...]:
        assert isinstance(self.privacy, NoisyGradient)
        level = self.privacy.step_level(number, self.arms * self.numbers.dimension)
        return *self.noise_runs(number, before), Run(ProgramId(DESCEND, level + 1), self.refreshes)


# The noise


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """The noise of one refresh for all arms, as integers at 2L bits. With correlated noise it is a leaf."""

    gram_words: ClassVar[int] = 0

    arms: int
    dimension: int
    fraction_bits: int
    moment: Gaussian

    @classmethod
    def of(cls, federation: Federation, privacy: NoisyGradient, position: int = 1) -> GradientNoise:
        """At a position of a block, if noise is correlated."""
        bits, norm = 2 * federation.fraction_bits, federation.joint_norm
        width = privacy.leaf_width(position, norm, federation.model_size, bits) * privacy.sigma_moment(norm)
        return cls(federation.models, federation.model_size, federation.fraction_bits, Gaussian(width * 2.0**bits))

    @property
    def moment_words(self) -> int:
        """Uniform words for the noise."""
        return self.arms * self.dimension * self.moment.words

    def samples(self, words: Words) -> Words:
        """[..., arms, D] from words [..., moment_words]."""
        return sampled(self.moment, words, self.arms)

    def decoded(self, gram_words: Words, moment_words: Words) -> tuple[Floats, Floats]:
        """The same as numbers, after the noise of matrices, of which there are none."""
        nothing = np.zeros((*moment_words.shape[:-1], self.arms, 0))
        return nothing, decode(self.samples(moment_words), 2 * self.fraction_bits)


# The programs


def clip_table(numbers: GradientNumbers) -> PolynomialTable:
    """clip(e) of a number e at 2L bits: constants, none of which is larger than 1/2."""
    bits = numbers.residual_bits
    node = np.arange(RESIDUAL_NODES)
    signed = np.where(node < RESIDUAL_NODES // 2, node, node - RESIDUAL_NODES) * 2.0**-bits
    shift = 2 * numbers.fraction_bits - bits
    return PolynomialTable(np.clip(signed, -_CLIP, _CLIP)[:, None], 1, shift, shift, bits)


def gathered_gradient(
    run: ProgramRun,
    federation: Federation,
    own: Words | None,
    weights: Shared,
    arms: Shared,
    rewards: Shared,
) -> Rounds[Shared]:
    """What interactions [count] add to the gradient [arms, D], at 2L bits: four rounds."""
    (count,), bits, numbers = rewards.shape, federation.fraction_bits, federation.numbers
    assert isinstance(numbers, GradientNumbers)
    x, o, r, w = yield (
        input_segments(run, (count,), own, federation.features, "contexts x"),
        mask(run, arms, "one-hots o of the arms"),
        mask(run, centred(run, rewards, bits), "rewards r - 1/2"),
        mask(run, weights, "weights w"),
    )
    (u,) = yield (mask(run, form(run, "ka,ki->kai", o, x, label="o x'"), "o x'"),)
    score = form(run, "ai,kai->k", w, u, label="scores w'x of the arms")
    (residual,) = yield (mask(run, (share_of(run, r) << bits) - score, "r - 1/2 - w'x"),)
    clipped = lookup(run, clip_table(numbers), residual, "clip(r - 1/2 - w'x)")
    (c,) = yield (mask(run, clipped, "clip(r - 1/2 - w'x)"),)
    gained = form(run, "kai,k->ai", u, c, label="what the gradient gains, o x clip(r - 1/2 - w'x)")
    return gained << (bits - numbers.residual_bits)


def noise_added(
    run: ProgramRun, noise: GradientNoise, taken_back: Sequence[int], gradient: Shared, leaves: Sequence[Shared]
) -> Rounds[tuple[Shared, Shared]]:
    """Add a leaf that the dealer draws, and take back parts of the leaves before it; returns the gradient and the leaf.
    One round, or none without leaves before."""
    leaf = dealt_share(
        run, gradient.shape, lambda: noise.samples(run.coin_words((noise.moment_words,))), "noise of the gradient"
    )
    if not leaves:
        yield from ()
        return gradient + leaf, leaf
    back = combined(leaves, taken_back)
    (opened,) = yield (truncate(run, back, COEFFICIENT_BITS, "what is taken back of the noise"),)
    return gradient + leaf - share_of(run, opened), leaf


def descend(
    run: ProgramRun, federation: Federation, step: tuple[int, int], weights: Shared, gradient: Shared
) -> Rounds[tuple[Shared, Shared]]:
    """w += step gradient, and a gradient of zero: one round. The step is units over a power of two."""
    units, divisor = step
    moved = gradient.times(units)
    (opened,) = yield (
        truncate(run, moved, federation.fraction_bits + divisor.bit_length() - 1, "step times gradient"),
    )
    return weights + share_of(run, opened), gradient - gradient


# The learner


class GradientLearner(RidgeLearner):
    """A linear model per arm that goes down a noisy gradient, in the fast suite.

    weights    [arms, D]   w                         L fractional bits
    gradient   [arms, D]   gathered since the last refresh    2L
    leaf k     [arms, D]   of a block, where noise is correlated    2L
    """

    mechanisms = (NoisyGradient.name,)

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self._gradient = noisy_gradient(federation)
        self.single_lesson = ProgramId(GATHER)

    @property
    def arrays(self) -> tuple[StateArray, ...]:
        shape, bits = (self.federation.models, self.federation.model_size), self.federation.fraction_bits
        kept = range(1, self._gradient.correlated)
        return (
            StateArray("weights", shape, bits),
            StateArray(GRADIENT, shape, 2 * bits),
            *(StateArray(_leaf_name(position), shape, 2 * bits) for position in kept),
        )

    @property
    def largest_programs(self) -> tuple[ProgramId, ...]:
        refreshing = ProgramId(REFRESH, max(1, self._gradient.correlated))
        return ProgramId(GATHER, self.federation.max_batch), refreshing, ProgramId(DESCEND)

    @property
    def has_step(self) -> bool:
        return False

    def schedule(self) -> Schedule:
        return GradientSchedule.of(self.federation, self._gradient)

    def reveal(self, states: Sequence[State]) -> tuple[Floats, Floats]:
        """No inverses, and weights."""
        weights = reveal(self.arrays[:1], states)["weights"]
        return np.zeros((*weights.shape[:-1], 0)), weights

    def program(self, program: ProgramId, exploration: Exploration | None = None) -> LearnerProgram:
        name, count = program
        if name in DECIDES:
            return super().program(program, exploration)
        if name == GATHER:
            return LearnerProgram(lambda run: self._gather(run, count), _MODEL, Brings.INTERACTIONS, (GRADIENT,))
        if name == REFRESH:
            return self._noise_program(count)
        if name == DESCEND:
            step = self._gradient.step_of(count - 1)
            return LearnerProgram(lambda run: self._descend(run, step), _MODEL, Brings.NOTHING, _MODEL)
        raise ProtocolError(f"there is no program {name!r} where the gradient is noisy: it would teach without noise")

    def _gather(self, run: ProgramRun, count: int) -> Program:
        federation, arrays = self.federation, self.given(run, _MODEL)
        own = own_features(run, federation, count)
        arms = given_share(run, count, federation.arm_width, label="one-hots of the arms")
        rewards = given_share(run, count, label="rewards")
        gained = yield from gathered_gradient(run, federation, own, arrays["weights"], arms, rewards)
        return (arrays[GRADIENT] + gained,)

    def _noise_program(self, position: int) -> LearnerProgram:
        """Of a refresh; with correlated noise, at a position of a block."""
        correlation = self._gradient.correlation
        if position > max(1, self._gradient.correlated):
            raise ProtocolError(f"there is no program {REFRESH!r} for position {position} here")
        noise = GradientNoise.of(self.federation, self._gradient, position)
        taken_back = () if correlation is None else correlation.taken_back[position - 1]
        keeps = correlation is not None and position < correlation.leaves

        def text(run: ProgramRun) -> Program:
            gradient = self.given(run, (GRADIENT,))[GRADIENT]
            before = given_leaves(run, gradient.shape, len(taken_back), "earlier noise") if taken_back else []
            gradient, leaf = yield from noise_added(run, noise, taken_back, gradient, before)
            return gradient, *((leaf,) if keeps else ())

        leaves = (tuple(_leaf_name(earlier) for earlier in range(1, position)),) if taken_back else ()
        writes = (GRADIENT, *((_leaf_name(position),) if keeps else ()))
        return LearnerProgram(text, (GRADIENT,), Brings.NOTHING, writes, leaves)

    def _descend(self, run: ProgramRun, step: tuple[int, int]) -> Program:
        arrays = self.given(run, _MODEL)
        return (yield from descend(run, self.federation, step, arrays["weights"], arrays[GRADIENT]))


def _leaf_name(position: int) -> str:
    return leaf_names(position)[1]


# The plain twin


class GradientTwin(GatheringTwin):
    """Of the noisy gradient. It clips exactly, where the programs round to a node of their table at random."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.grams = np.zeros((len(self.weights), 0))

    def gather(self, model: int, context: Floats, centred_reward: float) -> None:
        residual = centred_reward - self.weights[model] @ context
        self.moments[model] += np.clip(residual, -_CLIP, _CLIP) * context

    def refresh(self, number: int) -> None:
        privacy = noisy_gradient(self.federation)
        units, divisor = privacy.step_of(privacy.step_level(number, self.weights.size))
        self.weights += units / divisor * self.moments
        self.moments[:] = 0.0
