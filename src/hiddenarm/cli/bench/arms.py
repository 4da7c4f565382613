"""`hiddenarm bench arms`: how a step grows with the number of arms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hiddenarm.cli.bench.measure import Measured, measure
from hiddenarm.cli.bench.pictures import Curve, draw
from hiddenarm.cli.bench.report import Result, print_points
from hiddenarm.cli.bench.session import make_federation
from hiddenarm.cli.bench.timing import Effort, exponent

FITTED_FROM = 40
"""The slope is that of the numbers of arms from here on: below, rounds weigh more than words."""


def bench_arms(
    console: Console,
    *,
    parties: int,
    arms: Sequence[int],
    features: int,
    steps: int,
    seconds: float,
    plot: Path | None,
) -> Result:
    """Measure, print, draw, return what `--json` writes. Each number of arms has `seconds`, and at least two steps."""
    points = [(count, _point(parties, count, features, steps, seconds)) for count in arms]
    print_points(console, f"A step by arms: {parties} parties, {features} features", "arms", points)
    fitted = [(count, point.private.median) for count, point in points if count >= FITTED_FROM]
    slope = exponent([count for count, _ in fitted], [time for _, time in fitted]) if len(fitted) > 1 else None
    if slope is not None:
        console.print(f"Time a step grows as arms^{slope:.2f} from {FITTED_FROM} arms on.")
    if plot is not None:
        private = Curve("private", [(count, point.private) for count, point in points])
        plain = Curve("plain twin", [(count, point.plain) for count, point in points])
        draw(plot, "Time of a step by arms", "arms", "µs a step", (private, plain))
    return {"points": [point.as_dict() for _, point in points], "exponent_from_40": slope}


def _point(parties: int, arms: int, features: int, steps: int, seconds: float) -> Measured:
    return measure(make_federation(parties, arms, features), Effort.of(steps, seconds))
