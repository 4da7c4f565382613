"""A thousand worlds with crashes between any two effects, cut links, lost syncs, lost and repeated requests: no
acknowledged reward is lost or doubled, no address has two values, the model is the fold of its log. That it would be
noticed if one thing were broken is shown in tests/mutants.

HIDDENARM_SEEDS says how many worlds; `make soak` runs a thousand.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from application import Application, Job, federation_of, jobs_of, run_application, simulate
from world import KEYS, Faults, Violation, World

from hiddenarm.bandit.decisions import DecisionIds, decision_name
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import DecisionIdError, FrameError, HiddenArmError, UnavailableError
from hiddenarm.roles import rewarder as rewarder_module
from hiddenarm.roles import updater
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.client_records import KnownEpoch, MadeLesson, RewarderRecords
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import INITIAL, Plan
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

SEEDS = int(os.environ.get("HIDDENARM_SEEDS", "100"))
GROUPS = 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes by the thousand are not worth a line each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_acknowledged_is_lost_and_no_address_has_two_values(group: int) -> None:
    crashes = 0
    for seed in range(group, SEEDS, GROUPS):
        try:
            crashes += simulate(seed).crashes
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    print(f"{crashes} crashes")
    assert crashes > SEEDS / GROUPS


def test_three_parties() -> None:
    assert sum(simulate(seed, parties=3, jobs=5).crashes for seed in range(4)) > 0


def test_what_waits_in_vain_for_a_lesson_is_given_up_and_asked_for_again() -> None:
    assert sum(run_application(seed).given_up for seed in range(10)) > 0


def test_many_crashes_in_one_world() -> None:
    assert simulate(7, Faults(crash=0.008, cut=0.004)).crashes > 20


def test_the_same_seed_is_the_same_world() -> None:
    one, other = simulate(3), simulate(3)
    assert one.sent == other.sent
    assert one.crashes == other.crashes


def test_ten_percent_lost_and_repeated_requests_give_the_same_decisions_as_none() -> None:
    """No crashes: only the channels of the application are bad. Every request is answered once, whatever it took."""
    for seed in range(5):
        world = World(seed, Faults(crash=0, cut=0, lost=0.1, repeated=0.1), federation_of())
        application = Application(world, jobs_of(world, 12, batches=False))
        application.finish()
        application.check()
        assert world.crashes == 0
        assert all(job.decisions is not None for job in application.jobs)


def test_an_old_backup_is_refused_and_no_masked_word_is_sent() -> None:
    for seed in range(10):
        world = with_old_backup(seed)
        assert world.parties[1] in world.refused
        assert world.parties[0] not in world.refused


def with_old_backup(seed: int) -> World:
    """A world without other faults, in which party 1 comes back with the disk it had some jobs ago."""
    world = World(seed, Faults(crash=0, cut=0), federation_of())
    application = Application(world, jobs_of(world, 6, batches=False))
    node = world.nodes[world.parties[1]]
    assert node.disk is not None
    finish(application, application.jobs[:2])
    backup = node.disk.store.copy()
    finish(application, application.jobs[:4])
    world.crash(node)
    node.disk.store = backup
    seeds = {seed for _, seed, *_ in world.sent}
    for _ in range(3000):
        world.step()
        if world.refused:
            if not seeds.issuperset(seed for _, seed, *_ in world.sent):
                raise Violation("masked words were sent with an old state")
            return world
    finish(application, application.jobs)
    application.check()
    return world


def finish(application: Application, jobs: list[Job]) -> None:
    rest, application.jobs = application.jobs, jobs
    application.finish()
    application.jobs = rest


def test_after_a_restored_backup_all_may_agree_to_go_back() -> None:
    """Two lessons are lost at one party; with the consent of all they are taught again, and nothing else is lost."""
    for seed in range(5):
        go_back(seed, Faults(crash=0, cut=0), kept=3, lost=2)


def test_going_back_by_more_lessons_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rewarder sends no more at once than the parties take, and the rest as lessons end."""
    monkeypatch.setattr(rewarder_module, "MAX_WAITING", 2)
    monkeypatch.setattr(updater, "MAX_WAITING", 2)
    for seed in range(3):
        go_back(seed, Faults(crash=0, cut=0), kept=1, lost=6)


def test_going_back_survives_crashes_of_all_roles() -> None:
    """The consent of a party ends when it opens the epoch; nobody may then be taken for an old backup."""
    crashes = 0
    for seed in range(12):
        crashes += go_back(seed, Faults(crash=0.01, cut=0.004), kept=2, lost=3).crashes
    assert crashes > 60


def go_back(seed: int, faults: Faults, kept: int, lost: int) -> World:
    """Party 1 comes back with the disk it had some lessons ago, and all parties agree to go on from there."""
    world = World(seed, Faults(crash=0, cut=0), federation_of())
    application = Application(world, jobs_of(world, kept + lost + 3, batches=False))
    finish(application, application.jobs[:kept])
    node = world.nodes[world.parties[1]]
    assert node.disk is not None
    backup = node.disk.store.copy()
    finish(application, application.jobs[: kept + lost])
    forgotten = [job for job in application.jobs if job.version > kept]
    undecided = [job for job in application.jobs if job.decisions is None]
    for party in world.parties:
        world.crash(world.nodes[party])
    node.disk.store = backup
    consent(world)
    application.jobs = undecided
    world.faults, world.calm = faults, False
    application.finish()
    assert not world.refused
    log = application._log(0)
    learned = [*[True] * kept, *[False] * len(forgotten), *[True] * len(undecided)]
    assert [lesson.refused == "" for lesson in log] == learned
    return world


