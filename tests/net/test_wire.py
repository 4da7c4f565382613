"""The lowest part of a link, in C: waiting for bytes at a socket, and TLS that goes out and comes in, one call each."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from math import inf, nan

import pytest

from hiddenarm.net._wire import Wire, receive
from hiddenarm.net.frames import HEADER_BYTES, Frame, encode
from hiddenarm.roles.messages import Kind

LONG = 300.0
"""Seconds to wait where something is sure to come."""
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Two ends of a TCP connection; the first does not block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near = listener.accept()[0]
    near.setblocking(False)
    with near, far:
        yield near, far


def test_bytes_that_are_there(ends: Ends) -> None:
    near, far = ends
    far.sendall(b"words")
    buffer = bytearray(16)
    assert receive(near.fileno(), buffer, LONG) == 5
    assert buffer == b"words" + bytes(11)


def test_no_more_than_there_is_room_for(ends: Ends) -> None:
    near, far = ends
    far.sendall(b"several words")
    buffer = bytearray(b"................")
    assert receive(near.fileno(), memoryview(buffer)[4:11], LONG) == 7
    assert buffer == b"....several....."
    assert receive(near.fileno(), buffer, LONG) == 6
    assert buffer[:6] == b" words"


def test_bytes_that_come_later_from_another_thread(ends: Ends) -> None:
    near, far = ends
    sender = threading.Timer(0.05, far.sendall, [b"late"])
    start, buffer = time.monotonic(), bytearray(16)
    sender.start()
    assert receive(near.fileno(), buffer, inf) == 4
    assert buffer[:4] == b"late"
    assert time.monotonic() - start >= 0.04
    sender.join()


def test_nothing_comes_in_time(ends: Ends) -> None:
    start, used = time.monotonic(), time.thread_time()
    assert receive(ends[0].fileno(), bytearray(16), 0.05) == -1
    assert 0.05 <= time.monotonic() - start < LONG
    assert time.thread_time() > used  # it was awake


@pytest.mark.parametrize("seconds", [0, 0.0, -1.0, -inf, nan])
def test_one_look(ends: Ends, seconds: float) -> None:
    near, far = ends
    start = time.monotonic()
    assert receive(near.fileno(), bytearray(16), seconds) == -1
    assert time.monotonic() - start < LONG
    far.sendall(b"x")
    near.setblocking(True)
    near.recv(1, socket.MSG_PEEK)
    assert receive(near.fileno(), bytearray(16), seconds) == 1
    assert receive(near.fileno(), bytearray(16), seconds) == -1, "a blocking socket does not block here"


def test_the_end_of_the_stream_comes_after_the_bytes_and_stays(ends: Ends) -> None:
    near, far = ends
    far.sendall(b"last words")
    far.shutdown(socket.SHUT_WR)
    assert [receive(near.fileno(), bytearray(16), LONG) for _ in range(3)] == [10, 0, 0]


def test_a_reset_is_raised_as_sockets_raise_it(ends: Ends) -> None:
    near, far = ends
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    threading.Timer(0.02, far.close).start()
    with pytest.raises(ConnectionResetError):
        receive(near.fileno(), bytearray(16), LONG)


def test_what_is_no_socket_is_refused_at_once() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        receive(-1, bytearray(16), LONG)
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Socket operation on non-socket"):
        receive(reading, bytearray(16), LONG)
    os.close(reading)
    os.close(writing)


def test_arguments_that_make_no_sense(ends: Ends) -> None:
    number, buffer = ends[0].fileno(), bytearray(16)
    with pytest.raises(BufferError):
        receive(number, memoryview(bytes(16)), 0.0)
    with pytest.raises(BufferError):
        receive(number, memoryview(bytearray(16))[::2], 0.0)
    with pytest.raises(ValueError, match="no room"):
        receive(number, bytearray(), 0.0)
    for too_large in (2**31, -(2**31) - 1, 2**80):
        with pytest.raises(OverflowError):
            receive(too_large, buffer, 0.0)
    for wrong in ((), (number, buffer), ("3", buffer, 0.0), (number, 16, 0.0), (number, buffer, "")):
        with pytest.raises(TypeError):
            receive(*wrong)


def test_a_buffer_cannot_move_while_it_is_waited_for(ends: Ends) -> None:
    near, far = ends
    buffer, counts = bytearray(16), list[int]()
    waiter = threading.Thread(target=lambda: counts.append(receive(near.fileno(), buffer, LONG)))
    waiter.start()

    def grow_until_the_other_thread_waits() -> None:
        while waiter.is_alive():
            buffer.append(0)
            time.sleep(0.001)

    with pytest.raises(BufferError):
        grow_until_the_other_thread_waits()
    with pytest.raises(BufferError):
        buffer.extend(bytes(1 << 20))
    far.sendall(b"words")
    waiter.join()
    assert counts == [5]
    buffer.extend(b"now it can")


def test_a_signal_is_seen_to_while_waiting(ends: Ends) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    def wait_for_the_signal() -> None:  # which may also come before the wait begins
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        receive(ends[0].fileno(), bytearray(16), LONG)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupted):
            wait_for_the_signal()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_whose_handler_returns_does_not_end_the_wait(ends: Ends) -> None:
    near, far = ends
    before = signal.signal(signal.SIGALRM, lambda *_: far.sendall(b"from the handler"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert receive(near.fileno(), bytearray(64), LONG) == 16
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Plain:
    """In the place of TLS: the same two buffers, but the records are text between brackets, which none has inside. `!`
    is the end, `?` a fault."""

    def __init__(self) -> None:
        self.arrived, self.leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._kept = b""

    def write(self, data: bytes) -> int:
        return self.leaving.write(b"[" + data + b"]")

    def read(self, size: int, buffer: memoryview) -> int:
        self._kept += self.arrived.read()
        if self._kept[:1] == b"!":
            raise ssl.SSLZeroReturnError
        if self._kept[:1] == b"?":
            raise ssl.SSLError(1, "a fault")
        end = self._kept.find(b"]")
        if end < 0:
            raise ssl.SSLWantReadError
        record, rest = self._kept[1:end], self._kept[end + 1 :]
        assert len(record) <= size
        buffer[: len(record)] = record
        self._kept = b""
        self.arrived.write(rest)
        return len(record)


ASKED = encode(Frame(Kind.ROUND, 1, 2, 3, b"ours"))
BUFFER = memoryview(bytearray(64 * 1024))


def wire_at(sock: socket.socket) -> Wire:
    plain = Plain()
    return Wire(sock.fileno(), plain.arrived, plain.leaving, plain)


def record(data: bytes) -> bytes:
    return b"[" + data + b"]"


def answer_of(payload: bytes, **other: int) -> bytes:
    fields = {"program": 1, "round": 2, "step": 3, **other}
    return encode(Frame(Kind.ROUND, fields["program"], fields["round"], fields["step"], payload))


def test_what_is_sent_leaves_encrypted_and_whole(ends: Ends) -> None:
    near, far = ends
    assert wire_at(near).send(b"words") is None
    assert far.recv(64) == b"[words]"


def test_what_the_socket_does_not_take_is_given_back(ends: Ends) -> None:
    near, far = ends
    wire, sent = wire_at(near), bytes(32 * 1024 * 1024)
    rest = wire.send(sent)
    assert rest is not None
    near.setblocking(True)
    sender = threading.Thread(target=near.sendall, args=(rest,))
    sender.start()
    received = bytearray()
    while len(received) < len(sent) + 2:
        received += far.recv(1 << 20)
    sender.join()
    assert received == record(sent)


def test_a_socket_that_is_gone_is_an_error(ends: Ends) -> None:
    near, _ = ends
    wire = wire_at(near)
    wire.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        wire.send(b"words")
    with pytest.raises(OSError, match="Bad file descriptor"):
        wire.read(BUFFER, 0.0)


def test_records_are_read_together_and_parts_of_them_later(ends: Ends) -> None:
    near, far = ends
    wire = wire_at(near)
    far.sendall(b"[one][two][thr")
    assert wire.read(BUFFER, LONG) == 6
    assert bytes(BUFFER[:6]) == b"onetwo"
    assert wire.read(BUFFER, 0.0) == 0
    far.sendall(b"ee]")
    assert wire.read(BUFFER, LONG) == 5
    assert bytes(BUFFER[:5]) == b"three"
    assert not wire.ended


@pytest.mark.parametrize("last", [b"", b"!"], ids=["the stream ends", "TLS is ended"])
def test_what_came_before_the_end_is_read(ends: Ends, last: bytes) -> None:
    near, far = ends
    wire = wire_at(near)
    far.sendall(record(b"last words") + last)
    far.shutdown(socket.SHUT_WR)
    count = 0
    while not wire.ended:
        count += wire.read(BUFFER[count:], LONG)
    assert bytes(BUFFER[:count]) == b"last words"
    assert wire.read(BUFFER, LONG) == 0


def test_a_fault_of_tls_is_raised(ends: Ends) -> None:
    near, far = ends
    far.sendall(b"?")
    with pytest.raises(ssl.SSLError, match="a fault"):
        wire_at(near).read(BUFFER, LONG)


@pytest.mark.parametrize("size", [0, 1, 4, 40_000])
def test_the_payload_of_an_answer_comes_whole(ends: Ends, size: int) -> None:
    near, far = ends
    payload = os.urandom(size).replace(b"]", b"x")
    data = answer_of(payload)
    for at in range(0, len(data), 10_000):
        far.sendall(record(data[at : at + 10_000]))
    assert wire_at(near).answer(ASKED, BUFFER, LONG) == payload


@pytest.mark.parametrize(
    "came",
    [
        answer_of(b"theirs", step=4),
        answer_of(b"theirs", round=1),
        answer_of(b"theirs", program=2),
        encode(Frame(Kind.REFUSED, 1, 2, 3, b"theirs")),
        answer_of(b"theirs") + b"and more",
        answer_of(b"theirs") * 2,
        b"no header",
        answer_of(b"theirs")[:4],
        answer_of(b"theirs")[: HEADER_BYTES + 1],
        struct.pack("<2sBBBBHQI", *struct.unpack_from("<2sBBBBHQ", ASKED), 2**32 - 1),
    ],
)
def test_what_is_no_answer_or_not_only_one_is_left_to_the_caller(ends: Ends, came: bytes) -> None:
    near, far = ends
    far.sendall(record(came))
    wire = wire_at(near)
    seconds = 0.0
    count = wire.answer(ASKED, BUFFER, seconds)
    while count == 0:
        count = wire.answer(ASKED, BUFFER, seconds)
    assert count == len(came)
    assert bytes(BUFFER[: len(came)]) == came


def test_no_answer_in_time(ends: Ends) -> None:
    start = time.monotonic()
    assert wire_at(ends[0]).answer(ASKED, BUFFER, 0.05) == 0
    assert time.monotonic() - start >= 0.05


def test_more_than_there_is_room_for_is_left_to_the_caller_in_parts(ends: Ends) -> None:
    """Never more is taken in than there is room for in the clear."""
    near, far = ends
    wire, sent = wire_at(near), answer_of(os.urandom(300_000).replace(b"]", b"x"))
    records = b"".join(record(sent[at : at + 16_000]) for at in range(0, len(sent), 16_000))
    sender = threading.Thread(target=far.sendall, args=(records,))
    sender.start()
    first = wire.answer(ASKED, BUFFER, LONG)
    assert isinstance(first, int)
    received = bytearray(BUFFER[:first])
    while len(received) < len(sent):
        received += BUFFER[: wire.read(BUFFER, LONG)]
    sender.join()
    assert received == sent


def test_mistakes_of_a_caller_are_told(ends: Ends) -> None:
    wire, small = wire_at(ends[0]), memoryview(bytearray(16 * 1024))
    with pytest.raises(ValueError, match="no room for a record"):
        wire.read(small, 0.0)
    with pytest.raises(ValueError, match="no room for a record"):
        wire.answer(ASKED, small, 0.0)
    with pytest.raises(TypeError, match="answer"):
        wire.answer(b"short", BUFFER, 0.0)
    with pytest.raises(ValueError, match="not initialised"):
        Wire.__new__(Wire).read(BUFFER, 0.0)
    with pytest.raises(OverflowError, match="no descriptor"):
        Wire(2**40, ssl.MemoryBIO(), ssl.MemoryBIO(), Plain())
