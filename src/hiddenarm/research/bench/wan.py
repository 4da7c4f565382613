"""`hiddenarm bench wan`: a decision and a step over long lines, counted in one-way delays.

All links between all roles are delayed (see `relay`), and the same is done through a relay without delay in the same
run: what that takes is local processing, the relay's own included. By design a decision takes a delay for the request,
one for each round and one for the answer; a step one more for the reward and for each round of learning. In the fast
suite with few arms these are 4 and 5 rounds, and three rounds of learning fall into the two delays of answer and
reward: that is 6 and 10 delays. In the paper's there are more rounds, and all of learning follows the reward.

The end of a step is the moment at which the next decision can begin at the parties. To see it from outside, the next
request is sent while the lesson is being learned. It waits at the parties for the model, and its answer comes one
decision later, less the delay of its request, which had been spent before: step = both together - (decision - delay).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from rich.console import Console

from hiddenarm.bandit.federation import Federation
from hiddenarm.research.bench.report import Result, print_table
from hiddenarm.research.bench.session import Measured, Session, make_federation
from hiddenarm.research.bench.timing import Spread

_PLAIN_STEPS = 200


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of some decisions and steps, and what stands in `Measured` besides."""

    decision: Spread
    step: Spread
    learned: Spread
    measured: Measured


def bench_wan(
    console: Console,
    *,
    parties: int,
    arms: int,
    features: int,
    steps: int,
    delay_ms: float,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes."""
    federation, delay = make_federation(parties, arms, features, suite, newton_iterations), delay_ms / 1000
    near, far = (_measure(federation, steps, seconds) for seconds in (0.0, delay))
    rows = [
        ("decision: request to arm", far.decision, near.decision),
        ("step: request to new model", far.step, near.step),
        ("request to notice of it", far.learned, near.learned),
    ]
    sizes = f"{parties} parties, {arms} arms, {features} features, {suite} suite"
    title = f"Delays of {delay_ms:g} ms each way between all roles: {sizes}"
    columns = ("", "time", "quartiles", "delays", "no delay", "delays less local")
    print_table(console, title, columns, [_cells(name, there, here, delay) for name, there, here in rows])
    return {
        **far.measured.as_dict(),
        "delay_ms": delay_ms,
        "decision_delays": far.decision.median / delay,
        "step_delays": far.step.median / delay,
        "learned_delays": far.learned.median / delay,
        "decision_delays_less_local": (far.decision.median - near.decision.median) / delay,
        "step_delays_less_local": (far.step.median - near.step.median) / delay,
        "local_decision_us": 1e6 * near.decision.median,
        "local_step_us": 1e6 * near.step.median,
    }


def _cells(name: str, there: Spread, here: Spread, delay: float) -> Sequence[str]:
    return (
        name,
        f"{1e3 * there.median:.2f} ms",
        f"{1e3 * there.lower:.2f}-{1e3 * there.upper:.2f}",
        f"{there.median / delay:.2f}",
        f"{1e3 * here.median:.2f} ms",
        f"{(there.median - here.median) / delay:.2f}",
    )


def _measure(federation: Federation, steps: int, delay: float) -> _Times:
    with Session(federation, delay) as session, ThreadPoolExecutor(1) as second:
        plain = session.plain_twin()
        session.work(2)
        samples, plain_us = [], []
        for _ in range(steps):
            samples.append(_step_and_next(session, second, delay) if delay else _step(session))
            plain_us.append(1e6 * plain.work(_PLAIN_STEPS) / _PLAIN_STEPS)
        traffic = session.finish()
    decision, step, learned = (Spread.of(figures) for figures in np.transpose(samples).tolist())
    measured = Measured(federation, session.steps, step.scaled(1e6), Spread.of(plain_us), traffic)
    return _Times(decision, step, learned, measured)


def _step(session: Session) -> tuple[float, float, float]:
    """The same without delay: the step is over when the rewarder has heard so."""
    key, label = session.next_context()
    start = perf_counter()
    decision = session.actor.decide(key, session.version)
    decided = perf_counter()
    session.version = session.rewarder.reward(decision.id, float(decision.arm == label))
    learned = perf_counter()
    return decided - start, learned - start, learned - start


def _step_and_next(session: Session, second: ThreadPoolExecutor, delay: float) -> tuple[float, float, float]:
    """Seconds of a decision, of its whole step, and until the rewarder has heard of its end from all parties."""
    key, label = session.next_context()
    next_key, next_label = session.next_context()
    start = perf_counter()
    decision = session.actor.decide(key, session.version)
    decided = perf_counter()
    lesson = second.submit(_reward, session, decision.id, float(decision.arm == label))
    following = session.actor.decide(next_key, session.version + 1)
    answered = perf_counter()
    learned = lesson.result()
    session.version = session.rewarder.reward(following.id, float(following.arm == next_label))
    return decided - start, answered - start - (decided - start - delay), learned - start


def _reward(session: Session, decision: str, reward: float) -> float:
    session.rewarder.reward(decision, reward)
    return perf_counter()
