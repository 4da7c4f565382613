"""Openings on the wire: every width there and back, exact lengths, and declared bytes equal to sent ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.errors import FrameError
from hiddenarm.mpc.codec import decode_openings, encode_openings, payload_bytes
from hiddenarm.mpc.comparison import combine, compare, reveal
from hiddenarm.mpc.masking import input_segments, mask, mask_dropping, mask_symmetric
from hiddenarm.mpc.run import Opening, Program, Run, Sharing
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import low_bits
from support import NAME, PARTIES, run_program, travelled, words_from


def opening(shape: tuple[int, ...], copies: int, bits: int, owners: tuple[int, ...] | None = None) -> Opening:
    sent = (*shape[:-1], owners[0]) if owners else shape
    words = low_bits(words_from((copies, *sent), "wire", bits), bits)
    return Opening(shape, words, lambda opened: opened, Sharing.ADD, bits, owners)


def width_in_bytes(bits: int) -> int:
    return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (8,), (9,), (3, 5)])
@pytest.mark.parametrize("bits", range(1, 65))
def test_every_width_there_and_back(bits: int, shape: tuple[int, ...], copies: int) -> None:
    sent = (opening(shape, copies, bits),)
    payload = encode_openings(sent)
    count = copies * int(np.prod(shape, dtype=int))
    assert len(payload) == ((count + 7) // 8 if bits == 1 else count * width_in_bytes(bits))
    assert len(payload) == payload_bytes(sent, 0, copies)
    (received,) = decode_openings(sent, payload, 0, copies)
    assert received.dtype == np.uint64
    assert np.array_equal(received, sent[0].outgoing)


@given(st.lists(st.tuples(st.integers(1, 64), st.lists(st.integers(1, 4), max_size=2)), max_size=4), st.integers(1, 3))
def test_several_openings_in_one_round(parts: list[tuple[int, list[int]]], copies: int) -> None:
    sent = tuple(opening(tuple(shape), copies, bits) for bits, shape in parts)
    payload = encode_openings(sent)
    assert len(payload) == payload_bytes(sent, 1, copies)
    received = decode_openings(sent, payload, 1, copies)
    assert all(np.array_equal(a.outgoing, b) for a, b in zip(sent, received, strict=True))


def test_words_are_little_endian() -> None:
    words = np.array([[0x0102030405060708]], np.uint64)
    assert encode_openings((Opening((1,), words, lambda opened: opened),)) == bytes([8, 7, 6, 5, 4, 3, 2, 1])


def test_owners_send_their_own_segments_only() -> None:
    owners = (2, 3)
    sent = opening((5,), 1, 64, owners)
    assert [payload_bytes((sent,), party) for party in (0, 1)] == [16, 24]
    other = replace(sent, outgoing=words_from((1, 3), "other"))
    (received,) = decode_openings((sent,), encode_openings((other,)), 1)
    assert np.array_equal(received, other.outgoing)


@pytest.mark.parametrize("bits", [1, 8, 11, 37, 64])
@pytest.mark.parametrize("change", [-1, 1, "empty", "double"])
def test_wrong_lengths_are_refused_by_the_senders_name(bits: int, change: int | str) -> None:
    sent = (opening((20,), 1, bits), opening((3,), 1, 64))
    payload = encode_openings(sent)
    damaged = {-1: payload[:-1], 1: payload + b"\0", "empty": b"", "double": payload * 2}[change]
    with pytest.raises(FrameError, match=f"party 4 sent {len(damaged)} bytes in a round that takes {len(payload)}"):
        decode_openings(sent, damaged, 4)


def everything(parties: int):
    """A program with every kind of opening; party p contributes p + 1 inputs."""
    sizes = tuple(range(1, parties + 1))

    def text(run: Run, value: Shared) -> Program:
        party = None if run.dealing else run.party
        own = None if party is None else np.ones((*run.batch, sizes[party]), np.uint64)
        yield input_segments(run, (), own, sizes, party), mask(run, value), mask_symmetric(run, value, 2)
        yield truncate(run, value, 20), mask_dropping(run, value, 10)
        (borrow,) = yield (compare(run, value, 25),)
        (bit,) = yield (combine(run, borrow),)
        yield (reveal(bit),)
        return None

    return text


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("replicates", [1, 5])
def test_declared_rounds_and_bytes_are_those_that_travel(parties: int, replicates: int) -> None:
    ran = run_program(everything(parties), [words_from((replicates, 3), "cost")], parties, "cost", parties, keep=True)
    sent = tuple(tuple(travelled(*observed, replicates)) for observed in ran.observed)
    assert sent == ran.layout.round_bytes
    assert ran.layout.rounds == ran.meter.rounds[NAME] == 5
    assert ran.meter.runs[NAME] == 1
    assert ran.meter.bytes_to_each_peer[NAME] == ran.layout.bytes_to_each_peer(0) == sum(sizes[0] for sizes in sent)
    # By hand, for three values: own inputs and two masked values; two more; 25 bits in 4 bytes; 4 chunks give 7 bits in
    # one byte; three bits, packed over all replicates.
    for party in range(parties):
        words = [8 * (party + 1 + 6), 8 * 6, 4 * 3, 3]
        assert [sizes[party] for sizes in sent] == [*(replicates * n for n in words), -(-3 * replicates // 8)]
