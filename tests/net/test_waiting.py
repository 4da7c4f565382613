"""Waiting for bytes at a socket, in C: what is there, what comes later, and everything that may come instead."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from math import inf, nan

import pytest

from hiddenarm.net._waiting import receive

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
