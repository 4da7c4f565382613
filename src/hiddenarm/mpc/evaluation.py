"""A party's run of a program, as steps without I/O: bytes to send out, bytes received in.

A party runs the program's text once (`compile_program`); every step then runs the compiled program on the words dealt
for it (`Evaluation`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from hiddenarm.errors import OUT_OF_RANGE, FrameError, ProtocolError, ScoreRangeError
from hiddenarm.mpc.codec import opening_bytes, payload_bytes
from hiddenarm.mpc.compiled import Announced, CompiledProgram, Expected, assemble
from hiddenarm.mpc.material import Layout, program_stream
from hiddenarm.mpc.run import Opening, Openings, ProgramText, Results, Run, Sharing
from hiddenarm.mpc.tracing import CORRECTIONS, GIVEN, OWN, Block, TracedWords, Tracer, as_cells, as_words
from hiddenarm.ring._kernels import execute
from hiddenarm.ring.instructions import Operation
from hiddenarm.ring.words import Words, packed_words

_NONE = np.empty(0, np.uint64)


class PartyRun(Run):
    """Records a program as one party runs it: words are `TracedWords`, and reading dealt words only counts them."""

    dealing = False

    def __init__(self, party: int, parties: int, replicates: int) -> None:
        self.party: int = party
        self.parties = parties
        self.batch = (replicates,)
        self.adds_constants = party == 0
        self.recording = Tracer()
        self.read = {OWN: 0, CORRECTIONS: 0}
        self.given_words: list[int] = []
        self.awaited_in: list[int] = []
        self.announced: object = None
        self.announced_in: int | None = None
        self._deals_from = CORRECTIONS if party == parties - 1 else OWN

    def given(self, shape: tuple[int, ...], label: str = "") -> Words:
        if self.awaited_in:
            raise ValueError("what a party brings must be named before what it awaits")
        return self._given(shape)

    def awaited(self, shape: tuple[int, ...], label: str = "") -> Words:
        if self._segment == 0 or self._segment in self.awaited_in:
            raise ValueError("a program may await words once after each round or pause, and not before the first")
        self.awaited_in.append(self._segment)
        return self._given(shape)

    def _given(self, shape: tuple[int, ...]) -> Words:
        full = (*self.batch, *shape)
        bank = GIVEN + len(self.given_words)
        self.given_words.append(prod(full))
        return as_words(TracedWords(self.recording, Block(bank, prod(full), 0), full))

    def random(self, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
        return self._read(OWN, shape)

    def deal(
        self, shape: tuple[int, ...], make: Callable[[], Words], sharing: Sharing = Sharing.ADD, *, purpose: str = ""
    ) -> Words:
        return self._read(self._deals_from, shape)

    def deal_top_bits(self, count: int, bits: int, make: Callable[[], Words], *, purpose: str = "") -> Words:
        packed = self._read(self._deals_from, (packed_words(count, bits),))
        return as_words(as_cells(packed).unpack(count, bits))

    def owned(self, lead: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Words, Words]:
        own = self._read(OWN, (*lead, sizes[self.party]))
        before, after = sum(sizes[: self.party]), sum(sizes[self.party + 1 :])
        return as_words(as_cells(own).padded(before, after)), own

    def words_of(self, owner: int, shape: tuple[int, ...]) -> Words | None:
        return self._read(OWN, shape) if owner == self.party else None

    def tell_last(self, shape: tuple[int, ...], make: Callable[[], Words], *, purpose: str = "") -> Words | None:
        return self._read(CORRECTIONS, shape) if self._deals_from == CORRECTIONS else None

    def announce(self, result: object) -> None:
        if self.announced_in is not None:
            raise ValueError("a program may announce one result")
        self.announced, self.announced_in = result, self._segment

    @property
    def _segment(self) -> int:
        """The segment that is being computed, from 0."""
        return len(self.recording.segments) - 1

    def actor_words(self, shape: tuple[int, ...]) -> Words:
        raise ProtocolError("a party asked for the actor's words")

    def rewarder_words(self, shape: tuple[int, ...]) -> Words:
        raise ProtocolError("a party asked for the rewarder's words")

    def coin_words(self, shape: tuple[int, ...]) -> Words:
        raise ProtocolError("a party asked for the dealer's coins")

    def exchange(self, openings: Openings) -> Results:
        """Record a round: what is sent, and what the openings make of what everybody sent. Without openings it is a
        pause."""
        for opening in openings:
            words = self._outgoing(opening)
            self.recording.write(Operation.SEND_WORDS, words.block, opening.bits, words.size)
        self.recording.end_segment()
        starts = [0] * self.parties
        results = []
        for opening in openings:
            results.append(opening.finish(self._opened(opening, starts)))
            sizes = [opening_bytes(opening, party, self.batch[0]) for party in range(self.parties)]
            starts = [start + size for start, size in zip(starts, sizes, strict=True)]
        return tuple(results)

    def _outgoing(self, opening: Opening[object]) -> TracedWords:
        assert opening.outgoing is not None
        words, shape = as_cells(opening.outgoing), (*self.batch, *opening.sent_shape(self.party))
        if words.shape != shape:
            raise ValueError(f"an opening declares shape {shape} and sends {words.shape}")
        if opening.owners is not None and opening.bits != 64:
            raise ValueError(f"what has owners is opened in whole words, not in {opening.bits} bits")
        return words

    def _opened(self, opening: Opening[object], starts: list[int]) -> Words:
        """The sum, exclusive or, or concatenation of what the parties sent; `starts` is where in their messages."""
        out = self.recording.memory((*self.batch, *opening.shape))
        own, rows = self._outgoing(opening).block, prod((*self.batch, *opening.shape[:-1]))
        if opening.owners is None:
            xor = int(opening.sharing is Sharing.XOR)
            self.recording.write(Operation.OPEN_SUM, out.block, own, opening.bits, out.size, xor, self.party, *starts)
        else:
            places = [number for pair in zip(opening.owners, starts, strict=True) for number in pair]
            self.recording.write(Operation.OPEN_COLUMNS, out.block, own, rows, self.party, *places)
        return as_words(out)

    def _read(self, bank: int, shape: tuple[int, ...]) -> Words:
        full = (*self.batch, *shape)
        first, self.read[bank] = self.read[bank], self.read[bank] + prod(full)
        return as_words(TracedWords(self.recording, Block(bank, prod(full), first), full))


def compile_program(text: ProgramText, party: int, parties: int, replicates: int = 1) -> CompiledProgram:
    """Run a program's text at one party, without words."""
    return record_run(text, PartyRun(party, parties, replicates))


