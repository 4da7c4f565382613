"""The plain twin: the same learner in float64, in the clear. Oracle of the tests and baseline of every speed claim."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import Coins
from hiddenarm.ring.words import Floats


class PlainBandit:
    """Epsilon-greedy over one linear model per arm, with the coins given from outside."""

    def __init__(self, arms: int, dimension: int, ridge: float = 1.0) -> None:
        self.inverses = np.repeat(np.eye(dimension)[None] / ridge, arms, axis=0)
        self.weights = np.zeros((arms, dimension))

    def decide(self, context: Floats, explore: bool, tags: NDArray[np.int64]) -> int:
        """The best arm; among equally good ones that with the highest tag. When exploring, all are equally good."""
        if explore:
            return int(np.argmax(tags))
        scores = self.weights @ context
        best = np.flatnonzero(scores == scores.max())
        return int(best[0] if len(best) == 1 else best[np.argmax(tags[best])])

    def learn(self, context: Floats, arm: int, reward: float) -> None:
        """Sherman-Morrison for the arm that was pulled."""
        inverse, weights = self.inverses[arm], self.weights[arm]
        u = inverse @ context
        v = u / (1 + context @ u)
        inverse -= np.outer(v, u)
        weights += v * (reward - weights @ context)


def coins_at(coins: Coins, step: int, replicate: int = 0) -> tuple[bool, NDArray[np.int64]]:
    """The coins of one decision as the plain twin takes them."""
    at = step, replicate
    return bool(coins.explore[at]), coins.tags[at]
