"""What a federation promises over time about one row of its data. A frozen dataclass each; its fields are its options.

    none            nothing is refused: the ledger counts, and states what the count means
    action-budget   exploration alone, up to a total loss; then no further decisions, or purely explored ones
    noisy-sums      models are solved from sums with dealt noise: a bound for any number of decisions
    noisy-gradient  models go down gradients with dealt noise: the same bound, without any inverse

Why each holds: docs/privacy.md. All roles agree on the mechanism as they agree on the policy.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, isfinite, log, sqrt
from typing import ClassVar, Final

from hiddenarm.errors import ConfigError
from hiddenarm.options import Option, Optioned, hint, make
from hiddenarm.privacy.correlated import MOST_LEAVES, Correlation, correlation
from hiddenarm.privacy.gaussian import REPLACED, check_delta, composed, epsilon_for, mu_for, own_action_epsilon

NO_MECHANISM: Final = "none"
DEFAULT_DELTA: Final = 1e-6
REFUSE: Final = "refuse"
EXPLORE: Final = "explore"
_SHARE: Final = 0.5
"""Of mu^2 that the sums W have; the sums b have the rest."""
_INDEFINITE: Final = 1e-6
"""The chance that noise, over all arms and refreshes, makes a sum W indefinite in spite of the shift."""
_MOST_REFRESH: Final = 10**9
_LEAST_STEP: Final = 1e-6
_QUARTERS: Final = (256, 215, 181, 152)
"""2^(8 - i/4)."""
STEP_BITS: Final = 7
"""Of the whole numbers that stand for steps."""


@dataclass(frozen=True)
class Mechanism(Optioned):
    """What a federation promises over time."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """As a report shows it."""
        options = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


@dataclass(frozen=True)
class Unbounded(Mechanism):
    """Nothing: what is lost is counted and stated."""

    name: ClassVar[str] = NO_MECHANISM


@dataclass(frozen=True)
class ActionBudget(Mechanism):
    """All explored actions together lose at most `total_epsilon` at `delta` about any row. The decision that would
    exceed it is refused, or, with `when_spent` "explore", its arm is uniformly random and tells nothing."""

    name: ClassVar[str] = "action-budget"

    total_epsilon: float
    delta: float = DEFAULT_DELTA
    when_spent: str = REFUSE

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_total(self.total_epsilon)
        check_delta(self.delta)
        if self.when_spent not in (REFUSE, EXPLORE):
            raise ConfigError(f'when_spent must be "{REFUSE}" or "{EXPLORE}", got {self.when_spent!r}')


class NoisyMechanism(Mechanism):
    """Lessons are only gathered. At refreshes, which follow public counts of lessons, dealt noise is added to what was
    gathered, and the model is made of that. A row changes what one refresh gathers, by so much that everything that is
    released over all time loses `total_epsilon` at `delta` about a dropped row; for other relations see
    `epsilon_replaced` and below. A refresh takes at most `rows_per_key` rows of one key. With `correlated` noise, in
    blocks of so many refreshes, later noise takes a part of earlier noise back (`privacy.correlated`); 0 is fresh noise
    at each."""

    replaced: ClassVar[float]
    """By so much mu is larger for a replaced row than for a dropped one."""

    total_epsilon: float
    delta: float
    rows_per_key: int
    correlated: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_total(self.total_epsilon)
        check_delta(self.delta)
        if not 1 <= self.rows_per_key <= _MOST_REFRESH:
            raise ConfigError(f"rows_per_key must lie in 1..{_MOST_REFRESH}, got {self.rows_per_key}")
        if self.correlated:
            correlation(self.correlated)

    # What is lost

    @cached_property
    def mu(self) -> float:
        """Of a dropped row."""
        return mu_for(self.total_epsilon, self.delta)

    def epsilon_replaced(self) -> float:
        """About a row that might be any other."""
        return epsilon_for(self.replaced * self.mu, self.delta)

    def epsilon_with_own_action(self, arms: int, epsilon: float) -> float:
        """About a dropped row for whoever also sees its own action, explored with chance `epsilon`."""
        return own_action_epsilon(self.mu, arms, epsilon, self.delta)

    def epsilon_of_user(self, rows_by_refresh: tuple[int, ...]) -> float:
        """About all rows of a user, dropped together: so many in each refresh that has some of them."""
        return epsilon_for(self.mu * self.of_rows(rows_by_refresh), self.delta)

    def of_rows(self, rows_by_refresh: Sequence[float]) -> float:
        """By how much more than a single row so many rows in each refresh tell, at most. With correlated noise the
        refreshes are not independent: what is released of them overlaps."""
        independent = composed(rows_by_refresh)
        if self.correlation is None:
            return independent
        return min(sum(rows_by_refresh), sqrt(self.correlation.coupling) * independent)

    @cached_property
    def correlation(self) -> Correlation | None:
        """Of the noise of refreshes; None if it is fresh at each."""
        return correlation(self.correlated) if self.correlated else None

    # The noise

    @abstractmethod
    def sigma_moment(self, joint_norm: float) -> float:
        """The deviation of what is added to a vector of an arm, for contexts of at most this norm; fresh, or of a leaf
        of width 1."""

    def moment_noise(self, k: int, joint_norm: float, dimension: int, arms: int) -> float:
        """The largest norm of what k refreshes have added to the vector of an arm, for all arms and refreshes
        together, but for a chance of one in a million."""
        return self.spread(k) * self.sigma_moment(joint_norm) * (sqrt(dimension) + _excess(k, arms))

    def most_moment_noise(self, last: int, joint_norm: float, dimension: int, arms: int) -> float:
        """The same for any of so many refreshes. Correlated noise also falls in a block, and rises from block to block:
        the largest is one of the last block's length."""
        latest = range(max(1, last + 1 - max(1, self.correlated)), last + 1)
        return max(self.moment_noise(k, joint_norm, dimension, arms) for k in latest)

    def spread(self, k: int) -> float:
        """The deviation of all noise that the sums have after the k-th refresh, from 1 on, in units of fresh noise."""
        return sqrt(k) if self.correlation is None else self.correlation.spread(k)

    def leaf_width(self, position: int, joint_norm: float, dimension: int, fraction_bits: int) -> float:
        """Of the noise that is drawn at a position of a block, in units of fresh noise, for sums at so many bits: with
        correlated noise a little more than it must be, as rounding what is taken back moves what leaves have to
        explain."""
        if self.correlation is None:
            return 1.0
        return self.correlation.widths[position - 1] * (1 + self.leaf_rounding(joint_norm, dimension, fraction_bits))

    def leaf_rounding(self, joint_norm: float, dimension: int, fraction_bits: int) -> float:
        """By how much of itself rounding may add to what a row changes. What is taken back is off by less than two
        units of the last place between two data sets, in each entry of an arm and at each of n leaves; C adds up n of
        these at most. In units of noise: 2 n sqrt(n entries) / (2^bits times the least deviation)."""
        entries, least = self._entries(dimension), self._least_change(joint_norm) * 2.0**fraction_bits
        return 2 * self.correlated * sqrt(self.correlated * entries) / least

    @abstractmethod
    def _entries(self, dimension: int) -> float:
        """Numbers of an arm that get noise."""

    @abstractmethod
    def _least_change(self, joint_norm: float) -> float:
        """mu times the least deviation of noise."""

    # The schedule

    @abstractmethod
    def refresh_at(self, k: int) -> int:
        """After how many lessons the k-th refresh is made, from 1 on."""

    @abstractmethod
    def refreshes_by(self, lessons: int) -> int:
        """How many refreshes are made by the time of so many lessons."""


