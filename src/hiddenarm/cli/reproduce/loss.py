"""Epsilon and the privacy loss eta = log(A / epsilon) that it guarantees for one decision, and axes for it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GAP = 1.0
"""How far right of the largest finite eta the non-private point is drawn."""


def privacy_loss(arms: int, epsilon: float) -> float:
    """The paper's bound eta = log(A / epsilon); infinite without exploration."""
    return log(arms / epsilon) if epsilon > 0 else inf


def exact_loss(arms: int, epsilon: float) -> float:
    """The loss itself, log(A / epsilon - A + 1)."""
    return log(arms / epsilon - arms + 1) if epsilon > 0 else inf


def places_of(losses: Sequence[float], largest: float) -> list[float]:
    """Where to draw: infinity at a place of its own, right of the largest finite loss."""
    return [largest + _GAP if loss == inf else loss for loss in losses]


def mark_infinity(axes: Axes, largest: float) -> None:
    """Label the axis of losses up to `largest`, and infinity."""
    finite = [float(tick) for tick in range(int(largest) + 1)]
    axes.set_xlim(left=0, right=largest + _GAP + 0.3)
    axes.set_xticks([*finite, largest + _GAP], [*(f"{tick:.0f}" for tick in finite), "∞"])
    axes.axvline(largest + _GAP / 2, color="0.7", linewidth=0.8, linestyle=":")
    axes.set_xlabel("privacy loss of a decision, η = log(A / ε)    (less private →)")
