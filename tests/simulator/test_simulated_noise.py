"""Worlds with crashes and cut links in which models are solved from noisy sums.

What must hold besides: decisions that were answered have used one noise for each refresh, which lasted at every party
before the first of them was answered; and the model is that of the log with the noise that lasts. If all parties agree
to go back behind a refresh, that is noted, as its noise may have been used.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import structlog
from application import UNIT, Application, Job, jobs_of, window_of
from test_simulated_faults import consent, finish, until_opened_after
from world import KEYS, Faults, Node, Violation, World

from hiddenarm.bandit.audit import audit_leaf, audit_noise, plain_twin, with_taken_back
from hiddenarm.bandit.catalogue import DECIDE, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.planning import GradientNumbers
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.privacy.ledger import statement
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisyMechanism, NoisySums
from hiddenarm.ring.words import Floats
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import CheckpointName
from hiddenarm.roles.messages import ACTOR, Kind, program_and_step, read_decide
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_records import PartyRecords

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "100")) // 4
GROUPS = 5
ANSWERS = (Kind.PAYLOADS, Kind.ONE_HOT)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def noisy_federation(parties: int = 2, correlated: int = 0, *, gradient: bool = False) -> Federation:
    privacy: NoisyMechanism = NoisySums(50.0, first_refresh=2, refresh_ratio=1.5, correlated=correlated)
    if gradient:
        privacy = NoisyGradient(0.5, refresh_every=2, first_step=0.05, correlated=correlated)
    return Federation(arms=2, features=(1,) * parties, epsilon=0.3, privacy=privacy, max_interactions=1000)


class NoisyWorld(World):
    """A world that knows the dealer's keys, and notes which refreshes decisions have used."""

    def __init__(self, seed: int, faults: Faults, federation: Federation, **options: Any) -> None:
        self.keys: dict[str, bytes] = {}
        self.versions: dict[tuple[str, ProgramId, int], int] = {}
        self.used: dict[int, int] = {}
        """The epoch whose noise decisions have used, by the version that the refresh has made."""
        super().__init__(seed, faults, federation, **options)

    def _machine(self, node: Node) -> Any:
        machine = super()._machine(node)
        if isinstance(machine, Dealer):
            make_key, make_name, drawn = machine._make_key, machine._make_name, [b""]

            def key() -> bytes:
                drawn[0] = make_key()
                return drawn[0]

            def name() -> str:
                made = make_name()
                self.keys[made] = drawn[0]
                return made

            machine._make_key, machine._make_name = key, name
        return machine

    def _note(self, identity: Identity, frame: Frame) -> None:
        super()._note(identity, frame)
        if frame.kind is Kind.DECIDE:
            epoch = self.nodes[ACTOR].machine._epoch  # type: ignore[union-attr]
            run = (f"{epoch.name:012x}", *program_and_step(frame))  # type: ignore[union-attr]
            self.versions[run] = read_decide(frame, self.federation.arms)[0]
        elif frame.kind is Kind.ROUND and program_and_step(frame)[0].name == DECIDE:
            self._refresh_in_use(identity, frame, [identity])
        elif frame.kind in ANSWERS:
            self._note_answer(identity, frame)

    def _refresh_in_use(self, identity: Identity, frame: Frame, lasting_at: list[Identity]) -> CheckpointName | None:
        """The refresh that a party's model of a run is of, which must last somewhere."""
        records = self._records(identity)
        version = self.versions[(f"{records.epoch:012x}", *program_and_step(frame))]
        refresh = max((refresh for refresh in records._refreshes if refresh.version <= version), default=None)
        for party in lasting_at:
            if refresh is not None and refresh != self._lasting_refresh(party, refresh.version):
                raise Violation(f"a decision uses a refresh that does not last at {party}")
        return refresh

    def _note_answer(self, identity: Identity, frame: Frame) -> None:
        """A party answers the actor: the refresh that its model is of lasts at every party, and is the only one."""
        refresh = self._refresh_in_use(identity, frame, self.parties)
        if refresh is None:
            return
        if self.used.setdefault(refresh.version, refresh.epoch) != refresh.epoch:
            raise Violation("decisions have used two noises of one refresh")

    def _records(self, identity: Identity) -> PartyRecords:
        machine = self.nodes[identity].machine
        assert isinstance(machine, Party)
        assert isinstance(machine.records, PartyRecords)
        return machine.records

    def _lasting_refresh(self, party: Identity, version: int) -> CheckpointName | None:
        disk = self.nodes[party].disk
        assert disk is not None
        epoch = disk.store.get("refresh", version.to_bytes(8, "big"))
        return None if epoch is None else CheckpointName(version, int.from_bytes(epoch, "big"))

    def noise_of(self, refresh: CheckpointName) -> tuple[Floats, Floats]:
        """The noise of a refresh that lasts."""
        records = self._records(self.parties[0])
        same = sorted(other for other in records._refreshes if other.epoch == refresh.epoch)
        grams, moments = audit_noise(self._seeds_of(refresh), self.federation, same.index(refresh))
        return grams[0], moments[0]

    def correlated_noise_of(self, number: int, drawn: list[CheckpointName]) -> tuple[Floats, Floats]:
        """What refresh `number`, counted from 1, adds; leaves are those of the refreshes that last, by number, each
        drawn in its own epoch."""
        privacy = self.federation.privacy
        assert isinstance(privacy, NoisyMechanism)
        assert privacy.correlation is not None
        _, position = privacy.correlation.place(number)
        leaves = [
            audit_leaf(self._seeds_of(drawn[each - 1]), self.federation, each)
            for each in range(number - position + 1, number + 1)
        ]
        grams, moments = with_taken_back(privacy, leaves)
        return grams[0], moments[0]

    def _seeds_of(self, refresh: CheckpointName) -> Seeds:
        return Seeds(self.keys[self._records(self.parties[0]).opened()[refresh.epoch].name.hex()])


