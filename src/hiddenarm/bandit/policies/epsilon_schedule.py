"""Epsilon-greedy with a public schedule: it explores less and less.

    epsilon(t) = max(final, initial / (1 + t / decay)^power)        t the public position of the decision, from 0 on
                                                                    (`bandit.coins`)

With a power of 1 epsilon is half of `initial` after `decay` decisions. initial 0.5, decay 1 and power 1/3 make half of
the cube root of 1 / n at the n-th decision. Above `final` epsilon is rounded down to five significant bits, by the
dealer's coin and in the ledger alike. Only the dealer's coins change: no round, no word.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.coins import Positions, exploration_thresholds
from hiddenarm.bandit.noisy_gradient import GradientLearner
from hiddenarm.bandit.policy import Learner, check_epsilon
from hiddenarm.bandit.ridge_policy import RidgePerArm
from hiddenarm.errors import ConfigError
from hiddenarm.options import Option
from hiddenarm.ring.words import Floats, Words

MOST_POWER = 4.0


@dataclass(frozen=True)
class EpsilonSchedule(RidgePerArm):
    """Explores with probability `initial` at first, and never with less than `final`."""

    name: ClassVar[str] = "epsilon-schedule"
    gradient_learner: ClassVar[type[Learner] | None] = GradientLearner

    initial: float = 1.0
    final: float = 0.01
    decay: float = 1000.0
    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon("initial", self.initial)
        check_epsilon("final", self.final)
        if self.final > self.initial:
            raise ConfigError(f"final must be at most initial, {self.initial:g}; got {self.final:g}")
        if not (isfinite(self.decay) and self.decay > 0):
            raise ConfigError(f"decay must be a positive number of decisions, got {self.decay:g}")
        if not 0 < self.power <= MOST_POWER:
            raise ConfigError(f"power must lie above 0 and be at most {MOST_POWER:g}, got {self.power:g}")

    @property
    def options(self) -> dict[str, Option]:
        """Without the power where it is 1, so that what was written before there was one is still the same."""
        return {name: value for name, value in super().options.items() if name != "power" or value != 1}

    def epsilons(self, positions: Positions) -> Floats:
        epsilons: Floats = np.maximum(self.final, self.initial / (1 + positions / self.decay) ** self.power)
        return epsilons

    def thresholds(self, positions: Positions) -> Words:
        """Rounded down, but to no less than `final`."""
        least = exploration_thresholds(self.final)
        return np.asarray(np.maximum(super().thresholds(positions), least), np.uint64)


POLICY = EpsilonSchedule
