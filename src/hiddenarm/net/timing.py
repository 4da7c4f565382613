"""Times in the event loop: what is due, how often something may happen, and for how long a peer has said nothing.

A link is looked at now and then, and what it has received so far is compared with the last time (`Heartbeat`): nothing
is done for a frame. Where nothing came, the transport sends PING; a peer whose loop runs answers PONG.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count


class Timers:
    """Things to do later: a heap of callbacks, soonest first. Nothing is ever cancelled: what is no longer needed finds
    that out when its time comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = count()

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Call `callback` once `when` has come."""
        heapq.heappush(self._heap, (when, next(self._tickets), callback))

    def run(self, now: float) -> None:
        """Run what is due, soonest first."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            heapq.heappop(heap)[2]()

    def wait(self, now: float, longest: float | None) -> float | None:
        """How long one may sleep at `now`: until the next timer, and no longer than `longest`."""
        if not self._heap:
            return longest
        until_next = max(0.0, self._heap[0][0] - now)
        return until_next if longest is None else min(until_next, longest)


class Throttle:
    """Lets `burst` things pass at once and `per_second` in the long run: a bucket of tokens that fills at a steady
    rate."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._rate = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at = now

    def pause(self, now: float) -> float:
        """0 if one more may pass now, which then counts as passed; else the seconds until it may."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0


Progress = tuple[int, int]
"""Frames that came whole, and bytes of the one that is on its way."""


@dataclass(slots=True)
class Heartbeat:
    """One link: when something last came, and since when a frame has been on its way. Times are those of the looks."""

    heard_at: float
    frame_since: float
    progress: Progress = (0, 0)
    warned: bool = False
    """Whether somebody was told of the silence."""

    def look(self, progress: Progress, now: float) -> bool:
        """Whether anything came since the last look."""
        before, self.progress = self.progress, progress
        if progress[0] != before[0] or not progress[1]:
            self.frame_since = now
        if progress == before:
            return False
        self.heard_at = now
        return True

    def forgive(self, now: float) -> None:
        """We were away ourselves: what was not heard meanwhile counts for nothing."""
        self.heard_at = self.frame_since = now

    def silence(self, now: float) -> float:
        """Seconds without a byte."""
        return now - self.heard_at

    def slowness(self, now: float) -> float:
        """Seconds for which the same frame has been on its way."""
        return now - self.frame_since
