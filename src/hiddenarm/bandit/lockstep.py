"""The whole system in one process, for tests and research: dealer, parties, actor and rewarder call each other.

The programs, the material and the checks are those of the real roles; only the network is missing. A leading axis of
replicates lets many independent runs, each with its own epsilon, advance together.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.bandit.accounting import ledger_of_words, ledger_words
from hiddenarm.bandit.answers import (
    NO_ARM,
    TWO_ARMS,
    Answers,
    arms_in,
    eligible_words,
    first_arms_in,
    masked_arms,
)
from hiddenarm.bandit.audit import audit_coins, audit_noise
from hiddenarm.bandit.batches import FULL
from hiddenarm.bandit.catalogue import (
    DECIDE_ONE,
    DECIDING,
    DESCEND,
    GATHER,
    LEARN_ONE,
    PROGRAMS,
    REFRESH,
    REPAIR_RUNS,
    SOLVE,
    STEP_ONE,
    ProgramId,
    deciding,
    program_text,
)
from hiddenarm.bandit.coins import Coins, Exploration, exploration_thresholds
from hiddenarm.bandit.decisions import MAX_PENDING, decision_number, is_plain, split_number
from hiddenarm.bandit.features import checked_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided, Interaction, Rewarded, interactions, joined
from hiddenarm.bandit.policy import LearnerProgram
from hiddenarm.bandit.retained import Retained
from hiddenarm.bandit.schedule import BeginSecond, DropSecond, LessonPlan, Run, Schedule
from hiddenarm.bandit.state import State, initial_state, padded_arms
from hiddenarm.bandit.subsets import Subset, subset_of
from hiddenarm.errors import OUT_OF_RANGE, BudgetSpentError, ConfigError, InputError, NoArmError, ScoreRangeError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.lockstep import LockstepMeter, Observer, advance_lockstep, run_lockstep
from hiddenarm.mpc.material import Layout, Seeds, program_stream
from hiddenarm.privacy.ledger import COIN_UNITS, NOTHING_RELEASED
from hiddenarm.ring.streams import Stream, fresh_key
from hiddenarm.ring.words import Floats, Words, encode

NEXT_STEP = "next step "
"""Begins the names of the arrays of a snapshot with a program's next step."""
LEDGER = "ledger"
"""The name of the array of a snapshot with the privacy ledger."""
NOT_SAVED = "a run of which values are opened goes on only as it is: it is not saved, nor does it follow a snapshot"
_SECOND = "second "
"""Begins those of a second model."""
BatchName = tuple[ProgramId, int]
"""The run by which a batch of decisions was made."""


class _Supply:
    """One program: its dealer, and the words dealt to each role."""

    def __init__(
        self,
        federation: Federation,
        exploration: Exploration,
        program: ProgramId,
        seeds: Seeds,
        replicates: int,
        ahead: int,
    ) -> None:
        self.program: LearnerProgram = federation.learner.program(program, exploration)
        text, parties = self.program.text, federation.parties
        self.layout = layout_of(text, parties, replicates)
        self.next_step = 0
        self._ahead = ahead
        self._dealer = ProgramDealer(program.label, text, self.layout, seeds, replicates)
        self._compiled = [compile_program(text, party, parties, replicates) for party in range(parties)]
        self._materials = [
            ProgramMaterial(party, parties, program.label, self.layout, seeds.party(party), ahead=ahead)
            for party in range(parties)
        ]
        self.actor = program_stream(seeds.actor(), program.label, self.layout.actor_words, ahead=ahead)
        self.rewarder = program_stream(seeds.rewarder(), program.label, self.layout.rewarder_words, in_order=False)

    def begin(self, given: Sequence[Sequence[Words]], step: int) -> list[Evaluation]:
        """Each party's evaluation of a step, on what each brings. Steps are begun in order; some may be left out."""
        self.next_step = step + 1
        last = self._materials[-1]
        if not last.ready(step):
            last.skip_to(step)
            last.add_corrections(step, self._dealer.deal(step, self._ahead))
        parties = zip(self._compiled, self._materials, given, strict=True)
        return [Evaluation(compiled, material.take(step), own) for compiled, material, own in parties]

    def skip_to(self, step: int) -> None:
        """Leave out all steps before `step`: they were used by the run that is resumed."""
        self.next_step = step
        self._materials[-1].skip_to(step)


