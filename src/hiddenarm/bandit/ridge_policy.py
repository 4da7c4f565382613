"""What all policies share that learn by ridge regression: the learners that they name, unless they have their own."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hiddenarm.bandit.paper_ridge import PaperRidgeLearner
from hiddenarm.bandit.policy import Learner, Policy
from hiddenarm.bandit.ridge import RidgeLearner
from hiddenarm.bandit.shared_model import SharedRidgeLearner


@dataclass(frozen=True)
class RidgePerArm(Policy, ABC):
    """A policy on a ridge regression per arm, or on one for all arms where these have features; it chooses the arm of
    the best score unless it explores."""

    learners: ClassVar[Mapping[str, type[Learner]]] = {"fast": RidgeLearner, "paper": PaperRidgeLearner}
    shared_learner: ClassVar[type[Learner] | None] = SharedRidgeLearner
