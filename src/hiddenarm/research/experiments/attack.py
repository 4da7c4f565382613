"""The membership-inference attack on a model: was this example among those that trained it?

The adversary has the model after T steps, knows how outcomes (arm a, reward r) of its epsilon-greedy policy are
distributed on the T examples that trained it and on held-out examples, and is shown one example of either set:

1.  evaluate the policy on the example: arm a, reward r;
2.  say "member" if p_train(r | a) > p_test(r | a), and "not a member" otherwise.

The advantage (Yeom et al., 2018) is the rate of "member" among members less that among the held-out examples.

Three choices that the paper leaves open:

-   Outcomes are not sampled. Both distributions and both rates are expectations over the policy's coins: the best arm
    has probability (1 - epsilon), shared evenly where several are best, and every arm epsilon / A more.
-   The examples that are attacked are those with which the distributions were estimated, as in the paper, where the
    adversary knows the distributions. So the noise of the estimate counts as advantage: of two small sets one is always
    luckier, even where nothing leaks. `attack_across_halves` is the stricter control: estimate on one half of both
    sets, attack the other. It is 0 on average for a model that treats members as it treats others.
-   An arm that is never chosen on one of the sets has no p(r | a) there. The answer is then "not a member".

An adversary who looks at the reward alone is the same attack with all arms taken for one (`without_arms`): its
advantage is the difference of the two mean rewards, |p_train(1) - p_test(1)|. That is what the example code that
CrypTen publishes for this figure (examples/bandits/membership_inference.py) computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hiddenarm.ring.words import Floats

WON = 1
"""The last axis of outcomes is: lost, won."""


@dataclass(frozen=True)
class Rates:
    """How often the adversary says "member": of members, and of the others."""

    true_positive: Floats
    false_positive: Floats

    @property
    def advantage(self) -> Floats:
        """Of no use: 0. Always right: 1."""
        return self.true_positive - self.false_positive


def policy(scores: Floats, epsilon: float) -> Floats:
    """The probability of each arm, for scores [examples, arms]."""
    best = scores == scores.max(axis=1, keepdims=True)
    shares: Floats = best * ((1 - epsilon) / best.sum(axis=1, keepdims=True)) + epsilon / scores.shape[1]
    return shares


def outcomes(chances: Floats, labels: NDArray[np.int64]) -> Floats:
    """How often each arm is chosen and loses or wins, [arms, 2]: sums over examples, whose own label is the arm that
    wins and who choose arms with the chances [examples, arms]."""
    examples, arms = chances.shape
    won = np.bincount(labels, weights=chances[np.arange(examples), labels], minlength=arms)
    return np.stack([chances.sum(axis=0) - won, won], axis=1)


def outcomes_of_halves(model: Floats, contexts: Floats, labels: NDArray[np.int64], epsilon: float) -> Floats:
    """Outcomes of the policy of a model [arms, features] on every other example, and on those between: [2, arms, 2]."""
    chances = policy(contexts @ model.T, epsilon)
    return np.stack([outcomes(chances[half::2], labels[half::2]) for half in range(2)])


def attack(members: Floats, others: Floats) -> Rates:
    """Attack the examples behind these outcomes, [..., arms, 2] both, knowing how they are distributed."""
    return _rates(_suspected(members, others), members, others)


def attack_across_halves(members: Floats, others: Floats) -> Rates:
    """The distributions of one half, the examples of the other, and the mean of both ways: [..., 2, arms, 2]."""
    suspected = _suspected(members, others)[..., ::-1, :, :]
    rates = _rates(suspected, members, others)
    return Rates(rates.true_positive.mean(axis=-1), rates.false_positive.mean(axis=-1))


def without_arms(counts: Floats) -> Floats:
    """All arms as one: [..., 1, 2]."""
    pooled: Floats = counts.sum(axis=-2, keepdims=True)
    return pooled


def sampling_variance(counts: Floats, epsilon: float) -> Floats:
    """How much the mean reward would vary if the arm of every example were drawn once, for outcomes [..., arms, 2] of
    a policy with epsilon below 1. An example wins with one of two chances: its label is the best arm, or it is not."""
    low = epsilon / counts.shape[-2]
    high = 1 - epsilon + low
    examples, won = counts.sum(axis=(-2, -1)), counts[..., WON].sum(axis=-1)
    right = (won - low * examples) / (high - low)
    return np.asarray((right * high * (1 - high) + (examples - right) * low * (1 - low)) / examples**2)


def _suspected(members: Floats, others: Floats) -> NDArray[np.bool_]:
    """The outcomes that are likelier among members, given their arm; none where the arm is unknown to either."""
    return _given_arm(members) > _given_arm(others)


def _given_arm(counts: Floats) -> Floats:
    """p(r | a), and nan, which is above nothing, for an arm that is never chosen."""
    chosen = counts.sum(axis=-1, keepdims=True)
    given: Floats = np.divide(counts, chosen, out=np.full_like(counts, np.nan), where=chosen > 0)
    return given


def _rates(suspected: NDArray[np.bool_], members: Floats, others: Floats) -> Rates:
    return Rates(_share(suspected, members), _share(suspected, others))


def _share(suspected: NDArray[np.bool_], counts: Floats) -> Floats:
    return np.asarray((counts * suspected).sum(axis=(-2, -1)) / counts.sum(axis=(-2, -1)))
