"""`Transport.exchange`: a round sent and answered on the spot, and everything that may come instead of the answer."""

from __future__ import annotations

import time
from threading import Event
from typing import Any

import pytest
from stations import PARTY0, PARTY1, Kind, Office, Station

from deployment import PATIENCE
from hiddenarm.net.answers import _FAILURES
from hiddenarm.net.connection import Connection
from hiddenarm.net.frames import Frame, encode
from hiddenarm.net.poller import READ

LONG = PATIENCE
"""Seconds to poll where the answer is sure to come."""


def round_frame(number: int, payload: bytes = b"words", step: int = 0) -> Frame:
    return Frame(Kind.ROUND, program=1, round=number, step=step, payload=payload)


def talking(office: Office, spin_seconds: float = LONG) -> tuple[Station, Station]:
    """A server in a thread of its own, and a client that polls."""
    server, client = office.station(PARTY0), office.station(PARTY1, spin_seconds=spin_seconds)
    server.start()
    client.meet(server)
    return server, client


def answer_with(server: Station, *frames: Frame) -> None:
    """Have the server answer every frame with these."""

    def answer(_: object, __: Frame) -> None:
        for frame in frames:
            server.transport.send(PARTY1, frame)

    server.recorder.answer = answer


def test_the_answer_comes_back_at_once_and_is_not_told_again(office: Office) -> None:
    server, client = talking(office)
    answer_with(server, round_frame(2, b"theirs"))
    assert client.transport.exchange([PARTY0], round_frame(2, b"ours")) == [b"theirs"]
    assert [frame.payload for frame in server.recorder.frames] == [b"ours"]
    client.transport.run_once(0.05)
    assert client.recorder.frames == []
    assert client.transport.meter.frames_received(PARTY0, Kind.ROUND) == 1


def test_a_large_answer_comes_in_many_pieces(office: Office) -> None:
    server, client = talking(office)
    theirs = bytes(range(256)) * 12345
    answer_with(server, round_frame(2, theirs))
    assert client.transport.exchange([PARTY0], round_frame(2, b"ours")) == [theirs]
    client.transport.run_once(0.05)
    assert client.recorder.frames == []


def test_part_of_an_answer_in_time_is_kept_for_the_loop(office: Office) -> None:
    server, client = talking(office, spin_seconds=0.1)
    encoded, given_up = encode(round_frame(2, b"theirs")), Event()

    def send_slowly(_: object, __: Frame) -> None:
        server.transport._peers[PARTY1]._write(encoded[:7])
        given_up.wait(PATIENCE)
        for piece in (encoded[7:23], encoded[23:]):
            server.transport._peers[PARTY1]._write(piece)
            time.sleep(0.01)

    server.recorder.answer = send_slowly
    assert client.transport.exchange([PARTY0], round_frame(2)) is None
    assert client.recorder.frames == []
    given_up.set()
    client.until(lambda: client.recorder.frames == [round_frame(2, b"theirs")])


def test_after_the_end_of_a_stream_nobody_is_waited_for(office: Office) -> None:
    server, client = talking(office)

    def answer_and_leave(_: object, __: Frame) -> None:
        link = server.transport._peers[PARTY1]
        link.hold(round_frame(2, b"last"))
        link.release()
        link.half_close()

    server.recorder.answer = answer_and_leave
    assert client.transport.exchange([PARTY0], round_frame(2)) == [b"last"]
    start = time.monotonic()
    assert client.transport.exchange([PARTY0], round_frame(3)) is None
    assert time.monotonic() - start < LONG
    client.until(lambda: bool(client.recorder.lost))
    assert client.recorder.lost == [(PARTY0, "the connection ended without a goodbye", False)]


def test_another_frame_instead_is_told_by_the_loop(office: Office) -> None:
    for other in (round_frame(3), round_frame(2, step=1), Frame(Kind.ROUND, program=2, round=2)):
        server, client = talking(office)
        answer_with(server, other, round_frame(2))
        assert client.transport.exchange([PARTY0], round_frame(2)) is None
        assert client.recorder.frames == []
        client.until(lambda recorder=client.recorder: len(recorder.frames) == 2)  # type: ignore[misc]
        assert client.recorder.frames == [other, round_frame(2)]
        client.end()
        server.end()


