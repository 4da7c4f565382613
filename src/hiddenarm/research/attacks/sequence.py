"""The best attack on the sequence of arms, where arms are explored and nothing else hides them.

The adversary replays the learner twice on the arms that were seen: in world 1 and in world 0 of `trials`. In either
replay the probability of the next arm is known,

    P(a) = epsilon / A + (1 - epsilon) [a is among the best] / (how many are best),

so the log likelihood ratio of all arms is a sum over steps of log P1(a) / P0(a). By Neyman and Pearson no attack on
these observations is better. Ties enter as sets: the adversary does not know how one was broken.

Both replays are the same before the candidate's step. From then on they differ in the model of one arm, that which was
chosen there: world 1's is in the bandits, world 0's is kept beside them.

The arms' rewards are no further observation. They are functions of rows and arms, but for the candidate's own: an
adversary who has the rewards knows it, and needs no attack where worlds 0 and 1 disagree on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.plain import PlainBandits
from hiddenarm.research.attacks.trials import Design, Ints, Trials
from hiddenarm.ring.words import Floats

RIDGE = 1.0


@dataclass(frozen=True)
class Scores:
    """Log likelihood ratios [trials]: of all that the adversary sees, and of the candidate's own arm alone, which is
    what the theorem on one action is about."""

    whole: Floats
    own_action: Floats


class SequenceAttack:
    """Makes trials and attacks them."""

    def __init__(self, design: Design, ridge: float = RIDGE) -> None:
        self._design, self._ridge = design, ridge
        world = design.world
        self.at_a_time = design.at_a_time(world.arms * world.features * (world.features + 1))

    def scores(self, trials: Trials) -> Scores:
        """Of each trial."""
        return _Replays(self._design, trials, self._ridge).run()


class _Replays:
    """Both replays of some trials, along the run of the learner that they replay."""

    def __init__(self, design: Design, trials: Trials, ridge: float) -> None:
        world, count = design.world, len(trials.rows)
        self._design, self._trials = design, trials
        self._present = trials.present
        self._bandits = PlainBandits(count, world.arms, world.features, ridge)
        self._inverses = np.zeros((count, world.features, world.features))
        self._weights = np.zeros((count, world.features))
        self._arm = np.zeros(count, np.int64)
        self._whole, self._own_action = np.zeros(count), np.zeros(count)

    def run(self) -> Scores:
        for step in range(self._design.steps):
            self._step(step)
        return Scores(self._whole, self._own_action)

    def _step(self, step: int) -> None:
        world, trials = self._design.world, self._trials
        now = np.flatnonzero(trials.place == step)
        later = np.flatnonzero(trials.place < step)
        rows = trials.rows[:, step]
        contexts = world.contexts[rows]
        best = best_arms(self._bandits.scores(contexts))
        differing, others = self._best_of_world_0(now, later, contexts, best)
        truth = best.copy()
        truth[differing] = np.where(self._present[differing, None], best[differing], others)
        arms = trials.coins.choose(step, truth)
        ratio = log_ratio(best[differing], others, arms[differing], self._design.epsilon)
        self._whole[differing] += ratio
        self._own_action[differing] += np.where(trials.place[differing] == step, ratio, 0.0)
        rewards = (world.labels[rows] == arms).astype(np.float64)
        self._learn_world_0(now, later, contexts, arms, rewards)
        self._bandits.learn(contexts, arms, rewards)

    def _best_of_world_0(
        self, now: Ints, later: Ints, contexts: Floats, best: NDArray[np.bool_]
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """The trials in which the worlds may differ here, and the best arms in world 0 of these."""
        bandits = self._bandits
        scores = np.matmul(bandits.weights[later], contexts[later, :, None])[:, :, 0]
        scores[np.arange(len(later)), self._arm[later]] = (self._weights[later] * contexts[later]).sum(axis=1)
        if self._design.target == "drop" or not len(now):
            return later, best_arms(scores)
        other = self._design.world.contexts[self._trials.other[now]]
        own = np.matmul(bandits.weights[now], other[:, :, None])[:, :, 0]
        return np.concatenate([now, later]), best_arms(np.concatenate([own, scores]))

    def _learn_world_0(self, now: Ints, later: Ints, contexts: Floats, arms: Ints, rewards: Floats) -> None:
        """Teach world 0's model of the candidate's arm; at the candidate's step it is split off the common one."""
        pulled = later[arms[later] == self._arm[later]]
        self._teach(pulled, contexts[pulled], rewards[pulled])
        self._arm[now] = arms[now]
        self._inverses[now] = self._bandits.inverses[now, arms[now]]
        self._weights[now] = self._bandits.weights[now, arms[now]]
        if self._design.target != "drop":
            world, other = self._design.world, self._trials.other[now]
            self._teach(now, world.contexts[other], (world.labels[other] == arms[now]).astype(np.float64))

    def _teach(self, which: Ints, contexts: Floats, rewards: Floats) -> None:
        """Sherman-Morrison, as the bandits learn."""
        inverses, weights = self._inverses[which], self._weights[which]
        u = np.matmul(inverses, contexts[:, :, None])[:, :, 0]
        v = u / (1 + (contexts * u).sum(axis=1, keepdims=True))
        self._inverses[which] = inverses - v[:, :, None] * u[:, None, :]
        self._weights[which] = weights + v * (rewards - (weights * contexts).sum(axis=1))[:, None]


def best_arms(scores: Floats) -> NDArray[np.bool_]:
    """Which arms, the last axis, have the highest score."""
    best: NDArray[np.bool_] = scores == scores.max(axis=-1, keepdims=True, initial=-np.inf)
    return best


def log_ratio(first: NDArray[np.bool_], second: NDArray[np.bool_], arms: Ints, epsilon: float) -> Floats:
    """log P1(a) / P0(a) for best arms [trials, arms] in either world. Infinite where one world excludes the arm."""
    each = np.arange(len(arms))
    with np.errstate(divide="ignore"):
        chances = [
            np.log(epsilon / best.shape[1] + (1 - epsilon) * best[each, arms] / best.sum(axis=1))
            for best in (first, second)
        ]
    ratio: Floats = chances[0] - chances[1]
    return ratio
