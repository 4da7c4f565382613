"""What parties count and show over epochs that open and end: counters never fall or vanish while a process lives."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from application import Application, federation_of, jobs_of
from world import Faults, World

from hiddenarm.roles.metrics import INTERACTIONS, RUNS, Sample, _of_runs
from hiddenarm.roles.party import Party

Counters = dict[tuple[object, ...], float]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


class WatchedWorld(World):
    """Looks at every party after every event."""

    def watch(self) -> None:
        self.counted: dict[int, Counters] = {}
        self.between_epochs = 0

    def step(self) -> None:
        super().step()
        for machine in self.party_machines:
            self._look_at(machine)

    @property
    def party_machines(self) -> list[Party]:
        machines = [node.machine for node in self.nodes.values()]
        return [machine for machine in machines if isinstance(machine, Party)]

    def _look_at(self, party: Party) -> None:
        vitals = party.vitals()
        assert vitals.version is not None
        assert vitals.pending is not None
        now, before = counters(_of_runs(vitals.runs)), self.counted.get(id(party), {})
        assert before.keys() <= now.keys()
        assert all(now[name] >= value for name, value in before.items())
        self.counted[id(party)] = now
        self.between_epochs += bool(before) and not party.active


def counters(samples: Iterator[Sample]) -> Counters:
    return {
        (one.family.name, one.suffix, one.labels): one.value for one in samples if one.family in (RUNS, INTERACTIONS)
    }


def test_counters_never_fall_while_links_are_cut() -> None:
    world = WatchedWorld(5, Faults(crash=0, cut=0.01), federation_of())
    world.watch()
    application = Application(world, jobs_of(world, 10, batches=True))
    application.finish()
    assert world.crashes == 0
    assert world.between_epochs > 10
    assert all(party.vitals().runs["decide"].runs >= 5 for party in world.party_machines)
