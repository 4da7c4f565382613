"""Worlds in which decisions expire, with crashes between any two effects and cut links: every decision that an
application was told of ends once, with its reward if that was acknowledged, else as it was agreed for what has expired.
What expiry is, is tested in tests/roles/test_expiry.py.

HIDDENARM_SEEDS says how many worlds; `make soak` runs a thousand.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import structlog
from application import Application, Job, jobs_of
from world import Faults, Violation, World

from hiddenarm.bandit.decisions import decision_name
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import DecisionIdError, UnavailableError
from hiddenarm.roles.messages import REWARDER
from hiddenarm.roles.rewarder import Rewarder

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "60"))
GROUPS = 2
EXPIRED = 0.25


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes by the thousand are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@dataclass
class Expiring(Application):
    """Rewards two jobs of three, and never the third."""

    late: set[str] = field(default_factory=set)

    def _lessons_to_wait_for(self) -> int:
        return 0

    def _teach(self, job: Job) -> None:
        node = self.world.nodes[REWARDER]
        machine = node.machine
        assert job.decisions is not None
        if self.jobs.index(job) % 3 == 2:
            self._expires(job)
            return
        if not isinstance(machine, Rewarder):
            return
        pairs = list(zip([decision.id for decision in job.decisions], job.rewards, strict=True))
        try:
            number = self.world.run(node, lambda: machine.teach(*pairs, request=f"r{job.name}"))
        except DecisionIdError as error:
            if "has expired" not in str(error):
                raise Violation(f"an acknowledged decision cannot be rewarded: {error}") from None
            self._expires(job)
            self.late.add(job.name)
        except UnavailableError:
            return
        else:
            if number is not None:
                self.taught[number] = job

    def _expires(self, job: Job) -> None:
        job.rewards = [EXPIRED] * len(job.rewards)
        job.acknowledged = True

    def _at_rest(self) -> bool:
        if not super()._at_rest():
            return False
        written = {self._kept(number) for number in range(len(self.world.parties))}
        return len(written) == 1 and self._told().keys() <= {name for name, _ in self._ended(0)}

    def _told(self) -> dict[int, float]:
        """The reward of every decision that was told, by its name."""
        told = {}
        for job in self.jobs:
            for place, decision in enumerate(job.decisions or []):
                epoch, number, _ = decision.id.split("-")
                told[decision_name(int(epoch, 16), int(number))] = job.rewards[place]
        return told

    def _ended(self, party: int) -> list[tuple[int, int | None]]:
        """How decisions ended, in the log of a party: masked rewards, or nothing if they were dropped."""
        ended: list[tuple[int, int | None]] = []
        for lesson in self._log(party):
            if lesson.refused:
                raise Violation(f"a lesson was refused: {lesson.refused}")
            ended += lesson.rewards
            ended += [] if lesson.unlearning is None else [(lesson.unlearning.name, None)]
        return ended

    def check(self) -> None:
        ended, told = self._ended(0), self._told()
        names = [name for name, _ in ended]
        if any(self._ended(number) != ended for number in range(len(self.world.parties))):
            raise Violation("the parties hold different logs")
        if len(set(names)) != len(names) or not told.keys() <= set(names):
            raise Violation("a decision did not end, or ended twice")
        rewarder = self.world.nodes[REWARDER].machine
        assert isinstance(rewarder, Rewarder)
        for name, masked in ended:
            expected, federation = told.get(name, EXPIRED), self.world.federation
            if masked is None:
                value = EXPIRED if federation.expired_reward is None else None
            else:
                value = (masked - rewarder._mask(name, {})) % 2**64 / 2**federation.fraction_bits
            if value != expected:
                raise Violation(f"a decision ended with {value} where {expected} was given")


def run(seed: int, faults: Faults | None = None) -> Expiring:
    reward = EXPIRED if seed // 2 % 2 else None
    federation = Federation(2, (1, 1), epsilon=0.3, expires_after=2, expired_reward=reward)
    application = Expiring(world := World(seed, faults or Faults(), federation), jobs_of(world, 9, batches=False))
    application.finish()
    application.check()
    return application


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_decision_ends_once_as_it_was_acknowledged_or_agreed(group: int) -> None:
    crashes = late = 0
    for seed in range(group, SEEDS, GROUPS):
        try:
            application = run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        crashes += application.world.crashes
        late += len(application.late)
    print(f"{crashes} crashes, {late} rewards too late")
    assert crashes > SEEDS / GROUPS / 2
    assert late
