"""Arrays whose words are not there yet: what a party's program computes with while it is being recorded.

A program is straight-line: its shapes, the dealt words it reads and the order of its operations never depend on a
secret. So a party runs its text only once, on `TracedWords`. They look like arrays of words, but an operation on them
only writes down an instruction, and where its words will lie. A compiled machine (`ring/instructions.c`) then runs the
instructions for every step, a whole round in one call.

Places lie in banks: 0 is the run's own memory, which is written; the others are only read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NoReturn, cast

import numpy as np

from hiddenarm.mpc.values import Index
from hiddenarm.ring.contraction import ContractionPlan
from hiddenarm.ring.instructions import Operation
from hiddenarm.ring.words import Words, packed_words

MEMORY, CONSTANTS, OWN, CORRECTIONS, GIVEN = range(5)
"""The banks. What a party brings into a run has a bank each, from GIVEN on."""


@dataclass(eq=False, slots=True)
class Block:
    """Words that belong together. In MEMORY the place is found when all instructions are known."""

    bank: int
    length: int
    first: int = -1


@dataclass(slots=True)
class Instruction:
    """An operation of the machine. Blocks among the arguments stand for their places."""

    operation: Operation
    arguments: tuple[int | Block, ...]

    def used(self) -> list[Block]:
        """All blocks in memory that must have a place while this runs."""
        return [block for block in self.arguments if isinstance(block, Block) and block.bank == MEMORY]


@dataclass(slots=True)
class Tracer:
    """The instructions so far, in segments between rounds and pauses, and the constants they use."""

    segments: list[list[Instruction]] = field(default_factory=lambda: [[]])
    constants: list[Words] = field(default_factory=list)
    _constant_words: int = 0
    _known: dict[bytes, Block] = field(default_factory=dict)

    def write(self, operation: Operation, *arguments: int | Block) -> None:
        """Append an instruction to the current segment."""
        self.segments[-1].append(Instruction(operation, arguments))

    def end_segment(self) -> None:
        self.segments.append([])

    def memory(self, shape: tuple[int, ...]) -> TracedWords:
        """New words, to be written by the next instruction."""
        return TracedWords(self, Block(MEMORY, prod(shape)), shape)

    def constant(self, words: Words) -> TracedWords:
        """Public words that are the same in every run; equal ones are kept once."""
        words = np.ascontiguousarray(words, np.uint64)
        name = words.tobytes()
        if name not in self._known:
            self._known[name] = Block(CONSTANTS, words.size, self._constant_words)
            self.constants.append(words.ravel())
            self._constant_words += words.size
        return TracedWords(self, self._known[name], words.shape)

    def contract(self, plan: ContractionPlan, batch: int, operands: list[TracedWords]) -> TracedWords:
        """The sum of a plan's terms: [batch, out_length]."""
        out = self.memory((batch, plan.out_length))
        words = self.constant(plan.words.view(np.uint64))
        places = [argument for operand in operands for argument in (operand.block, operand.size)]
        self.write(Operation.CONTRACT, out.block, out.size, words.block, words.size, batch, len(operands), *places)
        return out


