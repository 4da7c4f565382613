"""The paper's binary sharing: AND, the adder, conversions, comparison, Algorithm 2 and the argmax in three stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from hiddenarm.mpc.masking import dealt
from hiddenarm.mpc.run import Program, Run, Sharing
from hiddenarm.mpc.values import Shared
from hiddenarm.paper import rounds
from hiddenarm.paper.binary import BinaryShared, add, both, to_arithmetic, to_binary
from hiddenarm.paper.comparison import argmax, at_least_zero, mark_maxima
from hiddenarm.ring.words import Words
from support import PARTIES, SIGNIFICANCE, Ran, evenness, run_program, signed, split, uniformity, unsigned, words_from

EDGES = unsigned([0, 1, -1, 2, -2, 2**62, -(2**62), 2**63 - 1, -(2**63), -(2**63) + 1])


def cases(*labels: str | int) -> Words:
    """Words of all magnitudes and both signs, and the edges."""
    sizes = words_from(500, "size", *labels) % np.uint64(64)
    small = signed(words_from(500, "value", *labels)) >> sizes.astype(np.int64)
    return np.concatenate([unsigned(small), EDGES])[None]


def exclusive(ran: Ran) -> Words:
    return reduce(np.bitwise_xor, [result.share for result in ran.results])


def binary(value: Shared) -> BinaryShared:
    """What `run_program` shares by sums, read as a binary sharing: a test of the circuit needs no more."""
    return BinaryShared(value.shape, value.share)


def xor_of_shares(values: Words, parties: int, *labels: str | int) -> Words:
    """What the additive shares that `run_program` makes come to as a binary sharing."""
    return reduce(np.bitwise_xor, split(values, parties, *labels))


@pytest.mark.parametrize("parties", PARTIES)
def test_and_is_exact(parties: int) -> None:
    x, y = words_from((1, 300), "x"), words_from((1, 300), "y")

    def program(run: Run, x: Shared, y: Shared) -> Program:
        return (yield from both(run, binary(x), binary(y)))

    ran = run_program(program, [x, y], parties, "and")
    expected = xor_of_shares(x, parties, "and", 0) & xor_of_shares(y, parties, "and", 1)
    assert np.array_equal(exclusive(ran), expected)
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.BEAVER


@pytest.mark.parametrize("parties", PARTIES)
def test_the_adder_adds_modulo_2_to_the_64(parties: int) -> None:
    x, y = cases("x"), cases("y")

    def program(run: Run, x: Shared, y: Shared) -> Program:
        return (yield from add(run, binary(x), binary(y)))

    ran = run_program(program, [x, y], parties, "adder")
    expected = xor_of_shares(x, parties, "adder", 0) + xor_of_shares(y, parties, "adder", 1)
    assert np.array_equal(exclusive(ran), expected)
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.ADDER == 7


@pytest.mark.parametrize("parties", [*PARTIES, 4, 9])
def test_from_additive_to_binary(parties: int) -> None:
    x = cases("to binary")

    def program(run: Run, x: Shared) -> Program:
        return (yield from to_binary(run, parties, x))

    ran = run_program(program, [x], parties, "to binary")
    assert np.array_equal(exclusive(ran), x)
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.arithmetic_to_binary(parties)


def test_the_rounds_of_a_conversion_grow_with_the_logarithm_of_the_parties() -> None:
    assert [rounds.arithmetic_to_binary(parties) for parties in (2, 3, 4, 5, 9, 100)] == [8, 9, 10, 11, 12, 19]


@pytest.mark.parametrize("parties", PARTIES)
def test_there_and_back(parties: int) -> None:
    x = cases("back")

    def program(run: Run, x: Shared) -> Program:
        return (yield from to_arithmetic(run, (yield from to_binary(run, parties, x))))

    ran = run_program(program, [x], parties, "back")
    assert np.array_equal(ran.opened(), x)
    assert ran.layout.rounds == rounds.arithmetic_to_binary(parties) + rounds.BINARY_TO_ARITHMETIC


@pytest.mark.parametrize("parties", PARTIES)
def test_comparison_with_zero(parties: int) -> None:
    x = cases("sign")

    def program(run: Run, x: Shared) -> Program:
        return (yield from at_least_zero(run, parties, x))

    ran = run_program(program, [x], parties, "sign")
    assert np.array_equal(ran.opened(), (signed(x) >= 0).astype(np.uint64))
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.comparison(parties)


def lists(arms: int, *labels: str | int) -> Words:
    """Short lists with many ties, and lists of numbers of all sizes."""
    few = signed(words_from((150, arms), "few", *labels)) % 3 - 1
    many = signed(words_from((150, arms), "many", *labels)) >> 3
    return unsigned(np.concatenate([few, many, np.zeros((10, arms), np.int64)]))


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("arms", [2, 3, 7, 10])
def test_algorithm_2_marks_all_maxima(parties: int, arms: int) -> None:
    values = lists(arms, "maxima")

    def program(run: Run, values: Shared) -> Program:
        return (yield from mark_maxima(run, parties, values))

    ran = run_program(program, [values], parties, "maxima", arms)
    plain = signed(values)
    assert np.array_equal(ran.opened(), (plain == plain.max(axis=1, keepdims=True)).astype(np.uint64))
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.maxima(parties, arms)


def choice(parties: int, arms: int, gammas: list[Words]) -> Callable[..., Program]:
    def program(run: Run, values: Shared) -> Program:
        def permutation() -> Words:
            gammas.append(np.argsort(run.coin_words((arms,)), axis=-1).astype(np.uint64) + np.uint64(1))
            return gammas[-1]

        gamma = dealt(run, (arms,), permutation)
        return (yield from argmax(run, parties, values, gamma))

    return program


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("arms", [2, 5, 10])
def test_the_argmax_is_one_hot_and_the_permutation_breaks_ties(parties: int, arms: int) -> None:
    gammas: list[Words] = []
    values = lists(arms, "argmax")
    ran = run_program(choice(parties, arms, gammas), [values], parties, "argmax", arms)
    plain = signed(values)
    tied = np.where(plain == plain.max(axis=1, keepdims=True), gammas[-1][0], 0)
    assert np.array_equal(ran.opened(), np.eye(arms, dtype=np.uint64)[tied.argmax(axis=1)])
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.argmax(parties, arms)


def test_ties_are_broken_evenly() -> None:
    gammas: list[Words] = []
    arms = 5
    ran = run_program(choice(2, arms, gammas), [np.zeros((5000, arms), np.uint64)], 2, "even")
    assert evenness(ran.opened().argmax(axis=1), arms) > SIGNIFICANCE


def test_two_stages_of_the_argmax_of_a_hundred() -> None:
    gammas: list[Words] = []
    arms = 100
    values = unsigned(signed(words_from((2, arms), "hundred")) >> 20)
    ran = run_program(choice(2, arms, gammas), [values], 2, "hundred")
    assert np.array_equal(ran.opened().argmax(axis=1), signed(values).argmax(axis=1))
    assert ran.layout.rounds == rounds.argmax(2, arms) == 2 * (9 + 7) + 1


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("values", ["zeros", "ones", "extremes"])
def test_everything_sent_and_everything_opened_is_uniform(parties: int, values: str) -> None:
    """All openings of an argmax: of conversions, of triples of bits and of words, of products with a dealt value.

    Shares of a fixed value add up to it. So what is shown party by party is added up too: it must not.
    """
    fixed = {"zeros": [0, 0, 0], "ones": [-1, -1, -1], "extremes": [2**62, -(2**61), 2**62]}[values]
    inputs = unsigned(np.tile(fixed, (3000, 1)))
    ran = run_program(choice(parties, 3, []), [inputs], parties, "views", values, keep=True)
    smallest, tests = 1.0, 0
    for openings, by_opening in ran.observed:
        for opening, sent in zip(openings, by_opening, strict=True):
            total = (np.bitwise_xor if opening.sharing is Sharing.XOR else np.add).reduce(sent)
            for words in (*sent, total):
                smallest, tests = min(smallest, uniformity(words, opening.bits)), tests + 1
    assert tests > 50
    assert smallest * tests > SIGNIFICANCE
