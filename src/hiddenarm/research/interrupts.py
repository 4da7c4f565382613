"""Ctrl-C ends a long run, also one that was started in the background, where a shell has interrupts ignored.

A run of steps ends after the step under way, with the result of the steps made; a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


def until_interrupted(items: Iterable[T]) -> Iterator[T]:
    """Yield items until the user interrupts."""
    interrupted = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        for item in items:
            if interrupted:
                return
            yield item
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def obeying_interrupts() -> Iterator[None]:
    """Have an interrupt raise KeyboardInterrupt meanwhile."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def interrupts_put_off() -> Iterator[None]:
    """Have an interrupt take effect at the end of the block. Processes and threads that are started in it never get
    one: Ctrl-C, which a terminal sends to all processes of a command, is for the command to obey."""
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    previous = signal.signal(signal.SIGINT, note)  # also for threads that were there before
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, previous)
    if came:
        signal.raise_signal(signal.SIGINT)
