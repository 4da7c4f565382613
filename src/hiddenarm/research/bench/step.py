"""`hiddenarm bench step`: one strictly online step, over real processes with TLS."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from hiddenarm.research.bench.measure import measure_and_break_down
from hiddenarm.research.bench.report import Result, point_cells, print_breakdown, print_table
from hiddenarm.research.bench.session import make_federation
from hiddenarm.research.bench.timing import Effort

_MACHINE_STEPS = 200


def bench_step(
    console: Console,
    *,
    parties: int,
    arms: int,
    features: int,
    steps: int,
    seconds: float,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes."""
    federation = make_federation(parties, arms, features, suite, newton_iterations)
    effort = Effort.of(steps, seconds)
    measured, singly, breakdown = measure_and_break_down(federation, effort, min(steps, _MACHINE_STEPS))
    names = ("private", "quartiles", "plain", "quartiles", "ratio", "rounds", "bytes a party")
    title = f"A step: {parties} parties, {arms} arms, {features} features, {suite} suite; {measured.steps:,} steps"
    print_table(console, title, ("", *names), [("", *point_cells(measured))])
    ratio = singly.median / measured.plain.median
    console.print(f"Asked for only when the step before has ended: {singly.median:,.0f} µs, {ratio:.1f} plain steps\n")
    print_breakdown(console, breakdown)
    return {**measured.as_dict(), "us_per_single_step": singly.median, "breakdown": asdict(breakdown)}
