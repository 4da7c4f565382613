"""Gaussian differential privacy: what is lost when the adversary must tell N(0, 1) from N(mu, 1), or something harder.

    delta(e) = Phi(-e / mu + mu / 2) - exp(e) Phi(-e / mu - mu / 2)                       (Dong, Roth, Su 2022)

holds for every e, negative ones too, and is exact. All functions here are that curve, its inverses, and what follows
from it for attacks. Mechanisms of mu_1, mu_2, ... together, chosen adaptively, have mu = sqrt(sum mu_i^2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import erf, erfc, exp, hypot, inf, log, pi, sqrt

from hiddenarm.errors import ConfigError

REPLACED = 1.5
"""By this much mu is larger for a replaced row than for a dropped one, where noisy sums share mu^2 equally between the
two sums: docs/privacy.md has the proof."""
_HALVINGS = 200
"""Of an interval of doubles: more than enough to end at neighbouring numbers."""
_FAR = -30.0
"""Below it, the tail of the normal distribution is taken from its continued fraction: erfc would soon be 0."""


def delta_at(mu: float, epsilon: float) -> float:
    """The least delta for which a mechanism of this mu is (epsilon, delta)-differentially private."""
    if mu <= 0:
        return max(0.0, -_exp_minus_1(epsilon))
    if mu == inf:
        return 1.0
    near, far = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    return min(1.0, max(0.0, _normal(near) - exp(min(0.0, epsilon + _log_normal(far)))))


def epsilon_for(mu: float, delta: float) -> float:
    """The least epsilon >= 0 at which delta suffices."""
    check_delta(delta)
    if mu == inf:
        return inf
    return least(lambda epsilon: delta_at(mu, epsilon) <= delta)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that is (epsilon, delta)-differentially private."""
    check_delta(delta)
    if not 0 < epsilon < inf:
        raise ConfigError(f"epsilon must be a positive number, got {epsilon}")
    above = least(lambda mu: delta_at(mu, epsilon) > delta)
    return above * (1 - 2.0**-50)


def own_action_epsilon(mu: float, arms: int, epsilon: float, delta: float) -> float:
    """The same as `epsilon_for` where the adversary sees one explored action of the row besides: a randomised response
    among `arms`, explored with chance `epsilon`, whose loss is +eta, 0 or -eta (`privacy.actions`)."""
    check_delta(delta)
    if epsilon <= 0 or mu == inf:
        return inf
    low, high = epsilon / arms, 1 - epsilon + epsilon / arms
    eta = log(high / low)

    def together(at: float) -> float:
        same = (arms - 2) * low * delta_at(mu, at)
        return high * delta_at(mu, at - eta) + same + low * delta_at(mu, at + eta)

    return least(lambda at: together(at) <= delta)


def composed(mus: Iterable[float]) -> float:
    """The mu of several mechanisms together."""
    return hypot(*mus)


def tpr_at(mu: float, fpr: float) -> float:
    """The largest rate of true positives that any attack has at a rate of false ones: Phi(Phi^-1(fpr) + mu)."""
    if not 0 < fpr < 1:
        raise ConfigError(f"a rate of false positives lies between 0 and 1, got {fpr}")
    return _normal(_quantile(fpr) + mu)


def advantage(mu: float) -> float:
    """The largest difference of true and false positives that any attack has: 2 Phi(mu / 2) - 1."""
    return erf(mu / (2 * sqrt(2)))


def check_delta(delta: float) -> None:
    """Reject what is no probability at which a bound may fail."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta must lie between 0 and 1, got {delta}")


def least(holds: Callable[[float], bool], start: float = 1.0) -> float:
    """The least number >= 0 from which on something holds, to the last digits; it must hold at some number."""
    if holds(0.0):
        return 0.0
    low, high = 0.0, start
    while not holds(high):
        low, high = high, 2 * high
        if high == inf:
            return inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _normal(x: float) -> float:
    return erfc(-x / sqrt(2)) / 2


def _log_normal(x: float) -> float:
    """log Phi(x), also where Phi(x) is below the least double."""
    if x > _FAR:
        return log(_normal(x))
    fraction = -x
    for depth in range(20, 0, -1):
        fraction = -x + depth / fraction
    return -x * x / 2 - log(2 * pi) / 2 - log(fraction)


def _quantile(probability: float) -> float:
    low, high = -40.0, 40.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _normal(middle) >= probability else (middle, high)
    return high


def _exp_minus_1(x: float) -> float:
    return exp(min(x, 1.0)) - 1
