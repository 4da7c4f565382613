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

The runs behind the attack of experiment 7: learners on a training set, evaluated on it and on the held-out set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.material import Seeds
from hiddenarm.research.data.load import load_pair
from hiddenarm.research.data.worlds import LabelWorld, split_features
from hiddenarm.research.experiments.experiment import Data
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress
from hiddenarm.research.experiments.learners import FEATURES, BufferedCoins, ContextStream, checkpoints_within
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


ARMS = 10

_STEPS_BETWEEN_NEWS = 500
_SECONDS_A_STEP = {"plain": (60e-6, 3e-6), "fast": (0.5e-3, 0.35e-3), "paper": (0.5e-3, 1.6e-3)}
"""On one core: for all replicates together, and for each."""


@dataclass(frozen=True)
class AttackedRun(Job):
    """Some replicates of a learner, plain or of one of the private suites; seeds alone decide order and coins, so equal
    seeds let learners be compared. The result, for the attacks of `attack`:

    members, others  [checkpoints, replicates, 2, arms, 2]   outcomes of the halves of the steps made so far, and of the
                     held-out set; nan once the scores of a private learner left their range (see `checkpoints_within`)
    """

    kind: ClassVar[str] = "attacked"

    data: Data
    learner: Literal["plain", "fast", "paper"]
    epsilon: float
    seeds: tuple[int, ...]
    steps: int

    @property
    def title(self) -> str:
        return f"{self.learner} learners to attack, epsilon {self.epsilon:g}, {len(self.seeds)} runs"

    @property
    def expected_seconds(self) -> float:
        together, each = _SECONDS_A_STEP[self.learner]
        return 2 + self.steps * (together + len(self.seeds) * each)

    @property
    def federation(self) -> Federation:
        """The configuration of the private learner; the plain one shares its ridge and its coins."""
        suite = "paper" if self.learner == "paper" else "fast"
        return Federation(ARMS, tuple(split_features(FEATURES, 2)), suite=suite, epsilon=self.epsilon)

    @property
    def epoch_key(self) -> bytes:
        """Reproducible, so not private."""
        return sha256(f"hiddenarm reproduce attack {self.data} {self.seeds}".encode()).digest()

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        training, held_out = load_pair(self.data, data_dir=data_dir if self.data == "mnist" else None)
        assert isinstance(training, LabelWorld)
        assert isinstance(held_out, LabelWorld)
        return self.attacked(training, held_out, progress)

    def attacked(self, training: LabelWorld, held_out: LabelWorld, progress: Progress) -> Arrays:
        """Train on one world, and evaluate the models on both."""
        course, learner = ContextStream(training, self.seeds, self.steps), self._learner()
        held_out_course = ContextStream(held_out, self.seeds, len(held_out.contexts))
        checkpoints = checkpoints_within(self.steps)
        members = np.full((len(checkpoints), len(self.seeds), 2, ARMS, 2), np.nan)
        others = members.copy()
        for place, models in _trained(learner, course, checkpoints, progress):
            members[place] = self._outcomes(models, training, course.rows[:, : checkpoints[place]])
            others[place] = self._outcomes(models, held_out, held_out_course.rows)
        return {"members": members, "others": others}

    def _learner(self) -> _Learner:
        return _Plain(self) if self.learner == "plain" else _Private(self)

    def _outcomes(self, models: Floats, world: LabelWorld, rows: NDArray[np.int64]) -> Floats:
        """Of every model on its own rows, which lie in a random order: so every other row is a random half."""
        return np.stack([
            outcomes_of_halves(model, world.contexts[own], world.labels[own], self.epsilon)
            for model, own in zip(models, rows, strict=True)
        ])  # fmt: skip


def _trained(
    learner: _Learner, course: ContextStream, checkpoints: Sequence[int], progress: Progress
) -> Iterator[tuple[int, Floats]]:
    """Train; give every checkpoint's number and the models [replicates, arms, features] then, as far as it goes."""
    steps = checkpoints[-1]
    for step in range(steps):
        contexts = course.contexts(step)
        try:
            arms = learner.decide(step, contexts)
        except ScoreRangeError:
            return
        learner.learn(step, contexts, arms, course.rewards(step, arms))
        if step + 1 in checkpoints:
            yield checkpoints.index(step + 1), learner.models
        if (step + 1) % _STEPS_BETWEEN_NEWS == 0:
            progress((step + 1) / steps, "")


class _Learner(Protocol):
    """Replicates that advance together."""

    @property
    def models(self) -> Floats:
        """[replicates, arms, features]."""

    def decide(self, step: int, contexts: Floats) -> NDArray[np.int64]:
        """The arms [replicates] for contexts [replicates, features]."""

    def learn(self, step: int, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        """Learn from what the arms of this step earned."""


class _Plain:
    def __init__(self, run: AttackedRun) -> None:
        copies, federation = len(run.seeds), run.federation
        self._bandits = federation.policy.twins(federation, copies)
        source = partial(audit_coins, Seeds(run.epoch_key), federation, replicates=copies)
        self._coins = BufferedCoins(source, run.steps)

    @property
    def models(self) -> Floats:
        return self._bandits.weights

    def decide(self, step: int, contexts: Floats) -> NDArray[np.int64]:
        return self._bandits.decide(contexts, *self._coins.at(step))

    def learn(self, step: int, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        self._bandits.learn(contexts, arms, rewards)


class _Private:
    def __init__(self, run: AttackedRun) -> None:
        self._learner = Lockstep(run.federation, run.epoch_key, replicates=len(run.seeds), deal_ahead=8)
        self._cuts = np.cumsum(run.federation.features)[:-1]

    @property
    def models(self) -> Floats:
        return self._learner.reveal_model()[1]

    def decide(self, step: int, contexts: Floats) -> NDArray[np.int64]:
        return self._learner.decide(np.split(contexts, self._cuts, axis=1))[1]

    def learn(self, step: int, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        self._learner.learn(step, rewards)
