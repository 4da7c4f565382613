"""How openings travel: little-endian words as narrow as the opened values, one after another, exact lengths.

The machine that runs recorded programs packs and unpacks them itself (`send_words` and `open_sum` in
`ring/instructions.c`); here are the lengths, and a way to look at what was sent.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from hiddenarm.errors import FrameError
from hiddenarm.mpc.run import Opening, Openings
from hiddenarm.ring.words import Words


def payload_bytes(openings: Openings, party: int, copies: int = 1) -> int:
    """The bytes that `party` sends to each peer in one round; `copies` is the number of replicates."""
    return sum([opening_bytes(opening, party, copies) for opening in openings])


def decode_openings(openings: Openings, payload: bytes, sender: int, copies: int = 1) -> list[Words]:
    """A peer's words for one round; the length must be exact."""
    expected = payload_bytes(openings, sender, copies)
    if len(payload) != expected:
        raise FrameError(f"party {sender} sent {len(payload)} bytes in a round that takes {expected}")
    words, start = [], 0
    for opening in openings:
        words.append(_decode(opening, payload, start, sender, copies))
        start += opening_bytes(opening, sender, copies)
    return words


@lru_cache
def _wire_type(bits: int) -> np.dtype[np.unsignedinteger]:
    for width in (8, 16, 32):
        if bits <= width:
            return np.dtype(f"<u{width // 8}")
    return np.dtype("<u8")


def opening_bytes(opening: Opening[object], party: int, copies: int) -> int:
    """The bytes of one opening in what `party` sends."""
    count = prod(opening.sent_shape(party)) * copies
    if opening.bits == 1:
        return (count + 7) // 8
    return count * _wire_type(opening.bits).itemsize


def _decode(opening: Opening[object], payload: bytes, start: int, sender: int, copies: int) -> Words:
    """The words of one opening from `start` on; views of the payload where it holds whole words."""
    shape = (copies, *opening.sent_shape(sender))
    count = prod(shape)
    if opening.bits == 1:
        packed = np.frombuffer(payload, np.uint8, (count + 7) // 8, start)
        return np.unpackbits(packed, count=count).reshape(shape).astype(np.uint64)
    return np.frombuffer(payload, _wire_type(opening.bits), count, start).reshape(shape).astype(np.uint64, copy=False)
