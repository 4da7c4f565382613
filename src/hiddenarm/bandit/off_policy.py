"""Off-policy evaluation on shares: what other policies would have earned, from decisions that one policy made.

y is the dealer's coin: 1 where a decision was explored. It is independent of context, model and rewards, so for T
decisions that explore with chance epsilon, whatever the learner does meanwhile, these means are unbiased:

    greedy    the policy itself without exploration    sum (1 - y) r / ((1 - epsilon) T)
    uniform   a uniform arm                            sum y r / (epsilon T)
    model     pi, the best arm of other weights        A / (epsilon T) sum y [arm = pi(x)] r
    the same, with low variance                        sum (1 - y) [arm = pi(x)] r / ((1 - epsilon) T)
                                                       + A / (epsilon T) sum y [arm = pi(x)] [g != pi(x)] r

Each divided by the sum of its weights in place of T is nearly unbiased, and varies less. g is the arm that the policy
would have chosen without exploring. Where g is pi's arm, the decisions that were not explored tell its reward, nearly
all of them; only where it is not does the estimate rest on the few that were explored. g may be drawn anew, with other
tags and normal numbers than the decision had: given the past it has the same law, so the mean stays the same.

A program treats a window of decisions. Rewards, and what is compared with pi's arm, are masked; y is dealt, by the
dealer that drew it; only shares of sums come out, with noise that the dealer deals into them. The parties send these to
the receiver, who adds them up. No decision's y, reward or match is opened, and the actor is told nothing.

    sums      mask r                                                       1 round
    own arm   scores of the model of a decision, shuffle, the winner, shuffle back     as a decision by shuffle takes
              for each decision, before it is learned, if variance is to be low
    matches   scores of pi's weights, shuffle, the winner, shuffle back                as a decision by shuffle takes
              mask arms, own arms and r; [arm = pi], [arm = pi = g] from one-hots; mask them    2 rounds

What is opened in these rounds is uniform: every value has a mask of its own, and slots are in a secret order.

An estimator opens sums over explored decisions and over the others, and its counts. A row is part of one of the two, by
its coin, and changes its sum of rewards and its count by 1 each at most: noise of deviation sqrt(2) / mu each makes an
opening mu-GDP about that row's reward and match. Each estimator is an opening of its own. What a row changes through
the model, in later decisions, is not covered by it, but by noisy sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.evaluation import GREEDY, UNIFORM, chance_of
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Rewarded, joined, opened, stacked
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.programs import LinearScores, Scores, one_hots_of_best, own_features
from hiddenarm.bandit.ridge import RidgeLearner
from hiddenarm.errors import ConfigError, InputError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import dealt, dealt_share, given_share, input_segments, mask
from hiddenarm.mpc.run import Program, Rounds, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.privacy.noise import Gaussian
from hiddenarm.ring.words import Floats, Words, decode, encode

MODEL = "model"
IMPORTANCE = "importance"
LOW_VARIANCE = "low-variance"
ESTIMATORS = (IMPORTANCE, LOW_VARIANCE)
"""Of the value of a model: from explored decisions alone; or from all, which takes the policy's own arm of each."""
_OWN_ARM = "own arm"
_EXPLORED, _KEPT = 0, 1
"""Places of sums over explored decisions, and over the others."""

Explored = Callable[[int, int], Words]
"""(first window, count) -> y of the decisions of windows, [count, replicates, decisions]; only the dealer asks."""


