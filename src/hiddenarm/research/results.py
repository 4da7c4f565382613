"""What a run of the private learner beside its plain twins came to: running totals, and the report at the end.

Beside each private learner go two plain ones, with the same coins. One goes its own way: it earns `plain_reward`, and
is timed. The other is taught what the private learner did, arm and reward, step by step: `agreement` is the share of
decisions in which it would choose the same arm, or one that ties with it within the rounding. A twin on its own way
would part from the private learner at the first tie that rounding decides, without anything being wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from hiddenarm.bandit.audit import plain_twin
from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, STEP, STEP_ONE, ProgramId, program_text
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.features import clipped_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit, coins_at, normals_at
from hiddenarm.bandit.slots import Slots, in_lessons
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.privacy.ledger import PrivacyLedger, statement
from hiddenarm.research.data.worlds import World
from hiddenarm.research.plots import plot_learning_curves
from hiddenarm.research.progress import percent, summary_table
from hiddenarm.ring.words import Floats
from hiddenarm.roles.messages import PROGRAM_NUMBERS

CoinSource = Callable[[ProgramId, int, int], Coins]
"""(program, first step, count) -> the dealer's coins of runs that decided."""

ReplicatesNoise = Callable[[int], tuple[Floats, Floats]]
"""The dealer's noise of a refresh, counted from 0, for all replicates, where sums are noisy."""

_COINS_AT_A_TIME = 1024
_CURVE_POINTS = 200
"""Steps at which the mean rewards so far are kept, at most."""
CURVE_COLUMNS = ("step", "reward", "reward_standard_error", "plain_reward", "plain_reward_standard_error")
REPLICATE_COLUMNS = ("replicate", "reward", "plain_reward")
Outcome = dict[str, Any]
"""What a run came to: `configuration`, `report`, `curve` and `by_replicate`."""


@dataclass(frozen=True, slots=True, repr=False)
class _Lessons:
    """What a twin is to learn."""

    bandit: PlainBandit
    contexts: Floats
    arms: list[int]
    rewards: list[float]
    timed: bool = False


