"""A ridge regression per arm: the learner of all policies that learn a linear model for each arm.

Arrays of the fast suite, with D (D + 1) / 2 entries where a matrix is kept as its upper triangle:

    inverses   [arms, triangle]   M = W^-1         2L fractional bits
    weights    [arms, D]          w = M b           L
    grams      [arms, triangle]   W = ridge I + sum x x'    2L
    moments    [arms, D]          b = sum r x               2L

A policy that only explores in another way is a `RidgePerArm` (`bandit.ridge_policy`) with `epsilons` of its own. One
that scores in another way has a learner of its own, which overrides `scored`, and what is masked before it; or, for
rounds of another kind, `scores` and `decide_reads`. One with other programs, arrays or another schedule overrides
`program`, `arrays` or `schedule`. Only one that overrides none of `scores`, `program` and `single_lesson` has the
program `step`, which masks the model once for scores and lesson.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hiddenarm.bandit.answers import Answers
from hiddenarm.bandit.batches import Sums, gained_sums, gather, solve
from hiddenarm.bandit.catalogue import (
    DECIDE,
    DECIDE_AMONG,
    GATHER,
    INVERT,
    INVERT_BOOSTED,
    INVERT_LAST,
    LEARN,
    LEARN_AGAIN,
    LEARN_ONE,
    REFRESH,
    REPAIR,
    REPAIR_RUNS,
    SOLVE,
    STEP,
    UNLEARN,
    ProgramId,
    deciding,
    slots_of,
)
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.noisy_sums import (
    NoisySchedule,
    SumsNoise,
    centred,
    leaf_names,
    noisy_sums,
    refresh,
    refresh_correlated,
)
from hiddenarm.bandit.planning import SolvePlan, batch_plan, boosted_repair, last_repair, plain_repair
from hiddenarm.bandit.policy import Brings, Learner, LearnerProgram
from hiddenarm.bandit.programs import (
    LinearScores,
    Model,
    PerArm,
    ScoreFactors,
    Scores,
    decide,
    learn,
    masked_scores,
    own_features,
    step,
)
from hiddenarm.bandit.schedule import GATHERED_BEFORE_A_BATCH, RidgeSchedule, Schedule
from hiddenarm.bandit.state import State, StateArray, reveal
from hiddenarm.bandit.subsets import Subset
from hiddenarm.bandit.unlearning import ungather
from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.masking import given_share, triangle_indices
from hiddenarm.mpc.run import Opening, Program, Rounds, Run
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.ring.words import Floats, Words

TEACHES_WITHOUT_NOISE = (LEARN, LEARN_AGAIN, STEP, SOLVE, REPAIR, UNLEARN)
"""Programs that there are not where sums are noisy."""
DECIDES = (DECIDE, *DECIDE_AMONG.values())
"""Programs that decide and do no more."""
MODEL = ("inverses", "weights")
SUMS = ("grams", "moments")
_LABELS = {
    "inverses": "inverses M (upper triangles)",
    "weights": "weights w",
    "grams": "sums W (upper triangles)",
    "moments": "sums b",
}
"""What an explanation calls the arrays."""


class RidgeLearner(Learner):
    """In the fast suite."""

    takes_eligible = True
    scores_by_inverses = False
    """Whether scores are made of the inverses, too."""
    mechanisms = (*Learner.mechanisms, NoisySums.name)
    ties_without_a_model = True

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self._noisy = noisy_sums(federation)
        if self._noisy is not None:
            self.single_lesson = ProgramId(GATHER)

    @property
    def decide_reads(self) -> tuple[str, ...]:
        return ("weights", "inverses") if self.scores_by_inverses else ("weights",)

    @property
    def arrays(self) -> tuple[StateArray, ...]:
        models, size, bits = self.federation.models, self.federation.model_size, self.federation.fraction_bits
        rows, columns = triangle_indices(size)
        identity, triangle = (rows == columns).astype(np.float64), (models, len(rows))
        return (
            StateArray("inverses", triangle, 2 * bits, identity, 1 / self.federation.ridge),
            StateArray("weights", (models, size), bits),
            StateArray("grams", triangle, 2 * bits, identity, self.federation.ridge if self._noisy is None else 0.0),
            StateArray("moments", (models, size), 2 * bits),
            *(StateArray(name, shape, 2 * bits) for name, shape in self._leaves(triangle, (models, size))),
        )

    def _leaves(self, *shapes: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
        """The names and shapes of the arrays of leaves that are used again, where noise is correlated."""
        kept = 0 if self._noisy is None else max(0, self._noisy.correlated - 1)
        names = [leaf_names(position) for position in range(1, kept + 1)]
        return [named for pair in names for named in zip(pair, shapes, strict=True)]

    @property
    def largest_programs(self) -> tuple[ProgramId, ...]:
        many = self.federation.max_batch
        if self._noisy is not None:
            refreshing = ProgramId(REFRESH, max(1, self._noisy.correlated))
            return ProgramId(GATHER, many), refreshing, ProgramId(INVERT_LAST)
        return ProgramId(GATHER, max(many, GATHERED_BEFORE_A_BATCH)), ProgramId(SOLVE, many)

    @property
    def has_step(self) -> bool:
        own = type(self)
        return own.scores is RidgeLearner.scores and own.program is RidgeLearner.program and self.goes_on

    @property
    def goes_on(self) -> bool:
        """Whether a run that has decided may wait for the reward, and go on to learn."""
        online = not self.federation.reward_slot  # else the reward comes after the next decisions
        return online and self.single_lesson == LEARN_ONE and self.federation.decides_by_payloads

    def schedule(self) -> Schedule:
        if self._noisy is not None:
            return NoisySchedule.of(self.federation, self._noisy)
        return RidgeSchedule(self.federation.numbers)

    @property
    def answers(self) -> Answers:
        return Answers.PAYLOADS if self.federation.decides_by_payloads else Answers.ONE_HOTS

    def reveal(self, states: Sequence[State]) -> tuple[Floats, Floats]:
        """Inverses as packed upper triangles, and weights."""
        clear = reveal(self.arrays[:2], states)
        return clear["inverses"], clear["weights"]

    # The programs

    def program(self, program: ProgramId, exploration: Exploration | None = None) -> LearnerProgram:
        name, count = program
        exploring = exploration or self.policy.exploration()
        if self._noisy is not None and name in TEACHES_WITHOUT_NOISE:
            raise ProtocolError(f"there is no program {name!r} where sums are noisy: it would teach without noise")
        if name == REFRESH and self._noisy is not None:
            return self._refreshing(self._noisy, program)
        if name == STEP and self.has_step:
            return LearnerProgram(lambda run: self._step(run, exploring), MODEL, Brings.CONTEXTS, MODEL)
        if name == DECIDE:
            return LearnerProgram(
                lambda run: self._decide(run, exploring, count), tuple(self.decide_reads), Brings.CONTEXTS
            )
        if (size := slots_of(program)) is not None and not self.federation.decides_by_payloads:
            return self.among(size).program(deciding(count), exploring)
        if name in (LEARN, LEARN_AGAIN):
            return LearnerProgram(self._learn, MODEL, Brings.INTERACTION, MODEL)
        if name in (GATHER, REPAIR):
            return LearnerProgram(lambda run: self._gather(run, count), SUMS, Brings.INTERACTIONS, SUMS)
        if name == UNLEARN:
            return LearnerProgram(self._unlearn, SUMS, Brings.INTERACTIONS, SUMS)
        if name in (SOLVE, *REPAIR_RUNS):
            plan = self._solve_plan(program)
            return LearnerProgram(lambda run: self._solve(run, plan), (*MODEL, *SUMS), Brings.NOTHING, MODEL)
        raise ProtocolError(f"there is no program {name!r}")

    def public_inputs(self, eligible: Words, subset: Subset | None = None) -> Sequence[Words]:
        return (eligible,)

    def scores(
        self, run: Run, arrays: Mapping[str, Shared], own: Words | None, count: int, coins: Coins | None
    ) -> Rounds[Scores]:
        """A score for each arm and context, from the arrays of `decide_reads`: one round or more. Coins are the
        dealer's."""
        return masked_scores(run, self.federation, arrays, own, count, self, coins)

    def more_inputs(self, run: Run, own: Words | None, count: int) -> tuple[Opening[Masked], ...]:
        """What is masked in the first round beside contexts and model."""
        return ()

    def scored(self, run: Run, factors: ScoreFactors, coins: Coins | None) -> Rounds[Scores]:
        """The scores, of what was masked: no round unless the policy needs some."""
        yield from ()
        return LinearScores(factors.weights, factors.contexts)

    def given(self, run: Run, names: Sequence[str]) -> dict[str, Shared]:
        """The state arrays that a party brings into a run."""
        shapes = {array.name: array.shape for array in self.arrays}
        return {name: given_share(run, *shapes[name], label=_LABELS.get(name, name)) for name in names}

    def _decide(self, run: Run, exploration: Exploration, count: int) -> Program:
        arrays = self.given(run, self.decide_reads)
        own = own_features(run, self.federation, count)
        return decide(
            run, self.federation, exploration, lambda coins: self.scores(run, arrays, own, count, coins), count
        )

    def _step(self, run: Run, exploration: Exploration) -> Program:
        arrays = self.given(run, MODEL)
        own = own_features(run, self.federation, 1)
        model = Model(arrays["inverses"], arrays["weights"])
        model = yield from step(run, self.federation, exploration, PerArm(run, self.federation, model, own, self))
        return model.inverses, model.weights

    def _learn(self, run: Run) -> Program:
        federation, arrays = self.federation, self.given(run, MODEL)
        own = own_features(run, federation)
        arm = given_share(run, federation.arms, label="one-hot of the arm")
        reward = given_share(run, label="reward")
        model = yield from learn(run, federation, Model(arrays["inverses"], arrays["weights"]), own, arm, reward)
        return model.inverses, model.weights

    def _gather(self, run: Run, count: int) -> Program:
        sums, own, arms, rewards = self._given_sums(run, count)
        if self._noisy is not None:
            rewards = centred(run, rewards, self.federation.fraction_bits)
        sums = yield from gather(sums, self.gained(run, own, arms, rewards))
        return sums.grams, sums.moments

    def _unlearn(self, run: Run) -> Program:
        sums, own, arms, rewards = self._given_sums(run, 1)
        sums = yield from ungather(sums, self.gained(run, own, arms, rewards))
        return sums.grams, sums.moments

    def gained(self, run: Run, own: Words | None, arms: Shared, rewards: Shared) -> Rounds[Sums]:
        """What interactions [count] are in the sums, exactly, from all that a lesson knows of them: two rounds."""
        return gained_sums(run, self.federation, own, arms, rewards)

    def _given_sums(self, run: Run, count: int) -> tuple[Sums, Words | None, Shared, Shared]:
        """The sums, and features, one-hots and rewards of some interactions."""
        arrays = self.given(run, SUMS)
        own = own_features(run, self.federation, count)
        arms = given_share(run, count, self.federation.arm_width, label="one-hots of the arms, or their features")
        rewards = given_share(run, count, label="rewards")
        return Sums(arrays["grams"], arrays["moments"]), own, arms, rewards

    def _refreshing(self, privacy: NoisySums, program: ProgramId) -> LearnerProgram:
        """The program of a refresh; with correlated noise, at a position of a block."""
        position, correlation = program.count, privacy.correlation
        if position > max(1, privacy.correlated):
            raise ProtocolError(f"there is no program {REFRESH!r} for position {position} here")
        noise = SumsNoise.of(self.federation, privacy, position)
        if correlation is None:
            return LearnerProgram(lambda run: self._refresh(run, noise), SUMS, Brings.NOTHING, SUMS)
        before = [leaf_names(earlier) for earlier in range(1, position)]
        kept = leaf_names(position) if position < correlation.leaves else ()
        taken_back = correlation.taken_back[position - 1]

        def text(run: Run) -> Program:
            return self._refresh_correlated(run, noise, taken_back, keeps=bool(kept))

        leaves = tuple(zip(*before, strict=True))
        return LearnerProgram(text, SUMS, Brings.NOTHING, (*SUMS, *kept), leaves)

    def _refresh_correlated(self, run: Run, noise: SumsNoise, taken_back: Sequence[int], keeps: bool) -> Program:
        arrays, count = self.given(run, SUMS), len(taken_back)
        sums = Sums(arrays["grams"], arrays["moments"])
        leaves: list[Sums] = []
        if count:
            grams = given_leaves(run, sums.grams.shape, count, "earlier noise of W")
            moments = given_leaves(run, sums.moments.shape, count, "earlier noise of b")
            leaves = [Sums(*pair) for pair in zip(grams, moments, strict=True)]
        sums, leaf = yield from refresh_correlated(run, noise, taken_back, sums, leaves)
        return sums.grams, sums.moments, *((leaf.grams, leaf.moments) if keeps else ())

    def _refresh(self, run: Run, noise: SumsNoise) -> Program:
        arrays = self.given(run, SUMS)
        sums = yield from refresh(run, noise, Sums(arrays["grams"], arrays["moments"]))
        return sums.grams, sums.moments

    def _solve(self, run: Run, plan: SolvePlan) -> Program:
        arrays = self.given(run, (*MODEL, *SUMS))
        model, sums = Model(arrays["inverses"], arrays["weights"]), Sums(arrays["grams"], arrays["moments"])
        model = yield from solve(run, self.federation, model, sums, plan)
        return model.inverses, model.weights

    def _solve_plan(self, program: ProgramId) -> SolvePlan:
        numbers = self.federation.numbers
        if program.name == SOLVE:
            return batch_plan(numbers, program.count)
        plans = {INVERT_BOOSTED: boosted_repair, INVERT: plain_repair, INVERT_LAST: last_repair}
        return plans[program.name](numbers)


def given_leaves(run: Run, shape: tuple[int, ...], count: int, label: str) -> list[Shared]:
    """Arrays that a party brings side by side."""
    *lead, length = shape
    joined = given_share(run, *lead, count * length, label=label)
    return [joined.take(np.arange(length) + place * length) for place in range(count)]
