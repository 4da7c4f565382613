"""The run behind the table of operations: each by itself between processes, and many at once without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.bench.operations import measure_operations
from hiddenarm.research.bench.timing import Spread
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress
from hiddenarm.research.experiments.linked import measure_linked
from hiddenarm.research.experiments.machine_load import OtherLoad
from hiddenarm.research.experiments.result_store import ResultStore
from hiddenarm.research.experiments.setting import SUITE_NAMES, Scale, Setting, Suite
from hiddenarm.research.experiments.step_times import quartiles
from hiddenarm.research.experiments.table_operations import table_operations

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
