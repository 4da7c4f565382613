"""How a party learns: lessons in the rewarder's order, each a chain of programs, and the versions of the model.

    one reward     learn, or learn ahead (see `foresight`); then upkeep
    many rewards   gather; repair (gather) what was learned singly before; solve

Upkeep spreads the repair of the model over lessons, so that no decision waits for all of it:

    1. after `repair_every` lessons, each lesson adds some of their interactions to the sums (repair)
    2. when the sums hold all of them, a second model is solved from the sums alone, in runs beside everything else
       (`repair_programs`)
    3. from the REPAIR_LAGth lesson after that on, each lesson teaches the second model LEARNED_AGAIN of the lessons
       that the sums did not hold (learn again); if it is not solved by then, the lesson waits for it
    4. when it has caught up, it takes the place of the model

All of this follows from numbers of lessons alone, so all parties do it alike. A batch, or the end of an epoch, ends a
repair under way. After the end of an epoch it is *overdue*: it is begun at once in the next one, takes fewer lessons,
and a batch that comes before it is solved by a repair, not from the model as it is.

In a suite that cannot solve (the paper's) one reward is one run of learn and nothing else, and many are refused.

A lesson that names an unknown decision changes nothing, but has its number, so that all parties count alike. Only the
first program of a lesson can be refused: when it has ended, all parties have taken part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from typing import Protocol

import numpy as np

from hiddenarm.bandit.batches import (
    FULL,
    GATHERED_BEFORE_A_BATCH,
    Sums,
    gathered_at_once,
    initial_sums,
    public_diagonal,
    zero_weights,
)
from hiddenarm.bandit.catalogue import (
    GATHER,
    LEARN_AGAIN,
    LEARN_ONE,
    LEARN_ONE_AHEAD,
    REPAIR,
    REPAIR_RUNS,
    SOLVE,
    ProgramId,
    repair_programs,
    single_lessons,
)
from hiddenarm.bandit.decisions import split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.planning import repair_plan
from hiddenarm.bandit.programs import Interaction, Model, own_words, reward_share, stacked
from hiddenarm.bandit.suites import suite_of
from hiddenarm.errors import FrameError, InputError
from hiddenarm.mpc.evaluation import Evaluation
from hiddenarm.net.identity import Identity
from hiddenarm.ring.words import Words
from hiddenarm.roles.foresight import Foresight
from hiddenarm.roles.runs import MAX_WAITING, Outcome, RunKey, RunTable
from hiddenarm.roles.supply import Supply

KEPT_VERSIONS = 64
"""How many past versions of the model a decision may still ask for."""
REPAIR_LAG = 256
"""Lessons that a repair may take before one waits for it; fewer where repairs are more frequent than that."""
LEARNED_AGAIN = 4
"""Lessons that one lesson teaches the repaired model, until that has caught up."""
OVERDUE_LAG = 64
"""As REPAIR_LAG, of a repair that is overdue. It is in place before the next checkpoint is written, however few lessons
an epoch has: those since the last one are learned again in each."""
_RUNS_OF_A_REPAIR = 64
"""More than any repair has; its runs have addresses from a multiple of this on."""


@dataclass(slots=True, repr=False)
class Lesson:
    """Rewards of some decisions: (name of the decision, masked reward). One that was `logged` ended before an
    interruption, learned or refused, and is only learned again."""

    number: int
    rewards: list[tuple[int, int]]
    logged: bool = False
    refused: str = ""


class Decisions(Protocol):
    """Where a party keeps decisions until their reward comes, by name."""

    def __contains__(self, name: object) -> bool:
        """Whether a decision waits for its reward."""

    def __getitem__(self, name: int) -> Interaction:
        """What is kept of a decision, also of one whose lesson is learned again."""

    def __delitem__(self, name: int) -> None:
        """Its reward has come: it does not wait any longer."""


@dataclass(slots=True, repr=False)
class SchoolState:
    """All that lessons have made: the model and the sums, how many interactions the sums hold, the first lesson that
    they do not hold, and whether a repair was due and is not finished."""

    version: int
    model: Model
    sums: Sums
    gathered: int = 0
    ungathered: int = 0
    due: bool = False


@dataclass(slots=True, repr=False)
class _Taken:
    """Interactions of a lesson, or of several, with their masked rewards."""

    lesson: int
    kept: list[Interaction]
    masked: list[int]


@dataclass(slots=True, repr=False)
class _Stage:
    """One program of the lesson under way, with the words that it awaits, if it does. It begins when it is `ready`."""

    key: RunKey
    given: Callable[[], list[Words]]
    take: Callable[[object], None]
    awaited: Words | None = None
    ready: Callable[[], bool] = lambda: True


@dataclass(slots=True, repr=False)
class _Current:
    """The lesson under way: its interactions, and the programs still to be run."""

    lesson: Lesson
    taken: _Taken
    stages: deque[_Stage] = field(default_factory=deque)
    running: bool = False


@dataclass(slots=True, repr=False)
class _Repair:
    """A second model that is solved from the sums as they were when it was begun, and then taught what came after."""

    begun_at: int
    sums: Sums
    model: Model
    runs: deque[RunKey]
    running: bool = False
    caught_up: int = 0
    """How many of the interactions that are not gathered it has learned."""

    @property
    def solved(self) -> bool:
        return not self.runs


class School:
    """A party's model, its versions, and the lessons that wait to be learned."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        supply: Supply,
        runs: RunTable,
        ended: Callable[[Lesson, str | None, bool], None],
    ) -> None:
        self.version = 0
        self._first = 0
        self._logged = 0
        self._federation = federation
        self._number = number
        self._supply = supply
        self._runs = runs
        self._ended = ended
        self._suite = suite_of(federation)
        self._model: Model = self._suite.initial_model(number, 1)
        self._sums: Sums = initial_sums(federation, number)
        self._versions: dict[int, list[Words]] = {0: self._suite.brought(self._model)}
        self._lessons: deque[Lesson] = deque()
        self._current: _Current | None = None
        self._foresight = Foresight(enabled=LEARN_ONE_AHEAD in single_lessons(federation))
        self._begun_ahead: Evaluation | None = None
        self._ahead_until = 0
        self._refused: dict[int, str] = {}
        self._singly: deque[_Taken] = deque()
        self._gathered = 0
        self._gathering = False
        self._overdue = False
        self._repair: _Repair | None = None
        self._repairs = 0
        self._gather_every = gathered_at_once(federation)
        self._repair_lag = min(REPAIR_LAG, federation.repair_every // 2)
        self._repair_gathers: dict[int, int] = {}
        self._learned_again = 0

    @property
    def state(self) -> SchoolState:
        """What was learned so far; between lessons."""
        ungathered = self._singly[0].lesson if self._singly else self.version
        due = self._overdue or self._gathering or self._repair is not None
        return SchoolState(self.version, self._model, self._sums, self._gathered, ungathered, due)

    def resume(
        self, state: SchoolState, ungathered: Sequence[Lesson], again: Sequence[Lesson], kept: Decisions
    ) -> None:
        """Go on from a state: with lessons before it that the sums do not hold, and with lessons after it to learn
        again.

        Addresses are counted from the state's version on, as this is another epoch."""
        self.version = self._first = state.version
        self._model, self._sums = state.model, state.sums
        self._versions = {self.version: self._suite.brought(self._model)}
        self._gathered = state.gathered
        self._overdue = self._gathering = state.due and self._suite.solves
        self._singly.extend(_taken(lesson, kept) for lesson in ungathered)
        self._lessons.extend(again)
        self._logged = state.version + len(again)

    @property
    def taught(self) -> int:
        """The version that holds all lessons received so far."""
        return self.version + (self._current is not None) + len(self._lessons)

    def brought_at(self, version: int) -> list[Words]:
        """What of this version of the model a party brings to a decision."""
        if version not in self._versions:
            why = "is no longer kept" if version < self.version else "was not taught"
            raise InputError(f"model version {version} {why}; the newest is {self.version}")
        return self._versions[version]

    def enrol(self, lesson: Lesson) -> None:
        """Take a lesson from the rewarder."""
        if len(lesson.rewards) > 1 and not self._suite.solves:
            raise FrameError(f"the rewarder sent {len(lesson.rewards)} rewards where one is learned at a time")
        if lesson.number != self.taught:
            raise FrameError(f"the rewarder sent lesson {lesson.number} where {self.taught} was due")
        if self.taught - max(self.version, self._logged) >= MAX_WAITING:
            raise FrameError(f"the rewarder has more than {MAX_WAITING} lessons waiting")
        self._lessons.append(lesson)

    @property
    def runs_beside(self) -> int:
        """Runs that nobody waits for: of a lesson whose reward is still to come, and may never come; of a repair."""
        ahead = self._begun_ahead is not None and self._current is None
        return ahead + (self._repair is not None and self._repair.running)

    def note_request(self, version: int, decision: int | None) -> None:
        """The actor has asked for decisions, or for a single one of this name, by a version of the model."""
        self._foresight.note_request(version, decision)
        if version < self.version:  # the lesson that follows it has ended, and was not about this decision
            self._settle_ahead(version)

    def note_decision(self, version: int, decision: int) -> None:
        """A single decision was made, and waits for its reward."""
        self._foresight.note_decision(version, decision)

    def is_over(self, key: RunKey) -> bool:
        """Whether a lesson that could have been run ahead is over, or a repair, and what comes for it is of no use."""
        program, step = key
        if program.name in REPAIR_RUNS:
            return step < self._repairs * _RUNS_OF_A_REPAIR - (_RUNS_OF_A_REPAIR if self._repair is not None else 0)
        return program == LEARN_ONE_AHEAD and step < self._ahead_until

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

    def go_on(self, interactions: Decisions, still_deciding: Callable[[int], bool]) -> None:
        """Begin whatever lesson and program can begin now."""
        self._go_on_with_repair()
        while True:
            if self._current is None:
                # A reward may come while its decision is still being finished: the slot is announced before the end.
                if not self._lessons or any(still_deciding(name) for name, _ in self._lessons[0].rewards):
                    return
                self._begin(self._lessons.popleft(), interactions)
            elif not self._next_stage():
                return

    def look_ahead(self, interactions: Decisions) -> None:
        """Nothing else can be done: begin the lesson that is likely to be next, as far as it goes without its
        reward."""
        if self._current is not None or self._lessons or self._begun_ahead is not None or self.version in self._refused:
            return
        decision = self._foresight.promising_decision(self.version)
        if decision is None or decision not in interactions:
            return
        key = _key_ahead(decision)
        if self._supply.ready(*key):
            self._begun_ahead = self._launch(key, self._for_learn_ahead(interactions[decision]))

    def _begin(self, lesson: Lesson, interactions: Decisions) -> None:
        numbers = [number for number, _ in lesson.rewards]
        if lesson.logged:
            self._begin_again(lesson, interactions)
            return
        unknown = [number for number in numbers if number not in interactions]
        if lesson.number in self._refused:
            self._end(lesson, refused=self._refused.pop(lesson.number))
        elif self._suite.solves and not self._room_for(len(numbers)):
            self._end(lesson, refused=FULL)
        elif unknown or len(set(numbers)) != len(numbers):
            what = f"decision {split_name(unknown[0])[1]}" if unknown else "a decision of this lesson"
            why = f"{what} was never made, was rewarded before, refused or forgotten"
            self._end(lesson, refused=why, tell_peers=True)
        else:
            self._set_current(lesson, interactions)
            for number in numbers:
                del interactions[number]

    def _begin_again(self, lesson: Lesson, interactions: Decisions) -> None:
        """It was begun before, so nothing about it is in doubt."""
        if lesson.refused:
            self._end(lesson, refused=lesson.refused)
        else:
            self._set_current(lesson, interactions)

    def _set_current(self, lesson: Lesson, interactions: Decisions) -> None:
        taken = _taken(lesson, interactions)
        self._current = _Current(lesson, taken)
        self._current.stages.extend(self._stages(lesson, taken))

    def _rewards(self, taken: _Taken) -> Words:
        """This party's shares of the rewards."""
        masks = np.array([interaction.reward_mask for interaction in taken.kept]).T
        return reward_share(np.array([taken.masked], np.uint64), masks, adds_constants=self._number == 0)

    def _give_up(self, lesson: Lesson) -> None:
        """Spend the randomness of a lesson that nobody learns, and forget what came for it."""
        key = self._first_key(lesson)
        self._supply.begin(*key)
        self._runs.drop(key)

    def _step_of(self, lesson: Lesson) -> int:
        """Where the randomness of a lesson lies in this epoch, unless it is run ahead."""
        return lesson.number - self._first

    def _is_ahead(self, lesson: Lesson) -> bool:
        """Whether a lesson is run ahead (`foresight`)."""
        return [name for name, _ in lesson.rewards] == [self._foresight.fresh_decision(lesson.number)]

    def _first_key(self, lesson: Lesson) -> RunKey:
        """The first program of a lesson, and where its randomness lies."""
        if self._is_ahead(lesson):
            return _key_ahead(lesson.rewards[0][0])
        count = len(lesson.rewards)
        return LEARN_ONE if count == 1 else ProgramId(GATHER, count), self._step_of(lesson)

    # The programs of a lesson

    def _stages(self, lesson: Lesson, taken: _Taken) -> list[_Stage]:
        key = self._first_key(lesson)
        if key[0] == LEARN_ONE_AHEAD:
            given = partial(self._for_learn_ahead, *taken.kept)
            return [_Stage(key, given, self._learned_one, awaited=np.array(taken.masked, np.uint64))]
        if key[0] == LEARN_ONE:
            return [_Stage(key, partial(self._for_learn, taken), self._learned_one)]
        return [_Stage(key, partial(self._for_gather, taken), self._gathered_many)]

    def _gather_stage(self, most: int) -> _Stage:
        """Add the first interactions that were learned singly to the sums."""
        chunk = _joined([self._singly.popleft() for _ in range(min(most, len(self._singly)))])
        self._gathered += len(chunk.kept)
        program = ProgramId(REPAIR, len(chunk.kept))
        step = self._repair_gathers.get(program.count, 0)
        self._repair_gathers[program.count] = step + 1
        return _Stage((program, step), partial(self._for_gather, chunk), self._set_sums)

    def _room_for(self, count: int) -> bool:
        """Whether the model can take so many more interactions. All parties count alike."""
        return self._gathered + len(self._singly) + count <= self._federation.max_interactions

    def _solve_stage(self, new: int, step: int) -> _Stage:
        program = ProgramId(SOLVE, new)
        return _Stage((program, step), lambda: [*_words(self._model), *self._sum_words()], self._set_model)

    # The repair of the model

    def _upkeep_stages(self) -> list[_Stage]:
        """What is done for the repair after a single lesson."""
        assert self._current is not None
        repair = self._repair
        if repair is not None:
            lag = min(self._repair_lag, OVERDUE_LAG) if self._overdue else self._repair_lag
            due = self._current.lesson.number - repair.begun_at >= lag
            first = repair.caught_up
            behind = islice(self._singly, first, first + LEARNED_AGAIN) if due else ()
            return [self._learn_again_stage(repair, taken) for taken in behind]
        if len(self._singly) >= self._federation.repair_every:
            self._gathering = True
        if not self._gathering:
            return []
        stage = self._gather_stage(self._gather_every)
        if len(self._singly) < self._gather_every:
            self._gathering = False
            stage.take = self._set_sums_and_repair
        return [stage]

    def _set_sums_and_repair(self, sums: object) -> None:
        self._set_sums(sums)
        self._begin_repair()

    def _begin_repair(self) -> _Repair:
        """Of what the sums hold."""
        assert self._current is not None
        plan = repair_plan(self._federation.numbers, self._gathered)
        inverses = public_diagonal(self._federation, self._number, plan.start)
        first = self._repairs * _RUNS_OF_A_REPAIR
        runs = deque((program, first + run) for run, program in enumerate(repair_programs(plan)))
        model = Model(inverses, zero_weights(self._federation, self._number))
        self._repair = _Repair(self._current.lesson.number, self._sums, model, runs)
        self._repairs += 1
        return self._repair

    def _go_on_with_repair(self) -> None:
        """Begin the next run of the repair, if its material is here."""
        repair = self._repair
        if repair is None or repair.running or repair.solved or not self._supply.ready(*repair.runs[0]):
            return
        key = repair.runs[0]
        repair.running = True
        self._supply.begin(*key)
        evaluation = self._supply.evaluate(*key, [*_words(repair.model), *_words(repair.sums)])

        def finish() -> None:
            repair.running = False
            repair.runs.popleft()
            repair.model = _as_model(evaluation.result)
            self._go_on_with_repair()

        self._runs.launch(key, evaluation, Outcome(finish), patient=True)

    def _learn_again_stage(self, repair: _Repair, taken: _Taken) -> _Stage:
        step, self._learned_again = self._learned_again, self._learned_again + 1

        def take(model: object) -> None:
            repair.model = _as_model(model)
            repair.caught_up += 1
            if repair.caught_up == len(self._singly):
                self._put_in_place(repair)

        given = partial(self._for_learn, taken, repair)
        return _Stage((ProgramId(LEARN_AGAIN), step), given, take, ready=lambda: repair.solved)

    def _repair_stages(self) -> list[_Stage]:
        """A repair as programs of a batch, which waits for them: its sums hold everything."""
        repair = self._begin_repair()
        keys, repair.runs = repair.runs, deque()  # none is run beside the batch

        def take(model: object, last: bool) -> None:
            repair.model = _as_model(model)
            if last:
                self._put_in_place(repair)

        def given() -> list[Words]:
            return [*_words(repair.model), *self._sum_words()]

        return [_Stage(key, given, partial(take, last=key == keys[-1])) for key in keys]

    def _put_in_place(self, repair: _Repair) -> None:
        self._model, self._repair, self._overdue = repair.model, None, False

    def _end_repair(self) -> None:
        """Give up a repair under way: a batch solves the model, too."""
        self._gathering = False
        if self._repair is not None:
            for key in self._repair.runs:
                self._runs.drop(key)
            self._repair = None

    # What this party brings into each program

    def _for_learn(self, taken: _Taken, repair: _Repair | None = None) -> list[Words]:
        (interaction,) = taken.kept
        model = self._model if repair is None else repair.model
        return [*_words(model), interaction.features, interaction.arm, self._rewards(taken)]

    def _for_learn_ahead(self, interaction: Interaction) -> list[Words]:
        return [*_words(self._model), interaction.features, interaction.arm, interaction.reward_mask]

    def _for_gather(self, taken: _Taken) -> list[Words]:
        features, arms, _ = stacked(taken.kept)
        return [*self._sum_words(), features, arms, self._rewards(taken)]

    def _sum_words(self) -> list[Words]:
        return _words(self._sums)

    # Running them

    def _next_stage(self) -> bool:
        """Begin the current lesson's next program if its material is here, or go on with the one that was begun ahead;
        whether anything changed."""
        current = self._current
        assert current is not None
        if current.running:
            return False
        stage = current.stages[0]
        if stage.awaited is not None and self._begun_ahead is not None:
            current.running = True
            self._begun_ahead.tell(stage.awaited)
            self._runs.resume(stage.key)
            return True
        if not stage.ready() or not self._supply.ready(*stage.key):
            return False
        current.running = True
        self._launch(stage.key, stage.given(), stage.awaited)
        return True

    def _launch(self, key: RunKey, given: list[Words], awaited: Words | None = None) -> Evaluation:
        """Begin to run a program. When it ends it is the first stage of the current lesson, also if it was begun
        ahead."""
        self._supply.begin(*key)
        evaluation = self._supply.evaluate(*key, given)
        if awaited is not None:
            evaluation.tell(awaited)
        self._runs.launch(key, evaluation, Outcome(lambda: self._stage_ended(evaluation)))
        return evaluation

    def _stage_ended(self, evaluation: Evaluation) -> None:
        current = self._current
        assert current is not None
        current.running = False
        current.stages.popleft().take(evaluation.result)
        if not current.stages:
            self._end(current.lesson)

    def _learned_one(self, model: object) -> None:
        self._set_model(model)
        assert self._current is not None
        if self._suite.solves:
            self._singly.append(self._current.taken)
            self._current.stages.extend(self._upkeep_stages())

    def _gathered_many(self, sums: object) -> None:
        self._set_sums(sums)
        assert self._current is not None
        lesson = self._current.lesson
        self._gathered += len(lesson.rewards)
        self._end_repair()
        while self._singly:
            self._current.stages.append(self._gather_stage(GATHERED_BEFORE_A_BATCH))
        if self._overdue:
            self._current.stages.extend(self._repair_stages())
        else:
            self._current.stages.append(self._solve_stage(len(lesson.rewards), self._step_of(lesson)))

    def _set_model(self, model: object) -> None:
        self._model = _as_model(model)

    def _set_sums(self, sums: object) -> None:
        assert isinstance(sums, Sums)
        self._sums = sums

    def _end(self, lesson: Lesson, refused: str | None = None, tell_peers: bool = False) -> None:
        if refused is not None:
            self._give_up(lesson)
        self._foresight.hopeful = refused is None and self._is_ahead(lesson)
        self._settle_ahead(self.version)
        self._begun_ahead = None
        self._current = None
        self.version += 1
        self._versions[self.version] = self._suite.brought(self._model)
        self._versions.pop(self.version - KEPT_VERSIONS, None)
        self._ended(lesson, refused, tell_peers)

    def _settle_ahead(self, version: int) -> None:
        """The lesson that follows a version has ended: what was begun ahead for it, here or by peers, is over."""
        decision = self._foresight.fresh_decision(version)
        if decision is not None:
            key = _key_ahead(decision)
            self._runs.drop(key)
            self._ahead_until = key[1] + 1
            self._foresight.forget(version)


def _key_ahead(decision: int) -> RunKey:
    """Where the randomness lies for the lesson of a decision that is run ahead: at the step of the decision."""
    _, step, _ = split_number(split_name(decision)[1])
    return LEARN_ONE_AHEAD, step


def _as_model(result: object) -> Model:
    assert isinstance(result, Model)
    return result


def _words(shared: Model | Sums) -> list[Words]:
    """A party's words of a model or of sums."""
    return own_words(*(getattr(shared, field.name) for field in fields(shared)))


def _taken(lesson: Lesson, decisions: Decisions) -> _Taken:
    kept = [decisions[name] for name, _ in lesson.rewards]
    return _Taken(lesson.number, kept, [masked for _, masked in lesson.rewards])


def _joined(taken: list[_Taken]) -> _Taken:
    kept = [interaction for one in taken for interaction in one.kept]
    return _Taken(taken[0].lesson, kept, [masked for one in taken for masked in one.masked])
