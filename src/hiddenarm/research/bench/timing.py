"""Blocks of steps of both learners in turn, so that whatever else the machine does hits both alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

Work = Callable[[int], float]
"""Does so many steps; returns the seconds they took."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between its quartiles."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        lower, median, upper = np.percentile(np.asarray(samples, np.float64), [25, 50, 75])
        return cls(float(median), float(lower), float(upper))

    def scaled(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.lower * factor, self.upper * factor)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: `blocks` of `block` steps each, but no new block after `seconds`; at least two."""

    block: int
    blocks: int
    seconds: float

    @classmethod
    def of(cls, steps: int, seconds: float, blocks: int = 40) -> Effort:
        """Spread so many steps over blocks."""
        block = max(1, steps // blocks)
        return cls(block, max(2, steps // block), seconds)


def alternate(effort: Effort, works: Sequence[Work]) -> list[Spread]:
    """Microseconds a step of each kind of work: one block of each in turn, after one block to warm up."""
    for work in works:
        work(effort.block)
    samples: list[list[float]] = [[] for _ in works]
    end = perf_counter() + effort.seconds
    for done in range(effort.blocks):
        if done >= 2 and perf_counter() > end:
            break
        for work, figures in zip(works, samples, strict=True):
            figures.append(1e6 * work(effort.block) / effort.block)
    return [Spread.of(figures) for figures in samples]


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = perf_counter()
    work()
    return perf_counter() - start


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the line through the points on logarithmic axes."""
    if len(sizes) < 2:
        return float("nan")
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)
