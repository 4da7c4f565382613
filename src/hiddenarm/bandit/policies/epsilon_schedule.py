"""Epsilon-greedy with a public schedule: it explores less and less.

    epsilon(t) = max(final, initial / (1 + t / decay))        t the public position of the decision (`bandit.coins`)

After `decay` decisions epsilon is half of `initial`. Only the dealer's coins change: no round, no word.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.coins import Positions
from hiddenarm.bandit.noisy_gradient import GradientLearner
from hiddenarm.bandit.policy import Learner, check_epsilon
from hiddenarm.bandit.ridge_policy import RidgePerArm
from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Floats


@dataclass(frozen=True)
class EpsilonSchedule(RidgePerArm):
    """Explores with probability `initial` at first, and never with less than `final`."""

    name: ClassVar[str] = "epsilon-schedule"
    gradient_learner: ClassVar[type[Learner] | None] = GradientLearner

    initial: float = 1.0
    final: float = 0.01
    decay: float = 1000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon("initial", self.initial)
        check_epsilon("final", self.final)
        if self.final > self.initial:
            raise ConfigError(f"final must be at most initial, {self.initial:g}; got {self.final:g}")
        if not (isfinite(self.decay) and self.decay > 0):
            raise ConfigError(f"decay must be a positive number of decisions, got {self.decay:g}")

    def epsilons(self, positions: Positions) -> Floats:
        return np.maximum(self.final, self.initial / (1 + positions / self.decay))


POLICY = EpsilonSchedule
