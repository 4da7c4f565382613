"""Openings on the wire: every width there and back, exact lengths, and declared bytes equal to sent ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.errors import FrameError
from hiddenarm.mpc.codec import decode_openings, payload_bytes
from hiddenarm.mpc.comparison import combine, compare, even_chunks, reveal
from hiddenarm.mpc.evaluation import Evaluation, compile_program
from hiddenarm.mpc.masking import input_segments, mask, mask_symmetric
from hiddenarm.mpc.run import Opening, Openings, Program, Run, Sharing
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words, low_bits
from support import NAME, NOTHING_DEALT, PARTIES, plain_bytes, run_program, travelled, words_from

Part = tuple[int, tuple[int, ...]]
"""An opening: bits and shape."""


def begun(
    parts: Sequence[Part],
    words: Sequence[Words],
    party: int = 0,
    parties: int = 2,
    sharing: Sharing = Sharing.ADD,
    owners: tuple[int, ...] | None = None,
) -> tuple[Openings, Evaluation]:
    """A party that opens words as they are, all in one round, and gives what it opened."""

    def text(run: Run) -> Program:
        openings = [Opening(shape, None, lambda opened: opened, sharing, bits, owners) for bits, shape in parts]
        for opening in openings:
            opening.outgoing = run.given(opening.sent_shape(party))
        return list((yield tuple(openings)))

    script = compile_program(text, party, parties, len(words[0]) if words else 1)
    return script.rounds[0], Evaluation(script, NOTHING_DEALT, words)


def words_of(parts: Sequence[Part], copies: int, *labels: str | int) -> list[Words]:
    return [low_bits(words_from((copies, *shape), "wire", *labels, n), bits) for n, (bits, shape) in enumerate(parts)]


def width_in_bytes(bits: int) -> int:
    return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (8,), (9,), (3, 5)])
def test_every_width_there_and_back(shape: tuple[int, ...], copies: int) -> None:
    count = copies * int(np.prod(shape, dtype=int))
    for bits in range(1, 65):
        (words,) = words_of([(bits, shape)], copies)
        openings, evaluation = begun([(bits, shape)], [words])
        payload = evaluation.payload
        assert payload is not None
        assert len(payload) == ((count + 7) // 8 if bits == 1 else count * width_in_bytes(bits)), f"{bits} bits"
        assert len(payload) == payload_bytes(openings, 0, copies), f"{bits} bits"
        assert payload == plain_bytes(words, bits), f"{bits} bits"
        (received,) = decode_openings(openings, payload, 0, copies)
        assert received.dtype == np.uint64
        assert np.array_equal(received, words), f"{bits} bits"


parts_of_a_round = st.lists(
    st.tuples(st.integers(1, 64), st.lists(st.integers(1, 4), max_size=2).map(tuple)), min_size=1, max_size=4
)


@given(parts_of_a_round, st.integers(1, 3))
def test_several_openings_in_one_round(parts: list[Part], copies: int) -> None:
    words = words_of(parts, copies)
    openings, evaluation = begun(parts, words)
    assert evaluation.payload is not None
    assert len(evaluation.payload) == payload_bytes(openings, 1, copies)
    received = decode_openings(openings, evaluation.payload, 1, copies)
    assert all(np.array_equal(a, b) for a, b in zip(words, received, strict=True))


@given(parts_of_a_round, st.integers(1, 3), st.sampled_from(PARTIES), st.sampled_from(Sharing))
def test_all_parties_open_what_the_words_come_to(
    parts: list[Part], copies: int, parties: int, sharing: Sharing
) -> None:
    """The message of each party begins anywhere in the others' memory, and its openings anywhere in it."""
    words = [words_of(parts, copies, party) for party in range(parties)]
    evaluations = [begun(parts, own, party, parties, sharing)[1] for party, own in enumerate(words)]
    sent = [evaluation.payload for evaluation in evaluations]
    for party, evaluation in enumerate(evaluations):
        evaluation.advance(tuple(None if sender == party else message for sender, message in enumerate(sent)))
    add = np.add if sharing is Sharing.ADD else np.bitwise_xor
    for number in range(len(parts)):
        total = reduce(add, [own[number] for own in words])
        for evaluation in evaluations:
            opened: Any = evaluation.result
            assert np.array_equal(opened[number], total)


