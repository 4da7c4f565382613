"""Clients that break the protocol, against real processes: they are told and cut off, and no party or dealer ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hiddenarm.bandit.catalogue import DECIDE_ONE
from hiddenarm.errors import PeerLost
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.roles.messages import DEALER, Kind, decide_frame, reward_frame
from hiddenarm.service.application import ActorClient, RewarderClient

PARTIES = [Identity(Role.PARTY, number) for number in range(2)]
SERVERS = [*PARTIES, DEALER]
MISTAKES = {
    "a number that is not due": (decide_frame(DECIDE_ONE, 999, 0, ["k"]), reward_frame(999, (0, 0))),
    "a payload that is none": (Frame(Kind.DECIDE, 1), Frame(Kind.REWARD, 2)),
    "a kind that it may not send": (Frame(Kind.LEARNED), Frame(Kind.LEARNED)),
    "an attempt that cannot be": (Frame(Kind.OPEN, step=2**63), Frame(Kind.OPEN, step=2**63)),
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(make_federation(2, 3, 4)) as session:
        yield session


@pytest.fixture
def durable() -> Iterator[Session]:
    with Session(make_federation(2, 3, 4), durable=True) as session:
        yield session


def err(client: ActorClient | RewarderClient, frame: Frame, *receivers: Identity) -> None:
    """Send a frame that the client's machine never would."""
    with client._lock:
        for receiver in receivers:
            client.endpoint.send(receiver, frame)


def check_all_run(session: Session) -> None:
    assert [session._roles.process(server).poll() for server in SERVERS] == [None] * 3


def log_of(session: Session, server: Identity) -> str:
    return (session._roles.kit(server) / "log.txt").read_text()


@pytest.mark.parametrize("receivers", [PARTIES[:1], PARTIES[1:], PARTIES], ids=["first", "last", "all"])
def test_an_actor_in_memory_is_cut_off_and_the_rewarder_goes_on(session: Session, receivers: list[Identity]) -> None:
    decisions = [session.actor.decide(f"user {step}") for step in range(3)]
    err(session.actor, decide_frame(DECIDE_ONE, 999, 0, ["k"]), *receivers)
    with pytest.raises(PeerLost, match=r"party \d is gone: the actor asked for decision 999 where 3 was due"):
        session.actor.idle(seconds=30)
    session.actor.__exit__(PeerLost, PeerLost("as an application ends that does not catch it"), None)
    for version, decision in enumerate(decisions, start=1):
        assert session.rewarder.reward(decision.id, 1.0) == version
    check_all_run(session)
    assert "asked for decision 999 where 3 was due" in log_of(session, receivers[0])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_rewarder_in_memory_is_cut_off_and_decisions_go_on(session: Session, mistake: str) -> None:
    assert session.rewarder.reward(session.actor.decide("user 0").id, 1.0) == 1
    err(session.rewarder, MISTAKES[mistake][1], *PARTIES)
    with pytest.raises(PeerLost, match="party"):
        session.rewarder.idle(seconds=30)
    session.rewarder.__exit__(PeerLost, PeerLost("as an application ends that does not catch it"), None)
    for step in range(20):
        session.actor.decide(f"user {step}", after=1)
    check_all_run(session)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("server", SERVERS, ids=str)
def test_where_state_lasts_a_client_that_errs_begins_again(durable: Session, mistake: str, server: Identity) -> None:
    """Its link ends, and with it the epoch; it comes back, and nothing that was acknowledged is lost."""
    session = durable
    clients: list[ActorClient | RewarderClient] = [session.actor, session.rewarder]
    for number, client in enumerate(clients):
        version = session.rewarder.reward(session.actor.decide("user 0").id, 1.0)
        assert version == number + 1
        err(client, MISTAKES[mistake][number], server)
        meet_again(session, server)
    assert session.rewarder.reward(session.actor.decide("user 0").id, 1.0) == 3
    check_all_run(session)
    assert "Traceback" not in log_of(session, server)


def meet_again(session: Session, server: Identity) -> None:
    """Serve both clients until the end of the epoch is known, and the next one is open."""
    before = session.actor.endpoint.machine._attempts.number
    while session.actor.endpoint.machine._attempts.number == before:
        session.actor.idle(seconds=0.01)
        session.rewarder.idle(seconds=0.01)
    session._meet()
