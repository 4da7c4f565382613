"""What the scores of an attack are worth.

An attack gives every trial a score: the larger, the more it speaks for world 1, in which the candidate takes part, and
against world 0. A trial may have several outcomes with a probability each, so scores, and their mass under either
world, are [trials, outcomes]; a trial that was made in one world has one outcome, of mass 1 there and 0 in the other.

    Curve       false and true positive rate of "score at least s", for every s; straight lines between the points are
                what an adversary gets who flips a coin between two thresholds
    TPR at FPR  the height of the curve there
    advantage   the difference of the two rates for "score above 0". Of log likelihood ratios that is the largest there
                is, and the threshold is not chosen by looking at the trials

Intervals are percentiles of a bootstrap over trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import Floats

_RESAMPLES = 500
_LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Curve:
    """Rates of every threshold, from the strictest to the laxest, beginning with that which accuses nobody."""

    false_positive: Floats
    true_positive: Floats

    def true_positive_at(self, false_positive: float) -> float:
        """The best rate of hits with so many false alarms, by a threshold or by a coin between two."""
        above = int(np.searchsorted(self.false_positive, false_positive + 1e-12, side="right"))
        if above == len(self.false_positive):
            return float(self.true_positive[-1])
        low, high = self.false_positive[above - 1 : above + 1]
        least, most = self.true_positive[above - 1 : above + 1]
        return float(least + (most - least) * (false_positive - low) / (high - low))


@dataclass(frozen=True)
class Evidence:
    """Scores and their mass under world 1 and world 0: [trials, outcomes] each."""

    scores: Floats
    present: Floats
    absent: Floats

    @classmethod
    def of_trials(cls, scores: Floats, present: NDArray[np.bool_]) -> Evidence:
        """Of trials that were made in one world each."""
        return cls(scores[:, None], present[:, None].astype(np.float64), (~present)[:, None].astype(np.float64))

    @property
    def curve(self) -> Curve:
        return next(self._curves([np.ones(len(self.scores))]))

    def true_positive_at(self, false_positive: float, key: bytes) -> Estimate:
        """With the interval that resampling with this key gives."""
        resampled = [curve.true_positive_at(false_positive) for curve in self._resampled(key)]
        return _estimate(self.curve.true_positive_at(false_positive), resampled)

    def advantage(self, key: bytes) -> Estimate:
        """With the interval that resampling with this key gives."""
        accused = self.scores > 0
        sums = [(mass.sum(axis=1), (mass * accused).sum(axis=1)) for mass in (self.present, self.absent)]

        def difference(taken: Floats) -> float:
            hits, alarms = (float(taken @ accusing) / max(float(taken @ every), 1e-300) for every, accusing in sums)
            return hits - alarms

        trials = len(self.scores)
        return _estimate(difference(np.ones(trials)), [difference(taken) for taken in _counts(trials, key)])

    def _resampled(self, key: bytes) -> Iterator[Curve]:
        return self._curves(_counts(len(self.scores), key))

    def _curves(self, counts: Iterable[Floats]) -> Iterator[Curve]:
        """A curve for each array of counts: how often each trial is taken."""
        levels, place = np.unique(-self.scores.ravel(), return_inverse=True)
        for taken in counts:
            weights = np.repeat(taken, self.scores.shape[1])
            rates = []
            for mass in (self.absent, self.present):
                totals = np.bincount(place.ravel(), weights=weights * mass.ravel(), minlength=len(levels))
                rates.append(np.concatenate([[0.0], np.cumsum(totals) / max(totals.sum(), 1e-300)]))
            yield Curve(*rates)


def _estimate(value: float, resampled: list[float]) -> Estimate:
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(value, float(low), float(high))


@dataclass(frozen=True)
class Calibration:
    """Whether scores are log likelihood ratios: E0[e^score; |score| <= limit] = P1(|score| <= limit).

    Without the limit, the left side depends on rare scores, far too large ones, that no run has enough of. The variance
    of the left side is taken from world 1, E0[e^(2 score)] = E1[e^score]: there the scores that matter are not rare.
    """

    limit: float
    expected: float
    found: float
    deviations: float
    """The difference in standard errors."""


def calibration(scores: Floats, present: NDArray[np.bool_], limit: float) -> Calibration:
    """Of trials that were made in one world each."""
    within = np.abs(scores) <= limit
    ratios = np.where(within, np.exp(np.where(within, scores, 0.0)), 0.0)
    left, right = ratios[~present], within[present].astype(np.float64)
    variance = max(float(ratios[present].mean() - right.mean() ** 2), 0.0)
    error = float(np.sqrt(variance / len(left) + right.var() / len(right)))
    difference = float(left.mean() - right.mean())
    return Calibration(limit, float(right.mean()), float(left.mean()), difference / error if error else 0.0)


def mean_of_trials(values: Floats, key: bytes) -> Estimate:
    """The mean of one number a trial, with the interval that resampling with this key gives."""
    return _estimate(float(values.mean()), [float(values @ row) / len(values) for row in _counts(len(values), key)])


def _counts(trials: int, key: bytes) -> Iterator[Floats]:
    """How often each trial is taken, where as many are drawn with replacement; one array a sample."""
    stream = Stream(key, trials)
    for sample in range(_RESAMPLES):
        drawn = (stream.step(sample) >> np.uint64(11)).astype(np.float64) * 2.0**-53 * trials
        yield np.bincount(drawn.astype(np.int64), minlength=trials).astype(np.float64)
