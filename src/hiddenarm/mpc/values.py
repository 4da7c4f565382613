"""The two kinds of secret values a program computes with.

`Shared` [x]: an additive sharing, x = sum over parties of [x]_p.
`Masked` x: every party knows delta; x = delta - lambda, and each party holds an additive share of the mask lambda.

The same program text runs at the parties and at the dealer. At a party the arrays are its shares (and the public
delta), or stand for them while the text is recorded (`tracing`); at the dealer there are no deltas and no shares: a
`Shared` is only a shape, and a `Masked` carries the mask itself. Arrays have leading batch axes (replicates, and at the
dealer steps) before the logical `shape`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from hiddenarm.ring.words import Words

Index = NDArray[np.intp]


class Secret:
    """A value nobody may look at: no truth value, and a representation that shows only its shape."""

    shape: tuple[int, ...]

    def __bool__(self) -> NoReturn:
        raise TypeError("a secret value has no truth value")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"


@dataclass(slots=True, repr=False, eq=False)
class Shared(Secret):
    """An additive sharing; `share` is this party's share, or None at the dealer."""

    shape: tuple[int, ...]
    share: Words | None

    def __add__(self, other: Shared) -> Shared:
        return self._combine(other, add)

    def __sub__(self, other: Shared) -> Shared:
        return self._combine(other, sub)

    def __lshift__(self, bits: int) -> Shared:
        """Multiply by 2^bits."""
        return Shared(self.shape, None if self.share is None else self.share << np.uint64(bits))

    def __rshift__(self, bits: int) -> Shared:
        """Shift every share right: the value divided by 2^bits, modulo 2^(64 - bits), less up to a unit for every party
        but one."""
        return Shared(self.shape, None if self.share is None else self.share >> np.uint64(bits))

    def times(self, factor: int) -> Shared:
        """Multiply by a public number, not negative."""
        return Shared(self.shape, None if self.share is None else self.share * np.uint64(factor))

    def scaled(self, factors: Words) -> Shared:
        """Multiply every entry by a public number of its own."""
        return Shared(self.shape, None if self.share is None else self.share * np.broadcast_to(factors, self.shape))

    def take(self, index: Index) -> Shared:
        """Gather along the last axis by a public index."""
        shape = (*self.shape[:-1], *index.shape)
        return Shared(shape, None if self.share is None else self.share.take(index, axis=-1))

    def reshaped(self, *shape: int) -> Shared:
        """The same entries in another shape."""
        return Shared(shape, None if self.share is None else _reshaped(self.share, len(self.shape), shape))

    def _combine(self, other: Shared, operation: Callable[[Words, Words], Words]) -> Shared:
        if self.shape != other.shape:
            raise ValueError(f"shapes differ: {self.shape} and {other.shape}")
        if self.share is None or other.share is None:
            return Shared(self.shape, None)
        return Shared(self.shape, operation(self.share, other.share))


@dataclass(slots=True, repr=False)
class MaskPart:
    """One summand of a mask: `sign` * `mask`, with `mask` a share at a party and the value itself at the dealer.

    `sign` is +1, 0 or -1 per entry, public, and unknown to the dealer: it stems from an opened bit. An unsigned part
    (`signed` False) has sign +1 everywhere. The words of `mask` are multiples of 2^`low_zeros`.
    """

    mask: Words
    signed: bool = False
    sign: Words | None = None
    low_zeros: int = 0

    def take(self, index: Index) -> MaskPart:
        return MaskPart(
            self.mask.take(index, axis=-1),
            self.signed,
            None if self.sign is None else self.sign.take(index, axis=-1),
            self.low_zeros,
        )

    def single(self, axes: int) -> MaskPart:
        sign = None if self.sign is None else _without_axis(self.sign, axes)
        return MaskPart(_without_axis(self.mask, axes), self.signed, sign, self.low_zeros)

    def reshaped(self, axes: int, shape: tuple[int, ...]) -> MaskPart:
        sign = None if self.sign is None else _reshaped(self.sign, axes, shape)
        return MaskPart(_reshaped(self.mask, axes, shape), self.signed, sign, self.low_zeros)

    def negated(self) -> MaskPart:
        """A part with a sign, with the other."""
        return MaskPart(self.mask, self.signed, None if self.sign is None else -self.sign, self.low_zeros)


def _without_axis(words: Words, axes: int) -> Words:
    """Without the first of the last `axes` axes, of length 1."""
    return words.reshape(*words.shape[:-axes], *words.shape[len(words.shape) - axes + 1 :])


def _reshaped(words: Words, axes: int, shape: tuple[int, ...]) -> Words:
    """With the last `axes` axes in another shape."""
    return words.reshape(*words.shape[: len(words.shape) - axes], *shape)


class MaskedKind(NamedTuple):
    """All that is public and fixed about a masked value: what decides how products with it are dealt and evaluated."""

    shape: tuple[int, ...]
    signed: tuple[bool, ...]
    low_zeros: tuple[int, ...]
    opened: bool
    symmetric: bool


@dataclass(slots=True, repr=False, eq=False)
class Masked(Secret):
    """A masked value: x = delta - sum of its mask parts.

    `opened` is False for a value the dealer itself chose (delta is zero by definition; the mask is minus the value).
    `symmetric` says that the last two logical axes are a symmetric matrix.
    """

    shape: tuple[int, ...]
    delta: Words | None
    parts: tuple[MaskPart, ...]
    opened: bool = True
    symmetric: bool = False

    @property
    def kind(self) -> MaskedKind:
        signed = tuple([part.signed for part in self.parts])
        low_zeros = tuple([part.low_zeros for part in self.parts])
        return MaskedKind(self.shape, signed, low_zeros, self.opened, self.symmetric)

    def take(self, index: Index) -> Masked:
        """Gather along the last axis by a public index."""
        delta = None if self.delta is None else self.delta.take(index, axis=-1)
        shape = (*self.shape[:-1], *index.shape)
        return Masked(shape, delta, tuple(part.take(index) for part in self.parts), opened=self.opened)

    def single(self) -> Masked:
        """The only entry of the first logical axis."""
        if self.shape[:1] != (1,):
            raise ValueError(f"a value of shape {self.shape} is not one alone")
        axes = len(self.shape)
        delta = None if self.delta is None else _without_axis(self.delta, axes)
        return Masked(self.shape[1:], delta, tuple(part.single(axes) for part in self.parts), opened=self.opened)

    def reshaped(self, *shape: int) -> Masked:
        """The same entries in another shape."""
        axes = len(self.shape)
        delta = None if self.delta is None else _reshaped(self.delta, axes, shape)
        return Masked(shape, delta, tuple(part.reshaped(axes, shape) for part in self.parts), opened=self.opened)

    def __sub__(self, other: Masked) -> Masked:
        """The difference of two opened values, each with one part without a sign: such a part again, and all parts with
        signs."""
        if self.shape != other.shape:
            raise ValueError(f"shapes differ: {self.shape} and {other.shape}")
        (own, *signed), (taken, *others) = self.parts, other.parts
        if own.signed or taken.signed or not all(part.signed for part in (*signed, *others)):
            raise ValueError("only masks of one part without a sign, and then parts with signs, are subtracted")
        delta = None if self.delta is None or other.delta is None else self.delta - other.delta
        parts = (MaskPart(own.mask - taken.mask), *signed, *(part.negated() for part in others))
        return Masked(self.shape, delta, parts)
