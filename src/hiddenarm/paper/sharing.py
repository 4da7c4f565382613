"""Additive sharing: x = sum over parties of [x]_p. Addition, and addition of public numbers, are local.

input:   1. the owner of x, who alone knows the words rho, sends x - rho to all      2. [x] = x - rho + [rho]
         rho is drawn by the owner and dealt as a uniform sharing, so every share of x is uniform, as if the owner had
         handed out random shares. One round, one word per entry.

Security: rho is uniform, new, and known to the owner only; what is sent is uniform whatever x is.
"""

from __future__ import annotations

import numpy as np

from hiddenarm.mpc.run import Opening, Run
from hiddenarm.mpc.tracing import as_cells, as_words
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
