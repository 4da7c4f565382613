"""The run behind the table of operations: each by itself between processes, and many at once without them.

The four operations of the paper's table in both suites, on vectors of fixed-point numbers: an entry for each arm.

Each takes numbers with 20 fractional bits and gives numbers with 20 fractional bits; the argmax gives one arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.federation import NEWTON_ITERATIONS
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import lookup
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.arithmetic import plus
from hiddenarm.paper.fixed_point import FixedPoint, reciprocal
from hiddenarm.research.bench.operations import (
    BITS,
    Operation,
    Plain,
    Text,
    argmax_text,
    measure_operations,
    paper_argmax_text,
    reciprocal_look_up,
)
from hiddenarm.research.bench.timing import Spread
from hiddenarm.research.experiments.experiment import SUITE_NAMES, Scale, Setting, Suite
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.research.experiments.linked import measure_linked
from hiddenarm.research.experiments.step_times import OtherLoad, quartiles

NAMES = ("addition", "multiplication", "reciprocal", "argmax")

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
        "argmax": argmax_text(size),
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
    table = reciprocal_look_up()
    (masked,) = yield (mask(run, (plus(run, x, -(1 << BITS)) << BITS).times(table.scale)),)
    (short,) = yield (truncate(run, lookup(run, table, masked), table.fraction_bits - BITS),)
    return short


PARTIES, ARMS = 2, 100
"""Those of the paper's table."""
_EFFORTS: Mapping[Scale, tuple[int, int, int]] = {
    "full": (30, 10_000, 15),
    "quick": (10, 2_000, 5),
    "tiny": (2, 2, 2),
}
"""Blocks of each operation between processes; elements at once and repeats without them."""


@dataclass(frozen=True)
class OperationTiming(Job):
    """All operations of a suite. The result, for the operations of the paper's table on vectors between processes:

    names, rounds, bytes   [operations]   rounds as counted, bytes sent to each peer
    us, plain_us           [operations, 3]   quartiles of microseconds for one vector
    others                 cores that other processes took meanwhile

    and for all operations of the suite without processes, on many elements at once, as `hiddenarm bench ops` does it:

    many_names, many_rounds, many_us, many_plain_us   [operations]   for one element; NaN where there is none
    """

    kind: ClassVar[str] = "operations"
    alone: ClassVar[bool] = True

    suite: Suite
    parties: int
    arms: int
    blocks: int
    replicates: int
    repeats: int

    @property
    def title(self) -> str:
        return f"time of operations, {SUITE_NAMES[self.suite]}"

    @property
    def expected_seconds(self) -> float:
        share = (self.arms / ARMS) ** 2
        return 2.5 + self.blocks * (0.3 if self.suite == "paper" else 0.06) * share + 0.5 * self.repeats

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        progress(0.0, "")
        company = OtherLoad()
        linked = measure_linked(
            partial(table_operations, self.suite, self.parties, self.arms), self.parties, self.blocks
        )
        others = company.cores()
        progress(0.5, "")
        many = measure_operations(self.suite, parties=self.parties, replicates=self.replicates, repeats=self.repeats)
        return {
            "names": np.array([cost.name for cost in linked]),
            "rounds": np.array([cost.rounds for cost in linked]),
            "bytes": np.array([cost.bytes_to_each_peer for cost in linked]),
            "us": np.array([quartiles(cost.private) for cost in linked]),
            "others": np.array(others),
            "plain_us": np.array([quartiles(cost.plain) for cost in linked]),
            "many_names": np.array([cost.name for cost in many]),
            "many_rounds": np.array([cost.rounds for cost in many]),
            "many_us": np.array([cost.us for cost in many]),
            "many_plain_us": np.array([np.nan if cost.plain_us is None else cost.plain_us for cost in many]),
        }


def operation_timing(setting: Setting, suite: Suite) -> OperationTiming:
    """The job of one suite."""
    return OperationTiming(suite, PARTIES, ARMS, *setting.sized(_EFFORTS))


@dataclass(frozen=True)
class OperationTime:
    """What one operation takes; microseconds."""

    name: str
    rounds: float
    bytes_to_each_peer: int
    private: Spread
    plain: Spread
    others: float

    @property
    def slowdown(self) -> float:
        """How many plain operations one private operation takes."""
        return self.private.median / self.plain.median


def operation_times(job: OperationTiming, kept: ResultStore) -> Sequence[OperationTime]:
    """The operations of the paper's table."""
    result = kept[job]
    columns = zip(*(result[name] for name in ("names", "rounds", "bytes", "us", "plain_us")), strict=True)
    return [
        OperationTime(str(name), float(rounds), int(sent), _spread(private), _spread(plain), float(result["others"]))
        for name, rounds, sent, private, plain in columns
    ]


def _spread(quartile: NDArray[np.float64]) -> Spread:
    lower, median, upper = (float(value) for value in quartile)
    return Spread(median, lower, upper)
