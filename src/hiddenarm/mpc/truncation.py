"""Truncation by m bits without failures, for any number of parties (Escudero et al., CRYPTO 2020).

    dealt: a uniform word r, r' = (r mod 2^63) >> m, beta = msb(r)
    1. open c = z + 2^62 + r                                  (1 round, one word per entry)
    2. gamma = msb(c);  b = gamma xor beta                    (whether z + 2^62 + (r mod 2^63) overflowed 63 bits)
    3. z >> m = ((c mod 2^63) >> m) - r' + b 2^(63-m) - 2^(62-m)

For |z| < 2^62 the result is z / 2^m rounded down or up, with probability given by the part cut off: unbiased, off by
less than one unit, and never wrong by a wrap.

b is linear in beta once gamma is public, so step 3 reads: a public word, minus r', minus s 2^(63-m) beta with the
public sign s = -1 if gamma = 0, +1 if gamma = 1. That is a *masked* value with a mask of two parts. The result can be
multiplied at once, without a round to mask it.

Security: r is uniform and new, so c is uniform whatever z is. The low m bits of c, with which rounding is decided, are
public: whoever knows the part of z that is cut off knows which way it was rounded. No secret rounding is claimed.
"""

from __future__ import annotations

import numpy as np

from hiddenarm.mpc.masking import MASKED
from hiddenarm.mpc.run import Opening, Run
from hiddenarm.mpc.tracing import split_truncated
from hiddenarm.mpc.values import Masked, MaskPart, Shared
from hiddenarm.ring.words import Words

SIGN_SHIFT = np.uint64(63)
LOW_63 = np.uint64((1 << 63) - 1)
MAGNITUDE_BITS = 62
"""Truncated values must be below 2^62 in magnitude: this is the budget of fractional plus integer bits."""


def truncate(run: Run, value: Shared, bits: int, label: str = "a value") -> Opening[Masked]:
    """Divide by 2^bits; the result is a `Masked`."""
    shift = np.uint64(bits)
    weight = np.uint64(63 - bits)
    random = run.random(value.shape)
    purpose = "shifted masks of what is rounded"
    low = MaskPart(run.deal(value.shape, lambda: (random & LOW_63) >> shift, purpose=purpose))
    overflow_mask = run.deal(value.shape, lambda: (random >> SIGN_SHIFT) << weight, purpose=purpose)
    outgoing = None
    if value.share is not None:
        outgoing = value.share + random
        if run.adds_constants:
            outgoing = outgoing + np.uint64(1 << MAGNITUDE_BITS)

    def finish(opened: Words | None) -> Masked:
        if opened is None:
            return Masked(value.shape, None, (low, MaskPart(overflow_mask, signed=True, low_zeros=63 - bits)))
        delta, sign = split_truncated(opened, bits)
        overflow = MaskPart(overflow_mask, signed=True, sign=sign, low_zeros=63 - bits)
        return Masked(value.shape, delta, (low, overflow))

    return Opening(
        value.shape,
        outgoing,
        finish,
        meaning=f"{label} + mask, to divide by 2^{bits}",
        why=MASKED,
    )
