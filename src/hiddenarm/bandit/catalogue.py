"""The programs of the learner, by name and by how many interactions they treat at once.

A program has its own layout and its own streams of randomness for every such count, so an address is
(epoch, role, program and count, step).
"""

from __future__ import annotations

from dataclasses import dataclass

from hiddenarm.bandit.batches import NewtonSchulz, gather, initial_sums, solve
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import DECIDE, LEARN, decide, initial_model, learn
from hiddenarm.mpc.dealing import ProgramText
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words

GATHER = "gather"
SOLVE = "solve"
REPAIR = "repair"
"""`gather`, under a name and with randomness of its own, for interactions that were learned one by one."""


@dataclass(frozen=True, slots=True)
class ProgramId:
    """A program for `count` interactions at once; of `solve`, the number that is new to the inverse."""

    name: str
    count: int = 1

    @property
    def label(self) -> str:
        """The program's name in the derivation of its streams."""
        return self.name if self.count == 1 else f"{self.name} {self.count}"


DECIDE_ONE = ProgramId(DECIDE)
LEARN_ONE = ProgramId(LEARN)


def program_text(federation: Federation, thresholds: Words, program: ProgramId) -> ProgramText:
    """A program as the dealer runs it: on shapes and masks only. `thresholds` are those of the replicates."""
    model, sums = initial_model(federation, None), initial_sums(federation, None)
    arms, rewards = Shared((program.count, federation.arms), None), Shared((program.count,), None)
    match program.name:
        case "decide":
            return lambda run: decide(run, federation, thresholds, model.weights, None, None, program.count)
        case "learn":
            arm, reward = Shared((federation.arms,), None), Shared((), None)
            return lambda run: learn(run, federation, model, None, None, arm, reward)
        case "gather" | "repair":
            return lambda run: gather(run, federation, sums, None, None, arms, rewards)
        case "solve":
            plan = NewtonSchulz.for_new(federation, program.count)
            return lambda run: solve(run, federation, model, sums, plan)
    raise ValueError(f"there is no program {program.name!r}")


def program_texts(federation: Federation, thresholds: Words) -> dict[str, ProgramText]:
    """The programs for one interaction, by name."""
    return {program.name: program_text(federation, thresholds, program) for program in (DECIDE_ONE, LEARN_ONE)}
