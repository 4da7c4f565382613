"""Binary sharing: x = exclusive or of all <x>_p, for 64 bits at once. XOR and shifts are local, AND takes a triple.

    dealt: <a>, <b> uniform, <c> with c = a and b
    1. open alpha = x xor a and beta = y xor b                                (1 round, a word per entry of each)
    2. <x and y> = <c> xor (alpha and <b>) xor (beta and <a>) xor (alpha and beta)

This is `beaver` in the ring of two elements, 64 times. Security: a and b are uniform and new, so alpha and beta are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hiddenarm.mpc.run import Opening, Rounds, Run, Sharing
from hiddenarm.mpc.values import Secret
from hiddenarm.ring.words import Words


@dataclass(slots=True, repr=False, eq=False)
class BinaryShared(Secret):
    """A binary sharing of words; `share` is this party's share, or None at the dealer."""

    shape: tuple[int, ...]
    share: Words | None

    def __xor__(self, other: BinaryShared) -> BinaryShared:
        if self.shape != other.shape:
            raise ValueError(f"shapes differ: {self.shape} and {other.shape}")
        if self.share is None or other.share is None:
            return BinaryShared(self.shape, None)
        return BinaryShared(self.shape, self.share ^ other.share)

    def __lshift__(self, bits: int) -> BinaryShared:
        return BinaryShared(self.shape, None if self.share is None else self.share << np.uint64(bits))

    def __rshift__(self, bits: int) -> BinaryShared:
        """Shift to the right; zeros come in from the left."""
        return BinaryShared(self.shape, None if self.share is None else self.share >> np.uint64(bits))


BinaryLater: TypeAlias = Rounds[BinaryShared]


def both(run: Run, x: BinaryShared, y: BinaryShared) -> BinaryLater:
    """x AND y, bit by bit. One round."""
    a, b = run.random(x.shape, Sharing.XOR), run.random(y.shape, Sharing.XOR)
    c = run.deal(x.shape, lambda: a & b, Sharing.XOR)
    alpha, beta = yield _open(x, a), _open(y, b)
    if alpha is None or beta is None:
        return BinaryShared(x.shape, None)
    share = c ^ (alpha & b) ^ (beta & a)
    return BinaryShared(x.shape, share ^ (alpha & beta) if run.adds_constants else share)


def _open(value: BinaryShared, mask: Words) -> Opening[Words | None]:
    outgoing = None if value.share is None else value.share ^ mask
    return Opening(value.shape, outgoing, lambda opened: opened, Sharing.XOR)
