"""Shuffling with a dealt permutation, and the maximum by opened comparisons (Hamada et al. 2012).

    dealt: a uniformly random permutation matrix Pi that the actor can compute from its seed
    1. shuffled keys: [Pi] delta - [Pi lambda], no round
    2. all pairs of shuffled keys are compared and the results opened (3 rounds)
    3. the slot that wins against all others is public; row `slot` of [Pi] is the shared one-hot of the winning arm

Security: the keys are distinct (they carry distinct tags below their last bit), so in the shuffled list every order is
equally likely, whatever the keys: the opened comparisons are a uniformly random permutation and the slot is uniform.
Only who knows Pi learns the arm. The permutation is the order of A uniform 64-bit words; two of them collide with
probability below A^2 / 2^65, and only then is it not exactly uniform.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import dealt
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Index, Masked, Shared
from hiddenarm.ring.words import Words


def permutation_of(words: Words) -> Index:
    """The permutation that uniform words stand for: entry s is the item in slot s."""
    return np.argsort(words, axis=-1, kind="stable")


def dealt_permutation(run: Run, size: int) -> Masked:
    """A uniformly random permutation matrix known to the dealer and the actor; row s is the one-hot of slot s's item."""

    def make() -> Words:
        return np.eye(size, dtype=np.uint64)[permutation_of(run.actor_words((size,)))]

    return dealt(run, (size, size), make)


def shuffle(run: Run, permutation: Masked, keys: Masked) -> Shared:
    """The keys in shuffled order; no round."""
    return form(run, "sa,a->s", permutation, keys)


def pair_differences(keys: Shared) -> Shared:
    """keys[i] - keys[j] for all i < j."""
    first, second = pairs(keys.shape[-1])
    return keys.take(first) - keys.take(second)


def winner(less: Words, size: int) -> Index:
    """The slot of the maximum, from the opened bits "key i < key j" for all i < j."""
    sign, head_start = _win_counts(size)
    wins = less.astype(np.int64) @ sign + head_start
    if not np.array_equal(np.sort(wins, axis=-1), np.broadcast_to(np.arange(size), wins.shape)):
        raise ScoreRangeError(
            "the opened comparisons are no order: a score left the range the comparison was dealt for; "
            "raise score_bound or lower the norm bounds"
        )
    winning: Index = np.argmax(wins, axis=-1)
    return winning


@lru_cache
def _win_counts(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Wins are linear in the bits: slot j of a pair wins where the bit is set, slot i where it is not."""
    first, second = pairs(size)
    slots = np.arange(size)
    sign = (second[:, None] == slots).astype(np.int64) - (first[:, None] == slots)
    return sign, np.bincount(first, minlength=size)


@lru_cache
def pairs(size: int) -> tuple[Index, Index]:
    """All pairs of slots i < j."""
    first, second = np.triu_indices(size, 1)
    return first, second
