"""Masking, input and dealt values.

mask [x] -> x:        1. each party sends [x] + [lambda]   2. delta = sum.
input:                1. the owner of x, who alone knows lambda, sends x + lambda to all.
Either costs one round and as many words as the value has. What is sent is uniform, because lambda is uniform and new.
A dealt value costs nothing on-line: it is masked by itself, with delta = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hiddenarm.mpc.run import Opening, Run
from hiddenarm.mpc.values import Index, Masked, MaskPart, Shared
from hiddenarm.ring.words import Words

MASKED = "masked by uniform words that are used once"
OWN_MASK = "masked by uniform words that are used once, and that only the owner and the dealer know"


def mask(run: Run, value: Shared, label: str = "a value") -> Opening[Masked]:
    """Open `value` under a new mask; the result is a `Masked`."""
    part = MaskPart(run.random(value.shape))
    outgoing = None if value.share is None else value.share + part.mask
    return Opening(
        value.shape,
        outgoing,
        lambda delta: Masked(value.shape, delta, (part,)),
        meaning=f"{label} + mask",
        why=MASKED,
    )


def mask_symmetric(run: Run, triangles: Shared, size: int, label: str = "matrices") -> Opening[Masked]:
    """Mask symmetric matrices of which the upper triangle is shared; opens one triangle, gives the full matrices."""
    part = MaskPart(run.random(triangles.shape))
    outgoing = None if triangles.share is None else triangles.share + part.mask
    shape = (*triangles.shape[:-1], size, size)

    def finish(delta: Words | None) -> Masked:
        unpack = triangle_to_square(size)
        full = None if delta is None else delta.take(unpack, axis=-1)
        return Masked(shape, full, (part.take(unpack),), symmetric=True)

    return Opening(triangles.shape, outgoing, finish, meaning=f"{label} (upper triangles) + mask", why=MASKED)


def input_segments(
    run: Run, lead: tuple[int, ...], own_segment: Words | None, sizes: tuple[int, ...], label: str = "inputs"
) -> Opening[Masked]:
    """Each party contributes its segment of the last axis; the result [*lead, sum of sizes] is masked."""
    shape = (*lead, sum(sizes))
    mask, own_mask = run.owned(lead, sizes)
    part = MaskPart(mask)
    outgoing = None if own_segment is None or own_mask is None else own_segment + own_mask
    return Opening(
        shape,
        outgoing,
        lambda delta: Masked(shape, delta, (part,)),
        owners=sizes,
        meaning=f"{label} + mask, each party its own",
        why=OWN_MASK,
    )


def given_share(run: Run, *shape: int, label: str = "") -> Shared:
    """A sharing of which each party brings its share into the run."""
    return Shared(shape, run.given(shape, label))


def dealt(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str = "") -> Masked:
    """A value the dealer chooses, ready to be multiplied."""
    negated = run.deal(shape, lambda: np.negative(make()), purpose=purpose)
    return Masked(shape, None, (MaskPart(negated),), opened=False)


def dealt_share(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str = "") -> Shared:
    """A value the dealer chooses, as an additive sharing."""
    words = run.deal(shape, make, purpose=purpose)
    return Shared(shape, None if run.dealing else words)


@dataclass(slots=True, repr=False)
class ReturnedMask:
    """The mask of a value that somebody outside, who knows the mask, sends to all parties. They hold shares of it."""

    shape: tuple[int, ...]
    part: MaskPart
    share: Shared

    def awaited(self, run: Run, label: str) -> Masked:
        """The value, once it was sent; no round."""
        return Masked(self.shape, run.awaited(self.shape, label), (self.part,))


def returned_mask(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str = "") -> ReturnedMask:
    """Share a mask that somebody outside knows; the dealer makes it from the same words."""
    words = run.deal(shape, make, purpose=purpose)
    return ReturnedMask(shape, MaskPart(words), Shared(shape, None if run.dealing else words))


def share_of(run: Run, value: Masked) -> Shared:
    """Turn a masked value into an additive sharing; no round."""
    if run.dealing:
        return Shared(value.shape, None)
    first, *others = [part.mask if part.sign is None else part.sign * part.mask for part in value.parts]
    total = value.delta - first if run.adds_constants and value.delta is not None else -first
    for mask in others:
        total = total - mask
    return Shared(value.shape, total)


@lru_cache
def triangle_indices(size: int) -> tuple[Index, Index]:
    """Row and column of each entry of a packed upper triangle."""
    rows, columns = np.triu_indices(size)
    return rows, columns


@lru_cache
def triangle_to_square(size: int) -> Index:
    """For each cell of a symmetric matrix, its position in the packed upper triangle."""
    rows, columns = triangle_indices(size)
    square = np.empty((size, size), np.intp)
    square[rows, columns] = square[columns, rows] = np.arange(len(rows))
    return square
