"""A public function of a secret number, from a dealt table: piecewise polynomial, with no round beyond masking the
number.

    x is masked: delta = x + lambda, lambda uniform. The table has 2^k nodes, 2^s apart; at each a polynomial
    c_0 + c_1 t + ... + c_d t^d of t = (x - node) / 2^s.
    1. j = (delta >> s) mod 2^k and y = (delta mod 2^s) / 2^s are public. With z = (lambda mod 2^s) / 2^s, t = y - z.
    2. dealt: for every j the polynomial of node (j - (lambda >> s)) mod 2^k, as one of y: e_i = sum over m >= i of
       c_m binomial(m, i) (-z)^(m-i)
    3. [f(x)] = sum over i of y^i [e_i]_j

(delta >> s) - (lambda >> s) is x >> s, or one more, with probability given by the bits shifted out: the node is x
rounded down or up at random, and t lies in (-1, 1). The last node stands for -1, so that a number just below zero is
found too. y and z are taken with so many bits, their difference being t rounded down or up at random, and powers of y
are rounded to as many. Since they are public, the polynomial costs no round and no truncation, whatever its degree.

Security: only delta is opened, which is uniform. The tables are shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import acosh, ceil, comb, cosh, inf, log2

import numpy as np
from numpy.polynomial import chebyshev

from hiddenarm.mpc.run import Run
from hiddenarm.mpc.tracing import pick_one
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Floats, Words, low_bits

_DEGREES = range(1, 6)
_SCALES = range(8, 16)
"""Factors that bring nodes to distances between two powers of two."""


@dataclass(frozen=True, slots=True, eq=False)
class PolynomialTable:
    """A polynomial at each node, of the distance to it in units of the distance of nodes: [nodes, degree + 1].

    The number that is looked up is `scale` times the argument, so that nodes lie 2^shift apart. `power_bits` of the
    distance are used; the result has `fraction_bits`.
    """

    polynomials: Floats
    scale: int
    shift: int
    power_bits: int
    fraction_bits: int

    @property
    def nodes(self) -> int:
        return len(self.polynomials)

    @property
    def index_bits(self) -> int:
        return (self.nodes - 1).bit_length()

    @property
    def degree(self) -> int:
        return int(self.polynomials.shape[1]) - 1


@dataclass(frozen=True, slots=True)
class ReciprocalShape:
    """How 1 / (1 + q), q in [0, largest], is cut into polynomials."""

    degree: int
    nodes: int
    spacing: float
    """The distance of nodes: a power of two over `scale`."""
    scale: int

    @property
    def words(self) -> int:
        """What is dealt for one look-up."""
        return self.nodes * (self.degree + 1)

    @property
    def error(self) -> float:
        """How far polynomials are from the function. Let h be the distance of nodes and p the polynomial that equals
        1 / (c + t), c = 1 + node, at the n = degree + 1 Chebyshev nodes of [-h, h]. 1 - (c + t) p(t) has degree n, is
        zero at these, and 1 at t = -c: it is T_n(t / h) / T_n(-c / h), with |T_n| <= 1 on [-1, 1]. So the error is at
        most 1 / ((c - h) T_n(c / h)), and largest at c = 1."""
        if self.spacing >= 1:
            return inf
        return 1 / ((1 - self.spacing) * cosh((self.degree + 1) * acosh(1 / self.spacing)))


@lru_cache(maxsize=256)
def reciprocal_shape(accuracy_bits: int, largest: float, least_spacing: float) -> ReciprocalShape:
    """The shape of fewest words whose error is below 2^-accuracy_bits. Nodes lie at least `least_spacing` apart."""
    shapes = (
        ReciprocalShape(degree, 1 << index_bits, *spacing)
        for index_bits in range(2, 5 + max(0, ceil(log2(largest / least_spacing))))
        for spacing in (_spacing(1 << index_bits, largest, least_spacing),)
        for degree in _DEGREES
    )
    return min(
        (shape for shape in shapes if shape.error < 2.0**-accuracy_bits),
        key=lambda shape: (shape.words, shape.error),
    )


def _spacing(nodes: int, largest: float, least: float) -> tuple[float, int]:
    """The smallest distance with which so many nodes reach from -1 to one past the largest number; and the scale."""
    wanted = max(least, largest / (nodes - 3))
    power = 2.0 ** ceil(log2(wanted * _SCALES[0]))
    return min((power / scale, scale) for scale in _SCALES if power / scale >= wanted)


def reciprocal_table(
    shape: ReciprocalShape, argument_bits: int, power_bits: int, fraction_bits: int
) -> PolynomialTable:
    """1 / (1 + q) for q of so many fractional bits; the result has `fraction_bits`.

    Beside the error of its shape a look-up is off by less than (h + h^2) 2^-power_bits for the distance, whose mean is
    zero but for its square, and by (degree + 1) 2^(power_bits - fraction_bits) / 2 for the coefficients.
    """
    nodes = np.arange(shape.nodes, dtype=np.float64)
    nodes[-1] = -1.0
    points = chebyshev.chebpts1(shape.degree + 1)
    polynomials = []
    for node in nodes:
        # The node below zero is used from itself to zero, so that its polynomial need not come near q = -1.
        to_points = (points + 1) / 2 if node < 0 else points
        fitted = np.polynomial.Polynomial.fit(
            to_points, 1 / (1 + (node + to_points) * shape.spacing), shape.degree, domain=[-1, 1], window=[-1, 1]
        )
        polynomials.append(fitted.coef)
    shift = argument_bits + round(log2(shape.spacing * shape.scale))
    return PolynomialTable(np.array(polynomials), shape.scale, shift, min(power_bits, shift), fraction_bits)


def lookup(
    run: Run,
    table: PolynomialTable,
    number: Masked,
    label: str = "a function",
    factors: Callable[[], Floats] | None = None,
) -> Shared:
    """The table's function of a masked number, the argument times `table.scale`; no round. The dealer may multiply it
    by factors of its own, one for each number, which stay secret."""
    (part,) = number.parts
    shift, size = np.uint64(table.shift), (*number.shape, table.nodes, table.degree + 1)
    dealt = run.deal(
        size,
        lambda: _rotated(table, part.mask, None if factors is None else factors()),
        purpose="tables of polynomials, rotated by the mask",
    )
    run.note(f"{label}: look up a shared polynomial at the opened word")
    if number.delta is None:
        return Shared(number.shape, None)
    coefficients = pick_one(dealt, low_bits(number.delta >> shift, table.index_bits))
    distance = _distance(table, number.delta)
    total = coefficients.take(np.array(0), axis=-1)
    power = distance
    for place in range(1, table.degree + 1):
        total = total + power * coefficients.take(np.array(place), axis=-1)
        if place < table.degree:
            power = (power * distance + np.uint64(1 << (table.power_bits - 1))) >> np.uint64(table.power_bits)
    return Shared(number.shape, total)


def _distance(table: PolynomialTable, words: Words) -> Words:
    """y, or z: the words modulo 2^shift, with so many bits as powers have."""
    return low_bits(words, table.shift) >> np.uint64(table.shift - table.power_bits)


def _rotated(table: PolynomialTable, mask: Words, factors: Floats | None) -> Words:
    """The dealer's tables: e_0 at all fractional bits, the others at as many less as powers of y have."""
    rho = low_bits(mask >> np.uint64(table.shift), table.index_bits)[..., None]
    node = low_bits(np.arange(table.nodes, dtype=np.uint64) - rho, table.index_bits)
    of_node = table.polynomials[node]
    if factors is not None:
        of_node = of_node * factors[..., None, None]
    z = _distance(table, mask)[..., None] / 2.0**table.power_bits
    words = np.empty((*node.shape, table.degree + 1), np.uint64)
    for i in range(table.degree + 1):
        e_i = np.zeros_like(z)
        for m in range(table.degree, i - 1, -1):
            e_i = e_i * -z + of_node[..., m] * comb(m, i)
        bits = table.fraction_bits - (table.power_bits if i else 0)
        words[..., i] = np.rint(e_i * 2.0**bits).astype(np.int64).view(np.uint64)
    return words
