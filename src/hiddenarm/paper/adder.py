"""Sums of binary-shared words, modulo 2^64, in a number of rounds logarithmic in their length and in their number.

More than two summands: three become two by a carry-save adder, all groups of three at once, one round a level:
    a + b + c = (a xor b xor c) + 2 maj(a, b, c),        maj(a, b, c) = a xor ((a xor b) and (a xor c))
Two summands: a parallel-prefix adder (Kogge and Stone 1973):
    1. g = a and b,  p = a xor b                          bit i makes a carry; it passes one on
    2. for k = 1, 2, 4, ..., 32:   g <- g xor (p and g << k),   p <- p and p << k        both at once
    3. a + b = a xor b xor (g << 1)
Seven rounds for 64 bits: one and log2 64.

Security: that of AND, `binary.both`; nothing else is opened.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from hiddenarm.mpc.parallel import in_parallel
from hiddenarm.mpc.run import Openings, Run
from hiddenarm.paper.binary import BinaryLater, BinaryShared, both

_SHIFTS = (1, 2, 4, 8, 16, 32)


def add_all(run: Run, summands: list[BinaryShared]) -> BinaryLater:
    """The sum of two or more words."""
    while len(summands) > 2:
        threes, rest = len(summands) // 3, len(summands) % 3
        groups = [summands[3 * group : 3 * group + 3] for group in range(threes)]
        pairs = yield from in_parallel(*(_carry_save(run, *group) for group in groups))
        summands = [word for pair in pairs for word in pair] + summands[len(summands) - rest :]
    return (yield from add(run, summands[0], summands[1]))


def add(run: Run, a: BinaryShared, b: BinaryShared) -> BinaryLater:
    """The sum of two words. Seven rounds."""
    half = a ^ b
    generate = yield from both(run, a, b)
    propagate = half
    for shift in _SHIFTS[:-1]:
        carried, propagate = yield from in_parallel(
            both(run, propagate, generate << shift), both(run, propagate, propagate << shift)
        )
        generate = generate ^ carried
    generate = generate ^ (yield from both(run, propagate, generate << _SHIFTS[-1]))
    return half ^ (generate << 1)


def _carry_save(
    run: Run, a: BinaryShared, b: BinaryShared, c: BinaryShared
) -> Generator[Openings, tuple[Any, ...], tuple[BinaryShared, BinaryShared]]:
    differ = yield from both(run, a ^ b, a ^ c)
    return a ^ b ^ c, (a ^ differ) << 1
