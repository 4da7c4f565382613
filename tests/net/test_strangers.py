"""Who is refused, with exactly one line that says why, while an honest peer is served."""

from __future__ import annotations

import gc
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from stations import PARTY0, PARTY1, Kind, Office, Station, captured_warnings

from hiddenarm.errors import IdentityError
from hiddenarm.net.certificates import Authority
from hiddenarm.net.connection import Connection
from hiddenarm.net.frames import Frame, LinkKind, encode
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import TlsFiles, client_context
from hiddenarm.net.transport import Limits

Stranger = Callable[[Office], ssl.SSLContext | None]


def wrong_authority(office: Office) -> ssl.SSLContext:
    return client_context(office.files(PARTY1, Authority.create("others")))


def same_authority_name(office: Office) -> ssl.SSLContext:
    return client_context(office.files(PARTY1, Authority.create("test federation")))


def no_certificate(office: Office) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(office.files(PARTY1).ca)
    return context


def expired(office: Office) -> ssl.SSLContext:
    return client_context(office.files(PARTY1, valid_days=-2))


def wrong_role(office: Office) -> ssl.SSLContext:
    return client_context(office.files(Identity(Role.REWARDER)))


def no_name(office: Office) -> ssl.SSLContext:
    return client_context(named(office, []))


def two_names(office: Office) -> ssl.SSLContext:
    return client_context(named(office, ["hiddenarm:party/0", "hiddenarm:party/1"]))


def tls_1_2(office: Office) -> ssl.SSLContext:
    context = client_context(office.files(PARTY1))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def plain_text(office: Office) -> None:
    return None


def named(office: Office, uris: list[str]) -> TlsFiles:
    """A certificate of the right authority with these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(office.authority.key.public_key())
    builder = x509.CertificateBuilder(
        issuer_name=office.authority.certificate.subject,
        subject_name=x509.Name([]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + timedelta(hours=1),
    ).add_extension(identifier, critical=False)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris] or [
        x509.DNSName("party-1.example")
    ]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    certificate = builder.sign(office.authority.key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return office.write(certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def call(port: int, context: ssl.SSLContext | None) -> None:
    """Call like a stranger that says hello and hears the answer out."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        sock = context.wrap_socket(plain) if context else plain
        with suppress(OSError):
            sock.sendall(encode(Frame(LinkKind.HELLO, payload=b'{"arms":10}')) * 3)
            while sock.recv(4096):
                pass
        sock.close()


def serve_honestly(office: Office, server: Station) -> None:
    """An honest party 1 comes and is answered."""
    client = office.station(PARTY1)
    server.recorder.answer = lambda peer, frame: server.transport.send(peer, frame)
    client.meet(server)
    client.transport.send(PARTY0, Frame(Kind.ROUND, payload=b"still there?"))
    client.until(lambda: bool(client.recorder.frames))


@pytest.mark.parametrize(
    ("stranger", "why"),
    [
        (wrong_authority, "certificate refused: unable to get local issuer certificate"),
        (same_authority_name, "certificate refused: "),
        (no_certificate, "TLS failed: peer did not return a certificate"),
        (expired, "certificate refused: certificate has expired"),
        (wrong_role, "rewarder may not connect to party 0"),
        (no_name, "the certificate has 0 hiddenarm names, it must have one"),
        (two_names, "the certificate has 2 hiddenarm names, it must have one"),
        (tls_1_2, "TLS failed: unsupported protocol"),
        (plain_text, "TLS failed: "),
    ],
)
def test_a_stranger_is_refused_with_one_line(office: Office, stranger: Stranger, why: str) -> None:
    server = office.station(PARTY0)
    context = stranger(office)
    with captured_warnings() as logs:
        server.start()
        began = time.monotonic()
        call(server.port, context)
        server.until(lambda: bool(logs))
        assert time.monotonic() - began < Limits().handshake_seconds / 2  # at once, not at the deadline
        serve_honestly(office, server)
    (line,) = logs
    assert line["event"] == "refused"
    assert line["log_level"] == "warning"
    assert line["reason"].startswith(why)
    assert server.recorder.ready == [PARTY1]


def test_who_connects_and_says_nothing_is_dropped_at_the_deadline(office: Office) -> None:
    server = office.station(PARTY0, limits=Limits(handshake_seconds=0.5, linger_seconds=0.05))
    context = client_context(office.files(PARTY1))
    with captured_warnings() as logs:
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
            assert silent.recv(1) == b""
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with context.wrap_socket(plain) as helloless:
            while helloless.recv(4096):
                pass
        server.until(lambda: len(logs) == 2)
    assert {line["reason"] for line in logs} == {"handshake and hello took too long"}


