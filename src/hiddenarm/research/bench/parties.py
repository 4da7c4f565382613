"""`hiddenarm bench parties`: how a step grows with the number of parties.

Each party sends the same words to each other party, so what it sends in all grows with the number of *other* parties.
Over 2 to 8 parties a line through N - 1 on logarithmic axes over N has slope 1.4; over N - 1 itself the slope is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from hiddenarm.research.bench.measure import measure_step
from hiddenarm.research.bench.pictures import Curve, draw
from hiddenarm.research.bench.report import Result, print_points
from hiddenarm.research.bench.timing import Spread, exponent


def bench_parties(
    console: Console,
    *,
    parties: Sequence[int],
    arms: int,
    features: int,
    steps: int,
    seconds: float,
    plot: Path | None,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, draw, return what `--json` writes."""
    measured = partial(
        measure_step,
        suite,
        arms=arms,
        features=features,
        steps=steps,
        seconds=seconds,
        newton_iterations=newton_iterations,
    )
    points = [(count, measured(parties=count)) for count in parties]
    print_points(console, f"A step by parties: {arms} arms, {features} features, {suite} suite", "parties", points)
    sent = [point.traffic.bytes_per_step_per_party for _, point in points]
    over_all = over_others = None
    if len(points) > 1:
        over_all, over_others = exponent(parties, sent), exponent([count - 1 for count in parties], sent)
        console.print(f"Bytes a party grow as N^{over_all:.2f}, and as (N - 1)^{over_others:.2f}.")
    if plot is not None:
        kilobytes = Curve(
            "KB sent by a party", [(n, _exact(size / 1000)) for (n, _), size in zip(points, sent, strict=True)]
        )
        times = Curve("ms per step", [(count, point.private.scaled(1e-3)) for count, point in points])
        draw(plot, "A step by parties", "parties", "", (kilobytes, times))
    return {
        "points": [point.as_dict() for _, point in points],
        "bytes_exponent": over_all,
        "bytes_exponent_by_peers": over_others,
    }


def _exact(value: float) -> Spread:
    return Spread(value, value, value)
