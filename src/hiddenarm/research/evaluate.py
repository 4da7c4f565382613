"""`hiddenarm evaluate`: off-policy values of a lockstep run, beside those that are true of it.

The run is a simulation on digits or MNIST, in which rewards of all arms are known. So the true value of a policy is the
mean of what its arms would have earned in the same steps. The model that is evaluated is a ridge regression for each
arm, fitted in the clear to the held-out part of the data. Its value by the estimator of low variance is told under a
name of its own.

What all that is released and opened reveals is the statement of the run's ledger, with the mechanism that was chosen.
An opening's noise is for a row's reward and match; its own coin moves sums and counts of both kinds, by sqrt(2) as
much. So what is stated of those who also see its own action counts every opening with sqrt(2) mu.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from hiddenarm.bandit.audit import plain_twin
from hiddenarm.bandit.evaluation import GREEDY, UNIFORM
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.off_policy import ESTIMATORS, IMPORTANCE, LOW_VARIANCE, OffPolicy
from hiddenarm.bandit.plain import PlainBandits
from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.gaussian import check_delta, epsilon_for, mu_for
from hiddenarm.privacy.ledger import PrivacyLedger, Statement, statement
from hiddenarm.privacy.mechanisms import DEFAULT_DELTA, ActionBudget, Mechanism
from hiddenarm.research.data.load import load_pair
from hiddenarm.research.data.worlds import LabelWorld, World, split_features
from hiddenarm.research.progress import ProgressDisplay, summary_table
from hiddenarm.research.results import standard_error
from hiddenarm.ring.streams import fresh_key
from hiddenarm.ring.words import Floats

FITTED = "model"
"""The name of the model that is evaluated."""
FITTED_LOW = "model_low_variance"
"""Under which its value by the estimator of low variance is told."""
BOTH = "both"
_NAMES = {IMPORTANCE: FITTED, LOW_VARIANCE: FITTED_LOW}
Result = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Evaluated:
    """A run to evaluate: replicate r lives in the world reseeded by r."""

    federation: Federation
    world: LabelWorld
    model: Floats
    steps: int
    window: int
    mu: float | None
    delta: float
    replicates: int
    epoch_key: bytes
    estimators: tuple[str, ...] = (IMPORTANCE,)
    at_epsilon: float | None = None

    @classmethod
    def prepared(cls, options: dict[str, Any], policy: Policy, privacy: Mechanism) -> Evaluated:
        """Check everything that can be checked before work begins."""
        delta = DEFAULT_DELTA if options["delta"] is None else options["delta"]
        _check(options, delta, privacy)
        steps, window, epsilon, seed = (options[name] for name in ("steps", "window", "opening_epsilon", "seed"))
        training, held_out = load_pair(options["data"], data_dir=options["data_dir"], seed=seed or 0, kind="classes")
        assert isinstance(training, LabelWorld)
        features = tuple(split_features(training.features, options["parties"]))
        federation = Federation(arms=training.arms, features=features, policy=policy, privacy=privacy)
        key = fresh_key() if seed is None else sha256(f"hiddenarm evaluate {seed}".encode()).digest()
        mu = None if epsilon is None else mu_for(epsilon, delta)
        told = steps, window, mu, delta, options["replicates"], key
        estimators = ESTIMATORS if options["estimator"] == BOTH else (options["estimator"],)
        run = cls(federation, training, _fitted(held_out), *told, estimators, options["at_epsilon"])
        run._off_policy(Lockstep(federation, key))
        return run

    def run(self) -> Result:
        """Run to the end; values of whole windows, means over replicates, and deviations of what is off."""
        lockstep = Lockstep(self.federation, self.epoch_key, replicates=self.replicates)
        off, course = self._off_policy(lockstep), _Course(self, lockstep)
        steps = self.steps - self.steps % self.window
        with ProgressDisplay(steps, f"{self.federation.parties} parties in lockstep, {self.world.name}") as display:
            for step in range(steps):
                course.step(step, lockstep, off)
                display.update(steps=step + 1, **course.shown(step + 1))
        return self._result(off, {name: total / steps for name, total in course.true.items()}, lockstep)

    def _off_policy(self, lockstep: Lockstep) -> OffPolicy:
        return OffPolicy(lockstep, self.window, self.mu, {FITTED: self.model}, self.estimators)

    def _result(self, off: OffPolicy, true: dict[str, Floats], lockstep: Lockstep) -> Result:
        result: Result = {}
        told = {GREEDY: (GREEDY, IMPORTANCE), UNIFORM: (UNIFORM, IMPORTANCE)}
        told |= {_NAMES[estimator]: (FITTED, estimator) for estimator in self.estimators}
        for key, (name, estimator) in told.items():
            value = off.value(name, estimator)
            result[key] = {"ratio": _mean(value.ratio), **_beside(value.unbiased, true[name])}
        if self.at_epsilon is not None:
            result["at_epsilon"] = {"epsilon": self.at_epsilon, **self._with_epsilon(off, true, self.at_epsilon)}
        opened = lockstep.ledger.opened
        return {
            **result,
            "decisions": off.decisions,
            "window": self.window,
            "replicates": self.replicates,
            "policy": str(self.federation.policy),
            "epsilon_openings": epsilon_for(sqrt(opened), self.delta) if opened else None,
            "delta": self.delta,
            "privacy": _released(lockstep.ledger, self.federation, self.delta).to_dict(),
        }

    def _with_epsilon(self, off: OffPolicy, true: dict[str, Floats], epsilon: float) -> Result:
        """The same policy with another chance to explore earns the two values, each in its share of the decisions."""
        greedy, uniform = (off.value(name).unbiased for name in (GREEDY, UNIFORM))
        expected = (1 - epsilon) * true[GREEDY] + epsilon * true[UNIFORM]
        return _beside((1 - epsilon) * greedy + epsilon * uniform, expected)


def _check(options: dict[str, Any], delta: float, privacy: Mechanism) -> None:
    """Refuse options that do not go together, before any work."""
    steps, window, epsilon, other = (options[name] for name in ("steps", "window", "opening_epsilon", "at_epsilon"))
    if window < 1 or steps < window:
        raise ConfigError(f"--steps must be at least --window, and both at least 1; got {steps} and {window}")
    if options["replicates"] < 1:
        raise ConfigError(f"--replicates must be at least 1, got {options['replicates']}")
    check_delta(delta)
    if epsilon is not None and not 0 < epsilon < 100:
        raise ConfigError(f"--opening-epsilon must lie above 0 and below 100, got {epsilon}")
    if other is not None and not 0 <= other <= 1:
        raise ConfigError(f"--at-epsilon must lie in [0, 1], got {other}")
    if isinstance(privacy, ActionBudget):
        raise ConfigError(
            "--privacy action-budget does not go with evaluate: with exploration alone there is no bound once values "
            "are opened; choose noisy-sums, or none"
        )
    path = options["json_path"]
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")


def _released(ledger: PrivacyLedger, federation: Federation, delta: float) -> Statement:
    """What the run has released means; of a row's own action with its coin (see above)."""
    with_coin = replace(ledger, opened=2 * ledger.opened, row_opened=2 * ledger.row_opened)
    found, own = (statement(each, federation.arms, federation.privacy, delta) for each in (ledger, with_coin))
    bounds = (own[bound.relation] if bound.relation == "with_own_action" else bound for bound in found.bounds)
    return replace(found, bounds=tuple(bounds))


