"""Shuffling a secret list into an order that no party knows, and finding where an item of it came from.

The order is a uniformly random permutation G of the items, `items[s]` being the item in slot s, that the actor can
compute from its seed. There are two ways, the same to the caller:

*By matrix* (short lists): the dealer shares the permutation matrix Pi and k Pi, with k = 0 for a list to be erased and
1 otherwise. Masked values become [k Pi] delta - [k Pi lambda]: no round, 2 A^2 dealt words. Row s of [Pi] is the
shared one-hot of the item in slot s. Products of masked weights [A, D] and contexts [D] need not be masked before: they
are shuffled as a form of three factors, for about A^2 D dealt words more.

*By turns* (long lists): G is a chain of permutations, each known to one party only: those of parties 0 to N-2 come from
their seeds, and the dealer tells the last party the one that completes the chain to G.
    in turn i: party i permutes the masked list by its own permutation, adds fresh masks of its own, sends it to all
N rounds, of A words from one party each, and O(A) dealt words; then a product with the dealt k. The same backwards,
starting from the public unit vector of a slot, gives the one-hot of its item.

Security. By matrix nothing is sent. By turns every message is masked by uniform words that only its sender knows; the
order stays uniform for any N-1 parties together, because the permutation of the remaining one is uniform and
independent of the others (the last party's as well: it is G after a permutation independent of G). The permutation is
the order of A uniform 64-bit words; two of them collide with probability below A^2 / 2^65, and only then is it not
exactly uniform.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

import numpy as np

from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import dealt, dealt_share, share_of
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.tracing import columns, pick, pick_one, unit_vectors
from hiddenarm.mpc.values import Index, Masked, MaskPart, Shared
from hiddenarm.ring.words import Words

MATRIX_LIMIT = 32
"""Longest list that is shuffled by matrix."""

SharedLater: TypeAlias = Rounds[Shared]
MaskedLater: TypeAlias = Rounds[Masked]

_NOTHING = np.empty(0, np.uint64)
_SHUFFLED = "scores in a secret order, or zeros to explore"


class Shuffle(Protocol):
    """A secret order of lists of `size` items, one for each leading index.

    The dealer may secretly have a list erased: then its values come out as zeros.
    """

    items: Index | None
    """The item in each slot; only the dealer knows."""

    def apply(self, values: Masked) -> SharedLater:
        """The values in shuffled order, or zeros where the list is erased."""

    def one_hot(self, slot: Words | None) -> SharedLater:
        """The one-hot, in the original order, of the item in a public slot. `slot` is None at the dealer."""


def permutation_of(words: Words) -> Index:
    """The permutation that uniform words stand for: entry s is the item in slot s."""
    return words.argsort(axis=-1, kind="stable")


def order_of(words: Words) -> Words:
    """The same at a party or at the dealer, as words. The order of a permutation is its inverse."""
    return words.argsort(axis=-1, kind="stable")  # type: ignore[return-value]


def deal_shuffle(run: Run, lead: tuple[int, ...], size: int, parties: int, kept: Words | None) -> Shuffle:
    """A fresh secret order, by the cheaper way. `kept` [*lead] is 1, or 0 to erase a list; only the dealer knows it."""
    items = permutation_of(run.actor_words((*lead, size))) if run.dealing else None
    if size <= MATRIX_LIMIT:
        return MatrixShuffle(run, lead, size, items, kept)
    return TurnShuffle(run, lead, size, parties, items, kept)


class MatrixShuffle:
    """A dealt permutation matrix; row s is the one-hot of the item in slot s. A second one is zero for erased lists."""

    def __init__(self, run: Run, lead: tuple[int, ...], size: int, items: Index | None, kept: Words | None) -> None:
        self.items = items
        self._run = run

        def matrix() -> Words:
            rows: Words = np.eye(size, dtype=np.uint64)[items]
            return rows

        def erasing_matrix() -> Words:
            assert kept is not None
            return matrix() * kept[..., None, None]

        self._matrix = dealt_share(run, (*lead, size, size), matrix, "permutation matrix")
        self._erasing_matrix = dealt(
            run, (*lead, size, size), erasing_matrix, "permutation matrix, or zeros to explore"
        )

    def apply(self, values: Masked) -> SharedLater:
        lead = "bcd"[: len(values.shape) - 1]
        return form(self._run, f"{lead}sa,{lead}a->{lead}s", self._erasing_matrix, values, label=_SHUFFLED)
        yield  # a shuffle may take rounds; this one takes none

    def apply_to_products(self, weights: Masked, contexts: Masked) -> Shared:
        """The products of weights [size, features] and contexts [count, features] in shuffled order, or zeros: the
        values come out without having been masked. Lead is (count,)."""
        return form(self._run, "bsa,ai,bi->bs", self._erasing_matrix, weights, contexts, label=_SHUFFLED)

    def one_hot(self, slot: Words | None) -> SharedLater:
        shape = self._matrix.shape[:-1]
        if self._matrix.share is None or slot is None:
            return Shared(shape, None)
        self._run.note("one-hot of the item in the winning slot: that row of the shared permutation matrix")
        return Shared(shape, pick_one(self._matrix.share, slot))
        yield


class TurnShuffle:
    """A chain of permutations, one known to each party."""

    def __init__(
        self, run: Run, lead: tuple[int, ...], size: int, parties: int, items: Index | None, kept: Words | None
    ) -> None:
        self.items = items
        self._run = run
        self._kept = kept
        self._shape = (*lead, size)
        self._parties = parties
        own = [run.words_of(party, self._shape) for party in range(parties - 1)]
        self._orders: list[Words | None] = [None if words is None else order_of(words) for words in own]
        self._orders.append(run.tell_last(self._shape, self._completion, purpose="permutation of the last party"))

    def apply(self, values: Masked) -> SharedLater:
        mask = values.parts[0].mask if self._run.dealing else None
        shuffled = yield from self._take_turns(values.delta, mask, range(self._parties), self._orders)
        kept = dealt(self._run, self._shape[:-1], self._kept_or_nothing, "1, or 0 to explore")
        lead = "bcd"[: len(self._shape) - 1]
        return form(self._run, f"{lead},{lead}s->{lead}s", kept, shuffled, label=_SHUFFLED)

    def one_hot(self, slot: Words | None) -> SharedLater:
        unit = None
        if slot is not None:
            unit = unit_vectors(slot, self._shape[-1])
        mask = np.zeros((*self._run.batch, *self._shape), np.uint64) if self._run.dealing else None
        backwards = [None if order is None else order_of(order) for order in self._orders]
        found = yield from self._take_turns(unit, mask, reversed(range(self._parties)), backwards)
        return share_of(self._run, found)

    def _take_turns(
        self, delta: Words | None, mask: Words | None, turns: Iterable[int], orders: list[Words | None]
    ) -> MaskedLater:
        """Pass the masked list from party to party. At a party `delta` is known, at the dealer `mask`."""
        for owner in turns:
            noise, order = self._run.words_of(owner, self._shape), orders[owner]
            (delta,) = yield (self._turn(owner, delta, order, noise),)
            if self._run.dealing:
                assert mask is not None
                assert order is not None
                assert noise is not None
                mask = np.take_along_axis(mask, order.astype(np.intp), axis=-1) + noise
        final_mask = _NOTHING if mask is None else mask
        final = MaskPart(self._run.deal(self._shape, lambda: final_mask, purpose="permuted masks"))
        return Masked(self._shape, delta, (final,))

    def _turn(self, owner: int, delta: Words | None, order: Words | None, noise: Words | None) -> Opening[Words | None]:
        size = self._shape[-1]
        owners = tuple(size if party == owner else 0 for party in range(self._parties))
        outgoing = None
        if delta is not None:
            outgoing = columns(delta, 0, 0) if order is None or noise is None else pick(delta, order) + noise
        return Opening(
            self._shape,
            outgoing,
            lambda opened: opened,
            owners=owners,
            meaning=f"the list in an order of party {owner} + mask, from party {owner}",
            why="masked by uniform words that are used once, and that only the sender and the dealer know",
        )

    def _kept_or_nothing(self) -> Words:
        return _NOTHING if self._kept is None else self._kept

    def _completion(self) -> Words:
        """The last party's permutation: what makes the chain come to `items`. Only the dealer computes it."""
        assert self.items is not None
        chain = np.broadcast_to(np.arange(self._shape[-1]), self.items.shape)
        for order in self._orders:
            assert order is not None
            chain = np.take_along_axis(chain, order.astype(np.intp), axis=-1)
        return np.take_along_axis(np.argsort(chain, axis=-1), self.items, axis=-1).astype(np.uint64)
