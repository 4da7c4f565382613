"""Off-policy evaluation on shares: what other policies would have earned, from decisions that one policy made.

y is the dealer's coin: 1 where a decision was explored. It is independent of context, model and rewards, so for T
decisions that explore with chance epsilon, whatever the learner does meanwhile, these means are unbiased:

    greedy    the policy itself without exploration    sum (1 - y) r / ((1 - epsilon) T)
    uniform   a uniform arm                            sum y r / (epsilon T)
    model     pi, the best arm of other weights        A / (epsilon T) sum y [arm = pi(x)] r

Each divided by the sum of its weights in place of T is nearly unbiased, and varies less.

A program treats a window of decisions. Rewards, and what is compared with pi's arm, are masked; y is dealt, by the
dealer that drew it; only shares of sums come out, with noise that the dealer deals into them. The parties send these to
the receiver, who adds them up. No decision's y, reward or match is opened, and the actor is told nothing.

    sums      mask r                                                       1 round
    matches   scores of pi's weights, shuffle, the winner, shuffle back    as a decision by shuffle takes
              mask the arms and r; match = sum over arms of both one-hots; mask it    2 rounds

A row changes the sum of rewards and the count of matches by 1 each at most: noise of deviation sqrt(2) / mu each makes
an opening mu-GDP about that row's reward and match. What a row changes through the model, in later decisions, is not
covered by it, but by noisy sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Rewarded, joined, stacked
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.programs import LinearScores, one_hots_of_best, own_features
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import dealt, dealt_share, given_share, input_segments, mask
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.privacy.noise import Gaussian
from hiddenarm.ring.words import Floats, Words, decode, encode

GREEDY, UNIFORM, MODEL = "greedy", "uniform", "model"
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
        """The same over decisions whose arm is the best of given weights, and how many match."""
        federation, count = self.federation, self.decisions
        weights = given_share(run, federation.arms, federation.dimension, label="weights of the model to evaluate")
        own = own_features(run, federation, count)
        arms = given_share(run, count, federation.arms, label="one-hots of the arms")
        rewards = given_share(run, count, label="rewards")
        x, w = yield (
            input_segments(run, (count,), own, federation.features, "contexts x"),
            mask(run, weights, "weights w"),
        )
        best = yield from one_hots_of_best(run, federation, LinearScores(w, x), count)
        o, p, r = yield (
            mask(run, arms, "one-hots of the arms"),
            mask(run, best, "one-hots of pi"),
            mask(run, rewards, "r"),
        )
        (m,) = yield (mask(run, form(run, "ka,ka->k", o, p, label="whether arms match"), "whether arms match"),)
        y = dealt(run, (2, count), lambda: self._coins(run), "1 where a decision was explored, and 1 less that")
        sums = form(run, "jk,k,k->j", y, m, r, label="sums of rewards where arms match")
        counts = form(run, "jk,k->j", y, m, label="matches") << federation.fraction_bits
        return sums + self._dealt_noise(run), counts + self._dealt_noise(run)

    def _coins(self, run: Run) -> Words:
        y = self.explored(run.first_step, run.batch[0]).astype(np.uint64)
        return np.stack([y, np.uint64(1) - y], axis=-2)

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

    `mu` bounds what one opening tells (see above); None opens sums without noise, for research. Every opening with
    noise is counted in the ledger of the run. `models` are weights [arms, D] by name; parties would hold shares."""

    lockstep: Lockstep
    window: int = 100
    mu: float | None = None
    models: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        federation = self.lockstep.federation
        epsilon = federation.policy.options.get("epsilon")
        if federation.suite != "fast":
            raise ConfigError("values are evaluated in suite fast")
        if not isinstance(epsilon, float) or not 0 < epsilon < 1:
            raise ConfigError(
                "values of other policies follow from explored decisions: they need an epsilon above 0 and below 1, "
                f"the same for all; the policy is {federation.policy}"
            )
        if federation.budget is not None and federation.budget.explores:
            raise ConfigError(
                "values need one epsilon for all decisions: a budget that explores when it is spent has two"
            )
        if not 1 <= self.window <= federation.max_batch:
            raise ConfigError(f"a window has 1 to {federation.max_batch} decisions (max_batch), got {self.window}")
        if self.mu is not None and not self.mu > 0:
            raise ConfigError(f"mu must be positive, got {self.mu}")
        for name, weights in self.models.items():
            _check_model(federation, name, weights)
        self.decisions = 0
        self._epsilon = epsilon
        self._waiting: list[tuple[Words, list[Rewarded]]] = []
        self._explored: list[Words] = []
        self._totals: dict[str, _Total] = {}
        self._runners: dict[str, _Runner] = {}

    def add(self, decision: int, rewards: Floats | Sequence[float]) -> None:
        """Take up a decision that waits for its reward, with its reward; before it is learned."""
        coins = self.lockstep.coins(decision, 1)
        self._waiting.append((coins.explore[0], self.lockstep.rewarded(decision, rewards)))
        if len(self._waiting) == self.window:
            self._open()

    def value(self, name: str) -> Value:
        """The estimates of the greedy policy, of the uniform one, or of a model by its name."""
        if name not in (GREEDY, UNIFORM, *self.models):
            raise ConfigError(
                f"there is no {name!r} to evaluate; there are {', '.join((GREEDY, UNIFORM, *self.models))}"
            )
        total = self._totals.get(MODEL + name if name in self.models else "")
        if total is None:
            raise ConfigError(f"no window of {self.window} decisions is complete")
        place = _KEPT if name == GREEDY else _EXPLORED
        weight = {GREEDY: 1 / (1 - self._epsilon), UNIFORM: 1 / self._epsilon}.get(
            name, self.lockstep.federation.arms / self._epsilon
        )
        sums, counts = total.sums[:, place], total.counts[:, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            return Value(weight * sums / self.decisions, np.where(counts > 0, sums / counts, np.nan))

    def _open(self) -> None:
        """Run the programs of a window, and add up what the receiver gets."""
        parties = range(self.lockstep.federation.parties)
        self._explored.append(np.stack([explore for explore, _ in self._waiting], axis=-1))
        own = [joined([held[party] for _, held in self._waiting]) for party in parties]
        self._waiting = []
        self._add("", [[one.rewards(party == 0)] for party, one in enumerate(own)])
        for name, weights in self.models.items():
            shared = encode(weights, self.lockstep.federation.fraction_bits)[None]
            given = []
            for party, one in enumerate(own):
                features, arms = stacked(one.kept, party == 0)
                held = np.broadcast_to(shared * np.uint64(party == 0), (self.lockstep.replicates, *shared.shape[1:]))
                given.append([held, features, arms, one.rewards(party == 0)])
            self._add(MODEL + name, given)
        self.decisions += self.window

    def _add(self, name: str, given: list[list[Words]]) -> None:
        if self.mu is not None:
            self.lockstep.ledger = self.lockstep.ledger.opened_with(self.mu)
        sums, counts = self._runner(name).run(given)
        total = self._totals.setdefault(name, _Total(np.zeros_like(sums), np.zeros_like(counts)))
        total.sums += sums
        total.counts += counts

    def _runner(self, name: str) -> _Runner:
        if name not in self._runners:
            bits = self.lockstep.federation.fraction_bits
            noise = None if self.mu is None else Gaussian(sqrt(2) / self.mu * 2.0**bits)
            window = Window(self.lockstep.federation, self.window, self._coins_of, noise)
            self._runners[name] = _Runner(self.lockstep, f"value {name}", window.matches if name else window.sums)
        return self._runners[name]

    def _coins_of(self, first: int, count: int) -> Words:
        if not count:
            return np.zeros((0, self.lockstep.replicates, self.window), np.uint64)
        return np.stack(self._explored[first : first + count])


def _check_model(federation: Federation, name: str, weights: Floats) -> None:
    """Refuse weights that do not fit, before anything is consumed."""
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
        self._label, self._bits = label, federation.fraction_bits
        layout, parties = layout_of(text, federation.parties, copies), range(federation.parties)
        self._dealer = ProgramDealer(label, text, layout, seeds, copies)
        self._scripts = [compile_program(text, party, federation.parties, copies) for party in parties]
        self._materials = [
            ProgramMaterial(party, federation.parties, label, layout, seeds.party(party), ahead=1) for party in parties
        ]
        self._lockstep = lockstep
        self._next = 0

    def run(self, given: Sequence[Sequence[Words]]) -> tuple[Floats, Floats]:
        """What the receiver finds: sums and counts [replicates, 2]."""
        step, self._next = self._next, self._next + 1
        self._materials[-1].add_corrections(step, self._dealer.deal(step, 1))
        each = zip(self._scripts, self._materials, given, strict=True)
        evaluations = [Evaluation(script, material.take(step), own) for script, material, own in each]
        results = run_lockstep(
            evaluations, program=self._label, meter=self._lockstep.meter, observer=self._lockstep.observer
        )
        sums, counts = (np.add.reduce([result[place].share for result in results]) for place in (0, 1))
        return decode(sums, self._bits), decode(counts, self._bits)