class _Course:
    """The worlds of all replicates, a taught twin for each, and what is true of the steps so far."""

    def __init__(self, run: Evaluated, lockstep: Lockstep) -> None:
        self._run, copies = run, run.replicates
        self._worlds = [run.world.reseeded(run.world.seed + replicate) for replicate in range(copies)]
        self._twins = _twins(run.federation, lockstep)
        self._rewards = self._agreed = self._plain = 0.0
        self.true = {name: np.zeros(copies) for name in (GREEDY, UNIFORM, FITTED)}
        """What the arms of each policy would have earned, added up."""

    def step(self, step: int, lockstep: Lockstep, off: OffPolicy) -> None:
        """Decide, take up the reward for evaluation, and learn it."""
        federation, twins = self._run.federation, self._twins
        x = np.stack([world.context(step) for world in self._worlds])
        labels = np.array([world.labels[world.row(step)] for world in self._worlds])
        number, arms = lockstep.decide(np.split(x, np.cumsum(federation.features)[:-1], axis=1))
        coins = lockstep.coins(number, 1).of(0)
        own = twins.decide(x, np.zeros_like(coins.explore), coins.tags, coins.normals)
        drawn = coins.explore, coins.tags, federation.score_rounding, coins.normals
        self._agreed += float(twins.agree(arms, x, *drawn).mean())
        rewards = (arms == labels).astype(np.float64)
        off.add(number, rewards)
        lockstep.learn(number, rewards)
        twins.learn(x, arms, rewards)
        self._rewards += float(rewards.mean())
        self._plain += float((np.where(coins.explore, arms, own) == labels).mean())
        self.true[GREEDY] += np.where(coins.explore, own, arms) == labels
        self.true[UNIFORM] += 1 / federation.arms
        self.true[FITTED] += (x @ self._run.model.T).argmax(axis=1) == labels

    def shown(self, steps: int) -> dict[str, float]:
        """What the display shows."""
        return {
            "reward": self._rewards / steps,
            "plain_reward": self._plain / steps,
            "agreement": self._agreed / steps,
        }


