"""Worlds in which rewards of several requests are learned as one lesson: crashes and cut links fall between what is
written down of it and what becomes of each of them.

HIDDENARM_SEEDS says how many worlds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import structlog
from application import Application, Job, federation_of, jobs_of
from world import Faults, Violation, World

from hiddenarm.errors import ConflictError, DecisionIdError
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.joint_rewards import JointRewarder, NamedReward
from hiddenarm.roles.messages import REWARDER
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_records import PartyRecords

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "100")) // 4
WINDOW = 8
MOST = 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@dataclass
class Joint(Application):
    """Gives the rewards of several jobs at once, each under a name of its own, some of them again."""

    lessons: dict[str, int] = field(default_factory=dict)
    """The lesson of each job that was taught."""

    def _teach(self, job: Job) -> None:
        node, random = self.world.nodes[REWARDER], self.world.random
        machine = node.machine
        if not isinstance(machine, JointRewarder):
            return
        decided = [other for other in self.jobs if other.decisions is not None and other is not job]
        jobs = [job, *random.sample(decided, min(len(decided), random.randrange(MOST)))]
        rewards = [self._reward_of(one) for one in jobs]
        outcomes = self.world.run(node, lambda: machine.teach_together(rewards))
        for one, outcome in zip(jobs, outcomes or [], strict=bool(outcomes)):
            if isinstance(outcome, DecisionIdError):
                raise Violation(f"an acknowledged decision cannot be rewarded: {outcome}")
            if isinstance(outcome, int):
                self.lessons[one.name] = outcome
        self._check_other_rewards_are_refused(machine, job)

    def _lessons_to_wait_for(self) -> int:
        """Some jobs want a model with all lessons that were made; there are fewer than jobs."""
        machine = self.world.nodes[REWARDER].machine
        wants = isinstance(machine, JointRewarder) and self.world.random.random() > 0.7
        return machine._records.made if wants else 0  # type: ignore[union-attr]

    def _reward_of(self, job: Job) -> NamedReward:
        assert job.decisions is not None
        return NamedReward(job.decisions[0].id, job.rewards[0], f"r{job.name}")

    def _check_other_rewards_are_refused(self, machine: JointRewarder, job: Job) -> None:
        if machine._lesson_of(f"r{job.name}") is None or self.world.random.random() > 0.2:
            return
        given = self._reward_of(job)
        others = [self._reward_of(other) for other in self.jobs if other.decisions is not None and other is not job]
        wrong = [given._replace(reward=1 - given.reward), *(other._replace(request=given.request) for other in others)]
        for outcome in machine.teach_together(wrong):
            if not isinstance(outcome, ConflictError):
                raise Violation(f"another reward was taken under the name of {job.name}: {outcome}")

    def listen(self) -> None:
        super().listen()
        rewarder = self.world.nodes[REWARDER].machine
        if not isinstance(rewarder, JointRewarder):
            return
        for job in self.jobs:
            number = self.lessons.get(job.name)
            if job.acknowledged or number is None or self.world.random.random() < 0.5:
                continue
            if rewarder._lesson_of(f"r{job.name}") != number:
                del self.lessons[job.name]  # it was never written down, and the number is another lesson's now
            elif (ending := rewarder.ending(number)) is not None:
                if ending:
                    raise Violation(f"the reward of {job.name} was refused: {ending}")
                job.acknowledged, job.version = True, number + 1

    def check(self) -> None:
        """Every acknowledged reward is learned once, in the lesson that was said."""
        if not self.world.lasting:
            self._check_model(sorted(self.jobs, key=lambda job: job.version))
            return
        logs = [self._log(number) for number in range(len(self.world.parties))]
        if any([lesson.rewards for lesson in log] != [lesson.rewards for lesson in logs[0]] for log in logs):
            raise Violation("the parties hold different logs")
        rewarder = self.world.nodes[REWARDER].machine
        assert isinstance(rewarder, JointRewarder)
        by_name = {}
        for job in self.jobs:
            assert job.decisions is not None
            by_name[rewarder._name_of(job.decisions[0].id)] = job
        learned = []
        for lesson in logs[0]:
            for name, word in () if lesson.refused else lesson.rewards:
                job = by_name.pop(name)
                learned.append(job)
                if job.version != lesson.number + 1:
                    raise Violation(f"{job.name} was learned in lesson {lesson.number}, not in {job.version - 1}")
                lesson_of_one = type(lesson)(lesson.number, [(name, word)])
                self._check_arms(job, lesson_of_one)
        if by_name:
            raise Violation(f"{len(by_name)} acknowledged rewards were not learned")
        self._check_model(learned)


def simulated(seed: int, faults: Faults | None = None, **options: object) -> Joint:
    world = World(seed, faults or Faults(), federation_of(), **options)  # type: ignore[arg-type]
    application = Joint(world, jobs_of(world, 14, batches=False), window=WINDOW)
    application.finish()
    application.check()
    return application


def joined(application: Joint) -> int:
    """How many rewards were learned with others."""
    versions = [job.version for job in application.jobs]
    return sum(versions.count(version) > 1 for version in versions)


@pytest.mark.parametrize("group", range(5))
def test_nothing_acknowledged_is_lost_or_doubled_where_rewards_are_learned_together(group: int) -> None:
    crashes = together = 0
    for seed in range(group, SEEDS, 5):
        try:
            application = simulated(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        crashes += application.world.crashes
        together += joined(application)
    assert crashes > SEEDS / 5
    assert together > SEEDS / 5


def test_in_memory() -> None:
    found = [simulated(seed, Faults(crash=0, cut=0), peer_loss=PeerLoss.ENDS_FEDERATION) for seed in range(4)]
    assert sum(map(joined, found)) > 8


def test_after_going_back_no_acknowledged_reward_is_lost_for_the_sake_of_another() -> None:
    """A party has lost some of the decisions that were rewarded in one lesson: the others are learned one by one."""
    crashes = 0
    for seed in range(max(4, SEEDS // 2)):
        crashes += went_back(seed).world.crashes
    assert crashes > SEEDS


def went_back(seed: int) -> Joint:
    """Party 1 comes back with the disk it had before the second half of the decisions, and all agree to go on."""
    world = World(seed, Faults(crash=0, cut=0), federation_of())
    application = Joint(world, jobs_of(world, 6, batches=False))
    jobs, node = application.jobs, world.nodes[world.parties[1]]
    kept, lost = jobs[:3], jobs[3:]
    decide(application, kept)
    for _ in range(300):  # until their arms are kept, too
        world.step()
    assert node.disk is not None
    backup = node.disk.store.copy()
    decide(application, lost)
    rewarder = world.nodes[REWARDER].machine
    assert isinstance(rewarder, JointRewarder)
    numbers = rewarder.teach_together([application._reward_of(job) for job in jobs])
    assert numbers == [0] * len(jobs)
    application.lessons = dict.fromkeys((job.name for job in jobs), 0)
    application.finish()
    for party in world.parties:
        world.crash(world.nodes[party])
    node.disk.store = backup
    consent(world)
    world.faults, world.calm = Faults(crash=0.01, cut=0.004), False
    for _ in range(1000):
        world.step()
    application.jobs = []
    application.finish()
    while (rewarder := world.nodes[REWARDER].machine) is None or rewarder.busy:
        world.step()
    learned = [name for lesson in application._log(0) if not lesson.refused for name, _ in lesson.rewards]
    rewarder = world.nodes[REWARDER].machine
    assert isinstance(rewarder, JointRewarder)
    assert sorted(learned) == sorted(rewarder._name_of(application._reward_of(job).decision) for job in kept)
    again = rewarder.teach_together([application._reward_of(job) for job in jobs])
    endings = [rewarder.ending(number) for number in again if isinstance(number, int)]
    assert [ending == "" for ending in endings] == [True] * len(kept) + [False] * len(lost)
    return application


def decide(application: Joint, jobs: list[Job]) -> None:
    for job in jobs:
        application._ask(job)
    while any(job.decisions is None for job in jobs):
        application.world.step()
        application.listen()
        if not application.asked:
            for job in jobs:
                if job.decisions is None:
                    application._ask(job)


def consent(world: World) -> None:
    for party in world.parties:
        node = world.nodes[party]
        world.start(node)
        assert isinstance(node.machine, Party)
        assert isinstance(node.machine.records, PartyRecords)
        node.machine.records.consent()
        world.crash(node)
