"""The table of instructions is that of the machine, and code can be read in its words."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.ring._kernels import OPERATION_ARGUMENTS, OPERATIONS
from hiddenarm.ring.instructions import PLACE_BITS, Operation, listing
from plain_machine import PLACE_BITS as PLAIN_PLACE_BITS

BANKS = ("memory", "constants", "own words")


def place(bank: int, first: int) -> int:
    return bank << PLACE_BITS | first


def test_the_table_has_the_names_of_the_machine_in_its_order() -> None:
    assert tuple(operation.label for operation in Operation) == OPERATIONS
    assert [operation.code for operation in Operation] == list(range(len(OPERATIONS)))
    assert PLACE_BITS == PLAIN_PLACE_BITS


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.label)
def test_the_table_has_the_arguments_of_the_machine(operation: Operation) -> None:
    fixed, more = OPERATION_ARGUMENTS[operation.code]
    assert len(operation.arguments) == fixed
    by_operand = operation is Operation.CONTRACT
    assert len(operation.repeated) == (2 if by_operand else more)
    assert by_operand == (more < 0)
    if by_operand:  # the machine reads from the last fixed argument how many there are
        assert operation.arguments[-1] == "operands"


def test_every_operation_is_described_once() -> None:
    assert len({operation.meaning for operation in Operation}) == len(OPERATIONS)
    for operation in Operation:
        names = [name.lstrip("@") for name in (*operation.arguments, *operation.repeated)]
        assert len(set(names)) == len(names)


def test_a_listing_names_places_and_numbers() -> None:
    code = [
        *(Operation.ADD.code, 4, place(0, 8), place(2, 3), place(1, 0), 5),
        *(Operation.FILL.code, 3, place(0, 0), -1, 2),
        *(Operation.OPEN_COLUMNS.code, 8, place(0, 0), place(0, 8), 1, 0, 2, 16, 3, 24),
        *(Operation.CONTRACT.code, 8, place(0, 0), 1, place(1, 4), 9, 1, 1, place(2, 7), 6),
    ]
    assert list(listing(np.array(code, np.int64), BANKS)) == [
        "add             out=memory[8] x=own words[3] y=constants[0] count=5",
        "fill            out=memory[0] number=-1 count=2",
        "open_columns    out=memory[0] own=memory[8] rows=1 party=0 columns=2 from=16 columns=3 from=24",
        "contract        out=memory[0] out_size=1 plan=constants[4] plan_size=9 batch=1 operands=1 "
        "operand=own words[7] size=6",
    ]
