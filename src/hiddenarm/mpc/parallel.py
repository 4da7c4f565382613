"""Operations side by side: their first rounds travel together, then their second rounds, and so on.

An operation is a generator that yields its rounds, so what runs side by side takes as many rounds as the longest of
them.

Security: openings that are made together are those that would have been made one after another.
"""

from __future__ import annotations

from typing import TypeAlias

from hiddenarm.mpc.run import Openings, Results, Rounds
from hiddenarm.mpc.values import Shared

SharedLater: TypeAlias = Rounds[Shared]
"""An operation that takes rounds, and gives a shared value."""


def in_parallel(*operations: Rounds[object]) -> Rounds[Results]:
    """Run operations side by side; give their results in order. Dealt words are asked for in the order of the list."""
    results: list[object] = [None] * len(operations)
    waiting: dict[int, Openings] = {}

    def advance(number: int, opened: Results | None) -> None:
        operation = operations[number]
        try:
            waiting[number] = next(operation) if opened is None else operation.send(opened)
        except StopIteration as end:
            results[number] = end.value

    for number in range(len(operations)):
        advance(number, None)
    while waiting:
        asked, waiting = waiting, {}
        opened = yield tuple(opening for openings in asked.values() for opening in openings)
        for number, openings in asked.items():
            own, opened = opened[: len(openings)], opened[len(openings) :]
            advance(number, own)
    return tuple(results)
