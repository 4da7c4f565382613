"""The plain twin: the same learner in float64, in the clear. Oracle of the tests and baseline of every speed claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import Coins
from hiddenarm.ring.words import Floats

Bonus = Callable[[Floats, Floats | None], Floats]
"""What a policy adds to scores w'x: a function of x'Mx, and of a normal number for each arm if the coins have them."""


class PlainBandit:
    """The best score over one linear model per arm, with the coins given from outside."""

    def __init__(self, arms: int, dimension: int, ridge: float = 1.0, bonus: Bonus | None = None) -> None:
        self._bonus = bonus
        self._ridge = ridge
        self.inverses = np.repeat(np.eye(dimension)[None] / ridge, arms, axis=0)
        self.weights = np.zeros((arms, dimension))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it has learned, by name; to be saved, and written to."""
        return {"inverses": self.inverses, "weights": self.weights}

    def scores(self, context: Floats, normals: Floats | None = None) -> Floats:
        """A score for each arm: w'x, and the bonus."""
        scores: Floats = self.weights @ context
        if self._bonus is None:
            return scores
        return scores + self._bonus((self.inverses @ context) @ context, normals)

    def decide(
        self,
        context: Floats,
        explore: bool,
        tags: NDArray[np.int64],
        normals: Floats | None = None,
        eligible: NDArray[np.bool_] | None = None,
    ) -> int:
        """The best arm; among equally good ones that with the highest tag. When exploring, all are equally good. Where
        it is given, an arm must be `eligible`."""
        if eligible is not None:
            tags = np.where(eligible, tags, -1)
        if explore:
            return int(np.argmax(tags))
        scores = self.scores(context, normals)
        if eligible is not None:
            scores = np.where(eligible, scores, -np.inf)
        best = np.flatnonzero(scores == scores.max())
        return int(best[0] if len(best) == 1 else best[np.argmax(tags[best])])

    def agrees(
        self,
        arm: int,
        context: Floats,
        explore: bool,
        tags: NDArray[np.int64],
        rounding: float,
        normals: Floats | None = None,
    ) -> bool:
        """Whether it would choose this arm, or one whose score is within `rounding` (see `Federation.score_rounding`)
        of that of this arm. Scores say nothing of an explored arm: that must be the one of the highest tag."""
        if explore:
            return arm == int(np.argmax(tags))
        scores = self.scores(context, normals)
        return bool(scores.max() - scores[arm] <= rounding)

    def learn(self, context: Floats, arm: int, reward: float) -> None:
        """Sherman-Morrison for the arm that was pulled."""
        model, x = self.regressors(context, arm)
        inverse, weights = self.inverses[model], self.weights[model]
        u = inverse @ x
        v = u / (1 + x @ u)
        inverse -= np.outer(v, u)
        weights += v * (reward - weights @ x)

    def regressors(self, context: Floats, arm: int) -> tuple[int, Floats]:
        """Which model learns of an arm in a context, and from what: that of the arm, from the context."""
        return arm, context

    def add_arm(self) -> None:
        """One more arm, which begins as all did."""
        prior = np.eye(self.weights.shape[1]) / self._ridge
        self.inverses = np.concatenate([self.inverses, prior[None]])
        self.weights = np.concatenate([self.weights, np.zeros((1, self.weights.shape[1]))])

    def unlearn(self, context: Floats, arm: int, reward: float) -> None:
        """Sherman-Morrison backwards: an interaction that was learned is taken out again."""
        model, x = self.regressors(context, arm)
        inverse, weights = self.inverses[model], self.weights[model]
        u = inverse @ x
        v = u / (1 - x @ u)
        inverse += np.outer(v, u)
        weights -= v * (reward - weights @ x)

    def end_lesson(self) -> None:
        """All interactions of a lesson were learned. A twin that does not learn each at once does so here."""
        return


class PlainSharedBandit(PlainBandit):
    """One linear model of the products of a context's features and an arm's, where arms have features."""

    def __init__(self, table: Floats, dimension: int, ridge: float = 1.0, bonus: Bonus | None = None) -> None:
        super().__init__(1, dimension * table.shape[1], ridge, bonus)
        self._table = table

    def scores(self, context: Floats, normals: Floats | None = None) -> Floats:
        scores: Floats = self._table @ (context @ self.weights.reshape(len(context), -1))
        if self._bonus is None:
            return scores
        return scores + self._bonus(_quadratic_forms(self._table, self.inverses[0], context), normals)

    def regressors(self, context: Floats, arm: int) -> tuple[int, Floats]:
        """The only model, from products with the features of the arm."""
        return 0, np.outer(context, self._table[arm]).ravel()