class NoisyApplication(Application):
    def _check_model(self, jobs: list[Job]) -> None:
        """The fold of the log, with the noise that lasts, and with rows beyond the limit left out."""
        world, federation = self.world, self.world.federation
        assert isinstance(world, NoisyWorld)
        privacy, rows, learned = federation.noisy, Counter[str](), 0
        assert privacy is not None
        lasting = sorted(world._records(world.parties[0])._refreshes)
        drawn: list[CheckpointName] = []
        for job in jobs:
            before, learned = learned, learned + len(job.keys)
            passed = privacy.refreshes_by(learned) - privacy.refreshes_by(before)
            if passed:
                drawn += [lasting.pop(0)] * (passed if privacy.correlated else 1)
        assert not lasting
        learned = 0

        def noise(refresh: int) -> tuple[Floats, Floats]:
            if privacy.correlated:
                return world.correlated_noise_of(refresh + 1, drawn)
            return world.noise_of(drawn[refresh])

        twin = plain_twin(federation, noise)
        for job in jobs:
            assert job.decisions is not None
            for key, decision, reward in zip(job.keys, job.decisions, job.rewards, strict=True):
                rows[key] += 1
                context = world.contexts[KEYS.index(key)] * (rows[key] <= privacy.rows_per_key)
                twin.learn(context, decision.arm, reward)
            twin.end_lesson()
            before, learned = learned, learned + len(job.keys)
            if privacy.refreshes_by(before) != privacy.refreshes_by(learned):
                rows.clear()
        states = [world.nodes[party].machine._epoch._updater.state for party in world.parties]  # type: ignore[union-attr]
        error = float(np.abs(federation.learner.reveal(states)[1][0] - twin.weights).max())
        if error > UNIT + _rounded_clips(federation, learned):
            raise Violation(f"the model is off by {error}")


def _rounded_clips(federation: Federation, lessons: int) -> float:
    """By how much the clips of a noisy gradient may move the weights: in each lesson less than two nodes are apart."""
    numbers = federation.numbers
    if not isinstance(numbers, GradientNumbers):
        return 0.0
    return lessons * numbers.first_step * federation.joint_norm * 2.0**-numbers.residual_bits


