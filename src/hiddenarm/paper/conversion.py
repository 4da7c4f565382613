"""From additive to binary sharing and back.

A to B. Each party shares its share, in binary; then the shares are added up.
    dealt: for each party p a uniform rho_p, drawn by p, as a binary sharing <rho_p>
    1. show c_p = [x]_p xor rho_p for all p (1 round, a word per entry);   <[x]_p> = c_p xor <rho_p>
    2. <x> = sum over p of <[x]_p>, by `adder`                             (7 rounds, more for more than two parties)

B to A, of a bit y.
    dealt: a uniform bit b, as <b> and as [b]
    1. open c = y xor b                                                    (1 round, a bit per entry)
    2. [y] = c + [b] - 2 c [b]
A whole word is the sum over its bits of 2^i [bit i], all in the same round.

Security: rho_p is uniform, new and known to p only, so c_p is uniform whatever the share is; b is uniform and new, so c
is uniform.
"""

from __future__ import annotations

from functools import partial, reduce
from operator import add

import numpy as np

from hiddenarm.mpc.comparison import SharedBit
from hiddenarm.mpc.parallel import Later, SharedLater, in_parallel
from hiddenarm.mpc.run import Opening, Run, Sharing
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.adder import add_all
from hiddenarm.paper.binary import BinaryLater, BinaryShared
from hiddenarm.paper.spread import all_drawn, draw, own_of, show
from hiddenarm.ring.words import WORD_BITS, Words, low_bits


def to_binary(run: Run, parties: int, value: Shared) -> BinaryLater:
    """The binary sharing of an additively shared value."""
    return (yield from add_all(run, (yield from share_shares(run, parties, value))))


def share_shares(run: Run, parties: int, value: Shared) -> Later:
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
    total: Shared = reduce(add, [bit << place for place, bit in enumerate(bits)])
    return total


def top_bit(value: BinaryShared) -> SharedBit:
    """The sign of a binary-shared value. No round."""
    return bit_of(value, WORD_BITS - 1)


def bit_of(value: BinaryShared, position: int) -> SharedBit:
    """One bit of a binary-shared value, 0 being the lowest. No round."""
    shifted = value >> position
    return SharedBit(value.shape, None if shifted.share is None else low_bits(shifted.share, 1))
