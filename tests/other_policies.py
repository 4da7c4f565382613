"""Policies of other kinds than those of the package, to test that the seam holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.catalogue import GATHER, ProgramId
from hiddenarm.bandit.coins import Coins, Positions
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policy import Learner
from hiddenarm.bandit.programs import Scores, SharedScores
from hiddenarm.bandit.ridge import RidgeLearner
from hiddenarm.bandit.ridge_policy import RidgePerArm
from hiddenarm.bandit.schedule import LessonPlan, RidgeSchedule, Run, Schedule
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import input_segments, mask, mask_symmetric
from hiddenarm.mpc.run import Rounds
from hiddenarm.mpc.run import Run as ProgramRun
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Floats, Words

# A policy that scores in rounds of its own: a bonus on x'Mx


class RoundedLearner(RidgeLearner):
    """Scores w'x + x'Mx: it reads the inverses, too, and takes a round more, in which u = M x is rounded."""

    scores_by_inverses = True

    def scores(
        self, run: ProgramRun, arrays: Mapping[str, Shared], own: Words | None, count: int, coins: Coins | None
    ) -> Rounds[Scores]:
        size, bits = self.federation.dimension, self.federation.fraction_bits
        x, w, inverses = yield (
            input_segments(run, (count,), own, self.federation.features),
            mask(run, arrays["weights"]),
            mask_symmetric(run, arrays["inverses"], size),
        )
        (u,) = yield (truncate(run, form(run, "aij,bj->bai", inverses, x), 2 * bits),)
        return SharedScores(form(run, "ai,bi->ba", w, x) + form(run, "bai,bi->ba", u, x), 2 * bits)


class RoundedTwin(PlainBandit):
    def decide(
        self,
        context: Floats,
        explore: bool,
        tags: NDArray[np.int64],
        normals: Floats | None = None,
        eligible: NDArray[np.bool_] | None = None,
    ) -> int:
        assert eligible is None
        scores = self.scores(context, normals)
        tied = scores > scores.max() - 1e-5  # arms that were never pulled
        return int(np.argmax(tags if explore else np.where(tied, tags, -1)))


@dataclass(frozen=True)
class RoundedBonus(RidgePerArm):
    name: ClassVar[str] = "rounded-bonus"
    explores_alike: ClassVar[bool] = True
    learners: ClassVar[Mapping[str, type[Learner]]] = {"fast": RoundedLearner}

    epsilon: float = 0.0

    def epsilons(self, positions: Positions) -> Floats:
        return np.full(positions.shape, self.epsilon)

    def twin(self, federation: Federation) -> PlainBandit:
        return RoundedTwin(federation.arms, federation.dimension, federation.ridge, lambda q, _: q)


# A policy with another schedule: lessons are only gathered, and the model is solved at public times


@dataclass(frozen=True)
class RefreshSchedule(RidgeSchedule):
    """Every third lesson solves the model from the sums alone."""

    def lesson(self, number: int, count: int, of_step: int | None = None) -> LessonPlan:
        counters = self.counters._replace(gathered=self.counters.gathered + count)
        gather = Run(ProgramId(GATHER, count), number - counters.first)
        after = RefreshSchedule(self.numbers, counters)
        if (number + 1) % 3:
            return LessonPlan((gather,), after)
        plan = RidgeSchedule(self.numbers, counters).repair(number)
        assert isinstance(plan.after, RidgeSchedule)
        return LessonPlan((gather, *plan.actions), RefreshSchedule(self.numbers, plan.after.counters))

    def resumed(self, version: int, singly: int, gathered: int, due: bool = False) -> RefreshSchedule:
        return RefreshSchedule(self.numbers, super().resumed(version, singly, gathered).counters)


class RefreshLearner(RidgeLearner):
    single_lesson = ProgramId(GATHER)

    def schedule(self) -> Schedule:
        return RefreshSchedule(self.federation.numbers)


@dataclass(frozen=True)
class Refreshed(EpsilonGreedy):
    name: ClassVar[str] = "refreshed"
    learners: ClassVar[Mapping[str, type[Learner]]] = {"fast": RefreshLearner}
