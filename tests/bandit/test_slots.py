"""Slots of rewards: their order, what a federation with slots is, and lessons of several single decisions."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.bandit.catalogue import GATHER, SOLVE, STEP, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.bandit.schedule import Run
from hiddenarm.bandit.slots import Slots, in_lessons
from hiddenarm.errors import ConfigError, InputError

KEY = bytes(range(32))


def test_rewards_of_a_slot_are_due_at_the_end_of_the_next() -> None:
    slots = Slots[int]()
    slots.add([1, 2])
    assert slots.end() == []
    slots.add([3])
    assert slots.end() == [1, 2]
    assert slots.end() == [3]
    assert slots.end() == []


def test_slots_go_on_from_what_was_awaited() -> None:
    slots = Slots([7, 8])
    slots.add([9])
    assert slots.end() == [7, 8]
    assert slots.awaited == [9]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (4, [4]), (9, [4, 4, 1])])
def test_a_slot_is_sent_in_lessons_of_a_batch(count: int, sizes: list[int]) -> None:
    lessons = in_lessons(range(count), 4)
    assert [len(lesson) for lesson in lessons] == sizes
    assert [number for lesson in lessons for number in lesson] == list(range(count))


def test_with_slots_every_lesson_gathers_and_no_decision_is_a_step() -> None:
    federation = Federation(3, (2, 2), epsilon=0.1, reward_slot=60)
    plan = federation.learner.schedule().lesson(0, 1)
    programs = [action.program for action in plan.actions if isinstance(action, Run)]
    assert programs == [ProgramId(GATHER, 1), ProgramId(SOLVE, 1)]
    assert not federation.learner.has_step
    assert STEP not in [program.name for program in federation.learner.single_programs]
    resumed = federation.learner.schedule().resumed(5, 0, 5)
    assert resumed.lesson(5, 1).first.program == ProgramId(GATHER, 1)


def test_slots_are_terms_where_there_are_any() -> None:
    terms = Federation(3, (2, 2), epsilon=0.1, reward_slot=60, default_reward=0.25).terms
    assert (terms["reward_slot"], terms["default_reward"]) == (60, 0.25)
    assert "reward_slot" not in Federation(3, (2, 2), epsilon=0.1).terms


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"reward_slot": -1}, "reward_slot must lie in 0"),
        ({"reward_slot": 1.5}, "reward_slot must be a whole number"),
        ({"reward_slot": 10**9}, "reward_slot must lie in 0"),
        ({"reward_slot": 60, "suite": "paper"}, "reward_slot belongs to suite fast"),
        ({"reward_slot": 60, "default_reward": 1.5}, r"default_reward must lie in \[0, 1\]"),
        ({"reward_slot": 60, "default_reward": "none"}, r"default_reward must lie in \[0, 1\]"),
        ({"default_reward": 0.5}, "set reward_slot too"),
    ],
)
def test_slots_that_cannot_be_are_refused(numbers: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Federation(3, (2, 2), epsilon=0.1, **numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize("together", [1, 2, 5])
def test_a_lesson_of_single_decisions_is_what_the_plain_twin_learns(together: int) -> None:
    federation = Federation(3, (2, 2), epsilon=0.3, reward_slot=10)
    lockstep, twin = Lockstep(federation, KEY), PlainBandit(3, 4)
    rng = np.random.default_rng(3)
    for slot in range(6):
        decisions, rewards = [], []
        for _ in range(together):
            context = rng.uniform(-0.5, 0.5, 4)
            decision, arms = lockstep.decide([context[None, :2], context[None, 2:]])
            explore, tags = coins_at(lockstep.coins(decision, 1), 0)
            assert twin.agrees(int(arms[0]), context, explore, tags, federation.score_rounding)
            decisions.append((decision, context, int(arms[0])))
            rewards.append(float(rng.random() < 0.5))
        lockstep.learn_each([decision for decision, _, _ in decisions], [rewards])
        for (_, context, arm), reward in zip(decisions, rewards, strict=True):
            twin.learn(context, arm, reward)
        assert lockstep.reveal_model()[1][0] == pytest.approx(twin.weights, abs=1e-3), slot


def test_a_lesson_has_as_many_rewards_as_a_batch_may_have() -> None:
    lockstep = Lockstep(Federation(3, (2, 2), epsilon=0.1, reward_slot=10, max_batch=2), KEY)
    made = [lockstep.decide([np.zeros((1, 2)), np.zeros((1, 2))])[0] for _ in range(3)]
    with pytest.raises(InputError, match="3 interactions at once; this federation has max_batch 2"):
        lockstep.learn_each(made, [[0.0] * 3])
    assert lockstep.pending == frozenset(made)


def test_a_suite_that_learns_one_by_one_has_no_such_lessons() -> None:
    lockstep = Lockstep(Federation(3, (2, 2), epsilon=0.1, suite="paper"), KEY)
    with pytest.raises(InputError, match="learns from one reward at a time"):
        lockstep.learn_each([0, 1], [[0.0, 0.0]])
