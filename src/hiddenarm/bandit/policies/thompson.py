"""Linear Thompson sampling: the arm of the best w'x + alpha sqrt(x'Mx) z (Agrawal and Goyal 2013).

z is a normal number for each arm and decision, which only the dealer knows: it multiplies its tables of the root by it.
As arms have models of their own, w'x + alpha sqrt(x'Mx) z has exactly the law of x times weights that were drawn from
N(w, alpha^2 M). It takes as many rounds as LinUCB. The plain twin gets the same z, by audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hiddenarm.bandit.coins import LARGEST_NORMAL
from hiddenarm.bandit.confidence import RootConfidence, RootLearner
from hiddenarm.bandit.policy import Learner
from hiddenarm.ring.words import Floats


@dataclass(frozen=True)
class Thompson(RootConfidence):
    """`alpha` is the deviation of weights, in units of M^1/2; on top it explores with chance `epsilon`."""

    name: ClassVar[str] = "thompson"
    learners: ClassVar[Mapping[str, type[Learner]]] = {"fast": RootLearner}
    normals: ClassVar[bool] = True
    largest_factor = LARGEST_NORMAL

    def bonus(self, quadratic: Floats, normals: Floats | None) -> Floats:
        assert normals is not None
        root: Floats = np.sqrt(np.maximum(quadratic, 0))
        return self.alpha * root * normals


POLICY = Thompson
