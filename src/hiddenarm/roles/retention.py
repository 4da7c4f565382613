"""Which lessons a party still keeps the interactions of, as a pure function of its log: all parties find the same.

With `keep_interactions`, an interaction can be unlearned while fewer than so many were learned in lessons behind its
own. What is older is pruned, but not before no party can need it: to learn lessons again it may go back to the oldest
checkpoint that is kept, and unlearnings behind that one may still be done again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

UNLEARNED_BEFORE = "this decision was unlearned before"
WAS_TAUGHT = "this decision was learned, or dropped"
NOT_LEARNED = "this decision was not learned in the lesson that is named"
NOT_KEPT = "this interaction is no longer kept"
"""Why an unlearning is refused."""


class CheckpointNeeds(NamedTuple):
    """Of a checkpoint: its version, and the first lesson that its sums do not hold."""

    version: int
    ungathered: int


class Retention:
    """Counts the interactions that lessons have learned. `most` is 0 if all are kept: then nothing is counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._learned = array("Q", [0])
        """How many were learned before each lesson, and in all."""

    def ended(self, interactions: int) -> None:
        """The next lesson has learned so many."""
        if self._most:
            self._learned.append(self._learned[-1] + interactions)

    def keeps(self, lesson: int) -> bool:
        """Whether the interactions of a lesson can still be unlearned."""
        return not self._most or self._learned[-1] - self._learned[lesson + 1] < self._most

    def prunable(self, pruned: int, checkpoints: Iterable[CheckpointNeeds], needed: int | None = None) -> range:
        """The lessons behind those that were pruned, of which nobody needs the interactions any more; none from the
        lesson `needed` on."""
        needs = list(checkpoints)
        if not self._most or not needs:
            return range(pruned, pruned)
        oldest, end = min(each.version for each in needs), pruned
        limit = min(each.ungathered for each in needs)
        limit = limit if needed is None else min(limit, needed)
        while end < limit and self._learned[oldest] - self._learned[end + 1] >= self._most:
            end += 1
        return range(pruned, end)
