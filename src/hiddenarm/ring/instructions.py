"""The instructions of the machine that runs recorded programs: names, arguments, and what they do.

The machine itself is `instructions.c`; its own table has the same names and numbers of arguments, which a test compares
with this one. `listing` prints code in these words.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np

from hiddenarm.ring._kernels import OPERATIONS
from hiddenarm.ring.contraction import PlanWords

PLACE_BITS = 48
"""A place in code is bank << 48 | first word."""


class Operation(Enum):
    """An operation: its arguments, what it does, and arguments that follow for each party or operand.

    Arguments marked @ are places, the others are numbers. What is written comes first.
    """

    ADD = "@out @x @y count", "out = x + y"
    SUBTRACT = "@out @x @y count", "out = x - y"
    MULTIPLY = "@out @x @y count", "out = x * y"
    EXCLUSIVE_OR = "@out @x @y count", "out = x ^ y"
    BOTH = "@out @x @y count", "out = x & y"
    LESS_THAN = "@out @x @y count", "out = 1 where x < y, else 0"
    ADD_NUMBER = "@out @x number count", "out = x + number"
    MULTIPLY_NUMBER = "@out @x number count", "out = x * number"
    XOR_NUMBER = "@out @x number count", "out = x ^ number"
    AND_NUMBER = "@out @x number count", "out = x & number"
    SHIFT_LEFT = "@out @x bits count", "out = x << bits"
    SHIFT_RIGHT = "@out @x bits count", "out = x >> bits, zeros from the left"
    FILL = "@out number count", "out = number, everywhere"
    COPY_BLOCK = "@out out_row out_first @x x_row x_first rows columns", "columns of x to columns of out"
    TAKE = "@out @x @index rows row count", "out = x[:, index]"
    UNPACK = "@out @x rows count bits", "the fields of packed words, in the top bits of a word each"
    PICK = "@out @x @index rows items width count", "in each row, the items of x that its own index names"
    UNIT = "@out @slot rows row", "in each row a one at its slot, zeros elsewhere"
    SORT_ORDER = "@out @x rows row", "out = argsort(x), stable, row by row"
    CONTRACT = "@out out_size @plan plan_size batch operands", "a sum of einsums of the operands", "@operand size"
    SPLIT_TRUNCATED = "@delta @sign @opened bits count", "the public part of a truncation: a word and a sign"
    LOOK_UP_CHUNKS = (
        "@out @opened @tables @widths chunks words constant count",
        "bits of truth tables at the chunks of opened words",
    )
    COMBINE_CHUNKS = "@out @opened @products chunks count", "the sign of a comparison from its opened bits"
    LOOK_UP_PAYLOADS = "@out @opened @top @nodes chunks count", "the payload of a comparison from its opened bits"
    COLLECT_PAYLOADS = "@out @words @eligible rows items", "for each item, its halves of the words of all pairs"
    WINNERS = "@out @less @sizes rows groups pairs", "the slot of the largest of each group, from all comparisons"
    SEND_WORDS = "@x bits count", "append x to what is sent"
    OPEN_SUM = "@out @own bits count xor party", "out = what the words of all parties add up to", "from"
    OPEN_COLUMNS = "@out @own rows party", "out = the columns of all parties side by side", "columns from"

    def __init__(self, arguments: str, meaning: str, repeated: str = "") -> None:
        self.arguments = tuple(arguments.split())
        self.meaning = meaning
        self.repeated = tuple(repeated.split())
        """Follow once for each party; those of `contract` for each operand."""

    @property
    def label(self) -> str:
        """The name of the operation in the machine's own table."""
        return self.name.lower()

    @property
    def code(self) -> int:
        """The number that stands for the operation in code."""
        return OPERATIONS.index(self.label)


def listing(code: PlanWords, banks: tuple[str, ...]) -> Iterator[str]:
    """The instructions of some code, one per line. `banks` are the names of the banks."""
    numbers = np.asarray(code).tolist()
    operations = {operation.code: operation for operation in Operation}
    while numbers:
        operation, count, *numbers = numbers
        given, numbers = numbers[:count], numbers[count:]
        yield _line(operations[operation], given, banks)


def _line(operation: Operation, given: list[int], banks: tuple[str, ...]) -> str:
    fixed = len(operation.arguments)
    repeats = (len(given) - fixed) // len(operation.repeated) if operation.repeated else 0
    names = (*operation.arguments, *(operation.repeated * repeats))
    return " ".join([f"{operation.label:<15}", *map(_argument, names, given, [banks] * len(given))]).rstrip()


def _argument(name: str, value: int, banks: tuple[str, ...]) -> str:
    if not name.startswith("@"):
        return f"{name}={value}"
    bank, first = value >> PLACE_BITS, value & ((1 << PLACE_BITS) - 1)
    return f"{name[1:]}={banks[bank]}[{first}]"