class PlainBandits:
    """Many plain twins that advance together, each with its own context, arm and reward."""

    def __init__(
        self, replicates: int, arms: int, dimension: int, ridge: float = 1.0, bonus: Bonus | None = None
    ) -> None:
        self._bonus = bonus
        self.inverses = np.tile(np.eye(dimension) / ridge, (replicates, arms, 1, 1))
        self.weights = np.zeros((replicates, arms, dimension))
        self._each = np.arange(replicates)

    def scores(self, contexts: Floats, normals: Floats | None = None) -> Floats:
        """A score for each arm, [replicates, arms], for contexts [replicates, features]."""
        scores: Floats = np.matmul(self.weights, contexts[:, :, None])[:, :, 0]
        if self._bonus is None:
            return scores
        u = np.matmul(self.inverses, contexts[:, None, :, None])[..., 0]
        return scores + self._bonus((u * contexts[:, None]).sum(axis=2), normals)

    def decide(
        self,
        contexts: Floats,
        explore: NDArray[np.bool_],
        tags: NDArray[np.int64],
        normals: Floats | None = None,
    ) -> NDArray[np.int64]:
        """The arms [replicates] for contexts [replicates, features], as `PlainBandit.decide` chooses them."""
        scores = self.scores(contexts, normals)
        scores[explore] = 0.0
        best = scores == scores.max(axis=1, keepdims=True)
        arms: NDArray[np.int64] = np.where(best, tags, -1).argmax(axis=1)
        return arms

    def agree(
        self,
        arms: NDArray[np.int64],
        contexts: Floats,
        explore: NDArray[np.bool_],
        tags: NDArray[np.int64],
        rounding: float,
        normals: Floats | None = None,
    ) -> NDArray[np.bool_]:
        """Which of them would choose their arm, as `PlainBandit.agrees` says it."""
        scores = self.scores(contexts, normals)
        near = scores.max(axis=1) - scores[self._each, arms] <= rounding
        agree: NDArray[np.bool_] = np.where(explore, arms == tags.argmax(axis=1), near)
        return agree

    def learn(self, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        """Sherman-Morrison for the arm that each has pulled."""
        pulled = self._each, arms
        inverses, weights = self.inverses[pulled], self.weights[pulled]
        u = np.matmul(inverses, contexts[:, :, None])[:, :, 0]
        v = u / (1 + (contexts * u).sum(axis=1, keepdims=True))
        self.inverses[pulled] = inverses - v[:, :, None] * u[:, None, :]
        self.weights[pulled] = weights + v * (rewards - (weights * contexts).sum(axis=1))[:, None]


class PlainSharedBandits(PlainBandits):
    """Many of them where arms have features."""

    def __init__(
        self, replicates: int, table: Floats, dimension: int, ridge: float = 1.0, bonus: Bonus | None = None
    ) -> None:
        super().__init__(replicates, 1, dimension * table.shape[1], ridge, bonus)
        self._table = table

    def scores(self, contexts: Floats, normals: Floats | None = None) -> Floats:
        matrices = self.weights.reshape(*contexts.shape, -1)
        scores: Floats = np.matmul(contexts[:, None], matrices)[:, 0] @ self._table.T
        if self._bonus is None:
            return scores
        forms = [
            _quadratic_forms(self._table, inverse[0], x) for inverse, x in zip(self.inverses, contexts, strict=True)
        ]
        return scores + self._bonus(np.stack(forms), normals)

    def learn(self, contexts: Floats, arms: NDArray[np.int64], rewards: Floats) -> None:
        products = (contexts[:, :, None] * self._table[arms][:, None]).reshape(len(contexts), -1)
        super().learn(products, np.zeros_like(arms), rewards)


def _quadratic_forms(table: Floats, inverse: Floats, context: Floats) -> Floats:
    """phi'M phi of every arm, phi = x z': z'Qz with Q = X'MX."""
    size, width = len(context), table.shape[1]
    q = np.einsum("i,ijlk,l->jk", context, inverse.reshape(size, width, size, width), context, optimize=True)
    forms: Floats = np.einsum("aj,jk,ak->a", table, q, table, optimize=True)
    return forms


def normals_at(coins: Coins, step: int, replicate: int = 0) -> Floats | None:
    """The normal numbers of one decision, if the coins have any."""
    return None if coins.normals is None else coins.normals[step, replicate]


def coins_at(coins: Coins, step: int, replicate: int = 0) -> tuple[bool, NDArray[np.int64]]:
    """The coins of one decision as the plain twin takes them."""
    at = step, replicate
    return bool(coins.explore[at]), coins.tags[at]