def consent(world: World) -> None:
    """The operators of all parties, which are stopped, agree to go back."""
    for party in world.parties:
        node = world.nodes[party]
        world.start(node)
        assert isinstance(node.machine, Party)
        assert isinstance(node.machine.records, PartyRecords)
        node.machine.records.consent()
        world.crash(node)


def test_the_papers_suite_recovers_too() -> None:
    """It has no sums and no batches, and its model has another form."""
    federation = Federation(suite="paper", arms=2, features=(1, 1), epsilon=0.3)
    world = World(3, Faults(), federation)
    application = Application(world, jobs_of(world, 6, batches=False))
    application.finish()
    application.check()
    assert world.crashes > 0


def test_an_old_backup_of_the_rewarder_is_refused_and_with_consent_gives_up_earlier_decisions() -> None:
    for seed in range(3):
        world = World(seed, Faults(crash=0, cut=0), federation_of())
        application = Application(world, jobs_of(world, 6, batches=False))
        node = world.nodes[REWARDER]
        assert node.disk is not None
        finish(application, application.jobs[:1])
        backup = node.disk.store.copy()
        finish(application, application.jobs[:3])
        earlier = application.jobs[0].decisions
        world.crash(node)
        node.disk.store = backup
        for _ in range(3000):
            world.step()
            if world.refused:
                break
        assert set(world.refused) == {REWARDER}
        if not node.up:
            world.start(node)
        assert isinstance(node.machine, Rewarder)
        assert isinstance(node.machine._records, RewarderRecords)
        node.machine._records.consent()
        world.crash(node)
        world.refused.clear()
        application.taught.clear()
        finish(application, application.jobs[3:])
        assert not world.refused
        assert sorted(job.version for job in application.jobs) == [1, 2, 3, 4, 5, 6]
        assert isinstance(node.machine, Rewarder)
        assert earlier is not None
        with pytest.raises(DecisionIdError, match="not known here"):
            node.machine.teach((earlier[0].id, 1.0), request="again")


def test_an_old_backup_of_the_rewarder_cannot_hide_behind_new_lessons() -> None:
    """It makes none before the parties know its state: not even for decisions whose rewards it has forgotten."""
    world = World(1, Faults(crash=0, cut=0), federation_of())
    application = Application(world, jobs_of(world, 3, batches=False))
    node = world.nodes[REWARDER]
    assert node.disk is not None
    finish(application, application.jobs[:1])
    backup = node.disk.store.copy()
    finish(application, application.jobs)
    world.crash(node)
    node.disk.store = backup
    world.start(node)
    assert isinstance(node.machine, Rewarder)
    for job in application.jobs[1:]:
        assert job.decisions is not None
        with pytest.raises(UnavailableError, match="no epoch has opened") as refusal:
            node.machine.teach((job.decisions[0].id, 1 - job.rewards[0]), request=f"other {job.name}")
        assert refusal.value.retry_after > 0
    until_refused(world)
    assert set(world.refused) == {REWARDER}


def until_refused(world: World) -> None:
    for _ in range(3000):
        world.step()
        if world.refused:
            return
    raise AssertionError("an old backup was not refused")


def test_a_lesson_that_finds_no_room_may_be_taught_later(monkeypatch: pytest.MonkeyPatch) -> None:
    world, decision = with_a_decision()
    rewarder = world.nodes[REWARDER].machine
    assert isinstance(rewarder, Rewarder)
    with monkeypatch.context() as patched:
        patched.setattr(rewarder_module, "MAX_WAITING", 0)
        with pytest.raises(UnavailableError, match="wait to be learned") as refusal:
            rewarder.teach((decision, 1.0), request="first")
        assert refusal.value.retry_after > 0
    assert rewarder.teach((decision, 1.0), request="first") == 0


def test_a_decision_that_is_listed_twice_is_refused_whether_its_request_is_known_or_not() -> None:
    world, decision = with_a_decision()
    rewarder = world.nodes[REWARDER].machine
    assert isinstance(rewarder, Rewarder)
    for _ in range(2):
        with pytest.raises(DecisionIdError, match="listed twice"):
            rewarder.teach((decision, 1.0), (decision, 1.0), request="first")
        assert rewarder.teach((decision, 1.0), request="first") == 0


def with_a_decision() -> tuple[World, str]:
    """A world without faults, with a decision that waits for its reward."""
    world = World(1, Faults(crash=0, cut=0), federation_of())
    actor = world.nodes[ACTOR].machine
    assert isinstance(actor, Actor)
    ticket = actor.ask(KEYS[0])
    while ticket not in actor.outcomes:
        world.step()
    outcome = actor.outcomes[ticket]
    assert not isinstance(outcome, HiddenArmError)
    [decision] = outcome
    assert isinstance(decision, Decision)
    return world, decision.id


