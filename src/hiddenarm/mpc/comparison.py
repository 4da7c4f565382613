"""Comparison with zero, modulo 2^k, by truth tables.

    dealt: r uniform modulo 2^k; for each chunk r_j of its low k-1 bits the truth table "v < r_j", xor-shared
    1. open c = d + r mod 2^k.          msb(d) = msb(c) xor msb(r) xor [c_low < r_low]
    2. look up each table at the public chunk v of c: an xor-share of lt_j = [v < r_j]. The entry before it is
       [v <= r_j], so both together give eq_j = [v = r_j] (at v = 0 the entry before it is the constant 1).
       Open lt_j and eq_j under mask bits.
       [c_low < r_low] = xor over j of lt_j and (eq of all chunks above j)
       Given the opened bits, each product of masked bits is an entry of a table that depends on the mask bits only. The
       dealer shares these tables, for all prefixes of chunks, as the nodes of two heaps of bits.
    3. open the result, if it may be known (or go on with it, see `payloads`).
Two rounds to a shared bit, three to an open one. A chunk of six bits has a table of one word. With five chunks 4 + 2
bytes and one bit per comparison and 6 dealt words, with six 8 + 2 bytes and one bit and 8 words.

Security: r and the mask bits are uniform and new, so both openings are uniform whatever d is. The third reveals the
sign itself and is only for values whose order is known to be uniform (see `shuffle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hiddenarm.mpc.masking import MASKED
from hiddenarm.mpc.run import Opening, Run, Sharing
from hiddenarm.mpc.tracing import combine_chunks, heap_words, look_up_chunks, table_words
from hiddenarm.mpc.values import Secret, Shared
from hiddenarm.ring.words import Words, low_bits

CHUNK_BITS = 6
"""Widest chunk whose table is one word."""
MAX_CHUNKS = 6
MAX_BITS = MAX_CHUNKS * CHUNK_BITS + 1
"""Widest comparison."""

_ONE = np.uint64(1)
_HALF = np.uint64(32)


@dataclass(slots=True, repr=False)
class Borrow(Secret):
    """After step 1: xor-shares of the looked-up bits of each comparison, packed into one word; the public top bit of
    the opened word; and that of r, which the dealer knows."""

    shape: tuple[int, ...]
    chunks: int
    bits: Words | None
    public_top: Words | None
    secret_top: Words | None


@dataclass(slots=True, repr=False)
class SharedBit(Secret):
    """An xor-sharing of bits."""

    shape: tuple[int, ...]
    share: Words | None


def dealt_words(bits: int) -> int:
    """The words dealt for a comparison to a shared bit: a truth table a chunk, and two heaps."""
    chunks = len(even_chunks(bits))
    return chunks + heap_words(chunks)


def even_chunks(bits: int) -> tuple[int, ...]:
    """The widths of the chunks of a comparison, lowest first: as few as have tables of one word."""
    if not 2 <= bits <= MAX_BITS:
        raise ValueError(f"comparison of {bits} bits: supported are 2 to {MAX_BITS}")
    below = bits - 1
    return (CHUNK_BITS,) * (below // CHUNK_BITS) + ((below % CHUNK_BITS,) if below % CHUNK_BITS else ())


def compare(run: Run, difference: Shared, widths: tuple[int, ...], label: str = "a difference") -> Opening[Borrow]:
    """Step 1 of deciding whether `difference` is negative, modulo 2^(1 + the sum of the widths of its chunks)."""
    shape, bits = difference.shape, 1 + sum(widths)
    random = low_bits(run.random(shape), bits)
    tables = run.deal(
        (*shape, sum(map(table_words, widths))),
        lambda: _less_tables(random, widths),
        Sharing.XOR,
        purpose="truth tables of comparisons",
    )

    def finish(opened: Words | None) -> Borrow:
        if opened is None:
            return Borrow(shape, len(widths), None, None, random >> np.uint64(bits - 1))
        opened = low_bits(opened, bits)
        run.note(f"bits of {label}: look up shared truth tables at the opened words")
        packed = look_up_chunks(opened, tables, widths, run.adds_constants)
        return Borrow(shape, len(widths), packed, opened >> np.uint64(bits - 1), None)

    outgoing = None if difference.share is None else low_bits(difference.share + random, bits)
    meaning = f"{label} + mask, modulo 2^{bits}"
    return Opening(shape, outgoing, finish, bits=bits, meaning=meaning, why=MASKED)


def masked_bits(run: Run, borrow: Borrow) -> tuple[Words, Opening[Words | None]]:
    """Open the looked-up bits under mask bits. The mask bits come beside: the dealer needs them for what follows."""
    width = 2 * borrow.chunks - 1
    masks = low_bits(run.random(borrow.shape, Sharing.XOR), width)
    outgoing = None if borrow.bits is None else borrow.bits ^ masks
    meaning = "bits that were looked up ^ mask bits"
    return masks, Opening(
        borrow.shape, outgoing, lambda opened: opened, Sharing.XOR, bits=width, meaning=meaning, why=MASKED
    )


def combine(run: Run, borrow: Borrow) -> Opening[SharedBit]:
    """Step 2: open the looked-up bits under mask bits; gives a `SharedBit`, 1 where the difference is negative."""
    shape, chunks = borrow.shape, borrow.chunks
    masks, opening = masked_bits(run, borrow)
    heaps = (*shape, heap_words(chunks))
    purpose = "products of mask bits, for comparisons"
    products = run.deal(heaps, lambda: _bit_heaps(masks, borrow), Sharing.XOR, purpose=purpose)

    def finish(opened: Words | None) -> SharedBit:
        if opened is None:
            return SharedBit(shape, None)
        run.note("signs of the differences: look up shared products at the opened bits")
        result = combine_chunks(opened, products, chunks)
        if run.adds_constants:
            assert borrow.public_top is not None
            result = result ^ borrow.public_top
        return SharedBit(shape, result)

    return Opening(
        shape, opening.outgoing, finish, Sharing.XOR, bits=opening.bits, meaning=opening.meaning, why=opening.why
    )


def reveal(bit: SharedBit, meaning: str = "", why: str = "") -> Opening[Words | None]:
    """Step 3: open the bits to all parties. The caller's security argument must allow it: `why` says it in short."""
    return Opening(bit.shape, bit.share, lambda opened: opened, Sharing.XOR, bits=1, meaning=meaning, why=why)


