"""Worlds with crashes whose application unlearns: every unlearning happens once at all parties, whatever crashes, no
address has two values, and the model is that of what is left.

HIDDENARM_SEEDS says how many worlds; `make soak` runs a thousand.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from application import Job, federation_of, jobs_of
from test_simulated_faults import consent, finish
from unlearning_application import Forget, UnlearningApplication, keeping, simulate_unlearning, with_forgetting
from world import Faults, Violation, World

from hiddenarm.roles.party import Party
from hiddenarm.roles.party_areas import EMPTIED
from hiddenarm.roles.party_records import PartyRecords

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "40"))
GROUPS = 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_unlearned_is_unlearned_once_whatever_crashes(group: int) -> None:
    crashes = 0
    for seed in range(group, SEEDS, GROUPS):
        try:
            crashes += simulate_unlearning(seed).crashes
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert crashes > SEEDS / GROUPS


def test_three_parties() -> None:
    for seed in range(3):
        simulate_unlearning(seed, parties=3, jobs=5)


def test_in_memory() -> None:
    for seed in range(8):
        simulate_unlearning(seed, memory=True)


def test_after_going_back_unlearnings_are_done_again() -> None:
    """One party comes back with an old backup, from before lessons and unlearnings; with the consent of all, the
    rewarder teaches again what is in its order, unlearnings included."""
    for seed in range(4):
        world = World(seed, Faults(crash=0, cut=0), federation_of())
        application = UnlearningApplication(world, with_forgetting(world, jobs_of(world, 8, batches=False), share=1))
        *decided, last = [job for job in application.jobs if not isinstance(job, Forget)]
        unlearned = [job for job in application.jobs if isinstance(job, Forget) and job.target is not last]
        finish(application, decided)
        node = world.nodes[world.parties[1]]
        assert node.disk is not None
        backup = node.disk.store.copy()
        application.jobs = [*decided, *unlearned]
        application.finish()
        for party in world.parties:
            world.crash(world.nodes[party])
        node.disk.store = backup
        consent(world)
        world.calm = False
        application.jobs.append(Job("the last", last.keys, last.rewards))  # behind all that is taught again
        application.finish()
        assert not world.refused
        application.check()
        for party in world.parties:
            machine = world.nodes[party].machine
            assert isinstance(machine, Party)
            assert isinstance(machine.records, PartyRecords)
            assert sum(lesson.unlearning is not None for lesson in machine.records.lessons(0, 99)) == len(unlearned)


def emptied(world: World) -> list[int]:
    """Records of decisions that were pruned, by party."""
    return [
        sum(payload == EMPTIED for _, payload in node.disk.store.items("decision"))
        for node in (world.nodes[party] for party in world.parties)
        if node.disk is not None
    ]


def test_what_is_older_than_is_agreed_is_pruned_and_the_rest_is_kept_at_all_parties() -> None:
    """With crashes: within the agreed number everything can be unlearned, whatever was pruned, and nothing beyond."""
    pruned = 0
    for seed in range(16):
        try:
            pruned += sum(emptied(simulate_unlearning(seed, jobs=14, kept=3)))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert pruned > 40


def test_a_state_that_would_need_pruned_lessons_is_refused_by_name() -> None:
    """A copy from before a common checkpoint: with the consent of all, lessons would have to be learned from the first
    one on, which are pruned elsewhere."""
    world = World(1, Faults(crash=0, cut=0), keeping(1))
    application = UnlearningApplication(world, jobs_of(world, 16, batches=False))
    node = world.nodes[world.parties[1]]
    assert node.disk is not None
    finish(application, application.jobs[:1])
    backup = node.disk.store.copy()
    finish(application, application.jobs)
    assert min(emptied(world)) > 0
    for party in world.parties:
        world.crash(world.nodes[party])
    node.disk.store = backup
    consent(world)
    world.calm = False
    with pytest.raises(Violation, match="party 0 was refused"):
        finish(application, [*application.jobs, Job("more", application.jobs[0].keys, [1.0])])
