"""What an operation may ask of its surroundings, and the shape of a program.

A program is a generator. It computes locally and yields `Openings`, the tuple of everything that is opened in one
communication round; it is sent back what each opening's `finish` made of the opened words. One `yield`, one round:

    x, w = yield mask(run, x), mask(run, w)          # round 1
    z = form(run, "ai,i->a", w, x)                   # no round
    (z,) = yield (truncate(run, z, 20),)             # round 2

`yield ()` is a pause: what was computed so far is there, before the program goes on with words that it awaits; nothing
is sent, and it is no round.

The same text runs at the dealer (`DealerRun`), which opens nothing and thereby computes which correlated words the
parties will need, in which order; and at each party (`PartyRun`), which runs it once to record what is to be computed
in every step. So a program may not branch on words: they are not there yet when a party runs its text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from hiddenarm.ring.words import Words

Result = TypeVar("Result")
Finished = TypeVar("Finished", covariant=True)


class Sharing(Enum):
    """How shares add up to the value."""

    ADD = "sum modulo 2^64"
    XOR = "exclusive or"


@dataclass(slots=True, repr=False)
class Opening(Generic[Finished]):
    """A value to open: what this party sends to all others, and what to make of the opened words.

    `shape` is logical; `bits` is the width on the wire. With `owners` (sizes along the last axis, one per party), party
    p alone sends segment p, in the clear: it is masked. `outgoing` is None at the dealer, and `finish` then gets
    None. `meaning` and `why` are for who reads an explanation of the program: what is opened, and why that is safe.
    """

    shape: tuple[int, ...]
    outgoing: Words | None
    finish: Callable[[Words | None], Finished]
    sharing: Sharing = Sharing.ADD
    bits: int = 64
    owners: tuple[int, ...] | None = None
    meaning: str = ""
    why: str = ""

    def sent_shape(self, party: int) -> tuple[int, ...]:
        """The logical shape of what one party sends."""
        if self.owners is None:
            return self.shape
        return (*self.shape[:-1], self.owners[party])


Openings: TypeAlias = tuple[Opening[object], ...]
Results: TypeAlias = tuple[Any, ...]
"""What the openings of one round were finished to, in their order. Each `yield` has other types, and a generator can
declare only one for all: what a program unpacks is not checked against what it opened."""
Rounds: TypeAlias = Generator[Openings, Results, Result]
"""An operation that takes rounds and comes to a result."""
Program: TypeAlias = Rounds[object]
ProgramText: TypeAlias = "Callable[[Run], Program]"
"""A program before it is run: at a party or at the dealer."""


class Run(ABC):
    """One execution of a program, at a party or at the dealer.

    Words asked for here are consumed in program order, so both sides agree on every offset without being told. Labels
    and purposes change nothing: they are for who reads an explanation of the program (`explanation`).
    """

    batch: tuple[int, ...]
    """Leading axes of every array: (replicates,) at a party, (steps, replicates) at the dealer."""
    party: int | None
    """The party's number; None at the dealer."""
    dealing: bool
    first_step: int
    """The first of the steps that are dealt. Only the dealer's run has it: what a party runs is the same in all."""
    adds_constants: bool
    """Whether this is the one party that adds public constants to its shares."""

    @abstractmethod
    def given(self, shape: tuple[int, ...], label: str = "") -> Words | None:
        """Words that the party brings into the run: its inputs, its shares of the state. None at the dealer."""

    @abstractmethod
    def awaited(self, shape: tuple[int, ...], label: str = "") -> Words | None:
        """Public words that all parties are told from outside while the program runs, after its first round or pause.
        What comes before the last round or pause may be run without them; what follows waits. None at the dealer. If it
        is called several times, each time after another round or pause, words are told in this order."""

    @abstractmethod
    def random(self, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
        """A uniform secret. Party: its share. Dealer: the value."""

    @abstractmethod
    def deal(
        self, shape: tuple[int, ...], make: Callable[[], Words], sharing: Sharing = Sharing.ADD, *, purpose: str = ""
    ) -> Words:
        """A secret of the dealer's making. Party: its share. Dealer: the value, from `make`."""

    @abstractmethod
    def deal_top_bits(self, count: int, bits: int, make: Callable[[], Words], *, purpose: str = "") -> Words:
        """Secrets [count] of the dealer's making of which only the top `bits` bits are not zero: shares of several of
        them travel in one word. Party: its shares, of the same kind. Dealer: the values, from `make`."""

    @abstractmethod
    def owned(self, lead: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Words, Words | None]:
        """Uniform words [*lead, sum of sizes] of which party p knows segment p of the last axis and nobody else does.
        Party: its share, zero outside its segment, and its segment. Dealer: all of them."""

    @abstractmethod
    def words_of(self, owner: int, shape: tuple[int, ...]) -> Words | None:
        """Uniform words that only one party knows. The owner and the dealer: the words. Others: None."""

    @abstractmethod
    def tell_last(self, shape: tuple[int, ...], make: Callable[[], Words], *, purpose: str = "") -> Words | None:
        """A value of the dealer's making for the last party alone. The last party and the dealer: the value."""

    def note(self, computed: str) -> None:
        """Say what is computed here without a round. Only an explanation listens."""
        return

    @abstractmethod
    def announce(self, result: object) -> None:
        """Make a first result known, once, before the end: where the next round or pause is reached. It may be what a
        program's result may be. Only a party has someone to tell."""

    @abstractmethod
    def actor_words(self, shape: tuple[int, ...]) -> Words:
        """Uniform words known to the actor. Only the dealer may ask; parties never evaluate this."""

    @abstractmethod
    def rewarder_words(self, shape: tuple[int, ...]) -> Words:
        """Uniform words known to the rewarder. Only the dealer may ask."""

    @abstractmethod
    def coin_words(self, shape: tuple[int, ...]) -> Words:
        """Uniform words known to nobody but the dealer. Only the dealer may ask."""
