"""`agreement`: how often a plain learner that was taught the same would choose the same arm. It can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from hiddenarm.bandit.catalogue import DECIDE_ONE
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import split_features
from hiddenarm.research.results import PlainTwins
from support import fixed_key

ARMS, FEATURES, STEPS, REPLICATES = 10, 20, 300, 2
Change = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def digits(parties: int = 2, **options: object) -> Federation:
    return Federation(ARMS, tuple(split_features(FEATURES, parties)), epsilon=0.1, **options)  # type: ignore[arg-type]


def agreement(
    federation: Federation,
    *,
    twins_of: Federation | None = None,
    batch: int = 1,
    said: Change = lambda arms: arms,
    steps: int = STEPS,
) -> float:
    """Of a run on the digits, beside twins of the same or of another federation, that are told of the private arms
    what `said` makes of them."""
    world = load_world("digits", arms=ARMS, features=FEATURES, steps=steps)
    worlds = [world.reseeded(seed) for seed in range(REPLICATES)]
    lockstep = Lockstep(federation, fixed_key("agreement"), replicates=REPLICATES, deal_ahead=8)
    twins = PlainTwins(twins_of or federation, worlds, lambda _, first, count: lockstep.coins(first, count))
    cuts, agreed = np.cumsum(federation.features)[:-1], []
    for first in range(0, steps, batch):
        now = range(first, first + batch)
        contexts = np.stack([[one.context(step) for step in now] for one in worlds])
        if batch == 1:
            decision, arms = lockstep.decide(np.split(contexts[:, 0], cuts, axis=-1))
            rewards = np.array([one.reward(first, int(arm)) for one, arm in zip(worlds, arms, strict=True)])
            lockstep.learn(decision, rewards)
            agreed.append(twins.step(first, contexts[:, 0], (DECIDE_ONE, decision), said(arms), rewards)[0])
        else:
            name, arms = lockstep.decide_batch(np.split(contexts, cuts, axis=-1))
            rewards = np.array(
                [
                    [one.reward(step, int(arm)) for step, arm in zip(now, row, strict=True)]
                    for one, row in zip(worlds, arms, strict=True)
                ]
            )
            lockstep.learn_batch(name, rewards)
            coins = lockstep.coins(name[1], 1, batch=batch)
            agreed.append(twins.batch(now, contexts, coins, said(arms), rewards)[0].mean(axis=1))
    return float(np.mean(agreed))


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("options", [{}, {"fraction_bits": 17}, {"ridge": 3.0}], ids=str)
def test_the_private_learner_agrees_with_a_twin_that_was_taught_the_same(
    parties: int, options: dict[str, object]
) -> None:
    assert agreement(digits(parties, **options)) >= 0.995


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("batch", [4, 25])
def test_it_agrees_in_batches(parties: int, batch: int) -> None:
    assert agreement(digits(parties), batch=batch) >= 0.995


@pytest.mark.parametrize("parties", [2, 5])
def test_the_papers_suite_agrees(parties: int) -> None:
    """Among more than two parties rounding decides the ties of arms that have earned nothing."""
    assert agreement(digits(parties, suite="paper"), steps=120) >= 0.99


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_a_twin_with_another_ridge_does_not_agree(suite: str) -> None:
    federation = digits(suite=suite)
    steps = STEPS if suite == "fast" else 120
    assert agreement(federation, twins_of=replace(federation, ridge=5.0), steps=steps) < 0.97


@pytest.mark.parametrize("batch", [1, 25])
def test_arms_that_are_told_wrong_do_not_agree(batch: int) -> None:
    """Told by one permutation, a twin learns the same under other names: only explored arms tell. By one that changes
    from step to step, all do."""
    shifts = count()
    assert agreement(digits(), batch=batch, said=lambda arms: (arms + 1) % ARMS) < 0.95
    assert agreement(digits(), batch=batch, said=lambda arms: (arms + next(shifts)) % ARMS) < 0.6


def test_rounding_is_small_beside_scores_and_grows_with_parties_and_coarser_numbers() -> None:
    roundings = [digits(parties).score_rounding for parties in (2, 3, 5)]
    assert roundings == sorted(roundings)
    assert round(roundings[0], 4) == 0.0004  # as docs/commands.md says, of scores up to 1
    assert roundings[-1] < 1e-3
    assert roundings[0] < digits(fraction_bits=16).score_rounding < 0.01
    assert digits(suite="paper").score_rounding < 1e-4
