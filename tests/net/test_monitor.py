"""Pages on a loopback port: small, from this machine only, and no burden to the links."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from threading import current_thread

import pytest
from stations import PARTY0, PARTY1, Kind, Office, Station

from deployment import PATIENCE, free_ports
from hiddenarm.net.frames import Frame
from hiddenarm.net.monitor import MAX_CALLERS, Monitor, Page


@pytest.fixture
def server(office: Office) -> Station:
    return office.station(PARTY0)


@pytest.fixture
def monitor(server: Station) -> Iterator[Monitor]:
    pages = {
        "/a": lambda: Page("all is well\n"),
        "/b": lambda: Page("{}", 503, "application/json"),
        "/thread": lambda: Page(current_thread().name),
        "/broken": lambda: Page(str(1 // 0)),
    }
    monitor = Monitor(server.transport, 0, pages, loop_seconds=PATIENCE)
    server.start()
    yield monitor
    stop_loop(server)
    monitor.close()


def stop_loop(server: Station) -> None:
    if server.thread is not None:
        server.transport.stop()
        server.thread.join()
        server.thread = None


def ask(monitor: Monitor, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=PATIENCE) as sock:
        sock.sendall(request)
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
        return answer


def test_a_page(monitor: Monitor) -> None:
    answer = ask(monitor, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Content-Length: 12\r\n" in answer
    assert answer.endswith(b"\r\n\r\nall is well\n")
    assert ask(monitor, b"GET /b?x=1 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 503 Service Unavailable\r\n")


def test_a_page_is_made_by_the_loop(server: Station, monitor: Monitor) -> None:
    assert server.thread is not None
    assert ask(monitor, b"GET /thread HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n" + server.thread.name.encode())


def test_a_loop_that_does_not_run_is_told(server: Station, monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that speaks HTTP is alive; what counts is the loop. Pages that came too late are not made."""
    made: list[int] = []

    def late() -> Page:
        made.append(1)
        return Page("late")

    monitor._pages["/late"] = late
    stop_loop(server)
    monkeypatch.setattr(monitor, "_loop_seconds", 1.0)
    begun = time.monotonic()
    head, _, body = ask(monitor, b"GET /late HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert time.monotonic() - begun >= 1.0
    assert head.startswith(b"HTTP/1.0 503")
    reasons = ["the loop of this role has not answered for 1 seconds"]
    assert json.loads(body) == {"live": False, "ready": False, "reasons": reasons, "notes": []}
    monkeypatch.undo()
    server.start()
    assert ask(monitor, b"GET /a HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200")
    assert made == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /c HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /a HTTP/1.1\r\n\r\n", b"405"),
        (b"HEAD /a HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500"),
        (b"GET /a HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n", b"414"),
    ],
)
def test_what_is_no_page(monitor: Monitor, request_: bytes, status: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(monitor, request_).startswith(b"HTTP/1.0 " + status)
    assert ask(monitor, b"GET /a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200")
    assert capfd.readouterr() == ("", "")  # the log is for events of the role


@pytest.mark.parametrize("request_", [b"", b"GET", b"\xff\x00 \xff\r\n\r\n", b"\r\n\r\n", b"x" * 4096])
def test_a_caller_that_makes_no_sense_or_goes_away(
    monitor: Monitor, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=PATIENCE) as sock:
        sock.sendall(request_)
    assert ask(monitor, b"GET /a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200")
    assert capfd.readouterr() == ("", "")


def test_a_request_in_pieces(monitor: Monitor) -> None:
    with socket.create_connection(("127.0.0.1", monitor.port), timeout=PATIENCE) as sock:
        for piece in (b"GET ", b"/a HT", b"TP/1.1\r\n", b"\r\n"):
            sock.sendall(piece)
        assert sock.recv(4096).startswith(b"HTTP/1.0 200")


def test_only_so_many_callers_at_once(monitor: Monitor) -> None:
    idle = [socket.create_connection(("127.0.0.1", monitor.port), timeout=PATIENCE) for _ in range(40)]
    assert ask(monitor, b"GET /a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200")
    assert len(monitor._server._callers) <= MAX_CALLERS == 16
    for sock in idle:
        sock.close()


def test_it_listens_on_loopback_only(monitor: Monitor) -> None:
    assert monitor._server.socket.getsockname()[0] == "127.0.0.1"


def test_links_are_served_beside_it(office: Office, server: Station, monitor: Monitor) -> None:
    client = office.station(PARTY1)
    client.meet(server)
    for number in range(20):
        client.transport.send(PARTY0, Frame(Kind.ROUND, step=number))
        ask(monitor, b"GET /a HTTP/1.1\r\n\r\n")
    server.until(lambda: len(server.recorder.frames) == 20)


def test_a_closed_monitor_frees_its_port_at_once(office: Office) -> None:
    """The quickest of some: a busy machine may stand still in any of them."""
    station, seconds = office.station(PARTY0), []
    for port in free_ports(10):
        first = Monitor(station.transport, port, {})
        begun = time.monotonic()
        first.close()
        seconds.append(time.monotonic() - begun)
        assert not first._thread.is_alive()
        Monitor(station.transport, port, {}).close()
    assert min(seconds) < 0.1


def from_elsewhere(monitor: Monitor, path: str, *headers: str) -> bytes:
    """As a caller on another machine: any address that is not the loopback that callers here have."""
    lines = "".join(f"{header}\r\n" for header in ("Host: 127.0.0.1", *headers))
    with socket.create_connection(("127.0.0.1", monitor.port), 10, source_address=("127.0.0.2", 0)) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
        return answer


def test_pages_that_are_not_for_everybody(server: Station) -> None:
    """Own pages are for callers here only; guarded ones for others who show the token, which is never repeated."""
    pages = {path: lambda: Page("told\n") for path in ("/open", "/own", "/guarded")}
    monitor = Monitor(
        server.transport,
        0,
        pages,
        own=frozenset({"/own"}),
        guarded=frozenset({"/guarded"}),
        admitted=lambda shown: shown == "Bearer s3cr3t",
    )
    server.start()
    try:
        for path in pages:
            assert ask(monitor, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).endswith(b"told\n")
        shown, wrong = "Authorization: Bearer s3cr3t", "Authorization: Bearer s3cr3"
        assert from_elsewhere(monitor, "/open").endswith(b"told\n")
        for header in (shown, wrong):
            assert from_elsewhere(monitor, "/own", header).startswith(b"HTTP/1.0 403 ")
        assert from_elsewhere(monitor, "/guarded", shown).endswith(b"told\n")
        for headers in ((), (wrong,), ("Authorization: s3cr3t",), (f"X-{shown}",)):
            answer = from_elsewhere(monitor, "/guarded", *headers)
            assert answer.startswith(b"HTTP/1.0 401 Unauthorized\r\n")
            assert b"WWW-Authenticate: Bearer\r\n" in answer
            assert b"told" not in answer
            assert b"s3cr3" not in answer
    finally:
        stop_loop(server)
        monitor.close()