def test_a_backup_of_the_rewarder_without_the_last_epoch_is_refused() -> None:
    """It lacks no lesson, but could not mask the reward of any decision of that epoch."""
    world = World(1, Faults(crash=0, cut=0), federation_of())
    application = Application(world, jobs_of(world, 2, batches=False))
    node = world.nodes[REWARDER]
    assert node.disk is not None
    finish(application, application.jobs[:1])
    backup = node.disk.store.copy()
    opened = epochs_of(world)
    world.crash(world.nodes[world.parties[0]])
    until_opened_after(world, opened)
    world.crash(node)
    node.disk.store = backup
    until_refused(world)
    assert set(world.refused) == {REWARDER}


def until_opened_after(world: World, before: list[int | None]) -> None:
    """Wait for the next epoch."""
    while epochs_of(world) == before or None in epochs_of(world):
        world.step()


def epochs_of(world: World) -> list[int | None]:
    """The epoch that is open at each party."""
    machines = [world.nodes[party].machine for party in world.parties]
    return [one.records.activated if isinstance(one, Party) and one.active else None for one in machines]


def test_a_rewarder_that_consented_gives_up_earlier_decisions_even_if_no_lesson_is_missing() -> None:
    """The lessons it has lost may be those that only one party held: which masks were used is not known."""
    store = MemoryStore()
    records = RewarderRecords(store, DirectJournal(store))
    for name in ("000000000001", "000000000002"):
        records.learn_epoch(KnownEpoch(bytes(32), DecisionIds(name, bytes(32))), lambda: None)
    records.make(MadeLesson("first", [(decision_name(1, 0), 5)]), lambda: None)
    records.consent()
    rewarder = Rewarder(federation_of(), lambda *_: None, records=records, peer_loss=PeerLoss.ENDS_EPOCH)
    rewarder._check_plan(Plan(2, bytes.fromhex("000000000002"), INITIAL, 0), "000000000002")
    again = RewarderRecords(store, DirectJournal(store))
    assert again.epochs.keys() == {2}
    assert (again.made, again.kept) == (1, 0)
    assert again.lesson(0).request == "first"


def test_parties_may_go_back_behind_lessons_that_the_rewarder_has_lost() -> None:
    """First the rewarder goes on without two lessons, then a party loses them too: they are refused, all goes on."""
    world = World(1, Faults(crash=0, cut=0), federation_of())
    application = Application(world, jobs_of(world, 6, batches=False))
    rewarder, party = world.nodes[REWARDER], world.nodes[world.parties[1]]
    assert rewarder.disk is not None
    assert party.disk is not None
    finish(application, application.jobs[:1])
    backups = rewarder.disk.store.copy(), party.disk.store.copy()
    finish(application, application.jobs[:3])
    world.crash(rewarder)
    rewarder.disk.store = backups[0]
    world.start(rewarder)
    assert isinstance(rewarder.machine, Rewarder)
    assert isinstance(rewarder.machine._records, RewarderRecords)
    rewarder.machine._records.consent()
    world.crash(rewarder)
    application.taught.clear()
    finish(application, application.jobs[3:4])
    for identity in world.parties:
        world.crash(world.nodes[identity])
    party.disk.store = backups[1]
    consent(world)
    finish(application, application.jobs[4:])
    assert [lesson.refused == "" for lesson in application._log(0)] == [True, False, False, False, True, True]
    world.crash(rewarder)
    world.start(rewarder)


def test_an_actor_that_has_not_met_the_dealer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties and rewarder open an epoch without it, and the next one when it has met the dealer."""
    world = World(1, Faults(crash=0, cut=0), federation_of())
    connectable = world._connectable
    with monkeypatch.context() as patched:
        patched.setattr(world, "_connectable", lambda: [pair for pair in connectable() if set(pair) != {ACTOR, DEALER}])
        until_opened_after(world, [None, None])
        for _ in range(500):
            world.step()
    actor, rewarder = world.nodes[ACTOR].machine, world.nodes[REWARDER].machine
    assert isinstance(actor, Actor)
    assert isinstance(rewarder, Rewarder)
    assert epochs_of(world) == [1, 1]
    assert rewarder.active
    assert not actor.active
    assert actor.absent == [DEALER]
    while not actor.active:
        world.step()
    assert epochs_of(world) == [2, 2]


def test_an_epoch_with_the_name_of_an_earlier_one_is_refused() -> None:
    """Its decisions would have the names of others."""
    world = World(1, Faults(crash=0, cut=0), federation_of())
    application = Application(world, jobs_of(world, 1, batches=False))
    application.finish()
    dealer = world.nodes[DEALER].machine
    assert isinstance(dealer, Dealer)
    opened = epochs_of(world)
    assert dealer._epoch is not None
    name = dealer._epoch._name
    dealer._make_name = lambda: name
    world.crash(world.nodes[world.parties[0]])
    with pytest.raises(FrameError, match="the name of an earlier one"):
        until_opened_after(world, opened)
