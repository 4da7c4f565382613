"""How all figures look: sizes for a column of a paper, readable in grey and with any colour vision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hiddenarm.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

# Okabe and Ito's palette, each with its own mark and line: told apart with any colour vision, and in grey.
STYLES = (
    ("#0072B2", "o", "-"),
    ("#E69F00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#D55E00", "v", (0, (5, 1))),
    ("#56B4E9", "P", (0, (3, 1, 1, 1))),
    ("#000000", "X", (0, (1, 1))),
)
WIDTH, HEIGHT = 6.4, 4.0


def empty_figure(*, columns: int = 1, rows: int = 1, share_y: bool = False) -> tuple[Figure, Sequence[Axes]]:
    """A figure with axes side by side, row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = WIDTH if columns == 1 else 4.8 * columns, HEIGHT * rows
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, sharey=share_y, squeeze=False).ravel()
    for one in axes:
        dress(one)
    return figure, list(axes)


def dress(axes: Axes) -> None:
    """No frame where there is no axis, and a faint grid."""
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def add_line(axes: Axes, style: int, x: ArrayLike, y: ArrayLike, label: str, spread: ArrayLike | None = None) -> None:
    """Points joined by a line, with bars of one standard deviation where `spread` is given."""
    colour, marker, line = STYLES[style % len(STYLES)]
    axes.errorbar(
        x, y, yerr=spread, label=label, color=colour, marker=marker, linestyle=line, linewidth=1.5, markersize=5,
        capsize=2.5, elinewidth=1,
    )  # fmt: skip


def add_dots(axes: Axes, style: int, values: Mapping[float, ArrayLike]) -> None:
    """Single runs, as faint dots in the colour of their line."""
    colour, _, _ = STYLES[style % len(STYLES)]
    for place, runs in values.items():
        heights = np.asarray(runs)
        axes.plot(np.full(len(heights), place), heights, ".", color=colour, markersize=4, alpha=0.6)


def add_curve(axes: Axes, style: int, steps: ArrayLike, mean: ArrayLike, deviation: ArrayLike, label: str) -> None:
    """A curve without marks, and a shaded region of one standard deviation."""
    colour, _, line = STYLES[style % len(STYLES)]
    mean, deviation = np.asarray(mean), np.asarray(deviation)
    axes.fill_between(np.asarray(steps), mean - deviation, mean + deviation, color=colour, alpha=0.18, linewidth=0)
    axes.plot(steps, mean, color=colour, linestyle=line, linewidth=1.6, label=label)


def add_legend(axes: Axes, title: str | None = None, **options: Any) -> None:
    """A legend without a frame around it."""
    axes.legend(title=title, framealpha=0.9, edgecolor="none", alignment="left", **options)


def set_logarithmic(axes: Axes, sizes: Sequence[int]) -> None:
    """Both axes logarithmic; the sizes themselves are the ticks of the one across."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    axes.set(xscale="log", yscale="log")
    low, high = axes.get_ylim()
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def add_slopes(
    axes: Axes, sizes: Sequence[int], lowest: Sequence[float], highest: Sequence[float], start: float
) -> None:
    """Grey guides of slope 1 and 2 from the size `start` to the end: below lines that are steep, above lines that are
    flat, so that they cross none."""
    first = max((size for size in sizes if size <= start), default=sizes[0])
    growth = np.array([size / first for size in sizes if size >= first])
    if len(growth) < 2:
        return
    below, above = np.asarray(lowest)[-len(growth) :], np.asarray(highest)[-len(growth) :]
    steep = below[-1] > below[0] * growth[-1]
    height = 0.6 * (below / growth**2).min() if steep else 1.6 * (above / growth).max()
    for slope, line in ((1, (0, (1, 2))), (2, (0, (4, 2)))):
        end = height * growth[-1] ** slope
        axes.plot([first, sizes[-1]], [height, end], color="0.45", linewidth=1, linestyle=line, zorder=1)
        axes.annotate(
            f"slope {slope}", (sizes[-1], end), xytext=(4, 0), textcoords="offset points", color="0.35", fontsize=8,
            va="center",
        )  # fmt: skip


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write SVG (text as text, no date, so that equal figures are equal files) and PNG."""
    import matplotlib

    try:
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png")
    except OSError as error:
        raise ConfigError(f"cannot write figures to {folder}: {error.strerror}") from error
