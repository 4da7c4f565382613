"""Words of the ring Z_2^64 and fixed-point numbers in them.

A real number x with `bits` fractional bits is the word round(x 2^bits) mod 2^64; negative numbers are the upper half.
Addition, subtraction and multiplication of `numpy.uint64` wrap around, which is the ring's arithmetic.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]

WORD_BITS = 64


def encode(values: ArrayLike, bits: int, scale: float = 1.0) -> Words:
    """Round real numbers, times `scale`, to fixed point. The caller has checked that they are finite and fit."""
    scaled = np.rint(np.asarray(values, dtype=np.float64) * (scale * 2.0**bits))
    return scaled.astype(np.int64).view(np.uint64)


def decode(words: Words, bits: int) -> Floats:
    """Read fixed-point words as signed real numbers."""
    return np.asarray(words).view(np.int64) / 2.0**bits


def low_bits(words: Words, count: int) -> Words:
    """The words modulo 2^count."""
    if count >= WORD_BITS:
        return words
    return words & np.uint64((1 << count) - 1)


def packed_words(count: int, bits: int) -> int:
    """The words that hold `count` fields of `bits` bits, as many in each as fit."""
    return -(-count // (WORD_BITS // bits))


def pack_top_bits(words: Words, bits: int) -> Words:
    """Put the top `bits` bits of the words [..., count] side by side: field f of packed word k is that of word f n + k,
    with n packed words in all."""
    count = words.shape[-1]
    size = packed_words(count, bits)
    packed = np.zeros((*words.shape[:-1], size), np.uint64)
    for field, start in enumerate(range(0, count, max(1, size))):
        top = words[..., start : start + size] >> np.uint64(WORD_BITS - bits)
        packed[..., : top.shape[-1]] |= top << np.uint64(field * bits)
    return packed


def subtract_fields(minuend: Words, subtrahend: Words, bits: int) -> Words:
    """Subtract packed words field by field: each modulo 2^bits, and what is left above the last field too."""
    highest = np.uint64(sum(1 << top for top in range(bits - 1, WORD_BITS, bits)) | 1 << (WORD_BITS - 1))
    without_borrow: Words = (minuend | highest) - (subtrahend & ~highest)
    return without_borrow ^ ((minuend ^ ~subtrahend) & highest)
