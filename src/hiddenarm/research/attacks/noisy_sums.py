"""Noisy sums in floating point, and the best attack on them.

The learners here are those of `privacy.mechanisms.NoisySums`, many at once: lessons are gathered, and at every refresh
the sums since the one before get noise, once and for good; models are solved from noisy sums alone.

The adversary is the strongest of the proof: it sees every noisy sum, and the arms. It knows all rows but the
candidate's, so it subtracts them from the sums of the refresh that has the candidate. What is left is noise in world 0
of target drop, and noise and x x', (r - 1/2) x in world 1: two Gaussians, whose log likelihood ratio it takes. With
correlated noise it does so at every refresh of the candidate's block, and applies C to what is left: these are leaves,
which are independent, and the leaf of refresh k is moved by C_kj times what the candidate adds to refresh j. Where
the worlds differ in the row, the candidate's own arm adds its own ratio, given the models that it was chosen by.
Everything later is a function of the noisy sums and tells no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hiddenarm.privacy.correlated import COEFFICIENT_BITS
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisyMechanism, NoisySums
from hiddenarm.research.attacks.sequence import RIDGE, Scores, best_arms, log_ratio
from hiddenarm.research.attacks.trials import Design, Ints, Trials
from hiddenarm.ring.streams import Stream, derive
from hiddenarm.ring.words import Floats

NORM = 1.0
"""Of the contexts of all worlds."""
_CENTRE = 0.5


@dataclass(frozen=True)
class _Candidates:
    """Trials whose candidate is in the block under way: which, the arms of their candidates' steps, and the position of
    the refresh that has them."""

    trials: Ints
    arms: Ints
    position: int


@dataclass(frozen=True)
class Sums:
    """What lessons add, or released sums: gram [learners, arms, features, features] and moment [learners, arms,
    features]."""

    gram: Floats
    moment: Floats

    @classmethod
    def of_lessons(cls, contexts: Floats, arms: Ints, rewards: Floats, counts: NDArray[np.bool_], number: int) -> Sums:
        """Of lessons [learners, steps] that count, with `number` arms."""
        gram, moment = [], []
        for arm in range(number):
            own = contexts * (counts & (arms == arm))[..., None]
            gram.append(np.matmul(own.transpose(0, 2, 1), contexts))
            moment.append(np.matmul((rewards - _CENTRE)[:, None, :], own)[:, 0])
        return cls(np.stack(gram, axis=1), np.stack(moment, axis=1))

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.moment + other.moment)

    def times(self, factor: float) -> Sums:
        return Sums(factor * self.gram, factor * self.moment)


class NoisyModels:
    """The models of many learners, and the noise that their sums get."""

    def __init__(self, learners: int, arms: int, features: int, privacy: NoisySums, ridge: float = RIDGE) -> None:
        self.weights: Floats = np.zeros((learners, arms, features))
        self._privacy, self._ridge = privacy, ridge
        self._sums = Sums(np.zeros((learners, arms, features, features)), np.zeros((learners, arms, features)))
        self._refreshes = 0
        self._leaves: list[Sums] = []
        """Of the block so far, where noise is correlated."""
        self.normals = arms * features * (features + 1)
        """Normal numbers that a refresh of one learner takes."""

    def refresh(self, gathered: Sums, normals: Floats) -> Sums:
        """Add noise to what was gathered since the last refresh, and solve. What is released: the noisy addition."""
        self._refreshes += 1
        released = gathered + self._added(self._noise(normals))
        self._sums = self._sums + released
        arms, features = self.weights.shape[1:]
        shift = self._privacy.shift(self._refreshes, self._ridge, NORM, features, arms)
        shifted = self._sums.gram + shift * np.eye(features)
        self.weights = np.asarray(np.linalg.solve(shifted, self._sums.moment[..., None])[..., 0], np.float64)
        return released

    def _added(self, fresh: Sums) -> Sums:
        """What a refresh adds of noise: fresh noise, or with correlated noise a leaf, less parts of earlier ones."""
        correlation = self._privacy.correlation
        if correlation is None:
            return fresh
        _, position = correlation.place(self._refreshes)
        if position == 1:
            self._leaves = []
        self._leaves.append(fresh.times(correlation.widths[position - 1]))
        added = self._leaves[-1]
        for units, leaf in zip(correlation.taken_back[position - 1], self._leaves[:-1], strict=True):
            added = added + leaf.times(-units / 2**COEFFICIENT_BITS)
        return added

    def _noise(self, normals: Floats) -> Sums:
        """A symmetric matrix, half the variance off its diagonal, and a vector, for every arm."""
        learners, (arms, features) = len(normals), self.weights.shape[1:]
        square = normals[:, : arms * features * features].reshape(learners, arms, features, features)
        upper = np.triu(square, 1) * np.sqrt(0.5)
        diagonal = square * np.eye(features)
        symmetric = upper + upper.transpose(0, 1, 3, 2) + diagonal
        vector = normals[:, arms * features * features :].reshape(learners, arms, features)
        return Sums(
            self._privacy.sigma_gram(NORM) * symmetric,
            self._privacy.sigma_moment(NORM) * vector,
        )


class GradientModels:
    """The models of many learners that go down a noisy gradient, in floating point (`bandit.noisy_gradient`)."""

    def __init__(self, learners: int, arms: int, features: int, privacy: NoisyGradient) -> None:
        self.weights: Floats = np.zeros((learners, arms, features))
        self._privacy, self._refreshes = privacy, 0
        self._leaves: list[Floats] = []
        self.normals = arms * features

    def refresh(self, contexts: Floats, arms: Ints, rewards: Floats, normals: Floats) -> None:
        """A step along the gradient of lessons [learners, steps], with noise."""
        self._refreshes += 1
        number = self.weights.shape[1]
        own = arms[..., None] == np.arange(number)
        scores = (np.matmul(contexts, self.weights.transpose(0, 2, 1)) * own).sum(axis=2)
        clipped = np.clip(rewards - _CENTRE - scores, -_CENTRE, _CENTRE)
        gradient = np.matmul((own * clipped[..., None]).transpose(0, 2, 1), contexts)
        units, divisor = self._privacy.step_of(self._privacy.step_level(self._refreshes, self.normals))
        self.weights = self.weights + units / divisor * (gradient + self._noise(normals))

    def _noise(self, normals: Floats) -> Floats:
        fresh = self._privacy.sigma_moment(NORM) * normals.reshape(self.weights.shape)
        correlation = self._privacy.correlation
        if correlation is None:
            return fresh
        _, position = correlation.place(self._refreshes)
        if position == 1:
            self._leaves = []
        self._leaves.append(correlation.widths[position - 1] * fresh)
        added = self._leaves[-1]
        for units, leaf in zip(correlation.taken_back[position - 1], self._leaves[:-1], strict=True):
            added = added - units / 2**COEFFICIENT_BITS * leaf
        return added


class NormalNumbers:
    """Standard normal numbers by address, from uniform words (Box and Muller)."""

    def __init__(self, key: bytes, numbers: int) -> None:
        self._numbers = numbers
        self._stream = Stream(key, 2 * -(-numbers // 2), in_order=False)

    def at(self, first: int, count: int) -> Floats:
        """[count, numbers]"""
        uniform = ((self._stream.steps(first, count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        half = uniform.shape[1] // 2
        radius, angle = np.sqrt(-2 * np.log(uniform[:, :half])), 2 * np.pi * uniform[:, half:]
        both: Floats = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, : self._numbers]
        return both


def intervals(privacy: NoisyMechanism, steps: int) -> Iterator[tuple[range, bool]]:
    """The steps between refreshes, and whether a refresh follows."""
    start = 0
    for refresh in range(1, privacy.refreshes_by(steps) + 1):
        end = privacy.refresh_at(refresh)
        yield range(start, end), True
        start = end
    if start < steps:
        yield range(start, steps), False


class NoisySumsAttack:
    """Makes trials and attacks them."""

    def __init__(self, design: Design, privacy: NoisySums, key: bytes, ridge: float = RIDGE) -> None:
        self._design, self._privacy, self._ridge = design, privacy, ridge
        world = design.world
        state = world.arms * world.features * (world.features + 1)
        self.at_a_time = design.at_a_time(4 * state + 2 * design.steps * world.features)
        self._key = derive(key, "noise")

    def scores(self, trials: Trials) -> Scores:
        """Of each trial."""
        return _Attacked(self._design, trials, self._privacy, self._ridge).run(self._key)


class _Attacked:
    """Learners of some trials, each in its own world, and the adversary's view of them."""

    def __init__(self, design: Design, trials: Trials, privacy: NoisySums, ridge: float) -> None:
        self._design, self._trials, self._privacy = design, trials, privacy
        world, count = design.world, len(trials.rows)
        self._models = NoisyModels(count, world.arms, world.features, privacy, ridge)
        self._each = np.arange(count)
        self._actual = trials.rows.copy()
        if design.target != "drop":
            absent = ~trials.present
            self._actual[absent, trials.place[absent]] = trials.other[absent]
        self._sums, self._own_action = np.zeros(count), np.zeros(count)
        self._refreshes = 0
        self._left: list[Sums] = []
        """Of what the refreshes of the block under way have released, what is left without the known rows."""
        self._in_block: list[_Candidates] = []

    def run(self, key: bytes) -> Scores:
        for number, (steps, refreshed) in enumerate(intervals(self._privacy, self._design.steps)):
            normals = NormalNumbers(derive(key, number), self._models.normals)
            arms = self._decide(steps)
            self._count_own_action(steps, arms)
            if refreshed:
                self._refresh(steps, arms, normals.at(self._trials.numbers.start, len(self._each)))
        return Scores(self._sums + self._own_action, self._own_action)

    def _decide(self, steps: range) -> Ints:
        within = np.s_[steps.start : steps.stop]
        contexts = self._design.world.contexts[self._actual[:, within]]
        scores = np.matmul(contexts, self._models.weights.transpose(0, 2, 1))
        return self._trials.coins.choose(within, best_arms(scores))

    def _candidates(self, steps: range) -> Ints:
        place = self._trials.place
        return np.flatnonzero((place >= steps.start) & (place < steps.stop))

    def _count_own_action(self, steps: range, arms: Ints) -> None:
        if self._design.target == "drop":
            return
        here = self._candidates(steps)
        place, contexts = self._trials.place[here], self._design.world.contexts
        best = [
            best_arms(np.matmul(self._models.weights[here], contexts[rows][:, :, None])[:, :, 0])
            for rows in (self._trials.rows[here, place], self._trials.other[here])
        ]
        self._own_action[here] = log_ratio(best[0], best[1], arms[here, place - steps.start], self._design.epsilon)

    def _refresh(self, steps: range, arms: Ints, normals: Floats) -> None:
        world, trials, here = self._design.world, self._trials, self._candidates(steps)
        rows = self._actual[:, steps.start : steps.stop]
        contexts, rewards = world.contexts[rows], (world.labels[rows] == arms).astype(np.float64)
        others = np.ones(rows.shape, np.bool_)
        others[here, trials.place[here] - steps.start] = False
        known = Sums.of_lessons(contexts, arms, rewards, others, world.arms)
        gathered = known + self._candidates_lesson(known, here, arms[here, trials.place[here] - steps.start])
        released = self._models.refresh(gathered, normals)
        arm = arms[here, trials.place[here] - steps.start]
        self._count_released(released + known.times(-1.0), here, arm)

    def _candidates_lesson(self, like: Sums, here: Ints, arm: Ints) -> Sums:
        """What the candidate's step truly adds."""
        added = Sums(np.zeros_like(like.gram), np.zeros_like(like.moment))
        learned = here if self._design.target != "drop" else here[self._trials.present[here]]
        arm = arm[np.isin(here, learned)]
        gram, moment = self._lesson(self._actual[learned, self._trials.place[learned]], arm)
        added.gram[learned, arm], added.moment[learned, arm] = gram, moment
        return added

    def _count_released(self, left: Sums, here: Ints, arm: Ints) -> None:
        """How likely what is left is in either world, of the arm of each candidate of the block."""
        correlation, self._refreshes = self._privacy.correlation, self._refreshes + 1
        position, strategy, width = 1, np.ones(1), 1.0
        if correlation is not None:
            _, position = correlation.place(self._refreshes)
            strategy, width = correlation.strategy[position - 1], correlation.widths[position - 1]
        if position == 1:
            self._left, self._in_block = [], []
        self._left.append(left)
        self._in_block.append(_Candidates(here, arm, position))
        for candidates in self._in_block:
            self._count_leaf(candidates, strategy, width)

    def _count_leaf(self, candidates: _Candidates, strategy: Floats, width: float) -> None:
        """The leaf of the last refresh, whose row of C is `strategy`. Matrices enter as all their entries: each of a
        pair off the diagonal has the variance of the diagonal where both count half."""
        here, arm, moved = candidates.trials, candidates.arms, strategy[candidates.position - 1]
        gram = sum(part * left.gram[here, arm] for part, left in zip(strategy, self._left, strict=False))
        moment = sum(part * left.moment[here, arm] for part, left in zip(strategy, self._left, strict=False))
        first = self._lesson(self._trials.rows[here, self._trials.place[here]], arm)
        second = np.zeros_like(first[0]), np.zeros_like(first[1])
        if self._design.target != "drop":
            second = self._lesson(self._trials.other[here], arm)
        of_gram = ((gram - moved * second[0]) ** 2 - (gram - moved * first[0]) ** 2).sum(axis=(1, 2))
        of_moment = ((moment - moved * second[1]) ** 2 - (moment - moved * first[1]) ** 2).sum(axis=1)
        self._sums[here] += of_gram / (2 * (width * self._privacy.sigma_gram(NORM)) ** 2)
        self._sums[here] += of_moment / (2 * (width * self._privacy.sigma_moment(NORM)) ** 2)

    def _lesson(self, rows: Ints, arm: Ints) -> tuple[Floats, Floats]:
        world = self._design.world
        contexts = world.contexts[rows]
        centred = (world.labels[rows] == arm) - _CENTRE
        return contexts[:, :, None] * contexts[:, None, :], centred[:, None] * contexts
