"""Comparison: whether a shared number is at least zero, as a shared bit.

    1. <x> from [x]          2. its highest bit, by itself          3. from binary to additive;   [x >= 0] = 1 - [msb]

Rounds: one to share the shares, those of the adder, one to come back. Exact for every x in [-2^63, 2^63).
Security: that of the conversions; the bit stays secret.
"""

from __future__ import annotations

from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.conversion import bit_to_arithmetic, to_binary, top_bit
from hiddenarm.paper.sharing import minus, plus


def at_least_zero(run: Run, parties: int, value: Shared) -> SharedLater:
    """1 where the value, as a signed number, is not negative, else 0."""
    binary = yield from to_binary(run, parties, value)
    negative = yield from bit_to_arithmetic(run, top_bit(binary))
    return plus(run, minus(negative), 1)
