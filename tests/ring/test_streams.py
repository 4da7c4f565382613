"""Keyed randomness: known answers, separated labels, and every address handed out once."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.errors import AddressError
from hiddenarm.ring.streams import KEY_BYTES, SpentSteps, Stream, derive, fresh_key
from support import fixed_key

KEY = fixed_key("streams")
labels = st.lists(st.text(max_size=5) | st.integers(0, 20), max_size=4)


def block(key: bytes, counter: int) -> bytes:
    """One block of the AES-CTR key stream: the encryption of the counter."""
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counter.to_bytes(16, "big"))


def words_at(key: bytes, words_per_step: int, step: int) -> list[int]:
    """What a step's words must be, block by block."""
    blocks = (words_per_step + 1) // 2
    stream = b"".join(block(key, step * blocks + i) for i in range(blocks))
    return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(words_per_step)]


def test_first_block_is_the_published_aes_256_vector() -> None:
    # FIPS 197 appendix C.3: key 00..1f, plain 00112233..ff.  The counter block of that number is our step of width 2.
    key = bytes(range(32))
    step = 0x00112233445566778899AABBCCDDEEFF
    expected = bytes.fromhex("8ea2b7ca516745bfeafc49904b496089")
    assert Stream(key, 2).step(step).astype("<u8").tobytes() == expected


def test_derive_is_hkdf_with_framed_labels() -> None:
    # RFC 5869 by hand: extract with a zero salt, expand one block.
    def mac(key: bytes, message: bytes) -> bytes:
        h = hmac.HMAC(key, hashes.SHA256())
        h.update(message)
        return h.finalize()

    info = b"hiddenarm" + b"\0\0\0\x05party" + b"\0\0\0\x013"
    assert derive(KEY, "party", 3) == mac(mac(bytes(32), KEY), info + b"\x01")


@pytest.mark.parametrize("width", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("step", [0, 1, 5, 2**40])
def test_words_are_the_counter_mode_key_stream(width: int, step: int) -> None:
    assert Stream(KEY, width).step(step).tolist() == words_at(KEY, width, step)


@given(st.integers(1, 9), st.integers(1, 7), st.lists(st.integers(0, 40), min_size=1, unique=True))
def test_addressed_reads_equal_bulk_reads(width: int, ahead: int, steps: list[int]) -> None:
    bulk = Stream(KEY, width).steps(0, 41)
    in_order = Stream(KEY, width, ahead=ahead)
    any_order = Stream(KEY, width, ahead=ahead, in_order=False)
    for step in sorted(steps):
        assert np.array_equal(in_order.step(step), bulk[step])
    for step in steps:
        assert np.array_equal(any_order.step(step), bulk[step])


def test_a_stream_of_no_words_has_empty_steps() -> None:
    assert Stream(KEY, 0).steps(0, 3).shape == (3, 0)


@given(labels, labels)
def test_labels_separate_keys(one: list[str | int], other: list[str | int]) -> None:
    same = [str(label) for label in one] == [str(label) for label in other]
    assert (derive(KEY, *one) == derive(KEY, *other)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("a", "b"), ("b", "a")),
        (("a",), ("a", "")),
        ((), ("",)),
        (("a", 11), ("a1", 1)),
        ((1, 2), (12,)),
    ],
)
def test_similar_labels_give_different_keys(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    assert derive(KEY, *one) != derive(KEY, *other)


def test_a_derived_key_does_not_lead_to_its_siblings() -> None:
    assert derive(derive(KEY, "a"), "b") != derive(derive(KEY, "b"), "a")
    assert derive(KEY, "a", "b") != derive(derive(KEY, "a"), "b")


def test_fresh_keys_are_long_and_differ() -> None:
    keys = {fresh_key() for _ in range(10)}
    assert len(keys) == 10
    assert all(len(key) == KEY_BYTES for key in keys)


def test_a_step_is_handed_out_once() -> None:
    stream = Stream(KEY, 4, ahead=8)
    stream.step(3)
    with pytest.raises(AddressError, match="step 3"):
        stream.step(3)
    with pytest.raises(AddressError):
        stream.step(2)  # given up when step 3 was asked for
    with pytest.raises(AddressError):
        stream.steps(3, 5)
    assert stream.step(4).tolist() == words_at(KEY, 4, 4)


def test_a_stream_that_expands_nothing_ahead_keeps_nothing() -> None:
    """There is one for each number of interactions that a program was ever run for."""
    stream = Stream(KEY, 4, ahead=1)
    assert stream.step(3).tolist() == words_at(KEY, 4, 3)
    assert not [value for value in vars(stream).values() if isinstance(value, np.ndarray) and value.size]


def test_ranges_may_not_overlap() -> None:
    stream = Stream(KEY, 4)
    stream.steps(10, 5)
    for first, count in ((10, 5), (14, 1), (14, 10), (0, 11), (0, 100)):
        with pytest.raises(AddressError):
            stream.steps(first, count)
    with pytest.raises(AddressError):
        stream.step(12)
    assert stream.steps(15, 1)[0].tolist() == words_at(KEY, 4, 15)


def test_negative_steps_have_no_words() -> None:
    for in_order in (True, False):
        with pytest.raises(AddressError):
            Stream(KEY, 4, in_order=in_order).step(-1)


def test_out_of_order_streams_hand_out_each_step_once() -> None:
    stream = Stream(KEY, 2, in_order=False)
    for step in (5, 0, 3, 1, 7):
        assert stream.step(step).tolist() == words_at(KEY, 2, step)
    for step in (5, 0, 3, 1, 7):
        with pytest.raises(AddressError, match=f"step {step}"):
            stream.step(step)
    assert stream.step(2).tolist() == words_at(KEY, 2, 2)


def test_a_refused_range_uses_nothing_up() -> None:
    stream = Stream(KEY, 2, in_order=False)
    stream.step(4)
    with pytest.raises(AddressError):
        stream.steps(2, 5)  # 4 is in it
    for step in (2, 3, 5, 6):
        stream.step(step)
    ordered = Stream(KEY, 2)
    ordered.steps(0, 4)
    with pytest.raises(AddressError):
        ordered.steps(3, 9)
    ordered.step(4)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=30), st.booleans())
def test_spent_steps_against_a_plain_set(requests: list[tuple[int, int]], in_order: bool) -> None:
    model: set[int] = set()
    spent, highest = SpentSteps(in_order=in_order), -1
    for first, count in requests:
        steps = set(range(first, first + count))
        refused = bool(steps & model) or (in_order and first <= highest)
        if refused:
            with pytest.raises(AddressError):
                spent.spend(first, count)
            continue
        spent.spend(first, count)
        model |= set(range(first + count)) if in_order else steps
        highest = max(highest, first + count - 1)
    assert {step for step in range(40) if step in spent} == model


def test_a_stream_shows_no_key() -> None:
    shown = repr(Stream(KEY, 4)) + str(Stream(KEY, 4))
    assert shown.count("key hidden") == 2
    assert KEY.hex() not in shown
    assert not re.search(r"\\x", shown)
