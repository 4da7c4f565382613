"""An application that has decisions unlearned at random: some that were learned, some that never had a reward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from application import UNIT, Application, Job, federation_of, jobs_of, window_of
from world import KEYS, Faults, Violation, World

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import DecisionIdError, UnavailableError
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.messages import REWARDER
from hiddenarm.roles.party import Party
from hiddenarm.roles.retention import NOT_KEPT
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.updater import Lesson


class Unrewarded(Job):
    """Something to decide that never gets a reward."""


@dataclass
class Forget(Job):
    """A decision of an earlier job to unlearn."""

    target: Job | None = None
    place: int = 0
    refused: bool = False

    @property
    def id(self) -> str:
        assert self.target is not None
        assert self.target.decisions is not None
        return self.target.decisions[self.place].id


def with_forgetting(world: World, jobs: list[Job], share: float = 0.5) -> list[Job]:
    """The same jobs, some never rewarded, and behind some of them that one of their decisions is to be unlearned."""
    mixed: list[Job] = []
    waiting: list[Forget] = []
    for job in jobs:
        if len(job.keys) == 1 and world.random.random() < 0.2:
            job = Unrewarded(job.name, job.keys, job.rewards)
        mixed.append(job)
        if isinstance(job, Unrewarded) or world.random.random() < share:
            place = world.random.randrange(len(job.keys))
            waiting.append(Forget(f"forget {job.name}", [], [], target=job, place=place))
        if waiting and world.random.random() < 0.6:
            mixed.append(waiting.pop(world.random.randrange(len(waiting))))
    return [*mixed, *waiting]


class UnlearningApplication(Application):
    """Drives a world through jobs and unlearnings."""

    def _ask(self, job: Job) -> None:
        if isinstance(job, Forget):
            self._forget(job)
        else:
            super()._ask(job)

    def _lessons_to_wait_for(self) -> int:
        if self.world.random.random() < 0.7:
            return 0
        return sum(job.acknowledged and not isinstance(job, Unrewarded) for job in self.jobs)

    def _teach(self, job: Job) -> None:
        if isinstance(job, Unrewarded):
            job.acknowledged = True
        else:
            super()._teach(job)

    def _forget(self, job: Forget) -> None:
        node = self.world.nodes[REWARDER]
        machine = node.machine
        if not isinstance(machine, Rewarder) or job.target is None or not job.target.acknowledged:
            return
        try:
            number = self.world.run(node, lambda: machine.unlearn(job.id))
        except UnavailableError:
            return
        if number is not None:
            self.taught[number] = job

    def _hear_ending(self, rewarder: Rewarder, number: int, job: Job) -> None:
        if not isinstance(job, Forget):
            super()._hear_ending(rewarder, number, job)
            return
        if rewarder._records.unlearned_by(rewarder._name_of(job.id)) != number:
            del self.taught[number]  # it was never written down
            return
        ending = rewarder.ending(number)
        if ending and self.world.federation.keep_interactions and NOT_KEPT in ending:
            job.acknowledged, job.refused, job.version = True, True, number + 1
            return
        if ending:
            raise Violation(f"{job.name} was refused: {ending}")
        if ending is not None:
            job.acknowledged, job.version = True, number + 1
            self._check_forgotten(rewarder, job)

    def _check_forgotten(self, rewarder: Rewarder, job: Forget) -> None:
        """It cannot be rewarded, and is the same unlearning when it is asked for again."""
        try:
            rewarder.teach((job.id, 1.0), request=f"again {job.name}")
        except (DecisionIdError, UnavailableError):
            return
        raise Violation(f"{job.name} was rewarded after that")

    # What came out

    def check(self) -> None:
        """All that was acknowledged happened once, and the model is that of what is left."""
        entries = {job.version: job for job in self.jobs if not isinstance(job, Unrewarded)}
        expected = len(self.jobs) - sum(isinstance(job, Unrewarded) for job in self.jobs)
        if len(entries) != expected:
            raise Violation("two lessons were acknowledged with one number")
        if self.world.lasting:
            self._check_logs(entries)
        elif {self._kept(number) for number in range(len(self.world.parties))} != {expected}:
            raise Violation("the parties have learned another number of lessons than were acknowledged")
        self._check_left([entries[version] for version in sorted(entries)])

    def _check_logs(self, entries: dict[int, Job]) -> None:
        logs = [self._log(number) for number in range(len(self.world.parties))]
        contents = [[(lesson.rewards, lesson.unlearning, lesson.refused) for lesson in log] for log in logs]
        if any(content != contents[0] for content in contents):
            raise Violation("the parties hold different logs")
        learned = [lesson for lesson in logs[0] if not lesson.refused]
        done = {version for version, job in entries.items() if not isinstance(job, Forget) or not job.refused}
        if {lesson.number + 1 for lesson in learned} != done:
            raise Violation(f"{len(learned)} lessons are in the log, and {len(done)} were acknowledged")
        for lesson in learned:
            job = entries[lesson.number + 1]
            if isinstance(job, Forget) is (lesson.unlearning is None):
                raise Violation(f"{job.name} is another lesson in the log")
            if lesson.rewards and self._is_kept(logs[0], lesson.number, len(logs[0])):
                self._check_arms(job, lesson)
        for lesson in logs[0]:
            unlearning = lesson.unlearning
            if unlearning is None or unlearning.drops:
                continue
            if self._is_kept(logs[0], unlearning.learned_in, lesson.number) is bool(lesson.refused):
                raise Violation(f"lesson {lesson.number} was {lesson.refused or 'unlearned'}, and should not be")

    def _is_kept(self, log: list[Lesson], number: int, at: int) -> bool:
        """Whether what lesson `number` learned is kept when lesson `at` comes."""
        most = self.world.federation.keep_interactions
        later = sum(len(lesson.rewards) for lesson in log[number + 1 : at] if not lesson.refused)
        return not most or later < most

    def _check_left(self, entries: list[Job]) -> None:
        """The model is that of a twin which never saw what was unlearned."""
        federation = self.world.federation
        gone = {(id(job.target), job.place) for job in entries if isinstance(job, Forget) and not job.refused}
        twin = PlainBandit(federation.arms, federation.dimension, federation.ridge)
        for job in entries:
            for place, (key, reward) in enumerate(zip(job.keys, job.rewards, strict=True)):
                assert job.decisions is not None
                if (id(job), place) not in gone:
                    twin.learn(self.world.contexts[KEYS.index(key)], job.decisions[place].arm, reward)
        models = []
        for party in self.world.parties:
            machine = self.world.nodes[party].machine
            assert isinstance(machine, Party)
            assert machine._epoch is not None
            models.append(machine._epoch._updater.state)
        inverses, weights = federation.learner.reveal(models)
        rows, columns = np.triu_indices(federation.dimension)
        error = max(
            float(np.abs(weights[0] - twin.weights).max()),
            float(np.abs(inverses[0] - twin.inverses[:, rows, columns]).max()),
        )
        if error > UNIT * len(entries):
            raise Violation(f"the model is off by {error / UNIT:.1f} units after {len(entries)} lessons")


@lru_cache
def keeping(kept: int, parties: int = 2) -> Federation:
    """The usual federation, which keeps so many interactions; 0 for all."""
    if not kept:
        return federation_of(parties)
    return Federation(arms=2, features=(1,) * parties, epsilon=0.3, repair_every=4, keep_interactions=kept)


def simulate_unlearning(
    seed: int, faults: Faults | None = None, jobs: int = 8, parties: int = 2, memory: bool = False, kept: int = 0
) -> World:
    """One world from its beginning to rest, checked."""
    usual = Faults(crash=0, cut=0) if memory else Faults()
    loss = PeerLoss.ENDS_FEDERATION if memory else PeerLoss.ENDS_EPOCH
    world = World(seed, faults or usual, keeping(kept, parties), peer_loss=loss)
    mixed = with_forgetting(world, jobs_of(world, jobs, batches=seed % 2 == 0))
    application = UnlearningApplication(world, mixed, window=window_of(seed))
    application.finish()
    application.check()
    return world
