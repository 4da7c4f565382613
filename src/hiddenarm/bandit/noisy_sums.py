"""A bound over time: lessons are only gathered, and models are solved from sums with dealt noise.

    one reward or many   gather, with r - 1/2 in place of r; nothing that a decision reads has changed
    refresh              at public counts of lessons, after the lesson that reaches one: noise is added to W and b, for
                         good (refresh, no round); then M = (W + shift I)^-1 and w = M b are solved from a public start,
                         in the runs of a repair, and take the place of the model at once

Whatever decisions use is then a function of the noisy sums. A lesson changes those of one refresh only, so all of them
together are one Gaussian mechanism, for any number of lessons (docs/noisy-sums.md has the proofs). So nothing may teach
a model without noise: there is no `learn`, no `step`, and no repair.

Noise is drawn by the dealer, from words that nobody else knows, as coins are, on the finest grid of the sums. It is
part of the sums from then on. The shift is public, depends on the number of the refresh, and is added only to the copy
of W that is inverted. A refresh has the number of the last count that its lesson reaches: where a batch passes several
counts at once, noise is drawn once, and the shift is a little larger than it must be.

With correlated noise (`privacy.correlated`) the parties keep their shares of the leaves of a block, as arrays of the
state, so that the dealer need not remember any and a checkpoint holds them. Refresh k of a block:

    1. the dealer deals the leaf z_k                                              none
    2. t = sum over j < k of (2^c e_kj) z_j, of whole public numbers              none: each party's own shares
    3. r = t / 2^c, rounded (`mpc.truncation`)                                    1 round; none at the first of a block
    4. W += z_k - r on its part, b += z_k - r on its part; keep z_k               none

What is opened is t under a new uniform mask, and t is noise alone. Rounding moves r by less than a unit of the last
place, which leaves are a little wider for (`SumsNoise`). Where a batch passes several counts at once, one such run is
made for each, as a leaf must not be left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.batches import Sums
from hiddenarm.bandit.catalogue import GATHER, REFRESH, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.planning import Numbers, repair_plan
from hiddenarm.bandit.schedule import BeginSecond, LessonPlan, Run, Schedule, TakeSecond, repair_runs
from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.masking import dealt_share, share_of, triangle_indices, triangle_to_square
from hiddenarm.mpc.run import Rounds
from hiddenarm.mpc.run import Run as ProgramRun
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.privacy.correlated import COEFFICIENT_BITS
from hiddenarm.privacy.mechanisms import NoisyMechanism, NoisySums
from hiddenarm.privacy.noise import Gaussian
from hiddenarm.ring.words import Floats, Words, decode

REFRESH_ONE = ProgramId(REFRESH)
_HALF = 0.5
"""Rewards in [0, 1] count from here, so that they move b by half as much."""


def noisy_sums(federation: Federation) -> NoisySums | None:
    """The mechanism, if it is that of a federation."""
    return federation.privacy if isinstance(federation.privacy, NoisySums) else None


# The schedule


@dataclass(frozen=True, slots=True)
class GatheringSchedule(Schedule, ABC):
    """Lessons are only gathered, and models change at refreshes."""

    privacy: NoisyMechanism
    numbers: Numbers
    arms: int
    first: int = 0
    """The version at which the epoch began: addresses of lessons are counted from there."""
    interactions: int = 0
    """Those that the sums hold."""
    refreshes: int = 0
    """Refreshes of this epoch."""
    learns_many = True
    no_unlearning = (
        "sums are noisy here: models that held the interaction were released, and to take it out would make a second "
        "refresh depend on it, which the bound over time does not allow for"
    )

    @classmethod
    def of(cls, federation: Federation, privacy: NoisyMechanism) -> Self:
        return cls(privacy, federation.numbers, federation.models)

    @property
    def gathered(self) -> int:
        return self.interactions

    def room_for(self, count: int) -> bool:
        return self.interactions + count <= self.numbers.interactions

    def lesson(self, number: int, count: int, of_step: int | None = None) -> LessonPlan:
        gather = Run(ProgramId(GATHER, count), number - self.first)
        after = replace(self, interactions=self.interactions + count)
        before, refresh = (self.privacy.refreshes_by(each.interactions) for each in (self, after))
        if refresh == before:
            return LessonPlan((gather,), after)
        return LessonPlan((gather, *after.refresh(refresh, before)), replace(after, refreshes=self.refreshes + 1))

    @abstractmethod
    def refresh(self, number: int, before: int) -> tuple[Run | BeginSecond | TakeSecond, ...]:
        """The runs of refresh `number`, where `before` were made."""

    def noise_runs(self, number: int, before: int) -> tuple[Run, ...]:
        """One; with correlated noise one for each leaf, at the number of its block: each comes once in an epoch."""
        correlation = self.privacy.correlation
        if correlation is None:
            return (Run(REFRESH_ONE, self.refreshes),)
        places = [correlation.place(refresh) for refresh in range(before + 1, number + 1)]
        return tuple(Run(ProgramId(REFRESH, position), block) for block, position in places)

    def resumed(self, version: int, singly: int, gathered: int, due: bool = False) -> Self:
        return replace(self, first=version, interactions=gathered, refreshes=0)

    def repair(self, number: int) -> LessonPlan:
        raise ProtocolError("where sums are noisy, a model changes at refreshes only: a repair would have no noise")

    def counted(self) -> list[int]:
        return [self.first, self.interactions, self.refreshes]

    def recounted(self, counted: Sequence[int]) -> Self:
        first, interactions, refreshes = counted
        return replace(self, first=first, interactions=interactions, refreshes=refreshes)


@dataclass(frozen=True, slots=True)
class NoisySchedule(GatheringSchedule):
    """Of a ridge regression that is solved from noisy sums."""

    def refresh(self, number: int, before: int) -> tuple[Run | BeginSecond | TakeSecond, ...]:
        assert isinstance(self.privacy, NoisySums)
        shift = shift_of(self.privacy, self.numbers, self.arms, number)
        plan = repair_plan(self.numbers, self.interactions, shift)
        begin = BeginSecond({"inverses": plan.start, "weights": 0.0}, (), (("grams", shift),))
        return *self.noise_runs(number, before), begin, *repair_runs(plan, self.refreshes), TakeSecond()


def shift_of(privacy: NoisySums, numbers: Numbers, arms: int, refresh: int) -> float:
    """What is added to the diagonal of W at a refresh, counted from 1."""
    return privacy.shift(refresh, numbers.ridge, numbers.norm, numbers.dimension, arms)


# The noise


@dataclass(frozen=True, slots=True)
class SumsNoise:
    """The noise of one refresh for all arms, as integers at 2L bits: of W on the diagonal, above it with half the
    variance, and of b. With correlated noise it is a leaf."""

    arms: int
    dimension: int
    fraction_bits: int
    diagonal: Gaussian
    above: Gaussian
    moment: Gaussian

    @classmethod
    def of(cls, federation: Federation, privacy: NoisySums, position: int = 1) -> SumsNoise:
        """At a position of a block, if noise is correlated."""
        bits, norm = 2 * federation.fraction_bits, federation.joint_norm
        unit = privacy.leaf_width(position, norm, federation.model_size, bits) * 2.0**bits
        gram, moment = privacy.sigma_gram(norm) * unit, privacy.sigma_moment(norm) * unit
        widths = Gaussian(gram), Gaussian(gram / 2**0.5), Gaussian(moment)
        return cls(federation.models, federation.model_size, federation.fraction_bits, *widths)

    @property
    def gram_words(self) -> int:
        """Uniform words for the noise of W."""
        above = self.dimension * (self.dimension - 1) // 2
        return self.arms * (self.dimension * self.diagonal.words + above * self.above.words)

    @property
    def moment_words(self) -> int:
        """Uniform words for the noise of b."""
        return self.arms * self.dimension * self.moment.words

    def grams(self, words: Words) -> Words:
        """Upper triangles [..., arms, D (D + 1) / 2] from words [..., gram_words]."""
        rows, columns = triangle_indices(self.dimension)
        on, lead = rows == columns, words.shape[:-1]
        split = self.arms * self.dimension * self.diagonal.words
        triangles = np.empty((*lead, self.arms, len(rows)), np.uint64)
        triangles[..., on] = sampled(self.diagonal, words[..., :split], self.arms)
        triangles[..., ~on] = sampled(self.above, words[..., split:], self.arms)
        return triangles

    def moments(self, words: Words) -> Words:
        """[..., arms, D] from words [..., moment_words]."""
        return sampled(self.moment, words, self.arms)

    def decoded(self, gram_words: Words, moment_words: Words) -> tuple[Floats, Floats]:
        """The same as numbers, with whole symmetric matrices [..., arms, D, D]."""
        bits = 2 * self.fraction_bits
        triangles = decode(self.grams(gram_words), bits)
        return triangles.take(triangle_to_square(self.dimension), axis=-1), decode(self.moments(moment_words), bits)


def sampled(noise: Gaussian, words: Words, arms: int) -> Words:
    """[..., arms, samples]"""
    samples = words.shape[-1] // (arms * noise.words)
    return noise.sample(words.reshape(*words.shape[:-1], arms, samples, noise.words))


# The programs


def centred(run: ProgramRun, rewards: Shared, bits: int) -> Shared:
    """r - 1/2; no round."""
    if rewards.share is None or not run.adds_constants:
        return rewards
    return Shared(rewards.shape, rewards.share + np.uint64(2**64 - round(_HALF * 2**bits)))


def refresh(run: ProgramRun, noise: SumsNoise, sums: Sums) -> Rounds[Sums]:
    """Add noise to the sums that the dealer draws; returns `Sums`. No round: all parties get shares of it."""
    grams = dealt_share(
        run, sums.grams.shape, lambda: noise.grams(run.coin_words((noise.gram_words,))), "noise of the sums W"
    )
    moments = dealt_share(
        run, sums.moments.shape, lambda: noise.moments(run.coin_words((noise.moment_words,))), "noise of the sums b"
    )
    yield from ()
    run.note("sums W and b with noise")
    return Sums(sums.grams + grams, sums.moments + moments)


def leaf_names(position: int) -> tuple[str, str]:
    """The state arrays of a leaf: of W and of b."""
    return f"leaf {position} of W", f"leaf {position} of b"


def refresh_correlated(
    run: ProgramRun, noise: SumsNoise, taken_back: Sequence[int], sums: Sums, leaves: Sequence[Sums]
) -> Rounds[tuple[Sums, Sums]]:
    """Add a leaf that the dealer draws to the sums, and take back parts of the leaves before it; returns the sums and
    the leaf. One round, or none for the first leaf of a block."""
    nothing = Sums(_zeros(sums.grams), _zeros(sums.moments))
    leaf = yield from refresh(run, noise, nothing)
    if not leaves:
        return Sums(sums.grams + leaf.grams, sums.moments + leaf.moments), leaf
    grams = combined([each.grams for each in leaves], taken_back)
    moments = combined([each.moments for each in leaves], taken_back)
    opened = yield (
        truncate(run, grams, COEFFICIENT_BITS, "what is taken back of the noise of W"),
        truncate(run, moments, COEFFICIENT_BITS, "what is taken back of the noise of b"),
    )
    less = Sums(*(share_of(run, each) for each in opened))
    return Sums(sums.grams + leaf.grams - less.grams, sums.moments + leaf.moments - less.moments), leaf


def _zeros(like: Shared) -> Shared:
    return like - like


def combined(leaves: Sequence[Shared], factors: Sequence[int]) -> Shared:
    """A sum of leaves times public numbers, not negative."""
    total, *others = (leaf.times(factor) for leaf, factor in zip(leaves, factors, strict=True))
    for other in others:
        total = total + other
    return total


# The plain twin

NoiseSource = Callable[[int], tuple[Floats, Floats]]
"""What the noise of a refresh, counted from 0, adds: to W [arms, D, D], to b [arms, D]."""


class GatheringTwin(PlainBandit, ABC):
    """The plain twin of a policy where lessons are only gathered, with the noise given from outside. It scores as the
    policy's own twin does, which never learns by itself, and shares its arrays."""

    def __init__(self, twin: PlainBandit, federation: Federation, privacy: NoisyMechanism, noise: NoiseSource) -> None:
        self.inverses = twin.inverses
        self.weights = twin.weights
        self.grams = np.zeros_like(twin.inverses)
        self.moments = np.zeros_like(twin.weights)
        self.counts = np.zeros(3, np.int64)
        """Interactions that were gathered; those that were after the last lesson; refreshes."""
        self.federation = federation
        self._twin = twin
        self._privacy = privacy
        self._noise = noise

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**super().arrays, "grams": self.grams, "moments": self.moments, "counts": self.counts}

    def scores(self, context: Floats, normals: Floats | None = None) -> Floats:
        return self._twin.scores(context, normals)

    def learn(self, context: Floats, arm: int, reward: float) -> None:
        """Only gather."""
        model, x = self._twin.regressors(context, arm)
        self.gather(model, x, reward - _HALF)
        self.counts[0] += 1

    def unlearn(self, context: Floats, arm: int, reward: float) -> None:
        raise ProtocolError(GatheringSchedule.no_unlearning)

    def end_lesson(self) -> None:
        """Refresh the model, if a count was reached."""
        learned, before, refreshes = self.counts.tolist()
        number = self._privacy.refreshes_by(learned)
        self.counts[1] = learned
        passed = number - self._privacy.refreshes_by(before)
        if passed:
            leaves = 1 if self._privacy.correlation is None else passed
            for place in range(refreshes, refreshes + leaves):
                gram_noise, moment_noise = self._noise(place)
                self.grams += gram_noise
                self.moments += moment_noise
            self.counts[2] += leaves
            self.refresh(number)

    @abstractmethod
    def gather(self, model: int, context: Floats, centred_reward: float) -> None:
        """Add an interaction of a model."""

    @abstractmethod
    def refresh(self, number: int) -> None:
        """Make the model of what was gathered, with its noise."""


class NoisyTwin(GatheringTwin):
    """Of noisy sums."""

    def gather(self, model: int, context: Floats, centred_reward: float) -> None:
        self.grams[model] += np.outer(context, context)
        self.moments[model] += centred_reward * context

    def refresh(self, number: int) -> None:
        assert isinstance(self._privacy, NoisySums)
        shift = shift_of(self._privacy, self.federation.numbers, self.federation.models, number)
        self.inverses[:] = np.linalg.inv(self.grams + shift * np.eye(self.federation.model_size))
        self.weights[:] = np.matmul(self.inverses, self.moments[:, :, None])[:, :, 0]
