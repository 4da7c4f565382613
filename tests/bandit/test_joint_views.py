"""The actor together with any N - 1 parties learns the arm, and nothing else: what they hold and receive in decisions
with the same arm does not tell very different models, contexts and exploration apart, low bits included.

`make test` looks at a part of the matrix, `make soak` at all of it, with HIDDENARM_TRIALS trials each.
"""

from __future__ import annotations

import os
from itertools import product

import numpy as np
import pytest
from joint_views import (
    check_joint_views,
    check_masks_are_new,
    check_no_order_is_known,
    check_words_are_independent,
    run_decisions,
    worlds_of,
)

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.confidence import Confidence
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from support import FORMS

SOAK = "HIDDENARM_TRIALS" in os.environ
TRIALS = int(os.environ.get("HIDDENARM_TRIALS", "400"))
ARMS = (2, 10, 16, 40, 100)
WHOLE = [
    (arms, parties, contexts, other)
    for arms, parties, contexts in product(ARMS, (2, 3), (1, 2))
    for other in range(parties)
]
"""Arms, parties, contexts decided about at once, and the party that is not in the coalition."""
PART = [
    *[(arms, 2, 1, other) for arms in (2, 10) for other in (0, 1)],
    *[(10, 2, 2, 0), (10, 2, 2, 1), (10, 3, 1, 1), (16, 2, 1, 0), (40, 2, 1, 0), (100, 2, 1, 1), (100, 2, 2, 0)],
]


def coalition_without(other: int, parties: int) -> set[int]:
    return set(range(parties)) - {other}


@pytest.mark.parametrize(("arms", "parties", "contexts", "other"), WHOLE if SOAK else PART, ids=str)
def test_actor_and_all_parties_but_one_learn_the_arm_and_nothing_else(
    arms: int, parties: int, contexts: int, other: int
) -> None:
    federation = Federation(arms=arms, features=(1,) * parties, epsilon=0.2)
    arm, coalition = arms // 2, coalition_without(other, parties)
    worlds = worlds_of(federation, arm)
    decisions = [
        run_decisions(federation, world, arm, f"{arms} {parties}", contexts=contexts, count=TRIALS, other=other)
        for world in worlds
    ]
    check_joint_views(decisions, coalition)
    if decisions[0].returned:
        check_masks_are_new(decisions[0])
    else:
        check_no_order_is_known(decisions[0], worlds[0].scores(parties), coalition)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("explored", [False, True])
@pytest.mark.parametrize(
    ("arms", "parties", "count"), [(3, 3, 700), (4, 2, 700), *([(10, 2, 5000), (5, 3, 2000)] if SOAK else [])]
)
def test_all_words_of_actor_and_coalition_are_independent(
    arms: int, parties: int, count: int, explored: bool, form: str
) -> None:
    """No exclusive or of any of their words, however many, is known: neither where the best arm is chosen nor where the
    dealer explores."""
    federation = FORMS[form](arms=arms, features=(1,) * parties, epsilon=0.2)
    world = worlds_of(federation, 1)[2 if explored else 0]
    for other in range(parties):
        decisions = run_decisions(federation, world, 1, f"{form} {arms}", contexts=1, count=count, other=other)
        check_words_are_independent(decisions, coalition_without(other, parties))


