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

from collections.abc import Generator
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.comparison import combine, compare, reveal
from hiddenarm.mpc.run import Openings, Run
from hiddenarm.mpc.values import Index, Shared
from hiddenarm.ring.words import Words

ONE_GROUP = 32
"""Longest list of which all pairs are compared at once."""
LARGEST_GROUP = 20


def open_winner(run: Run, keys: Shared, bits: int) -> Generator[Openings, tuple[Any, ...], Index | None]:
    """The slot of the largest key (signed, modulo 2^bits) along the last axis. None at the dealer."""
    slots: Index | None = None
    for sizes in levels(keys.shape[-1]):
        first, second = pairs(sizes)
        (borrow,) = yield (compare(run, keys.take(first) - keys.take(second), bits),)
        (less,) = yield (combine(run, borrow),)
        (opened,) = yield (reveal(less),)
        shape = (*keys.shape[:-1], len(sizes))
        if opened is None or keys.share is None:
            keys = Shared(shape, None)
            continue
        winners = winning_slots(opened, sizes)
        keys = Shared(shape, np.take_along_axis(keys.share, winners, axis=-1))
        slots = winners if slots is None else np.take_along_axis(slots, winners, axis=-1)
    return None if slots is None else slots[..., 0]


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


def winning_slots(less: Words, sizes: tuple[int, ...]) -> Index:
    """The slot of the maximum of each group, from the opened bits "key i < key j" of all pairs within groups."""
    winners, pair, slot = [], 0, 0
    for size, run in groupby(sizes):
        groups = len(list(run))
        count = groups * size * (size - 1) // 2
        sign, head_start = _win_counts(size)
        bits = less[..., pair : pair + count].astype(np.int64)
        wins = bits.reshape(*bits.shape[:-1], groups, -1) @ sign + head_start
        if not (np.sort(wins, axis=-1) == np.arange(size)).all():
            raise ScoreRangeError(
                "the opened comparisons are no order: a score left the range the comparison was dealt for; "
                "raise score_bound or lower the norm bounds"
            )
        winners.append(slot + size * np.arange(groups) + np.argmax(wins, axis=-1))
        pair, slot = pair + count, slot + groups * size
    return np.concatenate(winners, axis=-1)


@lru_cache
def pairs(sizes: tuple[int, ...]) -> tuple[Index, Index]:
    """All pairs of slots i < j within each group."""
    starts = np.cumsum((0, *sizes[:-1]))
    corners = [np.triu_indices(size, 1) for size in sizes]
    first = np.concatenate([start + corner[0] for start, corner in zip(starts, corners, strict=True)])
    second = np.concatenate([start + corner[1] for start, corner in zip(starts, corners, strict=True)])
    return first, second


@lru_cache
def _win_counts(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Wins are linear in the bits: slot j of a pair wins where the bit is set, slot i where it is not."""
    first, second = np.triu_indices(size, 1)
    slots = np.arange(size)
    sign = (second[:, None] == slots).astype(np.int64) - (first[:, None] == slots)
    return sign, np.bincount(first, minlength=size)


def _ceil_root(value: int, degree: int) -> int:
    """The smallest r with r^degree >= value."""
    root = 1
    while root**degree < value:
        root += 1
    return root
