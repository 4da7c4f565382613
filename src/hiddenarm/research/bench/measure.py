"""One federation measured beside its plain twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hiddenarm.bandit.federation import Federation
from hiddenarm.research.bench.breakdown import Breakdown, break_down
from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.research.bench.timing import Effort, Spread, Work, alternate
from hiddenarm.research.results import Traffic


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds a step of both learners, and what a party sent."""

    federation: Federation
    steps: int
    private: Spread
    plain: Spread
    traffic: Traffic

    @property
    def ratio(self) -> float:
        """How many plain steps one private step takes."""
        return self.private.median / self.plain.median

    def as_dict(self) -> dict[str, Any]:
        """The keys of `--json`."""
        return {
            "suite": self.federation.suite,
            "parties": self.federation.parties,
            "arms": self.federation.arms,
            "features": self.federation.dimension,
            "steps": self.steps,
            "us_per_step": self.private.median,
            "us_per_step_quartiles": [self.private.lower, self.private.upper],
            "plain_us_per_step": self.plain.median,
            "plain_us_per_step_quartiles": [self.plain.lower, self.plain.upper],
            "ratio": self.ratio,
            "rounds_per_step": self.traffic.rounds_per_step,
            "rounds_per_decision": self.traffic.rounds_per_decision,
            "bytes_per_step_per_party": self.traffic.bytes_per_step_per_party,
        }


def measure_step(
    suite: str,
    *,
    parties: int,
    arms: int,
    features: int = 20,
    steps: int = 400,
    seconds: float = 30.0,
    newton_iterations: int | None = None,
) -> Measured:
    """Time a strictly online step of a suite over real processes with TLS, beside that of its plain twin.

    About `steps` steps are made, but fewer if they take longer than `seconds`.
    """
    return measure(make_federation(parties, arms, features, suite, newton_iterations), Effort.of(steps, seconds))


def measure(federation: Federation, effort: Effort) -> Measured:
    """Time both learners."""
    return measure_beside(federation, effort)[0]


def measure_beside(federation: Federation, effort: Effort, *others: Work) -> tuple[Measured, list[Spread]]:
    """Time both learners, and other work in turn with them."""
    with Session(federation) as session:
        private, plain, *rest = alternate(effort, [session.work, session.plain_twin().work, *others])
        traffic = session.finish()
        return Measured(federation, session.steps, private, plain, traffic), rest


def measure_and_break_down(federation: Federation, effort: Effort, steps: int) -> tuple[Measured, Spread, Breakdown]:
    """Time both learners, and private steps one by one; then the parts of a step while the federation is idle."""
    with Session(federation) as session:
        private, plain, singly = alternate(effort, [session.work, session.plain_twin().work, session.work_singly])
        first, second, *_ = session.party_kits()
        breakdown = break_down(federation, session.world, private.median, steps, (first, second))
        traffic = session.finish()
        return Measured(federation, session.steps, private, plain, traffic), singly, breakdown
