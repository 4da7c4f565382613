"""Worlds in which everything that decides what a party may forget comes together, with crashes and cut links: few
interactions are kept, decisions expire, windows of values are under way, and arms are added while it lives."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import structlog
from application import jobs_of
from changing_world import Changed, ChangingWorld
from test_simulated_expiry import Expiring
from world import Faults, Violation, World

from hiddenarm.bandit.changes import changed_federation
from hiddenarm.bandit.decisions import decision_name
from hiddenarm.bandit.evaluation import PolicyValues
from hiddenarm.bandit.federation import Federation

KEPT, WINDOW = 4, 2
JOBS = 18
EMPTIED = b"\x02"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def versions() -> list[Federation]:
    first = Federation(
        arms=2,
        features=(1, 1),
        epsilon=0.3,
        repair_every=4,
        max_batch=2,
        keep_interactions=KEPT,
        expires_after=2,
        evaluation=PolicyValues(1e4, "rewarder", WINDOW),
    )
    return [first, changed_federation(first, arms=3), changed_federation(first, arms=4)]


@dataclass
class Everything(Changed, Expiring):
    """Rewards two jobs of three; the model is that of those which came in time."""

    def check(self) -> None:
        super().check()
        jobs = {
            decision_name(int(epoch, 16), int(number)): job
            for job in self.jobs
            for epoch, number, _ in (decision.id.split("-") for decision in job.decisions or ())
        }
        rewarded = [name for name, masked in self._ended(0) if masked is not None]
        self._check_model([jobs[name] for name in rewarded])
        for number in range(len(self.world.parties)):
            totals = self._records(number).window_totals()
            windows = 0 if totals is None else totals.windows
            if windows != len(rewarded) // WINDOW:
                raise Violation(f"{windows} windows were filled by {len(rewarded)} rewards")


def emptied(world: World) -> list[int]:
    """Records of decisions that were pruned, by party."""
    stores = [disk.store for party in world.parties if (disk := world.nodes[party].disk) is not None]
    return [sum(payload == EMPTIED for _, payload in store.items("decision")) for store in stores]


def run(seed: int, faults: Faults | None = None) -> Everything:
    world = ChangingWorld(seed, faults or Faults(), versions())
    application = Everything(world, jobs_of(world, JOBS, batches=False))
    application.finish()
    application.check()
    return application


def test_what_is_pruned_is_needed_by_nobody() -> None:
    crashes = pruned = 0
    for seed in range(8):
        application = run(seed)
        crashes += application.world.crashes
        pruned += min(emptied(application.world))
    assert crashes > 8
    assert pruned > 8
