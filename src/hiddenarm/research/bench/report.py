"""What the benches print, write and draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hiddenarm.errors import ConfigError
from hiddenarm.research.bench.breakdown import Breakdown
from hiddenarm.research.bench.session import Measured
from hiddenarm.research.bench.timing import Spread
from hiddenarm.research.plots import check_plot_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Result = dict[str, Any]
"""What `--json` writes."""

_FILE_WIDTH = 120
_POINT_COLUMNS = ("private", "quartiles", "plain", "quartiles", "ratio", "rounds", "bytes per party")


def open_console() -> Console:
    """Where the tables go; a file or a pipe takes wide ones."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def print_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose first column is text and whose others are numbers."""
    console.print(title, style="bold")
    table = Table(pad_edge=False, box=None)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()


def print_points(console: Console, title: str, name: str, points: Sequence[tuple[int, Measured]]) -> None:
    """A line for each measured federation."""
    print_table(console, title, (name, *_POINT_COLUMNS), [(f"{size:,}", *point_cells(point)) for size, point in points])


def point_cells(point: Measured) -> tuple[str, ...]:
    """The columns of a measured federation."""
    return (
        micros(point.private.median),
        quartiles(point.private),
        micros(point.plain.median),
        quartiles(point.plain),
        f"{point.ratio:,.1f}",
        f"{point.traffic.rounds_per_decision:g} + "
        f"{point.traffic.rounds_per_step - point.traffic.rounds_per_decision:g}",
        f"{point.traffic.bytes_per_step_per_party:,.0f}",
    )


def print_breakdown(console: Console, breakdown: Breakdown) -> None:
    """Where the time of a step goes."""
    rows = breakdown.rows()
    total = sum(value for _, value in rows)
    print_table(
        console,
        "Where the time of a step goes, at one party",
        ("", "time", "share"),
        [(name, micros(value), f"{100 * value / total:.0f}%") for name, value in rows],
    )


def micros(value: float) -> str:
    """Microseconds to three digits or so."""
    return f"{value:,.0f} µs" if value >= 100 else f"{value:,.1f} µs" if value >= 1 else f"{value:.3f} µs"


def quartiles(spread: Spread) -> str:
    """The quartiles, in the unit of the median before them."""
    digits = 0 if spread.median >= 100 else 1 if spread.median >= 1 else 3
    return f"{spread.lower:,.{digits}f}-{spread.upper:,.{digits}f}"


def write_result(path: Path, result: Result) -> None:
    """Write what `--json` asked for."""
    try:
        path.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


# Blue, orange and green of Okabe and Ito's palette, and different marks: told apart with any colour vision.
_STYLES = (("#0072B2", "o", "-"), ("#E69F00", "s", "--"), ("#009E73", "^", "-."))


@dataclass(frozen=True, slots=True)
class Curve:
    """What was measured at some sizes."""

    label: str
    points: Sequence[tuple[int, Spread]]

    @property
    def sizes(self) -> list[int]:
        return [size for size, _ in self.points]

    @property
    def medians(self) -> list[float]:
        return [spread.median for _, spread in self.points]

    @property
    def reach(self) -> list[list[float]]:
        """How far the quartiles lie below and above the medians."""
        return [
            [spread.median - spread.lower for _, spread in self.points],
            [spread.upper - spread.median for _, spread in self.points],
        ]


def draw(path: Path, title: str, across: str, up: str, curves: Sequence[Curve]) -> None:
    """Write the picture to `path`: PNG, SVG or PDF by its suffix."""
    check_plot_path(path)
    figure, axes = _empty(title, across, up)
    for curve, (colour, marker, line) in zip(curves, _STYLES, strict=False):
        axes.errorbar(
            curve.sizes, curve.medians, yerr=curve.reach, label=curve.label, color=colour, marker=marker,
            linestyle=line, linewidth=1.6, markersize=5, capsize=2.5,
        )  # fmt: skip
    _add_guide(axes, curves[0])
    _dress(axes, curves[0].sizes)
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _empty(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    return figure, axes


def _add_guide(axes: Axes, curve: Curve) -> None:
    """A line of slope 1 that ends where the curve ends."""
    last, height = curve.sizes[-1], curve.medians[-1]
    ends = [curve.sizes[0], last]
    axes.plot(ends, [height * size / last for size in ends], color="0.6", linewidth=1, linestyle=":", label="slope 1")


def _dress(axes: Axes, sizes: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,.0f}")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none")
