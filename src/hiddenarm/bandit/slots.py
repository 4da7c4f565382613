"""Slots of rewards: when a reward is sent must tell nothing about it, nor about the arm that earned it.

    1. a decision belongs to the slot in which it was made
    2. all rewards of a slot are sent together at the end of the next slot, in the order of the decisions
    3. what has not come by then is sent as a default

So times and sizes of all that is sent are functions of when decisions were made. A reward that comes later than a slot
after the end of its own is lost. This is the order alone: what ends a slot, a clock or a count, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Slots(Generic[T]):
    """Things that were decided: those of the slot under way, and those of the slot before, whose rewards are awaited
    until this one ends."""

    def __init__(self, awaited: Iterable[T] = ()) -> None:
        self.current: list[T] = []
        self.awaited: list[T] = list(awaited)

    def add(self, things: Iterable[T]) -> None:
        """They belong to the slot under way."""
        self.current.extend(things)

    def end(self) -> list[T]:
        """The slot under way has ended: what is to be sent now."""
        due, self.awaited, self.current = self.awaited, self.current, []
        return due


def in_lessons(due: Sequence[T], most: int) -> list[Sequence[T]]:
    """What a slot sends, as lessons of at most so many rewards. Their sizes are powers of two, as programs are recorded
    for each size that comes; they follow from the number of decisions alone."""
    lessons, first = [], 0
    while first < len(due):
        size = 1 << min(len(due) - first, most).bit_length() - 1
        lessons.append(due[first : first + size])
        first += size
    return lessons
