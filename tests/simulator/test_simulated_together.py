"""Worlds in which requests that wait are decided together: crashes, cut links and refused keys fall between a run that
several requests share and what becomes of each of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from application import Application, Job, federation_of, jobs_of
from world import Faults, World

from hiddenarm.bandit.decisions import split_number
from hiddenarm.errors import RefusedKeyError
from hiddenarm.roles.actor import Outcome
from hiddenarm.roles.epochs.attempts import PeerLoss

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "100")) // 4
WINDOW = 8
NOBODY = "nobody"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


class Refusing(Application):
    """A job for a key that nobody has is refused, and done by that."""

    def _hear_decisions(self, job: Job, outcome: Outcome) -> None:
        if isinstance(outcome, list) and isinstance(outcome[0], RefusedKeyError):
            assert job.keys == [NOBODY]
            self.jobs = [other for other in self.jobs if other is not job]
            return
        super()._hear_decisions(job, outcome)


def shared(application: Application) -> int:
    """How many decisions were made in runs that several requests share."""
    decisions = [decision for job in application.jobs for decision in job.decisions or ()]
    return sum(split_number(int(decision.id.split("-")[1]))[0].count > 1 for decision in decisions)


def simulated(seed: int, faults: Faults | None = None, **options: object) -> Application:
    world = World(seed, faults or Faults(), federation_of(), **options)  # type: ignore[arg-type]
    application = Application(world, jobs_of(world, 14, batches=False), window=WINDOW, together=True)
    application.finish()
    application.check()
    return application


@pytest.mark.parametrize("group", range(5))
def test_nothing_acknowledged_is_lost_where_requests_share_runs(group: int) -> None:
    crashes = together = 0
    for seed in range(group, SEEDS, 5):
        application = simulated(seed)
        crashes += application.world.crashes
        together += shared(application)
    assert crashes > SEEDS / 5
    assert together > SEEDS / 5


def test_in_memory() -> None:
    found = [simulated(seed, Faults(crash=0, cut=0), peer_loss=PeerLoss.ENDS_FEDERATION) for seed in range(4)]
    assert sum(map(shared, found)) > 8


def test_keys_that_are_refused_are_refused_alone() -> None:
    together = 0
    for seed in range(10):
        world = World(seed, Faults(), federation_of())
        jobs = jobs_of(world, 14, batches=False)
        jobs[5].keys = jobs[9].keys = [NOBODY]
        application = Refusing(world, jobs, window=WINDOW, together=True)
        application.finish()
        application.check()
        assert len(application.jobs) == 12
        together += shared(application)
    assert together > 10
