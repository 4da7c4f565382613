"""The programs of the learner, by name and by how many interactions they treat at once.

A program has its own layout and its own streams of randomness for every such count, so an address is
(epoch, role, program and count, step).
"""

from __future__ import annotations

from typing import NamedTuple

from hiddenarm.bandit.batches import Sums, gather, solve
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.paper_suite import PaperFederation, paper_text
from hiddenarm.bandit.planning import RepairPlan, SolvePlan, batch_plan, boosted_repair, last_repair, plain_repair
from hiddenarm.bandit.programs import (
    DECIDE,
    LEARN,
    LEARN_AHEAD,
    Model,
    decide,
    learn,
    learn_ahead,
    own_features,
)
from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.masking import given_share
from hiddenarm.mpc.run import ProgramText, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words

GATHER = "gather"
SOLVE = "solve"
REPAIR = "repair"
"""`gather`, under a name and with randomness of its own, for interactions that were learned one by one."""
LEARN_AGAIN = "learn again"
"""`learn`, with randomness of its own, for a model that was repaired while its interaction was learned."""
INVERT_BOOSTED = "invert boosted"
INVERT = "invert"
INVERT_LAST = "invert last"
"""The runs of a repair: each is a `solve` of two steps (see `bandit.planning`). The last solves the weights, too."""
REPAIR_RUNS = (INVERT_BOOSTED, INVERT, INVERT_LAST)
ABOUT = {
    DECIDE: "choose an arm for a context",
    LEARN: "learn from the reward of a decision",
    LEARN_AHEAD: "learn from a decision whose reward comes while the program runs",
    LEARN_AGAIN: "learn from an interaction once more, after the model was repaired",
    GATHER: "add interactions to the sums W = ridge I + sum x x' and b = sum r x of their arms",
    SOLVE: "bring the model up to date with the sums: M to the inverse of W, w to M b",
    REPAIR: "add interactions that were learned one by one to the sums",
    INVERT_BOOSTED: "two steps of a repair towards M = the inverse of W, the first ones",
    INVERT: "two steps of a repair towards M = the inverse of W",
    INVERT_LAST: "the last two steps of a repair, and w = M b",
}
"""What each program of the fast suite is for."""


class ProgramId(NamedTuple):
    """A program for `count` interactions at once; of `solve`, the number that is new to the inverse."""

    name: str
    count: int = 1  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here

    @property
    def label(self) -> str:
        """The program's name in the derivation of its streams."""
        return self.name if self.count == 1 else f"{self.name} {self.count}"

    @property
    def rewarded_label(self) -> str:
        """The label of the program whose steps are rewarded in the same steps of this one."""
        return DECIDE_ONE.label if self.name == LEARN_AHEAD else self.label


DECIDE_ONE = ProgramId(DECIDE)
LEARN_ONE = ProgramId(LEARN)
LEARN_ONE_AHEAD = ProgramId(LEARN_AHEAD)


def program_text(federation: Federation, thresholds: Words, program: ProgramId) -> ProgramText:
    """A program as parties and dealer run it. What a party brings into a run, in this order:

    decide          weights, own features
    learn           inverses, weights, own features, arm, reward
    learn ahead     inverses, weights, own features, arm, reward's mask; it awaits the masked reward
    learn again     as learn
    gather, repair  sums (grams, moments), own features, arms, rewards
    solve, invert   inverses, weights, sums; and so the other runs of a repair

    `thresholds` are those of the replicates. The type of the federation says which suite's text it is; for what a party
    brings in the paper's see `paper_text`.
    """
    count = program.count
    if isinstance(federation, PaperFederation):
        return paper_text(federation, thresholds, program.name, count)
    match program.name:
        case "decide":
            return lambda run: decide(
                run, federation, thresholds, _weights(run, federation), own_features(run, federation, count), count
            )
        case "learn" | "learn again" | "learn ahead":
            text = learn_ahead if program.name == LEARN_AHEAD else learn
            return lambda run: text(
                run,
                federation,
                _model(run, federation),
                own_features(run, federation),
                given_share(run, federation.arms, label="one-hot of the arm"),
                given_share(run, label="mask of the reward" if program.name == LEARN_AHEAD else "reward"),
            )
        case "gather" | "repair":
            return lambda run: gather(
                run,
                federation,
                _sums(run, federation),
                own_features(run, federation, count),
                given_share(run, count, federation.arms, label="one-hots of the arms"),
                given_share(run, count, label="rewards"),
            )
        case "solve" | "invert boosted" | "invert" | "invert last":
            plan = _solve_plan(federation, program)
            return lambda run: solve(run, federation, _model(run, federation), _sums(run, federation), plan)
    raise ProtocolError(f"there is no program {program.name!r}")


def single_lessons(federation: Federation) -> tuple[ProgramId, ...]:
    """The programs that learn one interaction; first the one of strictly online use. The paper's suite cannot begin a
    lesson before its reward is there."""
    return (LEARN_ONE,) if isinstance(federation, PaperFederation) else (LEARN_ONE_AHEAD, LEARN_ONE)


def repair_programs(plan: RepairPlan) -> list[ProgramId]:
    """The runs of a repair, in order."""
    names = [INVERT_BOOSTED] * plan.boosted_runs + [INVERT] * plan.plain_runs + [INVERT_LAST]
    return [ProgramId(name) for name in names]


def _solve_plan(federation: Federation, program: ProgramId) -> SolvePlan:
    if program.name == SOLVE:
        return batch_plan(federation.numbers, program.count)
    plans = {INVERT_BOOSTED: boosted_repair, INVERT: plain_repair, INVERT_LAST: last_repair}
    return plans[program.name](federation.numbers)


def program_texts(federation: Federation, thresholds: Words) -> dict[str, ProgramText]:
    """The programs of a strictly online step, by name: one to decide, one to learn."""
    programs = DECIDE_ONE, single_lessons(federation)[0]
    return {program.name: program_text(federation, thresholds, program) for program in programs}


def _weights(run: Run, federation: Federation) -> Shared:
    return _vectors(run, federation, "weights w")


def _vectors(run: Run, federation: Federation, label: str) -> Shared:
    return given_share(run, federation.arms, federation.dimension, label=label)


def _triangles(run: Run, federation: Federation, label: str) -> Shared:
    size = federation.dimension * (federation.dimension + 1) // 2
    return given_share(run, federation.arms, size, label=f"{label} (upper triangles)")


def _model(run: Run, federation: Federation) -> Model:
    return Model(_triangles(run, federation, "inverses M"), _weights(run, federation))


def _sums(run: Run, federation: Federation) -> Sums:
    return Sums(_triangles(run, federation, "sums W"), _vectors(run, federation, "sums b"))
