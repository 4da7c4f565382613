"""The four operations of the paper's table in both suites, on vectors of fixed-point numbers: an entry for each arm.

Each takes numbers with 20 fractional bits and gives numbers with 20 fractional bits; the argmax gives one arm.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hiddenarm.bandit.federation import NEWTON_ITERATIONS
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import lookup, reciprocal_table
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.arithmetic import plus
from hiddenarm.paper.fixed_point import FixedPoint, reciprocal
from hiddenarm.research.bench.operations import BITS, Operation, Plain, Text, argmax_text, paper_argmax_text
from hiddenarm.research.experiments.setting import Suite

NAMES = ("addition", "multiplication", "reciprocal", "argmax")
_NODE_BITS, _LARGEST = 8, 2.0
"""The fast suite's table of 1 / (1 + q): nodes 2^-8 apart, for q up to 2."""

_INPUTS: Mapping[str, int] = {"addition": 2, "multiplication": 2, "reciprocal": 1, "argmax": 1}
_PLAIN: Mapping[str, Plain] = {
    "addition": np.add,
    "multiplication": np.multiply,
    "reciprocal": np.reciprocal,
    "argmax": np.argmax,
}


def table_operation(suite: Suite, name: str, parties: int, size: int) -> Operation:
    """One of the operations, beside the same in NumPy."""
    texts = _paper_texts(parties) if suite == "paper" else _fast_texts(parties, size)
    return Operation(name, texts[name], _INPUTS[name], size, _PLAIN[name])


def table_operations(suite: Suite, parties: int, size: int) -> list[Operation]:
    """All of them."""
    return [table_operation(suite, name, parties, size) for name in NAMES]


def _fast_texts(parties: int, size: int) -> Mapping[str, Text]:
    return {
        "addition": _add,
        "multiplication": _multiply,
        "reciprocal": _reciprocal,
        "argmax": argmax_text(parties, size),
    }


def _paper_texts(parties: int) -> Mapping[str, Text]:
    numbers = FixedPoint(parties, BITS)
    return {
        "addition": _add,
        "multiplication": lambda run, x, y: numbers.product(run, "a,a->a", x, y),
        "reciprocal": lambda run, x: reciprocal(run, numbers, x, NEWTON_ITERATIONS),
        "argmax": paper_argmax_text(parties),
    }


def _add(run: Run, x: Shared, y: Shared) -> Program:
    yield from ()
    return x + y


def _multiply(run: Run, x: Shared, y: Shared) -> Program:
    one, other = yield mask(run, x), mask(run, y)
    (short,) = yield (truncate(run, form(run, "a,a->a", one, other), BITS),)
    return short


def _reciprocal(run: Run, x: Shared) -> Program:
    (masked,) = yield (mask(run, plus(run, x, -(1 << BITS)) << BITS),)
    wide = lookup(run, reciprocal_table(_NODE_BITS, _LARGEST, BITS), masked)
    (short,) = yield (truncate(run, wide, 2 * BITS),)
    return short