def _uniform(shape: tuple[int, ...]) -> Words:
    """Uniform words under a key of their own."""
    return Stream(fresh_key(), prod(shape)).step(0).reshape(shape).copy()


def _rows(arrays: list[Words], *shape: int) -> Words:
    """Arrays of one shape, one after another; of that shape also where there are none."""
    return np.array(arrays, np.uint64).reshape(len(arrays), *shape)


@dataclass(slots=True, repr=False)
class _Second:
    """All parties' shares of a second model, which is to take the place of these arrays of the model."""

    states: list[State]
    taken: tuple[str, ...]


@dataclass(slots=True, repr=False)
class _Begun:
    """A run of `step` that has decided, and waits for the reward; it is of use while the model is that of its start."""

    step: int
    evaluations: list[Evaluation]


class Lockstep:
    """All roles of a federation, advancing together.

    `decide` and `learn` treat one interaction; `decide_batch` and `learn_batch` many at once, where the suite can. With
    `online`, single decisions are those of the program `step`, if the learner has it, which goes on to learn when the
    reward of its decision is learned next; else the decision is learned by `learn`. What a lesson takes follows from
    the schedule of the policy, as between roles: the repair of the model is spread over lessons. `repair` does it at
    once. Of the single decisions that wait for their reward, the newest `max_pending` are
    kept; of those that were learned, the newest `keep_interactions`, which `unlearn` can take out of the model again.
    With `epsilons`, each replicate explores with its own probability, whatever the policy says. `origin` is how
    many decisions were made before, for a policy that explores by position.

    `ledger` counts what one replicate has released. A spent budget refuses, or explores purely, as between roles.
    """

    def __init__(
        self,
        federation: Federation,
        epoch_key: bytes,
        *,
        replicates: int = 1,
        online: bool = False,
        epsilons: ArrayLike | None = None,
        origin: int = 0,
        deal_ahead: int = 64,
        max_pending: int = MAX_PENDING,
        keep_interactions: int = 0,
        observer: Observer | None = None,
    ) -> None:
        if max_pending < 1:
            raise ConfigError(f"max_pending must be at least 1, got {max_pending}")
        self.federation = federation
        self.replicates = replicates
        self.meter = LockstepMeter()
        self._learner = federation.learner
        arrays, parties = self._learner.arrays, range(federation.parties)
        self.states: list[State] = [initial_state(arrays, party, replicates) for party in parties]
        """Each party's shares of the model."""
        self.schedule: Schedule = self._learner.schedule()
        """What the lessons to come take."""
        self.interactions_learned = 0
        self._lessons = 0
        self._singly: deque[list[Rewarded]] = deque()
        self._second: _Second | None = None
        self.observer = observer
        self._deal_ahead = deal_ahead
        self._max_pending = max_pending
        self._exploration = (
            federation.policy.exploration(origin) if epsilons is None else Exploration.of_replicates(epsilons)
        )
        self.ledger = NOTHING_RELEASED
        self._least_explored = None if epsilons is None else int(exploration_thresholds(epsilons).min())
        self._pure_from: dict[ProgramId, int] = {}
        """From which step on a program has explored purely."""
        self._pending: OrderedDict[int, list[Interaction]] = OrderedDict()
        self._made_at: dict[int, int] = {}
        """After how many lessons a single decision among all arms was made."""
        self.evaluated = False
        """Whether values of policies are opened of this run: by one evaluation only, as its addresses are used once."""
        self._batches: dict[BatchName, list[list[Interaction]]] = {}
        self._retained: Retained[list[Rewarded]] = Retained(keep_interactions)
        self._seeds = Seeds(epoch_key)
        self._supplies: dict[ProgramId, _Supply] = {}
        self._deciding = STEP_ONE if online and self._learner.has_step else DECIDE_ONE
        self._begun: _Begun | None = None
        for program in (self._deciding, self._learner.single_lesson):
            self._supply(program)

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the programs for one interaction."""
        texts = {program.name: program_text(self.federation, program) for program in self._learner.single_programs}
        return {name: layout_of(text, self.federation.parties, self.replicates) for name, text in texts.items()}

    @property
    def decisions(self) -> int:
        """How many single decisions were begun."""
        return self._supply(self._deciding).next_step

    def begun(self, program: ProgramId) -> int:
        """How many runs of a program that decides were begun."""
        return self._supplies[program].next_step if program in self._supplies else 0

    @property
    def pending(self) -> frozenset[int]:
        """Single decisions that wait for their reward."""
        return frozenset(self._pending)

    def is_pending(self, step: int) -> bool:
        """Whether a single decision waits for its reward. `pending` lists them all, which takes time for each."""
        return step in self._pending

    def decide(
        self, contexts: Sequence[ArrayLike], eligible: Sequence[int] | None = None
    ) -> tuple[int, NDArray[np.int64]]:
        """Decide on the parties' features, [replicates, features] each; return the decision's number and the arms.
        `eligible` names the arms that may be chosen; all unless given. Few of many take a program of their own, which
        the number names (`bandit.subsets`)."""
        features = [checked_features(values, self.federation, party)[:, None] for party, values in enumerate(contexts)]
        program, step, arms, kept = self._decide(self._deciding, features, eligible)
        number = step if program == self._deciding else decision_number(program, step)
        self._pending[number] = [party[0] for party in kept]
        if eligible is None:
            self._made_at[number] = self._lessons
        self._forget_oldest()
        return number, arms[:, 0]

    def learn(self, step: int, rewards: ArrayLike) -> None:
        """Learn from the reward of a pending decision; one reward per replicate."""
        self.check_room(1)
        kept = [[own] for own in self._taken(step)]
        of_step = step if self._begun is not None and self._begun.step == step else None
        program, at = (self._deciding, step) if is_plain(step) else split_number(step)[:2]
        self._learn([step], kept, program, at, np.asarray(rewards)[..., None], of_step)

    def decide_batch(
        self, contexts: Sequence[ArrayLike], eligible: Sequence[int] | None = None
    ) -> tuple[BatchName, NDArray[np.int64]]:
        """Decide for many contexts at once, [replicates, count, features] from each party; return the batch's name and
        the arms [replicates, count]. `eligible` names the arms that may be chosen."""
        features = [checked_features(values, self.federation, party) for party, values in enumerate(contexts)]
        program, step, arms, kept = self._decide(deciding(features[0].shape[1]), features, eligible)
        self._batches[program, step] = kept
        return (program, step), arms

    def learn_batch(self, batch: BatchName, rewards: ArrayLike) -> None:
        """Learn from all rewards [replicates, count] of a batch of decisions at once."""
        program, step = batch
        self._check_lesson(program.count)
        numbers = [decision_number(program, step, place) for place in range(program.count)]
        self._learn(numbers, self._batches.pop(batch), program, step, rewards)

    def decide_each(
        self, contexts: Sequence[ArrayLike], eligible: Sequence[int] | None = None
    ) -> tuple[list[int], NDArray[np.int64]]:
        """The same as `decide_batch` for decisions whose rewards may come one by one: the decisions' numbers
        (`decisions`) and the arms [replicates, count]."""
        features = [checked_features(values, self.federation, party) for party, values in enumerate(contexts)]
        program, step, arms, kept = self._decide(deciding(features[0].shape[1]), features, eligible)
        numbers = [decision_number(program, step, place) for place in range(program.count)]
        for place, number in enumerate(numbers):
            self._pending[number] = [party[place] for party in kept]
        self._forget_oldest()
        return numbers, arms

    def learn_each(self, numbers: Sequence[int], rewards: ArrayLike) -> None:
        """Learn from the rewards [replicates, count] of pending decisions, made together or not, as one lesson. The
        masks of their rewards are what the parties' shares add up to: here all of them are at hand."""
        self._check_lesson(len(numbers))
        waiting = [self._taken(number) for number in numbers]
        masks = np.stack([np.add.reduce([own.reward_mask for own in one]) for one in waiting], axis=1)
        kept = [[one[party] for one in waiting] for party in range(self.federation.parties)]
        self._teach(numbers, kept, encode(rewards, self.federation.fraction_bits) + masks)

    def is_retained(self, number: int) -> bool:
        """Whether a decision was learned, and is kept to be unlearned."""
        return number in self._retained

    def unlearn(self, number: int) -> None:
        """Take a decision that was learned, and is kept, out of the model again; one that is pending is dropped."""
        if self.schedule.no_unlearning:
            raise InputError(self.schedule.no_unlearning)
        if number in self._pending:
            self._taken(number)
            self._begun = None
            return
        lesson = self._retained.pop(number)
        plan = self.schedule.unlearning(self._lessons)
        self._lessons += 1
        self.interactions_learned -= 1
        self._follow(plan, lesson)

    def _taken(self, number: int) -> list[Interaction]:
        """Take a decision out of those that wait for their reward."""
        self._made_at.pop(number, None)
        return self._pending.pop(number)

    def _forget_oldest(self) -> None:
        while len(self._pending) > self._max_pending:
            self._taken(next(iter(self._pending)))

    @property
    def lessons(self) -> int:
        """How many lessons were learned."""
        return self._lessons

    def made_at(self, number: int) -> int | None:
        """After how many lessons a pending single decision was made, by this run; None if it was not among all arms, or
        was taken up before."""
        return self._made_at.get(number)

    def take_up(self, number: int) -> None:
        """A pending decision is evaluated: it is not to be a second time."""
        del self._made_at[number]

    @property
    def seeds(self) -> Seeds:
        """From which all words come. In a real federation only the dealer has them all."""
        return self._seeds

    def rewarded(self, number: int, rewards: ArrayLike) -> list[Rewarded]:
        """What each party has of a single decision that waits for its reward, and the reward as the rewarder sends it.
        Nothing is learned. The mask is what the parties' shares add up to: here all of them are at hand."""
        waiting = self._pending[number]
        mask = np.add.reduce([own.reward_mask for own in waiting])
        masked = (encode(rewards, self.federation.fraction_bits) + mask)[:, None]
        return [Rewarded([own], masked) for own in waiting]

    def repair(self) -> None:
        """Solve the model anew from the sums alone, with all that was learned singly added to them."""
        self._follow(self.schedule.repair(self._lessons))

    def _check_lesson(self, count: int) -> None:
        """Refuse rewards that cannot be learned at once."""
        if count > 1 and not self.schedule.learns_many:
            raise InputError(f"suite {self.federation.suite} learns from one reward at a time")
        if count > max(1, self.federation.max_batch):
            raise InputError(f"{count} interactions at once; this federation has max_batch {self.federation.max_batch}")
        self.check_room(count)

    def check_room(self, count: int) -> None:
        """Refuse more interactions than the model can take."""
        if not self.schedule.room_for(count):
            raise InputError(FULL)

    # Lessons

    def _learn(
        self,
        numbers: Sequence[int],
        kept: list[list[Interaction]],
        decided: ProgramId,
        step: int,
        rewards: ArrayLike,
        of_step: int | None = None,
    ) -> None:
        """Learn from decisions made together, which each party has kept, as one lesson."""
        mask = self._supply(decided).rewarder.step(step).reshape(self.replicates, decided.count)
        self._teach(numbers, kept, encode(rewards, self.federation.fraction_bits) + mask, of_step)

    def _teach(
        self, numbers: Sequence[int], kept: list[list[Interaction]], masked: Words, of_step: int | None = None
    ) -> None:
        """Teach what each party has kept of some decisions, with their masked rewards, as one lesson."""
        count = masked.shape[1]
        plan = self.schedule.lesson(self._lessons, count, of_step)
        self._lessons += 1
        self.interactions_learned += count
        self._follow(plan, [Rewarded(own, masked) for own in kept])
        if self._retained.most:
            for place, number in enumerate(numbers):
                word = masked[:, place : place + 1]
                self._retained.add(number, [Rewarded([own[place]], word) for own in kept])

    def _follow(self, plan: LessonPlan, lesson: list[Rewarded] | None = None) -> None:
        """Do what a plan says, one thing after another."""
        for place, action in enumerate(plan.actions):
            if isinstance(action, Run):
                self._run_planned(action, lesson)
            elif isinstance(action, BeginSecond):
                self._begin_second(action)
            elif isinstance(action, DropSecond):
                self._second = None
            else:
                self._take_second()
            if place == 0 and plan.kept and lesson is not None:
                self._singly.append(lesson)
        for _ in range(plan.forgotten):
            self._singly.popleft()
        self.schedule = plan.after
        self._begun = None

    def _run_planned(self, run: Run, lesson: list[Rewarded] | None) -> None:
        if run.program == STEP_ONE:
            self._end_step(lesson)
            return
        if run.program.name == REFRESH:
            self.ledger = self.ledger.refreshed()
        supply, taken = self._supply(run.program), lesson
        if run.of is not None:
            chunk = list(islice(self._singly, run.of.start, run.of.stop))
            taken = [joined([one[party] for one in chunk]) for party in range(self.federation.parties)]
        states = self._second.states if run.second and self._second is not None else self.states
        given = [
            supply.program.given(state, None if taken is None else taken[party], party)
            for party, state in enumerate(states)
        ]
        results = self._run(run.program, supply.begin(given, run.step))
        for state, result in zip(states, results, strict=True):
            supply.program.write(state, result)

    def _end_step(self, lesson: list[Rewarded] | None) -> None:
        """Go on with the run of `step` that made the decision."""
        assert lesson is not None
        assert self._begun is not None
        for evaluation in self._begun.evaluations:
            evaluation.tell(lesson[0].masked)
        results = self._run(STEP_ONE, self._begun.evaluations)
        for state, result in zip(self.states, results, strict=True):
            self._supply(STEP_ONE).program.write(state, result)

    def _begin_second(self, begin: BeginSecond) -> None:
        arrays = self._learner.arrays
        states = [begin.of(state, arrays, party, self.replicates) for party, state in enumerate(self.states)]
        self._second = _Second(states, tuple(begin.starts))
        for run in begin.runs:
            self._run_planned(run, None)

    def _take_second(self) -> None:
        assert self._second is not None
        for state, second in zip(self.states, self._second.states, strict=True):
            state.update((name, second[name]) for name in self._second.taken)
        self._second = None

    # Snapshots

    def snapshot(self, *, pending: bool = False) -> dict[str, Words]:
        """The whole run as named arrays, without doing anything to it: every party's shares of the model and of a
        second one, what was learned singly and is not in the sums, the counters of the schedule, and the next step of
        every program. Decisions that wait for a reward, but for those of `decide_batch`, and those that are kept to be
        unlearned are part of it with `pending`. There is none of a run whose policies' values are opened: it would not
        hold which addresses these have used."""
        if self.evaluated:
            raise ConfigError(NOT_SAVED)
        arrays = {
            "lessons": np.array([self._lessons], np.uint64),
            "learned": np.array([self.interactions_learned, self.schedule.gathered], np.uint64),
            "waiting rewards": _rows([one[0].masked[:, 0] for one in self._singly], self.replicates),
            "schedule": np.array(self.schedule.counted(), np.uint64),
            LEDGER: ledger_words(self.ledger),
        }
        for program, supply in self._supplies.items():
            arrays[f"{NEXT_STEP}{program.name} {program.count}"] = np.array([supply.next_step], np.uint64)
        for party, state in enumerate(self.states):
            arrays.update((f"{name} {party}", words) for name, words in state.items())
            if self._second is not None:
                second = self._second.states[party]
                arrays.update((f"{_SECOND}{name} {party}", second[name]) for name in self._second.taken)
            waiting = {"waiting": [one[party].kept[0] for one in self._singly]}
            if pending:
                waiting["pending"] = [one[party] for one in self._pending.values()]
                waiting["retained"] = [one[party].kept[0] for one in self._retained.values()]
            for kind, kept in waiting.items():
                for name, shape in self._kept_shapes(party).items():
                    arrays[f"{kind} {name} {party}"] = _rows([getattr(one, name) for one in kept], *shape)
        if pending:
            arrays["pending"] = np.array(list(self._pending), np.uint64)
            arrays["retained"] = np.array(list(self._retained), np.uint64)
            rewards = [one[0].masked[:, 0] for one in self._retained.values()]
            arrays["retained rewards"] = _rows(rewards, self.replicates)
        return arrays

    def restore(self, arrays: Mapping[str, Words]) -> None:
        """Go on from a snapshot, at the steps that came next.

        Under the key of the run that was saved, everything comes as it would have come there; this is for the same
        inputs only, so that a mask that both use hides the same value. Under another key it is an epoch of its own.
        A snapshot of an earlier version, which has no counters of a schedule, goes on behind all of its addresses. One
        of a federation of fewer arms grows: the arms that were added begin at the prior.
        """
        if self.evaluated:
            raise ConfigError(NOT_SAVED)
        arrays = self._grown(arrays)
        self._restore_steps(arrays)
        self._restore_ledger(arrays)
        self._restore_schedule(arrays)
        for party, state in enumerate(self.states):
            for name in state:
                state[name] = np.array(arrays[_named(arrays, name, party)], np.uint64)
        self._singly = deque(
            [
                Rewarded([self._waiting(arrays, party, row)], masked[:, None].copy())
                for party in range(self.federation.parties)
            ]
            for row, masked in enumerate(arrays["waiting rewards"])
        )
        self._restore_second(arrays)
        self._pending = OrderedDict(
            (number, [self._kept_row(arrays, "pending", party, row) for party in range(self.federation.parties)])
            for row, number in enumerate(arrays["pending"].tolist() if "pending" in arrays else ())
        )
        for row, number in enumerate(arrays["retained"].tolist() if "retained" in arrays else ()):
            masked = arrays["retained rewards"][row][:, None].copy()
            kept = [self._kept_row(arrays, "retained", party, row) for party in range(self.federation.parties)]
            self._retained.add(number, [Rewarded([own], masked) for own in kept])

    def _grown(self, arrays: Mapping[str, Words]) -> dict[str, Words]:
        """The arrays of a snapshot for the arms that there are now."""
        model, grown = {array.name: array for array in self._learner.arrays}, dict(arrays)
        for party in range(self.federation.parties):
            for name in [name for name in arrays if name.endswith(f" {party}")]:
                bare = name.removesuffix(f" {party}").removeprefix(_SECOND)
                if bare in model:
                    grown[name] = model[bare].grown(arrays[name], party)
                elif bare.endswith((" arm_mask", " masked_arm")):
                    grown[name] = padded_arms(arrays[name], self.federation.arm_width)
        return grown

    def remask_pending(self) -> None:
        """Hide what waits for a reward under fresh masks: after `restore` under another key, which may be done twice
        with one snapshot, and a mask hides one arm and one reward. Here all shares are at hand."""
        for one in self._pending.values():
            masked = [own.masked_arm for own in one if own.masked_arm is not None]
            one_hot = masked[0] - np.add.reduce([own.arm_mask for own in one])
            for own in one:
                own.arm_mask, own.reward_mask = _uniform(own.arm_mask.shape), _uniform(own.reward_mask.shape)
            returned = one_hot + np.add.reduce([own.arm_mask for own in one])
            for own in one:
                own.masked_arm = returned.copy()

    def _restore_steps(self, arrays: Mapping[str, Words]) -> None:
        """Leave out all steps that were used. Decisions go on behind all that were made singly, by whichever program.
        Earlier versions had programs that are gone."""
        decided = 0
        for label in (name.removeprefix(NEXT_STEP) for name in arrays if name.startswith(NEXT_STEP)):
            name, count = label.rsplit(" ", 1)
            program, step = ProgramId(name, int(count)), int(arrays[NEXT_STEP + label][0])
            if name in PROGRAMS:
                self._supply(program).skip_to(step)
            if program in (DECIDE_ONE, STEP_ONE):
                decided = max(decided, step)
        self._supply(self._deciding).skip_to(decided)

    def _restore_ledger(self, arrays: Mapping[str, Words]) -> None:
        """Earlier versions had none: all steps that decided are counted."""
        self._pure_from = {}
        if LEDGER in arrays:
            self.ledger = self.ledger.merged(ledger_of_words(arrays[LEDGER]))
            return
        for program, supply in self._supplies.items():
            if program.name in DECIDING:
                for step in range(supply.next_step):
                    self.ledger = self.ledger.decided(*self._levels(program, step))

    def _restore_schedule(self, arrays: Mapping[str, Words]) -> None:
        self.interactions_learned, gathered = arrays["learned"].tolist()
        if "lessons" in arrays:
            self._lessons = int(arrays["lessons"][0])
            self.schedule = self.schedule.recounted(arrays["schedule"].tolist())
            return
        steps = {program: supply.next_step for program, supply in self._supplies.items()}
        self._lessons = max(step for program, step in steps.items() if program.name in (LEARN_ONE.name, GATHER, SOLVE))
        self.schedule = self.schedule.behind(steps, len(arrays["waiting rewards"]), gathered)

    def _restore_second(self, arrays: Mapping[str, Words]) -> None:
        self._second = None
        taken = tuple(name for name in self.states[0] if f"{_SECOND}{name} 0" in arrays)
        if taken:
            second = [
                State(state | {name: np.array(arrays[f"{_SECOND}{name} {party}"], np.uint64) for name in taken})
                for party, state in enumerate(self.states)
            ]
            self._second = _Second(second, taken)

    def _kept_shapes(self, party: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the fields of an `Interaction`."""
        copies, federation = self.replicates, self.federation
        features, arm = (copies, federation.features[party]), (copies, federation.arm_width)
        return {"features": features, "arm_mask": arm, "masked_arm": arm, "reward_mask": (copies,)}

    def _waiting(self, arrays: Mapping[str, Words], party: int, row: int) -> Interaction:
        if f"waiting arm {party}" in arrays:  # earlier versions saved shares of the one-hots
            arm = arrays[f"waiting arm {party}"]
            arrays = {**arrays, f"waiting arm_mask {party}": -arm, f"waiting masked_arm {party}": np.zeros_like(arm)}
        return self._kept_row(arrays, "waiting", party, row)

    def _kept_row(self, arrays: Mapping[str, Words], kind: str, party: int, row: int) -> Interaction:
        return Interaction(**{name: arrays[f"{kind} {name} {party}"][row].copy() for name in self._kept_shapes(party)})

    def coins(self, first: int, count: int, batch: int = 1) -> Coins:
        """The dealer's coins of some runs that decided, for the plain twin (see `audit_coins`).

        Nobody could ask for them in a real federation.
        """
        return self.coins_of(self._deciding if batch == 1 else deciding(batch), first, count)

    def coins_of(self, program: ProgramId, first: int, count: int) -> Coins:
        """The same of some runs of a program."""
        coins = audit_coins(self._seeds, self.federation, first, count, self.replicates, program, self._exploration)
        coins.explore[max(0, self._first_pure(program) - first) :] = True
        return coins

    def _first_pure(self, program: ProgramId) -> int:
        """From which step on a program explores purely; for steps to come, if no other program decides."""
        budget, next_step = self.federation.budget, self._supply(program).next_step
        if budget is None or not budget.explores:
            return sys.maxsize
        left = max(0, budget.decisions - self.ledger.telling) // program.count
        return self._pure_from.get(program, next_step + left)

    def noise(self, refresh: int) -> tuple[Floats, Floats]:
        """The dealer's noise of a refresh, counted from 0, for the plain twins (see `audit_noise`): of W [replicates,
        arms, D, D] and of b [replicates, arms, D]. Nobody could ask for it in a real federation."""
        return audit_noise(self._seeds, self.federation, refresh, self.replicates)

    def reveal_model(self) -> tuple[Floats, Floats]:
        """Inverses (packed triangles, or the paper's whole matrices) and weights in the clear. Only here, where all
        shares lie in one process."""
        return self._learner.reveal(self.states)

    def _decide(
        self, program: ProgramId, features: list[Words], eligible: Sequence[int] | None
    ) -> tuple[ProgramId, int, NDArray[np.int64], list[list[Interaction]]]:
        """Decide by a program, or among a subset by that which takes its place: program, step, arms, and what each
        party keeps."""
        if eligible is not None and not self._learner.takes_eligible:
            raise InputError(f"suite {self.federation.suite} takes no eligible arms: all may be chosen")
        may_win = eligible_words(self.federation.arms, eligible, self.federation.retired)
        subset = subset_of(self.federation, may_win)
        lead = self.replicates, program.count
        if subset is None:
            may_win = np.broadcast_to(may_win, (*lead, len(may_win)))
        else:
            program, may_win = deciding(program.count, subset.size), subset.eligible(*lead)
        brought = self._learner.public_inputs(may_win, subset)
        supply = self._supply(program)
        step = supply.next_step
        pure = self._charge(program, step)
        given = [
            [*self._brought(supply.program.reads, state, subset, pure), own, *brought]
            for state, own in zip(self.states, features, strict=True)
        ]
        evaluations = supply.begin(given, step)
        self._advance(program, evaluations)
        decided: list[Any] = [each.result if each.ended else each.announced for each in evaluations]
        arms = self._act(program, step, decided, may_win, subset)
        if program == STEP_ONE:
            self._begun = None
            if not pure:
                self._begin_to_learn(step, evaluations, decided)
        if subset is not None:
            decided = [subset.decided(own, self.federation) for own in decided]
        return program, step, arms, [interactions(own, kept) for own, kept in zip(features, decided, strict=True)]

    def _brought(self, names: Sequence[str], state: State, subset: Subset | None, pure: bool) -> list[Words]:
        """What a party brings of its model into a decision; zeros to explore purely."""
        arrays = [state[name] if subset is None else self._learner.rows(state[name], subset) for name in names]
        return [np.zeros_like(words) for words in arrays] if pure else arrays

    def _charge(self, program: ProgramId, step: int) -> bool:
        """Count decisions before they are made; whether they must be explored purely. With a spent budget that refuses,
        nothing is done."""
        budget = self.federation.budget
        if budget is None or self.ledger.telling + program.count <= budget.decisions:
            self.ledger = self.ledger.decided(*self._levels(program, step))
            return False
        if not budget.explores:
            raise BudgetSpentError(budget.refusal)
        self._pure_from.setdefault(program, step)
        self.ledger = self.ledger.decided(*[COIN_UNITS] * program.count)
        return True

    def _levels(self, program: ProgramId, step: int) -> list[int]:
        """As the ledger counts the decisions of a step; where replicates explore differently, those of the least."""
        if self._least_explored is not None:
            return [self._least_explored] * program.count
        return self.federation.policy.levels(self._exploration.origin + step * program.count, program.count)

    def _begin_to_learn(self, step: int, evaluations: list[Evaluation], decided: list[Decided]) -> None:
        """Tell a run of `step` the one-hot; it goes on until it needs the reward."""
        for evaluation, own in zip(evaluations, decided, strict=True):
            assert own.masked_arm is not None
            evaluation.tell(own.masked_arm)
        self._advance(STEP_ONE, evaluations)
        self._begun = _Begun(step, evaluations)

    def _act(
        self, program: ProgramId, step: int, decided: list[Decided], eligible: Words, subset: Subset | None
    ) -> NDArray[np.int64]:
        """What the actor does: find the arms, and return them to the parties where they do not hold them."""
        answers = self._learner.answers if subset is None else self._learner.among(subset.size).answers
        shares = [words for words in (own.answer for own in decided) if words is not None]
        arms = self._found(answers, shares, eligible)
        found = arms if subset is None else subset.arms_of(arms)
        if answers.returned:
            table = self.federation.arm_features
            masks = self._supply(program).actor.step(step).reshape(*arms.shape, -1)
            returned = masked_arms(arms if table is None else found, masks, table)
            for own in decided:
                own.masked_arm = returned
        return found

    def _found(self, answers: Answers, shares: Sequence[Words], eligible: Words) -> NDArray[np.int64]:
        """The arms in the answers. That two look chosen by chance ends no experiment of many replicates: there it is
        the first of them."""
        arms = arms_in(answers, shares, eligible)
        if (arms == NO_ARM).any():
            raise ScoreRangeError(OUT_OF_RANGE)
        ambiguous = arms == TWO_ARMS
        if ambiguous.any() and self.replicates == 1:
            raise NoArmError(f"context {int(ambiguous[0].argmax())}", ambiguous=True)
        return np.where(ambiguous, first_arms_in(answers, shares, eligible), arms)

    def _run(self, program: ProgramId, evaluations: list[Evaluation]) -> list[Any]:
        """Run a step of a program to its end."""
        return run_lockstep(evaluations, program=program.label, meter=self.meter, observer=self.observer)

    def _advance(self, program: ProgramId, evaluations: list[Evaluation]) -> None:
        """Run a step of a program to its end, or until it waits for what actor or rewarder send."""
        advance_lockstep(evaluations, program=program.label, meter=self.meter, observer=self.observer)

    def _supply(self, program: ProgramId) -> _Supply:
        if program not in self._supplies:
            large = program.name in (SOLVE, REFRESH, DESCEND, *REPAIR_RUNS)
            ahead = 1 if large else max(1, self._deal_ahead // program.count)
            self._supplies[program] = _Supply(
                self.federation, self._exploration, program, self._seeds, self.replicates, ahead
            )
        return self._supplies[program]


def _named(arrays: Mapping[str, Words], name: str, party: int) -> str:
    """Under which name an array is saved. Earlier versions saved the paper's biases as weights."""
    return f"weights {party}" if name == "biases" and f"biases {party}" not in arrays else f"{name} {party}"