def simulate(
    seed: int,
    faults: Faults | None = None,
    jobs: int = 10,
    parties: int = 2,
    correlated: int = 0,
    *,
    gradient: bool = False,
) -> NoisyWorld:
    world = NoisyWorld(seed, faults or Faults(), noisy_federation(parties, correlated, gradient=gradient))
    application = NoisyApplication(world, jobs_of(world, jobs, batches=seed % 5 == 0), window=window_of(seed))
    application.finish()
    application.check()
    return world


@pytest.mark.parametrize("group", range(GROUPS))
def test_decisions_use_one_noise_of_every_refresh_and_it_lasts_before(group: int) -> None:
    crashes = 0
    for seed in range(group, SEEDS, GROUPS):
        try:
            world = simulate(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        crashes += world.crashes
        assert len(world.used) >= 3
        assert all(world._records(party).releases == 1 for party in world.parties)
    assert crashes > SEEDS / GROUPS


def test_three_parties_and_many_crashes() -> None:
    assert simulate(2, Faults(crash=0.006, cut=0.003), jobs=7, parties=3).crashes > 5


def test_leaves_of_correlated_noise_last_as_sums_do() -> None:
    """Crashes between the refreshes of a block: the leaves that are taken back were drawn in other epochs. With single
    lessons, and with batches that pass several counts at once."""
    crashes = used = 0
    for seed in range(8):
        world = simulate(seed, Faults(crash=0.004, cut=0.002), correlated=3)
        crashes, used = crashes + world.crashes, used + len(world.used)
    assert crashes > 8
    assert used > 16


@pytest.mark.parametrize("correlated", [0, 3])
def test_gradients_have_one_noise_that_lasts(correlated: int) -> None:
    crashes = used = 0
    for seed in range(8):
        world = simulate(seed, Faults(crash=0.004, cut=0.002), correlated=correlated, gradient=True)
        crashes, used = crashes + world.crashes, used + len(world.used)
    assert crashes > 8
    assert used > 16


def test_what_is_in_memory_refreshes_too() -> None:
    for seed in range(3):
        world = World(seed, Faults(crash=0, cut=0), noisy_federation(), peer_loss=PeerLoss.ENDS_FEDERATION)
        application = Application(world, jobs_of(world, 8, batches=False), window=window_of(seed))
        application.finish()
        assert {application._kept(number) for number in range(2)} == {8}


@pytest.mark.parametrize("seed", range(6))
def test_going_back_behind_a_refresh_is_noted_by_who_held_it(seed: int) -> None:
    """Party 1 comes back with the disk it had before the last refreshes, and all agree to go on from there; in half of
    the worlds roles crash meanwhile."""
    world = NoisyWorld(seed, Faults(crash=0, cut=0), noisy_federation())
    application = NoisyApplication(world, jobs_of(world, 9, batches=False))
    finish(application, application.jobs[:2])
    node = world.nodes[world.parties[1]]
    assert node.disk is not None
    backup = node.disk.store.copy()
    finish(application, application.jobs[:5])
    held = world._records(world.parties[0])
    assert held._noise_used >= 2
    for party in world.parties:
        world.crash(world.nodes[party])
    node.disk.store = backup
    consent(world)
    world.used.clear()
    if seed % 2:
        world.faults, world.calm = Faults(crash=0.01, cut=0.004), False
    finish(application, application.jobs[5:])
    assert not world.refused
    ledgers = [world._records(party).ledger for party in world.parties]
    assert world._records(world.parties[0]).releases == 2
    assert ledgers[0].repeated == 1
    dropped = statement(ledgers[0], 2, world.federation.privacy)["dropped"].epsilon
    assert dropped > 1.4 * 50, "the loss of two refreshes together"
    if not seed % 2:
        world.crash(world.nodes[world.parties[0]])
        until_opened_after(world, [None])
        assert world._records(world.parties[1]).ledger.repeated == 1, "it is told when the next epoch is opened"