def record_run(text: ProgramText, run: PartyRun) -> CompiledProgram:
    """Run a program's text as a party, without words."""
    program = text(run)
    ends: list[Openings] = []
    results: Results | None = None
    while True:
        try:
            openings = next(program) if results is None else program.send(results)
        except StopIteration as end:
            return _compiled(run, tuple(ends), end.value)
        ends.append(openings)
        results = run.exchange(openings)


def _compiled(run: PartyRun, ends: tuple[Openings, ...], result: object) -> CompiledProgram:
    (replicates,) = run.batch
    rounds = [openings for openings in ends if openings]
    sizes = [[payload_bytes(openings, party, replicates) for party in range(run.parties)] for openings in rounds]
    expected = Expected(
        run.read[OWN],
        run.read[CORRECTIONS],
        tuple(run.given_words),
        tuple(tuple(round_) for round_ in sizes),
        tuple(run.awaited_in),
    )
    announced = None if run.announced_in is None else Announced(run.announced, run.announced_in)
    return assemble(run.party, replicates, run.recording, expected, ends, result, announced)


class DealtWords(NamedTuple):
    """One party's dealt words of one step: expanded from its seed, and at the last party the dealer's corrections."""

    own: Words
    corrections: Words


class Evaluation:
    """One step of a program at one party.

    evaluation.payload               # what to send to every peer now; None in a pause, and at the end
    evaluation.advance(received)     # what each party sent, None for our own; nothing at all in a pause
    evaluation.result

    In a program that awaits words, `tell` them while it `waits`, or before.
    """

    def __init__(self, compiled: CompiledProgram, dealt: DealtWords, given: Sequence[Words] = ()) -> None:
        self._compiled = compiled
        expected = compiled.expected
        brought = [np.ascontiguousarray(words) for words in given]
        awaited = expected.given_words[len(expected.given_words) - len(expected.awaited) :]
        self._awaited = [np.zeros(words, np.uint64) for words in awaited]
        self._told = 0
        self._banks = compiled.banks(compiled.memory(), dealt.own, dealt.corrections, [*brought, *self._awaited])
        self._segment = -1
        self.round = 0
        """The number of the current round, from 0; in a pause, of the next."""
        self.announced: object = None
        """A result that is known before the end."""
        self.result: object = None
        self.payload: bytes | None = None
        self.ended = False
        """Whether the program has ended, and `result` is there."""
        self.waits = False
        """Whether the program cannot go on before it is told the next words that it awaits."""
        self._run(())

    @property
    def replicates(self) -> int:
        return self._compiled.replicates

    @property
    def at_start(self) -> bool:
        """Whether no round was finished yet, and no pause."""
        return self._segment == 0

    @property
    def rounds(self) -> int:
        """How many rounds the program has."""
        return len(self._compiled.rounds)

    @property
    def openings(self) -> Openings:
        """What is opened in the current round; nothing in a pause, and when the program has ended."""
        return () if self.payload is None else self._compiled.rounds[self.round]

    def tell(self, words: Words) -> None:
        """The next words that the program awaits."""
        if self._told == len(self._awaited):
            raise ProtocolError("a program was told words that it does not await")
        self._awaited[self._told][:] = words.reshape(-1)
        self._told += 1
        self.waits = False

    def advance(self, received: tuple[bytes | None, ...] = ()) -> None:
        """Finish the current round with what all parties sent, or the pause, and compute up to the next."""
        if self.waits:
            raise ProtocolError("a program was to go on before it was told the words it awaits")
        if self.payload is not None:
            sizes = self._compiled.expected.round_bytes[self.round]
            for message, size in zip(received, sizes, strict=False):
                if message is not None and len(message) != size:
                    raise FrameError(_wrong_size(received, sizes))
            self.round += 1
        self._run(received)

    def _run(self, received: tuple[bytes | None, ...]) -> None:
        self._segment = number = self._segment + 1
        compiled, banks = self._compiled, self._banks
        first, last, sends, is_last, announced, told_after = compiled.segments[number]
        try:
            sent = execute(compiled.code, first, last, banks, received, sends or 0)
        except ArithmeticError:
            raise ScoreRangeError(OUT_OF_RANGE) from None
        self.payload = None if sends is None else sent
        self.waits = told_after > self._told
        if announced is not None:
            self.announced = announced(banks)
        if is_last:
            self.ended = True
            self.result = compiled.result(banks)
            compiled.give_back(banks[0])
            self._banks = ()


def _wrong_size(received: Sequence[bytes | None], sizes: Sequence[int]) -> str:
    """Who has sent what does not fit."""
    for party, (message, size) in enumerate(zip(received, sizes, strict=False)):
        if message is not None and len(message) != size:
            return f"party {party} sent {len(message)} bytes in a round that takes {size}"
    raise ValueError("all sizes are right")


class ProgramMaterial:
    """One party's words for one program of one epoch. A step's words are handed out once."""

    def __init__(self, party: int, parties: int, name: str, layout: Layout, seed: bytes, ahead: int) -> None:
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

    def take(self, step: int) -> DealtWords:
        """Take the step's words, for the only time; take none while the step's correction is missing."""
        if self._corrected and step >= self.stocked_until:
            raise ProtocolError(f"no correction is stocked for step {step}")
        own = self._stream.step(step)
        return DealtWords(own, self._take_correction(step) if self._corrected else _NONE)

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