def test_words_are_little_endian() -> None:
    words = np.array([[0x0102030405060708]], np.uint64)
    assert begun([(64, (1,))], [words])[1].payload == bytes([8, 7, 6, 5, 4, 3, 2, 1])


def test_owners_send_their_own_segments_only() -> None:
    owners = (2, 3)
    own, other = words_from((1, 2), "own"), words_from((1, 3), "other")
    openings, first = begun([(64, (5,))], [own], 0, owners=owners)
    _, second = begun([(64, (5,))], [other], 1, owners=owners)
    assert [payload_bytes(openings, party) for party in (0, 1)] == [16, 24]
    assert second.payload is not None
    (received,) = decode_openings(openings, second.payload, 1)
    assert np.array_equal(received, other)
    first.advance((None, second.payload))
    opened: Any = first.result
    assert np.array_equal(opened[0], np.concatenate([own, other], axis=1))


@pytest.mark.parametrize("bits", [1, 8, 11, 37, 64])
@pytest.mark.parametrize("change", [-1, 1, "empty", "double"])
def test_wrong_lengths_are_refused_by_the_senders_name(bits: int, change: int | str) -> None:
    parts = [(bits, (20,)), (64, (3,))]
    openings, evaluation = begun(parts, words_of(parts, 1), parties=5)
    payload = evaluation.payload
    assert payload is not None
    damaged = {-1: payload[:-1], 1: payload + b"\0", "empty": b"", "double": payload * 2}[change]
    complaint = f"party 4 sent {len(damaged)} bytes in a round that takes {len(payload)}"
    with pytest.raises(FrameError, match=complaint):
        decode_openings(openings, damaged, 4)
    with pytest.raises(FrameError, match=complaint):
        evaluation.advance((None, payload, payload, payload, damaged))
    evaluation.advance((None, payload, payload, payload, payload))  # a refused message has not moved anything
    assert evaluation.payload is None


def everything(parties: int) -> Callable[..., Program]:
    """A program with every kind of opening; party p contributes p + 1 inputs."""
    sizes = tuple(range(1, parties + 1))

    def text(run: Run, value: Shared) -> Program:
        own = None if run.party is None else np.ones((*run.batch, sizes[run.party]), np.uint64)
        yield input_segments(run, (), own, sizes), mask(run, value), mask_symmetric(run, value, 2)
        yield truncate(run, value, 20), mask(run, value >> 10)
        (borrow,) = yield (compare(run, value, even_chunks(25)),)
        (bit,) = yield (combine(run, borrow),)
        yield (reveal(bit),)
        return None

    return text


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("replicates", [1, 5])
def test_declared_rounds_and_bytes_are_those_that_travel(parties: int, replicates: int) -> None:
    ran = run_program(everything(parties), [words_from((replicates, 3), "cost")], parties, "cost", parties, keep=True)
    by_round = [ran.payloads[start : start + parties] for start in range(0, len(ran.payloads), parties)]
    sent = tuple(tuple(travelled(*seen, bytes_)) for seen, bytes_ in zip(ran.observed, by_round, strict=True))
    assert sent == ran.layout.round_bytes
    assert ran.layout.rounds == ran.meter.rounds[NAME] == 5
    assert ran.meter.runs[NAME] == 1
    assert ran.meter.bytes_to_each_peer[NAME] == ran.layout.bytes_to_each_peer(0) == sum(sizes[0] for sizes in sent)
    # By hand, for three values: own inputs and two masked values; two more; 25 bits in 4 bytes; 4 chunks give 7 bits in
    # one byte; three bits, packed over all replicates.
    for party in range(parties):
        words = [8 * (party + 1 + 6), 8 * 6, 4 * 3, 3]
        assert [sizes[party] for sizes in sent] == [*(replicates * n for n in words), -(-3 * replicates // 8)]
