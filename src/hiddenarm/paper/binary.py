"""Binary sharing: AND, sums, and the way from additive sharing to binary and back.

Sharing and AND
---------------
x = exclusive or of all <x>_p, for 64 bits at once. XOR and shifts are local, AND takes a triple.

    dealt: <a>, <b> uniform, <c> with c = a and b
    1. open alpha = x xor a and beta = y xor b                                (1 round, a word per entry of each)
    2. <x and y> = <c> xor (alpha and <b>) xor (beta and <a>) xor (alpha and beta)

This is a Beaver product (`arithmetic`) in the ring of two elements, 64 times.

Security: a and b are uniform and new, so alpha and beta are.

Sums
----
Of binary-shared words, modulo 2^64, in a number of rounds logarithmic in their length and in their number.

More than two summands: three become two by a carry-save adder, all groups of three at once, one round a level:
    a + b + c = (a xor b xor c) + 2 maj(a, b, c),        maj(a, b, c) = a xor ((a xor b) and (a xor c))
Two summands: a parallel-prefix adder (Kogge and Stone 1973):
    1. g = a and b,  p = a xor b                          bit i makes a carry; it passes one on
    2. for k = 1, 2, 4, ..., 32:   g <- g xor (p and g << k),   p <- p and p << k        both at once
    3. a + b = a xor b xor (g << 1)
Seven rounds for 64 bits: one and log2 64.

Security: that of AND, `both`; nothing else is opened.

From additive to binary sharing and back
----------------------------------------
A to B. Each party shares its share, in binary; then the shares are added up.
    dealt: for each party p a uniform rho_p, drawn by p, as a binary sharing <rho_p>
    1. show c_p = [x]_p xor rho_p for all p (1 round, a word per entry);   <[x]_p> = c_p xor <rho_p>
    2. <x> = sum over p of <[x]_p>, by `add_all`                           (7 rounds, more for more than two parties)

B to A, of a bit y.
    dealt: a uniform bit b, as <b> and as [b]
    1. open c = y xor b                                                    (1 round, a bit per entry)
    2. [y] = c + [b] - 2 c [b]
A whole word is the sum over its bits of 2^i [bit i], all in the same round.

Security: rho_p is uniform, new and known to p only, so c_p is uniform whatever the share is; b is uniform and new, so c
is uniform.
"""

from __future__ import annotations

import operator
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from hiddenarm.mpc.comparison import SharedBit
from hiddenarm.mpc.parallel import SharedLater, in_parallel
from hiddenarm.mpc.run import Opening, Openings, Rounds, Run, Sharing
from hiddenarm.mpc.values import Secret, Shared
from hiddenarm.paper.arithmetic import all_drawn, draw, own_of, show
from hiddenarm.ring.words import WORD_BITS, Words, low_bits


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


_SHIFTS = (1, 2, 4, 8, 16, 32)


def add_all(run: Run, summands: list[BinaryShared]) -> BinaryLater:
    """The sum of two or more words."""
    while len(summands) > 2:
        threes, rest = len(summands) // 3, len(summands) % 3
        groups = [summands[3 * group : 3 * group + 3] for group in range(threes)]
        pairs = yield from in_parallel(*(_carry_save(run, *group) for group in groups))
        summands = [word for pair in pairs for word in pair] + summands[len(summands) - rest :]
    return (yield from add(run, summands[0], summands[1]))


def add(run: Run, a: BinaryShared, b: BinaryShared) -> BinaryLater:
    """The sum of two words. Seven rounds."""
    half = a ^ b
    generate = yield from both(run, a, b)
    propagate = half
    for shift in _SHIFTS[:-1]:
        carried, propagate = yield from in_parallel(
            both(run, propagate, generate << shift), both(run, propagate, propagate << shift)
        )
        generate = generate ^ carried
    generate = generate ^ (yield from both(run, propagate, generate << _SHIFTS[-1]))
    return half ^ (generate << 1)


def _carry_save(
    run: Run, a: BinaryShared, b: BinaryShared, c: BinaryShared
) -> Generator[Openings, tuple[Any, ...], tuple[BinaryShared, BinaryShared]]:
    differ = yield from both(run, a ^ b, a ^ c)
    return a ^ b ^ c, (a ^ differ) << 1


def to_binary(run: Run, parties: int, value: Shared) -> BinaryLater:
    """The binary sharing of an additively shared value."""
    return (yield from add_all(run, (yield from share_shares(run, parties, value))))


def share_shares(run: Run, parties: int, value: Shared) -> Rounds[list[BinaryShared]]:
    """Each party's additive share, as a binary sharing of its own: a list of `BinaryShared`. One round."""
    shape = value.shape
    drawn = draw(run, parties, shape)
    masks = [run.deal(shape, partial(_drawn_by, drawn, party), Sharing.XOR) for party in range(parties)]
    own = None if value.share is None else value.share ^ own_of(run, drawn)
    (shown,) = yield (show(run, parties, shape, own),)
    if shown is None:
        return [BinaryShared(shape, None) for _ in masks]
    if not run.adds_constants:
        return [BinaryShared(shape, mask) for mask in masks]
    return [BinaryShared(shape, word ^ mask) for word, mask in zip(shown, masks, strict=True)]


def _drawn_by(drawn: list[Words | None], party: int) -> Words:
    return all_drawn(drawn)[party]


def bit_to_arithmetic(run: Run, bit: SharedBit) -> SharedLater:
    """The additive sharing of a binary-shared bit. One round."""
    shape = bit.shape
    random = low_bits(run.random(shape, Sharing.XOR), 1)
    arithmetic = run.deal(shape, lambda: random)
    outgoing = None if bit.share is None else bit.share ^ random
    (opened,) = yield (Opening(shape, outgoing, lambda words: words, Sharing.XOR, bits=1),)
    if opened is None:
        return Shared(shape, None)
    share = arithmetic - opened * arithmetic * np.uint64(2)
    return Shared(shape, share + opened if run.adds_constants else share)


def to_arithmetic(run: Run, value: BinaryShared) -> SharedLater:
    """The additive sharing of a binary-shared word. One round."""
    bits = yield from in_parallel(*(bit_to_arithmetic(run, bit_of(value, place)) for place in range(WORD_BITS)))
    total: Shared = reduce(operator.add, [bit << place for place, bit in enumerate(bits)])
    return total


def top_bit(value: BinaryShared) -> SharedBit:
    """The sign of a binary-shared value. No round."""
    return bit_of(value, WORD_BITS - 1)


def bit_of(value: BinaryShared, position: int) -> SharedBit:
    """One bit of a binary-shared value, 0 being the lowest. No round."""
    shifted = value >> position
    return SharedBit(value.shape, None if shifted.share is None else low_bits(shifted.share, 1))
