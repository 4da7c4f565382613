"""What a run of the private learner beside its plain twin came to: running totals, and the report at the end.

Plain twins follow the private learner step by step, with the same coins, and are timed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from hiddenarm.bandit.catalogue import DECIDE
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import coins_at
from hiddenarm.errors import ConfigError
from hiddenarm.research.data.worlds import World
from hiddenarm.research.plots import plot_learning_curves
from hiddenarm.research.progress import percent, summary_table
from hiddenarm.ring.words import Floats
from hiddenarm.roles.messages import PROGRAM_NUMBERS

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


Meter = dict[str, list[dict[str, Any]]]
"""A link's meter as a party reports it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one party sent, as its link's meter counted it."""

    rounds_per_decision: float
    rounds_per_step: float
    bytes_per_step_per_party: float


def count_traffic(meters: list[Meter], steps: int, kinds: Container[str] | None = None) -> Traffic:
    """What a step took, by the parties' own meters: the most that any counted, of some kinds of frames or of all."""
    return Traffic(
        rounds_per_decision=max(_rounds(meter, PROGRAM_NUMBERS[DECIDE]) for meter in meters) / steps,
        rounds_per_step=max(_rounds(meter, None) for meter in meters) / steps,
        bytes_per_step_per_party=max(_bytes(meter, kinds) for meter in meters) / steps,
    )


def _bytes(meter: Meter, kinds: Container[str] | None) -> int:
    return sum(row["bytes"] for row in meter["sent"] if kinds is None or row["kind"] in kinds)


def _rounds(meter: Meter, program: int | None) -> int:
    """ROUND frames sent to the peer that got most of them."""
    by_peer: dict[str, int] = {}
    for row in meter["sent"]:
        if row["kind"] == "ROUND" and program in (None, row["program"]):
            by_peer[row["peer"]] = by_peer.get(row["peer"], 0) + row["frames"]
    return max(by_peer.values())


@dataclass(frozen=True, slots=True)
class Report:
    """The keys of `--json`."""

    reward: float
    plain_reward: float
    agreement: float
    rounds_per_decision: float
    rounds_per_step: float
    bytes_per_step_per_party: float
    us_per_step: float
    plain_us_per_step: float
    steps: int
    parties: int
    arms: int
    features: int
    policy: str
    epsilon: int | float | str | bool | None
    fraction_bits: int
    replicates: int
    data: str
    suite: str


class Scoreboard:
    """Rewards of both learners, [replicates, steps], and how often they chose alike."""

    def __init__(self, steps: int, replicates: int = 1) -> None:
        self.rewards: Floats = np.zeros((replicates, steps))
        self.plain_rewards: Floats = np.zeros((replicates, steps))
        self.private_seconds = 0.0
        self.plain_seconds = 0.0
        self.steps = 0
        self.same = 0
        self._total = 0.0
        self._plain_total = 0.0

    def record(self, rewards: Floats, plain_rewards: Floats, same: int) -> None:
        """Add one step: rewards of all replicates, and in how many of them the arms were the same."""
        self.rewards[:, self.steps] = rewards
        self.plain_rewards[:, self.steps] = plain_rewards
        self._total += float(rewards.sum())
        self._plain_total += float(plain_rewards.sum())
        self.same += same
        self.steps += 1

    def resume(self, rewards: Floats, plain_rewards: Floats, same: int) -> None:
        """Take over the steps of an earlier run."""
        self.steps = min(rewards.shape[1], self.rewards.shape[1])
        self.rewards[:, : self.steps] = rewards[:, : self.steps]
        self.plain_rewards[:, : self.steps] = plain_rewards[:, : self.steps]
        self._total = float(rewards.sum())
        self._plain_total = float(plain_rewards.sum())
        self.same = same

    @property
    def interactions(self) -> int:
        return self.steps * len(self.rewards)

    @property
    def reward(self) -> float:
        return self._total / max(1, self.interactions)

    @property
    def plain_reward(self) -> float:
        return self._plain_total / max(1, self.interactions)

    @property
    def agreement(self) -> float:
        return self.same / max(1, self.interactions)

    def report(self, federation: Federation, traffic: Traffic, data: str) -> Report:
        return Report(
            reward=self.reward,
            plain_reward=self.plain_reward,
            agreement=self.agreement,
            rounds_per_decision=traffic.rounds_per_decision,
            rounds_per_step=traffic.rounds_per_step,
            bytes_per_step_per_party=traffic.bytes_per_step_per_party,
            us_per_step=1e6 * self.private_seconds / max(1, self.interactions),
            plain_us_per_step=1e6 * self.plain_seconds / max(1, self.interactions),
            steps=self.steps,
            parties=federation.parties,
            arms=federation.arms,
            features=federation.dimension,
            policy=str(federation.policy),
            epsilon=federation.policy.options.get("epsilon"),
            fraction_bits=federation.fraction_bits,
            replicates=len(self.rewards),
            data=data,
            suite=federation.suite,
        )


def print_report(console: Console, title: str, report: Report) -> None:
    """The table at the end of a run."""
    ratio = report.us_per_step / report.plain_us_per_step if report.plain_us_per_step else float("nan")
    rows = [
        ("reward, private", f"{report.reward:.4f}"),
        ("reward, plain twin", f"{report.plain_reward:.4f}"),
        ("same arms", percent(report.agreement, 2)),
        ("rounds per decision", f"{report.rounds_per_decision:g}"),
        ("rounds per step", f"{report.rounds_per_step:g}"),
        ("bytes per step sent by a party", f"{report.bytes_per_step_per_party:,.0f}"),
        ("time per step, private", f"{report.us_per_step:,.0f} µs"),
        ("time per step, plain twin", f"{report.plain_us_per_step:,.1f} µs  ({ratio:,.0f} times)"),
    ]
    console.print(summary_table(title, rows))


def write_json(path: Path, report: Report) -> None:
    try:
        path.write_text(json.dumps(asdict(report), indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def write_plot(path: Path, board: Scoreboard, title: str, subtitle: str) -> None:
    """Both learning curves, of the steps that were made."""
    private, plain = board.rewards[:, : board.steps], board.plain_rewards[:, : board.steps]
    if len(private) == 1:
        private, plain = private[0], plain[0]
    plot_learning_curves(path, private, plain, title=title, subtitle=subtitle)