@dataclass(frozen=True)
class NoisySums(NoisyMechanism):
    """Models are solved from sums with noise, which stays in them for good:

        W_a += sum x x' + G_a          G_a symmetric: diagonal N(0, sW^2), above it N(0, sW^2 / 2)
        b_a += sum (r - 1/2) x + g_a   g_a ~ N(0, sb^2 I)
        w_a  = (W_a + shift I)^-1 b_a

    `first_refresh` is after so many lessons, each further one when their number has grown by the factor
    `refresh_ratio`.
    """

    name: ClassVar[str] = "noisy-sums"
    replaced: ClassVar[float] = REPLACED

    total_epsilon: float
    delta: float = DEFAULT_DELTA
    first_refresh: int = 500
    refresh_ratio: float = 1.3
    rows_per_key: int = 1
    correlated: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.first_refresh <= _MOST_REFRESH:
            raise ConfigError(f"first_refresh must lie in 1..{_MOST_REFRESH}, got {self.first_refresh}")
        if not (isfinite(self.refresh_ratio) and 1 < self.refresh_ratio <= 1000):
            raise ConfigError(f"refresh_ratio must be above 1 and at most 1000, got {self.refresh_ratio}")

    def sigma_gram(self, joint_norm: float) -> float:
        """sW, for contexts of at most this norm."""
        return joint_norm**2 / (self.mu * sqrt(_SHARE))

    def sigma_moment(self, joint_norm: float) -> float:
        """sb; |r - 1/2| is at most 1/2."""
        return joint_norm / 2 / (self.mu * sqrt(1 - _SHARE))

    def shift(self, k: int, ridge: float, joint_norm: float, dimension: int, arms: int) -> float:
        """What is added to the diagonal of W at the k-th refresh, from 1 on, so that it is positive definite: in a run
        without end, for all arms and refreshes together, but for a chance of one in a million.

        The least eigenvalue of s G is above -s sW (sqrt(2 D) + t) but for a chance of exp(-t^2 / 2), s the spread, and
        1 / (k (k + 1)) adds up to 1.
        """
        noise = self.spread(k) * self.sigma_gram(joint_norm)
        return ridge + noise * (sqrt(2 * dimension) + _excess(k, arms))

    def _entries(self, dimension: int) -> float:
        return dimension * (dimension + 3) / 2

    def _least_change(self, joint_norm: float) -> float:
        return min(joint_norm**2, joint_norm / sqrt(2))

    # The schedule

    def refresh_at(self, k: int) -> int:
        if k < 1:
            raise ValueError(f"refreshes are counted from 1, got {k}")
        while len(self._counts) < k:
            self._add_count()
        return self._counts[k - 1]

    def refreshes_by(self, lessons: int) -> int:
        while self._counts[-1] <= lessons:
            self._add_count()
        return bisect_right(self._counts, lessons)

    @cached_property
    def _counts(self) -> list[int]:
        """When refreshes are made, as far as anybody has asked."""
        return [self.first_refresh]

    def _add_count(self) -> None:
        last = self._counts[-1]
        self._counts.append(max(last + 1, floor(last * Fraction(repr(self.refresh_ratio)))))


