"""How a party learns: lessons in the rewarder's order, each a plan of programs, and the versions of the model.

What a lesson takes is decided by the policy's schedule (`bandit.schedule`); this runs it, over the arrays that the
programs read and write, whatever they are called. The updater owns the party's ledger of decisions, from which it takes
interactions. What follows from a lesson's end is returned as an effect: the party persists it, then tells others.

    receive(lesson)                    the rewarder has sent it
    while go_on():                     runs what can run, until a lesson has ended
        for effect in take_effects():  persist, then send
            ...

A lesson that names an unknown decision changes nothing, but has its number, so that all parties count alike. Only the
first program of a lesson can be refused: when it has ended, all parties have taken part.

An unlearning is a lesson, too, in the same order: it has no reward, and takes one decision out of the model that an
earlier lesson has learned, or drops one that has no reward. Which it is follows from the log, which is the same at all
parties; and a party that no longer has the interaction refuses it for all, as it would refuse a lesson.

A decision by `step` has a run that goes on after the decision: with the one-hot of the arm that the actor returns, and
then with the reward. It was begun with the model of a version v. If lesson v is the reward of this decision alone, the
run is the first of this lesson; if it is another lesson, the run is dropped at its end, and its decision is learned
later like any other. So all parties go on with the same runs, whatever came first at each of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from hiddenarm.bandit.batches import FULL
from hiddenarm.bandit.catalogue import STEP_ONE, VALUE, ProgramId
from hiddenarm.bandit.decisions import split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Interaction, Rewarded, joined
from hiddenarm.bandit.policy import LearnerProgram
from hiddenarm.bandit.schedule import Action, BeginSecond, DropSecond, LessonPlan, Run, TakeSecond
from hiddenarm.bandit.state import State, initial_state
from hiddenarm.errors import FrameError, InputError
from hiddenarm.mpc.evaluation import Evaluation
from hiddenarm.net.identity import Identity
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import Unlearning
from hiddenarm.roles.runs import MAX_WAITING, Outcome, RunKey, RunTable
from hiddenarm.roles.supply import Supply
from hiddenarm.roles.values import OwnWindows, WindowTotals

KEPT_VERSIONS = 64
"""How many past versions of the model a decision may still ask for."""
KEPT_MODELS = 4
"""How many versions may be asked for by `step`, which needs all of the model."""
MAX_STEPS = 8
"""Runs of `step` that may wait for what comes from outside."""


@dataclass(slots=True, repr=False)
class Lesson:
    """Rewards of some decisions: (name of the decision, masked reward); or none, and an unlearning. One that was
    `logged` ended before an interruption, learned or refused, and is only learned again."""

    number: int
    rewards: list[tuple[int, int]]
    logged: bool = False
    refused: str = ""
    unlearning: Unlearning | None = None


class Decisions(Protocol):
    """Where a party keeps decisions until their reward comes, by name."""

    def __contains__(self, name: object) -> bool:
        """Whether a decision waits for its reward, and only for that."""

    def __getitem__(self, name: int) -> Interaction:
        """What is kept of a decision, also of one whose lesson is learned again."""

    def __delitem__(self, name: int) -> None:
        """Its reward has come: it does not wait any longer."""

    def awaits_arm(self, name: int) -> bool:
        """Whether a decision waits for its reward, and the one-hot of its arm is still to be returned."""

    def why_not_unlearned(self, unlearning: Unlearning) -> str:
        """Why a decision cannot be unlearned, or dropped; empty if it can."""

    def learned_reward(self, unlearning: Unlearning) -> int | None:
        """The masked reward with which a decision was learned; None if it was not, in this lesson."""


@dataclass(slots=True, repr=False)
class LearnedState:
    """All that lessons have made: this party's shares of the model, how many interactions its sums hold, and the first
    lesson that they do not hold; and whether a repair was due and is not finished."""

    version: int
    arrays: State
    gathered: int = 0
    ungathered: int = 0
    due: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class LessonEnded:
    """A lesson was learned, or refused: to be persisted, with the checkpoint if one is due, and then told to the
    clients; with `tells_peers` at once to the peers, who do not know that it is refused. If it `refreshed` the model
    from noisy sums, there is a checkpoint, and no decision may use the model before that lasts."""

    lesson: Lesson
    refused: str | None
    checkpoint: LearnedState | None
    tells_peers: bool
    refreshed: bool = False
    values: WindowTotals | None = None
    """What a window that it has filled adds to: kept with the lesson, and then told to who receives it."""


@dataclass(slots=True, repr=False)
class _Learned:
    """Interactions that were learned singly and that the sums do not hold, and the number of their lesson."""

    lesson: int
    rewarded: Rewarded


@dataclass(slots=True, repr=False)
class _Current:
    """The lesson under way: its interactions, its plan, and what of the plan is still to be done."""

    lesson: Lesson
    rewarded: Rewarded
    plan: LessonPlan
    actions: deque[Action] = field(default_factory=deque)
    running: bool = False


@dataclass(slots=True, repr=False)
class _Step:
    """A run of `step` that has decided by this version of the model, the name of the decision, and whether the run was
    told its arm: an actor may return that again."""

    version: int
    name: int
    evaluation: Evaluation
    has_arm: bool = False


@dataclass(slots=True, repr=False)
class _Second:
    """A second model, with the runs by which it is solved beside the lessons; it is to take the place of the arrays
    `taken`."""

    state: State
    taken: tuple[str, ...]
    runs: deque[Run]
    running: bool = False

    @property
    def solved(self) -> bool:
        return not self.runs


class RowLimit:
    """How many rows of one key a refresh takes. A further row has its place in the lesson, but adds nothing. All count
    the same keys in the same lessons, so all leave out the same rows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: Counter[int] = Counter()

    def taken(self, kept: Sequence[Interaction]) -> list[Interaction]:
        """The interactions of a lesson as they are gathered."""
        rows, taken = Counter[int](), []
        for interaction in kept:
            rows[interaction.row_of] += 1
            fits = self._rows[interaction.row_of] + rows[interaction.row_of] <= self._most
            taken.append(interaction if fits else interaction.without_arm())
        return taken

    def count(self, kept: Sequence[Interaction]) -> None:
        """They were gathered."""
        self._rows.update(interaction.row_of for interaction in kept)

    def begin_anew(self) -> None:
        """A refresh has ended."""
        self._rows.clear()


