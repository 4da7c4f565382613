"""The names of programs, and which interactions they treat.

A program has its own layout and its own streams of randomness for every count of interactions, so an address is
(epoch, role, program and count, step). What a program computes is up to the learner (`bandit.policy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hiddenarm.bandit.evaluation import value_text
from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.run import ProgramText

if TYPE_CHECKING:
    from hiddenarm.bandit.coins import Exploration
    from hiddenarm.bandit.federation import Federation

DECIDE = "decide"
LEARN = "learn"
STEP = "step"
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
REFRESH = "refresh"
"""Adds dealt noise to the sums, where privacy over time rests on noisy sums (`bandit.noisy_sums`)."""
DESCEND = "descend"
"""Moves weights by a step along the noisy gradient (`bandit.noisy_gradient`)."""
UNLEARN = "unlearn"
"""Takes one interaction out of the sums (`bandit.unlearning`)."""
VALUE = "value"
"""Sums of a window of rewarded decisions, with noise, for values of policies (`bandit.evaluation`)."""
SUBSET_SIZES = (4, 8, 16, 32, *(48 << doubled for doubled in range(11)))
"""Among how many arms there is a program to decide: those that are eligible, rounded up. 48 are the most that are
compared pair by pair, in fewer rounds (`federation.PAYLOAD_ARMS`)."""
DECIDE_AMONG = {size: f"decide among {size}" for size in SUBSET_SIZES}
"""`decide`, among some of the arms (`bandit.subsets`)."""
DECIDING = frozenset((DECIDE, STEP, *DECIDE_AMONG.values()))
"""The programs by which decisions are made."""
PROGRAMS = (
    *(DECIDE, LEARN, GATHER, SOLVE, REPAIR, STEP, LEARN_AGAIN, *REPAIR_RUNS, REFRESH, UNLEARN, VALUE),
    *DECIDE_AMONG.values(),
    DESCEND,
)
"""All names. On the wire a program is its place here, from 1 on: a new one goes to the end."""
SINGLE_PROGRAMS = frozenset((LEARN, STEP, LEARN_AGAIN, *REPAIR_RUNS, UNLEARN))
"""Those that treat one interaction, or none, and of which there is one."""
ABOUT = {
    DECIDE: "choose an arm for a context",
    STEP: "choose an arm for a context, and learn from the decision",
    LEARN: "learn from the reward of a decision",
    LEARN_AGAIN: "learn from an interaction once more, after the model was repaired",
    GATHER: "add interactions to the sums W = ridge I + sum x x' and b = sum r x of their arms",
    SOLVE: "bring the model up to date with the sums: M to the inverse of W, w to M b",
    REPAIR: "add interactions that were learned one by one to the sums",
    INVERT_BOOSTED: "two steps of a repair towards M = the inverse of W, the first ones",
    INVERT: "two steps of a repair towards M = the inverse of W",
    INVERT_LAST: "the last two steps of a repair, and w = M b",
    UNLEARN: "take an interaction out of the sums W and b; the model is then solved from them, as in a repair",
    REFRESH: "add dealt noise to the sums W and b; the model is then solved from them, as in a repair",
    DESCEND: "move the weights w by a step along the noisy gradient, which is zero then",
    VALUE: "add up rewards and coins of a window of decisions, with dealt noise, for values of policies",
    **{name: f"choose one of up to {size} eligible arms for a context" for size, name in DECIDE_AMONG.items()},
}
"""What each program of the fast suite is for."""


class ProgramId(NamedTuple):
    """A program for `count` interactions at once; of `solve`, the number that is new to the inverse; of `refresh` with
    correlated noise, the position in its block; of `descend`, which step it is."""

    name: str
    count: int = 1  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here

    @property
    def label(self) -> str:
        """The program's name in the derivation of its streams."""
        return self.name if self.count == 1 else f"{self.name} {self.count}"


def deciding(count: int, among: int | None = None) -> ProgramId:
    """The program that decides for `count` contexts, among all arms or so many slots of eligible ones."""
    return ProgramId(DECIDE if among is None else DECIDE_AMONG[among], count)


def slots_of(program: ProgramId) -> int | None:
    """Among how many slots a program decides; None if among all arms, or if it does not decide."""
    return _SLOTS.get(program.name)


_SLOTS = {name: size for size, name in DECIDE_AMONG.items()}
DECIDE_ONE = ProgramId(DECIDE)
LEARN_ONE = ProgramId(LEARN)
STEP_ONE = ProgramId(STEP)


def program_text(federation: Federation, program: ProgramId, exploration: Exploration | None = None) -> ProgramText:
    """A program as parties and dealer run it. `exploration` is that of the federation's policy unless given; only the
    dealer's run looks at it."""
    if program.name == VALUE:
        if not is_window(federation, program):
            raise ProtocolError(f"there is no program {VALUE!r} for {program.count} at once here")
        return value_text(federation, program.count)
    return federation.learner.program(program, exploration).text


def is_window(federation: Federation, program: ProgramId) -> bool:
    """Whether this is the program that adds up a window, where values are evaluated; it may be longer than a batch."""
    values = federation.evaluation
    return values is not None and program == ProgramId(VALUE, values.window)


def program_texts(federation: Federation) -> dict[str, ProgramText]:
    """The programs of a strictly online step, by name: `step`, or one to decide and one to learn."""
    return {program.name: program_text(federation, program) for program in federation.learner.online_programs}