def test_what_follows_the_answer_is_told_by_the_loop(office: Office) -> None:
    server, client = talking(office)
    answer_with(server, round_frame(2, b"answer"), round_frame(3, b"next"))
    assert client.transport.exchange([PARTY0], round_frame(2)) == [b"answer"]
    client.until(lambda: bool(client.recorder.frames))
    assert client.recorder.frames == [round_frame(3, b"next")]


def test_what_an_exchange_has_read_is_told_before_what_comes_after_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two links can be read in one turn of the loop. To serve the first, an exchange reads from the second."""
    server, client = talking(office, spin_seconds=0.5)
    link = client.transport._peers[PARTY0]

    def answer_twice(_: object, __: Frame) -> None:
        server.transport.send(PARTY1, round_frame(3))
        time.sleep(0.1)
        server.transport.send(PARTY1, round_frame(4))

    def serve_the_first() -> None:
        assert client.transport.exchange([PARTY0], round_frame(2)) is None
        time.sleep(0.5)

    server.recorder.answer = answer_twice
    monkeypatch.setattr(client.transport, "_poll", lambda timeout: [(serve_the_first, READ), (link, READ)])
    client.transport.run_once()
    monkeypatch.undo()
    client.until(lambda: len(client.recorder.frames) == 2)
    assert client.recorder.frames == [round_frame(3), round_frame(4)]


def test_an_answer_that_does_not_come_in_time_is_told_by_the_loop(office: Office) -> None:
    server, client = talking(office, spin_seconds=0.01)
    given_up = Event()

    def answer_late(_: object, frame: Frame) -> None:
        given_up.wait(PATIENCE)
        server.transport.send(PARTY1, frame)

    server.recorder.answer = answer_late
    assert client.transport.exchange([PARTY0], round_frame(2)) is None
    given_up.set()
    client.until(lambda: client.recorder.frames == [round_frame(2)])


def test_who_keeps_being_late_is_not_waited_for(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = talking(office, spin_seconds=0.02)
    link, answer = client.transport._peers[PARTY0], Connection.answer
    seconds, looked = list[float](), set[int]()

    def watched(connection: Connection, *arguments: Any) -> Any:
        if connection is link:
            looked.add(len(seconds))
        return answer(connection, *arguments)

    monkeypatch.setattr(Connection, "answer", watched)
    for number in range(2 * _FAILURES):
        start = time.monotonic()
        assert client.transport.exchange([PARTY0], round_frame(number)) is None
        seconds.append(time.monotonic() - start)
    assert all(taken >= 0.02 for taken in seconds[:_FAILURES])
    assert looked == set(range(_FAILURES))


def test_with_two_peers_one_answer_alone_is_told_by_the_loop(office: Office) -> None:
    server, client = talking(office, spin_seconds=0.2)
    answer_with(server, round_frame(2))
    silent = office.station(PARTY0.__class__(PARTY0.role, 2))
    client.recorder.expected = frozenset({PARTY0, silent.transport.me})
    silent.recorder.expected = frozenset({PARTY1})
    silent.start()
    client.meet(silent, silent.transport.me)
    assert client.transport.exchange([PARTY0, silent.transport.me], round_frame(2)) is None
    client.until(lambda: client.recorder.frames == [round_frame(2)])


def test_a_peer_that_leaves_instead_of_answering_is_lost_to_the_loop(office: Office) -> None:
    server, client = talking(office)

    def hang_up(_: object, __: Frame) -> None:
        server.transport.drop(PARTY1, "enough")

    server.recorder.answer = hang_up
    assert client.transport.exchange([PARTY0], round_frame(2)) is None
    client.until(lambda: bool(client.recorder.lost))
    assert client.recorder.lost == [(PARTY0, "enough", False)]


def test_a_malformed_answer_ends_the_link_from_the_loop(office: Office) -> None:
    server, client = talking(office)

    def garbage(_: object, __: Frame) -> None:
        connection = server.transport._peers[PARTY1]
        connection.tls.write(b"no frame at all, but long enough to be a header")
        connection._push()

    server.recorder.answer = garbage
    assert client.transport.exchange([PARTY0], round_frame(2)) is None
    assert client.recorder.lost == []
    client.until(lambda: bool(client.recorder.lost))
    assert client.recorder.lost == [(PARTY0, "not a frame: unknown magic", False)]


def test_without_polling_nothing_is_awaited(office: Office) -> None:
    server, client = talking(office, spin_seconds=0.0)
    answer_with(server, round_frame(2))
    assert client.transport.exchange([PARTY0], round_frame(2)) is None
    client.until(lambda: client.recorder.frames == [round_frame(2)])
