"""Fixed-point numbers: division by 2^L, products, and the reciprocal.

Division
--------
By a public power of two, through the number of wraps (the paper's Algorithm 3), with eta_xr = 0.

Words are signed here: s(w) in [-2^63, 2^63) is the number that a word w stands for, Q = 2^64. A sharing of x wraps
theta_x times: sum of s([x]_p) = x + theta_x Q.

    dealt: r = sum of r_p, with r_p drawn by party p, and [theta_r], the number of wraps of these shares
    1. z_p = [x]_p + r_p wraps beta_p times: s([x]_p) + s(r_p) = s(z_p) + beta_p Q, with beta_p in {-1, 0, 1}
    2. show all z_p (1 round, a word per entry);  theta_z is the number of wraps of the shares z_p of z
    3. [theta_x] = theta_z + [beta] - [theta_r] - [eta],  where x + r = s(z) + eta Q.  eta is taken to be 0.
    4. [x / 2^m]_p = s([x]_p) / 2^m, rounded towards zero, minus [theta_x]_p 2^(64-m)

Each of the N parties rounds its own share, so the result is off by less than N units. Rounding towards zero is what a
machine's division of integers does, and as a share is as often negative as not, it has no bias. With two parties zero
stays zero.

*It can fail.* eta is not 0 when x + r leaves the signed range, which it does for |x| of the 2^64 values of r: with
probability |x| / 2^64 the result is wrong by 2^(64-m), whatever N is. For a product of two numbers with L fractional
bits this is 2^(2L-64) times its magnitude, for every single value that is divided.

Security: r_p is uniform, new and known to party p only, so the words z_p are uniform and independent whatever the
shares of x are. theta_r is a secret sharing.

Products
--------
A Beaver product, then a public division by 2^L that takes the factor's scale away again.

Two rounds: this is the paper's multiplication. A factor that is a bit has no fractional bits and needs no division; for
that, `arithmetic.product` alone is enough.

The reciprocal
--------------
Of numbers in [1, 10], by Newton's iterations from an exponential start.

    1. x_0 = 3 exp(1/2 - x) + 0.003                  with exp(y) = (1 + y / 2^8)^(2^8): a division and eight squares
    2. x_{t+1} = 2 x_t - x x_t^2                     a square and a product each

If x x_t = 1 - e, then x x_{t+1} = 1 - e^2. The start has |e| < 1 on the whole range. At x = 1
e = -0.82, and there e is 0.2 after three iterations and below 10^-10 after seven. Near x = 10 the start is 0.003 and
seven iterations leave 2 % to go. From the first iteration on x_t lies below 1/x.

17 rounds for the start and four for every iteration.

Security: that of Beaver products and of division; nothing else is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.tracing import as_cells, as_words
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.arithmetic import (
    all_drawn,
    draw,
    entry_by_entry,
    minus,
    own_of,
    plus,
    product,
    product_with_itself,
    show,
)
from hiddenarm.ring.words import Words

_SIGN_SHIFT = np.uint64(63)
_SIGN_BIT = np.uint64(1 << 63)


def divide(run: Run, parties: int, value: Shared, bits: int) -> SharedLater:
    """Divide by 2^bits. One round; wrong by 2^(64 - bits) with probability |x| / 2^64."""
    shape = value.shape
    drawn = draw(run, parties, shape)
    wraps_of_r = run.deal(shape, lambda: _wraps(all_drawn(drawn)))
    shown = None if value.share is None else value.share + own_of(run, drawn)
    (everybody,) = yield (show(run, parties, shape, shown),)
    if value.share is None or shown is None:
        return Shared(shape, None)
    wraps = _wraps_of_sum(value.share, own_of(run, drawn), shown) - wraps_of_r
    if run.adds_constants:
        wraps = wraps + _public_wraps(everybody)
    return Shared(shape, rounded_quotient(value.share, bits) - (wraps << np.uint64(64 - bits)))


def rounded_quotient(words: Words, bits: int) -> Words:
    """Signed words divided by 2^bits, rounded towards zero.

    Adding 2^bits - 1 to negative words makes rounding down the same as rounding towards zero. Rounding down is a shift
    of the word plus 2^63, which is not negative.
    """
    towards_zero = words + (words >> _SIGN_SHIFT) * np.uint64((1 << bits) - 1)
    return ((towards_zero + _SIGN_BIT) >> np.uint64(bits)) + np.uint64(2**64 - (1 << 63 - bits))


def _sign(words: Words) -> Words:
    return words >> _SIGN_SHIFT


def _wraps(shares: list[Words]) -> Words:
    """At the dealer: how often signed words wrap when they are added up.

    s(w) = w - Q msb(w), so the wraps are the carries of the unsigned sum, minus the signs of the words, plus the sign
    of the sum.
    """
    total, wraps = shares[0], np.zeros_like(shares[0])
    for share in shares[1:]:
        total = total + share
        wraps = wraps + (total < share).astype(np.uint64)
    return wraps + _sign(total) - reduce(np.add, [_sign(share) for share in shares])


def _wraps_of_sum(x: Words, r: Words, z: Words) -> Words:
    """At a party: how often x + r = z wraps."""
    return _carry(z, x) + _sign(z) - _sign(x) - _sign(r)


def _public_wraps(shares: list[Words]) -> Words:
    """`_wraps` at a party, of words that everybody has seen."""
    total, signs = shares[0], _sign(shares[0])
    carries: Words | None = None
    for share in shares[1:]:
        total = total + share
        carry = _carry(total, share)
        carries = carry if carries is None else carries + carry
        signs = signs + _sign(share)
    assert carries is not None
    return carries + _sign(total) - signs


def _carry(total: Words, summand: Words) -> Words:
    """Whether an unsigned sum is smaller than one of its summands: 1 or 0."""
    return as_words(as_cells(total) < as_cells(summand))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Numbers with `bits` fractional bits, shared among so many parties."""

    parties: int
    bits: int

    def product(self, run: Run, spec: str, x: Shared, y: Shared) -> SharedLater:
        """A bilinear form. Two rounds."""
        wide = yield from product(run, spec, x, y)
        return (yield from self.divide(run, wide, self.bits))

    def product_with_itself(self, run: Run, spec: str, x: Shared) -> SharedLater:
        """A bilinear form of a value with itself. Two rounds."""
        wide = yield from product_with_itself(run, spec, x)
        return (yield from self.divide(run, wide, self.bits))

    def square(self, run: Run, x: Shared) -> SharedLater:
        """Every entry times itself. Two rounds."""
        return self.product_with_itself(run, entry_by_entry(x.shape), x)

    def divide(self, run: Run, x: Shared, bits: int) -> SharedLater:
        """Divide by 2^bits. One round."""
        return divide(run, self.parties, x, bits)

    def plus(self, run: Run, x: Shared, number: float) -> Shared:
        """Add a public real number. No round."""
        return plus(run, x, round(number * 2**self.bits))


SQUARES = 8
"""The exponential is the limit of (1 + y / n)^n; n is two to this power."""


def exponential(run: Run, numbers: FixedPoint, y: Shared) -> SharedLater:
    """exp(y), off by a factor of about 1 - y^2 / 512."""
    power = yield from numbers.divide(run, y, SQUARES)
    power = numbers.plus(run, power, 1.0)
    for _ in range(SQUARES):
        power = yield from numbers.square(run, power)
    return power


def reciprocal(run: Run, numbers: FixedPoint, x: Shared, iterations: int) -> SharedLater:
    """1 / x for every entry."""
    start = yield from exponential(run, numbers, numbers.plus(run, minus(x), 0.5))
    found = numbers.plus(run, start.times(3), 0.003)
    for _ in range(iterations):
        squared = yield from numbers.square(run, found)
        found = found.times(2) - (yield from numbers.product(run, entry_by_entry(x.shape), x, squared))
    return found