class PlainTwins:
    """Two plain learners for each replicate's world: one on its own way, and one that is taught."""

    def __init__(
        self,
        federation: Federation,
        worlds: Sequence[World],
        coins: CoinSource,
        noise: ReplicatesNoise | None = None,
        slots: Slots[_Lessons] | None = None,
    ) -> None:
        sources = [partial(_noise_of, noise, replicate) for replicate in range(len(worlds))]
        self.bandits = [plain_twin(federation, source) for source in sources]
        """On their own way."""
        self.taught = [plain_twin(federation, source) for source in sources]
        """What the private learners did."""
        self.seconds = 0.0
        """Of those on their own way."""
        self._federation = federation
        self._rounding = federation.score_rounding
        self._worlds = worlds
        self._source = coins
        self._coins: dict[ProgramId, tuple[int, Coins]] = {}
        self._slots = slots
        """With slots of rewards, what is to be learned when they end."""

    def end_slot(self) -> None:
        """Learn what the slot before the one that ends now had."""
        assert self._slots is not None
        due = self._slots.end()
        for bandit in (*self.bandits, *self.taught):
            own = [lessons for lessons in due if lessons.bandit is bandit]
            for lesson in in_lessons(own, self._federation.max_batch):
                self._learn(lesson)

    def step(
        self,
        step: int,
        contexts: Floats,
        run: tuple[ProgramId, int],
        arms: NDArray[np.int64],
        rewards: Floats,
        *,
        pure: bool = False,
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Follow a step in every world; `run` is the one in which the private learner decided, arms and rewards are its
        own; with `pure` it has explored whatever the coin said. Where the taught twins agree, and what those on their
        own way earn."""
        coins, at = self._coins_of(*run)
        drawn = coins.of((at, slice(None), None))
        drawn.explore = drawn.explore | pure
        agreed, earned = self._follow(range(step, step + 1), contexts[:, None], drawn, arms[:, None], rewards[:, None])
        return agreed[:, 0], earned[:, 0]

    def batch(
        self, steps: range, contexts: Floats, coins: Coins, arms: NDArray[np.int64], rewards: Floats
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Follow a batch: contexts [replicates, steps, features], coins of one run, arms and rewards of the private
        learner and the result [replicates, steps]."""
        if len(steps) == 1:
            return self._follow(steps, contexts, coins.of((0, slice(None), None)), arms, rewards)
        return self._follow(steps, contexts, coins.of(0), arms, rewards)

    def _follow(
        self, steps: range, contexts: Floats, coins: Coins, arms: NDArray[np.int64], rewards: Floats
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Decide for some steps, then learn from all; coins [replicates, steps]. They see features as the parties clip
        them."""
        contexts = self._clipped(contexts)
        agreed, earned = np.empty(arms.shape, np.bool_), np.empty(arms.shape)
        for replicate, world in enumerate(self._worlds):
            own = contexts[replicate]
            drawn = [(*coins_at(coins, replicate, at), normals_at(coins, replicate, at)) for at in range(len(steps))]
            own_way = self._go_own_way(self.bandits[replicate], world, steps, own, drawn)
            earned[replicate] = own_way.rewards
            taught = self.taught[replicate]
            for place, (arm, context) in enumerate(zip(arms[replicate].tolist(), own, strict=True)):
                explore, tags, normals = drawn[place]
                agreed[replicate, place] = taught.agrees(arm, context, explore, tags, self._rounding, normals)
            told = _Lessons(taught, own, arms[replicate].tolist(), rewards[replicate].tolist())
            if self._slots is not None:
                self._slots.add([own_way, told])
            else:
                self._learn([own_way])
                self._learn([told])
        return agreed, earned

    def _clipped(self, contexts: Floats) -> Floats:
        segments = np.split(contexts, np.cumsum(self._federation.features)[:-1], axis=-1)
        parts = [clipped_features(segment, self._federation, party) for party, segment in enumerate(segments)]
        return np.concatenate(parts, axis=-1)

    def _go_own_way(
        self,
        bandit: PlainBandit,
        world: World,
        steps: range,
        contexts: Floats,
        drawn: Sequence[tuple[bool, NDArray[np.int64], Floats | None]],
    ) -> _Lessons:
        start = perf_counter()
        arms = [bandit.decide(context, *coins) for context, coins in zip(contexts, drawn, strict=True)]
        self.seconds += perf_counter() - start
        earned = [world.reward(step, arm) for step, arm in zip(steps, arms, strict=True)]
        return _Lessons(bandit, contexts, arms, earned, timed=True)

    def _learn(self, lesson: Sequence[_Lessons]) -> None:
        """Teach a twin what it is to learn as one lesson."""
        start = perf_counter()
        for part in lesson:
            for context, arm, reward in zip(part.contexts, part.arms, part.rewards, strict=True):
                part.bandit.learn(context, arm, reward)
        lesson[0].bandit.end_lesson()
        if lesson[0].timed:
            self.seconds += perf_counter() - start

    def _coins_of(self, program: ProgramId, step: int) -> tuple[Coins, int]:
        """Coins among which those of a run are, and where."""
        first, coins = self._coins.get(program, (0, None))
        if coins is None or not first <= step < first + _COINS_AT_A_TIME:
            first, coins = step, self._source(program, step, _COINS_AT_A_TIME)
            self._coins[program] = first, coins
        return coins, step - first


def _noise_of(noise: ReplicatesNoise | None, replicate: int, refresh: int) -> tuple[Floats, Floats]:
    assert noise is not None, "where sums are noisy, twins need the noise"
    grams, moments = noise(refresh)
    return grams[replicate], moments[replicate]


Meter = dict[str, list[dict[str, Any]]]
"""A link's meter as a party reports it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one party sent, as its link's meter counted it."""

    rounds_per_decision: float
    rounds_per_step: float
    bytes_per_step_per_party: float


def count_traffic(
    federation: Federation, meters: list[Meter], steps: int, kinds: Container[str] | None = None
) -> Traffic:
    """What a step took, by the parties' own meters: the most that any counted, of some kinds of frames or of all. A run
    of `step` begins with the rounds of a decision."""
    deciding = sum(
        max(_rounds(meter, PROGRAM_NUMBERS[name]) for meter in meters) * share
        for name, share in ((DECIDE, 1.0), (STEP, _deciding_part(federation)))
    )
    return Traffic(
        rounds_per_decision=deciding / steps,
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
    return max(by_peer.values(), default=0)


def _deciding_part(federation: Federation) -> float:
    """The part of the rounds of `step` in which it decides."""
    if not federation.learner.has_step:
        return 0.0
    decide, step = (layout_of(program_text(federation, one), federation.parties, 1) for one in (DECIDE_ONE, STEP_ONE))
    return decide.rounds / step.rounds


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to in numbers. Standard errors are those of the mean over replicates, None for one alone."""

    reward: float
    reward_standard_error: float | None
    plain_reward: float
    plain_reward_standard_error: float | None
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
    privacy: str
    epsilon: int | float | str | bool | None
    fraction_bits: int
    replicates: int
    data: str
    suite: str
    decisions_counted: int
    delta: float
    epsilon_own_action: float | None
    epsilon_dropped: float | None
    epsilon_replaced: float | None
    epsilon_with_own_action: float | None
    epsilon_user: float | None
    epsilon_total: float | None
    """Of what was released about one row (`privacy.ledger`); None for infinity."""
    vacuous: bool


INTERRUPTED = "Interrupted"


class Scoreboard:
    """Rewards of the private and the plain learner, [replicates, steps], and how often the taught twin agreed."""

    def __init__(self, steps: int, replicates: int = 1) -> None:
        self.rewards: Floats = np.zeros((replicates, steps))
        self.plain_rewards: Floats = np.zeros((replicates, steps))
        self.private_seconds = 0.0
        self.plain_seconds = 0.0
        self.steps = 0
        self.ended = INTERRUPTED
        """Why there are fewer steps than were asked for, if so."""
        self.agreed = 0
        self._total = 0.0
        self._plain_total = 0.0

    def record(self, rewards: Floats, plain_rewards: Floats, agreed: NDArray[np.bool_]) -> None:
        """Add one step: rewards of all replicates, and in which of them the taught twin agreed."""
        self.rewards[:, self.steps] = rewards
        self.plain_rewards[:, self.steps] = plain_rewards
        self._total += float(rewards.sum())
        self._plain_total += float(plain_rewards.sum())
        self.agreed += int(agreed.sum())
        self.steps += 1

    def resume(self, rewards: Floats, plain_rewards: Floats, agreed: int) -> None:
        """Take over the steps of an earlier run."""
        self.steps = min(rewards.shape[1], self.rewards.shape[1])
        self.rewards[:, : self.steps] = rewards[:, : self.steps]
        self.plain_rewards[:, : self.steps] = plain_rewards[:, : self.steps]
        self._total = float(rewards.sum())
        self._plain_total = float(plain_rewards.sum())
        self.agreed = agreed

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
        return self.agreed / max(1, self.interactions)

    @property
    def by_replicate(self) -> dict[str, list[float]]:
        """The mean reward of each replicate: columns `REPLICATE_COLUMNS`."""
        made = slice(self.steps)
        columns = (range(len(self.rewards)), self.rewards[:, made].mean(1), self.plain_rewards[:, made].mean(1))
        return {name: [*map(_plain, column)] for name, column in zip(REPLICATE_COLUMNS, columns, strict=True)}

    @property
    def curve(self) -> dict[str, list[float | None]]:
        """Mean rewards so far over all replicates, at some of the steps: columns `CURVE_COLUMNS`."""
        at = np.unique(np.linspace(0, self.steps - 1, min(self.steps, _CURVE_POINTS)).round().astype(np.int64))
        means = [np.cumsum(earned, axis=1)[:, at] / (at + 1) for earned in (self.rewards, self.plain_rewards)]
        columns: list[Iterable[Any]] = [at + 1]
        for values in means:
            columns += [values.mean(axis=0), [standard_error(column) for column in values.T]]
        return {name: [*map(_plain, column)] for name, column in zip(CURVE_COLUMNS, columns, strict=True)}

    def report(self, federation: Federation, traffic: Traffic, data: str, ledger: PrivacyLedger) -> Report:
        released = statement(ledger, federation.arms, federation.privacy)
        losses = {bound.relation: bound.epsilon if isfinite(bound.epsilon) else None for bound in released.bounds}
        errors = [standard_error(np.array(self.by_replicate[name])) for name in ("reward", "plain_reward")]
        return Report(
            reward=self.reward,
            reward_standard_error=errors[0],
            plain_reward=self.plain_reward,
            plain_reward_standard_error=errors[1],
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
            privacy=str(federation.privacy),
            epsilon=federation.policy.options.get("epsilon"),
            fraction_bits=federation.fraction_bits,
            replicates=len(self.rewards),
            data=data,
            suite=federation.suite,
            decisions_counted=released.decisions,
            delta=released.delta,
            epsilon_own_action=losses["own_action"],
            epsilon_dropped=losses["dropped"],
            epsilon_replaced=losses["replaced"],
            epsilon_with_own_action=losses["with_own_action"],
            epsilon_user=losses["user"],
            epsilon_total=losses[released.headline.relation],
            vacuous=released.headline.vacuous,
        )


def standard_error(values: Floats) -> float | None:
    """Of the mean over replicates; one alone tells none."""
    return float(values.std(ddof=1) / sqrt(len(values))) if len(values) > 1 else None


def configuration_of(federation: Federation, **run: Any) -> dict[str, Any]:
    """All that decides a run: the terms of its federation, and what else is told."""
    terms: dict[str, Any] = json.loads(json.dumps(federation.terms))
    return {**terms, "policy": str(federation.policy), "privacy": str(federation.privacy), **run}


def shown_reward(reward: float, error: float | None) -> str:
    """A mean with its standard error, where there is one."""
    return f"{reward:.4f}" + (f" ± {error:.4f}" if error is not None else "")


def _plain(number: Any) -> Any:
    """As JSON and CSV have it."""
    return number.item() if isinstance(number, np.generic) else number


def outcome_of(configuration: dict[str, Any], report: Report, board: Scoreboard) -> Outcome:
    """Everything that is written down of a run."""
    return {
        "configuration": configuration,
        "report": asdict(report),
        "curve": board.curve,
        "by_replicate": board.by_replicate,
    }


def print_report(console: Console, title: str, report: Report) -> None:
    """The table at the end of a run."""
    ratio = report.us_per_step / report.plain_us_per_step if report.plain_us_per_step else float("nan")
    rows = [
        ("reward, private", shown_reward(report.reward, report.reward_standard_error)),
        ("reward, plain twin", shown_reward(report.plain_reward, report.plain_reward_standard_error)),
        ("agreement with the taught twin", percent(report.agreement, 2)),
        ("rounds per decision", f"{report.rounds_per_decision:g}"),
        ("rounds per step", f"{report.rounds_per_step:g}"),
        ("bytes per step sent by a party", f"{report.bytes_per_step_per_party:,.0f}"),
        ("time per step, private", f"{report.us_per_step:,.0f} µs"),
        ("time per step, plain twin", f"{report.plain_us_per_step:,.1f} µs  ({ratio:,.0f} times)"),
        ("privacy over time", _shown_privacy(report)),
    ]
    console.print(summary_table(title, rows))


def _shown_privacy(report: Report) -> str:
    """What all decisions together lose about one row."""
    total = "infinite" if report.epsilon_total is None else f"{report.epsilon_total:,.4g}"
    return f"epsilon {total} at delta {report.delta:g}" + (", vacuous" if report.vacuous else "")


def write_json(path: Path, outcome: Outcome) -> None:
    """The report as the keys of one object, and the rest of the outcome beside them."""
    flat = {**outcome["report"], **{name: part for name, part in outcome.items() if name != "report"}}
    try:
        path.write_text(json.dumps(flat, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def write_plot(path: Path, board: Scoreboard, title: str, subtitle: str) -> None:
    """Both learning curves, of the steps that were made."""
    private, plain = board.rewards[:, : board.steps], board.plain_rewards[:, : board.steps]
    if len(private) == 1:
        private, plain = private[0], plain[0]
    plot_learning_curves(path, private, plain, title=title, subtitle=subtitle)
