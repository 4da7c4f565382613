"""The maximum of a secret list, told to nobody but the receiver of the answers: the winner by payloads.

All pairs i < j of items are compared, and nothing of the results is opened. Each pair has two *payloads*, uniform words
that are used once: B_i, which item i gets where j beats it, and B_j, which item j gets where i beats it. Then

    V_a = xor over all j of what a gets from its pair with j

is zero at the winner, and uniform and independent everywhere else. Each party ends with an xor-share of V.

With b = [key i < key j] = public top bit xor secret bit (see `comparison`), and the word W = (B_i, B_j) of two 32-bit
halves, what the pair gives is W b xor (0, B_j). There are two ways to a share of it, after the round that opens the
masked differences:

*three*  1 round. The tables of `comparison` hold words in place of bits: the node for "all equal so far" holds W, the
         other one W times the mask of the "less" bit; the secret top bit and (0, B_j) go into the second root. A party
         looks words up at the opened bits: 2 (2^chunks - 1) dealt words a pair.
*four*   2 rounds. Combine to a shared bit, open it under a mask bit, and take one of two dealt words: the one for b = 1
         holds (B_i, 0), the other (0, B_j). Few words, one round more.

A list that the dealer wants to be decided by its tags alone (`by_tag`) gets words that do not depend on what is opened:
(B_i, 0) where tag i < tag j, else (0, B_j); in *three* as the second root, with zeros in all other nodes.

`eligible` items: only pairs of two of them count, and only their V.

Security. What is opened is masked by uniform words, so it is uniform whatever the keys are. All else is shared by words
that the dealer made, and is never opened to parties. Shares of V go to one receiver. V itself follows from the winner
and uniform words, and given V, all but one of its shares are uniform. So the receiver with all parties but one learns
the winner, and nothing of the order of the others, nor whether tags decided it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hiddenarm.mpc.comparison import (
    MAX_CHUNKS,
    Borrow,
    combine,
    compare,
    even_chunks,
    masked_bits,
    nodes_of,
)
from hiddenarm.mpc.masking import MASKED
from hiddenarm.mpc.run import Opening, Rounds, Run, Sharing
from hiddenarm.mpc.tournament import pairs
from hiddenarm.mpc.tracing import collect_payloads, look_up_payloads, pick_one, table_words
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words, low_bits

PAYLOAD_BITS = 32
"""A second zero comes once in 2^32 / (items - 1) answers; the receiver notices it."""
MAX_CHUNK_BITS = 12
"""Widest chunk: its table has 64 words."""
_HALF = np.uint64(PAYLOAD_BITS)
_ALL_BITS = np.uint64(2**64 - 1)
_LOW = np.uint64((1 << PAYLOAD_BITS) - 1)


@dataclass(slots=True, repr=False)
class ByTag:
    """What the dealer knows of lists [count, items]: which are decided by their tags alone [count], and the tags."""

    explore: Words
    tags: Words


def answer_words(
    run: Run, keys: Shared, bits: int, eligible: Words | None, by_tag: ByTag | None, *, three: bool
) -> Rounds[Words | None]:
    """This party's share of V [count, items], in the low half of each word, for keys [count, items] (signed, modulo
    2^bits, distinct by their tags); None at the dealer, which brings `by_tag`. `eligible` words have all bits set, or
    none; without them all items are."""
    first, second = pairs((keys.shape[-1],))
    widths = payload_chunks(bits) if three else even_chunks(bits)
    (borrow,) = yield (compare(run, keys.take(first) - keys.take(second), widths, "differences of keys"),)
    dealt = _Payloads(run, borrow.shape, by_tag) if run.dealing else None
    found = yield from (_by_words(run, borrow, dealt) if three else _by_bits(run, borrow, dealt))
    if found is None or keys.share is None:
        return None
    if eligible is None:
        eligible = keys.share & np.uint64(0) ^ _ALL_BITS
    run.note("answers: for each arm, the exclusive or of what it gets from its pairs with eligible arms")
    return collect_payloads(found, eligible)


@lru_cache
def payload_chunks(bits: int) -> tuple[int, ...]:
    """The widths of the chunks of a comparison to payloads, lowest first: as even as can be, and of so many as take the
    fewest dealt words."""
    below = bits - 1
    cuts = [_even(below, chunks) for chunks in range(1, MAX_CHUNKS + 1) if chunks <= below <= chunks * MAX_CHUNK_BITS]
    if not cuts:
        raise ValueError(f"comparison of {bits} bits: supported are 2 to {1 + MAX_CHUNKS * MAX_CHUNK_BITS}")
    return min(cuts, key=payload_words)


def payload_words(widths: tuple[int, ...]) -> int:
    """The words dealt for a pair in three rounds: the tables, and two heaps of words."""
    return sum(map(table_words, widths)) + 2 * _nodes(len(widths))


def _nodes(chunks: int) -> int:
    """The nodes of a heap with so many depths."""
    return (1 << chunks) - 1


def _even(below: int, chunks: int) -> tuple[int, ...]:
    width, wider = divmod(below, chunks)
    return (width,) * (chunks - wider) + (width + 1,) * wider


class _Payloads:
    """The payloads of all pairs, as the dealer draws them, and what lists decided by tags get."""

    def __init__(self, run: Run, shape: tuple[int, ...], by_tag: ByTag | None) -> None:
        assert by_tag is not None
        self._both = run.coin_words(shape)
        first, second = pairs((by_tag.tags.shape[-1],))
        self._explore = by_tag.explore.astype(bool)[..., None]
        loses = by_tag.tags[..., first] < by_tag.tags[..., second]
        self._of_tags = np.where(loses, self._both & _LOW, self.of_second)

    @property
    def both(self) -> Words:
        """W, or zeros where tags decide."""
        return np.where(self._explore, np.uint64(0), self._both)

    @property
    def of_second(self) -> Words:
        """(0, B_j)."""
        return self._both >> _HALF << _HALF

    @property
    def constant(self) -> Words:
        """What is added whatever is opened: (0, B_j), or where tags decide what they say."""
        return np.where(self._explore, self._of_tags, self.of_second)


def _by_words(run: Run, borrow: Borrow, dealt: _Payloads | None) -> Rounds[Words | None]:
    """The words of all pairs, looked up at the opened bits: one round."""
    masks, opening = masked_bits(run, borrow)
    nodes = run.deal(
        (*borrow.shape, 2 * _nodes(borrow.chunks)),
        lambda: _word_heaps(masks, borrow, dealt),
        Sharing.XOR,
        purpose="payloads, by mask bits",
    )
    (opened,) = yield (opening,)
    if opened is None or borrow.public_top is None:
        return None
    run.note("payloads: look up shared words at the opened bits")
    return look_up_payloads(opened, borrow.public_top, nodes, borrow.chunks)


def _word_heaps(masks: Words, borrow: Borrow, dealt: _Payloads | None) -> Words:
    """The nodes of both heaps, from node 1 on."""
    assert dealt is not None
    assert borrow.secret_top is not None
    both, size = dealt.both, _nodes(borrow.chunks)
    node, less_masks = nodes_of(masks, borrow.chunks)
    heaps = np.zeros((*masks.shape, 2 * size), np.uint64)
    place = node.astype(np.intp) - 1
    np.put_along_axis(heaps, place, both[..., None], axis=-1)
    np.put_along_axis(heaps, place + size, both[..., None] * less_masks, axis=-1)
    heaps[..., size] ^= both * borrow.secret_top ^ dealt.constant
    return heaps


def _by_bits(run: Run, borrow: Borrow, dealt: _Payloads | None) -> Rounds[Words | None]:
    """The words of all pairs, one of two by an opened bit: two rounds."""
    (less,) = yield (combine(run, borrow),)
    mask = low_bits(run.random(less.shape, Sharing.XOR), 1)
    words = run.deal((*less.shape, 2), lambda: _either(mask, dealt), Sharing.XOR, purpose="payloads, by a mask bit")
    outgoing = None if less.share is None else less.share ^ mask
    opening: Opening[Words | None] = Opening(
        less.shape,
        outgoing,
        lambda opened: opened,
        Sharing.XOR,
        bits=1,
        meaning="which of two keys is larger ^ mask bit, for all pairs",
        why=MASKED,
    )
    (opened,) = yield (opening,)
    if opened is None:
        return None
    run.note("payloads: take one of two shared words by the opened bit")
    return pick_one(words, opened)


def _either(mask: Words, dealt: _Payloads | None) -> Words:
    """The words for an opened 0 and an opened 1."""
    assert dealt is not None
    where_less = np.stack([mask, mask ^ np.uint64(1)], axis=-1)
    return dealt.both[..., None] * where_less ^ dealt.constant[..., None]
