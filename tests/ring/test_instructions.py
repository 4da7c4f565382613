"""Every instruction of the machine against Python integers, and code that is refused before it reaches anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiddenarm.ring._kernels import OPERATIONS, execute
from hiddenarm.ring.contraction import ContractionPlan, Factor, Term
from plain_machine import PLACE_BITS, WITH_NUMBER, WORD_BY_WORD, Banks, perform
from support import plain_bytes, unsigned_words

EDGES = [0, 1, 2, 63, 64, 2**31, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
word = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**64 - 1))
few = st.integers(0, 4)
GUARD = 5
"""Words on both sides of each bank, which no code may touch. Half of the cases have none: there a sanitizer sees what
goes beyond a bank."""
GUARD_WORD = 0xA5A5_5A5A


class Place(int):
    """An argument that names a place."""


class Room(Place):
    """The place of a result."""


@dataclass
class Given:
    """One instruction and all it is given; words lie anywhere in their banks, apart from each other."""

    draw: st.DrawFn
    banks: list[list[int]] = field(default_factory=lambda: [[], [], []])
    messages: list[bytes | None] = field(default_factory=list)
    name: str = ""
    guard: int = 0
    arguments: list[int] = field(default_factory=list)

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def words(self, words: list[int]) -> int:
        """Words that are there, in any bank; their place."""
        bank = self.number(0, 2)
        self.banks[bank] += [7] * self.number(0, 3)
        place = Place(bank << PLACE_BITS | len(self.banks[bank]))
        self.banks[bank] += words
        return place

    def any_words(self, count: int, values: st.SearchStrategy[int] = word) -> int:
        return self.words(self.draw(st.lists(values, min_size=count, max_size=count)))

    def room(self, count: int) -> int:
        """A place for the result."""
        self.banks[0] += [8] * self.number(0, 3)
        self.banks[0] += [9] * count
        return Room(len(self.banks[0]) - count)

    def message(self, words: list[int], bits: int) -> int:
        """A message with these words in it; where they begin."""
        before, after = (self.draw(st.binary(max_size=5)) for _ in range(2))
        self.messages.append(before + plain_bytes(unsigned_words(words), bits) + after)
        return len(before)

    def exchange(self, count: Callable[[int], int], bits: int) -> tuple[int, list[int]]:
        """Messages of all parties but one with so many words in each; whose is missing, and where words begin."""
        parties = self.number(1, 4)
        me = self.number(0, parties - 1)
        starts = []
        for party in range(parties):
            if party == me:
                self.messages.append(None)
                starts.append(self.number(0, 9))
            else:
                values = st.lists(st.integers(0, 2**bits - 1), min_size=count(party), max_size=count(party))
                starts.append(self.message(self.draw(values), bits))
        return me, starts

    def code(self) -> list[int]:
        return [OPERATIONS.index(self.name), len(self.arguments), *self.arguments]


def word_by_word(at: Given) -> list[int]:
    count = at.number(0, 9)
    return [at.room(count), at.any_words(count), at.any_words(count), count]


def with_number(at: Given) -> list[int]:
    count = at.number(0, 9)
    number = at.draw(st.one_of(word, st.integers(0, 66)))
    return [at.room(count), at.any_words(count), number - 2**64 if number >= 2**63 else number, count]


def fill(at: Given) -> list[int]:
    count = at.number(0, 9)
    return [at.room(count), at.number(-(2**63), 2**63 - 1), count]


def copy_block(at: Given) -> list[int]:
    rows, columns = at.number(0, 3), at.number(0, 3)
    out_first, x_first = at.number(0, 2), at.number(0, 2)
    out_row, x_row = out_first + columns + at.number(0, 2), x_first + columns + at.number(0, 2)
    return [at.room(rows * out_row), out_row, out_first, at.any_words(rows * x_row), x_row, x_first, rows, columns]


def take(at: Given) -> list[int]:
    rows, length, taken = at.number(0, 3), at.number(1, 4), at.number(0, 6)
    index = at.any_words(taken, st.integers(0, length - 1))
    return [at.room(rows * taken), at.any_words(rows * length), index, rows, length, taken]


def unpack(at: Given) -> list[int]:
    rows, count, bits = at.number(0, 3), at.number(0, 7), at.number(1, 64)
    packed = -(-count // (64 // bits))
    return [at.room(rows * count), at.any_words(rows * packed), rows, count, bits]


def pick(at: Given) -> list[int]:
    rows, items, width, picked = at.number(0, 3), at.number(1, 4), at.number(0, 3), at.number(0, 4)
    index = at.any_words(rows * picked, st.integers(0, items - 1))
    return [at.room(rows * picked * width), at.any_words(rows * items * width), index, rows, items, width, picked]


def unit(at: Given) -> list[int]:
    rows, length = at.number(0, 4), at.number(1, 5)
    return [at.room(rows * length), at.any_words(rows, st.integers(0, length - 1)), rows, length]


def sort_order(at: Given) -> list[int]:
    rows, length = at.number(0, 3), at.number(0, 9)
    values = at.draw(st.sampled_from([word, st.integers(0, 2), st.sampled_from(EDGES)]))
    return [at.room(rows * length), at.any_words(rows * length, values), rows, length]


def contract(at: Given) -> list[int]:
    sizes = {index: at.number(0, 3) for index in "abc"}
    batch, axes = at.number(0, 3), st.lists(st.sampled_from("abc"), unique=True, max_size=3).map("".join)
    factors = at.draw(st.lists(axes, min_size=1, max_size=4))
    lengths = [int(np.prod([sizes[index] for index in indices], dtype=int)) for indices in factors]
    used = sorted(set("".join(factors)))
    output = "".join(at.draw(st.permutations(used))[: at.number(0, len(used))])
    out_row = int(np.prod([sizes[index] for index in output], dtype=int)) + 1
    terms = [
        Term(tuple(Factor(place, indices) for place, indices in enumerate(factors)), output, offset, negative)
        for offset, negative in at.draw(st.sampled_from([[(0, False)], [(1, True)], [(0, True), (1, False)], []]))
    ]
    plan = ContractionPlan(sizes, out_row, lengths, terms).words.tolist()
    plan_place = at.words([number % 2**64 for number in plan])
    operands = [number for length in lengths for number in (at.any_words(batch * length), batch * length)]
    return [at.room(batch * out_row), batch * out_row, plan_place, len(plan), batch, len(lengths), *operands]


def split_truncated(at: Given) -> list[int]:
    count = at.number(0, 9)
    return [at.room(count), at.room(count), at.any_words(count), at.number(0, 62), count]


def look_up_chunks(at: Given) -> list[int]:
    count, widths = at.number(0, 4), at.draw(st.lists(st.integers(1, 8), min_size=1, max_size=6))
    words = sum(max(1, 2**width // 64) for width in widths)
    places = at.any_words(count), at.any_words(count * words), at.words(widths)
    return [at.room(count), *places, len(widths), words, at.number(0, 1), count]


def combine_chunks(at: Given) -> list[int]:
    count, chunks = at.number(0, 4), at.number(1, 6)
    opened = at.any_words(count, st.integers(0, 2 ** (2 * chunks - 1) - 1))
    return [at.room(count), opened, at.any_words((1 if chunks <= 5 else 2) * count), chunks, count]


def look_up_payloads(at: Given) -> list[int]:
    count, chunks = at.number(0, 3), at.number(1, 5)
    opened = at.any_words(count, st.integers(0, 2 ** (2 * chunks - 1) - 1))
    nodes = at.any_words(2 * (2**chunks - 1) * count)
    return [at.room(count), opened, at.any_words(count), nodes, chunks, count]


def collect_payloads(at: Given) -> list[int]:
    rows, items = at.number(0, 3), at.number(2, 5)
    words, eligible = at.any_words(rows * items * (items - 1) // 2), at.any_words(rows * items)
    return [at.room(rows * items), words, eligible, rows, items]


def winners(at: Given) -> list[int]:
    rows, sizes = at.number(0, 3), at.draw(st.lists(st.one_of(st.integers(1, 4), st.just(63)), max_size=3))
    less = []
    for _ in range(rows):
        for size in sizes:
            keys = at.draw(st.permutations(range(size)))
            less += [int(keys[i] < keys[j]) for i in range(size) for j in range(i + 1, size)]
    pairs = sum(size * (size - 1) // 2 for size in sizes)
    return [at.room(rows * len(sizes)), at.words(less), at.words(sizes), rows, len(sizes), pairs]


def send_words(at: Given) -> list[int]:
    count = at.number(0, 20)
    return [at.any_words(count), at.number(1, 64), count]


def open_sum(at: Given) -> list[int]:
    count, bits = at.number(0, 20), at.number(1, 64)
    me, starts = at.exchange(lambda _: count, bits)
    own = at.any_words(count, st.integers(0, 2**bits - 1))
    return [at.room(count), own, bits, count, at.number(0, 1), me, *starts]


def open_columns(at: Given) -> list[int]:
    rows, columns = at.number(0, 3), at.draw(st.lists(few, min_size=4, max_size=4))
    me, starts = at.exchange(lambda party: rows * columns[party], 64)
    columns = columns[: len(starts)]
    places = [number for pair in zip(columns, starts, strict=True) for number in pair]
    return [at.room(rows * sum(columns)), at.any_words(rows * columns[me]), rows, me, *places]


WAYS: dict[str, Callable[[Given], list[int]]] = {
    **dict.fromkeys(WORD_BY_WORD, word_by_word),
    **dict.fromkeys(WITH_NUMBER, with_number),
    **{
        way.__name__: way
        for way in (
            fill,
            copy_block,
            take,
            unpack,
            pick,
            unit,
            sort_order,
            contract,
            split_truncated,
            look_up_chunks,
            combine_chunks,
            look_up_payloads,
            collect_payloads,
            winners,
            send_words,
            open_sum,
            open_columns,
        )
    },
}


@st.composite
def instructions(draw: st.DrawFn, name: str) -> Given:
    """An instruction that fits what it is given."""
    at = Given(draw, name=name, guard=draw(st.sampled_from([GUARD, 0])))
    at.arguments = WAYS[name](at)
    return at


def test_every_instruction_is_tried() -> None:
    assert set(WAYS) == set(OPERATIONS)


class Machine:
    """The compiled machine on banks that are parts of larger arrays."""

    def __init__(self, at: Given) -> None:
        self._guard = at.guard
        self._arrays = [np.full(len(bank) + 2 * at.guard, GUARD_WORD, np.uint64) for bank in at.banks]
        self.banks = tuple(array[at.guard : len(array) - at.guard] for array in self._arrays)
        self._start = [unsigned_words(bank) for bank in at.banks]
        self.restart()
        # Messages begin anywhere, too.
        pad = at.guard * b"\xff"
        self.received = tuple(
            None if message is None else np.array([*pad, *message, *pad], np.uint8)[at.guard : at.guard + len(message)]
            for message in at.messages
        )
        self.sent_length = len(perform(at.name, at.arguments, Banks(at.banks))) if at.name == "send_words" else 0

    def restart(self) -> None:
        for bank, words in zip(self.banks, self._start, strict=True):
            bank[:] = words

    def run(self, code: list[int]) -> bytes:
        return execute(np.array(code, np.int64), 0, len(code), self.banks, self.received, self.sent_length)  # type: ignore[arg-type]

    def check(self) -> None:
        """Nothing but bank 0 has changed."""
        for array in self._arrays:
            assert (array[: self._guard] == GUARD_WORD).all()
            assert (array[len(array) - self._guard :] == GUARD_WORD).all()
        for bank, words in zip(self.banks[1:], self._start[1:], strict=True):
            assert np.array_equal(bank, words)

    def refuses(self, code: list[int]) -> bool:
        """Run code that may be wrong: it is refused, or does something within its memory."""
        self.restart()
        refused = False
        try:
            self.run(code)
        except (ValueError, ArithmeticError):
            refused = True
        self.check()
        return refused


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
def test_an_instruction_is_its_definition(name: str, data: st.DataObject) -> None:
    at = data.draw(instructions(name))
    machine, plain = Machine(at), Banks(at.banks)
    expected = perform(name, at.arguments, plain, at.messages)
    assert machine.run(at.code()) == expected
    assert machine.banks[0].tolist() == plain.banks[0]  # all words, so also those between
    machine.check()


@pytest.mark.parametrize("bits", range(1, 65))
@given(data=st.data())
@settings(max_examples=12)
def test_words_of_every_width_there_and_back(bits: int, data: st.DataObject) -> None:
    """Several blocks in one message: each begins where the one before has ended, at any alignment."""
    some_words = st.lists(st.integers(0, 2**bits - 1), max_size=17)
    blocks = data.draw(st.lists(some_words, min_size=1, max_size=3))
    prefix = data.draw(st.lists(st.integers(0, 255), max_size=3))
    words = unsigned_words([*prefix, *(word for block in blocks for word in block)])
    code, first, starts, sent = [OPERATIONS.index("send_words"), 3, 0, 8, len(prefix)], len(prefix), [], bytes(prefix)
    for block in blocks:
        code += [OPERATIONS.index("send_words"), 3, first, bits, len(block)]
        starts.append(len(sent))
        sent += plain_bytes(unsigned_words(block), bits)
        first += len(block)
    assert execute(np.array(code, np.int64), 0, len(code), (words,), (), len(sent)) == sent
    for xor in (0, 1):
        out, own = np.zeros(len(words), np.uint64), words[::-1].copy()
        code, first = [], 0
        for block, start in zip(blocks, starts, strict=True):
            place, mine = first, 1 << PLACE_BITS | first
            code += [OPERATIONS.index("open_sum"), 8, place, mine, bits, len(block), xor, 0, 0, start]
            first += len(block)
        assert execute(np.array(code, np.int64), 0, len(code), (out, own), (None, sent), 0) == b""
        there = words[len(prefix) :]
        assert np.array_equal(out[: len(there)], own[: len(there)] ^ there if xor else own[: len(there)] + there)


# ---- Refusals

WRONG = [-(2**63), -(2**48) - 1, -1, 0, 1, 2, 3, 5, 7, 8, 62, 63, 64, 65, 1000]
WRONG += [2**31, 2**32, 2**47, 2**48 - 1, 2**48, 2**48 + 1, 2 << 48, 3 << 48, 2**59, 2**60, 2**61, 2**62 - 1, 2**62]
WRONG += [2**63 - 5, 2**63 - 1]


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
@settings(max_examples=12)
def test_no_spoilt_instruction_leaves_its_memory(name: str, data: st.DataObject) -> None:
    """Any word of good code is put to many values: it is refused, or writes inside bank 0 only."""
    at = data.draw(instructions(name))
    machine, good = Machine(at), at.code()
    assert not machine.refuses(good)
    for position in range(len(good)):
        for value in [*WRONG, good[position] - 1, good[position] + 1]:
            machine.refuses([*good[:position], value, *good[position + 1 :]])


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
@settings(max_examples=25)
def test_places_outside_their_bank_are_refused(name: str, data: st.DataObject) -> None:
    at = data.draw(instructions(name))
    machine, good = Machine(at), at.code()
    for position, argument in enumerate(at.arguments, start=2):
        if not isinstance(argument, Place):
            continue
        bank = argument >> PLACE_BITS
        wrong = [bank << PLACE_BITS | len(at.banks[bank]) + 1, (bank + 1 << PLACE_BITS) - 1, 3 << PLACE_BITS, -1]
        if isinstance(argument, Room):
            wrong += [1 << PLACE_BITS, 2 << PLACE_BITS]  # what is only read
        for place in wrong:
            assert machine.refuses([*good[:position], place, *good[position + 1 :]])


@given(data=st.data())
@settings(max_examples=300)
def test_no_spoilt_code_leaves_its_memory(data: st.DataObject) -> None:
    """Several words of code and of what lies in the banks (indices, plans, sizes of groups) are spoilt together."""
    at = data.draw(instructions(data.draw(st.sampled_from(OPERATIONS))))
    code = at.code()
    spoilt = st.one_of(st.sampled_from(WRONG), st.integers(-4, 20), st.sampled_from(code))
    for bank in at.banks:
        if bank:
            for position in data.draw(st.lists(st.integers(0, len(bank) - 1), max_size=3)):
                bank[position] = data.draw(spoilt) % 2**64
    machine = Machine(at)
    for position in data.draw(st.lists(st.integers(2, len(code) - 1), min_size=1, max_size=3)):
        code[position] = data.draw(spoilt)
    machine.refuses(code)


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
@settings(max_examples=5)
def test_code_of_the_wrong_length_is_refused(name: str, data: st.DataObject) -> None:
    at = data.draw(instructions(name))
    machine, good = Machine(at), at.code()
    for length in range(1, len(good)):
        assert machine.refuses(good[:length])
    assert machine.refuses([*good, 0])  # half an instruction
    assert machine.refuses([good[0], good[1] + 1, *good[2:], 0])  # one argument too many
    assert machine.refuses([good[0], good[1] - 1, *good[2:-1]])  # one too few
    assert machine.refuses([len(OPERATIONS), *good[1:]])
    assert machine.refuses([-1, *good[1:]])


def run(code: list[int], *banks: np.ndarray, received: tuple[bytes | None, ...] = (), sent: int = 0) -> bytes:
    return execute(np.array(code, np.int64), 0, len(code), banks, received, sent)


def test_only_the_asked_part_of_code_runs() -> None:
    fills = [number for place in range(4) for number in (OPERATIONS.index("fill"), 3, place, 1, 1)]
    memory = np.zeros(4, np.uint64)
    execute(np.array(fills, np.int64), 5, 15, (memory,), (), 0)
    assert memory.tolist() == [0, 1, 1, 0]
    for first, last in ((-5, 5), (5, 0), (0, 21), (0, 2**62), (-(2**63), 2**63 - 1), (0, 4), (1, 6)):
        with pytest.raises(ValueError, match="do not fit"):
            execute(np.array(fills, np.int64), first, last, (memory,), (), 0)


@pytest.mark.parametrize("bits", [1, 7, 8, 13, 16, 25, 32, 40, 64])
@pytest.mark.parametrize("name", ["open_sum", "open_columns"])
def test_messages_that_are_too_short_are_refused(name: str, bits: int) -> None:
    count, start = 9, 2
    if name == "open_columns":
        bits = 64
    size = start + len(plain_bytes(np.zeros(count, np.uint64), bits))
    arguments = (
        [0, 1 << 48, bits, count, 0, 0, 0, start, start] if name == "open_sum" else [0, 1 << 48, 3, 0] + 3 * [3, start]
    )
    code = [OPERATIONS.index(name), len(arguments), *arguments]
    memory, own = np.zeros(27, np.uint64), np.zeros(9, np.uint64)
    good = bytes(size)
    run(code, memory, own, received=(None, good, good))
    run(code, memory, own, received=(None, good, good + b"more"))  # lengths are checked where messages come in
    for short in (good[:-1], good[:start], b"", None):
        with pytest.raises(ValueError, match="do not fit"):
            run(code, memory, own, received=(None, good, short))
        with pytest.raises(ValueError, match="do not fit"):
            run(code, memory, own, received=(None, short, good))
    for others in ((None, good), (None, good, good, good), (good, None, good)):
        with pytest.raises(ValueError, match="do not fit"):
            run(code, memory, own, received=others)


@pytest.mark.parametrize("bits", [1, 8, 64])
@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_what_is_sent_must_be_as_long_as_declared(bits: int, off: int) -> None:
    words = np.arange(9, dtype=np.uint64)
    size = len(plain_bytes(words, bits))
    code = [OPERATIONS.index("send_words"), 3, 0, bits, 9]
    assert len(run(code, words, sent=size)) == size
    with pytest.raises(ValueError, match="do not fit"):
        run(code, words, sent=size + off)
    with pytest.raises(ValueError, match="do not fit"):
        run(code, words, sent=-1)


def test_results_may_not_fall_on_what_was_checked() -> None:
    """Indices and sizes of groups are checked once, then used for every row: they must not change meanwhile."""
    memory = unsigned_words([0, 1, 2**63, 2**63, 5, 6, 0, 0, 0, 0])
    for out in (0, 1):
        with pytest.raises(ValueError, match="do not fit"):
            run([OPERATIONS.index("take"), 6, out, 2, 0, 2, 2, 2], memory)  # rows of two, indices 0 and 1
    run([OPERATIONS.index("take"), 6, 6, 2, 0, 2, 2, 2], memory)
    assert memory[6:].tolist() == [2**63, 2**63, 5, 6]
    memory = unsigned_words([1, 1, 9, 9])
    with pytest.raises(ValueError, match="do not fit"):
        run([OPERATIONS.index("winners"), 6, 0, 2, 0, 2, 2, 0], memory)  # two groups of one
    run([OPERATIONS.index("winners"), 6, 2, 2, 0, 1, 2, 0], memory)
    assert memory.tolist() == [1, 1, 0, 1]


def test_code_may_not_lie_in_memory() -> None:
    memory = np.zeros(16, np.int64)
    memory[4:9] = [OPERATIONS.index("fill"), 3, 0, 2**62, 9]
    for first, last in ((0, 16), (4, 16), (8, 16)):
        with pytest.raises(ValueError, match="do not fit"):
            execute(memory[4:9], 0, 5, (memory[first:last],), (), 0)  # type: ignore[arg-type]


def test_huge_counts_of_nothing_end_at_once() -> None:
    """Rows of no words may be as many as they like."""
    memory, many = np.zeros(4, np.uint64), 2**62
    plan = ContractionPlan({"i": 0}, 0, [0], [Term((Factor(0, "i"),), "i")]).words.view(np.uint64)
    run([OPERATIONS.index("copy_block"), 8, 0, 0, 0, 0, 0, 0, many, 0], memory)
    run([OPERATIONS.index("take"), 6, 0, 0, 0, many, 0, 0], memory)
    run([OPERATIONS.index("pick"), 7, 0, 0, 0, many, 0, 0, 0], memory)
    run([OPERATIONS.index("sort_order"), 4, 0, 0, many, 0], memory)
    run([OPERATIONS.index("sort_order"), 4, 0, 0, 0, many], memory)
    run([OPERATIONS.index("winners"), 6, 0, 0, 0, many, 0, 0], memory)
    run([OPERATIONS.index("open_columns"), 6, 0, 0, many, 0, 0, 0], memory, received=(None,))
    run([OPERATIONS.index("contract"), 8, 0, 0, 1 << 48, len(plan), many, 1, 0, 0], memory, plan)
    assert not memory.any()


def test_comparisons_that_are_no_order_are_told_apart_from_wrong_code() -> None:
    less, sizes = unsigned_words([0, 1, 1, 0, 1]), unsigned_words([2, 3])
    code = [OPERATIONS.index("winners"), 6, 0, 1 << 48, 2 << 48, 1, 2, 4]
    memory = np.zeros(2, np.uint64)
    run(code, memory, less[:4].copy(), sizes)  # 0 > 1;  2 < 3, 2 < 4, 3 > 4
    assert memory.tolist() == [0, 3]
    with pytest.raises(ArithmeticError, match="no order"):
        run(code, memory, less[1:].copy(), sizes)  # 2 < 3 < 4 < 2
    for size in (0, 64, 2**63, 2**64 - 1):
        with pytest.raises(ValueError, match="do not fit"):
            run(code, memory, less[:4].copy(), unsigned_words([size, 3]))


@pytest.mark.parametrize(
    "bank",
    [
        np.zeros(4, np.float64),
        np.zeros(4, np.uint32),
        np.zeros(4, object),
        np.zeros(4, ">u8"),
        np.zeros(4, "M8[s]"),
        np.zeros(4, np.complex64),
        np.zeros(8, np.uint64)[::2],
        np.zeros(33, np.uint8)[1:].view(np.uint64),
        np.frombuffer(bytes(32), np.uint64),
    ],
    ids=["floats", "narrow", "objects", "big-endian", "dates", "complex", "strided", "unaligned", "read-only"],
)
def test_memory_is_words_that_may_be_written(bank: np.ndarray) -> None:
    with pytest.raises((ValueError, BufferError)):
        run([OPERATIONS.index("fill"), 3, 0, 1, 1], bank)


def test_the_other_banks_may_be_read_only() -> None:
    memory, fixed = np.zeros(4, np.uint64), np.frombuffer(bytes([5] * 32), np.uint64)
    run([OPERATIONS.index("add"), 4, 0, 1 << 48, 1 << 48, 4], memory, fixed)
    assert memory.tolist() == [0x0A0A0A0A0A0A0A0A] * 4
    with pytest.raises(ValueError, match="8 bytes"):
        run([OPERATIONS.index("add"), 4, 0, 1 << 48, 1 << 48, 4], memory, np.zeros(4, np.uint32))


def test_calls_of_the_wrong_kind_are_refused() -> None:
    code, memory = np.zeros(0, np.int64), np.zeros(1, np.uint64)
    assert execute(code, 0, 0, (memory,) * 16, (None,) * 256, 0) == b""
    calls: list[Callable[[], bytes]] = [
        lambda: execute(code, 0, 0, (memory,) * 17, (), 0),
        lambda: execute(code, 0, 0, (memory,), (None,) * 257, 0),
        lambda: execute(code, 0, 0, [memory], (), 0),  # type: ignore[arg-type]
        lambda: execute(code, 0, 0, (memory,), [], 0),  # type: ignore[arg-type]
        lambda: execute(code, 0, 0, (memory,), ()),  # type: ignore[call-arg]
        lambda: execute(code, 0, "0", (memory,), (), 0),  # type: ignore[arg-type]
        lambda: execute(code, 0, 0, (memory,), ("text",), 0),  # type: ignore[arg-type]
        lambda: execute(None, 0, 0, (memory,), (), 0),  # type: ignore[arg-type]
        lambda: execute(code, 0, 0, (memory, None), (), 0),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(OverflowError):
        execute(code, 0, 2**63, (memory,), (), 0)
    with pytest.raises(ValueError, match="do not fit"):
        run([OPERATIONS.index("fill"), 3, 0, 1, 0])  # no bank at all
