"""What a coalition sees in many trials of the same decision and lesson says nothing about arm, features or reward."""

from __future__ import annotations

from functools import lru_cache

import pytest
from trials import (
    EXTREMES,
    ZEROS,
    Secrets,
    Trials,
    check_independent_of_arm,
    check_no_mask_is_known,
    check_same_distribution,
    check_uniform,
    run_trials,
)

from hiddenarm.bandit.catalogue import LEARN, LEARN_AHEAD

MANY, FEW = 400, 64
LESSONS = pytest.mark.parametrize("lesson", [LEARN, LEARN_AHEAD])
COALITIONS = [(2, {0}), (2, {1}), (3, {0, 1}), (3, {0, 2})]


@lru_cache
def trials_of(secrets: Secrets, count: int, parties: int, lesson: str) -> Trials:
    return run_trials(secrets, f"{secrets} {parties}", count=count, parties=parties, lesson=lesson)


@LESSONS
@pytest.mark.parametrize("secrets", [ZEROS, EXTREMES], ids=["zeros", "extremes"])
@pytest.mark.parametrize("parties", [2, 3])
def test_every_word_and_every_correction_is_uniform_and_independent_of_the_arm(
    parties: int, secrets: Secrets, lesson: str
) -> None:
    trials = trials_of(secrets, MANY, parties, lesson)
    assert len(set(trials.arms)) == 4
    check_uniform(trials)
    check_independent_of_arm(trials)


@LESSONS
@pytest.mark.parametrize(
    "other",
    [
        EXTREMES,
        ZEROS._replace(features=EXTREMES.features),
        ZEROS._replace(reward=EXTREMES.reward),
        ZEROS._replace(weights=EXTREMES.weights),
    ],
    ids=["all", "features", "reward", "weights"],
)
def test_no_word_and_no_correction_tells_secrets_apart(other: Secrets, lesson: str) -> None:
    check_same_distribution(trials_of(ZEROS, MANY, 2, lesson), trials_of(other, MANY, 2, lesson))


@LESSONS
@pytest.mark.parametrize(("parties", "coalition"), COALITIONS, ids=str)
def test_no_word_less_what_the_coalition_was_dealt_is_a_secret(parties: int, coalition: set[int], lesson: str) -> None:
    check_no_mask_is_known(trials_of(EXTREMES, FEW, parties, lesson), coalition)
