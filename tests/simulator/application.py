"""The application in the simulated world: it asks for decisions and gives rewards, over channels that lose, repeat and
reorder, until everything is answered; and the checks of what came out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from world import KEYS, Faults, Violation, World

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import DecisionIdError, HiddenArmError, InputError, UnavailableError
from hiddenarm.ring.words import Floats, Words
from hiddenarm.roles.actor import Actor, Outcome
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.messages import ACTOR, REWARDER
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_epoch import NO_LESSON
from hiddenarm.roles.party_records import Records
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.updater import Lesson

PATIENCE = 60_000
"""Events after which a world that does not come to rest is called stuck."""
UNIT = 2.0**-16
"""How far two honest runs of a lesson may be apart: the largest error of the reciprocal, which is looked up at one of
two neighbours in a table at random (`reciprocal_bits` = 8)."""


@dataclass
class Job:
    """Something to decide for some keys, and to learn from."""

    name: str
    keys: list[str]
    rewards: list[float]
    after: int | None = None
    decisions: list[Decision] | None = None
    acknowledged: bool = False
    version: int = 0
    eligible: list[int] | None = None
    """The arms that may be chosen; all unless given."""


@dataclass
class Application:
    """Drives a world through some jobs."""

    world: World
    jobs: list[Job]
    asked: dict[int, Job] = field(default_factory=dict)
    asked_in_life: int = 0
    taught: dict[int, Job] = field(default_factory=dict)
    window: int = 3
    together: bool = False
    """Whether requests that wait may share a run."""
    impatient: bool = False
    given_up: int = 0

    def finish(self) -> None:
        """Do all jobs, then let the world come to rest."""
        world = self.world
        for event in range(PATIENCE):
            world.calm = world.calm or event > PATIENCE // 2
            if all(job.acknowledged for job in self.jobs):
                break
            self.talk()
            world.step()
            if world.refused:
                raise Violation(f"{world.refused[0]} was refused: its state is older than what others know of it")
            self.listen()
        else:
            raise Violation(f"stuck: {sum(not job.acknowledged for job in self.jobs)} jobs are not done")
        world.calm = True
        for node in world.nodes.values():
            node.fuse = None
        for _ in range(PATIENCE):
            if self._at_rest():
                return
            world.step()
        raise Violation("the world does not come to rest")

    def _at_rest(self) -> bool:
        parties = [self.world.nodes[party].machine for party in self.world.parties]
        if not all(isinstance(party, Party) and party.active for party in parties):
            return False
        updaters = [party._epoch._updater for party in parties]  # type: ignore[union-attr]
        return all(updater.version == updater.taught == self._kept(0) for updater in updaters)

    # Talking

    def talk(self) -> None:
        """Now and then, ask for something or teach something."""
        random, faults = self.world.random, self.world.faults
        if random.random() >= 0.15:
            return
        waiting = [job for job in self.jobs if not job.acknowledged][: self.window]
        if not waiting or random.random() < faults.lost:
            return
        job = random.choice(waiting)
        for _ in range(2 if random.random() < faults.repeated else 1):
            if job.decisions is None:
                self._ask(job)
            else:
                self._teach(job)

    def _ask(self, job: Job) -> None:
        node = self.world.nodes[ACTOR]
        machine = node.machine
        if not isinstance(machine, Actor):
            return
        if job.after is None:
            job.after = self._lessons_to_wait_for()
        after = job.after
        self._check_other_content_is_refused(machine, job)
        ticket = self.world.run(
            node,
            lambda: machine.ask(
                *job.keys, after=after, request=job.name, eligible=job.eligible, together=self.together
            ),
        )
        if ticket is not None:
            self._fresh_life()
            self.asked[ticket] = job

    def _lessons_to_wait_for(self) -> int:
        """Some jobs want a model with lessons that are still to come. One wants that of a job which is asked for behind
        it: the parties give it up after a while, and it is asked for again."""
        if self.world.random.random() < 0.7:
            return 0
        decided = sum(job.decisions is not None for job in self.jobs)
        if not self.impatient and self.window > 1 and decided < len(self.jobs) - 1:
            self.impatient = True
            return decided + 1
        return decided

    def _fresh_life(self) -> None:
        """Tickets are those of one life of the actor."""
        lives = self.world.nodes[ACTOR].lives
        if lives != self.asked_in_life:
            self.asked, self.asked_in_life = {}, lives

    def _check_other_content_is_refused(self, machine: Actor, job: Job) -> None:
        if machine._records.asked(job.name) is not None and self.world.random.random() < 0.1:
            with pytest.raises(InputError, match=f"request '{job.name}' was made before"):
                machine.ask(*job.keys, after=(job.after or 0) + 1, request=job.name, eligible=job.eligible)

    def _teach(self, job: Job) -> None:
        node = self.world.nodes[REWARDER]
        machine = node.machine
        if not isinstance(machine, Rewarder):
            return
        assert job.decisions is not None
        pairs = list(zip([decision.id for decision in job.decisions], job.rewards, strict=True))
        if self.world.random.random() < 0.1:
            self._change_mind(machine, job)
            return
        try:
            number = self.world.run(node, lambda: machine.teach(*pairs, request=f"r{job.name}"))
        except DecisionIdError as error:
            raise Violation(f"an acknowledged decision cannot be rewarded: {error}") from None
        except UnavailableError:
            return
        if number is not None:
            self.taught[number] = job

    def _change_mind(self, machine: Rewarder, job: Job) -> None:
        """Give other rewards for the same decisions; refused if the first were written down, taken if not."""
        assert job.decisions is not None
        other = [1 - reward for reward in job.rewards]
        pairs = list(zip([decision.id for decision in job.decisions], other, strict=True))
        try:
            number = self.world.run(self.world.nodes[REWARDER], lambda: machine.teach(*pairs, request=f"r{job.name}"))
        except (InputError, UnavailableError):
            return
        if number is not None:
            job.rewards = other
            self.taught[number] = job

    # Listening

    def listen(self) -> None:
        actor, rewarder = self.world.nodes[ACTOR].machine, self.world.nodes[REWARDER].machine
        if isinstance(actor, Actor):
            self._fresh_life()
            for ticket in [ticket for ticket in self.asked if ticket in actor.outcomes]:
                self._hear_decisions(self.asked.pop(ticket), actor.outcomes.pop(ticket))
        if isinstance(rewarder, Rewarder):
            for number, job in list(self.taught.items()):
                if not job.acknowledged and self.world.random.random() < 0.5:
                    self._hear_ending(rewarder, number, job)

    def _hear_decisions(self, job: Job, outcome: Outcome) -> None:
        if isinstance(outcome, UnavailableError):
            self.given_up += NO_LESSON in str(outcome)
            return
        if self.world.random.random() < self.world.faults.lost:
            return
        if isinstance(outcome, HiddenArmError):
            raise Violation(f"request {job.name} failed: {outcome}")
        decisions = [answer for answer in outcome if isinstance(answer, Decision)]
        if len(decisions) != len(outcome):
            raise Violation(f"a key of request {job.name} was refused")
        if job.eligible is not None and not {decision.arm for decision in decisions} <= set(job.eligible):
            raise Violation(f"request {job.name} got an arm that is not eligible")
        if job.decisions is not None and job.decisions != decisions:
            raise Violation(f"request {job.name} was answered in two ways")
        job.decisions = decisions

    def _hear_ending(self, rewarder: Rewarder, number: int, job: Job) -> None:
        if number >= rewarder._records.made or rewarder._records.lesson(number).request != f"r{job.name}":
            del self.taught[number]  # it was never written down, and the number is another lesson's now
            return
        ending = rewarder.ending(number)
        if ending:
            raise Violation(f"the rewards of {job.name} were refused: {ending}")
        if ending is not None:
            job.acknowledged, job.version = True, number + 1

    # What came out

    def _log(self, party: int) -> list[Lesson]:
        return self._records(party).lessons(0, 2**60)

    def _kept(self, party: int) -> int:
        """How many lessons a party has written down; in memory, has counted."""
        return len(self._log(party)) if self.world.lasting else self._records(party).committed.lessons

    def check(self) -> None:
        """Every acknowledged reward is learned once, all parties hold the same log, and the model is its fold."""
        if not self.world.lasting:
            self._check_in_memory()
            return
        logs = [self._log(number) for number in range(len(self.world.parties))]
        if any([lesson.rewards for lesson in log] != [lesson.rewards for lesson in logs[0]] for log in logs):
            raise Violation("the parties hold different logs")
        learned = [lesson for lesson in logs[0] if not lesson.refused]
        if len(learned) != len(self.jobs):
            raise Violation(f"{len(learned)} lessons were learned of {len(self.jobs)} that were acknowledged")
        by_version = {job.version: job for job in self.jobs}
        if by_version.keys() != {lesson.number + 1 for lesson in learned}:
            raise Violation("a lesson was acknowledged that is not in the log")
        for lesson in learned:
            self._check_arms(by_version[lesson.number + 1], lesson)
        self._check_model([by_version[lesson.number + 1] for lesson in learned])

    def _check_arms(self, job: Job, lesson: Lesson) -> None:
        """The arms that were learned are those that the application was told."""
        assert job.decisions is not None
        for decision, (name, _) in zip(job.decisions, lesson.rewards, strict=True):
            kept = [self._records(number).interaction(name) for number in range(len(self.world.parties))]
            shares = [own.arm_share(number == 0) for number, own in enumerate(kept) if own is not None]
            if len(shares) != len(kept) or not np.array_equal(np.add.reduce(shares)[0], self._known_by(decision)):
                raise Violation(f"another arm was learned than that which {job.name} was told")

    def _made_with(self, decision: Decision) -> Federation:
        """The federation by which a decision was made."""
        return self.world.federation

    def _known_by(self, decision: Decision) -> Words:
        """What a lesson knows an arm by: its one-hot, or the features that it had in the decision."""
        table = self._made_with(decision).arm_features
        one_hots = np.eye(self.world.federation.arms, dtype=np.uint64)
        known: Words = (one_hots if table is None else table.words)[decision.arm]
        return known

    def _regressors(self, context: Floats, decision: Decision) -> tuple[int, Floats]:
        """Which model learns of a decision, and from what."""
        table = self._made_with(decision).arm_features
        return (
            (decision.arm, context) if table is None else (0, np.outer(context, table.features[decision.arm]).ravel())
        )

    def _records(self, party: int) -> Records:
        machine = self.world.nodes[self.world.parties[party]].machine
        assert isinstance(machine, Party)
        return machine.records

    def _check_in_memory(self) -> None:
        """There is no log: all parties have counted as many lessons as were acknowledged, and learned those."""
        counts = {self._kept(number) for number in range(len(self.world.parties))}
        if counts != {len(self.jobs)}:
            raise Violation(f"the parties have learned {counts} lessons of {len(self.jobs)} that were acknowledged")
        by_version = {job.version: job for job in self.jobs}
        if by_version.keys() != set(range(1, len(self.jobs) + 1)):
            raise Violation("two lessons were acknowledged with one number")
        self._check_model([by_version[version] for version in sorted(by_version)])

    def _check_model(self, jobs: list[Job]) -> None:
        federation = self.world.federation
        twin = PlainBandit(federation.models, federation.model_size, federation.ridge)
        for job in jobs:
            assert job.decisions is not None
            for key, decision, reward in zip(job.keys, job.decisions, job.rewards, strict=True):
                model, regressors = self._regressors(self.world.contexts[KEYS.index(key)], decision)
                twin.learn(regressors, model, reward)
        models = []
        for party in self.world.parties:
            machine = self.world.nodes[party].machine
            assert isinstance(machine, Party)
            assert machine._epoch is not None
            models.append(machine._epoch._updater.state)
        _, weights = federation.learner.reveal(models)
        error = float(np.abs(weights[0] - twin.weights).max())
        if error > UNIT * len(jobs):
            raise Violation(f"the model is off by {error / UNIT:.1f} units after {len(jobs)} lessons")


def federation_of(parties: int = 2) -> Federation:
    return Federation(arms=2, features=(1,) * parties, epsilon=0.3, repair_every=4)


def jobs_of(world: World, count: int, batches: bool) -> list[Job]:
    """Jobs with a key each, some of them with two."""
    jobs = []
    for number in range(count):
        keys = world.random.sample(KEYS, 2 if batches and number % 4 == 3 else 1)
        jobs.append(Job(f"job {number}", keys, [float(world.random.random() < 0.5) for _ in keys]))
    return jobs


def simulate(seed: int, faults: Faults | None = None, jobs: int = 10, parties: int = 2) -> World:
    """One world from its beginning to rest, checked."""
    return run_application(seed, faults, jobs, parties).world


def simulate_memory(seed: int, faults: Faults | None = None, jobs: int = 10, parties: int = 2) -> World:
    """The same, in memory: what is lost there ends the world."""
    world = World(seed, faults or Faults(crash=0, cut=0), federation_of(parties), peer_loss=PeerLoss.ENDS_FEDERATION)
    application = Application(world, jobs_of(world, jobs, batches=seed % 5 == 0), window=window_of(seed))
    application.finish()
    application.check()
    return world


def window_of(seed: int) -> int:
    """How many jobs may be under way; one in a third of the worlds, which are strictly online."""
    return 1 if seed % 3 == 1 else 3


def run_application(seed: int, faults: Faults | None = None, jobs: int = 10, parties: int = 2) -> Application:
    """The same, as the application saw it."""
    world = World(seed, faults or Faults(), federation_of(parties))
    application = Application(world, jobs_of(world, jobs, batches=seed % 5 == 0), window=window_of(seed))
    application.finish()
    application.check()
    return application
