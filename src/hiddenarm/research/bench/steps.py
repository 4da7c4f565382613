"""`hiddenarm bench step`, `batch`, `arms` and `parties`: interactions over real processes with TLS, beside plain ones.

    step      one strictly online step, and where its time goes
    batch     decisions and lessons in batches, for each interaction
    arms      how a step grows with the number of arms
    parties   how a step grows with the number of parties

Each party sends the same words to each other party, so what it sends in all grows with the number of *other* parties.
Over 2 to 8 parties a line through N - 1 on logarithmic axes over N has slope 1.4; over N - 1 itself the slope is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from hiddenarm.errors import ConfigError
from hiddenarm.research.bench.report import Curve, Result, draw, point_cells, print_breakdown, print_points, print_table
from hiddenarm.research.bench.session import Measured, Session, make_federation, measure_and_break_down, measure_step
from hiddenarm.research.bench.timing import Effort, Spread, alternate, exponent

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


def bench_batch(
    console: Console,
    *,
    parties: int,
    arms: int,
    features: int,
    batch: int,
    batches: int,
    seconds: float,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes. A step is one interaction; the plain twin learns it by itself."""
    federation = make_federation(parties, arms, features, suite, newton_iterations)
    if not federation.learner.learns_many:
        raise ConfigError(f"--suite {suite} learns from one reward at a time: there are no batches to measure")
    effort = Effort(batch, batches, seconds)
    with Session(federation) as session:
        private, plain = alternate(effort, [session.work_at_once, session.plain_twin().work])
        measured = Measured(federation, session.steps, private, plain, session.finish())
    names = ("private", "quartiles", "plain", "quartiles", "ratio", "rounds", "bytes a party")
    title = f"An interaction in batches of {batch}: {parties} parties, {arms} arms, {features} features"
    print_table(console, title, ("", *names), [("", *point_cells(measured))])
    return {**measured.as_dict(), "batch": batch}


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