def test_idle_strangers_do_not_lock_honest_peers_out(office: Office) -> None:
    server = office.station(PARTY0, limits=Limits(strangers=8, linger_seconds=0.05))
    with captured_warnings() as logs:
        server.start()
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
        serve_honestly(office, server)
        for sock in idle:
            sock.close()
        server.until(lambda: len(logs) == 40)
    crowded = [line for line in logs if line["reason"] == "too many connections that are not ready"]
    assert len(crowded) >= 32


def test_who_sends_a_byte_now_and_then_is_dropped_at_the_deadline(office: Office) -> None:
    """The deadline is for the whole of TLS and hello: bytes do not put it off."""
    server = office.station(PARTY0, limits=Limits(handshake_seconds=0.5, linger_seconds=0.05))
    began, drops = time.monotonic(), iter(b"\x16\x03\x01\x02\x00" + bytes(1000))
    with captured_warnings() as logs, suppress(OSError):
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            while not logs:
                slow.send(bytes([next(drops)]))
                time.sleep(0.02)
    assert [line["reason"] for line in logs] == ["handshake and hello took too long"]
    assert time.monotonic() - began < 5


def test_500_idle_connections(office: Office) -> None:
    """Only so many are held; the rest wait in the system's queue or are dropped; an honest peer gets through."""
    server = office.station(PARTY0)
    idle = []
    with captured_warnings() as logs:
        server.start()
        for _ in range(500):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", server.port))
            idle.append(sock)
        serve_honestly(office, server)
        held = len(server.transport._connections)
        for sock in idle:
            sock.close()
    assert held <= 2 * Limits().strangers + 1
    assert {line["event"] for line in logs} <= {"refused"}


def test_a_dialler_does_not_trust_another_authority(office: Office) -> None:
    server = office.station(PARTY0, files=office.files(PARTY0, Authority.create("others")))
    client = office.station(PARTY1)
    with captured_warnings() as logs:
        server.start()
        client.transport.dial(PARTY0, "127.0.0.1", server.port)
        with pytest.raises(IdentityError, match="party 0: certificate refused"):
            client.transport.run()
        server.until(lambda: bool(logs))
    assert len(logs) == 1


def test_a_dialler_learns_that_its_certificate_is_refused(office: Office) -> None:
    server = office.station(PARTY0)
    client = office.station(PARTY1, files=office.files(PARTY1, valid_days=-2))
    server.start()
    client.transport.dial(PARTY0, "127.0.0.1", server.port)
    with pytest.raises(IdentityError, match=r"party 0: TLS failed: .*expired"):
        client.transport.run()


def test_who_leaves_during_the_handshake_is_one_line(office: Office) -> None:
    server = office.station(PARTY0)
    with captured_warnings() as logs:
        server.start()
        socket.create_connection(("127.0.0.1", server.port)).close()
        server.until(lambda: bool(logs))
        serve_honestly(office, server)
    assert [line["reason"] for line in logs] == ["the peer left during the handshake"]


def test_nothing_is_kept_of_those_who_left(office: Office) -> None:
    server = office.station(PARTY0)
    with captured_warnings() as logs:
        server.start()
        for _ in range(20):
            socket.create_connection(("127.0.0.1", server.port)).close()
        server.until(lambda: len(logs) == 20)
        server.until(lambda: not server.transport._connections)
    gc.collect()  # what earlier tests left behind
    server.until(lambda: not any(isinstance(thing, Connection) for thing in gc.get_objects()))


@pytest.mark.parametrize("rest", [b"", b"\x17\x03\x03\x00\x20" + bytes(32)])
def test_the_end_of_tls_is_the_end_of_the_connection(office: Office, rest: bytes) -> None:
    server = office.station(PARTY0)
    server.start()
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(office.files(PARTY1)).wrap_bio(arrived, leaving)
    drive(tls.do_handshake, plain, arrived, leaving)
    tls.write(encode(Frame(LinkKind.HELLO, payload=b'{"arms":10}')))
    plain.sendall(leaving.read())
    server.until(lambda: bool(server.recorder.ready))
    with suppress(ssl.SSLError):
        tls.unwrap()
    plain.sendall(leaving.read() + rest)
    server.until(lambda: bool(server.recorder.lost))
    assert server.recorder.lost == [(PARTY1, "the connection ended without a goodbye", False)]
    plain.close()


def drive(step: Callable[[], None], sock: socket.socket, arrived: ssl.MemoryBIO, leaving: ssl.MemoryBIO) -> None:
    """Repeat a step of TLS, carrying its bytes by hand, until it is done."""
    while True:
        try:
            step()
        except ssl.SSLWantReadError:
            sock.sendall(leaving.read())
            arrived.write(sock.recv(65536))
        else:
            sock.sendall(leaving.read())
            return
