"""A bonus for what is not known well, without a root: the arm of the best w'x + alpha x'Mx.

M is the inverse of ridge I + sum x x' of the arm, so x'Mx falls as the arm is tried in contexts like this one. It falls
as 1/n where the theory of upper confidence bounds wants 1/sqrt(n): how it does is measured, no bound on regret is
claimed. It takes as many rounds as epsilon-greedy. `docs/policies.md` compares policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from hiddenarm.bandit.confidence import (
    LARGEST_PART,
    LEAST_ERROR,
    BonusLearner,
    Confidence,
    SharedBonusLearner,
    bonus_problem,
    shared_bonus_bits,
)
from hiddenarm.bandit.policy import Learner
from hiddenarm.ring.words import Floats

if TYPE_CHECKING:
    from hiddenarm.bandit.federation import Federation


@dataclass(frozen=True)
class Bonus(Confidence):
    """`alpha` is the weight of x'Mx; on top it explores with chance `epsilon`."""

    name: ClassVar[str] = "bonus"
    learners: ClassVar[Mapping[str, type[Learner]]] = {"fast": BonusLearner}
    shared_learner: ClassVar[type[Learner] | None] = SharedBonusLearner

    def bonus(self, quadratic: Floats, normals: Floats | None) -> Floats:
        return self.alpha * quadratic

    def largest_bonus(self, federation: Federation) -> float:
        return self.alpha * federation.largest_quadratic_form * (1 + LARGEST_PART) + LEAST_ERROR

    def feature_factor(self, federation: Federation) -> float:
        shared = federation.arm_features is not None
        bits = shared_bonus_bits(self, federation) if shared else federation.spare_score_bits
        return sqrt(self.alpha * 2.0**bits)

    def problem(self, federation: Federation) -> str | None:
        return bonus_problem(self, federation)


POLICY = Bonus
