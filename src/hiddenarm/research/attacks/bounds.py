"""A lower bound on epsilon from an attack.

If all that is released is (epsilon, delta)-private for the two worlds of the trials, then every attack has

    TPR <= e^epsilon FPR + delta        and        1 - FPR <= e^epsilon (1 - TPR) + delta.

So a threshold whose rates are known bounds epsilon from below. It is chosen on one half of the trials. The rates come
from the other half, each by the interval of Clopper and Pearson at half of the permitted error: the bound is wrong with
at most that probability, whatever the scores are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hiddenarm.ring.words import Floats

_ERROR = 0.05
_Z = 2.24
"""Of the intervals by which a threshold is chosen: about those by which it is judged."""


@dataclass(frozen=True)
class LowerBound:
    """Epsilon is at least `epsilon`, with the confidence of the module."""

    epsilon: float
    threshold: float
    of_absence: bool
    """Whether the attack concludes that the candidate is absent, from a score of at most the threshold. Otherwise that
    it is present, from a score of at least the threshold."""
    hits: int
    false_alarms: int
    trials: int
    """Of each world, in the half that was counted."""


def lower_bound(scores: Floats, present: NDArray[np.bool_], delta: float) -> LowerBound:
    """From trials that were made in one world each. Every other pair of trials chooses the threshold."""
    half = (np.arange(len(scores)) // 2) % 2 == 0
    chosen = max((_choice(sign * scores[half], present[half] ^ (sign < 0), delta), sign) for sign in (1, -1))
    (_, threshold), sign = chosen
    accused = sign * scores[~half] >= threshold
    truly = present[~half] ^ (sign < 0)
    hits, false_alarms = int(accused[truly].sum()), int(accused[~truly].sum())
    low = clopper_pearson_lower(hits, int(truly.sum()), _ERROR / 2)
    high = 1 - clopper_pearson_lower(int((~truly).sum()) - false_alarms, int((~truly).sum()), _ERROR / 2)
    epsilon = max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
    return LowerBound(epsilon, sign * threshold, sign < 0, hits, false_alarms, int(truly.sum()))


def clopper_pearson_lower(successes: int, trials: int, error: float) -> float:
    """The largest p of which so many successes or more would be seen with a probability of at most `error`."""
    if successes == 0:
        return 0.0
    counts = np.arange(successes, trials + 1)
    ways = np.array([_log_binomial(trials, int(count)) for count in counts])
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        tail = float(np.exp(ways + counts * math.log(middle) + (trials - counts) * math.log1p(-middle)).sum())
        low, high = (middle, high) if tail <= error else (low, middle)
    return low


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _choice(scores: Floats, truly: NDArray[np.bool_], delta: float) -> tuple[float, float]:
    """The best bound by approximate intervals (Wilson's), and its threshold."""
    thresholds = np.unique(scores)
    rates = []
    for mass in (scores[truly], scores[~truly]):
        at_least = len(mass) - np.searchsorted(np.sort(mass), thresholds, side="left")
        rates.append((at_least, len(mass)))
    (hits, actual), (alarms, others) = rates
    low, high = _wilson(hits, actual, -1), _wilson(alarms, others, 1)
    bounds = np.log(np.maximum(low - delta, 1e-300) / high)
    best = int(bounds.argmax())
    return float(bounds[best]), float(thresholds[best])


def _wilson(successes: NDArray[np.int64], trials: int, sign: int) -> Floats:
    share, square = successes / trials, _Z * _Z / trials
    root = _Z * np.sqrt(share * (1 - share) / trials + square / (4 * trials))
    bound: Floats = np.clip((share + square / 2 + sign * root) / (1 + square), 0.0, 1.0)
    return bound
