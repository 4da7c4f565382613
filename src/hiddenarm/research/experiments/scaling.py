"""Time a step against a size: lines on logarithmic axes, a panel for each suite, and how steep they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hiddenarm.research.bench.timing import exponent
from hiddenarm.research.experiments.figures import add_legend, add_line, add_slopes, empty_figure, set_logarithmic
from hiddenarm.research.experiments.findings import Picture
from hiddenarm.research.experiments.setting import SUITE_NAMES, Setting, Suite
from hiddenarm.research.experiments.step_times import StepTime


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
