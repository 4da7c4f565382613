"""Worlds with crashes and cut links in which values of policies are opened to the rewarder.

What must hold besides: whatever a party tells of a window lasts there before, together with the ledger that counts it;
the parties never tell two draws of the same windows; and what the rewarder hears is the sum of all rewards of windows
that are full, whatever crashed.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import structlog
from application import Application, jobs_of, window_of
from test_simulated_faults import consent, finish
from world import Faults, Violation, World

from hiddenarm.bandit.evaluation import GREEDY, UNIFORM, PolicyValues
from hiddenarm.bandit.federation import Federation
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.privacy.ledger import PrivacyLedger
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.ring.words import Floats, decode
from hiddenarm.roles.messages import REWARDER, Kind
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_areas import read_ledger
from hiddenarm.roles.rewarder import Rewarder

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "100")) // 4
GROUPS = 5
WINDOW = 2
LOUD = 1e4
"""A mu at which noise is far below 1, and still another in every draw."""
EPSILON = 0.3


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def evaluated_federation(parties: int = 2, noisy: bool = False) -> Federation:
    privacy = NoisySums(50.0, first_refresh=2, refresh_ratio=1.5, rows_per_key=9) if noisy else None
    values = PolicyValues(LOUD, "rewarder", WINDOW)
    return Federation(arms=2, features=(1,) * parties, epsilon=EPSILON, evaluation=values, privacy=privacy)


class ValuesWorld(World):
    """A world that notes what parties tell of windows."""

    looks_at_disks = True

    def __init__(self, seed: int, faults: Faults, federation: Federation) -> None:
        self.totals: dict[int, dict[Identity, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        """What each party has ever told, by the number of windows."""
        super().__init__(seed, faults, federation)

    def _note(self, identity: Identity, frame: Frame) -> None:
        super()._note(identity, frame)
        if frame.kind is not Kind.VALUES or not frame.step:
            return
        if self.looks_at_disks:
            self._check_disk(identity, frame)
        self.totals[frame.step][identity].add(frame.payload)
        if len(self.draws(frame.step)) > 1:
            raise Violation(f"two draws of {frame.step} windows were told")

    def _check_disk(self, identity: Identity, frame: Frame) -> None:
        disk = self.nodes[identity].disk
        assert disk is not None
        if not any(payload.endswith(frame.payload) for _, payload in disk.store.items("values")):
            raise Violation(f"{identity} tells a window that does not last")
        if read_ledger(disk.store).openings < frame.step:
            raise Violation(f"{identity} tells a window that is not counted")

    def draws(self, windows: int) -> list[Floats]:
        """The sums that follow from what all parties have told: shares of two draws add up to nothing like sums."""
        told = [self.totals[windows][party] for party in self.parties]
        added = [
            decode(np.add.reduce([np.frombuffer(one, "<u8") for one in each]), self.federation.fraction_bits)
            for each in product(*told)
        ]
        return [sums for sums in added if np.all(np.abs(sums - windows * WINDOW / 2) < windows * WINDOW / 2 + 0.1)]


def simulate(
    seed: int, faults: Faults | None = None, jobs: int = 10, parties: int = 2, *, noisy: bool = False
) -> ValuesWorld:
    world = ValuesWorld(seed, faults or Faults(), evaluated_federation(parties, noisy))
    application = Application(world, jobs_of(world, jobs, batches=seed % 5 == 0), window=window_of(seed))
    application.finish()
    if not noisy:
        application.check()
    check_values(application)
    return world


def check_values(application: Application) -> None:
    """What the rewarder knows at rest is the sum of all full windows, in the order of lessons."""
    world = application.world
    learned = sorted(application.jobs, key=lambda job: job.version)
    rewards = [reward for job in learned for reward in job.rewards]
    windows = len(rewards) // WINDOW
    machine = world.nodes[REWARDER].machine
    assert isinstance(machine, Rewarder)
    values = machine.values
    if values is None or values.windows != windows:
        raise Violation(f"{windows} windows are full, and the rewarder knows {values}")
    both = values.by_policy[GREEDY].unbiased * (1 - EPSILON) + values.by_policy[UNIFORM].unbiased * EPSILON
    if abs(both * values.decisions - sum(rewards[: windows * WINDOW])) > 0.1:
        raise Violation("the rewards of the windows do not add up")
    for party in world.parties:
        ledger = ledger_of(world, party)
        if ledger.openings < windows or ledger.row_opened < LOUD**2:
            raise Violation(f"{party} has not counted all windows")


def ledger_of(world: World, party: Identity) -> PrivacyLedger:
    machine = world.nodes[party].machine
    assert isinstance(machine, Party)
    return machine.records.ledger


@pytest.mark.parametrize("group", range(GROUPS))
def test_windows_are_told_once_counted_before_and_complete(group: int) -> None:
    crashes = 0
    for seed in range(group, SEEDS, GROUPS):
        try:
            crashes += simulate(seed, Faults(crash=0.005, cut=0.002), noisy=seed % 4 == 3).crashes
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert crashes > SEEDS / GROUPS


def test_three_parties_and_many_crashes() -> None:
    assert simulate(2, Faults(crash=0.006, cut=0.003), jobs=7, parties=3).crashes > 5


def test_without_crashes_every_window_is_counted_once() -> None:
    world = simulate(1, Faults(crash=0, cut=0))
    assert {ledger_of(world, party).openings for party in world.parties} == {5}
    assert {ledger_of(world, party).row_opened for party in world.parties} == {LOUD**2}


def test_going_back_behind_a_window_counts_it_again() -> None:
    world = ValuesWorld(3, Faults(crash=0, cut=0), evaluated_federation())
    application = Application(world, jobs_of(world, 8, batches=False))
    finish(application, application.jobs[:3])
    node = world.nodes[world.parties[1]]
    assert node.disk is not None
    backup = node.disk.store.copy()
    finish(application, application.jobs[:6])
    for party in world.parties:
        world.crash(world.nodes[party])
    node.disk.store = backup
    consent(world)
    world.totals.clear()
    finish(application, application.jobs[6:])
    assert ledger_of(world, world.parties[0]).row_opened == 2 * LOUD**2
