"""The server of a role: connections on which nothing is asked are closed, those with a request under way are not; and
HTTPS, by which a role can be reached from elsewhere."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from http_roles import token_of
from test_http import change_kit

import hiddenarm
from deployment import PATIENCE, ROLES, Deployment, free_ports, provision
from hiddenarm.bandit.catalogue import SUBSET_SIZES, deciding
from hiddenarm.bandit.decisions import DecisionIds, decision_number, parts_of
from hiddenarm.errors import ConfigError, UnavailableError
from hiddenarm.web import server
from hiddenarm.web.api import DECISION_ID

SILENT = 0.3
REQUEST = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once; `/slow` only after several times the silence that is allowed."""
    if scope["path"] == "/slow":
        await asyncio.sleep(5 * SILENT)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(server, "SILENT_SECONDS", SILENT)
    with serving(server._configured(answers, None)) as port:
        yield port


@contextmanager
def serving(config: uvicorn.Config) -> Iterator[int]:
    bound = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([bound],))
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join()
        bound.close()


def read_answer(caller: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"\r\n\r\nok"):
        chunk = caller.recv(4096)
        assert chunk, "the connection was closed"
        answer += chunk
    return answer


def is_closed(caller: socket.socket) -> bool:
    """Waits until the server closes a connection; for a minute at most."""
    return caller.recv(4096) == b""


def test_a_connection_without_a_request_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
        assert is_closed(caller)


def test_a_request_that_never_ends_is_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert is_closed(caller)


def test_a_connection_that_falls_silent_after_an_answer_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
        caller.sendall(REQUEST % b"one")
        assert b" 200 " in read_answer(caller)
        assert is_closed(caller)


def test_a_request_under_way_is_answered_however_long_it_takes(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
        began = time.monotonic()
        caller.sendall(REQUEST % b"slow")
        assert b" 200 " in read_answer(caller)
        assert time.monotonic() - began > 4 * SILENT
        assert is_closed(caller)


def test_what_still_waits_when_the_server_stops_is_refused_and_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off, it would be answered with 500: a caller would not know that the request may be made again."""
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.1)
    began, refused = threading.Event(), threading.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        began.set()
        while not refused.is_set():
            await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    bound = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(server._configured(waits, None))
    thread = threading.Thread(target=running.run, args=([bound],))
    thread.start()
    with bound, socket.create_connection(("127.0.0.1", bound.getsockname()[1]), PATIENCE) as caller:
        caller.sendall(REQUEST % b"one")
        assert began.wait(PATIENCE)
        server.end(running, thread, refused.set)
        assert b" 503 " in read_answer(caller)


# ------------------------------------------------------------------ HTTPS


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "web.pem", folder / "web.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    paths[1].write_bytes(private)
    paths[1].chmod(0o600)
    return paths


def test_a_key_that_others_may_read_is_refused_by_name(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"web\.key is open to group or others"):
        server._configured(answers, (certificate, key))


def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    certificate.unlink()
    with pytest.raises(ConfigError, match=r"cannot be served by TLS with .*web\.pem"):
        server._configured(answers, (certificate, key))


def test_decisions_and_rewards_over_https(tmp_path: Path) -> None:
    """With the certificate that is to be trusted; without it, and in plain text, nothing is told."""
    with Deployment(provision(tmp_path, http=True)) as deployment:
        kits, ports = deployment.kits, dict(zip(("actor", "rewarder"), free_ports(2), strict=True))
        for role, port in ports.items():
            write_certificate(kits / role)
            address = f"0.0.0.0:{port}" if role == "actor" else f"127.0.0.1:{port}"
            change_kit(kits / role, http=address, http_certificate="web.pem", http_key="web.key")
        deployment.start(*ROLES)
        for role in ports:
            deployment.until(role, "serving")
        trusted: dict[str, dict[str, Any]] = {
            role: {"token": token_of(kits, role), "authority": kits / role / "web.pem"} for role in ports
        }
        with (
            hiddenarm.Actor(f"https://127.0.0.1:{ports['actor']}", **trusted["actor"]) as actor,
            hiddenarm.Rewarder(f"https://localhost:{ports['rewarder']}", **trusted["rewarder"]) as rewarder,
        ):
            ranked = insist(lambda: actor.rank("user 17", event_id="visit-1", timeout=60))
            assert rewarder.reward(ranked, 1.0, timeout=60) == 1
        url = f"https://127.0.0.1:{ports['actor']}"
        with hiddenarm.Actor(url, token=token_of(kits, "actor")) as stranger, pytest.raises(UnavailableError):
            stranger.rank("user 17")
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(f"http://127.0.0.1:{ports['actor']}/livez", timeout=PATIENCE)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(f"{url}/livez", timeout=PATIENCE, context=old) as answer:
            assert answer.read() == b'{"live": true}\n'


def test_an_authority_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("nowhere.pem", "empty.pem"):
        with pytest.raises(ConfigError, match=rf"{name} is no file of a certificate to trust"):
            hiddenarm.Actor("https://127.0.0.1:9", token="x", authority=tmp_path / name)


def insist(rank: Any) -> Any:
    """The server listens before it is ready."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return rank()
        except UnavailableError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("count", [1, 2, 4095])
@pytest.mark.parametrize("slots", [None, *SUBSET_SIZES])
def test_the_id_of_any_decision_is_taken_for_one(slots: int | None, count: int) -> None:
    """Where some of many arms are eligible its number has up to 20 digits."""
    identifier = DecisionIds("3f9c02d17ab4", bytes(32)).id_of(decision_number(deciding(count, slots), 2**31, count - 1))
    assert len(identifier) <= 50
    assert re.search(DECISION_ID, identifier)
    assert parts_of(identifier)
