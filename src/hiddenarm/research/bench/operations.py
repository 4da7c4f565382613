"""`hiddenarm bench ops`: the operations of which the programs of a suite are made, one by one.

An operation runs in lockstep on many replicates at once, as one party: the time is that of all parties divided by
their number, and includes expanding the dealt words. Beside it stands the NumPy operation that does the same in the
clear. Rounds, bytes and words are those the operation declares.

A product of the fast suite needs masked factors, so masking them is part of it. A multiplication of the paper's suite
includes the division that takes the scale of a factor away; its reciprocal is that of numbers in [1, 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from rich.console import Console

from hiddenarm.bandit.federation import NEWTON_ITERATIONS, check_suite
from hiddenarm.mpc.comparison import combine, compare, even_chunks, reveal
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.lookup import PolynomialTable, lookup, reciprocal_shape, reciprocal_table
from hiddenarm.mpc.masking import dealt, given_share, mask
from hiddenarm.mpc.material import Seeds
from hiddenarm.mpc.payloads import ByTag, answer_words
from hiddenarm.mpc.run import Program, ProgramText, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.comparison import argmax, at_least_zero
from hiddenarm.paper.fixed_point import FixedPoint, reciprocal
from hiddenarm.research.bench.report import Result, print_table
from hiddenarm.research.bench.timing import Spread, seconds_of
from hiddenarm.ring.streams import Stream, fresh_key
from hiddenarm.ring.words import Floats, Words, encode

BITS = 20
"""Fractional bits of the inputs."""
_NAME = "bench"
_MOST_WORDS = 1 << 24
"""Dealt words of one run; operations that need many are run on fewer replicates."""

Text = Callable[..., Program]
Plain = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Operation:
    """A program on shared inputs [size] each, and what does the same on floats."""

    name: str
    text: Text
    inputs: int = 1
    size: int | None = None
    plain: Plain | None = None


@dataclass(frozen=True, slots=True)
class OperationCost:
    """What one element of an operation costs a party. The keys of `--json`."""

    name: str
    rounds: int
    bytes_to_each_peer: float
    dealt_words: float
    correction_words: float
    us: float
    us_quartiles: tuple[float, float]
    plain_us: float | None
    ratio: float | None


def cost_of(operation: Operation, parties: int, replicates: int, repeats: int) -> OperationCost:
    """Run an operation and its plain counterpart in turn."""
    shape = () if operation.size is None else (operation.size,)
    words = layout_of(_text(operation, shape), parties, 1).party_words[0]
    count = max(1, min(replicates, _MOST_WORDS // max(1, words)))
    runner = _Runner(operation, shape, parties, count)
    inputs = [_floats((count, *shape), number) for number in range(operation.inputs)]
    private, plain = [], []
    for _ in range(repeats + 1):
        private.append(runner.seconds(inputs))
        if operation.plain is not None:
            plain.append(min(seconds_of(lambda: operation.plain and operation.plain(*inputs)) for _ in range(3)))
    time = Spread.of(private[1:]).scaled(1e6 / count / parties)
    plain_us = 1e6 * Spread.of(plain[1:]).median / count if plain else None
    return OperationCost(
        name=operation.name,
        rounds=runner.layout.rounds,
        bytes_to_each_peer=runner.layout.bytes_to_each_peer(0) / count,
        dealt_words=runner.layout.party_words[0] / count,
        correction_words=runner.layout.correction_words / count,
        us=time.median,
        us_quartiles=(time.lower, time.upper),
        plain_us=plain_us,
        ratio=None if plain_us is None else time.median / plain_us,
    )


class _Runner:
    """Deals and runs an operation, a step at a time."""

    def __init__(self, operation: Operation, shape: tuple[int, ...], parties: int, replicates: int) -> None:
        self._seeds = Seeds(fresh_key())
        text = _text(operation, shape)
        self.layout = layout_of(text, parties, replicates)
        self._dealer = ProgramDealer(_NAME, text, self.layout, self._seeds, replicates)
        self._compiled = [compile_program(text, party, parties, replicates) for party in range(parties)]
        self._materials = [
            ProgramMaterial(party, parties, _NAME, self.layout, self._seeds.party(party), ahead=1)
            for party in range(parties)
        ]
        self._step = 0

    def seconds(self, inputs: list[Floats]) -> float:
        """How long all parties take together; dealing is not counted."""
        step, self._step = self._step, self._step + 1
        self._materials[-1].add_corrections(step, self._dealer.deal(step, 1))
        values = [encode(value, BITS) for value in inputs]
        return seconds_of(lambda: self._run(step, values))

    def _run(self, step: int, values: list[Words]) -> list[Any]:
        """Party 0 holds the inputs: a sharing like any other."""
        zeros = [np.zeros_like(value) for value in values]
        parties = enumerate(zip(self._compiled, self._materials, strict=True))
        return run_lockstep(
            [
                Evaluation(compiled, material.take(step), zeros if party else values)
                for party, (compiled, material) in parties
            ]
        )


def _text(operation: Operation, shape: tuple[int, ...]) -> ProgramText:
    return lambda run: operation.text(run, *(given_share(run, *shape) for _ in range(operation.inputs)))


def _floats(shape: tuple[int, ...], number: int) -> Floats:
    """Some numbers in [0, 1)."""
    words = Stream(bytes(32), int(np.prod(shape))).step(number)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64).reshape(shape)


ARGMAX_SIZES = (10, 100)
_COMPARED_BITS = 37


def operations_of(suite: str, parties: int, newton_iterations: int | None = None) -> list[Operation]:
    """All that the table of a suite shows."""
    check_suite(suite, newton_iterations)
    if suite == "paper":
        return _paper_operations(parties, NEWTON_ITERATIONS if newton_iterations is None else newton_iterations)
    return _fast_operations(parties)


def _fast_operations(parties: int) -> list[Operation]:
    return [
        Operation("add", _add, 2, plain=np.add),
        Operation("mask", _mask),
        Operation("multiply", _multiply, 2, plain=np.multiply),
        Operation("three-factor form", _three_factors, 3, plain=lambda x, y, z: x * y * z),
        Operation("truncate", _truncate, plain=lambda x: np.floor(x)),
        Operation("compare, opened", _compare, plain=lambda x: x < 0),
        Operation("reciprocal look-up", _reciprocal, plain=lambda x: 1 / (1 + x)),
        *(_argmax_operation(size, argmax_text(size)) for size in ARGMAX_SIZES),
    ]


def _paper_operations(parties: int, iterations: int) -> list[Operation]:
    numbers = FixedPoint(parties, BITS)
    return [
        Operation("addition", _add, 2, plain=np.add),
        Operation("multiplication", lambda run, x, y: numbers.product(run, ",->", x, y), 2, plain=np.multiply),
        Operation("reciprocal", _paper_reciprocal(numbers, iterations), plain=lambda x: 1 / (1 + x)),
        Operation("comparison", lambda run, x: at_least_zero(run, parties, x), plain=lambda x: x >= 0),
        *(_argmax_operation(size, paper_argmax_text(parties)) for size in ARGMAX_SIZES),
    ]


def _argmax_operation(size: int, text: Text) -> Operation:
    return Operation(f"argmax of {size}", text, 1, size, lambda x: np.argmax(x, axis=-1))


def _add(run: Run, x: Shared, y: Shared) -> Program:
    """No round."""
    yield from ()
    return x + y


def _mask(run: Run, x: Shared) -> Program:
    (masked,) = yield (mask(run, x),)
    return masked


def _multiply(run: Run, x: Shared, y: Shared) -> Program:
    one, other = yield mask(run, x), mask(run, y)
    return form(run, ",->", one, other)


def _three_factors(run: Run, x: Shared, y: Shared, z: Shared) -> Program:
    one, two, three = yield mask(run, x), mask(run, y), mask(run, z)
    return form(run, ",,->", one, two, three)


def _truncate(run: Run, x: Shared) -> Program:
    (short,) = yield (truncate(run, x, BITS),)
    return short


def _compare(run: Run, x: Shared) -> Program:
    (borrow,) = yield (compare(run, x, even_chunks(_COMPARED_BITS)),)
    (negative,) = yield (combine(run, borrow),)
    (opened,) = yield (reveal(negative),)
    return opened


@lru_cache
def reciprocal_look_up() -> PolynomialTable:
    """The fast suite's table of 1 / (1 + q), as of a federation with `reciprocal_bits` of 8, for q up to 2 at 2L bits:
    the result has 2L bits."""
    return reciprocal_table(reciprocal_shape(19, 2.0, 2.0**-8), 2 * BITS, BITS, 2 * BITS)


def _reciprocal(run: Run, x: Shared) -> Program:
    table = reciprocal_look_up()
    (masked,) = yield (mask(run, (x << BITS).times(table.scale)),)
    return lookup(run, table, masked)


def argmax_text(size: int) -> Text:
    """The fast suite's argmax, by payloads: shares of words that are zero at the largest."""

    def text(run: Run, x: Shared) -> Program:
        by_tag = None
        if run.dealing:
            by_tag = ByTag(np.zeros(run.batch, np.uint64), np.zeros((*run.batch, size), np.uint64))
        return (yield from answer_words(run, x, _COMPARED_BITS, None, by_tag, three=False))

    return text


