"""`hiddenarm bench ops`: the operations of which programs are made, one by one.

Each runs in lockstep on many replicates at once, as one party: the time is that of all parties divided by their number,
and includes expanding the dealt words. Beside it stands the NumPy operation that does the same in the clear. Rounds,
bytes and words are those the operation declares. A product needs masked factors, so masking them is part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from hiddenarm.cli.bench.report import Result, print_table
from hiddenarm.cli.bench.timing import Spread, seconds_of
from hiddenarm.mpc.comparison import combine, compare, reveal
from hiddenarm.mpc.dealing import ProgramDealer, trace
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, record
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.lookup import lookup, reciprocal_table
from hiddenarm.mpc.masking import given_share, mask
from hiddenarm.mpc.material import Seeds
from hiddenarm.mpc.run import Program, ProgramText, Run
from hiddenarm.mpc.shuffle import deal_shuffle
from hiddenarm.mpc.tournament import open_winner
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.streams import Stream, fresh_key
from hiddenarm.ring.words import Floats, Words, encode

_BITS = 20
_COMPARED_BITS = 37
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


def operations(parties: int) -> list[Operation]:
    """All that the table shows."""
    return [
        Operation("mask", _mask),
        Operation("multiply", _multiply, 2, plain=np.multiply),
        Operation("three-factor form", _three_factors, 3, plain=lambda x, y, z: x * y * z),
        Operation("truncate", _truncate, plain=lambda x: np.floor(x)),
        Operation("compare, opened", _compare, plain=lambda x: x < 0),
        Operation("reciprocal look-up", _reciprocal, plain=lambda x: 1 / (1 + x)),
        *(
            Operation(f"argmax of {size}", _argmax(parties, size), 1, size, lambda x: np.argmax(x, axis=-1))
            for size in (10, 100)
        ),
    ]


def bench_ops(console: Console, *, parties: int, replicates: int, repeats: int) -> Result:
    """Measure, print, return what `--json` writes."""
    costs = [_cost(operation, parties, replicates, repeats) for operation in operations(parties)]
    title = f"Operations: {parties} parties, {replicates:,} elements at once; bytes to each peer, dealt words, for each"
    columns = ("", "rounds", "bytes", "words", "corrections", "time", "plain", "ratio")
    print_table(console, title, columns, [_cells(cost) for cost in costs])
    return {"operations": [asdict(cost) for cost in costs], "parties": parties, "replicates": replicates}


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


def _cost(operation: Operation, parties: int, replicates: int, repeats: int) -> OperationCost:
    """Run an operation and its plain counterpart in turn."""
    shape = () if operation.size is None else (operation.size,)
    words = trace(_text(operation, shape), parties, 1).party_words[0]
    count = max(1, min(replicates, _MOST_WORDS // words))
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
        self.layout = trace(text, parties, replicates)
        self._dealer = ProgramDealer(_NAME, text, self.layout, self._seeds, replicates)
        self._scripts = [record(text, party, parties, replicates) for party in range(parties)]
        self._materials = [
            ProgramMaterial(party, parties, _NAME, self.layout, self._seeds.party(party), ahead=1)
            for party in range(parties)
        ]
        self._step = 0

    def seconds(self, inputs: list[Floats]) -> float:
        """How long all parties take together; dealing is not counted."""
        step, self._step = self._step, self._step + 1
        self._materials[-1].add_corrections(step, self._dealer.deal(step, 1))
        values = [encode(value, _BITS) for value in inputs]
        return seconds_of(lambda: self._run(step, values))

    def _run(self, step: int, values: list[Words]) -> list[Any]:
        """Party 0 holds the inputs: a sharing like any other."""
        zeros = [np.zeros_like(value) for value in values]
        parties = enumerate(zip(self._scripts, self._materials, strict=True))
        return run_lockstep(
            [
                Evaluation(script, material.take(step), zeros if party else values)
                for party, (script, material) in parties
            ]
        )


def _text(operation: Operation, shape: tuple[int, ...]) -> ProgramText:
    return lambda run: operation.text(run, *(given_share(run, *shape) for _ in range(operation.inputs)))


def _floats(shape: tuple[int, ...], number: int) -> Floats:
    """Some numbers in [0, 1)."""
    words = Stream(bytes(32), int(np.prod(shape))).step(number)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64).reshape(shape)


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
    (short,) = yield (truncate(run, x, _BITS),)
    return short


def _compare(run: Run, x: Shared) -> Program:
    (borrow,) = yield (compare(run, x, _COMPARED_BITS),)
    (negative,) = yield (combine(run, borrow),)
    (opened,) = yield (reveal(negative),)
    return opened


def _reciprocal(run: Run, x: Shared) -> Program:
    (masked,) = yield (mask(run, x << _BITS),)
    return lookup(run, reciprocal_table(8, 2.0, _BITS), masked)


def _argmax(parties: int, size: int) -> Text:
    def text(run: Run, x: Shared) -> Program:
        kept = np.ones(run.batch, np.uint64) if run.dealing else None
        shuffle = deal_shuffle(run, (), size, parties, kept)
        (masked,) = yield (mask(run, x),)
        keys = yield from shuffle.apply(masked)
        return (yield from open_winner(run, keys, _COMPARED_BITS))

    return text