@dataclass(frozen=True)
class Window:
    """The programs of one size of window."""

    federation: Federation
    decisions: int
    explored: Explored
    noise: Gaussian | None
    """Of sums, in units of 2^-L."""
    estimators: tuple[str, ...]

    def sums(self, run: Run) -> Program:
        """Sums of rewards over explored decisions, and over the others; and how many there are: [2] each, at L bits."""
        rewards = given_share(run, self.decisions, label="rewards")
        (r,) = yield (mask(run, rewards, "rewards r"),)
        y = dealt(
            run, (2, self.decisions), lambda: self._coins(run), "1 where a decision was explored, and 1 less that"
        )
        sums = form(run, "jk,k->j", y, r, label="sums of rewards")
        counts = dealt_share(run, (2,), lambda: self._counts(run), "how many were explored, and how many not")
        return sums + self._dealt_noise(run), counts + self._dealt_noise(run)

    def matches(self, run: Run) -> Program:
        """The same over decisions whose arm is the best of given weights, and how many match; for each estimator."""
        federation, count, low = self.federation, self.decisions, LOW_VARIANCE in self.estimators
        weights = given_share(run, federation.arms, federation.dimension, label="weights of the model to evaluate")
        own = own_features(run, federation, count)
        arms = given_share(run, count, federation.arms, label="one-hots of the arms")
        rewards = given_share(run, count, label="rewards")
        own_arms = (given_share(run, count, federation.arms, label="one-hots of the policy's own arms"),) if low else ()

        def scoring(coins: Coins | None) -> Rounds[Scores]:
            x, w = yield (
                input_segments(run, (count,), own, federation.features, "contexts x"),
                mask(run, weights, "weights w"),
            )
            return LinearScores(w, x)

        best = yield from one_hots_of_best(run, federation, scoring, count)
        o, p, r, *g = yield (
            mask(run, arms, "one-hots of the arms"),
            mask(run, best, "one-hots of pi"),
            mask(run, rewards, "r"),
            *(mask(run, one, "one-hots of the own arms") for one in own_arms),
        )
        matching = [form(run, "ka,ka->k", o, p, label="whether arms match")]
        if low:
            matching.append(form(run, "ka,ka,ka->k", o, p, g[0], label="whether all three match"))
        m, *all_three = yield tuple(mask(run, each, "whether arms match") for each in matching)
        y = dealt(run, (2, count), lambda: self._coins(run), "1 where a decision was explored, and 1 less that")
        sums = form(run, "jk,k,k->j", y, m, r, label="sums of rewards where arms match")
        counts = form(run, "jk,k->j", y, m, label="matches")
        found = {IMPORTANCE: (sums, counts)}
        if low:
            explored = dealt(
                run, (2, count), lambda: self._explored_coins(run), "1 where a decision was explored, and 0"
            )
            left_out = form(run, "jk,k,k->j", explored, all_three[0], r, label="those where the own arm matches, too")
            uncounted = form(run, "jk,k->j", explored, all_three[0], label="how many these are")
            found[LOW_VARIANCE] = sums - left_out, counts - uncounted
        return tuple(self._opened(run, *found[estimator]) for estimator in self.estimators)

    def own_arms(self, run: Run) -> Program:
        """The one-hots of the arms that the policy chooses without exploring, by the model that it has; shared."""
        learner = ridge_learner(self.federation)
        arrays = learner.given(run, learner.decide_reads)
        own = own_features(run, self.federation, self.decisions)

        def scoring(coins: Coins | None) -> Rounds[Scores]:
            return learner.scores(run, arrays, own, self.decisions, coins)

        return (yield from one_hots_of_best(run, self.federation, scoring, self.decisions))

    def _opened(self, run: Run, sums: Shared, counts: Shared) -> tuple[Shared, Shared]:
        """What is opened of an estimator: both at L bits, with noise."""
        counts = counts << self.federation.fraction_bits
        return sums + self._dealt_noise(run), counts + self._dealt_noise(run)

    def _coins(self, run: Run) -> Words:
        y = self.explored(run.first_step, run.batch[0]).astype(np.uint64)
        return np.stack([y, np.uint64(1) - y], axis=-2)

    def _explored_coins(self, run: Run) -> Words:
        coins = self._coins(run)
        coins[..., _KEPT, :] = 0
        return coins

    def _counts(self, run: Run) -> Words:
        counts: Words = self._coins(run).sum(axis=-1)
        return counts << np.uint64(self.federation.fraction_bits)

    def _dealt_noise(self, run: Run) -> Shared:
        noise = self.noise

        def draw() -> Words:
            if noise is None:
                return np.zeros((*run.batch, 2), np.uint64)
            return noise.sample(run.coin_words((2, noise.words)))

        return dealt_share(run, (2,), draw, "noise of the sums")


