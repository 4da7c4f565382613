"""Worlds whose arms have features, and whose table of them changes under way: arms are added, changed, retired and
replaced, with crashes between any two effects, cut links and kits that are put back. Every request gets its decisions,
none names an arm that was retired where it was made, and the model is that of the plain twin, which learns each
decision with the features that it was made with.

HIDDENARM_SEEDS says how many worlds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import structlog
from application import Application, jobs_of, window_of
from changing_world import Changed, ChangingWorld
from world import Faults, World

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.changes import changed_federation
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "12"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes by the thousand are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def federation_of(arms: int) -> Federation:
    features = np.random.default_rng(arms).uniform(-0.6, 0.6, (arms, 2))
    return Federation(arms, (1, 1), epsilon=0.3, repair_every=4, arm_features=ArmTable.of(features))


def table_after(before: Federation, added: int = 0, **rows: Any) -> dict[str, Any]:
    """A later table: arms more, and other features for some."""
    assert before.arm_features is not None
    features = before.arm_features.features.copy()
    for name, row in rows.items():
        features[int(name.removeprefix("arm_"))] = row
    more = np.random.default_rng(before.arms + 1).uniform(-0.6, 0.6, (added, 2))
    return {"arms": before.arms + added, "arm_features": ArmTable.of(np.vstack([features, more]))}


def versions_of(arms: int = 3) -> list[Federation]:
    """A catalogue, and what it becomes: an arm is added and another has other features; one is retired, and another
    added; the place of the retired one is given to a new arm, and two others are retired."""
    first = federation_of(arms)
    second = changed_federation(first, **table_after(first, added=1, arm_1=[0.1, -0.8]))
    third = changed_federation(second, retired=(0,), **table_after(second, added=1))
    fourth = changed_federation(
        third, retired=(1, 2), policy=EpsilonGreedy(0.6), **table_after(third, arm_0=[-0.5, -0.5])
    )
    return [first, second, third, fourth]


def run(seed: int, faults: Faults | None = None, versions: list[Federation] | None = None) -> Changed:
    world = ChangingWorld(seed, faults or Faults(), versions or versions_of())
    application = Changed(world, jobs_of(world, 12, batches=seed % 4 == 0), window=window_of(seed))
    application.finish()
    application.check()
    return application


@pytest.mark.parametrize("arms", [3, 50])
def test_a_federation_whose_arms_have_features_lives_through_crashes(arms: int) -> None:
    for seed in range(4):
        world = World(seed, Faults(), federation_of(arms))
        application = Application(world, jobs_of(world, 10, batches=seed % 2 == 0), window=window_of(seed))
        application.finish()
        application.check()


def test_the_model_lives_through_every_change_of_the_catalogue() -> None:
    crashes = back = 0
    opened, chosen = set(), set()
    for seed in range(SEEDS):
        try:
            application = run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        world = application.world
        assert isinstance(world, ChangingWorld)
        crashes, back = crashes + world.crashes, back + world.went_back
        opened |= set(world.opened.values())
        chosen |= {decision.arm for job in application.jobs for decision in job.decisions or []}
    assert crashes > SEEDS
    assert back
    assert opened == {1, 2, 3, 4}
    assert chosen == set(range(5)), "arms that were added are chosen"


def test_a_catalogue_grows_beyond_the_arms_that_are_compared_pair_by_pair() -> None:
    """Before, the actor returns the features of the arm; after, the parties make them of the one-hot."""
    for seed in range(2):
        run(seed, versions=versions_of(48)[:3])