class TracedWords:
    """An array of words in a recording: as much of NumPy's arrays as programs use, on whole contiguous blocks."""

    __slots__ = ("block", "recording", "shape")
    __array_ufunc__ = None  # NumPy leaves operations with us to us

    def __init__(self, recording: Tracer, block: Block, shape: tuple[int, ...]) -> None:
        self.recording = recording
        self.block = block
        self.shape = shape

    def __repr__(self) -> str:
        return f"TracedWords(shape={self.shape})"

    def _no_words_yet(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a recorded program cannot look at its words: they are not there yet")

    __bool__ = __eq__ = __ne__ = __iter__ = __len__ = _no_words_yet
    __hash__ = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        return self.block.length

    # Word by word

    def __add__(self, other: TracedWords | Words | np.uint64) -> TracedWords:
        return self._with(other, Operation.ADD, Operation.ADD_NUMBER)

    def __sub__(self, other: TracedWords) -> TracedWords:
        return self._with(other, Operation.SUBTRACT, None)

    def __rsub__(self, other: Words) -> TracedWords:
        return -self + other

    def __mul__(self, other: TracedWords | Words | np.uint64) -> TracedWords:
        return self._with(other, Operation.MULTIPLY, Operation.MULTIPLY_NUMBER)

    def __xor__(self, other: TracedWords | Words | np.uint64) -> TracedWords:
        return self._with(other, Operation.EXCLUSIVE_OR, Operation.XOR_NUMBER)

    def __and__(self, other: TracedWords | Words | np.uint64) -> TracedWords:
        return self._with(other, Operation.BOTH, Operation.AND_NUMBER)

    def __lshift__(self, bits: np.uint64) -> TracedWords:
        return self._with(bits, None, Operation.SHIFT_LEFT)

    def __rshift__(self, bits: np.uint64) -> TracedWords:
        return self._with(bits, None, Operation.SHIFT_RIGHT)

    def __neg__(self) -> TracedWords:
        return self * np.uint64(2**64 - 1)

    def __lt__(self, other: TracedWords) -> TracedWords:
        """One where our word is smaller as a number from 0 to 2^64 - 1, else zero."""
        return self._with(other, Operation.LESS_THAN, None)

    __radd__ = __add__
    __rmul__ = __mul__
    __rxor__ = __xor__

    def _with(
        self, other: TracedWords | Words | np.uint64, with_cells: Operation | None, with_number: Operation | None
    ) -> TracedWords:
        out = self.recording.memory(self.shape)
        if not isinstance(other, TracedWords) and np.ndim(other) == 0:
            if with_number is None:
                raise TypeError("there is no instruction for this operation with a number")
            self.recording.write(with_number, out.block, self.block, _signed(int(other)), self.size)
            return out
        if not isinstance(other, TracedWords):
            other = self.recording.constant(np.broadcast_to(other, self.shape))
        if with_cells is None:
            raise TypeError("there is no instruction for this operation with an array")
        _check(other.shape == self.shape, f"shapes differ: {self.shape} and {other.shape}")
        self.recording.write(with_cells, out.block, self.block, other.block, self.size)
        return out

    # Moving words

    def reshape(self, *shape: int) -> TracedWords:
        """The same words in another shape, which must be as large."""
        _check(prod(shape) == self.size, f"{self.size} words have no shape {shape}")
        return TracedWords(self.recording, self.block, shape)

    def take(self, index: Index, axis: int = -1) -> TracedWords:
        """Gather along the last axis by a fixed index."""
        _check(axis == -1, "words are taken along the last axis")
        length = self.shape[-1]
        _check(not index.size or 0 <= index.min() <= index.max() < length, f"an index is not among {length} columns")
        out = self.recording.memory((*self.shape[:-1], *index.shape))
        places = self.recording.constant(index.astype(np.uint64))
        rows = prod(self.shape[:-1])
        self.recording.write(Operation.TAKE, out.block, self.block, places.block, rows, length, places.size)
        return out

    def unpack(self, count: int, bits: int) -> TracedWords:
        """The `count` fields of packed words [*rows, words], each in the top `bits` bits of a word of its own."""
        _check(self.shape[-1] == packed_words(count, bits), f"{count} fields do not fill rows of {self.shape}")
        out = self.recording.memory((*self.shape[:-1], count))
        self.recording.write(Operation.UNPACK, out.block, self.block, prod(self.shape[:-1]), count, bits)
        return out

    def pick(self, index: TracedWords) -> TracedWords:
        """Gather items by an index that only the run knows: of [*rows, items, *item] by [*rows, picked]."""
        *rows, picked = index.shape
        _check(
            len(self.shape) > len(rows) and self.shape[: len(rows)] == tuple(rows),
            f"an index of shape {index.shape} picks nothing from {self.shape}",
        )
        items, item = self.shape[len(rows)], self.shape[len(rows) + 1 :]
        out = self.recording.memory((*rows, picked, *item))
        self.recording.write(Operation.PICK, out.block, self.block, index.block, prod(rows), items, prod(item), picked)
        return out

    def pick_one(self, index: TracedWords) -> TracedWords:
        """One item of each row: of [*rows, items, *item] by [*rows]."""
        item = self.shape[len(index.shape) + 1 :]
        return self.pick(index.reshape(*index.shape, 1)).reshape(*index.shape, *item)

    def columns(self, first: int, count: int) -> TracedWords:
        """Neighbouring columns of the last axis."""
        _check(0 <= first <= first + count <= self.shape[-1], f"{self.shape} has no columns {first} to {first + count}")
        out = self.recording.memory((*self.shape[:-1], count))
        rows = prod(self.shape[:-1])
        self.recording.write(Operation.COPY_BLOCK, out.block, count, 0, self.block, self.shape[-1], first, rows, count)
        return out

    def padded(self, before: int, after: int) -> TracedWords:
        """With columns of zeros on both sides of the last axis."""
        own = self.shape[-1]
        zeros = self.recording.memory((*self.shape[:-1], before + own + after))
        self.recording.write(Operation.FILL, zeros.block, 0, zeros.size)
        rows = prod(self.shape[:-1])
        self.recording.write(Operation.COPY_BLOCK, zeros.block, zeros.shape[-1], before, self.block, own, 0, rows, own)
        return zeros

    def argsort(self, axis: int = -1, kind: str = "stable") -> TracedWords:
        """The stable order of the words along the last axis."""
        _check(axis == -1 and kind == "stable", "words are sorted along the last axis, stably")
        out = self.recording.memory(self.shape)
        self.recording.write(Operation.SORT_ORDER, out.block, self.block, prod(self.shape[:-1]), self.shape[-1])
        return out

    def unit(self, length: int) -> TracedWords:
        """A unit vector of this length for each of our words, which say where the one is."""
        out = self.recording.memory((*self.shape, length))
        self.recording.write(Operation.UNIT, out.block, self.block, self.size, length)
        return out

    # What a party does with opened words; the operations are explained where they are used.

    def split_truncated(self, bits: int) -> tuple[TracedWords, TracedWords]:
        delta, sign = self.recording.memory(self.shape), self.recording.memory(self.shape)
        self.recording.write(Operation.SPLIT_TRUNCATED, delta.block, sign.block, self.block, bits, self.size)
        return delta, sign

    def look_up_chunks(self, tables: TracedWords, widths: tuple[int, ...], constant: bool) -> TracedWords:
        words = sum(map(table_words, widths))
        _check(tables.shape == (*self.shape, words), f"tables {tables.shape} are not those of words {self.shape}")
        out, places = self.recording.memory(self.shape), self.recording.constant(np.array(widths, np.uint64))
        arguments = (places.block, len(widths), words, int(constant), self.size)
        self.recording.write(Operation.LOOK_UP_CHUNKS, out.block, self.block, tables.block, *arguments)
        return out

    def combine_chunks(self, products: TracedWords, chunks: int) -> TracedWords:
        heaps = (*self.shape, heap_words(chunks))
        _check(products.shape == heaps, f"shapes differ: {products.shape} and {heaps}")
        out = self.recording.memory(self.shape)
        self.recording.write(Operation.COMBINE_CHUNKS, out.block, self.block, products.block, chunks, self.size)
        return out

    def look_up_payloads(self, top: TracedWords, nodes: TracedWords, chunks: int) -> TracedWords:
        heaps = (*self.shape, 2 * (2**chunks - 1))
        _check(top.shape == self.shape and nodes.shape == heaps, f"shapes differ: {nodes.shape} and {heaps}")
        out = self.recording.memory(self.shape)
        places = out.block, self.block, top.block, nodes.block
        self.recording.write(Operation.LOOK_UP_PAYLOADS, *places, chunks, self.size)
        return out

    def collect_payloads(self, eligible: TracedWords) -> TracedWords:
        items = eligible.shape[-1]
        pairs = (*eligible.shape[:-1], items * (items - 1) // 2)
        _check(self.shape == pairs, f"shapes differ: {self.shape} and {pairs}")
        out, rows = self.recording.memory(eligible.shape), prod(eligible.shape[:-1])
        places = out.block, self.block, eligible.block
        self.recording.write(Operation.COLLECT_PAYLOADS, *places, rows, items)
        return out

    def winners(self, sizes: tuple[int, ...]) -> TracedWords:
        out = self.recording.memory((*self.shape[:-1], len(sizes)))
        groups = self.recording.constant(np.array(sizes, np.uint64))
        rows = prod(self.shape[:-1])
        self.recording.write(Operation.WINNERS, out.block, self.block, groups.block, rows, groups.size, self.shape[-1])
        return out


def _check(fits: bool, otherwise: str) -> None:
    """The machine checks its memory, not whose words lie there: a place must be as large as its instruction says."""
    if not fits:
        raise ValueError(otherwise)


def table_words(bits: int) -> int:
    """The words of a truth table with an entry for every value of so many bits."""
    return 1 << max(0, bits - 6)


def heap_words(chunks: int) -> int:
    """The words of two heaps of bits, each with as many depths as a comparison has chunks: up to five, both lie in one
    word."""
    return 1 if chunks <= 5 else 2


def _signed(number: int) -> int:
    """A word as the machine's code holds it."""
    return number - 2**64 if number >= 2**63 else number


# Programs are typed as if their words were arrays; what follows is for operations that arrays do not have, or that only
# parties need. They get `TracedWords` where their types say words.


def contract(plan: ContractionPlan, batch: int, operands: list[Words]) -> Words:
    """The sum of a plan's terms: [batch, out_length]."""
    cells = [as_cells(operand) for operand in operands]
    return as_words(cells[0].recording.contract(plan, batch, cells))


def pick(words: Words, index: Words) -> Words:
    """See `TracedWords.pick`."""
    return as_words(as_cells(words).pick(as_cells(index)))


def pick_one(words: Words, index: Words) -> Words:
    """See `TracedWords.pick_one`."""
    return as_words(as_cells(words).pick_one(as_cells(index)))


def columns(words: Words, first: int, count: int) -> Words:
    """See `TracedWords.columns`."""
    return as_words(as_cells(words).columns(first, count))


def unit_vectors(positions: Words, length: int) -> Words:
    """A unit vector for each position: [*positions, length]."""
    return as_words(as_cells(positions).unit(length))


def winning_slots(less: Words, sizes: tuple[int, ...]) -> Words:
    """The slot of the maximum of each group, from the opened bits "key i < key j" of all pairs within groups. That the
    bits are those of an order is checked."""
    return as_words(as_cells(less).winners(sizes))


def split_truncated(opened: Words, bits: int) -> tuple[Words, Words]:
    """The public part of a truncation: a word and a sign."""
    delta, sign = as_cells(opened).split_truncated(bits)
    return as_words(delta), as_words(sign)


def look_up_chunks(opened: Words, tables: Words, widths: tuple[int, ...], constant: bool) -> Words:
    """Shares of the bits "less" and "equal" of all tables at the public chunks of opened words. One party adds a
    constant."""
    return as_words(as_cells(opened).look_up_chunks(as_cells(tables), widths, constant))


def combine_chunks(opened: Words, products: Words, chunks: int) -> Words:
    """Shares of the borrow, from masked bits and dealt products."""
    return as_words(as_cells(opened).combine_chunks(as_cells(products), chunks))


def look_up_payloads(opened: Words, top: Words, nodes: Words, chunks: int) -> Words:
    """Shares of the payloads of comparisons, from masked bits and dealt words."""
    return as_words(as_cells(opened).look_up_payloads(as_cells(top), as_cells(nodes), chunks))


def collect_payloads(words: Words, eligible: Words) -> Words:
    """For each item, its halves of the words of all pairs of eligible items, exclusive-ored."""
    return as_words(as_cells(words).collect_payloads(as_cells(eligible)))


def as_cells(words: Words) -> TracedWords:
    """A party's words, while its program is recorded."""
    assert isinstance(words, TracedWords)
    return words


def as_words(cells: TracedWords) -> Words:
    """TracedWords, as programs know them."""
    return cast(Words, cells)
