"""The square root of a secret number that is not negative, from dealt tables at several scales.

A root is steep near zero: nodes at one distance are too many, or too far apart. So the number q is looked up in several
tables (`lookup`), each of which has nodes that lie nearer by a public factor, and covers as much less.

    1. mask q                                            1 round; all tables are looked up at the same opened word
    2. [g_k], the value by table k, zero at its first nodes, which the next table has; and [s_k], one at these nodes
    3. mask all but g_1                                  1 round, if there are several tables
    4. root = g_1 + s_1 (g_2 + s_2 (g_3 + s_3 g_4))

A node is used up to the distance of two nodes, on both sides, as it is found by rounding down or up at random. Let h be
that distance. The nodes of a table lie at (n + 3/4) h, n = -1, 0, 1, ...: those of n < 1 are the first. So the next
table is asked for numbers below 7/4 h, and each polynomial of this one is for numbers above 3/4 h, where the root is
smooth. Beyond its range a table gives anything, times s = 0. The last table has no first nodes. What is just below
zero, by rounding, is found near its node for n = -1.

Security: only masked words are opened; the tables are shares. The dealer may multiply the root by numbers of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import Polynomial, chebyshev

from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import PolynomialTable, lookup
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.run import Rounds, Run
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import WORD_BITS, Floats

MOST_SCALES = 4
_INDEX_BITS = range(4, 10)
_DEGREES = range(2, 5)
_FIRST = 0.75
"""Where the node 0 of a table lies, in distances of nodes."""
_TESTED = 400
"""Places in the reach of a node at which its error is found."""


@dataclass(frozen=True, slots=True)
class RootShape:
    """So many tables, nodes of each, and degree of their polynomials, for roots of numbers in [0, largest]."""

    largest: float
    scales: int
    index_bits: int
    degree: int

    @property
    def nodes(self) -> int:
        return 1 << self.index_bits

    @property
    def range(self) -> float:
        """The number that is 2^64 in words: with it the last node of the first table is one past the largest."""
        return self.largest * self.nodes / (self.nodes - 2 + _FIRST)

    def spacing(self, scale: int) -> float:
        """The distance of nodes. That of the next table is smaller by half the number of nodes."""
        return self.range / self.nodes / (self.nodes / 2) ** scale

    def shift(self, scale: int) -> int:
        """The same, as a power of two of words."""
        return WORD_BITS - self.index_bits - scale * (self.index_bits - 1)

    @property
    def words(self) -> int:
        """What is dealt for one number: polynomials, and which nodes are the first."""
        return self.scales * self.nodes * (self.degree + 1) + (self.scales - 1) * self.nodes

    @property
    def error(self) -> float:
        """How far polynomials are from the root: a table's worst node is that which comes nearest to zero."""
        inner = _error_at(self.degree, 1) * self.spacing(0) ** 0.5 if self.scales > 1 else 0.0
        last = max(_error_at(self.degree, node) for node in (-1, 0, 1))
        return float(max(inner, last * self.spacing(self.scales - 1) ** 0.5))


@lru_cache(maxsize=64)
def root_shape(largest: float, error: float) -> RootShape | None:
    """The shape of fewest words whose error is at most so large; None if none is known."""
    shapes = (
        RootShape(largest, scales, index_bits, degree)
        for scales in range(1, MOST_SCALES + 1)
        for index_bits in _INDEX_BITS
        for degree in _DEGREES
        if WORD_BITS - index_bits - (scales - 1) * (index_bits - 1) >= 2
    )
    good = [shape for shape in shapes if shape.error <= error]
    return min(good, key=lambda shape: (shape.words, shape.error), default=None)


@dataclass(frozen=True, slots=True, eq=False)
class RootTables:
    """The tables of a shape, times a public factor; results have so many fractional bits."""

    shape: RootShape
    roots: tuple[PolynomialTable, ...]
    first: tuple[PolynomialTable, ...]


