"""The schedule of lessons, as data: which programs, in which order, at which addresses."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from hiddenarm.bandit.catalogue import LEARN_ONE, STEP_ONE, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.schedule import (
    GATHERED_BEFORE_A_BATCH,
    LEARNED_AGAIN,
    OVERDUE_LAG,
    RUNS_OF_A_REPAIR,
    BeginSecond,
    Counters,
    DropSecond,
    LessonPlan,
    Repairing,
    RidgeSchedule,
    Run,
    SinglySchedule,
    TakeSecond,
)


def schedule_of(repair_every: int = 50, max_interactions: int = 0) -> RidgeSchedule:
    federation = Federation(
        arms=2, features=(2, 1), epsilon=0.1, repair_every=repair_every, max_interactions=max_interactions
    )
    schedule = federation.learner.schedule()
    assert isinstance(schedule, RidgeSchedule)
    return schedule


def follow(schedule: RidgeSchedule, counts: list[int], first: int = 0) -> tuple[list[LessonPlan], RidgeSchedule]:
    """The plans of some lessons, one after another."""
    plans = []
    for number, count in enumerate(counts, start=first):
        plans.append(schedule.lesson(number, count))
        after = plans[-1].after
        assert isinstance(after, RidgeSchedule)
        schedule = after
    return plans, schedule


def runs_of(plan: LessonPlan) -> list[Run]:
    """All runs of a plan, those beside it included."""
    runs: list[Run] = []
    for action in plan.actions:
        if isinstance(action, Run):
            runs.append(action)
        elif isinstance(action, BeginSecond):
            runs.extend(action.runs)
    return runs


def test_a_single_lesson_is_one_run_at_its_number() -> None:
    plan = schedule_of().lesson(7, 1)
    assert plan.actions == (Run(LEARN_ONE, 7),)
    assert (plan.kept, plan.forgotten) == (True, 0)
    assert schedule_of().lesson(7, 1, of_step=12).actions == (Run(STEP_ONE, 12),)


def test_a_plan_changes_nothing() -> None:
    schedule = schedule_of(repair_every=1)
    assert schedule.lesson(0, 1) == schedule.lesson(0, 1)
    assert schedule == schedule_of(repair_every=1)


def test_a_batch_gathers_all_and_solves() -> None:
    schedule = schedule_of(repair_every=1000).resumed(version=300, singly=230, gathered=70)
    plan = schedule.lesson(303, 8)
    assert plan.actions == (
        Run(ProgramId("gather", 8), 3),
        DropSecond(),
        Run(ProgramId("repair", GATHERED_BEFORE_A_BATCH), 0, range(0, 100)),
        Run(ProgramId("repair", GATHERED_BEFORE_A_BATCH), 1, range(100, 200)),
        Run(ProgramId("repair", 30), 0, range(200, 230)),
        Run(ProgramId("solve", 8), 3),
    )
    assert (plan.kept, plan.forgotten) == (False, 230)
    after = plan.after
    assert isinstance(after, RidgeSchedule)
    assert after.counters == Counters(first=300, singly=0, gathered=308)
    assert after.gathers == {100: 2, 30: 1}


def test_an_overdue_repair_begins_with_the_first_lesson_and_lags_less() -> None:
    schedule = schedule_of(repair_every=1000).resumed(version=300, singly=30, gathered=70, due=True)
    plans, after = follow(schedule, [1] * 100, first=300)
    assert runs_of(plans[0])[1] == Run(ProgramId("repair", 25), 0, range(25))
    assert not isinstance(plans[0].actions[-1], BeginSecond) or plans[0].forgotten == 25
    (begun,) = [place for place, plan in enumerate(plans) if isinstance(plan.actions[-1], BeginSecond)]
    (end,) = [place for place, plan in enumerate(plans) if TakeSecond() in plan.actions]
    assert begun < 3
    assert all(len(plan.actions) == 1 for plan in plans[begun + 1 : begun + OVERDUE_LAG])
    assert begun + OVERDUE_LAG < end < 90
    assert schedule.repair_is_due
    assert all(plan.after.repair_is_due for plan in plans[:end])
    assert not after.repair_is_due
    assert schedule.recounted(schedule.counted()) == schedule


def test_a_batch_before_an_overdue_repair_is_solved_from_the_sums_alone() -> None:
    schedule = schedule_of(repair_every=1000).resumed(version=300, singly=3, gathered=70, due=True)
    plan = schedule.lesson(300, 8)
    gather, drop, repair, begin, *runs, take = plan.actions
    assert (gather, drop) == (Run(ProgramId("gather", 8), 0), DropSecond())
    assert repair == Run(ProgramId("repair", 3), 0, range(3))
    assert isinstance(begin, BeginSecond)
    assert begin.runs == ()
    assert [run.program.name for run in runs if isinstance(run, Run) and run.second][-1] == "invert last"
    assert len(runs) > 1
    assert take == TakeSecond()
    assert not plan.after.repair_is_due
    assert plan.after.lesson(301, 2).actions[-1] == Run(ProgramId("solve", 2), 1)


def test_a_repair_is_spread_over_lessons() -> None:
    """50 lessons; two gather 25 each; the second one begins a second model; 25 lessons later it learns again."""
    plans, after = follow(schedule_of(repair_every=50), [1] * 90)
    assert all(len(plan.actions) == 1 for plan in plans[:49])
    assert plans[49].actions[1:] == (Run(ProgramId("repair", 25), 0, range(25)),)
    learn, gather, begin = plans[50].actions
    assert (learn, gather) == (Run(LEARN_ONE, 50), Run(ProgramId("repair", 25), 1, range(25)))
    assert isinstance(begin, BeginSecond)
    assert begin.starts.keys() == {"inverses", "weights"}
    assert [run.step for run in begin.runs] == list(range(len(begin.runs)))
    assert [plan.forgotten for plan in plans[48:52]] == [0, 25, 25, 0]
    assert all(len(plan.actions) == 1 for plan in plans[51:75])
    again = [run for plan in plans[75:] for run in runs_of(plan) if run.program.name == "learn again"]
    assert [run.of for run in again] == [range(n, n + 1) for n in range(len(again))]
    assert [run.step for run in again] == list(range(len(again)))
    assert all(run.second for run in again)
    (end,) = [place for place, plan in enumerate(plans) if TakeSecond() in plan.actions]
    assert plans[end].actions[-1] == TakeSecond()
    # From lesson 75 on it learns 4 of the lessons that the sums do not hold, of which each lesson adds one.
    assert [len(runs_of(plan)) - 1 for plan in plans[75 : end + 1]] == [LEARNED_AGAIN] * (end - 75) + [
        len(again) - LEARNED_AGAIN * (end - 75)
    ]
    assert len(again) == end - 49
    assert after.counters == Counters(singly=90 - 50, gathered=50, repairs=1, learned_again=len(again))


def test_a_batch_ends_a_repair_and_what_comes_for_it_is_over() -> None:
    _, under_way = follow(schedule_of(repair_every=50), [1] * 60)
    assert under_way.counters.repairing == Repairing(begun_at=50)
    assert not under_way.is_over(ProgramId("invert"), 3)
    plans, after = follow(under_way, [2], first=60)
    assert DropSecond() in plans[0].actions
    assert after.counters.repairing is None
    assert after.is_over(ProgramId("invert"), RUNS_OF_A_REPAIR - 1)
    assert not after.is_over(ProgramId("invert"), RUNS_OF_A_REPAIR)
    assert not after.is_over(LEARN_ONE, 3)


def test_a_repair_at_once_has_addresses_behind_the_one_that_it_ends() -> None:
    _, under_way = follow(schedule_of(repair_every=50), [1] * 60)
    plan = under_way.repair(60)
    drop, gather, begin, take = plan.actions
    assert (drop, take) == (DropSecond(), TakeSecond())
    assert gather == Run(ProgramId("repair", 10), 0, range(10))
    assert isinstance(begin, BeginSecond)
    assert begin.runs[0].step == RUNS_OF_A_REPAIR
    after = plan.after
    assert isinstance(after, RidgeSchedule)
    assert after.counters == Counters(gathered=60, repairs=2)


@pytest.mark.parametrize("repair_every", [1, 2, 3, 7, 40])
def test_no_address_comes_twice_and_all_is_gathered_once(repair_every: int) -> None:
    counts = ([1] * 30 + [3] + [1] * 11 + [2, 2]) * 4
    schedule = schedule_of(repair_every)
    plans, _ = follow(schedule, counts)
    addresses = Counter((run.program, run.step) for plan in plans for run in runs_of(plan))
    assert max(addresses.values()) == 1
    for program in {program for program, _ in addresses}:
        steps = [run.step for plan in plans for run in runs_of(plan) if run.program == program]
        assert all(step < later for step, later in pairwise(steps)), program
    singly, gathered = 0, 0
    for plan, count in zip(plans, counts, strict=True):
        singly += plan.kept
        taken = sum(len(run.of) for run in runs_of(plan) if run.of is not None and run.program.name == "repair")
        assert taken == plan.forgotten <= singly
        assert all(run.of.stop <= singly for run in runs_of(plan) if run.of is not None)
        singly, gathered = singly - taken, gathered + taken + (count if count > 1 else 0)
        after = plan.after
        assert isinstance(after, RidgeSchedule)
        assert (after.counters.singly, after.gathered) == (singly, gathered)
    assert singly + gathered == sum(counts)


def test_a_model_has_room_for_as_many_as_it_declares() -> None:
    schedule = schedule_of(max_interactions=10).resumed(version=5, singly=2, gathered=5)
    assert schedule.room_for(3)
    assert not schedule.room_for(4)


@pytest.mark.parametrize("lessons", [0, 49, 51, 76, 80, 100])
def test_counters_come_back_from_a_snapshot(lessons: int) -> None:
    _, schedule = follow(schedule_of(repair_every=50), [1] * lessons)
    assert schedule_of(repair_every=50).recounted(schedule.counted()) == schedule


def test_a_run_whose_counters_are_not_known_is_left_behind() -> None:
    steps = {LEARN_ONE: 70, ProgramId("invert"): 8, ProgramId("invert last"): 70}
    schedule = schedule_of(repair_every=50).behind(steps, singly=3, gathered=67)
    assert schedule.counters == Counters(singly=3, gathered=67, repairs=2)
    begin = schedule.repair(70).actions[-2]
    assert isinstance(begin, BeginSecond)
    assert begin.runs[0].step == 2 * RUNS_OF_A_REPAIR


def test_the_papers_suite_learns_and_does_nothing_else() -> None:
    schedule = Federation(arms=2, features=(2, 1), epsilon=0.1, suite="paper").learner.schedule()
    assert schedule == SinglySchedule()
    assert not schedule.learns_many
    assert schedule.room_for(10**12)
    plan = schedule.resumed(version=4, singly=0, gathered=0).lesson(9, 1)
    assert plan.actions == (Run(LEARN_ONE, 5),)
    assert not plan.kept
