"""What a coalition of the actor and all parties but one sees in many trials of the same step says nothing about
features, reward or model, nor about exploring; what parties see says nothing about the arm. Steps are single decisions
with their lessons, by two programs or by `step`, and each other program alone: decisions in batches, `gather`, `solve`,
repairs.

HIDDENARM_TRIALS says how many trials words are counted in; `make soak` takes 2,000.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from trials import (
    EXTREMES,
    ZEROS,
    Secrets,
    Trials,
    check_independent_of_arm,
    check_independent_of_exploring,
    check_no_mask_is_known,
    check_same_distribution,
    check_uniform,
    run_program,
    run_trials,
)

from hiddenarm.bandit.catalogue import (
    DECIDE,
    GATHER,
    INVERT,
    INVERT_BOOSTED,
    INVERT_LAST,
    LEARN,
    SOLVE,
    STEP,
    UNLEARN,
    ProgramId,
)
from hiddenarm.bandit.interactions import opened
from hiddenarm.mpc.masking import triangle_to_square
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Floats, decode

MANY, FEW = int(os.environ.get("HIDDENARM_TRIALS", "400")), 64
FRACTION_BITS = 20
SINGLY = pytest.mark.parametrize("programs", [(DECIDE, LEARN), (STEP,)], ids=" and ".join)
COALITIONS = [(2, {0}), (2, {1}), (3, {0, 1}), (3, {0, 2})]
BOTH = pytest.mark.parametrize("secrets", [ZEROS, EXTREMES], ids=["zeros", "extremes"])
PROGRAMS = pytest.mark.parametrize(
    "program",
    [
        ProgramId(DECIDE, 2),
        ProgramId(GATHER, 2),
        ProgramId(UNLEARN),
        ProgramId(SOLVE, 2),
        ProgramId(INVERT_BOOSTED),
        ProgramId(INVERT),
        ProgramId(INVERT_LAST),
    ],
    ids=lambda program: program.label,
)


@lru_cache(maxsize=4)
def trials_of(secrets: Secrets, count: int, parties: int, programs: tuple[str, ...]) -> Trials:
    return run_trials(secrets, f"{secrets} {parties}", count=count, parties=parties, programs=programs)


@SINGLY
@BOTH
@pytest.mark.parametrize("parties", [2, 3])
def test_every_word_and_every_correction_is_uniform_and_independent_of_the_arm(
    parties: int, secrets: Secrets, programs: tuple[str, ...]
) -> None:
    trials = trials_of(secrets, MANY, parties, programs)
    assert len(set(trials.arms)) == 4
    check_uniform(trials)
    check_independent_of_arm(trials)
    check_independent_of_exploring(trials)


@SINGLY
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
def test_no_word_and_no_correction_tells_secrets_apart(other: Secrets, programs: tuple[str, ...]) -> None:
    check_same_distribution(trials_of(ZEROS, MANY, 2, programs), trials_of(other, MANY, 2, programs))


@SINGLY
@pytest.mark.parametrize(("parties", "coalition"), COALITIONS, ids=str)
def test_no_word_less_what_the_coalition_was_dealt_is_a_secret(
    parties: int, coalition: set[int], programs: tuple[str, ...]
) -> None:
    check_no_mask_is_known(trials_of(EXTREMES, FEW, parties, programs), coalition)


# One program alone


@lru_cache(maxsize=2)
def many_trials(program: ProgramId, secrets: Secrets, parties: int) -> Trials:
    return run_program(program, secrets, f"{secrets} {parties}", count=MANY, parties=parties)


@PROGRAMS
@pytest.mark.parametrize("parties", [2, 3])
def test_no_word_of_a_program_goes_with_the_arm_or_tells_secrets_apart(parties: int, program: ProgramId) -> None:
    zeros, extremes = (many_trials(program, secrets, parties) for secrets in (ZEROS, EXTREMES))
    for trials in (zeros, extremes):
        assert set(trials.arms) == {0, 1, 2}
        check_uniform(trials)
        check_independent_of_arm(trials)
    check_same_distribution(zeros, extremes)


@PROGRAMS
@pytest.mark.parametrize(("parties", "coalition"), COALITIONS, ids=str)
def test_no_word_of_a_program_less_what_the_coalition_was_dealt_is_a_secret(
    parties: int, coalition: set[int], program: ProgramId
) -> None:
    """The coalition's shares are zero, and so are no part of any word: the other party holds all that is shared."""
    (other,) = set(range(parties)) - coalition
    trials = run_program(program, EXTREMES, f"known {parties}", count=FEW, parties=parties, holder=other)
    check_no_mask_is_known(trials, coalition)


def clear(shares: Sequence[Shared], fraction_bits: int) -> Floats:
    """What the shares of all parties add up to, of the one replicate."""
    (values,) = decode(opened(shares), fraction_bits)
    return np.asarray(values, np.float64)


def sums_of(arm: int, interactions: int, secrets: Secrets) -> tuple[Floats, Floats]:
    """W and b of all arms, where one has interactions."""
    context = np.full(2, secrets.features[-1])
    grams, moments = np.repeat(np.eye(2)[None], 3, axis=0), np.zeros((3, 2))
    grams[arm] += interactions * np.outer(context, context)
    moments[arm] += interactions * secrets.reward * context
    return grams, moments


@pytest.mark.parametrize("program", [ProgramId(SOLVE, 2), ProgramId(INVERT_LAST)], ids=lambda program: program.label)
def test_trials_solve_what_they_are_given(program: ProgramId) -> None:
    trials = run_program(program, EXTREMES, "solved", count=1)
    grams, moments = sums_of(trials.arms[0], 8, EXTREMES)
    inverses, weights = zip(*trials.results, strict=True)
    found = clear(inverses, 2 * FRACTION_BITS)[:, triangle_to_square(2)]
    assert np.abs(found @ grams - np.eye(2)).max() < 0.001
    expected = np.linalg.solve(grams, moments[..., None])[..., 0]
    assert np.abs(clear(weights, FRACTION_BITS) - expected).max() < 0.001


def test_trials_gather_what_they_are_given() -> None:
    trials = run_program(ProgramId(GATHER, 2), EXTREMES, "gathered", count=1)
    before, (first, second) = trials.arms[0], (trials.arms[0], (trials.arms[0] + 1) % 3)
    grams, moments = sums_of(before, 8, EXTREMES)
    for arm in (first, second):
        more, rewarded = sums_of(arm, 1, EXTREMES)
        grams, moments = grams + more - np.eye(2), moments + rewarded
    found = [clear(shares, 2 * FRACTION_BITS) for shares in zip(*trials.results, strict=True)]
    assert np.abs(found[0][:, triangle_to_square(2)] - grams).max() < 1e-9
    assert np.abs(found[1] - moments).max() < 1e-9


def test_trials_unlearn_what_they_are_given() -> None:
    trials = run_program(ProgramId(UNLEARN), EXTREMES, "unlearned", count=1)
    grams, moments = sums_of(trials.arms[0], 7, EXTREMES)
    found = [clear(shares, 2 * FRACTION_BITS) for shares in zip(*trials.results, strict=True)]
    assert np.abs(found[0][:, triangle_to_square(2)] - grams).max() < 1e-9
    assert np.abs(found[1] - moments).max() < 1e-9
