"""Ctrl-C ends a long run after the step under way, with the result of the steps made; a second one ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
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
