"""Arithmetic on additive shares: sharing and sums, products by triples, and rounds in which each word is seen.

Sharing
-------
Additive: x = sum over parties of [x]_p. Addition, and addition of public numbers, are local.

input:   1. the owner of x, who alone knows the words rho, sends x - rho to all      2. [x] = x - rho + [rho]
         rho is drawn by the owner and dealt as a uniform sharing, so every share of x is uniform, as if the owner had
         handed out random shares. One round, one word per entry.

Security: rho is uniform, new, and known to the owner only; what is sent is uniform whatever x is.

Products
--------
By Beaver triples (Beaver 1991), and what generalises them: squares, matrix and other bilinear triples.

    dealt: [a], [b] uniform, [c] with c = a b
    1. open alpha = x - a and beta = y - b                    (1 round, a word per entry of each factor)
    2. [x y] = [c] + alpha [b] + beta [a] + alpha beta        (the last term is added by one party)

A bilinear form such as a matrix product takes one triple of matrices. A square, or any form of a value with itself, has
a = b: one opening. The result has the fractional bits of both factors; see `fixed_point` for the division that follows.

`mpc.masking.mask` is step 1 with a = -lambda, `mpc.forms.form` is step 2. Here every product draws new masks, also for
a factor that was masked before: that is the paper's way, and its price.

Security: a and b are uniform and new, so alpha and beta are uniform whatever x and y are.

Words of each party
-------------------
Words that each party draws for itself, and a round in which each party's word is seen as it is.

An ordinary opening shows the sum of what the parties send. Counting wraps, and sharing a share, need the words
themselves: party p sends its own word of every entry, and everybody has all N of them.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Opening, Run
from hiddenarm.mpc.tracing import as_cells, as_words, columns
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words


def share_segments(
    run: Run, lead: tuple[int, ...], own_segment: Words | None, sizes: tuple[int, ...]
) -> Opening[Shared]:
    """Each party shares its segment of the last axis; the result is a `Shared` [*lead, sum of sizes]."""
    shape = (*lead, sum(sizes))
    drawn = [run.words_of(party, (*lead, size)) for party, size in enumerate(sizes)]
    rho = run.deal(shape, lambda: np.concatenate([words for words in drawn if words is not None], axis=-1))
    outgoing = None
    if own_segment is not None and run.party is not None:
        own = drawn[run.party]
        assert own is not None
        outgoing = own_segment - own

    def finish(opened: Words | None) -> Shared:
        if opened is None:
            return Shared(shape, None)
        return Shared(shape, opened + rho if run.adds_constants else rho)

    return Opening(shape, outgoing, finish, owners=sizes)


def held_segments(run: Run, own_segment: Words | None, sizes: tuple[int, ...]) -> Shared:
    """The sharing in which each owner keeps its own segment and the others hold zero: no round. Its shares are not
    uniform, so it is only for values that are opened under a mask, as all factors of products are."""
    shape = (sum(sizes),)
    if own_segment is None or run.party is None:
        return Shared(shape, None)
    before, after = sum(sizes[: run.party]), sum(sizes[run.party + 1 :])
    return Shared(shape, as_words(as_cells(own_segment).padded(before, after)))


def plus(run: Run, value: Shared, number: int) -> Shared:
    """Add a public whole number to every entry: one party does it."""
    if value.share is None or not run.adds_constants:
        return value
    return Shared(value.shape, value.share + np.uint64(number % 2**64))


def minus(value: Shared) -> Shared:
    return value.times(2**64 - 1)


def product(run: Run, spec: str, x: Shared, y: Shared) -> SharedLater:
    """The bilinear form `spec`, such as "ij,j->i". One round."""
    masked_x, masked_y = yield mask(run, x), mask(run, y)
    return form(run, spec, masked_x, masked_y)


def product_with_itself(run: Run, spec: str, x: Shared) -> SharedLater:
    """The bilinear form `spec` of a value with itself, such as "i,j->ij". One round."""
    (masked,) = yield (mask(run, x),)
    return form(run, spec, masked, masked)


def entry_by_entry(shape: tuple[int, ...]) -> str:
    """The form that multiplies two arrays of this shape word by word."""
    axes = "abcdefgh"[: len(shape)]
    return f"{axes},{axes}->{axes}"


def draw(run: Run, parties: int, shape: tuple[int, ...]) -> list[Words | None]:
    """Uniform words of each party. A party finds only its own; the dealer finds all."""
    return [run.words_of(party, shape) for party in range(parties)]


def all_drawn(drawn: list[Words | None]) -> list[Words]:
    """The same at the dealer."""
    return [words for words in drawn if words is not None]


def own_of(run: Run, drawn: list[Words | None]) -> Words:
    """The same at a party."""
    own = None if run.party is None else drawn[run.party]
    assert own is not None
    return own


def show(run: Run, parties: int, shape: tuple[int, ...], own: Words | None) -> Opening[list[Words] | None]:
    """Send one's own words to all; the result is the list of what each party sent, or None at the dealer."""
    size = prod(shape)
    outgoing = None if own is None else own.reshape(*run.batch, size)
    finish = partial(_apart, run, parties, shape, size)
    return Opening((parties * size,), outgoing, finish, owners=(size,) * parties)


def _apart(run: Run, parties: int, shape: tuple[int, ...], size: int, opened: Words | None) -> list[Words] | None:
    if opened is None:
        return None
    return [columns(opened, party * size, size).reshape(*run.batch, *shape) for party in range(parties)]
