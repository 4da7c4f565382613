"""Truncation: ten million products, none off by a unit or more, none biased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from hiddenarm.mpc.masking import share_of
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words
from support import PARTIES, run_program, signed, split, unsigned, words_from

CASES = 560_000
"""Times 18 combinations of parties, fractional bits and shifts: 10.08 million."""
LARGEST = 2**62 - 1


@dataclass
class Judged:
    """How truncated values compare with the exact quotients."""

    faults: int
    mean_error: float
    score: float


def judge(result: Words, value: Words, bits: int) -> Judged:
    """Rounding must be down or up, up with probability the fraction cut off.

    The score is the sum of errors over its standard deviation, if each case rounds up with that probability.
    """
    z = signed(value)
    down = z >> bits
    cut = (z - (down << bits)) / 2.0**bits
    off = signed(result) - down
    faults = int(((off != 0) & ((off != 1) | (cut == 0))).sum())
    error = off - cut
    deviation = np.sqrt(max((cut * (1 - cut)).sum(), 1e-9))
    return Judged(faults, float(error.mean()), float(error.sum() / deviation))


def products(count: int, bits: int) -> Words:
    """Products of two random factors, of all magnitudes below 2^62, and the extremes around them."""
    a, b, sizes = (words_from(count, "product", bits, i) for i in range(3))
    spread = signed((a >> np.uint64(33)) >> (sizes % np.uint64(31))) * signed(b >> np.uint64(33))
    z = np.where((sizes >> np.uint64(32)) % np.uint64(2) == 0, spread, -spread)
    unit = 1 << bits
    edges = [0, 1, unit - 1, unit, unit + 1, unit // 2, LARGEST, LARGEST - 1, LARGEST - unit, LARGEST + 1 - unit]
    z[: 2 * len(edges)] = [*edges, *(-edge for edge in edges)]
    assert np.abs(z).max() <= LARGEST
    return unsigned(z)


def program(bits: int) -> Callable[..., Program]:
    def text(run: Run, value: Shared) -> Program:
        (truncated,) = yield (truncate(run, value, bits),)
        return share_of(run, truncated)

    return text


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("fraction_bits", [16, 20, 24])
@pytest.mark.parametrize("times", [1, 2])
def test_products_are_rounded_down_or_up_without_bias(parties: int, fraction_bits: int, times: int) -> None:
    bits = fraction_bits * times
    value = products(CASES, bits)
    ran = run_program(program(bits), [value], parties, "truncation", parties, bits)
    judged = judge(ran.opened(), value, bits)
    assert judged.faults == 0
    assert abs(judged.mean_error) < 0.01
    assert abs(judged.score) < 4  # 4 standard deviations: 6e-5 under unbiased rounding
    assert ran.layout.rounds == 1


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("bits", [0, 1, 20, 40, 61])
def test_every_extreme_rounds_right_under_many_masks(parties: int, bits: int) -> None:
    unit = 1 << bits
    edges = [0, 1, -1, unit, -unit, unit + 1, LARGEST, -LARGEST, -(2**62), LARGEST + 1 - unit]
    value = unsigned(np.repeat(edges, 2000))
    ran = run_program(program(bits), [value], parties, "extremes", parties, bits)
    assert judge(ran.opened(), value, bits).faults == 0


@pytest.mark.parametrize(("bits", "words"), [(0, 7 + 1), (1, 7 + 1), (20, 7 + 3), (32, 7 + 4), (33, 7 + 7)])
def test_of_an_overflow_bit_so_many_bits_are_dealt_as_are_cut_off(bits: int, words: int) -> None:
    ran = run_program(program(bits), [unsigned(np.zeros((1, 7)))], 2, "words", bits)
    assert ran.layout.correction_words == words


@pytest.mark.parametrize("value", [2**62 + 2**61, -(2**62) - 2**61])
def test_values_past_62_bits_do_fail(value: int) -> None:
    # Why `Federation` refuses a larger budget: past it a wrap goes wrong for the part of the masks by which it is past,
    # here 2^61 / 2^63 = a quarter. 4000 masks, within 4 standard deviations of 27.
    values = unsigned(np.full(4000, value))
    ran = run_program(program(20), [values], 2, "over", value)
    assert abs(judge(ran.opened(), values, 20).faults - 1000) < 110


def test_a_bare_local_shift_is_caught() -> None:
    # The paper's division: each of two parties shifts its own share. It fails with probability about |z| / 2^64.
    value = products(100_000, 20)
    first, second = split(value, 2, "bare")
    result = (first >> np.uint64(20)) - (np.negative(second) >> np.uint64(20))
    assert judge(result, value, 20).faults > 100


def test_rounding_down_is_caught() -> None:
    value = products(CASES, 20)
    judged = judge(unsigned(signed(value) >> 20), value, 20)
    assert judged.faults == 0
    assert abs(judged.mean_error) > 0.01
    assert abs(judged.score) > 100


def test_the_opened_word_and_the_rounding_do_not_depend_on_the_integer_part() -> None:
    # Same masks, values that differ by whole units: the same rounding, and openings that differ by just that.
    cut = words_from(1000, "cut") & np.uint64(2**20 - 1)
    rounded = []
    for offset in (0, 5 << 20, -(3 << 30)):
        value = cut + unsigned(offset)
        ran = run_program(program(20), [value], 3, "coin")
        rounded.append(signed(ran.opened()) - (offset >> 20))
    assert np.array_equal(rounded[0], rounded[1])
    assert np.array_equal(rounded[0], rounded[2])
