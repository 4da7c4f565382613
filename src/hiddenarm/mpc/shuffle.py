"""Shuffling secret lists into an order that nobody but the dealer knows, and finding where an item came from.

The order is a chain of permutations, each known to one party only, from its own seed:

    in turn i: party i permutes the masked list by its own permutation, adds fresh masks of its own, sends it to all

N rounds, of a word from one party for each item, and a dealt word for each. The same backwards, from the public unit
vector of a slot, gives the shared one-hot of its item. Several lists may be shuffled alike.

Security. Every message is masked by uniform words that only its sender and the dealer know. The order is uniform for
any N-1 parties together, because the permutation of the remaining one is uniform and independent of the others; neither
the actor nor the rewarder is told anything of it. A permutation is the order of uniform 64-bit words, one for each
item; two of them collide with probability below items^2 / 2^65, and only then is it not exactly uniform.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hiddenarm.mpc.masking import share_of
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.tracing import columns, pick, unit_vectors
from hiddenarm.mpc.values import Index, Masked, MaskPart, Shared
from hiddenarm.ring.words import Words

_NOTHING = np.empty(0, np.uint64)


def order_of(words: Words) -> Words:
    """The permutation that uniform words stand for: entry s is the item in slot s. That of a permutation is its
    inverse."""
    return words.argsort(axis=-1, kind="stable")  # type: ignore[return-value]


class Shuffle:
    """A secret order of lists of `size` items, one for each leading index."""

    def __init__(self, run: Run, lead: tuple[int, ...], size: int, parties: int) -> None:
        self._run = run
        self._shape = (*lead, size)
        own = [run.words_of(party, self._shape) for party in range(parties)]
        self._orders = [None if words is None else order_of(words) for words in own]

    def items(self) -> Index:
        """The item in each slot. Only the dealer knows."""
        chain = np.broadcast_to(np.arange(self._shape[-1]), (*self._run.batch, *self._shape))
        for order in self._orders:
            assert order is not None
            chain = np.take_along_axis(chain, order.astype(np.intp), axis=-1)
        return chain

    def apply(self, *lists: Masked) -> Rounds[list[Masked]]:
        """The lists in shuffled order."""
        return self._take_turns(lists, range(len(self._orders)), self._orders)

    def one_hot(self, slot: Words | None) -> Rounds[Shared]:
        """The one-hot, in the original order, of the item in a public slot. `slot` is None at the dealer."""
        unit = None if slot is None else unit_vectors(slot, self._shape[-1])
        backwards = [None if order is None else order_of(order) for order in self._orders]
        public = self.public(unit)
        (found,) = yield from self._take_turns([public], reversed(range(len(backwards))), backwards)
        return share_of(self._run, found)

    def public(self, words: Words | None) -> Masked:
        """A public list, to be shuffled: its mask is zero. None at the dealer."""
        mask = np.zeros((*self._run.batch, *self._shape), np.uint64) if self._run.dealing else _NOTHING
        return Masked(self._shape, words, (MaskPart(mask),))

    def _take_turns(
        self, lists: Sequence[Masked], turns: Iterable[int], orders: Sequence[Words | None]
    ) -> Rounds[list[Masked]]:
        """Pass the masked lists from party to party. At a party the deltas are known, at the dealer the masks."""
        deltas: list[Words | None] = [values.delta for values in lists]
        masks = [values.parts[0].mask for values in lists]
        for owner in turns:
            order = orders[owner]
            noises = [self._run.words_of(owner, self._shape) for _ in lists]
            deltas = list(
                (
                    yield tuple(
                        self._turn(owner, delta, order, noise) for delta, noise in zip(deltas, noises, strict=True)
                    )
                )
            )
            if self._run.dealing:
                assert order is not None
                place = order.astype(np.intp)
                masks = [
                    np.take_along_axis(mask, place, axis=-1) + noise
                    for mask, noise in zip(masks, noises, strict=True)
                    if noise is not None
                ]
        return [self._masked(delta, mask) for delta, mask in zip(deltas, masks, strict=True)]

    def _masked(self, delta: Words | None, mask: Words) -> Masked:
        part = MaskPart(self._run.deal(self._shape, lambda: mask, purpose="permuted masks"))
        return Masked(self._shape, delta, (part,))

    def _turn(self, owner: int, delta: Words | None, order: Words | None, noise: Words | None) -> Opening[Words | None]:
        size = self._shape[-1]
        owners = tuple(size if party == owner else 0 for party in range(len(self._orders)))
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
