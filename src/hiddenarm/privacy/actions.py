"""What n explored actions tell about one row: the exact loss, in the worst case over data, learners and arms.

An action that is explored with chance epsilon is a randomised response: the greedy arm, which may depend on all that
was before, has p = 1 - epsilon + epsilon / A, every other arm q = epsilon / A. At worst two data sets have different
greedy arms, and the loss log P(a) / Q(a) is then +eta with chance p, -eta with q and 0 with (A - 2) q, where
eta = log(p / q). Adaptive composition is dominated by independent such losses, one for each action. So

    delta(e) = E (1 - exp(e - loss))_+            loss = sum over levels of eta_level (i - j)

with i, j counts of a multinomial law for each *level*, a chance to explore that some actions have in common.

One level, or two: exact. The law of i - j is summed from logarithms (`math.lgamma`), all terms are positive, and what
lies outside of its windows has a chance below 1e-25, which is counted in full. More levels: an upper bound. All laws
but one are moved to a common grid, where each loss is split between its two neighbours such that its chance is kept
under both data sets. The loss itself is then a function of what was split, so the bound holds by the data processing
inequality. Its error grows with the square of the grid's step: below 1e-4 of epsilon for fifty levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, inf, lgamma, log, log1p, sqrt

import numpy as np

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.gaussian import check_delta, least
from hiddenarm.ring.words import Floats

Levels = Mapping[float, int]
"""How many actions were explored with which chance."""
_TAIL = 60.0
"""Chances outside of a window are below exp(-_TAIL) on each of its sides."""
_GRID = 1 << 14
"""Points of the grid for three or more levels."""
MOST_ACTIONS = 10**9


def eta(arms: int, epsilon: float) -> float:
    """The loss of one action: log(A / epsilon - A + 1)."""
    if epsilon <= 0:
        return inf
    return log1p(arms * (1 - epsilon) / epsilon)


def epsilon_total(arms: int, levels: Levels, delta: float) -> float:
    """The loss of all these actions together: the least epsilon >= 0 at which delta suffices. It is exact for up to two
    levels below 1, an upper bound beyond (`is_exact`)."""
    check_delta(delta)
    told = _told(arms, levels)
    pure = _pure(arms, told)
    if not told or pure == inf:
        return pure
    first, *others = sorted((_law(arms, *level) for level in told), key=lambda law: -len(law.losses))
    found = first.epsilon_at(delta) if not others else _pair_epsilon(_folded(others), first, delta)
    return min(pure, found)


def delta_total(arms: int, levels: Levels, epsilon: float) -> float:
    """The least delta for which all these actions together are (epsilon, delta)-differentially private."""
    told = _told(arms, levels)
    pure = _pure(arms, told)
    if epsilon >= pure or not told:
        return max(0.0, -expm1(min(epsilon, 0.0)))
    if pure == inf:
        return 1.0
    first, *others = sorted((_law(arms, *level) for level in told), key=lambda law: -len(law.losses))
    return first.delta_at(epsilon) if not others else _pair_delta(_folded(others), first, epsilon)


def is_exact(levels: Levels) -> bool:
    """Whether `epsilon_total` is the loss itself, not a bound."""
    return sum(1 for chance, count in levels.items() if count and chance < 1) <= 2


def most_actions(arms: int, epsilon: float, total_epsilon: float, delta: float) -> int:
    """How many actions explored with this chance lose at most `total_epsilon` together; at most a billion."""
    if eta(arms, epsilon) * MOST_ACTIONS <= total_epsilon:
        return MOST_ACTIONS
    return largest_count(lambda count: epsilon_total(arms, {epsilon: count}, delta) <= total_epsilon)


def exploration_for(arms: int, actions: int, total_epsilon: float, delta: float) -> float:
    """With which chance so many actions must be explored to lose at most `total_epsilon` together."""
    return least(lambda explored: epsilon_total(arms, {explored: actions}, delta) <= total_epsilon)


def largest_count(fits: Callable[[int], bool]) -> int:
    """The largest whole number up to a billion that fits, if all smaller ones do; 0 always does."""
    low, high = 0, 1
    while high <= MOST_ACTIONS and fits(high):
        low, high = high, 2 * high
    high = min(high, MOST_ACTIONS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class _Law:
    """The law of a loss: rising losses with their chances. `lost` is the chance of what was left out; it counts as an
    infinite loss. `above[i]` is the chance of losses from i on, `scaled[i]` the mean of exp(losses[i] - loss) there."""

    losses: Floats
    chances: Floats
    lost: float
    above: Floats
    scaled: Floats

    @classmethod
    def of(cls, losses: Floats, chances: Floats, lost: float) -> _Law:
        steps, scaled, last = np.exp(-np.diff(losses)).tolist(), chances.tolist(), 0.0
        for place in range(len(scaled) - 1, -1, -1):
            last = scaled[place] + (steps[place] * last if place < len(steps) else 0.0)
            scaled[place] = last
        ends = np.array([0.0])
        above = np.concatenate([np.cumsum(chances[::-1])[::-1], ends])
        return cls(losses, chances, lost, above, np.concatenate([scaled, ends]))

    def delta_at(self, epsilon: float) -> float:
        more = self.losses > epsilon
        return float(np.sum(self.chances[more] * -np.expm1(epsilon - self.losses[more]))) + self.lost

    def tails(self, epsilons: Floats) -> Floats:
        """E (1 - exp(epsilon - loss))_+ for many epsilons."""
        place = np.searchsorted(self.losses, epsilons, side="right")
        nearest = self.losses[np.minimum(place, len(self.losses) - 1)]
        return self.above[place] - np.exp(np.minimum(0.0, epsilons - nearest)) * self.scaled[place]

    def epsilon_at(self, delta: float) -> float:
        """Between two losses delta(e) is above - exp(e - the larger) scaled: find the two, then solve for e."""
        if self.delta_at(0.0) <= delta:
            return 0.0
        low, high = -1, len(self.losses) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.delta_at(float(self.losses[middle])) <= delta else (middle, high)
        excess = float(self.above[high]) + self.lost - delta
        if excess <= 0 or delta <= self.lost:
            return inf
        return max(0.0, float(self.losses[high]) + log(excess / float(self.scaled[high])))


def _told(arms: int, levels: Levels) -> list[tuple[float, int]]:
    """The levels that tell something."""
    if arms < 2:
        raise ConfigError(f"a bandit needs at least two arms, got {arms}")
    for chance, count in levels.items():
        if not 0 <= chance <= 1:
            raise ConfigError(f"a chance to explore lies in [0, 1], got {chance}")
        if count < 0:
            raise ConfigError(f"a number of actions cannot be negative, got {count}")
    return sorted((chance, count) for chance, count in levels.items() if count and eta(arms, chance) > 0)


def _pure(arms: int, told: list[tuple[float, int]]) -> float:
    """What is never exceeded: the loss of one action, times their number."""
    return sum(eta(arms, chance) * count for chance, count in told)


@lru_cache(maxsize=64)
def _law(arms: int, epsilon: float, count: int) -> _Law:
    """The loss of `count` actions of one level: eta (i - j), i and j of the multinomial law (p, q, the rest)."""
    q = epsilon / arms
    p, rest = 1 - epsilon + q, (arms - 2) * q
    window = _window(count, q)
    first = _window(count - window[-1], p / (p + rest))[0] - window[-1]
    last = _window(count - window[0], p / (p + rest))[-1] - window[0]
    chances = np.zeros(last - first + 1)
    constant, log_p = lgamma(count + 1), log(p)
    for j in window:
        gained = _window(count - j, p / (p + rest))
        i = np.arange(gained[0], gained[-1] + 1)
        terms = constant - lgamma(j + 1) + j * log(q) - _log_factorials(gained[0], gained[-1]) + i * log_p
        if rest:
            terms -= _log_factorials(count - j - gained[-1], count - j - gained[0])[::-1]
            terms += (count - j - i) * log(rest)
        start = gained[0] - j - first
        chances[start : start + len(i)] += np.exp(terms)
    return _Law.of(eta(arms, epsilon) * np.arange(first, last + 1, dtype=np.float64), chances, 4 * exp(-_TAIL))


def _window(count: int, chance: float) -> range:
    """Where a binomial count lies, but for exp(-_TAIL) on each side (Bernstein)."""
    if chance >= 1:
        return range(count, count + 1)
    mean, variance = count * chance, count * chance * (1 - chance)
    width = _TAIL / 3 + sqrt(_TAIL**2 / 9 + 2 * variance * _TAIL)
    return range(max(0, int(mean - width)), min(count, int(mean + width) + 1) + 1)


@lru_cache(maxsize=8)
def _factorial_block(first: int, length: int) -> Floats:
    return np.array([lgamma(number + 1) for number in range(first, first + length)])


def _log_factorials(first: int, last: int) -> Floats:
    """Logarithms of the factorials of first to last. They are computed in blocks, as neighbouring calls want nearly the
    same ones."""
    length = 1 << max(10, (last - first).bit_length() + 1)
    start = first // length * length
    block = _factorial_block(start, length)
    if last >= start + length:
        block = np.concatenate([block, _factorial_block(start + length, length)])
    return block[first - start : last - start + 1]


# Several levels


def _pair_delta(one: _Law, other: _Law, epsilon: float) -> float:
    """Of the sum of two independent losses."""
    return float(one.chances @ other.tails(epsilon - one.losses)) + one.lost + other.lost


def _pair_epsilon(one: _Law, other: _Law, delta: float) -> float:
    if delta <= one.lost + other.lost:
        return inf
    top = float(one.losses[-1] + other.losses[-1])
    return least(lambda epsilon: epsilon >= top or _pair_delta(one, other, epsilon) <= delta, start=max(top, 1e-9))


def _folded(laws: list[_Law]) -> _Law:
    """The law of the sum of independent losses: the only one itself, or on a grid, as an upper bound."""
    if len(laws) == 1:
        return laws[0]
    step = 2 * sqrt(sum(float(law.losses[-1] - law.losses[0]) ** 2 for law in laws)) / _GRID
    first, chances, lost = 0, np.ones(1), 0.0
    for law in laws:
        start, split = _split(law, step)
        first, chances, cut = _trimmed(first + start, np.convolve(chances, split))
        lost += law.lost + cut
    return _Law.of(step * np.arange(first, first + len(chances), dtype=np.float64), chances, lost)


def _split(law: _Law, step: float) -> tuple[int, Floats]:
    """A law on the grid: each loss split between the points below and above it, such that sum of chances and sum of
    chances exp(-loss) are kept."""
    below = np.floor(law.losses / step).astype(np.int64)
    up = np.expm1(-np.maximum(0.0, law.losses - step * below)) / expm1(-step)
    up = np.clip(up, 0.0, 1.0)
    first = int(below[0])
    split = np.zeros(int(below[-1]) - first + 2)
    np.add.at(split, below - first, law.chances * (1 - up))
    np.add.at(split, below - first + 1, law.chances * up)
    return first, split


def _trimmed(first: int, chances: Floats) -> tuple[int, Floats, float]:
    """Without the tails below exp(-_TAIL): the lower is moved up to what is left, the upper is lost."""
    low = int(np.searchsorted(np.cumsum(chances), exp(-_TAIL)))
    high = len(chances) - int(np.searchsorted(np.cumsum(chances[::-1]), exp(-_TAIL)))
    kept = chances[low:high].copy()
    kept[0] += chances[:low].sum()
    return first + low, kept, float(chances[high:].sum())
