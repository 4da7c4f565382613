"""Which programs a lesson needs, in which order and at which addresses: a pure function of public counters.

    one reward     learn, or the end of the step that made the decision; then upkeep
    many rewards   gather; end a repair under way; repair (gather) what was learned singly before; solve. With reward
                   slots also one, so that how many came cannot be told
    unlearn        unlearn (a gather with the other sign); end a repair under way; repair (gather) what was learned
                   singly before; solve the model from the sums alone, as a repair does

Upkeep spreads the repair of the model over lessons, so that no decision waits for all of it:

    1. after `repair_every` lessons, each lesson adds some of their interactions to the sums (repair)
    2. when the sums hold all of them, a second model is solved from the sums alone, in runs beside everything else
       (`repair_programs`)
    3. from the REPAIR_LAGth lesson after that on, each lesson teaches the second model LEARNED_AGAIN of the lessons
       that the sums did not hold (learn again); a lesson that comes before it is solved waits
    4. when it has caught up, it takes the place of the model

All of this follows from numbers of lessons alone, so all parties do it alike. A batch, or the end of an epoch, ends a
repair under way. After the end of an epoch it is *overdue*: it is begun at once in the next one and takes fewer
lessons; a batch that comes before it is solved by a repair, not from the model as it is. Who runs the programs, and
when their words are there, is not known here: a lesson's plan is data, and holds whether it is run in lockstep
(`bandit.lockstep`) or between roles (`roles.updater`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from hiddenarm.bandit.catalogue import (
    GATHER,
    INVERT,
    INVERT_BOOSTED,
    INVERT_LAST,
    LEARN_AGAIN,
    LEARN_ONE,
    REFRESH,
    REPAIR,
    REPAIR_RUNS,
    SOLVE,
    STEP_ONE,
    UNLEARN,
    ProgramId,
)
from hiddenarm.bandit.planning import Numbers, RepairPlan, repair_plan
from hiddenarm.bandit.state import State, StateArray
from hiddenarm.errors import ProtocolError

GATHERED_AT_ONCE = 25
"""Interactions learned one by one that are added to the sums at a time; fewer where repairs are more frequent."""
GATHERED_BEFORE_A_BATCH = 100
"""The same before a batch is learned, which waits for all of them."""
REPAIR_LAG = 256
"""Lessons that a repair may take before one waits for it; fewer where repairs are more frequent than that."""
OVERDUE_LAG = 64
"""As REPAIR_LAG, of a repair that is overdue. It is in place before the next checkpoint is written, however few lessons
an epoch has: those since the last one are learned again in each."""
LEARNED_AGAIN = 4
"""Lessons that one lesson teaches the repaired model, until that has caught up."""
RUNS_OF_A_REPAIR = 64
"""More than any repair has; its runs have addresses from a multiple of this on."""


class Run(NamedTuple):
    """Run a program at a step. `of` are the interactions that it treats: positions among those learned singly, the
    oldest first; None for those of the lesson itself, or where it treats none. On the `second` model it waits until the
    runs are over with which that was begun."""

    program: ProgramId
    step: int
    of: range | None = None
    second: bool = False


class BeginSecond(NamedTuple):
    """Begin a second model: a copy of the state as it is now, but for these arrays, which have a public start (see
    `StateArray.share`), and with public multiples of their unit added to those of `shifts`. `runs` go on beside
    everything else, one after another."""

    starts: dict[str, float]
    runs: tuple[Run, ...]
    shifts: tuple[tuple[str, float], ...] = ()

    def of(self, state: State, arrays: Sequence[StateArray], party: int, replicates: int = 1) -> State:
        """A party's shares of the second model."""
        public = {array.name: partial(array.share, party, replicates) for array in arrays}
        second = State(state | {name: public[name](start) for name, start in self.starts.items()})
        second.update((name, second[name] + public[name](shift)) for name, shift in self.shifts)
        return second


class TakeSecond(NamedTuple):
    """The second model, once its runs are over, takes the place of the model: those of its arrays that had a public
    start."""


class DropSecond(NamedTuple):
    """The second model is given up, with the runs that are still to come."""


Action = Run | BeginSecond | TakeSecond | DropSecond


