"""The instructions of the machine once more, each as its definition on Python integers: what the compiled ones are
compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, Protocol

from support import plain_bytes, unsigned_words

RING = 2**64
PLACE_BITS = 48


class Store(Protocol):
    """Where words lie. A place is whatever the instructions at hand name places by."""

    def read(self, place: Any, count: int) -> list[int]: ...

    def write(self, place: Any, words: list[int]) -> None: ...


class Banks:
    """Words by bank and position, as the machine's code names them."""

    def __init__(self, banks: Sequence[Sequence[int]]) -> None:
        self.banks = [list(map(int, bank)) for bank in banks]

    def read(self, place: int, count: int) -> list[int]:
        bank, first = place >> PLACE_BITS, place % 2**PLACE_BITS
        assert first + count <= len(self.banks[bank])
        return self.banks[bank][first : first + count]

    def write(self, place: int, words: list[int]) -> None:
        assert place + len(words) <= len(self.banks[0])
        self.banks[0][place : place + len(words)] = words


WORD_BY_WORD: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "exclusive_or": lambda x, y: x ^ y,
    "both": lambda x, y: x & y,
    "less_than": lambda x, y: int(x < y),
}
WITH_NUMBER: dict[str, Callable[[int, int], int]] = {
    "add_number": lambda x, y: x + y,
    "multiply_number": lambda x, y: x * y,
    "xor_number": lambda x, y: x ^ y,
    "and_number": lambda x, y: x & y,
    "shift_left": lambda x, y: x << y if y < 64 else 0,
    "shift_right": lambda x, y: x >> y if y < 64 else 0,
}


def perform(name: str, a: Sequence[Any], store: Store, received: Sequence[bytes | None] = ()) -> bytes:
    """Carry out one instruction; what it sends."""
    if name in WORD_BY_WORD:
        out, x, y, count = a
        pairs = zip(store.read(x, count), store.read(y, count), strict=True)
        store.write(out, [WORD_BY_WORD[name](*pair) % RING for pair in pairs])
    elif name in WITH_NUMBER:
        out, x, number, count = a
        store.write(out, [WITH_NUMBER[name](word, number % RING) % RING for word in store.read(x, count)])
    elif name == "send_words":
        x, bits, count = a
        return plain_bytes(unsigned_words([word % 2 if bits == 1 else word for word in store.read(x, count)]), bits)
    elif name in OPENING:
        OPENING[name](store, received, *a)
    else:
        OTHERS[name](store, *a)
    return b""


def _signed(word: int) -> int:
    return word - RING if word >= RING // 2 else word


def _rows(words: list[int], rows: int, length: int) -> list[list[int]]:
    assert len(words) == rows * length
    return [words[row * length : (row + 1) * length] for row in range(rows)]


def _flat(rows: Sequence[Sequence[int]]) -> list[int]:
    return [word for row in rows for word in row]


def _fill(store: Store, out: Any, number: int, count: int) -> None:
    store.write(out, [number % RING] * count)


def _copy_block(
    store: Store, out: Any, out_row: int, out_first: int, x: Any, x_row: int, x_first: int, rows: int, columns: int
) -> None:
    into = _rows(store.read(out, rows * out_row), rows, out_row)
    for row, words in zip(into, _rows(store.read(x, rows * x_row), rows, x_row), strict=True):
        row[out_first : out_first + columns] = words[x_first : x_first + columns]
    store.write(out, _flat(into))


def _take(store: Store, out: Any, x: Any, indices: Any, rows: int, length: int, taken: int) -> None:
    index = store.read(indices, taken)
    store.write(out, [row[k] for row in _rows(store.read(x, rows * length), rows, length) for k in index])


