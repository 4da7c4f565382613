"""What a program does, for a reader: its rounds, what they open and why that is safe, and what is dealt for it.

Nothing is run: the program's text is recorded at party 0, as for every run, by a recorder that also keeps the labels
and purposes that operations give. No word is there, so none can be shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from hiddenarm.mpc.codec import opening_bytes
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.evaluation import PartyRun, record_run
from hiddenarm.mpc.material import Layout
from hiddenarm.mpc.run import Opening, Openings, ProgramText, Results, Sharing
from hiddenarm.ring.words import Words, packed_words


@dataclass(frozen=True, slots=True)
class Array:
    """Something that has a name and a shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A value that a round opens. `sent_bytes` has an entry for each party: what it sends to each other one."""

    meaning: str
    why: str
    shape: tuple[int, ...]
    bits: int
    sent_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """What is computed without communication, and what follows: a round, a pause, or the end. Only a round opens
    something. `announced` says that the result for the actor is known then."""

    ends_in: str
    awaited: Array | None
    computed: tuple[str, ...]
    opened: tuple[Opened, ...]
    instructions: tuple[str, ...]
    announced: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A program, explained. `dealt` counts the words that the dealer makes for each purpose."""

    brought: tuple[Array, ...]
    stages: tuple[Stage, ...]
    dealt: dict[str, int]
    layout: Layout


def explain(text: ProgramText, parties: int) -> Explanation:
    """Explain a program for so many parties, as party 0 runs it."""
    run = _ExplainedRun(parties)
    compiled = record_run(text, run)
    names = [array.name for array in (*run.brought, *run.awaited_arrays.values())]
    listing = compiled.listing(names)
    ends = [*run.ends, "end"]
    opened = iter(compiled.rounds)
    stages = [
        Stage(
            end,
            run.awaited_arrays.get(number),
            tuple(run.computed.get(number, ())),
            tuple(_opened(opening, parties) for opening in (next(opened) if end == "round" else ())),
            tuple(listing[number]),
            run.announced_in == number,
        )
        for number, end in enumerate(ends)
    ]
    return Explanation(tuple(run.brought), tuple(stages), dict(run.dealt), layout_of(text, parties, 1))


def _opened(opening: Opening[object], parties: int) -> Opened:
    sent = tuple(opening_bytes(opening, party, 1) for party in range(parties))
    return Opened(opening.meaning, opening.why, opening.shape, opening.bits, sent)


class _ExplainedRun(PartyRun):
    """A recording at party 0 that keeps what is said about the program. Keys are numbers of segments, from 0."""

    def __init__(self, parties: int) -> None:
        super().__init__(0, parties, 1)
        self.brought: list[Array] = []
        self.awaited_arrays: dict[int, Array] = {}
        self.computed: dict[int, list[str]] = {}
        self.dealt: Counter[str] = Counter()
        self.ends: list[str] = []

    def given(self, shape: tuple[int, ...], label: str = "") -> Words:
        self.brought.append(Array(label, shape))
        return super().given(shape)

    def awaited(self, shape: tuple[int, ...], label: str = "") -> Words:
        self.awaited_arrays[self._segment] = Array(label, shape)
        return super().awaited(shape)

    def deal(
        self, shape: tuple[int, ...], make: Callable[[], Words], sharing: Sharing = Sharing.ADD, *, purpose: str = ""
    ) -> Words:
        self.dealt[purpose] += prod(shape)
        return super().deal(shape, make, sharing)

    def deal_top_bits(self, count: int, bits: int, make: Callable[[], Words], *, purpose: str = "") -> Words:
        self.dealt[purpose] += packed_words(count, bits)
        return super().deal_top_bits(count, bits, make)

    def tell_last(self, shape: tuple[int, ...], make: Callable[[], Words], *, purpose: str = "") -> Words | None:
        self.dealt[purpose] += prod(shape)
        return super().tell_last(shape, make)

    def exchange(self, openings: Openings) -> Results:
        self.ends.append("round" if openings else "pause")
        return super().exchange(openings)

    def note(self, computed: str) -> None:
        self.computed.setdefault(self._segment, []).append(computed)