@dataclass(frozen=True)
class NoisyGradient(NoisyMechanism):
    """Models go down the gradient of what they predict wrongly, a step after every `refresh_every` lessons:

        w_a += step (sum of x clip(r - 1/2 - w_a'x) + g_a)      clip to [-1/2, 1/2], g_a ~ N(0, s^2 I), s = R / (2 mu)

    The weights are those of the refresh before, so a row adds x times at most 1/2 to one refresh, whatever the data
    are. The step is `first_step` / (1 + first_step t / (A D)) after t lessons, rounded down to few values.
    """

    name: ClassVar[str] = "noisy-gradient"
    replaced: ClassVar[float] = 2.0

    total_epsilon: float
    delta: float = DEFAULT_DELTA
    refresh_every: int = 200
    first_step: float = 0.02
    rows_per_key: int = 1
    correlated: int = MOST_LEAVES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.refresh_every <= _MOST_REFRESH:
            raise ConfigError(f"refresh_every must lie in 1..{_MOST_REFRESH}, got {self.refresh_every}")
        if not (isfinite(self.first_step) and _LEAST_STEP <= self.first_step <= 1):
            raise ConfigError(f"first_step must lie in {_LEAST_STEP:g}..1, got {self.first_step}")

    def sigma_moment(self, joint_norm: float) -> float:
        return joint_norm / 2 / self.mu

    def _entries(self, dimension: int) -> float:
        return dimension

    def _least_change(self, joint_norm: float) -> float:
        return joint_norm / 2

    def refresh_at(self, k: int) -> int:
        if k < 1:
            raise ValueError(f"refreshes are counted from 1, got {k}")
        return k * self.refresh_every

    def refreshes_by(self, lessons: int) -> int:
        return lessons // self.refresh_every

    def weight_noise(self, last: int, joint_norm: float, dimension: int, arms: int) -> float:
        """The largest norm of what the noise of so many refreshes has moved the weights of an arm by, but for a chance
        of one in a million. With steps s_k that do not rise, N_k all noise of the gradients up to refresh k, and B_k
        at least the norm of N_1, ..., N_k, summation by parts gives |sum s_k (N_k - N_(k-1))| <= sum s_k (B_k -
        B_(k-1)); here for some refreshes at a time, with the step of the first."""
        bound = before = 0.0
        first, weights = 1, arms * dimension
        while first <= last:
            end = min(last, first + first // 4)
            noise = self.most_moment_noise(end, joint_norm, dimension, arms)
            step = self.first_step / (1 + self.first_step * (first - 1) * self.refresh_every / weights)
            bound += step * max(0.0, noise - before)
            first, before = end + 1, max(noise, before)
        return bound

    def step_level(self, k: int, weights: int) -> int:
        """Which of the steps refresh k has, from 1 on, in a model of so many weights of all arms: the largest of
        `step_of` that is not above first_step / (1 + first_step t / weights), t the lessons before the last
        `refresh_every`."""
        first = Fraction(repr(self.first_step))
        wanted = first / (1 + first * (k - 1) * self.refresh_every / weights)
        level = 0
        while Fraction(*self.step_of(level)) > wanted:
            level += 1
        return level

    def step_of(self, level: int) -> tuple[int, int]:
        """A step as a whole number and the power of two by which it is divided: each is 2^-1/4 of the one before, to
        the digits that it has."""
        halvings, quarter = divmod(level, len(_QUARTERS))
        exact = Fraction(repr(self.first_step)) * Fraction(_QUARTERS[quarter], _QUARTERS[0] << halvings)
        bits = 0
        while exact * 2**bits < 2 ** (STEP_BITS - 1):
            bits += 1
        return floor(exact * 2**bits), 2**bits


_MECHANISMS: Final[dict[str, type[Mechanism]]] = {
    kind.name: kind for kind in (Unbounded, ActionBudget, NoisySums, NoisyGradient)
}


def _excess(k: int, arms: int) -> float:
    """By how many deviations a function of Gaussian noise that changes no faster than the noise may exceed its mean."""
    return sqrt(2 * log(arms * k * (k + 1) / _INDEFINITE))


def mechanism_names() -> list[str]:
    """The names of all mechanisms."""
    return list(_MECHANISMS)


def make_privacy(name: str, options: Mapping[str, object]) -> Mechanism:
    """A mechanism from its name and options, as files and commands give them."""
    if name not in _MECHANISMS:
        raise ConfigError(f"there is no privacy mechanism {name!r}; {hint(name, _MECHANISMS, 'known are')}")
    return make(_MECHANISMS[name], f"privacy {name}", options)


def privacy_table(mechanism: Mechanism) -> dict[str, Option]:
    """A mechanism as a table of a file: its name and its options."""
    return {"mechanism": mechanism.name, **mechanism.options}


def privacy_from_table(table: Mapping[str, object]) -> Mechanism:
    """The mechanism of such a table."""
    if "mechanism" not in table:
        raise ConfigError(f"the name of the privacy mechanism is missing; known are {', '.join(_MECHANISMS)}")
    options = {name: value for name, value in table.items() if name != "mechanism"}
    return make_privacy(str(table["mechanism"]), options)


def _check_total(total_epsilon: float) -> None:
    if not (isfinite(total_epsilon) and total_epsilon > 0):
        raise ConfigError(f"total_epsilon must be a positive number, got {total_epsilon}")
