"""How openings travel: little-endian words as narrow as the opened values, one after another, exact lengths."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import DTypeLike

from hiddenarm.errors import FrameError
from hiddenarm.mpc.run import Opening, Openings
from hiddenarm.ring.words import Words


def payload_bytes(openings: Openings, party: int, copies: int = 1) -> int:
    """The bytes that `party` sends to each peer in one round; `copies` is the number of replicates."""
    return sum(_bytes(opening, party, copies) for opening in openings)


def encode_openings(openings: Openings) -> bytes:
    """What this party sends for one round."""
    return b"".join(_encode(opening) for opening in openings)


def decode_openings(openings: Openings, payload: bytes, sender: int, copies: int = 1) -> list[Words]:
    """A peer's words for one round; the length must be exact."""
    expected = payload_bytes(openings, sender, copies)
    if len(payload) != expected:
        raise FrameError(f"party {sender} sent {len(payload)} bytes in a round that takes {expected}")
    words, start = [], 0
    for opening in openings:
        end = start + _bytes(opening, sender, copies)
        words.append(_decode(opening, payload[start:end], sender))
        start = end
    return words


def _wire_type(bits: int) -> DTypeLike:
    for width in (8, 16, 32):
        if bits <= width:
            return np.dtype(f"<u{width // 8}")
    return np.dtype("<u8")


def _bytes(opening: Opening, party: int, copies: int) -> int:
    count = prod(opening.sent_shape(party)) * copies
    if opening.bits == 1:
        return (count + 7) // 8
    return count * np.dtype(_wire_type(opening.bits)).itemsize


def _encode(opening: Opening) -> bytes:
    assert opening.outgoing is not None
    if opening.bits == 1:
        return np.packbits(opening.outgoing.astype(np.uint8)).tobytes()
    return opening.outgoing.astype(_wire_type(opening.bits)).tobytes()


def _decode(opening: Opening, payload: bytes, sender: int) -> Words:
    assert opening.outgoing is not None
    batch = opening.outgoing.shape[: opening.outgoing.ndim - len(opening.shape)]
    shape = (*batch, *opening.sent_shape(sender))
    if opening.bits == 1:
        return np.unpackbits(np.frombuffer(payload, np.uint8), count=prod(shape)).reshape(shape).astype(np.uint64)
    return np.frombuffer(payload, _wire_type(opening.bits)).reshape(shape).astype(np.uint64)
