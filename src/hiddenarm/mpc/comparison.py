"""Comparison with zero, modulo 2^k, by word-sized truth tables.

    dealt: r uniform modulo 2^k; for each 6-bit chunk r_j of its low k-1 bits the two 64-entry truth tables
           "v < r_j" and "v = r_j", each one machine word, xor-shared
    1. open c = d + r mod 2^k.          msb(d) = msb(c) xor msb(r) xor [c_low < r_low]
    2. look up each table at the public chunk of c: xor-shares of lt_j and eq_j. Open them under mask bits.
       [c_low < r_low] = xor over j of lt_j and (eq of all chunks above j)
       Given the opened bits, each product of masked bits is an entry of a table that depends on the mask bits only. The
       dealer shares these tables, for all prefixes of chunks, as the nodes of a heap: one word up to six chunks, twice
       as many for every chunk more.
    3. open the result, if it may be known.
Two rounds to a shared bit, three to an open one. With six chunks 8 + 2 bytes and one bit per comparison and 13 dealt
words, with nine 8 + 4 bytes and one bit and 33 words.

Security: r and the mask bits are uniform and new, so both openings are uniform whatever d is. The third reveals the
sign itself and is only for values whose order is known to be uniform (see `shuffle`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from hiddenarm.mpc.masking import MASKED
from hiddenarm.mpc.run import Opening, Run, Sharing
from hiddenarm.mpc.tracing import combine_chunks, heap_words, look_up_chunks
from hiddenarm.mpc.values import Secret, Shared
from hiddenarm.ring.words import Words, low_bits

CHUNK_BITS = 6
NARROW_BITS = 6 * CHUNK_BITS + 1
"""Widest comparison with heaps of one word: that of all prefixes of six chunks fills it."""
MAX_BITS = 9 * CHUNK_BITS + 1
"""Widest comparison: heaps of eight words."""

_ONE = np.uint64(1)
_DEPTHS_OF_A_WORD = 6


@dataclass(slots=True, repr=False)
class Borrow(Secret):
    """After step 1: xor-shares of the looked-up bits of each comparison, packed into one word, and what is public."""

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
    """The words dealt for a comparison: two truth tables a chunk, but one for the lowest, and two heaps."""
    chunks = _chunks(bits)
    return 2 * chunks - 1 + 2 * heap_words(chunks)


def compare(run: Run, difference: Shared, bits: int, label: str = "a difference") -> Opening[Borrow]:
    """Step 1 of deciding whether `difference` (modulo 2^bits, signed) is negative; gives a `Borrow`."""
    if not 2 <= bits <= MAX_BITS:
        raise ValueError(f"comparison of {bits} bits: supported are 2 to {MAX_BITS}")
    shape = difference.shape
    chunks = _chunks(bits)
    random = low_bits(run.random(shape), bits)
    purpose = "truth tables of comparisons"
    chunked = partial(_chunked, random, bits, chunks)
    less = run.deal((*shape, chunks), lambda: _less_tables(chunked()), Sharing.XOR, purpose=purpose)
    equal = run.deal((*shape, chunks - 1), lambda: _equal_tables(chunked()[..., 1:]), Sharing.XOR, purpose=purpose)

    def finish(opened: Words | None) -> Borrow:
        if opened is None:
            return Borrow(shape, chunks, None, None, random >> np.uint64(bits - 1))
        opened = low_bits(opened, bits)
        run.note(f"bits of {label}: look up shared truth tables at the opened words")
        packed = look_up_chunks(opened, less, equal, bits)
        return Borrow(shape, chunks, packed, opened >> np.uint64(bits - 1), None)

    outgoing = None if difference.share is None else low_bits(difference.share + random, bits)
    meaning = f"{label} + mask, modulo 2^{bits}"
    return Opening(shape, outgoing, finish, bits=bits, meaning=meaning, why=MASKED)


def combine(run: Run, borrow: Borrow) -> Opening[SharedBit]:
    """Step 2: open the looked-up bits under mask bits; gives a `SharedBit`, 1 where the difference is negative."""
    shape, chunks = borrow.shape, borrow.chunks
    width = 2 * chunks - 1
    masks = low_bits(run.random(shape, Sharing.XOR), width)
    heaps = (*shape, 2 * heap_words(chunks))
    purpose = "products of mask bits, for comparisons"
    products = run.deal(heaps, lambda: _prefix_tables(masks, chunks, borrow), Sharing.XOR, purpose=purpose)

    def finish(opened: Words | None) -> SharedBit:
        if opened is None:
            return SharedBit(shape, None)
        run.note("signs of the differences: look up shared products at the opened bits")
        result = combine_chunks(opened, products, chunks)
        if run.adds_constants:
            assert borrow.public_top is not None
            result = result ^ borrow.public_top
        return SharedBit(shape, result)

    outgoing = None if borrow.bits is None else borrow.bits ^ masks
    meaning = "bits that were looked up ^ mask bits"
    return Opening(shape, outgoing, finish, Sharing.XOR, bits=width, meaning=meaning, why=MASKED)


def reveal(bit: SharedBit, meaning: str = "", why: str = "") -> Opening[Words | None]:
    """Step 3: open the bits to all parties. The caller's security argument must allow it: `why` says it in short."""
    return Opening(bit.shape, bit.share, lambda opened: opened, Sharing.XOR, bits=1, meaning=meaning, why=why)


