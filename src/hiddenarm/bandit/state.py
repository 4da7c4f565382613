"""What lessons change: named arrays of shares. One codec for all of it, in checkpoints, snapshots and files.

    number of arrays (u16)
    for each: length of its name (u8), name, number of axes (u8), lengths of the axes (u32 each), words (u64 each)

All numbers are little-endian. Arrays of shares have an axis of replicates before their own axes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hiddenarm.errors import DamagedStoreError
from hiddenarm.ring.words import Floats, Words, decode, encode

_WORD = "<u8"
_COUNT = struct.Struct("<H")


class State(dict[str, Words]):
    """One party's shares, by the names of the arrays. They are secret: only their shapes are shown."""

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}: {words.shape}' for name, words in self.items())})"


@dataclass(frozen=True, slots=True, eq=False)
class StateArray:
    """An array of a model, with an entry for each arm along its first axis. Its public start is `start` times `unit`,
    such as a multiple of the identity."""

    name: str
    shape: tuple[int, ...]
    fraction_bits: int
    unit: Floats | float = 0.0
    start: float = 0.0

    def share(self, party: int, replicates: int = 1, start: float | None = None) -> Words:
        """A party's share of a public start: party 0 holds it, the others hold zero."""
        words = np.zeros((replicates, *self.shape), np.uint64)
        if party == 0:
            words[:] = encode(np.asarray(self.unit) * (self.start if start is None else start), self.fraction_bits)
        return words

    def grown(self, words: Words, party: int) -> Words:
        """A party's share for more arms: those that `words` has no entry for begin at the public start. What has other
        shapes is left as it is."""
        had, rest = words.shape[1] if words.ndim > 1 else 0, words.shape[2:]
        if rest != self.shape[1:] or not 0 < had < self.shape[0]:
            return words
        grown = self.share(party, words.shape[0])
        grown[:, :had] = words
        return grown


def grown_state(arrays: Sequence[StateArray], state: Mapping[str, Words], party: int) -> State:
    """A party's shares that were kept when there were fewer arms. To grow them and to learn lessons of that time may
    come in either order: the one-hots of these are zero at the arms that were added since."""
    by_name = {array.name: array for array in arrays}
    return State(
        (name, by_name[name].grown(words, party) if name in by_name else words) for name, words in state.items()
    )


def padded_arms(words: Words, arms: int) -> Words:
    """Words [..., arms of before] of a one-hot, or of its mask, for more arms: zero at those that were added."""
    missing = arms - words.shape[-1]
    if missing <= 0:
        return words
    return np.concatenate([words, np.zeros((*words.shape[:-1], missing), np.uint64)], axis=-1)


def initial_state(arrays: Sequence[StateArray], party: int, replicates: int = 1) -> State:
    """A party's shares before the first lesson."""
    return State((array.name, array.share(party, replicates)) for array in arrays)


def reveal(arrays: Sequence[StateArray], states: Sequence[State]) -> dict[str, Floats]:
    """The arrays in the clear, from the shares of all parties. Only for who holds them all."""
    return {
        array.name: decode(np.add.reduce([state[array.name] for state in states]), array.fraction_bits)
        for array in arrays
    }


def encode_arrays(arrays: Mapping[str, Words]) -> bytes:
    """Named arrays as bytes."""
    return b"".join([_COUNT.pack(len(arrays)), *(_encode(name, words) for name, words in arrays.items())])


def decode_arrays(payload: bytes) -> State:
    """The same back; anything but a whole number of arrays is damaged."""
    try:
        (count,), at, arrays = _COUNT.unpack_from(payload), _COUNT.size, State()
        for _ in range(count):
            length = payload[at]
            name = payload[at + 1 : at + 1 + length].decode()
            arrays[name], at = decode_array(payload, at + 1 + length)
    except (struct.error, IndexError, ValueError):
        raise DamagedStoreError("a record of arrays cannot be read") from None
    if at != len(payload) or len(arrays) != count:
        raise DamagedStoreError("a record of arrays has a wrong length")
    return arrays


def decode_array(payload: bytes, at: int) -> tuple[Words, int]:
    """One array without its name, and where it ends."""
    axes = payload[at]
    shape: Sequence[int] = struct.unpack_from(f"<{axes}I", payload, at + 1)
    start, count = at + 1 + 4 * axes, prod(shape)
    return np.frombuffer(payload, _WORD, count, start).reshape(shape).astype(np.uint64), start + 8 * count


def check_state(arrays: Sequence[StateArray], state: Mapping[str, Words], replicates: int = 1) -> None:
    """Raise DamagedStoreError unless the state has these arrays in their shapes, and no others."""
    expected = {array.name: (replicates, *array.shape) for array in arrays}
    found = {name: words.shape for name, words in state.items()}
    if expected != found:
        raise DamagedStoreError(f"the state holds the arrays {found}, where {expected} were expected")


def _encode(name: str, words: Words) -> bytes:
    encoded, shape = name.encode(), words.shape
    head = struct.pack(f"<B{len(encoded)}sB{len(shape)}I", len(encoded), encoded, len(shape), *shape)
    return head + np.ascontiguousarray(words, _WORD).tobytes()
