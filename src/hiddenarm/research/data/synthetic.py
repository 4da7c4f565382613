"""Worlds that are drawn, to compare policies where arms differ in other ways than those of digits.

    cover   7 classes of very different frequency, 4 clusters each, and 5 % wrong labels; a uniform arm earns 0.143
    many    50 arms whose chances are linear in the context, and close to each other; a uniform arm earns about 0.2

Contexts have 20 features: 19 that are drawn, of norm sqrt(0.75), and an intercept of 0.5, so that all have norm 1. What
is drawn is drawn from a fixed seed: a world's own seed decides the order of its rows and its coins, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hiddenarm.research.data.worlds import FloatArray, IntArray, LabelWorld, World, unit_rows

DRAWN = 19
"""Features beside the intercept."""
ROWS = 60_000
_INTERCEPT = 0.5
_SEED = 15
_COVER_SHARES = (0.365, 0.488, 0.062, 0.005, 0.016, 0.030, 0.034)
_CLUSTERS = 4
_WRONG = 0.05
_MANY_ARMS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearWorld(World):
    """Arm a earns 1 with a chance that is linear in the context: its weights times the context, within [0, 1]."""

    weights: FloatArray = field(repr=False)

    def chances(self, rows: IntArray | int, arms: IntArray | int) -> FloatArray:
        return np.asarray(np.clip((self.weights[arms] * self.contexts[rows]).sum(axis=-1), 0.0, 1.0))


def cover_world(seed: int = 0) -> LabelWorld:
    """Classes in the shares of a well-known set of forest cover."""
    rng = np.random.default_rng([_SEED, 1])
    shares = np.array(_COVER_SHARES) / sum(_COVER_SHARES)
    classes = len(shares)
    centres = rng.normal(0, 0.9, (classes, _CLUSTERS, DRAWN))
    true = rng.choice(classes, ROWS, p=shares)
    scale = (1 + np.arange(DRAWN) / 2) ** -0.5
    points = (centres[true, rng.integers(_CLUSTERS, size=ROWS)] + rng.standard_normal((ROWS, DRAWN))) * scale
    wrong = rng.random(ROWS) < _WRONG
    labels = np.where(wrong, rng.integers(classes, size=ROWS), true)
    return LabelWorld(name="cover", contexts=_with_intercept(points), arms=classes, seed=seed, labels=labels)


def many_world(seed: int = 0) -> LinearWorld:
    """P(1) = 0.2 + 0.45 cos(x, theta_a), and a constant an arm of deviation 0.04."""
    rng = np.random.default_rng([_SEED, 2])
    contexts = _with_intercept(rng.standard_normal((ROWS, DRAWN)))
    directions = unit_rows(rng.standard_normal((_MANY_ARMS, DRAWN))) * 0.45 / np.sqrt(1 - _INTERCEPT**2)
    constants = (0.2 + rng.normal(0, 0.04, (_MANY_ARMS, 1))) / _INTERCEPT
    weights = np.concatenate([directions, constants], axis=1)
    return LinearWorld(name="many", contexts=contexts, arms=_MANY_ARMS, seed=seed, weights=weights)


SYNTHETIC: Mapping[str, Callable[[], World]] = {"cover": cover_world, "many": many_world}
"""By name."""


def _with_intercept(points: FloatArray) -> FloatArray:
    intercept = np.full((len(points), 1), _INTERCEPT)
    return np.concatenate([unit_rows(points) * np.sqrt(1 - _INTERCEPT**2), intercept], axis=1)
