"""The maximum of a shuffled list, by opened comparisons (Hamada et al. 2012).

    1. split the list into groups; compare all pairs within each group and open the results (3 rounds)
    2. go on with the winners, whose slots are public, until one is left
Short lists are one group. Longer ones take as few levels as do with `MOST_COMPARISONS` comparisons for each key: 3
rounds a level. Groups grow from level to level, as fewer keys are left: with 10,000 keys they are of 5, 16 and 125.
Groups of one size would compare as many in one level more.

What bounds the rounds: a level of groups of g keys compares (g - 1) / 2 pairs for each of its keys, so L levels take
about A^(2^L / (2^L - 1)) of them: A^2, A^1.33, A^1.14, A^1.07. A level takes 3 rounds: whom the next one compares
follows from opened bits, and a bit of two shared keys takes two rounds before it can be opened.

Security: the keys are distinct (they carry distinct tags below their last bit) and in a uniformly random order that no
party knows. So every order is equally likely, whatever the keys: the opened comparisons are those of a uniformly random
permutation, and the winning slot is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hiddenarm.mpc.comparison import combine, compare, even_chunks, reveal
from hiddenarm.mpc.run import Rounds, Run
from hiddenarm.mpc.tracing import pick, winning_slots
from hiddenarm.mpc.values import Index, Shared
from hiddenarm.ring.words import Words

ONE_GROUP = 32
"""Longest list of which all pairs are compared at once."""
MOST_COMPARISONS = 7.5
"""Most comparisons for each key of a longer list: with them 600 keys take two levels and 100,000 three."""
LARGEST_GROUP = 511
"""As large as `winners` of `ring/instructions.c` takes."""
_LARGEST_FIRST_GROUP = 32
"""Of all levels but the last. With groups of more than twice MOST_COMPARISONS the first level exceeds them alone."""
_TOO_MANY = 1 << 62
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
    depth = next(depth for depth in range(2, size) if _fewest(size, depth)[0] <= MOST_COMPARISONS * size)
    return tournament(size, depth)


def tournament(size: int, depth: int) -> tuple[tuple[int, ...], ...]:
    """The sizes of the groups, level by level, of the tournament of so many levels with the fewest comparisons, over
    all sizes that the largest groups of each level may have."""
    plan = []
    for left in range(depth, 0, -1):
        groups = _fewest(size, left)[1]
        plan.append(even_groups(size, groups))
        size = groups
    return tuple(plan)


def comparisons(plan: Sequence[tuple[int, ...]]) -> int:
    """How many pairs of keys are compared in all."""
    return sum(size * (size - 1) // 2 for sizes in plan for size in sizes)


def even_groups(size: int, groups: int) -> tuple[int, ...]:
    """The sizes of so many groups, as even as can be."""
    return tuple(size // groups + (group < size % groups) for group in range(groups))


@lru_cache
def _fewest(size: int, depth: int) -> tuple[int, int]:
    """The fewest comparisons of a tournament of so many levels, and the number of groups of its first level."""
    if depth == 1:
        return (_comparisons(size, 1) if size <= LARGEST_GROUP else _TOO_MANY), 1
    first = {-(-size // largest) for largest in range(1, min(size, _LARGEST_FIRST_GROUP) + 1)}
    return min((_comparisons(size, groups) + _fewest(groups, depth - 1)[0], groups) for groups in first)


def _comparisons(size: int, groups: int) -> int:
    """The pairs within even groups."""
    least, larger = divmod(size, groups)
    return (groups - larger) * (least * (least - 1) // 2) + larger * (least * (least + 1) // 2)


@lru_cache
def pairs(sizes: tuple[int, ...]) -> tuple[Index, Index]:
    """All pairs of slots i < j within each group."""
    starts = np.cumsum((0, *sizes[:-1]))
    corners = [np.triu_indices(size, 1) for size in sizes]
    first = np.concatenate([start + corner[0] for start, corner in zip(starts, corners, strict=True)])
    second = np.concatenate([start + corner[1] for start, corner in zip(starts, corners, strict=True)])
    return first, second