@dataclass(frozen=True, slots=True)
class LessonPlan:
    """What a lesson takes, in order, and the schedule after it. The first action is a run: it may be refused, and then
    nothing of the plan holds but that its address is spent.

    When the first run has ended, an interaction that is `kept` joins those learned singly, as the newest. At the end of
    the lesson the oldest `forgotten` of them are forgotten: the sums hold them."""

    actions: tuple[Action, ...]
    after: Schedule
    kept: bool = False
    forgotten: int = 0

    @property
    def first(self) -> Run:
        first = self.actions[0]
        assert isinstance(first, Run)
        return first

    @property
    def refreshes(self) -> bool:
        """Whether noise is drawn: what follows may be computed once only."""
        return any(isinstance(action, Run) and action.program.name == REFRESH for action in self.actions)


class Schedule(ABC):
    """What is to be done for each lesson, at one point of an epoch. It never changes: `lesson` gives the next one."""

    learns_many: bool
    """Whether one lesson may have several rewards."""

    @property
    @abstractmethod
    def gathered(self) -> int:
        """Interactions that the sums hold."""

    @abstractmethod
    def room_for(self, count: int) -> bool:
        """Whether the model can take so many more interactions."""

    @abstractmethod
    def lesson(self, number: int, count: int, of_step: int | None = None) -> LessonPlan:
        """The plan of a lesson of `count` rewards. If its decision was made by a run of the program `step` that goes on
        with this lesson, that is the run `of_step`."""

    no_unlearning: str = ""
    """Why an interaction cannot be taken out of the model again; empty if it can."""

    def unlearning(self, number: int) -> LessonPlan:
        """The plan of a lesson that takes one interaction, which was learned before, out of the model."""
        raise ProtocolError(self.no_unlearning)

    @abstractmethod
    def resumed(self, version: int, singly: int, gathered: int, due: bool = False) -> Schedule:
        """In a new epoch that starts from a version of the model: with so many interactions that were learned singly
        before and that the sums do not hold, so many that they hold, and a repair that is `due` or not. Addresses are
        counted from there."""

    @property
    def repair_is_due(self) -> bool:
        """Whether a repair is due, and not finished."""
        return False

    def is_over(self, program: ProgramId, step: int) -> bool:
        """Whether a run beside the lessons is of no use any more."""
        return False

    def repair(self, number: int) -> LessonPlan:
        """A repair at once, before the lesson of this number. Only for a runner that can wait for it."""
        raise ProtocolError("there are no sums from which the model could be repaired")

    # For a snapshot

    def counted(self) -> list[int]:
        """All counters."""
        return []

    def recounted(self, counted: Sequence[int]) -> Schedule:
        """The schedule with these counters."""
        return self

    def behind(self, steps: Mapping[ProgramId, int], singly: int, gathered: int) -> Schedule:
        """The schedule after a run whose counters were not kept: none of its addresses comes again. `steps` has the
        next step of every program that was run."""
        return self


@dataclass(frozen=True, slots=True)
class SinglySchedule(Schedule):
    """One reward, one run of `learn`: there are no sums."""

    first: int = 0
    learns_many = False
    no_unlearning = "the paper's suite keeps no sums: an interaction cannot be taken out of its model"

    @property
    def gathered(self) -> int:
        return 0

    def room_for(self, count: int) -> bool:
        return True

    def lesson(self, number: int, count: int, of_step: int | None = None) -> LessonPlan:
        return LessonPlan((Run(LEARN_ONE, number - self.first),), self)

    def resumed(self, version: int, singly: int, gathered: int, due: bool = False) -> SinglySchedule:
        return SinglySchedule(version)


class Repairing(NamedTuple):
    """A second model: the lesson with which it was begun, and how many of the interactions that are not gathered it has
    learned."""

    begun_at: int
    caught_up: int = 0


class Counters(NamedTuple):
    """Public numbers on which the schedule of a ridge regression depends."""

    first: int = 0
    """The version at which the epoch began: addresses of lessons are counted from there."""
    singly: int = 0
    """Interactions that were learned singly and that the sums do not hold."""
    gathered: int = 0
    """Interactions that the sums hold."""
    gathering: bool = False
    """Whether lessons add interactions to the sums, for a repair."""
    repairing: Repairing | None = None
    repairs: int = 0
    """Repairs that were begun."""
    learned_again: int = 0
    """Runs of `learn again` so far."""
    overdue: bool = False
    """Whether a repair was due when the epoch began, and is not finished."""


