"""Epsilon-greedy: with probability epsilon a uniformly random arm, otherwise the arm of the best score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.coins import Positions
from hiddenarm.bandit.noisy_gradient import GradientLearner
from hiddenarm.bandit.policy import Learner, check_epsilon
from hiddenarm.bandit.ridge_policy import RidgePerArm
from hiddenarm.ring.words import Floats


@dataclass(frozen=True)
class EpsilonGreedy(RidgePerArm):
    """`epsilon` is the chance to explore, of every decision alike."""

    name: ClassVar[str] = "epsilon-greedy"
    gradient_learner: ClassVar[type[Learner] | None] = GradientLearner
    explores_alike: ClassVar[bool] = True

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon("epsilon", self.epsilon)

    def epsilons(self, positions: Positions) -> Floats:
        return np.full(positions.shape, self.epsilon)


POLICY = EpsilonGreedy
