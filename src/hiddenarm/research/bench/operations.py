"""The operations of which the programs of each suite are made.

A product of the fast suite needs masked factors, so masking them is part of it. A multiplication of the paper's suite
includes the division that takes the scale of a factor away; its reciprocal is that of numbers in [1, 2).
"""

from __future__ import annotations

import numpy as np

from hiddenarm.bandit.federation import NEWTON_ITERATIONS, check_suite
from hiddenarm.mpc.comparison import combine, compare, reveal
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import lookup, reciprocal_table
from hiddenarm.mpc.masking import dealt, mask
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.shuffle import deal_shuffle
from hiddenarm.mpc.tournament import open_winner
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.comparison import argmax, at_least_zero
from hiddenarm.paper.fixed_point import FixedPoint, reciprocal
from hiddenarm.research.bench.operation import BITS, Operation, Text
from hiddenarm.ring.words import Words

ARGMAX_SIZES = (10, 100)
_COMPARED_BITS = 37


def operations_of(suite: str, parties: int, newton_iterations: int | None = None) -> list[Operation]:
    """All that the table of a suite shows."""
    check_suite(suite, newton_iterations)
    if suite == "paper":
        return _paper_operations(parties, NEWTON_ITERATIONS if newton_iterations is None else newton_iterations)
    return _fast_operations(parties)


def _fast_operations(parties: int) -> list[Operation]:
    return [
        Operation("add", _add, 2, plain=np.add),
        Operation("mask", _mask),
        Operation("multiply", _multiply, 2, plain=np.multiply),
        Operation("three-factor form", _three_factors, 3, plain=lambda x, y, z: x * y * z),
        Operation("truncate", _truncate, plain=lambda x: np.floor(x)),
        Operation("compare, opened", _compare, plain=lambda x: x < 0),
        Operation("reciprocal look-up", _reciprocal, plain=lambda x: 1 / (1 + x)),
        *(_argmax_operation(size, argmax_text(parties, size)) for size in ARGMAX_SIZES),
    ]


def _paper_operations(parties: int, iterations: int) -> list[Operation]:
    numbers = FixedPoint(parties, BITS)
    return [
        Operation("addition", _add, 2, plain=np.add),
        Operation("multiplication", lambda run, x, y: numbers.product(run, ",->", x, y), 2, plain=np.multiply),
        Operation("reciprocal", _paper_reciprocal(numbers, iterations), plain=lambda x: 1 / (1 + x)),
        Operation("comparison", lambda run, x: at_least_zero(run, parties, x), plain=lambda x: x >= 0),
        *(_argmax_operation(size, paper_argmax_text(parties)) for size in ARGMAX_SIZES),
    ]


def _argmax_operation(size: int, text: Text) -> Operation:
    return Operation(f"argmax of {size}", text, 1, size, lambda x: np.argmax(x, axis=-1))


def _add(run: Run, x: Shared, y: Shared) -> Program:
    """No round."""
    yield from ()
    return x + y


def _mask(run: Run, x: Shared) -> Program:
    (masked,) = yield (mask(run, x),)
    return masked


def _multiply(run: Run, x: Shared, y: Shared) -> Program:
    one, other = yield mask(run, x), mask(run, y)
    return form(run, ",->", one, other)


def _three_factors(run: Run, x: Shared, y: Shared, z: Shared) -> Program:
    one, two, three = yield mask(run, x), mask(run, y), mask(run, z)
    return form(run, ",,->", one, two, three)


def _truncate(run: Run, x: Shared) -> Program:
    (short,) = yield (truncate(run, x, BITS),)
    return short


def _compare(run: Run, x: Shared) -> Program:
    (borrow,) = yield (compare(run, x, _COMPARED_BITS),)
    (negative,) = yield (combine(run, borrow),)
    (opened,) = yield (reveal(negative),)
    return opened


def _reciprocal(run: Run, x: Shared) -> Program:
    (masked,) = yield (mask(run, x << BITS),)
    return lookup(run, reciprocal_table(8, 2.0, BITS), masked)


def argmax_text(parties: int, size: int) -> Text:
    """The fast suite's argmax: shuffle, compare, open the winner's slot."""

    def text(run: Run, x: Shared) -> Program:
        kept = np.ones(run.batch, np.uint64) if run.dealing else None
        shuffle = deal_shuffle(run, (), size, parties, kept)
        (masked,) = yield (mask(run, x),)
        keys = yield from shuffle.apply(masked)
        return (yield from open_winner(run, keys, _COMPARED_BITS))

    return text


def _paper_reciprocal(numbers: FixedPoint, iterations: int) -> Text:
    return lambda run, x: reciprocal(run, numbers, numbers.plus(run, x, 1.0), iterations)


def paper_argmax_text(parties: int) -> Text:
    """The paper's argmax, with ties broken by a dealt permutation."""

    def text(run: Run, x: Shared) -> Program:
        permutation = dealt(run, x.shape, lambda: _permutation(run.coin_words(x.shape)))
        return (yield from argmax(run, parties, x, permutation))

    return text


def _permutation(words: Words) -> Words:
    """A random arrangement of 1 to the length of the last axis."""
    return words.argsort(axis=-1).astype(np.uint64) + np.uint64(1)
