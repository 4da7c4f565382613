"""Plain twins that follow the private learner step by step, with the same coins, and are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import coins_at
from hiddenarm.research.data.worlds import World
from hiddenarm.ring.words import Floats

CoinSource = Callable[[int, int], Coins]
"""(first decision, count) -> the dealer's coins."""

_COINS_AT_A_TIME = 1024


class PlainTwins:
    """One plain learner for each replicate's world."""

    def __init__(self, federation: Federation, worlds: Sequence[World], coins: CoinSource) -> None:
        self.bandits = [federation.policy.twin(federation) for _ in worlds]
        self.seconds = 0.0
        self._worlds = worlds
        self._source = coins
        self._coins: Coins | None = None
        self._first = 0

    def step(self, step: int, contexts: Floats, decision: int) -> tuple[NDArray[np.int64], Floats]:
        """Decide and learn in every world; `decision` is the number under which the private learner decides."""
        arms, rewards = np.empty(len(self.bandits), np.int64), np.empty(len(self.bandits))
        for replicate, (bandit, world) in enumerate(zip(self.bandits, self._worlds, strict=True)):
            coins = coins_at(self._coins_for(decision), decision - self._first, replicate)
            context = contexts[replicate]
            start = perf_counter()
            arm = bandit.decide(context, *coins)
            middle = perf_counter()
            reward = world.reward(step, arm)
            resumed = perf_counter()
            bandit.learn(context, arm, reward)
            self.seconds += perf_counter() - resumed + middle - start
            arms[replicate], rewards[replicate] = arm, reward
        return arms, rewards

    def batch(self, steps: range, contexts: Floats, coins: Coins) -> tuple[NDArray[np.int64], Floats]:
        """Decide for some steps, then learn from all: contexts [replicates, steps, features], coins of one run."""
        shape = (len(self.bandits), len(steps))
        arms, rewards = np.empty(shape, np.int64), np.empty(shape)
        for replicate, (bandit, world) in enumerate(zip(self.bandits, self._worlds, strict=True)):
            start = perf_counter()
            for position in range(len(steps)):
                at = (0, replicate, position) if len(steps) > 1 else (0, replicate)
                explore, tags = bool(coins.explore[at]), coins.tags[at]
                arms[replicate, position] = bandit.decide(contexts[replicate, position], explore, tags)
            decided = perf_counter()
            rewards[replicate] = [
                world.reward(step, int(arm)) for step, arm in zip(steps, arms[replicate], strict=True)
            ]
            resumed = perf_counter()
            for position in range(len(steps)):
                bandit.learn(
                    contexts[replicate, position], int(arms[replicate, position]), rewards[replicate, position]
                )
            self.seconds += perf_counter() - resumed + decided - start
        return arms, rewards

    def _coins_for(self, decision: int) -> Coins:
        if self._coins is None or not self._first <= decision < self._first + _COINS_AT_A_TIME:
            self._first = decision
            self._coins = self._source(decision, _COINS_AT_A_TIME)
        return self._coins
