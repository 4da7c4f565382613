"""Fixed-point numbers in the ring."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.ring.words import decode, encode, low_bits

# The scaled number is below 2^52, where a float64 holds it to less than its own rounding: rint's half unit remains.
SMALL = st.floats(-1000, 1000, allow_nan=False)


@given(st.lists(SMALL, min_size=1), st.integers(8, 40))
def test_fixed_point_is_off_by_half_a_unit_at_most(values: list[float], bits: int) -> None:
    back = decode(encode(values, bits), bits)
    assert np.all(np.abs(back - np.array(values)) <= 0.5 * 2.0**-bits)


@given(st.integers(-(2**52), 2**52), st.integers(0, 40))
def test_multiples_of_the_unit_are_exact(integer: int, bits: int) -> None:
    word = encode(integer * 2.0**-bits, bits)
    assert int(word) == integer % 2**64
    assert decode(word, bits) == integer * 2.0**-bits


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_words_wrap_around_as_the_ring_does(a: int, b: int) -> None:
    x, y = np.array([a], np.uint64), np.array([b], np.uint64)
    assert int((x + y)[0]) == (a + b) % 2**64
    assert int((x - y)[0]) == (a - b) % 2**64
    assert int((x * y)[0]) == (a * b) % 2**64


@given(st.integers(0, 2**64 - 1), st.integers(0, 64))
def test_low_bits_are_the_word_modulo_a_power_of_two(word: int, count: int) -> None:
    assert int(low_bits(np.array([word], np.uint64), count)[0]) == word % 2**count


def test_negative_numbers_are_the_upper_half() -> None:
    assert int(encode(-1.0, 20)) == 2**64 - 2**20
