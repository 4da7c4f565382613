"""Budgets in worlds with crashes and cut links: over all epochs no more decisions are told than they pay for, and what
is explored purely is explored by all parties."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from application import Application, jobs_of, window_of
from world import Faults, Violation, World

from hiddenarm import ActionBudget, Federation
from hiddenarm.privacy.ledger import COIN_UNITS
from hiddenarm.roles.party import Party


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def application(seed: int, when_spent: str, total: float, jobs: int = 8) -> Application:
    federation = Federation(
        arms=2, features=(1, 1), epsilon=0.3, repair_every=4, privacy=ActionBudget(total, when_spent=when_spent)
    )
    world = World(seed, Faults(crash=0.004, cut=0.002), federation)
    return Application(world, jobs_of(world, jobs, batches=seed % 2 == 0), window=window_of(seed))


def charged(world: World) -> int:
    """The most that any party has counted and that tells something."""
    machines = [world.nodes[party].machine for party in world.parties]
    return max(machine.records.ledger.telling for machine in machines if isinstance(machine, Party))


@pytest.mark.parametrize("seed", range(16))
def test_no_more_is_told_than_the_budget_pays_for_and_the_rest_is_explored(seed: int) -> None:
    """The check of the application holds the model against a twin: a party that brought its share where another brought
    zeros would spoil an answer."""
    running = application(seed, "explore", 8.8)
    running.finish()
    running.check()
    budget = running.world.federation.budget
    assert budget is not None
    assert budget.decisions == 5
    assert charged(running.world) <= 5
    counted = running.world.nodes[running.world.parties[0]].machine
    assert isinstance(counted, Party)
    assert counted.records.ledger.decisions[COIN_UNITS] > 0


def test_a_spent_budget_refuses_in_every_epoch() -> None:
    crashes = 0
    for seed in range(12):
        running = application(seed, "refuse", 8.8)
        with pytest.raises(Violation, match="the privacy budget is spent: 5 decisions"):
            running.finish()
        assert charged(running.world) <= 5
        assert max(running.world.told.values()) <= 5
        crashes += running.world.crashes
    assert crashes > 12


def test_decisions_that_are_drawn_again_are_counted_again() -> None:
    """In worlds with crashes more is counted than the jobs have decisions; never less."""
    more = 0
    for seed in range(1, 12, 2):
        running = application(seed, "explore", 1000.0)
        running.finish()
        running.check()
        kept = sum(len(job.keys) for job in running.jobs)
        assert charged(running.world) >= max(kept, *running.world.told.values())
        more += charged(running.world) > kept
    assert more > 0
