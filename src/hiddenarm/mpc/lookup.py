"""A public function of a secret number, from a dealt table: piecewise linear, with no round beyond masking the number.

    x is masked: delta = x + lambda, lambda uniform. The table has 2^k nodes, 2^shift apart, a line a + b x at each.
    dealt: for every j the line of node (j - rho) mod 2^k, where rho = lambda >> shift: [a - lambda b] and [b]
    1. j = (delta >> shift) mod 2^k is public;  [f(x)] = [a - lambda b]_j + delta [b]_j

(delta >> shift) - (lambda >> shift) is x >> shift, or one more, with probability given by the bits shifted out: the
node is x rounded down or up at random. The lines are fitted for that. The last node stands for -1, so that a number
just below zero is found too.

Security: only delta is opened, which is uniform. The tables are shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiddenarm.mpc.run import Run
from hiddenarm.mpc.tracing import pick_one
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words, low_bits


@dataclass(frozen=True, slots=True)
class LineTable:
    """A line at each node: value = intercept + slope * x in the ring; nodes lie 2^shift apart."""

    intercepts: Words
    slopes: Words
    shift: int

    @property
    def index_bits(self) -> int:
        return (len(self.slopes) - 1).bit_length()


def reciprocal_table(node_bits: int, largest: float, fraction_bits: int) -> LineTable:
    """Lines for 1 / (1 + q), q in [0, largest] at 2L bits; the result has 3L bits.

    The line at node n is the tangent, raised by h^2 / (6 (1 + n)^3), h the distance of nodes: that is its mean distance
    from the function when the node is chosen at random as above. The error of one look-up is below h^2, its mean below
    h^2 / 5 (below h^2 / 6 from the second node on: the first is not raised, so that it is exact at 0).
    """
    spacing = 2.0**-node_bits
    size = 1 << (int(np.ceil(largest / spacing)) + 4 - 1).bit_length()
    nodes = np.arange(size, dtype=np.int64)
    nodes[-1] = -1
    at = 1.0 + nodes * spacing
    slopes = [round(-(2.0**fraction_bits) / d**2) for d in at]
    raised = [1 / d + (spacing**2 / (6 * d**3) if n > 0 else 0.0) for n, d in zip(nodes, at, strict=True)]
    node_unit = 2 * fraction_bits - node_bits
    intercepts = [
        round(value * 2.0**53) * 2 ** (3 * fraction_bits) // 2**53 - slope * (int(node) << node_unit)
        for value, slope, node in zip(raised, slopes, nodes, strict=True)
    ]
    return LineTable(_ring(intercepts), _ring(slopes), node_unit)


def lookup(run: Run, table: LineTable, number: Masked, label: str = "a function") -> Shared:
    """The table's function of a masked number; no round."""
    (part,) = number.parts
    size = len(table.slopes)
    shift = np.uint64(table.shift)

    def rotated() -> Words:
        rho = low_bits(part.mask >> shift, table.index_bits)[..., None]
        node = low_bits(np.arange(size, dtype=np.uint64) - rho, table.index_bits)
        slopes = table.slopes[node]
        return np.stack([table.intercepts[node] - part.mask[..., None] * slopes, slopes], axis=-1)

    dealt = run.deal((*number.shape, size, 2), rotated, purpose="tables of lines, rotated by the mask")
    run.note(f"{label}: look up a shared line at the opened word")
    if number.delta is None:
        return Shared(number.shape, None)
    line = pick_one(dealt, low_bits(number.delta >> shift, table.index_bits))
    intercept, slope = (line.take(np.array(part), axis=-1) for part in (0, 1))
    return Shared(number.shape, intercept + number.delta * slope)


def _ring(integers: list[int]) -> Words:
    return np.array([value % 2**64 for value in integers], dtype=np.uint64)
