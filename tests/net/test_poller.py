"""A poller tells what can be read or written, once it is asked to, whichever call of the kernel is behind it."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from threading import Lock, Thread

import pytest

from hiddenarm.net.poller import READ, WRITE, Kernel, Poll, Poller


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("kernel", [select.epoll, Poll])
def test_what_can_be_done_is_told_with_what_serves_it(
    kernel: Callable[[], Kernel], pair: tuple[socket.socket, socket.socket]
) -> None:
    poller, (here, there) = Poller[str](kernel()), pair
    poller.register(here, READ, "a link")
    assert poller.poll(0) == []
    there.send(b"x")
    assert poller.poll(None) == [("a link", READ)]
    poller.modify(here, READ | WRITE)
    assert poller.poll(1.0) == [("a link", READ | WRITE)]
    assert poller.unregister(here) == "a link"
    assert poller.poll(0) == []
    poller.close()


@pytest.mark.parametrize("kernel", [select.epoll, Poll])
def test_a_hang_up_is_more_than_something_to_read(
    kernel: Callable[[], Kernel], pair: tuple[socket.socket, socket.socket]
) -> None:
    poller, (here, there) = Poller[str](kernel()), pair
    poller.register(here, READ, "a link")
    there.close()
    [(served, events)] = poller.poll(1.0)
    assert served == "a link"
    assert events != READ
    poller.close()


@pytest.mark.parametrize("kernel", [select.epoll, Poll])
def test_a_deadline_that_has_passed_is_not_waited_for(kernel: Callable[[], Kernel]) -> None:
    poller = Poller[str](kernel())
    assert poller.poll(-0.5) == []
    assert poller.poll(0.001) == []
    poller.close()


def test_a_socket_that_is_not_watched_cannot_be_forgotten(pair: tuple[socket.socket, socket.socket]) -> None:
    poller = Poller[str]()
    with pytest.raises(KeyError):
        poller.unregister(pair[0])
    poller.close()


@pytest.mark.parametrize("kernel", [select.epoll, Poll])
def test_a_lock_is_free_while_one_waits_and_what_was_unregistered_meanwhile_is_left_out(
    kernel: Callable[[], Kernel], pair: tuple[socket.socket, socket.socket]
) -> None:
    poller, (here, there), lock = Poller[str](kernel()), pair, Lock()
    poller.register(here, READ, "a link")

    def intrude() -> None:
        with lock:  # only to be had while the other thread waits
            there.send(b"x")
            time.sleep(0.05)  # it has been woken up, and wants the lock back
            poller.unregister(here)

    intruder = Thread(target=intrude)
    with lock:
        intruder.start()
        assert poller.poll_unlocked(None, lock) == []
        assert lock.locked()
        intruder.join()
    poller.close()