def _unpack(store: Store, out: Any, x: Any, rows: int, count: int, bits: int) -> None:
    packed = -(-count // (64 // bits))
    words = []
    for row in _rows(store.read(x, rows * packed), rows, packed):
        for k in range(count):
            field, word = divmod(k, packed)
            words.append(row[word] // 2 ** (field * bits) % 2**bits * 2 ** (64 - bits))
    store.write(out, words)


def _pick(store: Store, out: Any, x: Any, indices: Any, rows: int, items: int, width: int, picked: int) -> None:
    index = _rows(store.read(indices, rows * picked), rows, picked)
    words = []
    for row, wanted in zip(_rows(store.read(x, rows * items * width), rows, items * width), index, strict=True):
        for item in wanted:
            words += row[item * width : (item + 1) * width]
    store.write(out, words)


def _unit(store: Store, out: Any, slots: Any, rows: int, length: int) -> None:
    store.write(out, [int(slot == k) for slot in store.read(slots, rows) for k in range(length)])


def _sort_order(store: Store, out: Any, x: Any, rows: int, length: int) -> None:
    sorted_rows = [
        sorted(range(length), key=row.__getitem__) for row in _rows(store.read(x, rows * length), rows, length)
    ]
    store.write(out, _flat(sorted_rows))


def _contract(
    store: Store, out: Any, out_length: int, plan: Any, plan_length: int, batch: int, operands: int, *places: Any
) -> None:
    words = iter([_signed(word) for word in store.read(plan, plan_length)])

    def numbers(count: int) -> list[int]:
        return [next(words) for _ in range(count)]

    out_row, declared = numbers(2)
    lengths = numbers(operands)
    assert declared == operands
    arrays = [
        _rows(store.read(place, length), batch, row)
        for place, length, row in zip(places[::2], places[1::2], lengths, strict=True)
    ]
    totals = [[0] * out_row for _ in range(batch)]
    for _ in range(next(words)):
        sign, indices, factors = numbers(3)
        sizes = numbers(indices)
        target = numbers(1 + indices)
        sources = [numbers(2 + indices) for _ in range(factors)]
        for at, row in product(product(*map(range, sizes)), range(batch)):
            term = sign
            for operand, *steps in sources:
                term *= arrays[operand][row][_reached(steps, at)]
            totals[row][_reached(target, at)] += term
    assert not list(words)
    assert batch * out_row == out_length
    store.write(out, [word % RING for word in _flat(totals)])


def _reached(offset_and_strides: list[int], at: Sequence[int]) -> int:
    offset, *strides = offset_and_strides
    return offset + sum(stride * step for stride, step in zip(strides, at, strict=True))


def _split_truncated(store: Store, delta: Any, sign: Any, opened: Any, bits: int, count: int) -> None:
    words = store.read(opened, count)
    store.write(delta, [((word >> bits) - 2 ** (62 - bits)) % RING for word in words])
    store.write(sign, [0 if word >> 63 else RING - 1 for word in words])


def _look_up_chunks(
    store: Store,
    packed: Any,
    opened: Any,
    tables: Any,
    widths: Any,
    chunks: int,
    words_each: int,
    constant: int,
    count: int,
) -> None:
    """A table is one integer here. Equal are chunk and secret where the entry of the chunk differs from the one
    before; before the first there is a one, which one party adds."""
    bits, lengths = store.read(widths, chunks), []
    for width in bits:
        lengths.append(max(1, 2**width // 64))
    assert sum(lengths) == words_each
    words = []
    rows = _rows(store.read(tables, count * words_each), count, words_each)
    for word, row in zip(store.read(opened, count), rows, strict=True):
        less, equal = [], []
        for width, length in zip(bits, lengths, strict=True):
            table, row = _joined(row[:length]), row[length:]
            chunk, word = word % 2**width, word >> width
            less.append(table >> chunk & 1)
            equal.append(less[-1] ^ (table >> (chunk - 1) & 1 if chunk else constant))
        words.append(sum(bit << place for place, bit in enumerate(less + equal[1:])))
    store.write(packed, words)


def _combine_chunks(store: Store, bit: Any, opened: Any, products: Any, chunks: int, count: int) -> None:
    """Up to five chunks both heaps lie in one word, 32 bits each."""
    if chunks <= 5:
        heaps = [(word % 2**32, word >> 32) for word in store.read(products, count)]
    else:
        heaps = [(row[0], row[1]) for row in _rows(store.read(products, 2 * count), count, 2)]
    nodes = [
        ([first >> at & 1 for at in range(1, 2**chunks)], [second >> at & 1 for at in range(1, 2**chunks)])
        for first, second in heaps
    ]
    store.write(
        bit, [_at_opened(word, *both, chunks) for word, both in zip(store.read(opened, count), nodes, strict=True)]
    )


def _look_up_payloads(store: Store, out: Any, opened: Any, top: Any, nodes: Any, chunks: int, count: int) -> None:
    size, words = 2**chunks - 1, []
    rows = _rows(store.read(nodes, 2 * size * count), count, 2 * size)
    for word, above, row in zip(store.read(opened, count), store.read(top, count), rows, strict=True):
        found = _at_opened(word, row[:size], row[size:], chunks)
        words.append(found ^ row[0] if above % 2 else found)
    store.write(out, words)


def _at_opened(word: int, all_equal: list[int], times_mask: list[int], chunks: int) -> int:
    """Opened are the bits lt_j at places 0 to chunks - 1, then eq_1 to eq_(chunks - 1); a heap begins with the topmost
    chunk, its first node being node 1."""
    less = [word >> j & 1 for j in range(chunks)]
    equal = [word >> (chunks + j - 1) & 1 for j in range(1, chunks)]
    result = 0
    for depth in range(chunks):
        prefix = sum(bit << place for place, bit in enumerate(equal[chunks - 1 - depth :]))
        node = 2**depth + prefix - 1
        result ^= all_equal[node] * less[chunks - 1 - depth] ^ times_mask[node]
    return result


def _collect_payloads(store: Store, out: Any, words: Any, eligible: Any, rows: int, items: int) -> None:
    pairs = list(combinations(range(items), 2))
    given = _rows(store.read(words, rows * len(pairs)), rows, len(pairs))
    found = []
    for row, allowed in zip(given, _rows(store.read(eligible, rows * items), rows, items), strict=True):
        total = [0] * items
        for (i, j), word in zip(pairs, row, strict=True):
            counted = word & allowed[i] & allowed[j]
            total[i] ^= counted % 2**32
            total[j] ^= counted >> 32
        found += total
    store.write(out, found)


def _joined(words: list[int]) -> int:
    """One long integer, of words with the lowest first."""
    return sum(word << (64 * place) for place, word in enumerate(words))


def _winners(store: Store, out: Any, less: Any, sizes: Any, rows: int, groups: int, pairs: int) -> None:
    group_sizes = store.read(sizes, groups)
    words = []
    for row in _rows(store.read(less, rows * pairs), rows, pairs):
        bits, slot = iter(row), 0
        for size in group_sizes:
            wins = [0] * size
            for i in range(size):
                for j in range(i + 1, size):
                    wins[j if next(bits) else i] += 1
            assert sorted(wins) == list(range(size))
            words.append(slot + wins.index(size - 1))
            slot += size
    store.write(out, words)


def arrived(message: bytes, start: int, bits: int, count: int) -> list[int]:
    """The words of a message from a byte on."""
    if bits == 1:
        return [message[start + k // 8] >> (7 - k % 8) & 1 for k in range(count)]
    size = next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
    return [int.from_bytes(message[start + k * size : start + (k + 1) * size], "little") for k in range(count)]


def _open_sum(
    store: Store,
    received: Sequence[bytes | None],
    out: Any,
    own: Any,
    bits: int,
    count: int,
    xor: int,
    me: int,
    *starts: int,
) -> None:
    total = store.read(own, count)
    for party, (message, start) in enumerate(zip(received, starts, strict=True)):
        if party != me:
            assert message is not None
            words = arrived(message, start, bits, count)
            total = [x ^ y if xor else (x + y) % RING for x, y in zip(total, words, strict=True)]
    store.write(out, total)


def _open_columns(
    store: Store, received: Sequence[bytes | None], out: Any, own: Any, rows: int, me: int, *places: int
) -> None:
    segments = []
    for party, (message, columns, start) in enumerate(zip(received, places[::2], places[1::2], strict=True)):
        if party == me:
            words = store.read(own, rows * columns)
        else:
            assert message is not None
            words = arrived(message, start, 64, rows * columns)
        segments.append(_rows(words, rows, columns))
    store.write(out, [word for row in range(rows) for segment in segments for word in segment[row]])


OPENING: dict[str, Callable[..., None]] = {"open_sum": _open_sum, "open_columns": _open_columns}
OTHERS: dict[str, Callable[..., None]] = {
    "fill": _fill,
    "copy_block": _copy_block,
    "take": _take,
    "unpack": _unpack,
    "pick": _pick,
    "unit": _unit,
    "sort_order": _sort_order,
    "contract": _contract,
    "split_truncated": _split_truncated,
    "look_up_chunks": _look_up_chunks,
    "combine_chunks": _combine_chunks,
    "look_up_payloads": _look_up_payloads,
    "collect_payloads": _collect_payloads,
    "winners": _winners,
}