@dataclass(frozen=True, slots=True)
class RidgeSchedule(Schedule):
    """Of a ridge regression whose sums are kept beside it."""

    numbers: Numbers
    counters: Counters = field(default_factory=Counters)
    gathers: dict[int, int] = field(default_factory=dict)
    """Runs of `repair` so far, by the number of interactions."""
    learns_many = True

    @property
    def gathered(self) -> int:
        return self.counters.gathered

    @property
    def gather_every(self) -> int:
        """How many interactions learned one by one a lesson adds to the sums: more than it brings, so that this
        ends."""
        return min(GATHERED_AT_ONCE, max(2, self.numbers.repair_every))

    @property
    def lag(self) -> int:
        """Lessons after which the second model is taught what came after it was begun."""
        return min(OVERDUE_LAG if self.counters.overdue else REPAIR_LAG, self.numbers.repair_every // 2)

    @property
    def repair_is_due(self) -> bool:
        counters = self.counters
        return counters.overdue or counters.gathering or counters.repairing is not None

    def room_for(self, count: int) -> bool:
        counters = self.counters
        return counters.gathered + counters.singly + count <= self.numbers.interactions

    def resumed(self, version: int, singly: int, gathered: int, due: bool = False) -> RidgeSchedule:
        return RidgeSchedule(self.numbers, Counters(version, singly, gathered, gathering=due, overdue=due))

    def is_over(self, program: ProgramId, step: int) -> bool:
        if program.name not in REPAIR_RUNS:
            return False
        under_way = self.counters.repairing is not None
        return step < (self.counters.repairs - under_way) * RUNS_OF_A_REPAIR

    def lesson(self, number: int, count: int, of_step: int | None = None) -> LessonPlan:
        step = number - self.counters.first
        if count > 1 or self.numbers.always_gathers:
            return self._batch(count, step)
        run = Run(LEARN_ONE, step) if of_step is None else Run(STEP_ONE, of_step)
        counters = self.counters._replace(singly=self.counters.singly + 1)
        if counters.repairing is not None:
            return self._caught_up(run, counters, counters.repairing, number)
        if counters.gathering or counters.singly >= self.numbers.repair_every:
            return self._with_gather(run, counters, number)
        return LessonPlan((run,), RidgeSchedule(self.numbers, counters, self.gathers), kept=True)

    def unlearning(self, number: int) -> LessonPlan:
        runs, gathers = self._gather_all(GATHERED_BEFORE_A_BATCH)
        before = self.counters
        left = before._replace(
            singly=0, gathered=max(0, before.gathered + before.singly - 1), gathering=False, repairing=None
        )
        begin, counters = _begun(self.numbers, left, number)
        solve: tuple[Action, ...] = (begin._replace(runs=()), *begin.runs, TakeSecond())  # the lesson waits for them
        actions: tuple[Action, ...] = (Run(ProgramId(UNLEARN), number - before.first), DropSecond(), *runs, *solve)
        after = RidgeSchedule(self.numbers, counters._replace(repairing=None, overdue=False), gathers)
        return LessonPlan(actions, after, forgotten=before.singly)

    def repair(self, number: int) -> LessonPlan:
        """Gather all, solve, put in place."""
        runs, gathers = self._gather_all(self.gather_every)
        counters = self.counters
        gathered = counters._replace(singly=0, gathered=counters.gathered + counters.singly, gathering=False)
        begin, counters = _begun(self.numbers, gathered, number)
        after = RidgeSchedule(self.numbers, counters._replace(repairing=None, overdue=False), gathers)
        return LessonPlan((DropSecond(), *runs, begin, TakeSecond()), after, forgotten=self.counters.singly)

    def counted(self) -> list[int]:
        counters, repairing = self.counters, self.counters.repairing
        under_way = (0, 0, 0) if repairing is None else (1, *repairing)
        gathers = (number for pair in sorted(self.gathers.items()) for number in pair)
        return [*map(int, counters[:4]), *under_way, *map(int, counters[5:]), *gathers]

    def recounted(self, counted: Sequence[int]) -> RidgeSchedule:
        first, singly, gathered, gathering, under_way, begun_at, caught_up, repairs, again, overdue, *pairs = counted
        repairing = Repairing(begun_at, caught_up) if under_way else None
        counters = Counters(first, singly, gathered, bool(gathering), repairing, repairs, again, bool(overdue))
        return RidgeSchedule(self.numbers, counters, dict(zip(pairs[::2], pairs[1::2], strict=True)))

    def behind(self, steps: Mapping[ProgramId, int], singly: int, gathered: int) -> RidgeSchedule:
        runs = max([step for program, step in steps.items() if program.name in REPAIR_RUNS], default=0)
        counters = Counters(singly=singly, gathered=gathered, repairs=-(-runs // RUNS_OF_A_REPAIR))
        return RidgeSchedule(self.numbers, counters)

    def _batch(self, count: int, step: int) -> LessonPlan:
        runs, gathers = self._gather_all(GATHERED_BEFORE_A_BATCH)
        before = self.counters
        counters = before._replace(
            singly=0, gathered=before.gathered + before.singly + count, gathering=False, repairing=None
        )
        solve: tuple[Action, ...] = (Run(ProgramId(SOLVE, count), step),)
        if before.overdue:
            begin, counters = _begun(self.numbers, counters, step)
            counters = counters._replace(repairing=None, overdue=False)
            solve = (begin._replace(runs=()), *begin.runs, TakeSecond())  # the batch waits for them
        actions = (Run(ProgramId(GATHER, count), step), DropSecond(), *runs, *solve)
        return LessonPlan(actions, RidgeSchedule(self.numbers, counters, gathers), forgotten=before.singly)

    def _gather_all(self, most: int) -> tuple[list[Run], dict[int, int]]:
        """Add all that were learned singly to the sums, `most` at a time; and how often that was done then."""
        runs, gathers, singly = [], dict(self.gathers), self.counters.singly
        for start in range(0, singly, most):
            runs.append(_gather(gathers, range(start, min(start + most, singly))))
        return runs, gathers

    def _with_gather(self, run: Run, counters: Counters, number: int) -> LessonPlan:
        """Step 1 of a repair; when all are gathered, its step 2 begins."""
        taken, gathers = min(self.gather_every, counters.singly), dict(self.gathers)
        gather = _gather(gathers, range(taken))
        left = counters.singly - taken
        counters = counters._replace(
            singly=left, gathered=counters.gathered + taken, gathering=left >= self.gather_every
        )
        actions: tuple[Action, ...] = (run, gather)
        if not counters.gathering:
            begin, counters = _begun(self.numbers, counters, number)
            actions = (*actions, begin)
        return LessonPlan(actions, RidgeSchedule(self.numbers, counters, gathers), kept=True, forgotten=taken)

    def _caught_up(self, run: Run, counters: Counters, repairing: Repairing, number: int) -> LessonPlan:
        """Steps 3 and 4 of a repair."""
        first, again = repairing.caught_up, counters.learned_again
        last = min(first + LEARNED_AGAIN, counters.singly) if number - repairing.begun_at >= self.lag else first
        program = ProgramId(LEARN_AGAIN)
        runs = [Run(program, again + n - first, range(n, n + 1), second=True) for n in range(first, last)]
        actions: tuple[Action, ...] = (run, *runs)
        still: Repairing | None = repairing._replace(caught_up=last)
        if runs and last == counters.singly:
            actions, still = (*actions, TakeSecond()), None
        overdue = counters.overdue and still is not None
        counters = counters._replace(repairing=still, learned_again=again + len(runs), overdue=overdue)
        return LessonPlan(actions, RidgeSchedule(self.numbers, counters, self.gathers), kept=True)


def repair_runs(plan: RepairPlan, repairs: int) -> tuple[Run, ...]:
    """The runs of a repair before which so many were begun."""
    first = repairs * RUNS_OF_A_REPAIR
    return tuple(Run(program, first + run, second=True) for run, program in enumerate(repair_programs(plan)))


def repair_programs(plan: RepairPlan) -> list[ProgramId]:
    """The runs of a repair, in order."""
    names = [INVERT_BOOSTED] * plan.boosted_runs + [INVERT] * plan.plain_runs + [INVERT_LAST]
    return [ProgramId(name) for name in names]


def _gather(gathers: dict[int, int], of: range) -> Run:
    """Add interactions that were learned singly to the sums; `gathers` counts it."""
    step = gathers.get(len(of), 0)
    gathers[len(of)] = step + 1
    return Run(ProgramId(REPAIR, len(of)), step, of)


def _begun(numbers: Numbers, counters: Counters, number: int) -> tuple[BeginSecond, Counters]:
    """Step 2 of a repair: M from a public multiple of the identity, w from zero."""
    plan = repair_plan(numbers, counters.gathered)
    begin = BeginSecond({"inverses": plan.start, "weights": 0.0}, repair_runs(plan, counters.repairs))
    return begin, counters._replace(repairing=Repairing(number), repairs=counters.repairs + 1)
