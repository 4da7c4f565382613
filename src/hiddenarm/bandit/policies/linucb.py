"""LinUCB: the arm of the largest upper confidence bound, w'x + alpha sqrt(x'Mx) (Li et al. 2010).

M is the inverse of ridge I + sum x x' of the arm; alpha sqrt(x'Mx) is the half width of an interval for w'x. It takes
two rounds more than epsilon-greedy, for the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.confidence import RootConfidence, RootLearner
from hiddenarm.bandit.policy import Learner
from hiddenarm.ring.words import Floats


@dataclass(frozen=True)
class LinUcb(RootConfidence):
    """`alpha` is the weight of sqrt(x'Mx); on top it explores with chance `epsilon`."""

    name: ClassVar[str] = "linucb"
    learners: ClassVar[Mapping[str, type[Learner]]] = {"fast": RootLearner}
    largest_factor = 1.0

    def bonus(self, quadratic: Floats, normals: Floats | None) -> Floats:
        root: Floats = np.sqrt(np.maximum(quadratic, 0))
        return self.alpha * root


POLICY = LinUcb
