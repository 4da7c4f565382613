"""Worlds whose federation changes, with crashes between any two effects and cut links: arms are added and retired, and
the policy is another one. Each role adopts a version at its own time, and some put their kit back as it was. Every
acknowledged reward is learned once, the model is that of the plain twin, and no decision names an arm that was retired
where it was made.

HIDDENARM_SEEDS says how many worlds; `make soak` runs a thousand.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from application import jobs_of, window_of
from changing_world import Changed, ChangingWorld
from world import Faults

from hiddenarm.bandit.changes import changed_federation
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "28"))
GROUPS = 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes by the thousand are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def versions_of(arms: int = 2) -> list[Federation]:
    """A federation, and what it becomes: epsilon changes; an arm is added, and another policy chosen; one is retired,
    and another added."""
    first = Federation(arms, (1, 1), epsilon=0.3, repair_every=4)
    second = changed_federation(first, policy=EpsilonGreedy(0.6))
    third = changed_federation(second, arms=arms + 1, policy=Bonus(0.2, 0.4))
    return [first, second, third, changed_federation(third, arms=arms + 2, retired=(0,))]


def run(seed: int, faults: Faults | None = None, versions: list[Federation] | None = None) -> Changed:
    world = ChangingWorld(seed, faults or Faults(), versions or versions_of())
    application = Changed(world, jobs_of(world, 12, batches=seed % 4 == 0), window=window_of(seed))
    application.finish()
    application.check()
    return application


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_model_lives_through_every_change(group: int) -> None:
    crashes = back = 0
    over_changes = set()
    for seed in range(group, SEEDS, GROUPS):
        try:
            application = run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        world = application.world
        assert isinstance(world, ChangingWorld)
        crashes += world.crashes
        back += world.went_back
        over_changes |= set(world.opened.values())
    print(f"{crashes} crashes, {back} kits put back")
    assert crashes > SEEDS / GROUPS
    assert over_changes >= {1, 4}
    assert len(over_changes) > 2, "epochs were opened with versions between, too"
    assert back


def test_arms_are_added_beyond_those_that_are_compared_pair_by_pair() -> None:
    """Decisions of before were answered in another way, and the actor may still have to return their arms."""
    for seed in range(2):
        run(seed, versions=versions_of(48)[:3])
