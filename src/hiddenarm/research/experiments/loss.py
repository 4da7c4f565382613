"""Epsilon and the privacy loss eta of one decision, and axes for it.

An arm has probability epsilon / A at least and 1 - epsilon + epsilon / A at most, whatever the scores are. The loss is
the logarithm of their ratio, eta = log(A / epsilon - A + 1), and no smaller one holds. The paper states the larger
log(A / epsilon).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSS_HEADER = ("eta", "eta: the paper's bound")
"""What `loss_cells` gives."""
_GAP = 1.0
"""How far right of the largest finite eta the non-private point is drawn."""


def privacy_loss(arms: int, epsilon: float) -> float:
    """eta = log(A / epsilon - A + 1); infinite without exploration."""
    return log(arms / epsilon - arms + 1) if epsilon > 0 else inf


def papers_bound(arms: int, epsilon: float) -> float:
    """What the paper states: log(A / epsilon)."""
    return log(arms / epsilon) if epsilon > 0 else inf


def loss_cells(arms: int, epsilon: float) -> tuple[float | str, float | str]:
    """The loss and the paper's bound, for a table."""
    return _cell(privacy_loss(arms, epsilon)), _cell(papers_bound(arms, epsilon))


def _cell(loss: float) -> float | str:
    return "infinite" if loss == inf else round(loss, 3)


def places_of(losses: Sequence[float], largest: float) -> list[float]:
    """Where to draw: infinity at a place of its own, right of the largest finite loss."""
    return [largest + _GAP if loss == inf else loss for loss in losses]


def mark_infinity(axes: Axes, largest: float) -> None:
    """Label the axis of losses up to `largest`, and infinity."""
    finite = [float(tick) for tick in range(int(largest) + 1)]
    axes.set_xlim(left=0, right=largest + _GAP + 0.3)
    axes.set_xticks([*finite, largest + _GAP], [*(f"{tick:.0f}" for tick in finite), "∞"])
    axes.axvline(largest + _GAP / 2, color="0.7", linewidth=0.8, linestyle=":")
    axes.set_xlabel("privacy loss of a decision, η = log(A / ε - A + 1)    (less private →)")
