"""An attack as it is asked for: which trials, against which mechanism; and what comes of it.

With noisy sums the candidate is one of the rows that a refresh within the run takes: of later ones nothing is released
before the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.actions import epsilon_total, eta
from hiddenarm.privacy.gaussian import REPLACED, advantage, epsilon_for, own_action_epsilon, tpr_at
from hiddenarm.privacy.mechanisms import DEFAULT_DELTA, Mechanism, NoisyGradient, NoisySums, Unbounded
from hiddenarm.research.attacks.bounds import LowerBound, lower_bound
from hiddenarm.research.attacks.evidence import Curve, Estimate, Evidence, calibration
from hiddenarm.research.attacks.noisy_sums import NoisySumsAttack
from hiddenarm.research.attacks.paper import Outcomes, PaperAttack, joined
from hiddenarm.research.attacks.sequence import SequenceAttack
from hiddenarm.research.attacks.trials import Design, Target, Trials
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.ring.streams import derive
from hiddenarm.ring.words import Floats

FALSE_ALARMS = 0.01
_LIMITS = (3.0, 5.0, 7.0)


@dataclass(frozen=True)
class Plan:
    """What is attacked, and how often. `position` is the candidate's step; None means any."""

    world: LabelWorld
    steps: int
    epsilon: float
    trials: int
    key: bytes
    target: Target = "drop"
    position: int | None = None
    privacy: Mechanism = field(default_factory=Unbounded)

    def __post_init__(self) -> None:
        if isinstance(self.privacy, NoisyGradient):
            raise ConfigError(f"attacks and audits are of noisy sums, not of {self.privacy.name}: choose noisy-sums")
        if not isinstance(self.privacy, NoisySums | Unbounded):
            raise ConfigError(
                f"a budget ({self.privacy.name}) stops a sequence and does not change what it tells: attack it with "
                "--steps of the number it allows, and no --privacy"
            )
        self.design  # noqa: B018 - checks the numbers

    @property
    def refreshes(self) -> int:
        """Within the run, with noisy sums."""
        return self.privacy.refreshes_by(self.steps) if isinstance(self.privacy, NoisySums) else 0

    @property
    def design(self) -> Design:
        places = None
        if isinstance(self.privacy, NoisySums) and self.refreshes:
            places = self.privacy.refresh_at(self.refreshes)
        return Design(self.world, self.target, self.steps, self.epsilon, self.trials, self.position, places)

    @property
    def attack(self) -> SequenceAttack | NoisySumsAttack:
        if isinstance(self.privacy, NoisySums):
            return NoisySumsAttack(self.design, self.privacy, self.key)
        return SequenceAttack(self.design)

    def portions(self, size: int) -> Iterator[Trials]:
        """All trials, so many at a time."""
        return self.design.portions(self.key, size)


@dataclass(frozen=True)
class Scored:
    """The scores of all trials made."""

    plan: Plan
    whole: Floats
    own_action: Floats
    present: NDArray[np.bool_]

    @property
    def curve(self) -> Curve:
        return self._evidence.curve

    @property
    def rates(self) -> tuple[Estimate, Estimate]:
        """The rate of hits at one false alarm in a hundred, and the advantage."""
        return _rates(self._evidence, self.plan.key)

    @property
    def _evidence(self) -> Evidence:
        return Evidence.of_trials(self.whole, self.present)

    def report(self) -> dict[str, Any]:
        """What `--json` writes."""
        return {
            **_setting(self.plan, "sequence", len(self.whole)),
            **_named_rates(*self.rates),
            **self._proven(),
            "calibration": [asdict(calibration(self.whole, self.present, limit)) for limit in _LIMITS],
        }

    def _proven(self) -> dict[str, Any]:
        """What no attack exceeds, for a dropped row under noisy sums."""
        if not isinstance(self.plan.privacy, NoisySums):
            return {}
        mu = _mu_of_sums(self.plan)
        proven = {"refreshes": self.plan.refreshes}
        if self.plan.target != "drop":
            return proven
        return {**proven, "largest_tpr_at_1_percent": tpr_at(mu, FALSE_ALARMS), "largest_advantage": advantage(mu)}

    def audit(self) -> dict[str, Any]:
        """What `hiddenarm audit --json` writes: bounds from below, beside those that are proven."""
        delta = _delta(self.plan)
        bound, own = (lower_bound(scores, self.present, delta) for scores in (self.whole, self.own_action))
        return {
            **_setting(self.plan, "audit", len(self.whole)),
            "delta": delta,
            "lower_bound": bound.epsilon,
            "ledger": _finite(ledger(self.plan)),
            "one_action": _finite(eta(self.plan.world.arms, self.plan.epsilon)),
            "lower_bound_from_own_action": own.epsilon,
            "counted": _counted(bound),
            **_named_rates(*self.rates),
        }


