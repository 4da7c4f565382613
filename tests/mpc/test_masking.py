"""Masking and the values themselves: what comes back, and what shows nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hiddenarm.mpc.comparison import Borrow, SharedBit, combine, compare, even_chunks
from hiddenarm.mpc.masking import dealt_share, mask, share_of, triangle_indices, triangle_to_square
from hiddenarm.mpc.material import Seeds
from hiddenarm.mpc.run import Opening, Program, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Masked, MaskPart, Secret, Shared
from support import PARTIES, SIGNIFICANCE, run_program, signed, uniformity, unsigned, words_from

WORDS = words_from(4, "secret")


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("bits", [1, 12, 40])
def test_shifted_shares_lose_a_unit_for_every_party_but_one(parties: int, bits: int) -> None:
    value = words_from(20_000, "drop", bits)

    def text(run: Run, shared: Shared) -> Program:
        return shared >> bits
        yield

    result = run_program(text, [value], parties, "drop", parties).opened()
    off = ((value >> np.uint64(bits)) - result) & np.uint64((1 << (64 - bits)) - 1)
    assert set(np.unique(off)) == set(range(parties if bits > 1 else parties // 2 + 1))  # of one bit, half a unit each


@pytest.mark.parametrize("parties", PARTIES)
def test_a_masked_value_turns_back_into_shares(parties: int) -> None:
    value = words_from((50, 3), "round trip")

    def text(run: Run, shared: Shared) -> Program:
        (masked,) = yield (mask(run, shared),)
        return share_of(run, masked.take(np.array([2, 0, 2])))

    assert np.array_equal(run_program(text, [value], parties).opened(), value[:, [2, 0, 2]])


def test_arithmetic_of_shares() -> None:
    one, other = words_from((9, 4), "one"), words_from((9, 4), "other")

    def text(run: Run, x: Shared, y: Shared) -> Program:
        dealt_one = dealt_share(run, (), lambda: np.ones(run.batch, np.uint64))
        yield ()
        return ((x + y) << 3) - y.take(np.array([3, 2, 1, 0])), dealt_one

    ran = run_program(text, [one, other], 3)
    assert np.array_equal(ran.opened(lambda r: r[0]), (one + other) * np.uint64(8) - other[:, ::-1])
    assert np.all(ran.opened(lambda r: r[1]) == 1)


def test_shares_of_different_shapes_do_not_combine() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        Shared((2,), WORDS[:2]) + Shared((3,), WORDS[:3])


def test_triangles_unpack_to_symmetric_matrices() -> None:
    rows, columns = triangle_indices(5)
    packed = np.arange(len(rows))
    square = packed[triangle_to_square(5)]
    assert np.array_equal(square, square.T)
    assert np.array_equal(square[rows, columns], packed)


def secrets() -> list[Secret]:
    part = MaskPart(WORDS)
    return [
        Shared((4,), WORDS),
        Masked((4,), WORDS, (part,)),
        Borrow((4,), 2, WORDS, WORDS, WORDS),
        SharedBit((4,), WORDS),
    ]


@pytest.mark.parametrize("secret", secrets(), ids=lambda secret: type(secret).__name__)
def test_secrets_have_no_truth_value_and_show_only_their_shape(secret: Secret) -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(secret)
    assert repr(secret) == str(secret) == f"{type(secret).__name__}(shape=(4,))"


@pytest.mark.parametrize(
    "thing",
    [MaskPart(WORDS), Opening((4,), WORDS, lambda opened: opened), Seeds(WORDS.tobytes())],
    ids=lambda thing: type(thing).__name__,
)
def test_what_holds_secrets_shows_none(thing: object) -> None:
    shown = repr(thing) + str(thing) + format(thing)
    assert not any(str(word) in shown or f"{word:x}" in shown for word in WORDS.tolist())
    assert repr(WORDS.tobytes())[2:10] not in shown


def received(text: Callable[..., Program], value: np.ndarray, *labels: str) -> list[tuple[np.ndarray, int]]:
    """The opened words of each opening and their width."""
    ran = run_program(text, [value], 2, *labels, keep=True)
    out = []
    for openings, by_opening in ran.observed:
        for opening, sent in zip(openings, by_opening, strict=True):
            total = sent[0] ^ sent[1] if opening.sharing.name == "XOR" else sent[0] + sent[1]
            total &= np.uint64((1 << opening.bits) - 1) if opening.bits < 64 else ~np.uint64(0)
            out.append((total, opening.bits))
    return out


def masked_twice(run: Run, value: Shared) -> Program:
    yield mask(run, value), mask(run, value)
    return None


def all_openings(run: Run, value: Shared) -> Program:
    yield truncate(run, value, 20), mask(run, value >> 10), mask(run, value)
    for bits in (2, 9, 30, 37):
        (borrow,) = yield (compare(run, value, even_chunks(bits)),)
        yield (combine(run, borrow),)
    return None


@pytest.mark.parametrize("value", [0, 1, -1, 2**61, -(2**61)])
def test_what_is_opened_is_uniform_whatever_the_value(value: int) -> None:
    opened = received(all_openings, unsigned(np.full(20_000, value)), "opened")
    assert len(opened) == 11
    for words, bits in opened:
        assert uniformity(words, bits) > SIGNIFICANCE


def test_two_masks_of_one_value_differ_uniformly() -> None:
    value = unsigned(np.full(20_000, 12345))
    (one, _), (other, _) = received(masked_twice, value, "twice")
    assert uniformity(one) > SIGNIFICANCE  # each alone is, even with one mask for both
    assert uniformity(one - other) > SIGNIFICANCE


def test_the_uniformity_test_sees_small_leaks() -> None:
    words = words_from(20_000, "leak")
    assert uniformity(words) > SIGNIFICANCE
    assert uniformity(words & ~np.uint64(1 << 40)) < 1e-12  # a stuck bit
    assert uniformity(words >> np.uint64(1)) < 1e-12  # 63 bits in 64
    assert uniformity(words % np.uint64(3), 2) < 1e-12  # an uneven part byte
    assert uniformity(signed(words).astype(np.float64).astype(np.int64).view(np.uint64)) < 1e-12  # through a float