def nodes_of(masks: Words, chunks: int) -> tuple[Words, Words]:
    """At the dealer, for each depth from the highest chunk on: the node 2^d + prefix that the opened equality bits will
    name if all d chunks above are equal, and the mask of the "less" bit there."""
    depth = np.arange(chunks, dtype=np.uint64)
    less_masks = (masks[..., None] >> (np.uint64(chunks - 1) - depth)) & _ONE
    prefix = ~(masks[..., None] >> (np.uint64(2 * chunks - 1) - depth)) & ((_ONE << depth) - _ONE)
    return (_ONE << depth) + prefix, less_masks


def _less_tables(random: Words, widths: Sequence[int]) -> Words:
    """The tables of all chunks side by side. Bit v is set where v < chunk."""
    tables, left = [], random
    for width in widths:
        chunk = low_bits(left, width)
        words = np.arange(table_words(width), dtype=np.uint64) << np.uint64(CHUNK_BITS)
        inside = np.minimum(np.maximum(chunk[..., None], words) - words, np.uint64(64))
        below = np.where(inside < np.uint64(64), (_ONE << (inside & np.uint64(63))) - _ONE, ~np.uint64(0))
        tables.append(below)
        left = left >> np.uint64(width)
    return np.concatenate(tables, axis=-1)


def _bit_heaps(masks: Words, borrow: Borrow) -> Words:
    """The two heaps: "all equality bits of this prefix are one", and the same times the mask of the "less" bit."""
    node, less_masks = nodes_of(masks, borrow.chunks)
    all_equal = np.bitwise_or.reduce(_ONE << node, axis=-1)
    assert borrow.secret_top is not None
    times_mask = np.bitwise_or.reduce(less_masks << node, axis=-1) ^ (borrow.secret_top << _ONE)
    heaps: Words
    if heap_words(borrow.chunks) == 1:
        heaps = (all_equal | times_mask << _HALF)[..., None]
    else:
        heaps = np.stack([all_equal, times_mask], axis=-1)
    return heaps