def root_tables(shape: RootShape, factor: float, power_bits: int, fraction_bits: int) -> RootTables:
    """The tables, for numbers of which `shape.range` is 2^64. `power_bits` of the distance to a node are used."""
    numbers = np.arange(shape.nodes, dtype=np.float64)
    numbers[-1] = -1.0
    is_first = (numbers < 1).astype(np.float64)
    roots, first = [], []
    for scale in range(shape.scales):
        shift = shape.shift(scale)
        fitted = np.array([_fitted(shape.degree, number) for number in numbers]) * shape.spacing(scale) ** 0.5
        if scale + 1 < shape.scales:
            fitted *= 1 - is_first[:, None]
            first.append(PolynomialTable(is_first[:, None], 1, shift, min(power_bits, shift), 0))
        roots.append(PolynomialTable(fitted * factor, 1, shift, min(power_bits, shift), fraction_bits))
    return RootTables(shape, tuple(roots), tuple(first))


def look_up_root(
    run: Run,
    tables: RootTables,
    number: Shared,
    argument: str = "a number",
    label: str = "root",
    factors: Callable[[], Floats] | None = None,
) -> Rounds[Shared]:
    """The root of each number, of which 2^64 is `tables.shape.range`, times the factor of the tables, and a secret
    factor of the dealer's for each: one round, or two where there are several tables."""
    masked: Masked
    (masked,) = yield (mask(run, number, argument),)
    values, firsts = [], []
    for scale, table in enumerate(tables.roots):
        moved = _less(masked, round(_FIRST * 2**table.shift))
        values.append(lookup(run, table, moved, f"{label}, scale {scale}", factors))
        if scale < len(tables.first):
            firsts.append(lookup(run, tables.first[scale], moved, f"whether scale {scale + 1} has it"))
    if not firsts:
        return values[0]
    opened = yield (
        *(mask(run, value, f"{label}, scale {scale + 1}") for scale, value in enumerate(values[1:])),
        *(mask(run, first, f"whether scale {scale + 1} has it") for scale, first in enumerate(firsts)),
    )
    finer, chosen = opened[: len(firsts)], opened[len(firsts) :]
    total, index = values[0], "abc"[: len(number.shape)]
    for scale, value in enumerate(finer):
        spec = ",".join([index] * (scale + 2)) + f"->{index}"
        total = total + form(
            run, spec, *chosen[: scale + 1], value, label=f"{label} at scale {scale + 1}, if it has it"
        )
    return total


def _less(number: Masked, constant: int) -> Masked:
    """The number less a public constant."""
    delta = None if number.delta is None else number.delta + np.uint64(2**64 - constant)
    return Masked(number.shape, delta, number.parts)


def _reach(node: float) -> tuple[float, float]:
    """The numbers for which a node is used, in distances of nodes, none below zero."""
    return max(0.0, node + _FIRST - 1), node + _FIRST + 1


@lru_cache(maxsize=4096)
def _fitted(degree: int, node: float) -> tuple[float, ...]:
    """The root near a node as a polynomial of the distance to it, both in distances of nodes."""
    low, high = _reach(node)
    places = (low + high) / 2 + (high - low) / 2 * chebyshev.chebpts1(degree + 1)
    at = places - node - _FIRST
    coefficients = Polynomial.fit(at, np.sqrt(places), degree, domain=[-1, 1], window=[-1, 1]).coef
    return tuple(coefficients.tolist())


@lru_cache(maxsize=64)
def _error_at(degree: int, node: float) -> float:
    """The largest error of the polynomial of a node, in roots of the distance of nodes."""
    low, high = _reach(node)
    places = np.concatenate([np.linspace(low, high, _TESTED), low + (high - low) * np.geomspace(1e-6, 1, _TESTED)])
    values = Polynomial(_fitted(degree, node))(places - node - _FIRST)
    return float(np.abs(values - np.sqrt(places)).max())