@pytest.mark.parametrize(("parties", "other"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_a_step_that_decides_and_learns_tells_the_actor_the_arm_and_nothing_else(parties: int, other: int) -> None:
    """In strictly online use x, w and M are masked once, for the decision and for its lesson."""
    federation = Federation(arms=3, features=(1,) * parties, epsilon=0.2)
    coalition = coalition_without(other, parties)
    steps = [
        run_decisions(federation, world, 1, f"step {parties}", contexts=1, count=TRIALS, other=other, online=True)
        for world in worlds_of(federation, 1)
    ]
    check_joint_views(steps, coalition)
    check_masks_are_new(steps[0])


CONFIDENT = [Bonus(0.02), LinUcb(0.03), Thompson(0.02)]
"""With tables of two scales."""


@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("way", ["single", "two at once", "online", "shuffled"])
@pytest.mark.parametrize("policy", CONFIDENT, ids=str)
def test_policies_with_a_bonus_tell_the_actor_the_arm_and_nothing_else(
    policy: Confidence, way: str, other: int
) -> None:
    arms, coalition = 4, coalition_without(other, 2)
    form = FORMS["shuffled" if way == "shuffled" else "three rounds"]
    federation = form(arms=arms, features=(1, 1), policy=policy)
    contexts, online = (2 if way == "two at once" else 1), way == "online"
    decisions = [
        run_decisions(federation, world, 1, policy.name, contexts=contexts, count=TRIALS, other=other, online=online)
        for world in worlds_of(federation, 1)
    ]
    check_joint_views(decisions, coalition)
    if decisions[0].returned:
        check_masks_are_new(decisions[0])


@pytest.mark.parametrize("explored", [False, True])
@pytest.mark.parametrize(
    ("policy", "count"), [(CONFIDENT[0], 800), (CONFIDENT[1], 2400), (CONFIDENT[2], 2400)], ids=str
)
def test_all_words_of_policies_with_a_bonus_are_independent(policy: Confidence, count: int, explored: bool) -> None:
    federation = Federation(arms=3, features=(1, 1), policy=policy)
    world = worlds_of(federation, 1)[2 if explored else 0]
    for other in range(2):
        decisions = run_decisions(federation, world, 1, policy.name, contexts=1, count=count, other=other)
        check_words_are_independent(decisions, coalition_without(other, 2))


@pytest.mark.parametrize(("parties", "other"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_arms_that_have_features_tell_the_actor_the_arm_and_nothing_else(
    form: str, contexts: int, parties: int, other: int
) -> None:
    table = ArmTable.of(np.eye(4) * 0.75 + 0.1)
    federation = FORMS[form](arms=4, features=(1,) * parties, epsilon=0.2, arm_features=table)
    decisions = [
        run_decisions(federation, world, 1, f"arm features {contexts}", contexts=contexts, count=TRIALS, other=other)
        for world in worlds_of(federation, 1)
    ]
    check_joint_views(decisions, coalition_without(other, parties))
    if decisions[0].returned:
        check_masks_are_new(decisions[0])


@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("own", [(), (1,)], ids=["one model", "hybrid"])
def test_a_step_with_features_of_arms_tells_the_actor_the_arm_and_nothing_else(
    own: tuple[int, ...], other: int
) -> None:
    """Also where an arm, the one that is chosen, has a model of its own on top."""
    table = ArmTable.of(np.eye(3) * 0.75 + 0.1)
    table = table.with_own(own) if own else table
    federation = Federation(arms=3, features=(1, 1), epsilon=0.2, arm_features=table)
    steps = [
        run_decisions(
            federation, world, 1, f"features step {len(own)}", contexts=1, count=TRIALS, other=other, online=True
        )
        for world in worlds_of(federation, 1)
    ]
    check_joint_views(steps, coalition_without(other, 2))
    check_masks_are_new(steps[0])


@pytest.mark.parametrize("explored", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("parties", "count"), [(2, 700), *([(3, 2000)] if SOAK else [])])
def test_all_words_are_independent_where_arms_have_features(
    parties: int, count: int, form: str, explored: bool
) -> None:
    table = ArmTable.of(np.eye(3) * 0.75 + 0.1)
    federation = FORMS[form](arms=3, features=(1,) * parties, epsilon=0.2, arm_features=table)
    world = worlds_of(federation, 1)[2 if explored else 0]
    for other in range(parties):
        decisions = run_decisions(federation, world, 1, f"featured {form}", contexts=1, count=count, other=other)
        check_words_are_independent(decisions, coalition_without(other, parties))


@pytest.mark.parametrize("table", [None, ArmTable.of(np.eye(3) * 0.75 + 0.1)], ids=["a model for each arm", "one"])
@pytest.mark.parametrize(("parties", "count"), [(2, 1300), *([(3, 3400)] if SOAK else [])])
def test_all_words_of_a_step_are_independent(parties: int, count: int, table: ArmTable | None) -> None:
    federation = Federation(arms=3, features=(1,) * parties, epsilon=0.2, arm_features=table)
    world = worlds_of(federation, 1)[1]
    for other in range(parties):
        steps = run_decisions(federation, world, 1, "bits", contexts=1, count=count, other=other, online=True)
        check_words_are_independent(steps, coalition_without(other, parties))