class _GatheringTwins:
    """Twins that only gather, and that are refreshed with the lockstep run's noise; they decide as those of the policy
    do, by the models that they were refreshed to."""

    def __init__(self, federation: Federation, lockstep: Lockstep) -> None:
        def noise(replicate: int, refresh: int) -> tuple[Floats, Floats]:
            grams, moments = lockstep.noise(refresh)
            return grams[replicate], moments[replicate]

        copies = range(lockstep.replicates)
        self._twins = [plain_twin(federation, partial(noise, replicate)) for replicate in copies]
        self._models = federation.policy.twins(federation, lockstep.replicates)
        self.decide, self.agree = self._models.decide, self._models.agree

    def learn(self, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        for replicate, twin in enumerate(self._twins):
            twin.learn(contexts[replicate], int(arms[replicate]), float(rewards[replicate]))
            twin.end_lesson()
            self._models.inverses[replicate], self._models.weights[replicate] = twin.inverses, twin.weights


def _twins(federation: Federation, lockstep: Lockstep) -> PlainBandits | _GatheringTwins:
    if federation.noisy is None:
        return federation.policy.twins(federation, lockstep.replicates)
    return _GatheringTwins(federation, lockstep)


def _beside(value: Floats, true: Floats) -> Result:
    """The means over replicates of an estimate and of what is true, and how far they may be apart."""
    return {
        "value": float(value.mean()),
        "true": float(true.mean()),
        "standard_error": standard_error(value - true),
    }


def _mean(ratios: Floats) -> float | None:
    """Of those that there are: noise can leave nothing to divide by."""
    found = ratios[np.isfinite(ratios)]
    return float(found.mean()) if len(found) else None


def _fitted(world: World) -> Floats:
    """A ridge regression for each arm on all rows, brought to scores of at most 1 in length."""
    assert isinstance(world, LabelWorld)
    x, targets = world.contexts, np.eye(world.arms)[world.labels]
    weights = np.linalg.solve(x.T @ x + np.eye(world.features), x.T @ targets).T
    return np.asarray(weights / np.linalg.norm(weights, axis=1).max())


def print_evaluated(console: Console, result: Result, path: Path | None) -> None:
    """The table at the end of a run, and the file."""
    names = {
        GREEDY: "the policy without exploration",
        UNIFORM: "a uniform arm",
        FITTED: "the model of held-out digits",
        FITTED_LOW: "the same, with low variance",
    }
    rows = [(what, _told(result[name])) for name, what in names.items() if name in result]
    if "at_epsilon" in result:
        other = result["at_epsilon"]
        rows.append(
            (f"the policy at epsilon {other['epsilon']:g}", f"{other['value']:.4f}  (true {other['true']:.4f})")
        )
    told = result["epsilon_openings"]
    without = "none: sums were opened without noise"
    rows.append(("openings alone, own reward and match", without if told is None else f"epsilon {told:.4g}"))
    rows.append(("privacy over time", _shown_privacy(result["privacy"])))
    console.print(summary_table(f"values from {result['decisions']} decisions", rows))
    if path is not None:
        try:
            path.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _shown_privacy(released: dict[str, Any]) -> str:
    """What all that was released and opened tells about one row."""
    total = released["epsilon_total"]
    if total is None:
        return "no bound (vacuous)"
    return f"epsilon {total:.4g} at delta {released['delta']:g}" + (", vacuous" if released["vacuous"] else "")


def _told(found: dict[str, float | None]) -> str:
    ratio = "none" if found["ratio"] is None else f"{found['ratio']:.4f}"
    return f"{found['value']:.4f}  (ratio {ratio}, true {found['true']:.4f})"
