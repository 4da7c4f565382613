"""Correlated noise for noisy sums: later noise takes a part of earlier noise back, so that less of it adds up.

Refreshes come in blocks of n. Refresh k of a block has a *leaf* z_k, fresh Gaussian noise of width w_k, and adds

    z_k - sum over j < k of e_kj z_j

to the sums, where fresh noise alone would add z_k. All e are public multiples of 2^-COEFFICIENT_BITS in [0, 1). With E
the lower triangular matrix of ones on its diagonal and -e below it, and C its inverse, what is released of x_1, ...,
x_n, what the rows of each refresh add, is x + E z: as much as C x + z. C is lower triangular with ones on its diagonal
and nothing negative, so leaf k is drawn after everything that it is to hide is fixed.

*Privacy.* Given all that was released before, a row changes x_j of one refresh j, by a vector of length at most 1 in
units of fresh noise, and the leaves that explain the same release by C_kj times that, for k >= j. The likelihood ratio
is that of Gaussian noise moved by sqrt(sum over k of (C_kj / w_k)^2) at most, which is 1 or less for every j by the
choice of the widths: the mechanism is mu-GDP, adaptively, as with fresh noise (Denisov and others 2022 prove the same
for any such C). The next block begins with leaves of its own. A row is part of one block, so there is no horizon: the
last noise of a block simply stays in the sums.

C is near the square root of the matrix of ones: coefficients of (1 - q)^(-1/2), with its columns scaled to length 1,
which is what the widths undo.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Floats

COEFFICIENT_BITS = 10
MOST_LEAVES = 64


@dataclass(frozen=True, eq=False)
class Correlation:
    """Of a block of `leaves` refreshes. Positions in a block are counted from 1."""

    leaves: int
    taken_back: tuple[tuple[int, ...], ...]
    """e_kj in units of 2^-COEFFICIENT_BITS, for j < k."""
    widths: tuple[float, ...]
    """Of the leaves, in units of fresh noise."""
    spreads: tuple[float, ...]
    """The deviation of all noise that the sums have after each refresh of the first block, in the same units."""
    strategy: Floats
    """C: of the leaves that explain a release, how much each moves if what one refresh adds is moved."""
    coupling: float
    """By how much more, in its square, rows of one person in several refreshes can tell than with fresh noise, at most:
    the largest sum of a row of C'C, in units of the leaves."""

    def place(self, refresh: int) -> tuple[int, int]:
        """Block, from 0 on, and position in it, from 1 on, of a refresh, counted from 1."""
        block, position = divmod(refresh - 1, self.leaves)
        return block, position + 1

    def spread(self, refresh: int) -> float:
        """The deviation of all noise that the sums have after a refresh, counted from 1; what blocks before have left
        in them stays."""
        block, position = self.place(refresh)
        return float(np.hypot(np.sqrt(block) * self.spreads[-1], self.spreads[position - 1]))


@lru_cache(maxsize=64)
def correlation(leaves: int) -> Correlation:
    """The noise of a block of so many refreshes."""
    if not 2 <= leaves <= MOST_LEAVES:
        raise ConfigError(f"correlated must be 0, or a block of 2 to {MOST_LEAVES} refreshes; got {leaves}")
    roots = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, leaves))])
    lengths = np.sqrt(np.cumsum(roots**2))[::-1]
    inverse_roots = np.cumprod([1.0, *((2 * k - 3) / (2 * k) for k in range(1, leaves))])
    units = 1 << COEFFICIENT_BITS
    taken_back = tuple(
        tuple(round(-inverse_roots[k - j] * lengths[k] / lengths[j] * units) for j in range(k)) for k in range(leaves)
    )
    added = np.eye(leaves)
    for k, row in enumerate(taken_back):
        added[k, :k] = -np.array(row) / units
    strategy = _inverse(added)
    widths = lengths * np.sqrt(((strategy / lengths[:, None]) ** 2).sum(axis=0).max())
    scaled = strategy / widths[:, None]
    in_sums = np.cumsum(added, axis=0) * widths
    return Correlation(
        leaves,
        taken_back,
        tuple(widths.tolist()),
        tuple(np.sqrt((in_sums**2).sum(axis=1)).tolist()),
        strategy,
        float((scaled.T @ scaled).sum(axis=1).max()),
    )


def _inverse(triangle: Floats) -> Floats:
    """Of a lower triangular matrix with ones on its diagonal and nothing positive below: all terms are positive."""
    inverse = np.eye(len(triangle))
    for k in range(1, len(triangle)):
        inverse[k, :k] = -triangle[k, :k] @ inverse[:k, :k]
    return inverse
