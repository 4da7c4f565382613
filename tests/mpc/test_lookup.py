"""Look-up of a table of polynomials at a masked number, and the reciprocal's error."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hiddenarm.mpc.lookup import (
    PolynomialTable,
    ReciprocalShape,
    lookup,
    reciprocal_shape,
    reciprocal_table,
)
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from support import PARTIES, SIGNIFICANCE, run_program, signed, unsigned, words_from

BITS = 20
POWER_BITS, RESULT_BITS = 20, 44
SHAPES = [
    ReciprocalShape(degree=1, nodes=64, spacing=1 / 30, scale=15),
    ReciprocalShape(degree=2, nodes=64, spacing=1 / 30, scale=15),
    ReciprocalShape(degree=5, nodes=16, spacing=1 / 6, scale=12),
]
LARGEST = 1.95


def program(table: PolynomialTable) -> Callable[..., Program]:
    def text(run: Run, number: Shared) -> Program:
        (x,) = yield (mask(run, number),)
        return lookup(run, table, x)

    return text


def table_of(shape: ReciprocalShape) -> PolynomialTable:
    return reciprocal_table(shape, 2 * BITS, POWER_BITS, RESULT_BITS)


def rounding(table: PolynomialTable) -> float:
    """What the documentation says of a look-up, beside the error of the polynomials. Powers of y have an error of their
    own: each is rounded to half a unit more than the one before it, times a coefficient below 4 h^2 from the second on.
    """
    h = 2.0**table.shift / 2.0 ** (2 * BITS) / table.scale
    unit = 2.0**-table.power_bits
    coefficients = (table.degree + 1) / 2 * 2.0 ** (table.power_bits - table.fraction_bits)
    return (h + h**2) * unit + coefficients + table.degree**2 * 4 * h**2 * unit / 2


def numbers(shape: ReciprocalShape, count: int) -> np.ndarray:
    """Scaled numbers over the whole range: random ones, nodes and their neighbours, both ends and below zero."""
    scaled = shape.scale * 2.0 ** (2 * BITS)
    spacing, top = round(shape.spacing * scaled), int(LARGEST * scaled)
    grid = np.arange(0, top + 1, spacing)
    below = [-1, -2, 1 - spacing, -spacing // 2]
    special = [0, 0, 1, *below, top, top - 1, top + spacing - 1, *(grid - 1)[1:], *grid, *(grid + spacing // 2)]
    rest = signed(words_from(count, "q", shape.nodes) % np.uint64(top))
    return np.concatenate([np.array(special, np.int64), rest])


def value_at(table: PolynomialTable, node: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the polynomial of a node says, in floating point."""
    t = (x - (node << table.shift)) / 2.0**table.shift
    powers = t[:, None] ** np.arange(table.degree + 1)
    return np.asarray((table.polynomials[node % table.nodes] * powers).sum(axis=1))


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_look_up_is_within_its_bound_everywhere(parties: int, shape: ReciprocalShape) -> None:
    table = table_of(shape)
    x = numbers(shape, 5_000)
    ran = run_program(program(table), [unsigned(x)], parties, "lookup", parties, shape.degree)
    q = x / (shape.scale * 2.0 ** (2 * BITS))
    error = np.abs(signed(ran.opened()) / 2.0**RESULT_BITS - 1 / (1 + q))
    assert error.max() < shape.error + rounding(table)
    assert ran.layout.rounds == 1
    assert ran.layout.correction_words == len(x) * shape.words


def test_the_node_is_the_one_below_or_above_at_random() -> None:
    """Above with probability the fraction cut off. Lines at few nodes are far enough apart to tell which it was."""
    shape = ReciprocalShape(degree=1, nodes=16, spacing=1 / 6, scale=12)
    table = table_of(shape)
    x = numbers(shape, 20_000)
    x = x[x >= 0]
    result = signed(run_program(program(table), [unsigned(x)], 3, "node").opened()) / 2.0**RESULT_BITS
    below = x >> table.shift
    cut = (x - (below << table.shift)) / 2.0**table.shift
    at_below, at_above = value_at(table, below, x), value_at(table, below + 1, x)
    is_below, is_above = (np.abs(result - at) < rounding(table) for at in (at_below, at_above))
    assert np.all(is_below | is_above)
    distinct = (np.abs(at_below - at_above) > 3 * rounding(table)) & (cut > 0) & (cut < 1)
    assert distinct.sum() > 15_000
    excess = (is_above - cut)[distinct].sum() / np.sqrt((cut * (1 - cut))[distinct].sum())
    assert abs(excess) < stats.norm.isf(SIGNIFICANCE / 2)


@pytest.mark.parametrize("degree", range(1, 6))
@pytest.mark.parametrize("spacing", [Fraction(1, 2), Fraction(1, 6), Fraction(2, 15)])
def test_polynomials_are_as_exact_as_proven_and_no_better(degree: int, spacing: Fraction) -> None:
    """In rational arithmetic, at every node, over [-1, 1] node distances; from 0 on at the node below zero."""
    shape = ReciprocalShape(degree, 16, float(spacing), 15)
    table = table_of(shape)
    worst = 0.0
    for node, polynomial in enumerate(table.polynomials):
        place = -1 if node == table.nodes - 1 else node
        exact = [Fraction(float(coefficient)) for coefficient in polynomial]
        for step in range(0 if place < 0 else -100, 101):
            t = Fraction(step, 100)
            value = sum(coefficient * t**power for power, coefficient in enumerate(exact))
            worst = max(worst, float(abs(value - 1 / (1 + (place + t) * spacing))))
    assert worst < shape.error * (1 + 1e-6) + 1e-15
    assert worst > shape.error / 3


def test_the_reciprocal_of_one_is_as_exact_as_coefficients_are() -> None:
    table = table_of(SHAPES[2])
    ran = run_program(program(table), [unsigned(np.zeros(500))], 3, "one")
    off = np.abs(signed(ran.opened()) / 2.0**RESULT_BITS - table.polynomials[0, 0])
    assert off.max() < rounding(table)


@pytest.mark.parametrize("accuracy", [11, 15, 19, 23, 27])
@pytest.mark.parametrize("largest", [1e-6, 0.1, 1.0, 1.99, 2.0, 2.001, 3.0, 50.0, 2000.0])
def test_shapes_reach_past_the_largest_number_and_below_zero(accuracy: int, largest: float) -> None:
    least = 2.0 ** -((accuracy - 3) // 2)
    shape = reciprocal_shape(accuracy, largest, least)
    assert shape.error < 2.0**-accuracy
    assert shape.spacing >= least
    # A number may be one distance past the largest, by rounding, and then be rounded up to a node; the last is for -1.
    assert np.floor(largest / shape.spacing + 1 - 1e-9) + 1 <= shape.nodes - 2
    assert shape.nodes & (shape.nodes - 1) == 0
    shift = np.log2(shape.spacing * shape.scale)
    assert shift == round(shift)


def test_shapes_deal_few_words() -> None:
    """The table of the default federation, 2 parties of norm 1: lines took 2,048 words for an error of 2^-16."""
    shape = reciprocal_shape(19, 2.0006, 2.0**-8)
    assert (shape.degree, shape.nodes, shape.words) == (5, 16, 96)
    assert shape.error < 2.0**-20
