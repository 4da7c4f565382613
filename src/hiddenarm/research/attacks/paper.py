"""The paper's attack on a finished model (`research.experiments.attack`), in the frame of the attack on the sequence.

A trial is a learner after T steps on rows of a training set. The candidate is one of these rows in world 1 and a row of
a held-out set in world 0; the adversary evaluates the model's policy on it and scores arm a and reward r by
log p_train(r | a) / p_test(r | a). No trial is made in one world: its outcomes are all pairs (a, r), each with its
probability over candidates and coins in either world. So rates are exact but for the learners, and an interval is over
learners.

The advantage is that of the paper's own rule, a score above 0. The adversary knows the distributions of the very
examples it attacks, so noise counts as advantage where sets are small; across halves of the sets it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiddenarm.bandit.plain import PlainBandits
from hiddenarm.research.attacks.evidence import Estimate, Evidence, mean_of_trials
from hiddenarm.research.attacks.sequence import RIDGE, best_arms
from hiddenarm.research.attacks.trials import Design, Trials
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.research.experiments.attack import attack_across_halves, outcomes_of_halves
from hiddenarm.ring.words import Floats


@dataclass(frozen=True)
class Outcomes:
    """Of learners: how often the policy chooses each arm and loses or wins, [learners, 2 halves, arms, 2]."""

    members: Floats
    others: Floats

    @property
    def evidence(self) -> Evidence:
        """What arm and reward of one example tell."""
        members, others = (_shares(counts.sum(axis=1)) for counts in (self.members, self.others))
        with np.errstate(divide="ignore", invalid="ignore"):
            given = [np.log(counts / counts.sum(axis=2, keepdims=True)) for counts in (members, others)]
            scores = given[0] - given[1]
        scores[np.isnan(scores)] = -np.inf
        flat = len(scores), -1
        return Evidence(scores.reshape(flat), members.reshape(flat), others.reshape(flat))

    def advantage_across_halves(self, key: bytes) -> Estimate:
        """Of the same rule where the distributions are those of one half and the examples those of the other."""
        return mean_of_trials(attack_across_halves(self.members, self.others).advantage, key)


class PaperAttack:
    """Trains learners and evaluates them on both sets."""

    def __init__(self, design: Design, held_out: LabelWorld, ridge: float = RIDGE) -> None:
        self._design, self._held_out, self._ridge = design, held_out, ridge
        world = design.world
        self.at_a_time = design.at_a_time(world.arms * world.features * (world.features + 1))

    def outcomes(self, trials: Trials) -> Outcomes:
        """Of each trial's learner."""
        world, held_out, epsilon = self._design.world, self._held_out, self._design.epsilon
        models = self._trained(trials)
        members = [
            outcomes_of_halves(model, world.contexts[rows], world.labels[rows], epsilon)
            for model, rows in zip(models, trials.rows, strict=True)
        ]
        others = [outcomes_of_halves(model, held_out.contexts, held_out.labels, epsilon) for model in models]
        return Outcomes(np.stack(members), np.stack(others))

    def _trained(self, trials: Trials) -> Floats:
        world = self._design.world
        bandits = PlainBandits(len(trials.rows), world.arms, world.features, self._ridge)
        for step in range(self._design.steps):
            rows = trials.rows[:, step]
            contexts = world.contexts[rows]
            arms = trials.coins.choose(step, best_arms(bandits.scores(contexts)))
            bandits.learn(contexts, arms, (world.labels[rows] == arms).astype(np.float64))
        return bandits.weights


def joined(parts: list[Outcomes]) -> Outcomes:
    """All learners of several portions."""
    return Outcomes(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("members", "others")))


def _shares(counts: Floats) -> Floats:
    shares: Floats = counts / counts.sum(axis=(1, 2), keepdims=True)
    return shares