def sequence(plan: Plan, portions: Iterable[Trials], attack: SequenceAttack | NoisySumsAttack) -> Scored:
    """Attack portions of trials."""
    scored = [(attack.scores(trials), trials.present) for trials in portions]
    if not scored:
        raise KeyboardInterrupt
    whole, own, present = zip(*((scores.whole, scores.own_action, present) for scores, present in scored), strict=True)
    return Scored(plan, np.concatenate(whole), np.concatenate(own), np.concatenate(present))


@dataclass(frozen=True)
class PaperScored:
    """The same of the paper's attack."""

    plan: Plan
    outcomes: Outcomes

    @property
    def curve(self) -> Curve:
        return self.outcomes.evidence.curve

    @property
    def rates(self) -> tuple[Estimate, Estimate]:
        """The rate of hits at one false alarm in a hundred, and the advantage."""
        return _rates(self.outcomes.evidence, self.plan.key)

    def report(self) -> dict[str, Any]:
        """What `--json` writes."""
        halves = self.outcomes.advantage_across_halves(derive(self.plan.key, "halves"))
        setting = _setting(self.plan, "paper", len(self.outcomes.members))
        del setting["target"]
        return {
            **setting,
            **_named_rates(*self.rates),
            "advantage_across_halves": halves.value,
            "advantage_across_halves_interval": [halves.low, halves.high],
        }


def paper(plan: Plan, portions: Iterable[Trials], attack: PaperAttack) -> PaperScored:
    """Train and evaluate learners."""
    parts = [attack.outcomes(trials) for trials in portions]
    if not parts:
        raise KeyboardInterrupt
    return PaperScored(plan, joined(parts))


def ledger(plan: Plan) -> float:
    """The loss that is proven for these two worlds and all that is released: no attack shows more."""
    delta, arms = _delta(plan), plan.world.arms
    if not isinstance(plan.privacy, NoisySums):
        return epsilon_total(arms, {plan.epsilon: plan.design.later_actions}, delta)
    mu = _mu_of_sums(plan)
    return epsilon_for(mu, delta) if plan.target == "drop" else own_action_epsilon(mu, arms, plan.epsilon, delta)


def _mu_of_sums(plan: Plan) -> float:
    """What all noisy sums of a run tell about the candidate."""
    assert isinstance(plan.privacy, NoisySums)
    if not plan.refreshes:
        return 0.0
    return plan.privacy.mu * (1.0 if plan.target == "drop" else REPLACED)


def _delta(plan: Plan) -> float:
    return plan.privacy.delta if isinstance(plan.privacy, NoisySums) else DEFAULT_DELTA


def _rates(evidence: Evidence, key: bytes) -> tuple[Estimate, Estimate]:
    return (
        evidence.true_positive_at(FALSE_ALARMS, derive(key, "rate")),
        evidence.advantage(derive(key, "advantage")),
    )


def _named_rates(hits: Estimate, gain: Estimate) -> dict[str, Any]:
    return {
        "tpr_at_1_percent": hits.value,
        "tpr_at_1_percent_interval": [hits.low, hits.high],
        "advantage": gain.value,
        "advantage_interval": [gain.low, gain.high],
    }


def _counted(bound: LowerBound) -> dict[str, Any]:
    """A threshold beyond all scores is written as text: JSON has no infinity."""
    numbers = asdict(bound)
    numbers["threshold"] = _finite(bound.threshold)
    return numbers


def _finite(number: float) -> float | None:
    return number if abs(number) < inf else None


def _setting(plan: Plan, name: str, made: int) -> dict[str, Any]:
    return {
        "attack": name,
        "data": plan.world.name,
        "arms": plan.world.arms,
        "features": plan.world.features,
        "steps": plan.steps,
        "epsilon": plan.epsilon,
        "target": plan.target,
        "position": plan.position,
        "trials": made,
        "privacy": plan.privacy.name,
        **plan.privacy.options,
    }