def _chunks(bits: int) -> int:
    """How many chunks the bits below the sign take."""
    return -(-(bits - 1) // CHUNK_BITS)


def _chunked(words: Words, bits: int, chunks: int) -> Words:
    """The 6-bit chunks of the low bits - 1 bits, lowest first, on a new last axis."""
    shifts = np.arange(0, chunks * CHUNK_BITS, CHUNK_BITS, dtype=np.uint64)
    return (low_bits(words, bits - 1)[..., None] >> shifts) & np.uint64(63)


def _less_tables(chunk: Words) -> Words:
    """Bit v is set where v < chunk."""
    return (_ONE << chunk) - _ONE


def _equal_tables(chunk: Words) -> Words:
    """Bit v is set where v = chunk."""
    return _ONE << chunk


def _prefix_tables(masks: Words, chunks: int, borrow: Borrow) -> Words:
    """The words of the two heaps, with node 2^d + prefix for the d equality bits above a chunk: "all equality bits of
    this prefix are one", and the same times the mask of the "less" bit."""
    depth = np.arange(chunks, dtype=np.uint64)
    less_masks = (masks[..., None] >> (np.uint64(chunks - 1) - depth)) & _ONE
    prefix = ~(masks[..., None] >> (np.uint64(2 * chunks - 1) - depth)) & ((_ONE << depth) - _ONE)
    node = (_ONE << depth) + prefix
    all_equal = _heap(node, _ONE)
    times_mask = _heap(node, less_masks)
    assert borrow.secret_top is not None
    times_mask[..., 0] ^= borrow.secret_top << _ONE
    return np.concatenate([all_equal, times_mask], axis=-1)


def _heap(node: Words, bits: Words | np.uint64) -> Words:
    """The words of a heap that has these bits at these nodes, one at each depth, and zeros elsewhere. The first six
    depths lie in the first word; every further depth has words of its own, as many as all depths above it."""
    placed = np.broadcast_to(bits, node.shape) << (node & np.uint64(63))
    words = [np.bitwise_or.reduce(placed[..., :_DEPTHS_OF_A_WORD], axis=-1, keepdims=True)]
    for depth in range(_DEPTHS_OF_A_WORD, node.shape[-1]):
        own = np.arange(heap_words(depth), heap_words(depth + 1), dtype=np.uint64)
        here = node[..., depth, None] >> np.uint64(_DEPTHS_OF_A_WORD) == own
        words.append(placed[..., depth, None] * here)
    return np.concatenate(words, axis=-1)