def _paper_reciprocal(numbers: FixedPoint, iterations: int) -> Text:
    return lambda run, x: reciprocal(run, numbers, numbers.plus(run, x, 1.0), iterations)


def paper_argmax_text(parties: int) -> Text:
    """The paper's argmax, with ties broken by a dealt permutation."""

    def text(run: Run, x: Shared) -> Program:
        permutation = dealt(run, x.shape, lambda: _permutation(run.coin_words(x.shape)))
        return (yield from argmax(run, parties, x, permutation))

    return text


def _permutation(words: Words) -> Words:
    """A random arrangement of 1 to the length of the last axis."""
    return words.argsort(axis=-1).astype(np.uint64) + np.uint64(1)


def measure_operations(
    suite: str,
    *,
    parties: int = 2,
    replicates: int = 10_000,
    repeats: int = 15,
    newton_iterations: int | None = None,
) -> list[OperationCost]:
    """What each operation of a suite costs a party for one element, when `replicates` are done at once."""
    return [
        cost_of(operation, parties, replicates, repeats)
        for operation in operations_of(suite, parties, newton_iterations)
    ]


def bench_ops(
    console: Console,
    *,
    parties: int,
    replicates: int,
    repeats: int,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes."""
    costs = measure_operations(
        suite, parties=parties, replicates=replicates, repeats=repeats, newton_iterations=newton_iterations
    )
    title = f"Operations: {parties} parties, {suite} suite, {replicates:,} elements at once"
    columns = ("for each element", "rounds", "bytes to a peer", "words", "corrections", "time", "plain", "ratio")
    print_table(console, title, columns, [_cells(cost) for cost in costs])
    figures = [asdict(cost) for cost in costs]
    return {"operations": figures, "suite": suite, "parties": parties, "replicates": replicates}


def _cells(cost: OperationCost) -> tuple[str, ...]:
    return (
        cost.name,
        str(cost.rounds),
        f"{cost.bytes_to_each_peer:,.1f}",
        f"{cost.dealt_words:,.1f}",
        f"{cost.correction_words:,.1f}",
        f"{cost.us:.3f} µs",
        "" if cost.plain_us is None else f"{cost.plain_us:.4f} µs",
        "" if cost.ratio is None else f"{cost.ratio:,.0f}",
    )
