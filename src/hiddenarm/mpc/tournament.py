"""The maximum of a shuffled list, by opened comparisons (Hamada et al. 2012).

    1. split the list into groups; compare all pairs within each group and open the results (3 rounds)
    2. go on with the winners, whose slots are public, until one is left
Short lists are one group. Longer ones take as few levels as keep groups at 20 or below: 3 rounds a level, and a number
of comparisons linear in the length.

Security: the keys are distinct (they carry distinct tags below their last bit) and in a uniformly random order that no
party knows. So every order is equally likely, whatever the keys: the opened comparisons are those of a uniformly random
permutation, and the winning slot is uniform.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hiddenarm.mpc.comparison import combine, compare, even_chunks, reveal
from hiddenarm.mpc.run import Rounds, Run
from hiddenarm.mpc.tracing import pick, winning_slots
from hiddenarm.mpc.values import Index, Shared
from hiddenarm.ring.words import Words

ONE_GROUP = 32
"""Longest list of which all pairs are compared at once."""
LARGEST_GROUP = 20
RANDOM_ORDER = (
    "keys are distinct and lie in a uniformly random order that no party knows: all orders are equally likely"
)


def open_winner(run: Run, keys: Shared, bits: int) -> Rounds[Words | None]:
    """The slot of the largest key (signed, modulo 2^bits) along the last axis. None at the dealer."""
    slots: Words | None = None
    for sizes in levels(keys.shape[-1]):
        first, second = pairs(sizes)
        difference = keys.take(first) - keys.take(second)
        (borrow,) = yield (compare(run, difference, even_chunks(bits), "differences of keys"),)
        (less,) = yield (combine(run, borrow),)
        (opened,) = yield (reveal(less, "which of two keys is larger, for all pairs", RANDOM_ORDER),)
        shape = (*keys.shape[:-1], len(sizes))
        if opened is None or keys.share is None:
            keys = Shared(shape, None)
            continue
        run.note("winning slot: its key is larger than all others")
        winners = winning_slots(opened, sizes)
        keys = Shared(shape, pick(keys.share, winners))
        slots = winners if slots is None else pick(slots, winners)
    return None if slots is None else slots.reshape(*slots.shape[:-1])


@lru_cache
def levels(size: int) -> tuple[tuple[int, ...], ...]:
    """The sizes of the groups, level by level."""
    if size <= ONE_GROUP:
        return ((size,),)
    depth = 1
    while LARGEST_GROUP**depth < size:
        depth += 1
    plan = []
    while size > 1:
        groups = -(-size // _ceil_root(size, depth))
        plan.append(tuple(size // groups + (group < size % groups) for group in range(groups)))
        size, depth = groups, max(1, depth - 1)
    return tuple(plan)


@lru_cache
def pairs(sizes: tuple[int, ...]) -> tuple[Index, Index]:
    """All pairs of slots i < j within each group."""
    starts = np.cumsum((0, *sizes[:-1]))
    corners = [np.triu_indices(size, 1) for size in sizes]
    first = np.concatenate([start + corner[0] for start, corner in zip(starts, corners, strict=True)])
    second = np.concatenate([start + corner[1] for start, corner in zip(starts, corners, strict=True)])
    return first, second


def _ceil_root(value: int, degree: int) -> int:
    """The smallest r with r^degree >= value."""
    root = 1
    while root**degree < value:
        root += 1
    return root
