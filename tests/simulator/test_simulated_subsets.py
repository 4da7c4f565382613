"""Worlds in which requests name some of many arms: with crashes between any two effects and cut links, every request
gets an arm that is eligible, and the model is that of the plain twin.

HIDDENARM_SEEDS says how many worlds.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import structlog
from application import Application, jobs_of, window_of
from world import Faults, World

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.decisions import run_of
from hiddenarm.bandit.federation import Federation

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "6"))
ARMS = 50
MODELS = ["a model for each arm", "one model"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes by the thousand are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def federation_of(model: str, retired: tuple[int, ...] = ()) -> Federation:
    table = ArmTable.of(np.random.default_rng(ARMS).uniform(-0.6, 0.6, (ARMS, 2))) if model == "one model" else None
    return Federation(ARMS, (1, 1), epsilon=0.3, repair_every=4, arm_features=table, retired=retired)


def run(seed: int, model: str, retired: tuple[int, ...] = ()) -> Application:
    """Jobs among one arm, three, ten, or all that are not retired."""
    world = World(seed, Faults(), federation_of(model, retired))
    jobs = jobs_of(world, 10, batches=seed % 2 == 0)
    left = [arm for arm in range(ARMS) if arm not in retired]
    for job in jobs:
        size = world.random.choice((1, 3, 3, 3, 10, None))
        job.eligible = None if size is None else sorted(world.random.sample(left, size))
    application = Application(world, jobs, window=window_of(seed), together=seed % 3 == 0)
    application.finish()
    application.check()
    return application


@pytest.mark.parametrize("model", MODELS)
def test_requests_for_some_of_many_arms_live_through_crashes(model: str) -> None:
    crashes, programs = 0, Counter[str]()
    for seed in range(SEEDS):
        try:
            application = run(seed, model)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        crashes += application.world.crashes
        programs.update(run_of(made.id)[0].name for job in application.jobs for made in job.decisions or [])
    assert crashes
    assert {"decide among 4", "decide among 16", "decide"} <= set(programs)


def test_where_most_arms_are_retired_a_decision_is_among_those_that_are_left() -> None:
    application = run(1, MODELS[0], retired=tuple(range(12, ARMS)))
    programs = {run_of(made.id)[0].name for job in application.jobs for made in job.decisions or []}
    assert programs <= {"decide among 4", "decide among 16"}
    assert all(made.arm < 12 for job in application.jobs for made in job.decisions or [])
