"""Things to do later. Nothing is ever cancelled: what is no longer needed finds that out when its time comes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timers:
    """A heap of callbacks, soonest first."""

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