class Updater:
    """A party's model, its versions, and the lessons that wait to be learned.

    `ledger` keeps the decisions; `still_deciding` tells whether one is not finished yet. The state is part of the
    effect after every `checkpoint_every` lessons, if that is not 0."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        supply: Supply,
        runs: RunTable,
        ledger: Decisions,
        still_deciding: Callable[[int], bool],
        checkpoint_every: int = 0,
    ) -> None:
        learner = federation.learner
        self.version = 0
        self.schedule = learner.schedule()
        """What the lessons to come take."""
        self.state: State = initial_state(learner.arrays, number)
        """This party's shares of the model, by name."""
        self._logged = 0
        self._number = number
        self._learner = learner
        self._decide_reads = learner.decide_reads
        self._supply = supply
        self._runs = runs
        self._ledger = ledger
        self._still_deciding = still_deciding
        self._checkpoint_every = checkpoint_every
        self._programs: dict[ProgramId, LearnerProgram] = {}
        self._step_reads = learner.program(STEP_ONE).reads if learner.has_step else ()
        self._versions: dict[int, list[Words]] = {}
        self._models: dict[int, list[Words]] = {}
        self._keep_version()
        self._lessons: deque[Lesson] = deque()
        self._current: _Current | None = None
        self._effects: list[LessonEnded] = []
        self._steps: dict[int, _Step] = {}
        """Runs of `step` that have decided, by their step, while the lesson that they may be of is still to come, or
        under way."""
        self._refused: dict[int, str] = {}
        self._singly: deque[_Learned] = deque()
        self._second: _Second | None = None
        privacy = federation.noisy
        self._row_limit = None if privacy is None else RowLimit(privacy.rows_per_key)
        self._windows = None if federation.evaluation is None else OwnWindows(federation, number)
        self._unkept: list[int] = []
        """Versions made by refreshes whose checkpoints do not last yet."""

    def resume(
        self,
        state: LearnedState,
        ungathered: Sequence[Lesson],
        again: Sequence[Lesson],
        since_refresh: Sequence[Lesson] = (),
    ) -> None:
        """Go on from a state: with lessons before it that the sums do not hold, and with lessons after it to learn
        again. Where sums are noisy, `since_refresh` are those before it, but after the last refresh: their rows count.

        Addresses are counted from the state's version on, as this is another epoch."""
        self.version = state.version
        self.state = State(state.arrays)
        self._versions, self._models = {}, {}
        self._keep_version()
        self._singly.extend(_Learned(lesson.number, self._rewarded(lesson)) for lesson in ungathered)
        self.schedule = self.schedule.resumed(state.version, len(self._singly), state.gathered, state.due)
        if self._row_limit is not None:
            for lesson in since_refresh:
                self._row_limit.count(self._rewarded(lesson).kept)
        self._lessons.extend(again)
        self._logged = state.version + len(again)

    def resume_windows(self, totals: WindowTotals | None, since: Sequence[Lesson]) -> None:
        """Go on with the windows of values: from what was kept, and from the lessons since, by which no value was
        told."""
        if self._windows is not None:
            rewards = [(lesson.number, lesson.rewards) for lesson in since]
            unlearned = {lesson.unlearning.name for lesson in since if lesson.unlearning is not None}
            self._windows.resume(totals, rewards, unlearned, self._ledger.__getitem__)

    @property
    def taught(self) -> int:
        """The version that holds all lessons received so far."""
        return self.version + (self._current is not None) + len(self._lessons)

    def may_decide(self, version: int) -> bool:
        """Whether decisions may use this version of the model: all checkpoints of refreshes that made it last here. As
        every party takes part in a decision, they last at all parties before anything of it is known."""
        return not self._unkept or version < self._unkept[0]

    def refresh_kept(self, version: int) -> None:
        """The checkpoint of a refresh lasts."""
        self._unkept.remove(version)

    def brought_at(self, version: int) -> list[Words]:
        """What of this version of the model a party brings to a decision."""
        if version not in self._versions:
            why = "is no longer kept" if version < self.version else "was not taught"
            raise InputError(f"model version {version} {why}; the newest is {self.version}")
        return self._versions[version]

    def brought_to_step(self, version: int) -> list[Words] | None:
        """What of this version a party brings to a `step`; None if it is not there, or too many steps are under way."""
        return self._models.get(version) if len(self._steps) < MAX_STEPS else None

    def _keep_version(self) -> None:
        """Keep what decisions read of the model as it is now."""
        self._versions[self.version] = [self.state[name] for name in self._decide_reads]
        self._versions.pop(self.version - KEPT_VERSIONS, None)
        if self._step_reads:
            self._models[self.version] = [self.state[name] for name in self._step_reads]
            self._models.pop(self.version - KEPT_MODELS, None)

    def receive(self, lesson: Lesson) -> None:
        """Take a lesson from the rewarder."""
        if lesson.unlearning is not None and self.schedule.no_unlearning:
            raise FrameError("the rewarder sent an unlearning where there is none")
        if len(lesson.rewards) > 1 and not self.schedule.learns_many:
            raise FrameError(f"the rewarder sent {len(lesson.rewards)} rewards where one is learned at a time")
        if lesson.number != self.taught:
            raise FrameError(f"the rewarder sent lesson {lesson.number} where {self.taught} was due")
        if self.taught - max(self.version, self._logged) >= MAX_WAITING:
            raise FrameError(f"the rewarder has more than {MAX_WAITING} lessons waiting")
        self._lessons.append(lesson)

    @property
    def runs_beside(self) -> int:
        """Runs that nobody waits for: of a decision whose reward is still to come, and may never come; of a repair."""
        awaited = (
            self._current is not None and self._current.running and self._step_of(self._current.lesson) is not None
        )
        return len(self._steps) - awaited + (self._second is not None and self._second.running)

    # Runs of `step`

    def has_decided(self, step: int) -> bool:
        """Whether a `step` under way has decided."""
        return step in self._steps

    def step_decided(self, version: int, name: int, evaluation: Evaluation) -> bool:
        """A `step` has decided, by a version of the model; False if the lesson that follows this version was begun
        without it, and the run is of no use any more."""
        if version < self.version or self._current is not None:
            return False
        self._steps[_step_number(name)] = _Step(version, name, evaluation)
        return True

    def arm_returned(self, step: int, masked: Words) -> None:
        """The actor has returned the one-hot of a decision by `step`: its run, if it is under way, goes on."""
        run = self._steps.get(step)
        if run is not None and not run.has_arm:
            run.has_arm = True
            run.evaluation.tell(masked)
            self._runs.resume((STEP_ONE, step))

    def step_ended(self, step: int) -> None:
        """The first run of the current lesson has ended."""
        evaluation = self._steps.pop(step).evaluation
        self._run_ended(self._program(Run(STEP_ONE, step)), self.state, evaluation)

    def _step_of(self, lesson: Lesson) -> int | None:
        """The run of `step` that is the first of a lesson, if there is one."""
        if not self._steps or len(lesson.rewards) != 1:
            return None
        name = lesson.rewards[0][0]
        run = self._steps.get(_step_number(name))
        return None if run is None or (run.name, run.version) != (name, lesson.number) else _step_number(name)

    def _drop_steps(self) -> None:
        """A lesson has ended: runs that were not of this lesson are not of any."""
        for step in self._steps:
            self._runs.drop((STEP_ONE, step))
        self._steps.clear()

    def is_over(self, key: RunKey) -> bool:
        """Whether a repair is over, and what comes for it is of no use."""
        return self.schedule.is_over(*key)

    def refused_by_peer(self, identity: Identity, number: int, why: str) -> None:
        """A peer does not know a decision of this lesson: nobody learns it. A peer can be ahead by what the rewarder
        has sent and we have not ended, which is no more than MAX_WAITING lessons."""
        current = self._current
        if current is not None and current.lesson.number == number:
            self._end(current.lesson, refused=why)
        elif number >= self.version:
            if number not in self._refused and len(self._refused) >= MAX_WAITING:
                raise FrameError(f"{identity} is more than {MAX_WAITING} refusals ahead")
            self._refused[number] = why

    def go_on(self) -> bool:
        """Begin whatever lesson and program can begin now; whether a lesson has ended, and effects are to be taken."""
        if self._second is not None:
            self._go_on_with_second()
        while not self._effects:
            if self._current is None:
                if not self._lessons or self._comes_early(self._lessons[0]):
                    break
                self._begin(self._lessons.popleft())
            elif not self._next_action():
                break
        return bool(self._effects)

    def _comes_early(self, lesson: Lesson) -> bool:
        """Whether a decision is not finished here: the reward came before the end of the run, or before its arm."""
        if lesson.logged:
            return False
        names = [name for name, _ in lesson.rewards]
        if len(self._runs) and any(map(self._still_deciding, names)):
            return True
        return any(map(self._ledger.awaits_arm, names))

    def take_effects(self) -> list[LessonEnded]:
        """What is to be persisted and then told, in order; it is given once."""
        effects, self._effects = self._effects, []
        return effects

    # Lessons

    def _begin(self, lesson: Lesson) -> None:
        numbers = [number for number, _ in lesson.rewards]
        if lesson.logged:
            self._begin_again(lesson)
            return
        if lesson.unlearning is not None:
            self._begin_unlearning(lesson, lesson.unlearning)
            return
        unknown = [number for number in numbers if number not in self._ledger]
        if lesson.number in self._refused:
            self._end(lesson, refused=self._refused.pop(lesson.number))
        elif not self.schedule.room_for(len(numbers)):
            self._end(lesson, refused=FULL)
        elif unknown or len(set(numbers)) != len(numbers):
            what = f"decision {split_name(unknown[0])[1]}" if unknown else "a decision of this lesson"
            why = f"{what} was never made, was rewarded before, refused or forgotten"
            self._end(lesson, refused=why, tells_peers=True)
        else:
            self._set_current(lesson)
            for number in numbers:
                del self._ledger[number]

    def _begin_again(self, lesson: Lesson) -> None:
        """It was begun before, so nothing about it is in doubt."""
        if lesson.refused:
            self._end(lesson, refused=lesson.refused)
        elif lesson.unlearning is not None and lesson.unlearning.drops:
            self._end(lesson)
        else:
            self._set_current(lesson)

    def _begin_unlearning(self, lesson: Lesson, unlearning: Unlearning) -> None:
        """To drop a decision takes no run, and nothing that a party might not have."""
        why = self._ledger.why_not_unlearned(unlearning)
        if lesson.number in self._refused:
            self._end(lesson, refused=self._refused.pop(lesson.number))
        elif why:
            self._end(lesson, refused=why, tells_peers=True)
        elif unlearning.drops:
            del self._ledger[unlearning.name]
            self._end(lesson)
        else:
            self._set_current(lesson)

    def _set_current(self, lesson: Lesson) -> None:
        plan, rewarded = self._plan(lesson), self._rewarded(lesson)
        if self._windows is not None and not lesson.logged and lesson.unlearning is None:
            plan = self._windows.planned(plan, lesson.rewards, rewarded.kept)
        if self._row_limit is not None:
            rewarded = Rewarded(self._row_limit.taken(rewarded.kept), rewarded.masked)
        self._current = _Current(lesson, rewarded, plan, deque(plan.actions))

    def _plan(self, lesson: Lesson) -> LessonPlan:
        if lesson.unlearning is not None:
            return self.schedule.unlearning(lesson.number)
        return self.schedule.lesson(lesson.number, len(lesson.rewards), self._step_of(lesson))

    def _give_up(self, lesson: Lesson) -> None:
        """Spend the randomness of a lesson that nobody learns, and forget what came for it."""
        if lesson.unlearning is not None and lesson.unlearning.drops:
            return
        first = self._plan(lesson).first
        if first.program != STEP_ONE:  # that is spent
            self._supply.begin(first.program, first.step)
        self._runs.drop((first.program, first.step))

    def _end(
        self,
        lesson: Lesson,
        refused: str | None = None,
        tells_peers: bool = False,
        refreshed: bool = False,
        values: WindowTotals | None = None,
    ) -> None:
        if refused is not None:
            self._give_up(lesson)
        if self._steps:
            self._drop_steps()
        self._current = None
        self.version += 1
        self._keep_version()
        due = refreshed or (self._checkpoint_every and self.version % self._checkpoint_every == 0)
        checkpoint = self.learned() if due else None
        self._effects.append(LessonEnded(lesson, refused, checkpoint, tells_peers, refreshed, values))

    def learned(self) -> LearnedState:
        """What was learned so far; between lessons."""
        ungathered = self._singly[0].lesson if self._singly else self.version
        schedule = self.schedule
        return LearnedState(self.version, State(self.state), schedule.gathered, ungathered, schedule.repair_is_due)

    # What a plan takes

    def _next_action(self) -> bool:
        """Do the current lesson's next action if that is possible now, or go on with the run that has decided; whether
        anything changed."""
        current = self._current
        assert current is not None
        if current.running:
            return False
        action = current.actions[0]
        if self._awaits_second(action):
            return False
        if not isinstance(action, Run):
            self._end_if_done(current)
            return True
        if action.program == STEP_ONE:
            current.running = True
            self._steps[action.step].evaluation.tell(current.rewarded.masked)
            self._runs.resume((action.program, action.step))
            return True
        if not self._supply.ready(action.program, action.step):
            return False
        current.running = True
        self._launch(action, current.rewarded)
        return True

    def _launch(self, run: Run, rewarded: Rewarded) -> None:
        """Begin to run a program, the next action of the current lesson."""
        program = self._program(run)
        if run.of is not None:
            rewarded = joined([one.rewarded for one in islice(self._singly, run.of.start, run.of.stop)])
        state = self._second.state if run.second and self._second is not None else self.state
        evaluation = self._evaluate(run, program.given(state, rewarded, self._number))
        outcome = Outcome(lambda: self._run_ended(program, state, evaluation))
        self._runs.launch((run.program, run.step), evaluation, outcome)

    def _program(self, run: Run) -> LearnerProgram:
        if run.program.name == VALUE and self._windows is not None:
            return self._windows.run_by
        if run.program not in self._programs:
            self._programs[run.program] = self._learner.program(run.program)
        return self._programs[run.program]

    def _evaluate(self, run: Run, given: list[Words]) -> Evaluation:
        self._supply.begin(run.program, run.step)
        return self._supply.evaluate(run.program, run.step, given)

    def _run_ended(self, program: LearnerProgram, state: State, evaluation: Evaluation) -> None:
        current = self._current
        assert current is not None
        current.running = False
        program.write(state, evaluation.result)
        current.actions.popleft()
        if current.plan.kept and len(current.actions) + 1 == len(current.plan.actions):
            self._singly.append(_Learned(current.lesson.number, current.rewarded))
        self._end_if_done(current)

    def _end_if_done(self, current: _Current) -> None:
        """All that follows without a run is done at once; when nothing is left, the lesson has ended."""
        while current.actions and not isinstance(current.actions[0], Run):
            if self._awaits_second(current.actions[0]):
                return
            self._do(current.actions.popleft())
        if not current.actions:
            for _ in range(current.plan.forgotten):
                self._singly.popleft()
            self.schedule = current.plan.after
            self._end_learned(current)

    def _end_learned(self, current: _Current) -> None:
        refreshed = current.plan.refreshes
        if self._row_limit is not None:
            self._row_limit.count(current.rewarded.kept)
            if refreshed:
                self._row_limit.begin_anew()
        if refreshed:
            self._unkept.append(self.version + 1)
        values = None
        if self._windows is not None and not current.lesson.logged:  # of one that was, all is known
            if current.lesson.unlearning is None:
                values = self._windows.lesson_learned(current.lesson.number)
            else:
                self._windows.forget(current.lesson.unlearning.name)
        self._end(current.lesson, refreshed=refreshed, values=values)

    # The second model

    def _awaits_second(self, action: Action) -> bool:
        """Whether an action is for a second model that is not solved yet."""
        concerned = isinstance(action, TakeSecond) or (isinstance(action, Run) and action.second)
        return concerned and self._second is not None and not self._second.solved

    def _do(self, action: Action) -> None:
        if isinstance(action, BeginSecond):
            second = action.of(self.state, self._learner.arrays, self._number)
            self._second = _Second(second, tuple(action.starts), deque(action.runs))
        elif isinstance(action, TakeSecond):
            assert self._second is not None
            self.state.update((name, self._second.state[name]) for name in self._second.taken)
            self._second = None
        elif isinstance(action, DropSecond) and self._second is not None:
            for run in self._second.runs:
                self._runs.drop((run.program, run.step))
            self._second = None

    def _go_on_with_second(self) -> None:
        """Begin the next run by which the second model is solved, if its material is here."""
        second = self._second
        if second is None or second.running or second.solved:
            return
        run = second.runs[0]
        if not self._supply.ready(run.program, run.step):
            return
        second.running = True
        program = self._program(run)
        evaluation = self._evaluate(run, program.given(second.state, None, self._number))

        def finish() -> None:
            second.running = False
            second.runs.popleft()
            program.write(second.state, evaluation.result)
            self._go_on_with_second()

        self._runs.launch((run.program, run.step), evaluation, Outcome(finish), patient=True)

    def _rewarded(self, lesson: Lesson) -> Rewarded:
        """The interactions that a lesson learns, or the one that it unlearns."""
        unlearning = lesson.unlearning
        if unlearning is not None:
            masked = self._ledger.learned_reward(unlearning)
            return Rewarded([self._ledger[unlearning.name]], np.array([[masked]], np.uint64))
        kept = [self._ledger[name] for name, _ in lesson.rewards]
        return Rewarded(kept, np.array([[masked for _, masked in lesson.rewards]], np.uint64))


def _step_number(decision: int) -> int:
    """The step at which a decision was made."""
    return split_number(split_name(decision)[1])[1]
