"""Two roles meet, talk and part, over real TLS on loopback."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from stations import PARTY0, PARTY1, Kind, Office, Recorder, captured_warnings

from deployment import free_ports
from hiddenarm.errors import ClientError, FrameError, HelloError, IdentityError, PeerLost
from hiddenarm.net._wire import Wire
from hiddenarm.net.frames import HEADER, Frame, LinkKind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import client_context
from hiddenarm.net.transport import HELD_BYTES, TURNS_HELD, Limits


class CountedSends:
    """What sends, and notes how often it does."""

    def __init__(self, wire: Wire, sends: list[int]) -> None:
        self._wire = wire
        self._sends = sends

    def send(self, data: bytes) -> bytes | None:
        self._sends.append(len(data))
        return self._wire.send(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


def round_frame(size: int, step: int = 0) -> Frame:
    return Frame(Kind.ROUND, program=1, step=step, payload=b"\x5a" * size)


def test_frames_arrive_whole_and_in_order(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    sent = [round_frame(size, step) for step, size in enumerate([0, 1, 4096, 17000, 300_000])]
    for frame in sent:
        client.transport.send(PARTY0, frame)
    client.until(lambda: len(server.recorder.frames) == len(sent))
    assert server.recorder.frames == sent


def test_large_frames_in_both_directions_at_once(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    frames = [round_frame(4 * 1024 * 1024, step) for step in range(3)]

    def send_all(peer: Identity) -> None:
        for frame in frames:
            server.transport.send(peer, frame)

    server.recorder.on_ready = send_all  # type: ignore[assignment, method-assign]
    server.start()
    client.transport.dial(PARTY0, "127.0.0.1", server.port)
    client.until(lambda: bool(client.recorder.ready))
    for frame in frames:
        client.transport.send(PARTY0, frame)
    client.until(lambda: len(client.recorder.frames) == 3 and len(server.recorder.frames) == 3)
    assert client.recorder.frames == server.recorder.frames == frames


def test_what_can_wait_travels_with_the_next_frame(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    connection = client.transport._peers[PARTY0]
    sends: list[int] = []
    connection._wire = CountedSends(connection.wire, sends)  # type: ignore[assignment]
    sent = [round_frame(10, step) for step in range(3)]
    client.transport.send_later(PARTY0, sent[0])
    client.transport.send_later(PARTY0, sent[1])
    assert not sends
    client.transport.send(PARTY0, sent[2])
    assert len(sends) == 1
    client.until(lambda: len(server.recorder.frames) == 3)
    assert server.recorder.frames == sent
    assert client.transport.meter.bytes_sent(PARTY0, Kind.ROUND) == 3 * (HEADER.size + 10)


def test_what_can_wait_leaves_when_there_is_nothing_to_read(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    client.transport.send_later(PARTY0, round_frame(10))
    client.until(lambda: len(server.recorder.frames) == 1)


def test_what_can_wait_leaves_before_the_goodbye(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    client.transport.send_later(PARTY0, round_frame(10))
    client.transport.close("done")
    server.until(lambda: bool(server.recorder.lost))
    assert server.recorder.frames == [round_frame(10)]
    assert server.recorder.lost == [(PARTY1, "done", True)]


def test_what_can_wait_does_not_wait_for_ever(office: Office) -> None:
    """Not until much has gathered, nor for as long as there is something to read."""
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    connection = client.transport._peers[PARTY0]
    frames = 0
    while frames == 0 or connection.held:
        client.transport.send_later(PARTY0, round_frame(10))
        frames += 1
    assert frames == HELD_BYTES // (HEADER.size + 10) + 1
    client.transport.send_later(PARTY0, round_frame(10))
    for _ in range(TURNS_HELD):
        client.transport.wake()
        client.transport.run_once(0)
        assert connection.held
    client.transport.wake()
    client.transport.run_once(0)
    assert not connection.held
    server.until(lambda: len(server.recorder.frames) == frames + 1)


def test_who_does_not_read_what_can_wait_is_cut_off_too(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1, limits=Limits(backlog_bytes=50_000))
    server.start()
    client.meet(server)
    server.transport.stop()  # it is there and reads nothing
    server.until(lambda: server.thread is not None and not server.thread.is_alive())
    for _ in range(100_000):
        if PARTY0 not in client.transport.ready:
            break
        client.transport.send_later(PARTY0, round_frame(5000))
        client.transport.run_once(0)
    assert "does not read" in client.recorder.lost[0][1]


def test_nothing_waits_for_a_peer_that_is_not_there(office: Office) -> None:
    with pytest.raises(PeerLost, match="party 1 is not connected"):
        office.station(PARTY0).transport.send_later(PARTY1, round_frame(10))


def test_the_meter_counts_what_both_ends_saw(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.recorder.answer = lambda peer, frame: server.transport.send(peer, frame)
    server.start()
    client.meet(server)
    for step in range(5):
        client.transport.send(PARTY0, round_frame(100, step))
    client.until(lambda: len(client.recorder.frames) == 5)
    size = 5 * (HEADER.size + 100)
    ours, theirs = client.transport.meter, server.transport.meter
    assert ours.most_frames_sent(Kind.ROUND, 1) == theirs.most_frames_sent(Kind.ROUND, 1) == 5
    assert ours.bytes_sent(PARTY0, Kind.ROUND) == theirs.bytes_received(PARTY1, Kind.ROUND) == size
    assert ours.bytes_received(kind=Kind.ROUND) == size
    assert ours.frames_sent(kind=LinkKind.HELLO) == ours.frames_received(kind=LinkKind.HELLO) == 1


def test_a_peer_that_starts_late_is_dialled_again(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    [port] = free_ports(1)
    client.transport.dial(PARTY0, "127.0.0.1", port)
    assert not client.transport.run_until(lambda: bool(client.recorder.ready), 0.1)
    assert server.transport.listen("127.0.0.1", port) == port
    for _ in range(2000):
        client.transport.run_once(0.005)
        server.transport.run_once(0.005)
        if client.recorder.ready and server.recorder.ready:
            break
    assert client.recorder.ready == [PARTY0]
    assert server.recorder.ready == [PARTY1]


def test_a_peer_that_never_starts_is_named(office: Office) -> None:
    client = office.station(PARTY1)
    [port] = free_ports(1)
    client.transport.dial(PARTY0, "127.0.0.1", port, deadline_seconds=0.1)
    with pytest.raises(PeerLost, match="party 0 could not be reached"):
        client.transport.run()


def test_sending_to_nobody_is_refused(office: Office) -> None:
    with pytest.raises(PeerLost, match="party 0 is not connected"):
        office.station(PARTY1).transport.send(PARTY0, round_frame(1))


def test_a_goodbye_is_graceful(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    client.transport.close("done for today\n")
    server.until(lambda: bool(server.recorder.lost))
    assert server.recorder.lost == [(PARTY1, "done for today?", True)]


def test_the_end_of_the_stream_without_goodbye_is_not_graceful(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    next(iter(client.transport._connections)).close()
    server.until(lambda: bool(server.recorder.lost))
    assert server.recorder.lost == [(PARTY1, "the connection ended without a goodbye", False)]


def test_an_abort_reaches_the_peer_with_its_reason(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    client.transport.drop(PARTY0, "round 3 has the wrong length \x1b[31m" + "x" * 2000)
    client.until(lambda: bool(server.recorder.lost))
    (peer, reason, graceful) = server.recorder.lost[0]
    assert (peer, graceful) == (PARTY1, False)
    assert reason.startswith("round 3 has the wrong length ?[31mxxx")
    assert len(reason) == 400
    assert client.recorder.lost == []


def test_a_malformed_frame_loses_an_established_peer_by_name(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    client.transport.send(PARTY0, Frame(Kind.DECIDE, payload=bytes(1025)))
    client.until(lambda: bool(client.recorder.lost))
    server.until(lambda: bool(server.recorder.lost))
    complaint = "DECIDE frame of 1025 bytes, at most 1024 are allowed"
    assert server.recorder.lost == [(PARTY1, complaint, False)]
    assert client.recorder.lost == [(PARTY0, complaint, False)]


def test_a_second_hello_is_refused(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)
    client.transport.send(PARTY0, Frame(LinkKind.HELLO, payload=b"{}"))
    client.until(lambda: bool(client.recorder.lost))
    assert client.recorder.lost == [(PARTY0, "a second hello", False)]


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"arms": 12}, "field 'arms' differs: 12 at party 1, 10 at party 0"),
        ({"arms": 10, "dim": 3}, "field 'dim' differs: 3 at party 1, missing at party 0"),
    ],
)
def test_a_different_hello_names_the_field_on_both_sides(office: Office, theirs: dict[str, int], words: str) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1, hello=theirs)
    with captured_warnings() as logs:
        server.start()
        client.transport.dial(PARTY0, "127.0.0.1", server.port)
        with pytest.raises(HelloError) as raised:
            client.transport.run()
        server.until(lambda: bool(logs))
    assert str(raised.value) == words
    field = words.split(":")[0]
    (line,) = logs
    assert line["reason"].startswith(field)
    assert line["peer"] == "party 1"
    assert server.recorder.ready == client.recorder.ready == []


def test_the_newer_of_two_connections_is_refused_and_may_come_back(office: Office) -> None:
    server, first, second = office.station(PARTY0), office.station(PARTY1), office.station(PARTY1)
    with captured_warnings() as logs:
        server.start()
        first.meet(server)
        second.transport.dial(PARTY0, "127.0.0.1", server.port)
        second.until(lambda: bool(logs))
        assert second.recorder.ready == []
        assert logs[0]["reason"] == "party 1 is already connected"
        first.transport.close()
        second.until(lambda: second.recorder.ready == [PARTY0])
    assert server.recorder.lost == [(PARTY1, "", True)]


def test_a_second_connection_with_another_configuration_is_told_the_field(office: Office) -> None:
    server, first, second = (office.station(PARTY0), office.station(PARTY1), office.station(PARTY1, hello={"arms": 9}))
    server.start()
    first.meet(server)
    second.transport.dial(PARTY0, "127.0.0.1", server.port)
    with pytest.raises(HelloError, match="field 'arms' differs: 10 at party 0, 9 at party 1"):
        second.transport.run()
    assert server.recorder.lost == []
    assert second.recorder.ready == []


def test_dialling_someone_else_is_refused(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.transport.dial(Identity(Role.DEALER), "127.0.0.1", server.port)
    with pytest.raises(IdentityError, match="is party 0, not dealer"):
        client.transport.run()


def test_a_dialler_that_is_not_expected_is_told_so(office: Office) -> None:
    server = office.station(PARTY0, recorder=Recorder(frozenset()))
    client = office.station(PARTY1)
    server.start()
    client.transport.dial(PARTY0, "127.0.0.1", server.port)
    with pytest.raises(HelloError, match="party 0 refused us: party 1 may not connect to party 0"):
        client.transport.run()


def test_frames_before_the_hello_are_refused(office: Office) -> None:
    server = office.station(PARTY0)
    with captured_warnings() as logs:
        server.start()
        plain = socket.create_connection(("127.0.0.1", server.port))
        with client_context(office.files(PARTY1)).wrap_socket(plain) as tls:
            tls.sendall(HEADER.pack(b"HA", 1, Kind.ROUND, 0, 0, 0, 0, 4096))
            server.until(lambda: bool(logs))
    assert [line["reason"] for line in logs] == ["ROUND frame before the hello"]


def test_a_peer_that_does_not_read_is_given_up(office: Office) -> None:
    server = office.station(PARTY0, limits=Limits(backlog_bytes=1_000_000, linger_seconds=0.05))
    client = office.station(PARTY1)
    port = server.transport.listen("127.0.0.1", 0)
    client.transport.dial(PARTY0, "127.0.0.1", port)
    for _ in range(1000):
        client.transport.run_once(0.005)
        server.transport.run_once(0.005)
        if client.recorder.ready and server.recorder.ready:
            break
    for _ in range(4):
        server.transport.send(PARTY1, round_frame(6_000_000))
    server.until(lambda: bool(server.recorder.lost))
    assert server.recorder.lost == [(PARTY1, "the peer does not read what it is sent", False)]


def test_an_exception_of_the_handler_leaves_the_loop(office: Office) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)

    def complain(peer: Identity, frame: Frame) -> None:
        raise FrameError(f"{peer} sent what nobody asked for")

    server.recorder.answer = lambda peer, frame: server.transport.send(peer, frame)
    client.recorder.answer = complain
    server.start()
    client.meet(server)
    client.transport.send(PARTY0, round_frame(1))
    with pytest.raises(FrameError, match="party 0 sent"):
        client.transport.run()


def test_stop_ends_a_loop_that_sleeps_in_another_thread(office: Office) -> None:
    server = office.station(PARTY0)
    server.start()
    thread = server.thread
    server.end()
    assert thread is not None
    assert not thread.is_alive()


@pytest.mark.parametrize("complaint", ["no such program", "party 1 sent it twice"])
def test_a_frame_that_the_role_refuses_is_told_with_its_sender(office: Office, complaint: str) -> None:
    server, client = office.station(PARTY0), office.station(PARTY1)
    client.start()

    def refuse(_: object, frame: Frame) -> None:
        raise FrameError(complaint)

    server.recorder.answer = refuse
    server.transport.dial(PARTY1, "127.0.0.1", client.port)
    server.until(lambda: PARTY1 in server.transport.ready)
    client.until(lambda: bool(client.recorder.ready))
    client.transport.send(PARTY0, Frame(Kind.ROUND))
    with pytest.raises(FrameError, match=r"^party 1 sent") as caught:
        server.transport.run_until(lambda: False, 10)
    assert str(caught.value).endswith(complaint)


def test_a_client_whose_frame_is_refused_loses_its_link_and_nothing_else_ends(office: Office) -> None:
    """It is told why, and the loop goes on: the same client may come back."""
    server, client = office.station(PARTY0), office.station(PARTY1)
    server.start()
    client.meet(server)

    def refuse(_: object, frame: Frame) -> None:
        raise ClientError("that was not due")

    server.recorder.answer = refuse
    for _ in range(3):
        client.transport.send(PARTY0, Frame(Kind.ROUND))
    client.until(lambda: bool(client.recorder.lost))
    server.until(lambda: bool(server.recorder.lost))
    assert client.recorder.lost == [(PARTY0, "that was not due", False)]
    assert server.recorder.lost == [(PARTY1, "that was not due", False)]
    assert len(server.recorder.frames) == 1  # what came behind it is not looked at
    client.meet(server)
