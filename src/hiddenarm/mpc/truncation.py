"""Truncation by m bits without failures, for any number of parties (Escudero et al., CRYPTO 2020).

    dealt: a uniform word r, r' = r >> m, beta = msb(r)
    1. open c = z + 2^62 + r                                  (1 round, one word per entry)
    2. gamma = msb(c);  b = beta (1 - gamma)                  (whether z + 2^62 + r overflowed 64 bits)
    3. z >> m = (c >> m) - r' + b 2^(64-m) - 2^(62-m)

Z = z + 2^62 is below 2^63. So Z + r can overflow only if beta = 1, and then it did exactly if c is below 2^63. For
|z| < 2^62 the result is z / 2^m rounded down or up, with probability given by the part cut off: unbiased, off by less
than one unit, and never wrong by a wrap.

b is linear in beta once gamma is public, so step 3 reads: a public word, minus r', minus s 2^(64-m) beta with the
public s = gamma - 1, which is -1 or 0. That is a *masked* value with a mask of two parts. The result can be multiplied
at once, without a round to mask it. Of beta 2^(64-m), and of products with it, only the top m bits are dealt.

Security: r is uniform and new, so c is uniform whatever z is. The low m bits of c, with which rounding is decided, are
public: whoever knows the part of z that is cut off knows which way it was rounded. No secret rounding is claimed.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hiddenarm.mpc.masking import MASKED
from hiddenarm.mpc.run import Opening, Run
from hiddenarm.mpc.tracing import split_truncated
from hiddenarm.mpc.values import Masked, MaskPart, Shared
from hiddenarm.ring.words import Words

SIGN_SHIFT = np.uint64(63)
MAGNITUDE_BITS = 62
"""Truncated values must be below 2^62 in magnitude: this is the budget of fractional plus integer bits."""


def truncate(run: Run, value: Shared, bits: int, label: str = "a value") -> Opening[Masked]:
    """Divide by 2^bits; the result is a `Masked`."""
    shift = np.uint64(bits)
    random = run.random(value.shape)
    purpose = "shifted masks of what is rounded"
    low = MaskPart(run.deal(value.shape, lambda: random >> shift, purpose=purpose))
    overflow = _deal_overflow(run, random, value.shape, bits, purpose)
    outgoing = None
    if value.share is not None:
        outgoing = value.share + random
        if run.adds_constants:
            outgoing = outgoing + np.uint64(1 << MAGNITUDE_BITS)

    def finish(opened: Words | None) -> Masked:
        if opened is None:
            return Masked(value.shape, None, (low, MaskPart(overflow, signed=True, low_zeros=64 - bits)))
        delta, sign = split_truncated(opened, bits)
        return Masked(value.shape, delta, (low, MaskPart(overflow, signed=True, sign=sign, low_zeros=64 - bits)))

    return Opening(
        value.shape,
        outgoing,
        finish,
        meaning=f"{label} + mask, to divide by 2^{bits}",
        why=MASKED,
    )


def _deal_overflow(run: Run, random: Words, shape: tuple[int, ...], bits: int, purpose: str) -> Words:
    """beta 2^(64-m): its top m bits, and at least one, that of zeros."""
    kept, weight = max(1, bits), np.uint64((64 - bits) % 64)

    def make() -> Words:
        return (random >> SIGN_SHIFT) << weight if bits else np.zeros_like(random)

    words = run.deal_top_bits(prod(shape), kept, make, purpose=purpose)
    return words.reshape(*run.batch, *shape)
