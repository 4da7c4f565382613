"""`hiddenarm bench step`, `batch`, `arms` and `parties`: interactions over real processes with TLS, beside plain ones.

    step      one strictly online step, and where its time goes
    batch     decisions and lessons in batches, for each interaction
    arms      how a step grows with the number of arms
    parties   how a step grows with the number of parties

Each party sends the same words to each other party, so what it sends in all grows with the number of *other* parties.
Over 2 to 8 parties a line through N - 1 on logarithmic axes over N has slope 1.4; over N - 1 itself the slope is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from rich.console import Console

from hiddenarm.errors import ConfigError
from hiddenarm.research.bench.breakdown import Breakdown
from hiddenarm.research.bench.report import (
    Curve,
    Result,
    draw,
    micros,
    point_cells,
    print_breakdown,
    print_points,
    print_table,
)
from hiddenarm.research.bench.session import Measured, Session, make_federation, measure_and_break_down, measure_step
from hiddenarm.research.bench.timing import Effort, Spread, alternate, exponent

_MACHINE_STEPS = 200
_COLUMNS = ("private", "quartiles", "plain", "quartiles", "ratio", "rounds", "bytes per party")
_Rest = TypeVar("_Rest")


def bench_step(
    console: Console,
    *,
    parties: int,
    arms: int,
    features: int,
    steps: int,
    seconds: float,
    runs: int = 1,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes."""
    federation = make_federation(parties, arms, features, suite, newton_iterations)
    effort = Effort.of(steps, seconds)

    def measure() -> tuple[Measured, tuple[Spread, Breakdown]]:
        measured, singly, breakdown = measure_and_break_down(federation, effort, min(steps, _MACHINE_STEPS))
        return measured, (singly, breakdown)

    made = _repeat(console, runs, measure)
    measured, (singly, breakdown) = _middle(made)
    title = f"A step: {parties} parties, {arms} arms, {features} features, {suite} suite; {measured.steps:,} steps"
    _print_runs(console, title, made)
    ratio = singly.median / measured.plain.median
    console.print(f"Asked for only when the step before has ended: {singly.median:,.0f} µs, {ratio:.1f} plain steps\n")
    print_breakdown(console, breakdown)
    return {**_result(made), "us_per_single_step": singly.median, "breakdown": asdict(breakdown)}


def bench_batch(
    console: Console,
    *,
    parties: int,
    arms: int,
    features: int,
    batch: int,
    batches: int,
    seconds: float,
    runs: int = 1,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes. A step is one interaction; the plain twin learns it by itself."""
    federation = make_federation(parties, arms, features, suite, newton_iterations)
    if not federation.learner.learns_many:
        raise ConfigError(f"--suite {suite} learns from one reward at a time: there are no batches to measure")
    effort = Effort(batch, batches, seconds)

    def measure() -> tuple[Measured, None]:
        with Session(federation) as session:
            private, plain = alternate(effort, [session.work_at_once, session.plain_twin().work])
            return Measured(federation, session.steps, private, plain, session.finish()), None

    made = _repeat(console, runs, measure)
    title = f"An interaction in batches of {batch}: {parties} parties, {arms} arms, {features} features"
    _print_runs(console, title, made)
    return {**_result(made), "batch": batch}


# Several runs: each has a federation of its own, since chance at its start lasts as long as its processes


def _repeat(console: Console, runs: int, measure: Callable[[], tuple[Measured, _Rest]]) -> list[tuple[Measured, _Rest]]:
    """Measure so many times; of several, say what each came to as soon as it has ended.

    On a terminal a line says which run is under way. Nothing moves meanwhile: that would take time from what is timed.
    """
    made = []
    for number in range(1, runs + 1):
        if runs > 1 and console.is_terminal:
            console.print(f"run {number} of {runs} is under way", end="\r")
        measured, rest = measure()
        made.append((measured, rest))
        if runs > 1:
            console.print(
                f"run {number} of {runs}: private {micros(measured.private.median)}, plain "
                f"{micros(measured.plain.median)}, ratio {measured.ratio:,.1f}"
            )
    return made


def _middle(made: Sequence[tuple[Measured, _Rest]]) -> tuple[Measured, _Rest]:
    """The run whose ratio is the median; of two the lower."""
    return sorted(made, key=lambda run: run[0].ratio)[(len(made) - 1) // 2]


def _median_ratio(made: Sequence[tuple[Measured, _Rest]]) -> float:
    return median(measured.ratio for measured, _ in made)


def _print_runs(console: Console, title: str, made: Sequence[tuple[Measured, _Rest]]) -> None:
    """The run in the middle as a table; of several, their median ratio below it."""
    print_table(console, title, ("", *_COLUMNS), [("", *point_cells(_middle(made)[0]))])
    if len(made) > 1:
        console.print(f"Above is the run in the middle. Median ratio of {len(made)} runs: {_median_ratio(made):,.1f}\n")


def _result(made: Sequence[tuple[Measured, _Rest]]) -> Result:
    """What the run in the middle measured, the median ratio, and the figures of all runs."""
    names = ("us_per_step", "plain_us_per_step", "ratio")
    figures = [measured.as_dict() for measured, _ in made]
    return {
        **_middle(made)[0].as_dict(),
        "median_ratio": _median_ratio(made),
        "runs": [{name: one[name] for name in names} for one in figures],
    }


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
        console.print(f"Time per step grows as arms^{slope:.2f} from {FITTED_FROM} arms on.")
    if plot is not None:
        private = Curve("private", [(count, point.private) for count, point in points])
        plain = Curve("plain twin", [(count, point.plain) for count, point in points])
        draw(plot, "Time of a step by arms", "arms", "µs per step", (private, plain))
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
        console.print(f"Bytes per party grow as N^{over_all:.2f}, and as (N - 1)^{over_others:.2f}.")
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