@dataclass(slots=True, repr=False)
class _Waiting:
    """A rewarded decision whose window is not full: whether it was explored [replicates], what each party has of it,
    and, if variance is to be low, each party's share of the policy's own arm [replicates, 1, arms]."""

    explore: NDArray[np.bool_]
    held: list[Rewarded]
    own_arms: list[Words]


@dataclass
class _Total:
    """What was opened so far, by replicate: sums and counts [replicates, 2]."""

    sums: Floats
    counts: Floats


@dataclass(frozen=True, slots=True)
class Value:
    """An estimate for each replicate: unbiased, and as a ratio."""

    unbiased: Floats
    ratio: Floats


@dataclass
class OffPolicy:
    """Evaluates the decisions of a lockstep run, a window at a time, as the receiver of the sums knows them.

    `mu` bounds what one opening tells (see above); None opens sums without noise, for research. Every opening is
    counted in the ledger of the run. `models` are weights [arms, D] by name; parties would hold shares. Each is
    evaluated by all of `estimators`."""

    lockstep: Lockstep
    window: int = 100
    mu: float | None = None
    models: dict[str, Floats] = field(default_factory=dict)
    estimators: tuple[str, ...] = (IMPORTANCE,)

    def __post_init__(self) -> None:
        federation = self.lockstep.federation
        epsilon = chance_of(federation)
        if not 1 <= self.window <= federation.max_batch:
            raise ConfigError(f"a window has 1 to {federation.max_batch} decisions (max_batch), got {self.window}")
        if self.mu is not None and not self.mu > 0:
            raise ConfigError(f"mu must be positive, got {self.mu}")
        _check_run(self.lockstep)
        _check_estimators(self.estimators)
        for name, weights in self.models.items():
            _check_model(federation, name, weights)
        self._noise = None if self.mu is None else Gaussian(sqrt(2) / self.mu * 2.0**federation.fraction_bits)
        self.decisions = 0
        self._epsilon = epsilon
        self._low_variance = bool(self.models) and LOW_VARIANCE in self.estimators
        self._waiting: list[_Waiting] = []
        self._explored: list[Words] = []
        self._totals: dict[str, _Total] = {}
        self._runners: dict[str, _Runner] = {}
        self.lockstep.evaluated = True

    def add(self, decision: int, rewards: Floats | Sequence[float]) -> None:
        """Take up a single decision among all arms that waits for its reward, with its reward; with low variance before
        anything is learned that was not when it was made."""
        made_at = self.lockstep.made_at(decision)
        if made_at is None:
            raise InputError(
                f"decision {decision} cannot be taken up: values follow from single decisions among all arms that wait "
                "for their reward, each once"
            )
        if self._low_variance and made_at != self.lockstep.lessons:
            raise InputError(
                f"decision {decision} was made before the last lesson: with low variance the policy's own arm is that "
                "of the model as it is, so take decisions up before anything is learned"
            )
        rewards = self._checked(rewards)
        self.lockstep.take_up(decision)
        coins = self.lockstep.coins(decision, 1)
        held = self.lockstep.rewarded(decision, rewards)
        self._waiting.append(_Waiting(coins.explore[0], held, self._own_arms(held) if self._low_variance else []))
        if len(self._waiting) == self.window:
            self._open()

    def _checked(self, rewards: Floats | Sequence[float]) -> Floats:
        """Noise and ledger are for rewards from 0 to 1, one of each replicate."""
        values = np.asarray(rewards, np.float64)
        replicates = self.lockstep.replicates
        if values.shape != (replicates,) or not ((values >= 0) & (values <= 1)).all():
            raise InputError(f"a decision has {replicates} rewards here, one of each replicate, from 0 to 1")
        return values

    def value(self, name: str, estimator: str = IMPORTANCE) -> Value:
        """The estimates of the greedy policy, of the uniform one, or of a model by its name, by an estimator."""
        if name not in (GREEDY, UNIFORM, *self.models):
            raise ConfigError(
                f"there is no {name!r} to evaluate; there are {', '.join((GREEDY, UNIFORM, *self.models))}"
            )
        if name in self.models and estimator not in self.estimators:
            raise ConfigError(f"models are evaluated by {', '.join(self.estimators)} here, not by {estimator!r}")
        total = self._totals.get(_label(name, estimator) if name in self.models else "")
        if total is None:
            raise ConfigError(f"no window of {self.window} decisions is complete")
        sums, counts = (weighted.sum(axis=-1) for weighted in self._weighted(name, estimator, total))
        with np.errstate(divide="ignore", invalid="ignore"):
            return Value(sums / self.decisions, np.where(counts > 0, sums / counts, np.nan))

    def _weighted(self, name: str, estimator: str, total: _Total) -> tuple[Floats, Floats]:
        """Sums and counts over explored decisions and over the others, with the weights of an estimate."""
        explored, kept = self.lockstep.federation.arms / self._epsilon, 1 / (1 - self._epsilon)
        weights = {GREEDY: (0.0, kept), UNIFORM: (1 / self._epsilon, 0.0)}.get(
            name, (explored, kept if estimator == LOW_VARIANCE else 0.0)
        )
        return total.sums * weights, total.counts * weights

    def _own_arms(self, held: list[Rewarded]) -> list[Words]:
        """Each party's share of the one-hot of the arm that the policy would choose without exploring, by the model as
        it is now: [replicates, 1, arms]."""
        learner = self.lockstep.federation.learner
        given = [
            [*(state[name] for name in learner.decide_reads), stacked(one.kept, party == 0)[0]]
            for party, (state, one) in enumerate(zip(self.lockstep.states, held, strict=True))
        ]
        return [shared.share for shared in self._runner(_OWN_ARM, 1).run(given)]

    def _open(self) -> None:
        """Run the programs of a window, and add up what the receiver gets."""
        waiting, self._waiting = self._waiting, []
        self._explored.append(np.stack([one.explore for one in waiting], axis=-1))
        own = [joined([one.held[party] for one in waiting]) for party in range(self.lockstep.federation.parties)]
        openings = [self.mu] * (1 + len(self.models) * len(self.estimators))
        self.lockstep.ledger = self.lockstep.ledger.opened_with(*openings)
        results = self._runner("", self.window).run([[one.rewards(party == 0)] for party, one in enumerate(own)])
        self._add("", results)
        for name, weights in self.models.items():
            given = [self._given(weights, party, one, waiting) for party, one in enumerate(own)]
            results = self._runner(MODEL + name, self.window).run(given)
            for place, estimator in enumerate(self.estimators):
                self._add(_label(name, estimator), [party[place] for party in results])
        self.decisions += self.window

    def _given(self, model: Floats, party: int, own: Rewarded, waiting: list[_Waiting]) -> list[Words]:
        """What a party brings to the evaluation of a model: its share of the weights, features, arms and rewards."""
        weights = encode(model, self.lockstep.federation.fraction_bits) * np.uint64(party == 0)
        held = np.broadcast_to(weights, (self.lockstep.replicates, *weights.shape))
        features, arms = stacked(own.kept, party == 0)
        given = [held, features, arms, own.rewards(party == 0)]
        if self._low_variance:
            given.append(np.concatenate([one.own_arms[party] for one in waiting], axis=1))
        return given

    def _add(self, label: str, results: Sequence[Sequence[Shared]]) -> None:
        """Add what the receiver finds: the sums of all parties' shares."""
        bits = self.lockstep.federation.fraction_bits
        sums, counts = (decode(opened([result[place] for result in results]), bits) for place in (0, 1))
        total = self._totals.setdefault(label, _Total(np.zeros_like(sums), np.zeros_like(counts)))
        total.sums += sums
        total.counts += counts

    def _runner(self, name: str, decisions: int) -> _Runner:
        if name not in self._runners:
            window = Window(self.lockstep.federation, decisions, self._coins_of, self._noise, self.estimators)
            texts = {"": window.sums, _OWN_ARM: window.own_arms}
            self._runners[name] = _Runner(self.lockstep, f"value {name}", texts.get(name, window.matches))
        return self._runners[name]

    def _coins_of(self, first: int, count: int) -> Words:
        if not count:
            return np.zeros((0, self.lockstep.replicates, self.window), np.uint64)
        return np.stack(self._explored[first : first + count])


