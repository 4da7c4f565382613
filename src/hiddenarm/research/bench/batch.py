"""`hiddenarm bench batch`: decisions and lessons in batches, over real processes with TLS, for each interaction."""

from __future__ import annotations

from rich.console import Console

from hiddenarm.errors import ConfigError
from hiddenarm.research.bench.measure import Measured
from hiddenarm.research.bench.report import Result, point_cells, print_table
from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.research.bench.timing import Effort, alternate


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
