"""A recorded program as the machine runs it: code, constants, and a place for every intermediate value.

Places are given out by first fit in the order of the instructions and taken back after the last use, so memory is as
large as what is alive at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.run import Openings
from hiddenarm.mpc.tracing import Block, Instruction, TracedWords, Tracer
from hiddenarm.ring.contraction import PlanWords
from hiddenarm.ring.instructions import PLACE_BITS, listing
from hiddenarm.ring.words import Words

_WORD = np.dtype(np.uint64)
_LINE_WORDS = 8
"""Blocks begin at cache lines."""
_SPARES = 4
"""Memories that are kept for the next run."""


Value = TypeVar("Value")
Banks: TypeAlias = tuple[Words, ...]
"""Where the machine finds its words, in the order of the banks."""
Reader: TypeAlias = Callable[[Banks], Value]
"""Reads a value out of the banks of a run."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one run is given: words dealt and corrected, words of each array the party brings, and what the parties send
    in each round, in bytes. The last arrays are `awaited`, if any are: for each the segment that cannot be run without
    it."""

    own_words: int
    correction_words: int
    given_words: tuple[int, ...]
    round_bytes: tuple[tuple[int, ...], ...]
    awaited: tuple[int, ...] = ()


class Announced(NamedTuple):
    """A result that is known after a segment, before the end."""

    result: object
    segment: int


class Segment(NamedTuple):
    """Instructions that are run in one call: up to a round, a pause, or the end."""

    first: int
    last: int
    """Where in the code they lie."""
    sends: int | None
    """The bytes that the party sends in the round; None where there is none."""
    is_last: bool
    announced: Reader[object] | None
    """Reads the result that is known now, before the end."""
    told_after: int
    """How many of the awaited arrays must have been told to go on after it."""


@dataclass(slots=True, repr=False)
class CompiledProgram:
    """A program as one party runs it. `result` reads what it came to from the banks of a run."""

    party: int
    replicates: int
    expected: Expected
    rounds: tuple[Openings, ...]
    segments: tuple[Segment, ...]
    result: Reader[object]
    code: PlanWords
    _constants: Words
    _memory_words: int
    _spares: list[Words] = field(default_factory=list)

    def listing(self, given: Sequence[str] = ()) -> list[list[str]]:
        """The instructions of each segment, one per line. They name places, never words: it has none. `given`
        are names for the arrays that the party brings, and awaits."""
        numbered = [f"given {number}" for number in range(len(self.expected.given_words))]
        names = ("memory", "constants", "own words", "corrections", *(given or numbered))
        return [list(listing(self.code[part.first : part.last], names)) for part in self.segments]

    def memory(self) -> Words:
        """Memory for one run; `give_back` when it is over."""
        return self._spares.pop() if self._spares else np.empty(self._memory_words, np.uint64)

    def give_back(self, memory: Words) -> None:
        if len(self._spares) < _SPARES:
            self._spares.append(memory)

    def banks(self, memory: Words, own: Words, corrections: Words, given: Iterable[Words]) -> Banks:
        """Where the machine finds its words; their lengths are checked here, once for a run."""
        brought = tuple(given)
        expected = self.expected
        if (own.size, corrections.size) != (expected.own_words, expected.correction_words):
            raise ProtocolError(
                f"a program uses {expected.own_words} words and {expected.correction_words} corrections, dealt were "
                f"{own.size} and {corrections.size}; the parties and the dealer do not run the same program"
            )
        if tuple([words.size for words in brought]) != expected.given_words:
            raise ValueError(f"a run takes arrays of {expected.given_words} words, got {[w.size for w in brought]}")
        for words in brought:
            if words.dtype != _WORD:
                raise ValueError("a run takes arrays of words")
        return (memory, self._constants, own, corrections, *brought)


def reader_of(value: object, found: list[TracedWords]) -> Reader[object]:
    """How to read a value that holds cells: the same value with arrays, copied, in their place. The cells are added to
    `found`; they need no place yet."""
    before = len(found)
    reader = _reader_of(value, found)
    return reader if len(found) > before else lambda banks: value


def _reader_of(value: object, found: list[TracedWords]) -> Reader[object]:
    if isinstance(value, TracedWords):
        found.append(value)
        return partial(_array, value.block, value.shape)
    if isinstance(value, tuple | list):
        kind, parts = type(value), [reader_of(part, found) for part in value]
        return lambda banks: kind([read(banks) for read in parts])
    if is_dataclass(value) and not isinstance(value, type):
        made, parts = type(value), [reader_of(getattr(value, item.name), found) for item in fields(value)]
        return lambda banks: made(*[read(banks) for read in parts])
    return lambda banks: value


def _array(block: Block, shape: tuple[int, ...], banks: Banks) -> Words:
    bank = banks[block.bank]
    if bank.ndim > 1:  # what a party brings may have any shape
        bank = bank.reshape(-1)
    return bank[block.first : block.first + block.length].reshape(shape).copy()


def assemble(
    party: int,
    replicates: int,
    recording: Tracer,
    expected: Expected,
    ends: tuple[Openings, ...],
    result: object,
    announced: Announced | None,
) -> CompiledProgram:
    """Place all blocks and write the code. `ends` has what is opened at the end of each segment but the last: nothing
    for a pause. The cells of results keep their places to the end."""
    found: list[TracedWords] = []
    read_result = reader_of(result, found)
    read_announced = None if announced is None else reader_of(announced.result, found)
    kept = {cells.block for cells in found}
    instructions = [instruction for part in recording.segments for instruction in part]
    memory_words = _place(instructions, kept)
    code: list[int] = []
    segments: list[Segment] = []
    sizes = iter(expected.round_bytes)
    for number, part in enumerate(recording.segments):
        first, last = len(code), number == len(ends)
        for instruction in part:
            code += _encoded(instruction)
        sends = next(sizes)[party] if not last and ends[number] else None
        reader = read_announced if announced is not None and announced.segment == number else None
        told_after = sum(segment <= number + 1 for segment in expected.awaited)
        segments.append(Segment(first, len(code), sends, last, reader, told_after))
    return CompiledProgram(
        party,
        replicates,
        expected,
        tuple(openings for openings in ends if openings),
        tuple(segments),
        read_result,
        np.array(code, np.int64),
        np.concatenate([np.empty(0, np.uint64), *recording.constants]),
        memory_words,
    )


def _encoded(instruction: Instruction) -> list[int]:
    arguments = [_place_of(argument) for argument in instruction.arguments]
    return [instruction.operation.code, len(arguments), *arguments]


def _place_of(argument: int | Block) -> int:
    if isinstance(argument, int):
        return argument
    return argument.bank << PLACE_BITS | argument.first


def _place(instructions: list[Instruction], kept: set[Block]) -> int:
    """Give every block in memory a place; return how many words of memory are needed."""
    last_use = {block: at for at, instruction in enumerate(instructions) for block in instruction.used()}
    space = _Space()
    for at, instruction in enumerate(instructions):
        for block in instruction.used():
            if block.first < 0:
                block.first = space.take(block.length)
        for block in set(instruction.used()):
            if last_use[block] == at and block not in kept:
                space.release(block.first, block.length)
    return space.end


class _Space:
    """Memory as a list of gaps, in order."""

    def __init__(self) -> None:
        self.end = 0
        self._gaps: list[tuple[int, int]] = []

    def take(self, length: int) -> int:
        """The first gap that is large enough, or new memory."""
        length = _rounded(length)
        for number, (first, size) in enumerate(self._gaps):
            if size >= length:
                self._gaps[number : number + 1] = [(first + length, size - length)] if size > length else []
                return first
        first, self.end = self.end, self.end + length
        return first

    def release(self, first: int, length: int) -> None:
        gaps: list[tuple[int, int]] = []
        for start, size in sorted([*self._gaps, (first, _rounded(length))]):
            if gaps and sum(gaps[-1]) == start:
                gaps[-1] = (gaps[-1][0], gaps[-1][1] + size)
            else:
                gaps.append((start, size))
        self._gaps = gaps


def _rounded(length: int) -> int:
    return -(-max(1, length) // _LINE_WORDS) * _LINE_WORDS
