"""The newest interactions that were learned, kept in memory so that they can be unlearned."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Retained(OrderedDict[int, Kept], Generic[Kept]):
    """By the decision's number or name, in the order in which they were learned, `most` at most. With the same lessons
    in the same order everybody keeps the same ones."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def add(self, number: int, kept: Kept) -> None:
        """The newest; the oldest goes where there are too many."""
        self[number] = kept
        while len(self) > self.most:
            self.popitem(last=False)
