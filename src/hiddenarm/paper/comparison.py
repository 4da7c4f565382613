"""Whether a shared number is negative, and which of several is the largest.

Comparison
----------
Whether a shared number is at least zero, as a shared bit.

    1. <x> from [x]          2. its highest bit, by itself          3. from binary to additive;   [x >= 0] = 1 - [msb]

Rounds: one to share the shares, those of the adder, one to come back. Exact for every x in [-2^63, 2^63).
Security: that of the conversions; the bit stays secret.

Argmax
------
The place of the maximum as a shared one-hot, ties broken at random.

Algorithm 2 of the paper marks all maxima:
    1. [l_ij] = [x_i >= x_j] for all i and all j other than i, at once
    2. [y_i] = product over j of [l_ij], by a binary tree: ceil(log2(A - 1)) rounds. They are bits: no division.
The argmax is three stages:
    1. y marks all maxima of x          2. y times a dealt random permutation gamma of 1 to A: one round
    3. z marks the maxima of that: there is one only

Nothing but masked words is opened: ties stay as secret as everything else. A difference x_i - x_j must not wrap, or the
bits are no order.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Index, Masked, Shared
from hiddenarm.paper.arithmetic import entry_by_entry, minus, plus, product
from hiddenarm.paper.binary import bit_to_arithmetic, to_binary, top_bit


def at_least_zero(run: Run, parties: int, value: Shared) -> SharedLater:
    """1 where the value, as a signed number, is not negative, else 0."""
    binary = yield from to_binary(run, parties, value)
    negative = yield from bit_to_arithmetic(run, top_bit(binary))
    return plus(run, minus(negative), 1)


def mark_maxima(run: Run, parties: int, values: Shared) -> SharedLater:
    """1 at every maximum along the last axis, 0 elsewhere."""
    own, others = _pairs(values.shape[-1])
    not_beaten = yield from at_least_zero(run, parties, values.take(own) - values.take(others))
    while (width := not_beaten.shape[-1]) > 1:
        half = (width + 1) // 2
        # With an odd number the one in the middle is taken twice: a bit times itself is itself.
        first, second = not_beaten.take(np.arange(half)), not_beaten.take(np.arange(width - half, width))
        not_beaten = yield from product(run, entry_by_entry(first.shape), first, second)
    return _without_last_axis(run, not_beaten)


def argmax(run: Run, parties: int, values: Shared, permutation: Masked) -> SharedLater:
    """The one-hot of the maximum along the last axis; among equals that with the highest entry of `permutation`, a
    dealt arrangement of 1 to A."""
    maxima = yield from mark_maxima(run, parties, values)
    (masked,) = yield (mask(run, maxima),)
    ranked = form(run, entry_by_entry(values.shape), masked, permutation)
    return (yield from mark_maxima(run, parties, ranked))


@lru_cache
def _pairs(size: int) -> tuple[Index, Index]:
    """For each place i a row of i's, and a row of all others: [size, size - 1] each."""
    places = np.arange(size)
    own = np.repeat(places[:, None], size - 1, axis=1)
    others = np.array([[j for j in places if j != i] for i in places], np.intp)
    return own, others


def _without_last_axis(run: Run, values: Shared) -> Shared:
    shape = values.shape[:-1]
    return Shared(shape, None if values.share is None else values.share.reshape(*run.batch, *shape))
