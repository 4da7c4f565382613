"""Division by a public power of two through the number of wraps (the paper's Algorithm 3), with eta_xr = 0.

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
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.tracing import as_cells, as_words
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.spread import all_drawn, draw, own_of, show
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
