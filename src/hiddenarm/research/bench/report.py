"""What the benches print and write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hiddenarm.errors import ConfigError
from hiddenarm.research.bench.breakdown import Breakdown
from hiddenarm.research.bench.measure import Measured
from hiddenarm.research.bench.timing import Spread

Result = dict[str, Any]
"""What `--json` writes."""

_FILE_WIDTH = 120
_POINT_COLUMNS = ("private", "quartiles", "plain", "quartiles", "ratio", "rounds", "bytes a party")


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
