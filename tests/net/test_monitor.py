"""Pages on a loopback port: small, from this machine only, and no burden to the links."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from stations import PARTY0, PARTY1, Office, Station

from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.monitor import Monitor, Page


@pytest.fixture
def server(office: Office) -> Station:
    return office.station(PARTY0)


@pytest.fixture
def monitor(server: Station) -> Iterator[Monitor]:
    pages = {"/a": lambda: Page("all is well\n"), "/b": lambda: Page("{}", 503, "application/json")}
    monitor = Monitor(server.switchboard, 0, pages)
    server.start()
    yield monitor
    server.switchboard.stop()
    assert server.thread is not None
    server.thread.join()
    server.thread = None
    monitor.close()


def ask(monitor: Monitor, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=10) as sock:
        sock.sendall(request)
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
        return answer


def test_a_page(monitor: Monitor) -> None:
    answer = ask(monitor, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 12\r\n" in answer
    assert answer.endswith(b"\r\n\r\nall is well\n")
    assert ask(monitor, b"GET /b?x=1 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 Unavailable\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /c HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /a HTTP/1.1\r\n\r\n", b"405"),
        (b"\r\n\r\n", b"405"),
        (b"x" * 4096, b"400"),
        (b"\xff\x00 \xff\r\n\r\n", b"405"),
    ],
)
def test_what_is_no_page(monitor: Monitor, request_: bytes, status: bytes) -> None:
    assert ask(monitor, request_).startswith(b"HTTP/1.1 " + status)


def test_a_request_in_pieces(monitor: Monitor) -> None:
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=10) as sock:
        for piece in (b"GET ", b"/a HT", b"TP/1.1\r\n", b"\r\n"):
            sock.sendall(piece)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


def test_only_so_many_callers_at_once(monitor: Monitor) -> None:
    idle = [socket.create_connection(("127.0.0.1", monitor.port), timeout=10) for _ in range(40)]
    assert ask(monitor, b"GET /a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert len(monitor._callers) <= 16
    for sock in idle:
        sock.close()


def test_it_listens_on_loopback_only(monitor: Monitor) -> None:
    assert monitor._listener.getsockname()[0] == "127.0.0.1"


def test_links_are_served_beside_it(office: Office, server: Station, monitor: Monitor) -> None:
    client = office.station(PARTY1)
    client.meet(server)
    for number in range(20):
        client.switchboard.send(PARTY0, Frame(Kind.ROUND, step=number))
        ask(monitor, b"GET /a HTTP/1.1\r\n\r\n")
    server.until(lambda: len(server.recorder.frames) == 20)
