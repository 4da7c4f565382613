"""Asking a role whether it would take us: it says why not, and stays undisturbed."""

from __future__ import annotations

import socket
import time

import pytest
from stations import PARTY0, PARTY1, Office, Station

from hiddenarm.errors import HelloError, IdentityError, PeerLost
from hiddenarm.net.certificates import Authority
from hiddenarm.net.hello import Value
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.probe import Welcome, probe
from hiddenarm.net.tls import TlsFiles


@pytest.fixture
def server(office: Office) -> Station:
    station = office.station(PARTY0)
    station.start()
    return station


def ask(
    office: Office,
    server: Station,
    me: Identity = PARTY1,
    peer: Identity = PARTY0,
    hello: dict[str, Value] | None = None,
    files: TlsFiles | None = None,
) -> Welcome:
    address = ("127.0.0.1", server.port)
    return probe(me, files or office.files(me), hello or {"arms": 10}, peer, address, 5.0)


def test_who_would_be_taken_is_told_so_and_is_no_peer(office: Office, server: Station) -> None:
    welcome = ask(office, server)
    assert welcome.note == "welcome"
    assert 0 < welcome.expires.timestamp() - time.time() <= 86_400
    assert server.recorder.ready == []
    assert server.recorder.lost == []
    office.station(PARTY1).meet(server)


def test_a_role_that_is_connected_is_told_that_it_is(office: Office, server: Station) -> None:
    office.station(PARTY1).meet(server)
    assert ask(office, server).note == "party 1 is already connected"
    assert server.recorder.lost == []


def test_all_fields_that_differ_are_named(office: Office, server: Station) -> None:
    with pytest.raises(HelloError, match=r"'arms' differs: 9 at party 1, 10 at party 0; field 'epsilon' differs: 0\.1"):
        ask(office, server, hello={"arms": 9, "epsilon": 0.1})


def test_a_role_that_is_connected_is_compared_all_the_same(office: Office, server: Station) -> None:
    """A copy of a running role's kit with another number must not be called the same configuration."""
    office.station(PARTY1).meet(server)
    with pytest.raises(HelloError, match=r"'arms' differs: 9 at party 1, 10 at party 0; field 'epsilon' differs: 0\.1"):
        ask(office, server, hello={"arms": 9, "epsilon": 0.1})
    assert server.recorder.lost == []


def test_someone_else_at_the_address(office: Office, server: Station) -> None:
    with pytest.raises(IdentityError, match="this is party 0, not dealer"):
        ask(office, server, peer=Identity(Role.DEALER))


def test_who_is_not_expected_is_told_so(office: Office, server: Station) -> None:
    with pytest.raises(IdentityError, match="it refuses us: rewarder may not connect to party 0"):
        ask(office, server, me=Identity(Role.REWARDER))


@pytest.mark.parametrize("days", [-2, 1])
def test_a_certificate_that_is_expired_or_of_others(office: Office, server: Station, days: int) -> None:
    authority = office.authority if days < 0 else Authority.create("others")
    with pytest.raises(IdentityError, match=r"TLS failed: .*(expired|unknown)"):
        ask(office, server, files=office.files(PARTY1, authority, days))


def test_nobody_is_there(office: Office, server: Station) -> None:
    server.end()
    with pytest.raises(PeerLost, match="refused"):
        ask(office, server)


def test_someone_who_does_not_answer(office: Office) -> None:
    files = office.files(PARTY1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(PeerLost, match=r"within 0\.2 seconds"):
        probe(PARTY1, files, {"arms": 10}, PARTY0, silent.getsockname(), 0.2)
