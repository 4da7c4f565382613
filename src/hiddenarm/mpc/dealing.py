"""The dealer's run of a program: on masks instead of masked values, many steps at once.

The dealer expands everybody's seeds, so it knows every uniform word. Where the program needs a value of the dealer's
making (a product of masks, a table, a permutation), it computes the value and writes the last party's correction:
value minus what the seeds of the other parties give. It has no openings to wait for, so all steps are one vectorised
run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod

import numpy as np

from hiddenarm.mpc.codec import payload_bytes
from hiddenarm.mpc.material import CountingTape, Layout, Seeds, Tape, program_stream
from hiddenarm.mpc.run import Openings, Program, ProgramText, Results, Run, Sharing
from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import Words, pack_top_bits, packed_words, subtract_fields


class DealerRun(Run):
    """Runs a program on masks, for the steps from `first_step` on. `batch` is (steps, replicates)."""

    dealing = True
    adds_constants = False
    party = None

    def __init__(
        self,
        steps: int,
        replicates: int,
        parties: list[Tape],
        actor: Tape,
        rewarder: Tape,
        coins: Tape,
        first_step: int = 0,
    ) -> None:
        self.batch = (steps, replicates)
        self.first_step = first_step
        self._parties = parties
        self._actor = actor
        self._rewarder = rewarder
        self._coins = coins
        self._corrections: list[Words] = []
        self.correction_words = 0

    def given(self, shape: tuple[int, ...], label: str = "") -> None:
        return None

    def awaited(self, shape: tuple[int, ...], label: str = "") -> None:
        return None

    def random(self, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
        return self._shaped(_total([self._read(tape, shape) for tape in self._parties], sharing), shape)

    def deal(
        self, shape: tuple[int, ...], make: Callable[[], Words], sharing: Sharing = Sharing.ADD, *, purpose: str = ""
    ) -> Words:
        others = _total([self._read(tape, shape) for tape in self._parties[:-1]], sharing)
        value = np.ascontiguousarray(make())
        flat = value.reshape(self.batch[0], self._size(shape))
        self._correct(flat - others if sharing is Sharing.ADD else flat ^ others)
        return value

    def deal_top_bits(self, count: int, bits: int, make: Callable[[], Words], *, purpose: str = "") -> Words:
        shape = (packed_words(count, bits),)
        value = np.ascontiguousarray(make())
        packed = pack_top_bits(value.reshape(-1, count), bits).reshape(self.batch[0], self._size(shape))
        for tape in self._parties[:-1]:
            packed = subtract_fields(packed, self._read(tape, shape), bits)
        self._correct(packed)
        return value

    def _correct(self, rows: Words) -> None:
        self._corrections.append(rows)
        self.correction_words += rows.shape[1]

    def owned(self, lead: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Words, None]:
        shapes = [(*lead, size) for size in sizes]
        segments = [
            self._shaped(self._read(tape, shape), shape) for tape, shape in zip(self._parties, shapes, strict=True)
        ]
        return np.concatenate(segments, axis=-1), None

    def words_of(self, owner: int, shape: tuple[int, ...]) -> Words:
        return self._shaped(self._read(self._parties[owner], shape), shape)

    def tell_last(self, shape: tuple[int, ...], make: Callable[[], Words], *, purpose: str = "") -> Words:
        value = np.ascontiguousarray(make())
        self._correct(value.reshape(self.batch[0], self._size(shape)))
        return value

    def announce(self, result: object) -> None:
        return

    def actor_words(self, shape: tuple[int, ...]) -> Words:
        return self._shaped(self._read(self._actor, shape), shape)

    def rewarder_words(self, shape: tuple[int, ...]) -> Words:
        return self._shaped(self._read(self._rewarder, shape), shape)

    def coin_words(self, shape: tuple[int, ...]) -> Words:
        return self._shaped(self._read(self._coins, shape), shape)

    def corrections(self) -> Words:
        """What the last party receives: a row a step."""
        none = np.empty((self.batch[0], 0), np.uint64)
        return np.concatenate([none, *self._corrections], axis=1)

    def check_used_up(self) -> None:
        for tape in (*self._parties, self._actor, self._rewarder, self._coins):
            tape.check_used_up()

    def _size(self, shape: tuple[int, ...]) -> int:
        return self.batch[1] * prod(shape)

    def _read(self, tape: Tape, shape: tuple[int, ...]) -> Words:
        return tape.read(self._size(shape))

    def _shaped(self, flat: Words, shape: tuple[int, ...]) -> Words:
        return flat.reshape((*self.batch, *shape))


def _total(shares: list[Words], sharing: Sharing) -> Words:
    return reduce(np.add if sharing is Sharing.ADD else np.bitwise_xor, shares)


def walk(program: Program) -> list[Openings]:
    """Run a program to its end without opening anything; return what it would have opened, round by round."""
    rounds: list[Openings] = []
    results: Results | None = None
    while True:
        try:
            openings = next(program) if results is None else program.send(results)
        except StopIteration:
            return rounds
        if openings:  # else it is a pause
            rounds.append(openings)
        results = tuple(opening.finish(None) for opening in openings)


def layout_of(text: ProgramText, parties: int, replicates: int) -> Layout:
    """Find a program's layout by dealing no steps."""
    tapes = [CountingTape() for _ in range(parties)]
    actor, rewarder, coins = CountingTape(), CountingTape(), CountingTape()
    run = DealerRun(0, replicates, list(tapes), actor, rewarder, coins)
    rounds = walk(text(run))
    return Layout(
        party_words=tuple(tape.position for tape in tapes),
        correction_words=run.correction_words,
        actor_words=actor.position,
        rewarder_words=rewarder.position,
        coin_words=coins.position,
        round_bytes=tuple(
            tuple(payload_bytes(openings, party, replicates) for party in range(parties)) for openings in rounds
        ),
    )


class ProgramDealer:
    """Deals one program of one epoch. Every step is dealt once."""

    def __init__(self, name: str, text: ProgramText, layout: Layout, seeds: Seeds, replicates: int) -> None:
        self._text = text
        self._replicates = replicates
        self._layout = layout
        self._party_streams = [
            program_stream(seeds.party(number), name, words) for number, words in enumerate(layout.party_words)
        ]
        self._actor = program_stream(seeds.actor(), name, layout.actor_words)
        self._rewarder = program_stream(seeds.rewarder(), name, layout.rewarder_words)
        self._coins = program_stream(seeds.coins(), name, layout.coin_words)

    def deal(self, first: int, count: int) -> Words:
        """The last party's corrections for `count` steps: a row a step."""
        parties = [Tape(stream.steps(first, count)) for stream in self._party_streams]
        actor, rewarder, coins = (Tape(stream.steps(first, count)) for stream in self._single_streams())
        run = DealerRun(count, self._replicates, parties, actor, rewarder, coins, first)
        walk(self._text(run))
        run.check_used_up()
        return run.corrections()

    def _single_streams(self) -> tuple[Stream, Stream, Stream]:
        return self._actor, self._rewarder, self._coins
