"""`hiddenarm bench arms`: how a step grows with the number of arms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from hiddenarm.research.bench.measure import measure_step
from hiddenarm.research.bench.pictures import Curve, draw
from hiddenarm.research.bench.report import Result, print_points
from hiddenarm.research.bench.timing import exponent

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
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, draw, return what `--json` writes. Each number of arms has `seconds`, and at least two steps."""
    measured = partial(
        measure_step,
        suite,
        parties=parties,
        features=features,
        steps=steps,
        seconds=seconds,
        newton_iterations=newton_iterations,
    )
    points = [(count, measured(arms=count)) for count in arms]
    print_points(console, f"A step by arms: {parties} parties, {features} features, {suite} suite", "arms", points)
    fitted = [(count, point.private.median) for count, point in points if count >= FITTED_FROM]
    slope = exponent([count for count, _ in fitted], [time for _, time in fitted]) if len(fitted) > 1 else None
    if slope is not None:
        console.print(f"Time a step grows as arms^{slope:.2f} from {FITTED_FROM} arms on.")
    if plot is not None:
        private = Curve("private", [(count, point.private) for count, point in points])
        plain = Curve("plain twin", [(count, point.plain) for count, point in points])
        draw(plot, "Time of a step by arms", "arms", "µs a step", (private, plain))
    return {"points": [point.as_dict() for _, point in points], "exponent_from_40": slope}
