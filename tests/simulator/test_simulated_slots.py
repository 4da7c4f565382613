"""Worlds with reward slots, crashes between any two effects and cut links: every decision that an application was told
of is learned once, with its reward if that was acknowledged and with the default if it came too late; no mask hides two
values. What slots are is tested in tests/roles/test_reward_slots.py.

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
from hiddenarm.roles.client_records import RewarderRecords
from hiddenarm.roles.messages import REWARDER
from hiddenarm.roles.rewarder import Rewarder

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "40"))
GROUPS = 4
SLOT = 2
DEFAULT = 0.25


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes by the thousand are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def slotted_federation(arms: int = 2) -> Federation:
    return Federation(arms, (1, 1), epsilon=0.3, reward_slot=SLOT, default_reward=DEFAULT)


@dataclass
class InSlots(Application):
    """Gives rewards, and hears at once that they are written down, or that they come too late."""

    given: dict[int, tuple[int, Job]] = field(default_factory=dict)
    """By receipt: the rewarder's life, and what was given."""
    late: int = 0

    def _lessons_to_wait_for(self) -> int:
        return 0

    def _teach(self, job: Job) -> None:
        node = self.world.nodes[REWARDER]
        machine = node.machine
        if not isinstance(machine, Rewarder):
            return
        assert job.decisions is not None
        pairs = list(zip([decision.id for decision in job.decisions], job.rewards, strict=True))
        try:
            receipt = self.world.run(node, lambda: machine.give(*pairs, request=f"r{job.name}"))
        except DecisionIdError as error:
            if "comes too late" not in str(error):
                raise Violation(f"an acknowledged decision cannot be rewarded: {error}") from None
            self._note_late(machine, job)
        except UnavailableError:
            return
        else:
            if receipt is not None:
                self.given[receipt] = node.lives, job

    def _note_late(self, machine: Rewarder, job: Job) -> None:
        """All or none of a request is taken. Those of it that are not late are late by the time the world is at
        rest."""
        job.rewards = [DEFAULT] * len(job.rewards)
        job.acknowledged = True
        self.late += 1

    def listen(self) -> None:
        super().listen()
        node = self.world.nodes[REWARDER]
        for receipt, (life, job) in list(self.given.items()):
            if life != node.lives or not isinstance(node.machine, Rewarder):
                del self.given[receipt]
            elif node.machine.is_given(receipt):
                job.acknowledged = True

    def _at_rest(self) -> bool:
        if not super()._at_rest():
            return False
        written = {self._kept(number) for number in range(len(self.world.parties))}
        return len(written) == 1 and set(self._decisions()) <= {name for name, _ in self._learned(0)}

    def _decisions(self) -> dict[int, tuple[Job, int]]:
        """All decisions that were told, by name."""
        told = {}
        for job in self.jobs:
            for place, decision in enumerate(job.decisions or []):
                epoch, number, _ = decision.id.split("-")
                told[decision_name(int(epoch, 16), int(number))] = job, place
        return told

    def _learned(self, party: int) -> list[tuple[int, int]]:
        return [reward for lesson in self._log(party) if not lesson.refused for reward in lesson.rewards]

    def check(self) -> None:
        """All parties hold the same log, which has every decision once; the model is its fold."""
        logs = [self._log(number) for number in range(len(self.world.parties))]
        if any(lesson.refused for lesson in logs[0]):
            raise Violation(f"a slot was refused: {[lesson.refused for lesson in logs[0]]}")
        if any(self._learned(number) != self._learned(0) for number in range(len(logs))):
            raise Violation("the parties hold different logs")
        names = [name for name, _ in self._learned(0)]
        told = self._decisions()
        if len(set(names)) != len(names) or not told.keys() <= set(names):
            raise Violation("a decision was not learned, or was learned twice")
        self._check_rewards(told)

    def _check_rewards(self, told: dict[int, tuple[Job, int]]) -> None:
        """What was masked is what was given, or the default where nothing was."""
        rewarder = self.world.nodes[REWARDER].machine
        assert isinstance(rewarder, Rewarder)
        for name, masked in self._learned(0):
            value = (masked - rewarder._mask(name, {})) % 2**64 / 2**self.world.federation.fraction_bits
            job, place = told.get(name, (None, 0))
            expected = DEFAULT if job is None else job.rewards[place]
            if value != expected:
                raise Violation(f"reward {value} was learned where {expected} was given")


def run(seed: int, faults: Faults | None = None, arms: int = 2) -> InSlots:
    world = World(seed, faults or Faults(), slotted_federation(arms))
    application = InSlots(world, jobs_of(world, 8, batches=False))
    application.finish()
    application.check()
    return application


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_decision_is_learned_once_with_what_was_acknowledged(group: int) -> None:
    crashes = late = 0
    for seed in range(group, SEEDS, GROUPS):
        try:
            application = run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        crashes += application.world.crashes
        late += application.late
    print(f"{crashes} crashes, {late} rewards too late")
    assert crashes > SEEDS / GROUPS
    assert late


def test_a_world_of_many_arms() -> None:
    """The parties have one-hots of their own: a decision can be rewarded when it is kept."""
    run(3, arms=50)


def test_decisions_that_are_not_awaited_any_more_are_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is awaited is forgotten in a crash: it is named again, and nothing is lost."""
    real = RewarderRecords.__init__

    def forgetful(self: RewarderRecords, *given: object) -> None:
        real(self, *given)  # type: ignore[arg-type]
        self.awaited = []

    monkeypatch.setattr(RewarderRecords, "__init__", forgetful)
    for seed in range(10):
        run(seed)
