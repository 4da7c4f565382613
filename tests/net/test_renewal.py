"""A certificate is renewed while links stand: old and new are both good, and no frame is lost."""

from __future__ import annotations

import socket

import pytest
from stations import PARTY0, PARTY1, Kind, Office, Station

from hiddenarm.errors import IdentityError
from hiddenarm.net.certificates import Authority
from hiddenarm.net.frames import Frame
from hiddenarm.net.tls import client_context


def serial(office: Office, port: int) -> str:
    """The serial number of the certificate that is shown at a port."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        client_context(office.files(PARTY1)).wrap_socket(plain) as sock,
    ):
        return str((sock.getpeercert() or {})["serialNumber"])


def exchange(server: Station, client: Station, text: bytes) -> None:
    before = len(server.recorder.frames)
    client.transport.send(PARTY0, Frame(Kind.ROUND, payload=text))
    server.until(lambda: len(server.recorder.frames) > before)
    assert server.recorder.frames[-1].payload == text


def test_new_connections_see_the_new_certificate_and_old_ones_go_on(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    exchange(server, client, b"before")
    old = serial(office, server.port)
    server.transport.renew(office.files(PARTY0))
    client.transport.renew(office.files(PARTY1))
    exchange(server, client, b"after")
    assert serial(office, server.port) != old
    assert server.recorder.lost == client.recorder.lost == []


def test_a_renewal_that_cannot_be_loaded_changes_nothing(office: Office) -> None:
    server = office.station(PARTY0)
    server.start()
    old = serial(office, server.port)
    files = office.files(PARTY0)
    files.key.write_bytes(office.files(PARTY0).key.read_bytes())
    with pytest.raises(IdentityError, match="cannot load"):
        server.transport.renew(files)
    assert serial(office, server.port) == old


def test_two_authorities_are_trusted_while_one_follows_the_other(office: Office) -> None:
    successor = Authority.create("test federation")
    bundle = office.authority.certificate_pem + successor.certificate_pem
    ours, theirs = office.files(PARTY0), office.files(PARTY1, successor)
    for files in (ours, theirs):
        files.ca.write_bytes(bundle)
    server, client = office.station(PARTY0, files=ours), office.station(PARTY1, files=theirs)
    server.start()
    client.meet(server)
    exchange(server, client, b"across")
