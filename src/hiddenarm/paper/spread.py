"""Words that each party draws for itself, and a round in which each party's word is seen as it is.

An ordinary opening shows the sum of what the parties send. Counting wraps, and sharing a share, need the words
themselves: party p sends its own word of every entry, and everybody has all N of them.
"""

from __future__ import annotations

from functools import partial
from math import prod

from hiddenarm.mpc.run import Opening, Run
from hiddenarm.mpc.tracing import columns
from hiddenarm.ring.words import Words


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
