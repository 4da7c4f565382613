"""Simulated worlds in which the loss of a peer ends the federation: state is in memory, and nothing is survived."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from application import PATIENCE, Application, federation_of, jobs_of, simulate_memory
from world import Faults, Node, Violation, World

from hiddenarm.net.identity import Identity
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER

CALM = Faults(crash=0, cut=0)
LOSS = PeerLoss.ENDS_FEDERATION


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("parties", [2, 3])
def test_every_request_is_answered_once_and_the_model_is_that_of_the_rewards(parties: int) -> None:
    """Requests are lost and repeated, and roles meet in any order: the clients before the epoch is open, or after."""
    for seed in range(24 // parties):
        world = simulate_memory(seed, CALM, parties=parties)
        assert not world.ended
        assert all(node.up for node in world.nodes.values())


def test_the_same_seed_is_the_same_world() -> None:
    one, other = simulate_memory(3, CALM), simulate_memory(3, CALM)
    assert one.sent == other.sent


def half_done(seed: int) -> tuple[World, Application]:
    """A world in which some jobs were done and checked, and others are under way."""
    world = World(seed, CALM, federation_of(), peer_loss=LOSS)
    application = Application(world, jobs_of(world, 8, batches=seed % 2 == 0))
    rest, application.jobs = application.jobs, application.jobs[:4]
    application.finish()
    application.check()
    application.jobs = rest
    go_on(application, world.random.randrange(120))
    return world, application


def go_on(application: Application, events: int) -> None:
    for _ in range(events):
        application.talk()
        application.world.step()
        application.listen()


def until_all_have_ended(world: World, but: Node | None = None) -> None:
    for _ in range(PATIENCE):
        if not any(node.up for node in world.nodes.values() if node is not but):
            return
        world.step()
    raise Violation(f"still there: {[str(node.identity) for node in world.nodes.values() if node.up]}")


def check_ended(world: World, lost: Node) -> None:
    """All others have ended, by an error that names who they have lost."""
    assert world.ended.keys() == world.nodes.keys() - {lost.identity}
    assert all("is gone: cut" in why for why in world.ended.values())
    assert any(f"{lost.identity} is gone" in why for why in world.ended.values())


@pytest.mark.parametrize("seed", range(20))
def test_a_party_or_dealer_that_is_lost_ends_all_roles(seed: int) -> None:
    world, _ = half_done(seed)
    lost = world.nodes[world.random.choice([*world.parties, DEALER])]
    world.crash(lost)
    until_all_have_ended(world)
    check_ended(world, lost)


@pytest.mark.parametrize("seed", range(10))
def test_a_link_between_parties_or_to_the_dealer_that_breaks_ends_all_roles(seed: int) -> None:
    world, _ = half_done(seed)
    one, other = world.random.sample([*world.parties, DEALER], 2)
    world._cut(one, other)
    world._cut(other, one)
    until_all_have_ended(world)
    assert world.ended.keys() == world.nodes.keys()


@pytest.mark.parametrize("client", [ACTOR, REWARDER], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_is_lost_ends_nothing_and_cannot_come_back(seed: int, client: Identity) -> None:
    world, application = half_done(seed)
    lost = world.nodes[client]
    world.crash(lost)
    go_on(application, 400)
    assert not world.ended
    assert [node for node in world.nodes.values() if not node.up] == [lost]
    if client == REWARDER:
        assert all(job.decisions is not None for job in application.jobs[: application.window])
    world.start(lost)
    until_all_have_ended(world, but=lost)  # which may not have met anybody yet
    assert f"{client} came back and would need a second seed" in world.ended[DEALER]


def test_faults_at_any_moment_end_all_or_nothing() -> None:
    """Crashes and cuts may come before an epoch is open, too; whatever was acknowledged before is in the model."""
    ended = done = 0
    for seed in range(40):
        world = World(seed, Faults(crash=0.0007, cut=0.0003), federation_of(), peer_loss=LOSS)
        application = Application(world, jobs_of(world, 5, batches=False))
        while not all(job.acknowledged for job in application.jobs) and not world.ended:
            go_on(application, 1)
            if world.crashes:
                break
        if world.crashes:
            ended += 1
            servers = [world.nodes[identity] for identity in (*world.parties, DEALER)]
            if not all(node.up for node in servers):
                until_all_have_ended(world)
        else:
            done += 1
            application.finish()
            application.check()
    assert min(ended, done) > 5, (ended, done)
