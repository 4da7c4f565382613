"""Comparison with zero: exact at every width, and what is opened on the way is uniform."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from hiddenarm.mpc.comparison import (
    CHUNK_BITS,
    MAX_BITS,
    MAX_CHUNKS,
    combine,
    compare,
    dealt_words,
    even_chunks,
    reveal,
)
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words
from support import PARTIES, SIGNIFICANCE, run_program, signed, uniformity, unsigned, words_from

WIDTHS = range(2, MAX_BITS + 1)
CASES = 14_000
"""Times 36 widths and 3 numbers of parties: 1.5 million."""


def differences(bits: int, count: int) -> np.ndarray:
    """A third uniform in the whole range, a third of all magnitudes, a third zero, tiny or extreme."""
    top = 1 << (bits - 1)
    uniform, sizes, picks = (words_from(count, "difference", bits, i) for i in range(3))
    wide = signed(uniform >> np.uint64(64 - bits)) - top
    small = wide >> signed(sizes % np.uint64(bits))
    edges = np.array([0, 0, 1, -1, top - 1, -top, -top + 1, top // 2, -top // 2])
    edge = edges[(picks % np.uint64(len(edges))).astype(np.intp)]
    third = np.arange(count) % 3
    return np.where(third == 0, wide, np.where(third == 1, small, edge))


def program(bits: int) -> Callable[..., Program]:
    def text(run: Run, difference: Shared) -> Program:
        (borrow,) = yield (compare(run, difference, even_chunks(bits)),)
        (negative,) = yield (combine(run, borrow),)
        (opened,) = yield (reveal(negative),)
        return negative, opened

    return text


def with_noise_above(values: np.ndarray, bits: int) -> Words:
    """The same values modulo 2^bits, with anything above: only the low bits may count."""
    noise = words_from(values.shape, "noise", bits)
    return unsigned(values) + ((noise << np.uint64(bits - 1)) << np.uint64(1))


@pytest.mark.parametrize("parties", PARTIES)
def test_signs_are_exact(parties: int) -> None:
    for bits in WIDTHS:
        values = differences(bits, CASES)
        assert values.min() == -(1 << (bits - 1))
        assert values.max() == (1 << (bits - 1)) - 1
        ran = run_program(program(bits), [with_noise_above(values, bits)], parties, "compare", parties, bits)
        negative = (values < 0).astype(np.uint64)
        assert np.array_equal(ran.opened(lambda result: result[0]), negative), f"{bits} bits"
        for _, opened in ran.results:
            assert np.array_equal(opened, negative), f"{bits} bits"
        assert ran.layout.rounds == 3


@pytest.mark.parametrize("bits", [2, 3])
def test_every_value_and_every_mask_at_small_widths(bits: int) -> None:
    # 2000 runs of each value meet each of the 2^bits masks: one is missed with probability below 2^(2 bits) e^-250.
    values = np.repeat(np.arange(-(1 << (bits - 1)), 1 << (bits - 1)), 2000)
    ran = run_program(program(bits), [unsigned(values)], 2, "all", bits)
    assert np.array_equal(ran.results[0][1], (values < 0).astype(np.uint64))


@pytest.mark.parametrize("difference", ["zero", "one", "minus one", "largest", "smallest"])
@pytest.mark.parametrize("bits", [CHUNK_BITS * chunks + 1 for chunks in range(1, MAX_CHUNKS + 1)])
def test_what_is_opened_before_the_sign_is_uniform(bits: int, difference: str) -> None:
    """Each party's words and what they add up to, in both rounds, for one and the same difference throughout."""
    top = 1 << (bits - 1)
    value = {"zero": 0, "one": 1, "minus one": -1, "largest": top - 1, "smallest": -top}[difference]
    values = np.full(20_000, value)
    ran = run_program(program(bits), [unsigned(values)], 3, "uniform", bits, difference, keep=True)
    p_values = []
    for (openings, words), add in zip(ran.observed[:2], (np.add, np.bitwise_xor), strict=True):
        width, sent = openings[0].bits, words[0]
        opened = reduce(add, sent) & np.uint64(2**width - 1)
        p_values += [uniformity(seen, width) for seen in (*sent, opened)]
    assert min(p_values) * len(p_values) > SIGNIFICANCE


@pytest.mark.parametrize(
    ("bits", "dealt", "sent"), [(7, 2, [1, 1, 1]), (31, 6, [4, 2, 1]), (32, 8, [4, 2, 1]), (MAX_BITS, 8, [8, 2, 1])]
)
def test_what_a_comparison_costs(bits: int, dealt: int, sent: list[int]) -> None:
    """A truth table a chunk, two heaps in a word up to five chunks, and bytes in three rounds."""
    layout = run_program(program(bits), [unsigned([1])], 2, "cost", bits).layout
    assert layout.correction_words == dealt_words(bits) == dealt
    assert [sizes[0] for sizes in layout.round_bytes] == sent


def test_too_narrow_a_comparison_is_caught() -> None:
    values = differences(20, CASES)
    ran = run_program(program(19), [unsigned(values)], 2, "narrow")
    assert not np.array_equal(ran.results[0][1], (values < 0).astype(np.uint64))


@pytest.mark.parametrize("bits", [-1, 0, 1, MAX_BITS + 1, 64])
def test_unsupported_widths_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=f"comparison of {bits} bits"):
        run_program(program(bits), [unsigned([1])], 2)
