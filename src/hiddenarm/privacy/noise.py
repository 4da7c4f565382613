"""Gaussian noise as integers, from uniform words: exact enough that differential privacy can be claimed for it.

A sample of deviation s is a number with digits in base 4 that are themselves samples of a discrete Gaussian,

    sum over j < n of 4^j D_j,    P(D_j = d) proportional to exp(-d^2 / (2 w^2)),    w = s sqrt(15 / (16^n - 1)),

with the most digits n for which the width w is 8 or more; it is then below 33. The variance is s^2. A digit of width 8
or more smooths the grid of the next one: two digits differ from the discrete Gaussian of their variance by less than
1e-15 in the logarithm of the probability, within 7 deviations (a width of 4 by 1e-8, base 16 by 1e-2). So every bit of
the sample is noise, the lowest one too.

A digit is read off one word by a table of 63-bit cumulative probabilities. The table is computed with 60 decimals and
rounded once; what it leaves out, and rounding, change the law of a digit by less than 2^-54 in total variation.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from math import sqrt

import numpy as np

from hiddenarm.errors import ConfigError
from hiddenarm.ring.words import Words

BASE = 4
LEAST_WIDTH = 8.0
"""Of a digit: less would not smooth the next one's grid. The largest is little more than BASE times as much."""
LARGEST_DEVIATION = 2.0**57
"""A sample stays below 2^62 within 32 deviations, further than any digit reaches."""
LARGEST_SAMPLE = 12.5
"""No sample is larger than this times the deviation: a digit ends where its chance is below 2^-64 of that of 0, at 9.5
widths, and n digits of width w reach 9.5 w (4^n - 1) / 3, where the deviation is w sqrt((16^n - 1) / 15)."""
_COIN_BITS = 63
_DECIMALS = 60
_NEGLIGIBLE = Decimal(2) ** -(_COIN_BITS + 1)
"""Of the weight of 0: digits less likely than that round to nothing in the table."""


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Integer noise of this deviation; a sample takes `words` uniform words."""

    deviation: float

    def __post_init__(self) -> None:
        if not LEAST_WIDTH <= self.deviation <= LARGEST_DEVIATION:
            raise ConfigError(
                f"integer noise has a deviation of {LEAST_WIDTH:g} to {LARGEST_DEVIATION:g} units; got "
                f"{self.deviation:g}"
            )

    @property
    def words(self) -> int:
        """Uniform words that a sample takes: its digits."""
        digits = 1
        while self._width_of(digits + 1) >= LEAST_WIDTH:
            digits += 1
        return digits

    @property
    def width(self) -> float:
        """Of every digit."""
        return self._width_of(self.words)

    def sample(self, words: Words) -> Words:
        """The samples [...] of uniform words [..., self.words], as words of the ring."""
        table, least = digit_table(self.width)
        samples = np.zeros(words.shape[:-1], np.int64)
        for place in reversed(range(self.words)):
            digit = np.searchsorted(table, words[..., place] >> np.uint64(1), side="right")
            samples = samples * BASE + digit + least
        return samples.view(np.uint64)

    def _width_of(self, digits: int) -> float:
        return self.deviation * sqrt((BASE**2 - 1) / (BASE ** (2 * digits) - 1))


@lru_cache(maxsize=32)
def digit_table(width: float) -> tuple[Words, int]:
    """Upper ends of the intervals of 63-bit words that stand for the digits, in rising order, without the last end,
    which is 2^63; and the least digit."""
    with localcontext() as context:
        context.prec = _DECIMALS
        weights = _weights(Decimal(width))
        most = len(weights) - 1
        both = [*reversed(weights[1:]), *weights]
        total, reached, ends = sum(both), Decimal(0), []
        for weight in both[:-1]:
            reached += weight
            ends.append(int((reached / total * 2**_COIN_BITS).to_integral_value()))
    return np.array(ends, np.uint64), -most


def _weights(width: Decimal) -> list[Decimal]:
    """exp(-d^2 / (2 w^2)) of d = 0, 1, ..., as far as it counts."""
    weights = [Decimal(1)]
    while weights[-1] > _NEGLIGIBLE:
        weights.append((-(Decimal(len(weights)) ** 2) / (2 * width**2)).exp())
    return weights