def ridge_learner(federation: Federation) -> RidgeLearner:
    """The learner, whose scores the policy's own arms come from."""
    learner = federation.learner
    if not isinstance(learner, RidgeLearner) or federation.arm_features is not None:
        raise ConfigError("models are evaluated for policies on a ridge regression per arm")
    return learner


def _label(name: str, estimator: str) -> str:
    return f"{MODEL}{name} {estimator}"


def _check_run(lockstep: Lockstep) -> None:
    """Refuse a run whose decisions cannot be weighed, or whose addresses may have been used."""
    if lockstep.federation.retired:
        raise ConfigError("values weigh decisions by the number of arms: with retired arms they are not evaluated")
    if lockstep.evaluated or lockstep.decisions:
        raise ConfigError("values are evaluated from the first decision of a run on, and by one evaluation only")


def _check_estimators(estimators: tuple[str, ...]) -> None:
    if not estimators or len(set(estimators)) != len(estimators) or not set(estimators) <= set(ESTIMATORS):
        raise ConfigError(f"estimators must be some of {', '.join(ESTIMATORS)}, once each; got {estimators!r}")


def _check_model(federation: Federation, name: str, weights: Floats) -> None:
    """Refuse weights that do not fit, before anything is consumed."""
    ridge_learner(federation)
    wanted = (federation.arms, federation.dimension)
    if name in (GREEDY, UNIFORM) or np.shape(weights) != wanted or not np.isfinite(weights).all():
        raise ConfigError(f"model {name!r} must have a name of its own and finite weights of shape {wanted}")
    largest = float(np.linalg.norm(weights, axis=1).max() * federation.joint_norm)
    if largest > federation.key_bound:
        raise ConfigError(
            f"model {name!r} has scores up to {largest:.4g}, beyond the {federation.key_bound:.4g} that are compared: "
            "scale its weights down, which changes no arm"
        )


class _Runner:
    """Runs a program window by window, each at an address of its own."""

    def __init__(self, lockstep: Lockstep, label: str, text: Callable[[Run], Program]) -> None:
        federation, seeds, copies = lockstep.federation, lockstep.seeds, lockstep.replicates
        self._label = label
        layout, parties = layout_of(text, federation.parties, copies), range(federation.parties)
        self._dealer = ProgramDealer(label, text, layout, seeds, copies)
        self._scripts = [compile_program(text, party, federation.parties, copies) for party in parties]
        self._materials = [
            ProgramMaterial(party, federation.parties, label, layout, seeds.party(party), ahead=1) for party in parties
        ]
        self._lockstep = lockstep
        self._next = 0

    def run(self, given: Sequence[Sequence[Words]]) -> list[Any]:
        """What each party has at the end."""
        step, self._next = self._next, self._next + 1
        self._materials[-1].add_corrections(step, self._dealer.deal(step, 1))
        each = zip(self._scripts, self._materials, given, strict=True)
        evaluations = [Evaluation(script, material.take(step), own) for script, material, own in each]
        return run_lockstep(
            evaluations, program=self._label, meter=self._lockstep.meter, observer=self._lockstep.observer
        )
