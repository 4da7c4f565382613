"""The runs behind every time: one federation of real processes with TLS, and beside it its plain twin.

`draw_scaling` draws the time of a step against a size: lines on logarithmic axes, a panel for each suite.

`OtherLoad` is how much of the processor other processes took meanwhile: timings count only if the machine was otherwise
idle. It is the busy time of the cores that we may use, less the time of this process and of those it has started and
awaited. What the system does for networks is left out, since it cannot be told for whom.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.research.bench.timing import Effort, Spread, alternate, exponent
from hiddenarm.research.experiments.experiment import (
    SUITE_NAMES,
    Cell,
    Picture,
    Scale,
    Setting,
    Suite,
    Table,
    Verdict,
    judged,
)
from hiddenarm.research.experiments.figures import add_legend, add_line, add_slopes, empty_figure, set_logarithmic
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.research.experiments.learners import FEATURES

BUSY = 0.25
"""With more of a core than this taken by others, nothing is concluded from a time."""
_STAT = Path("/proc/stat")
_USER, _NICE, _SYSTEM, _STOLEN = 1, 2, 3, 8


class OtherLoad:
    """Begins to look when it is made."""

    def __init__(self) -> None:
        self._start = perf_counter(), _busy_seconds(), _own_seconds()

    def cores(self) -> float:
        """Cores that others took since then, on average; 0 where the system does not tell."""
        clock, busy, own = self._start
        others = _busy_seconds() - busy - (_own_seconds() - own)
        return max(0.0, others / (perf_counter() - clock))


def _busy_seconds() -> float:
    """Of the cores that we may use, stolen time included."""
    ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in _STAT.read_text().splitlines()]
    except OSError:
        return 0.0
    ticks = sum(int(line[place]) for line in lines if line[0] in ours for place in (_USER, _NICE, _SYSTEM, _STOLEN))
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def judged_times(condition: bool, explanation: str, cores_of_others: Iterable[float]) -> tuple[Verdict, str]:
    """Holds or differs, for this reason; but not checked where others were busy while it was timed."""
    most = max(cores_of_others)
    if most <= BUSY:
        return judged(condition), "" if condition else explanation
    return "not checked", (
        f"Other processes took up to {most:.1f} cores while this was timed, so the times say little. Repeat it on an "
        "idle machine: remove the runs of kind step and operations, and run the command again."
    )


_EFFORTS: Mapping[Scale, tuple[int, float]] = {"full": (20, 4.0), "quick": (8, 0.8), "tiny": (2, 0.1)}
"""Blocks, and seconds after which no new block is begun."""
_BLOCK_SECONDS, _MOST_STEPS = 0.1, 10
_WARM_UP = 5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


@dataclass(frozen=True)
class StepTiming(Job):
    """A strictly online step of one federation, in blocks that alternate with blocks of its plain twin. The result:

    us, plain_us   [3]   microseconds per step: lower quartile, median, upper quartile over blocks
    rounds, rounds_of_decision, bytes   of a step, as the parties' meters counted them; bytes are those of one party
    steps          how many were made
    others         cores that other processes took meanwhile
    """

    kind: ClassVar[str] = "step"
    alone: ClassVar[bool] = True

    suite: Suite
    arms: int
    parties: int
    blocks: int
    seconds: float

    @property
    def title(self) -> str:
        return f"time of a step, {SUITE_NAMES[self.suite]}, {self.arms} arms, {self.parties} parties"

    @property
    def expected_seconds(self) -> float:
        start = 1.0 + 0.4 * self.parties
        return start + max(3 * 4 * self._expected_step, min(self.seconds, 2.5 * self.blocks * _BLOCK_SECONDS))

    @property
    def effort(self) -> Effort:
        """Blocks of a tenth of a second, so short that the stock of dealt words lasts for each."""
        block = round(_BLOCK_SECONDS / self._expected_step)
        return Effort(max(1, min(_MOST_STEPS, block)), self.blocks, self.seconds)

    @property
    def _expected_step(self) -> float:
        alone = 2e-3 + 2e-5 * self.arms if self.suite == "fast" else 9e-3 + 1.1e-5 * self.arms**2
        return alone * (self.parties / 2) ** 2

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        progress(0.0, "")
        company = OtherLoad()
        federation = make_federation(self.parties, self.arms, FEATURES, self.suite)
        with Session(federation) as session:
            private, plain = alternate(self.effort, [_Online(session).work, session.plain_twin().work])
            traffic = session.finish()
        return {
            "us": quartiles(private),
            "plain_us": quartiles(plain),
            "rounds": np.array(traffic.rounds_per_step),
            "rounds_of_decision": np.array(traffic.rounds_per_decision),
            "bytes": np.array(traffic.bytes_per_step_per_party),
            "steps": np.array(session.steps),
            "others": np.array(company.cores()),
        }


class _Online:
    """Steps without what the dealer does for them: before each block is a pause as long as the block before it took, in
    which the dealer works ahead, and a few steps until the processor is awake again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pause = _SHORTEST_PAUSE

    def work(self, steps: int) -> float:
        """Seconds for so many steps."""
        sleep(self._pause)
        start = perf_counter()
        self._session.make_steps(min(steps, _WARM_UP))
        awake = perf_counter()
        self._session.make_steps(steps)
        end = perf_counter()
        self._pause = min(max(end - start, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        return end - awake


def quartiles(spread: Spread) -> NDArray[np.float64]:
    """As results keep them: lower quartile, median, upper quartile."""
    return np.array([spread.lower, spread.median, spread.upper])


def step_timing(setting: Setting, suite: Suite, arms: int, parties: int) -> StepTiming:
    """The job for one point; experiments that ask for the same point share it."""
    blocks, seconds = setting.sized(_EFFORTS)
    return StepTiming(suite, arms, parties, blocks, seconds)


@dataclass(frozen=True)
class StepTime:
    """What was measured at one point; times in milliseconds."""

    suite: Suite
    arms: int
    parties: int
    steps: int
    private: Spread
    plain: Spread
    rounds: float
    rounds_of_decision: float
    bytes_sent: float
    others: float

    @classmethod
    def of(cls, job: StepTiming, kept: ResultStore) -> StepTime:
        result = kept[job]
        private, plain = (
            Spread(*(1e-3 * float(result[name][place]) for place in (1, 0, 2))) for name in ("us", "plain_us")
        )
        rounds, decision, sent = (float(result[name]) for name in ("rounds", "rounds_of_decision", "bytes"))
        steps, others = int(result["steps"]), float(result["others"])
        return cls(job.suite, job.arms, job.parties, steps, private, plain, rounds, decision, sent, others)

    @property
    def ratio(self) -> float:
        """How many plain steps one private step takes."""
        return self.private.median / self.plain.median

    @property
    def reach(self) -> tuple[float, float]:
        """How far the quartiles lie below and above the median."""
        return self.private.median - self.private.lower, self.private.upper - self.private.median

    @property
    def row(self) -> tuple[Cell, ...]:
        """A row of `steps_table`."""
        return (
            SUITE_NAMES[self.suite],
            self.parties,
            self.arms,
            *(round(time, 3) for time in (self.private.median, self.private.lower, self.private.upper)),
            *(round(1e3 * time, 2) for time in (self.plain.median, self.plain.lower, self.plain.upper)),
            round(self.ratio, 1),
            round(self.rounds, 2),
            round(self.bytes_sent),
            self.steps,
            round(self.others, 2),
        )


def steps_table(name: str, title: str, points: Sequence[StepTime], *, shown: bool = True) -> Table:
    """All that was measured at some points."""
    header = (
        "suite", "parties", "arms", "ms per step", "lower quartile", "upper quartile", "plain µs a step",
        "plain lower quartile", "plain upper quartile", "slowdown", "rounds per step", "bytes per step sent by a party",
        "steps made", "cores taken by others",
    )  # fmt: skip
    return Table(name, title, header, [point.row for point in points], shown=shown)


def disturbed(points: Sequence[StepTime]) -> list[str]:
    """A remark if the machine had other work to do."""
    busy = [point for point in points if point.others > BUSY]
    if not busy:
        return []
    return [
        f"At {len(busy)} of {len(points)} points other processes took more than {BUSY:g} of a core while a step was "
        "timed. Times and exponents are not to be relied on there; rounds and bytes are exact."
    ]


@dataclass(frozen=True)
class Line:
    """Points of one suite that differ in their size only."""

    suite: Suite
    label: str
    sizes: Sequence[int]
    points: Sequence[StepTime]

    @property
    def times(self) -> list[float]:
        """Medians, in milliseconds."""
        return [point.private.median for point in self.points]

    def slope(self, value: Callable[[StepTime], float], *, start: float) -> float | None:
        """The exponent with which something grows with the size, from `start` on; None if that is less than two
        points."""
        fitted = [(size, value(point)) for size, point in zip(self.sizes, self.points, strict=True) if size >= start]
        if len(fitted) < 2:
            return None
        return exponent([size for size, _ in fitted], [amount for _, amount in fitted])

    def time_slope(self, start: float) -> float | None:
        """The exponent of the median time."""
        return self.slope(lambda point: point.private.median, start=start)

    def bytes_slope(self, start: float) -> float | None:
        """The exponent of what a party sends."""
        return self.slope(lambda point: point.bytes_sent, start=start)


def draw_scaling(
    setting: Setting, lines: Sequence[Line], *, name: str, across: str, legend: str, caption: str, guides_from: float
) -> Picture:
    """A panel for each suite, with the same scale of time."""
    suites = list(reversed(setting.suites))
    figure, panels = empty_figure(columns=len(suites), share_y=True)
    for suite, axes in zip(suites, panels, strict=True):
        here = [line for line in lines if line.suite == suite]
        for style, line in enumerate(here):
            below, above = zip(*(point.reach for point in line.points), strict=True)
            add_line(axes, style, line.sizes, line.times, line.label, [below, above])
        set_logarithmic(axes, sorted({size for line in here for size in line.sizes}))
        axes.set_title(SUITE_NAMES[suite], fontsize=11)
        axes.set_xlabel(across)
    panels[0].set_ylabel("milliseconds per step")
    for suite, axes in zip(suites, panels, strict=True):
        here = [line for line in lines if line.suite == suite]
        times = list(zip(*(line.times for line in here), strict=True))
        add_slopes(
            axes, here[0].sizes, [min(column) for column in times], [max(column) for column in times], guides_from
        )
    add_legend(panels[0], legend, loc="best")
    return Picture(name, caption, figure)


def spoken(slopes: Sequence[tuple[str, float | None]]) -> str:
    """Exponents, each after what it belongs to."""
    return ", ".join(f"{label}: {slope:.2f}" for label, slope in slopes if slope is not None)
