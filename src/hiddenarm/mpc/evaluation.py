"""A party's run of a program, as steps without I/O: openings out, opened words in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.material import Layout, Tape, program_stream
from hiddenarm.mpc.run import Opening, Openings, Program, Run, Sharing
from hiddenarm.ring.words import Words


class PartyRun(Run):
    """Evaluates a program on masked values with the words dealt to one party for one step."""

    dealing = False

    def __init__(self, party: int, replicates: int, own: Tape, corrections: Tape | None) -> None:
        self.party = party
        self.batch = (replicates,)
        self.adds_constants = party == 0
        self._own = own
        self._corrections = corrections
        self.announced: Any = None
        """A public result that was known before the end."""

    def random(self, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
        return self._read(self._own, shape)

    def deal(self, shape: tuple[int, ...], make: Callable[[], Words], sharing: Sharing = Sharing.ADD) -> Words:
        return self._read(self._own if self._corrections is None else self._corrections, shape)

    def owned(self, lead: tuple[int, ...], sizes: tuple[int, ...]) -> Words:
        words = np.zeros((*self.batch, *lead, sum(sizes)), np.uint64)
        start, size = sum(sizes[: self.party]), sizes[self.party]
        words[..., start : start + size] = self._read(self._own, (*lead, size))
        return words

    def words_of(self, owner: int, shape: tuple[int, ...]) -> Words | None:
        return self._read(self._own, shape) if owner == self.party else None

    def tell_last(self, shape: tuple[int, ...], make: Callable[[], Words]) -> Words | None:
        return None if self._corrections is None else self._read(self._corrections, shape)

    def announce(self, result: Any) -> None:
        self.announced = result

    def actor_words(self, shape: tuple[int, ...]) -> Words:
        raise ProtocolError("a party asked for the actor's words")

    def rewarder_words(self, shape: tuple[int, ...]) -> Words:
        raise ProtocolError("a party asked for the rewarder's words")

    def coin_words(self, shape: tuple[int, ...]) -> Words:
        raise ProtocolError("a party asked for the dealer's coins")

    def check_used_up(self) -> None:
        self._own.check_used_up()
        if self._corrections is not None:
            self._corrections.check_used_up()

    def _read(self, tape: Tape, shape: tuple[int, ...]) -> Words:
        return tape.read(self.batch[0] * prod(shape)).reshape((*self.batch, *shape))


class Evaluation:
    """Drives one party's program from opening to opening.

    openings = evaluation.openings            # what to send now; None when the program has ended
    evaluation.advance(opened_words)          # what all parties' words came to
    evaluation.result
    """

    def __init__(self, run: PartyRun, program: Program) -> None:
        self._run = run
        self._program = program
        self.openings: Openings | None = None
        self.result: Any = None
        self.round = 0
        self.replicates = run.batch[0]
        self._resume(None)

    @property
    def announced(self) -> Any:
        """The public result that the program made known before its end, if it has."""
        return self._run.announced

    def advance(self, opened: Sequence[Words]) -> None:
        """Finish the current round with the opened words and compute up to the next."""
        assert self.openings is not None
        self.round += 1
        self._resume(tuple(opening.finish(words) for opening, words in zip(self.openings, opened, strict=True)))

    def _resume(self, results: tuple[Any, ...] | None) -> None:
        try:
            self.openings = next(self._program) if results is None else self._program.send(results)
        except StopIteration as end:
            self.openings, self.result = None, end.value
            self._run.check_used_up()


def combine_words(opening: Opening, by_party: Sequence[Words]) -> Words:
    """The opened words: the sum, exclusive or, or concatenation of what the parties sent."""
    if opening.owners is not None:
        return np.concatenate(by_party, axis=-1)
    return reduce(np.add if opening.sharing is Sharing.ADD else np.bitwise_xor, by_party)


class ProgramMaterial:
    """One party's words for one program of one epoch. A step's words are handed out once."""

    def __init__(
        self, party: int, parties: int, name: str, layout: Layout, seed: bytes, replicates: int, ahead: int
    ) -> None:
        self._party = party
        self._replicates = replicates
        self._corrected = party == parties - 1
        self._stream = program_stream(seed, name, layout.party_words[party], ahead=ahead)
        self._correction_words = layout.correction_words
        self._blocks: deque[Words] = deque()
        self._next_correction = 0
        self.stocked_until = 0
        """The first step for which no correction is here yet."""

    def add_corrections(self, first: int, rows: Words) -> None:
        """Stock the last party's corrections for the steps from `first` on; they follow those already there."""
        if first != self.stocked_until or rows.shape[1] != self._correction_words:
            raise ProtocolError(f"corrections for step {first} came where step {self.stocked_until} was due")
        self._blocks.append(rows)
        self.stocked_until += len(rows)

    def skip_to(self, step: int) -> None:
        """Give up all stocked corrections before `step`; the next to come are those for `step`."""
        self._blocks.clear()
        self._next_correction = self.stocked_until = step

    def ready(self, step: int) -> bool:
        """Whether the step can be run now."""
        return not self._corrected or self._next_correction <= step < self.stocked_until

    def run(self, step: int) -> PartyRun:
        """Take the step's words, for the only time; take none while the step's correction is missing."""
        if self._corrected and step >= self.stocked_until:
            raise ProtocolError(f"no correction is stocked for step {step}")
        own = Tape(self._stream.step(step))
        corrections = Tape(self._take_correction(step)) if self._corrected else None
        return PartyRun(self._party, self._replicates, own, corrections)

    def _take_correction(self, step: int) -> Words:
        skip = step - self._next_correction
        while skip >= len(self._blocks[0]):
            skip -= len(self._blocks.popleft())
        block = self._blocks.popleft()
        if skip + 1 < len(block):
            self._blocks.appendleft(block[skip + 1 :])
        self._next_correction = step + 1
        words: Words = block[skip]
        return words
