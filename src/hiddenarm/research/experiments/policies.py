"""Policies side by side, private and plain, on digits and on two worlds that are drawn (`research.data.synthetic`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.synthetic import SYNTHETIC
from hiddenarm.research.data.worlds import World, split_features
from hiddenarm.research.experiments.experiment import Claim, Findings, Picture, Scale, Setting, Table, judged
from hiddenarm.research.experiments.figures import add_curve, add_legend, empty_figure
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.research.experiments.learners import RUNS_TOGETHER, ContextStream, Pair
from hiddenarm.research.experiments.rewards import SUMMARY_HEADER, Rewards, summary_row

POLICIES = (
    "epsilon-greedy:epsilon=0.0",
    "epsilon-greedy:epsilon=0.02",
    "bonus:alpha=0.5",
    "linucb:alpha=0.25",
    "thompson:alpha=0.1",
)
"""Two without a bonus, and three with one and without exploration."""
_RUNS: Mapping[Scale, int] = {"full": 5, "quick": 2, "tiny": 1}
_DRAWN_STEPS: Mapping[Scale, int] = {"full": 20_000, "quick": 1_500, "tiny": 40}
_WORLDS: Mapping[Scale, tuple[str, ...]] = {
    "full": tuple(SYNTHETIC),
    "quick": tuple(SYNTHETIC),
    "tiny": ("cover",),
}
_FIRST = 1_000
"""Steps of which the reward is told apart."""
_SECONDS_A_STEP = 0.6e-3
_POINTS = 200
_SAME = 0.005


@dataclass(frozen=True)
class PolicyRun(Job):
    """Some replicates of one policy in one world. The result is that of a `LearnerRun`."""

    kind: ClassVar[str] = "policies"

    world: str
    policy: str
    seeds: tuple[int, ...]
    steps: int

    @property
    def title(self) -> str:
        return f"{self.world}, {self.policy}"

    @property
    def expected_seconds(self) -> float:
        return 1 + self.steps * len(self.seeds) * _SECONDS_A_STEP * (4 if self.world == "many" else 1)

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        world = load_named(self.world, data_dir)
        features = tuple(split_features(world.features, 2))
        federation = Federation(arms=world.arms, features=features, policy=parse_policy(self.policy))
        key = sha256(f"hiddenarm reproduce policies {self.world} {self.seeds}".encode()).digest()
        course = ContextStream(world, self.seeds, self.steps)
        return Pair(federation, key, len(self.seeds), self.steps, course).run(progress)


def load_named(name: str, data_dir: Path | None) -> World:
    """Digits, MNIST, or a world that is drawn."""
    if name in SYNTHETIC:
        return SYNTHETIC[name]()
    return load_world(name, data_dir=data_dir if name == "mnist" else None)


class Policies:
    """One panel for each world, one curve for each policy."""

    name = "policies"
    title = "Policies"
    place = "not in the paper"

    def jobs(self, setting: Setting) -> Sequence[PolicyRun]:
        return [run for world in _worlds(setting) for policy in POLICIES for run in _runs(setting, world, policy)]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        found = {
            world: {policy: Rewards.of(_runs(setting, world, policy), kept) for policy in POLICIES}
            for world in _worlds(setting)
        }
        return Findings(
            pictures=[_picture(found)],
            tables=[_summary(found), _points(found)],
            claims=[_same_rewards(found), _bonus_pays(setting, found)],
        )


_Found = Mapping[str, Mapping[str, Rewards]]


def _worlds(setting: Setting) -> tuple[str, ...]:
    return (setting.data, *setting.sized(_WORLDS))


def _runs(setting: Setting, world: str, policy: str) -> list[PolicyRun]:
    steps = setting.sweep if world == setting.data else setting.sized(_DRAWN_STEPS)
    runs = setting.sized(_RUNS)
    groups = [tuple(range(at, min(at + RUNS_TOGETHER, runs))) for at in range(0, runs, RUNS_TOGETHER)]
    return [PolicyRun(world, policy, seeds, steps) for seeds in groups]


def _places(steps: int) -> NDArray[np.int64]:
    """Steps to draw: denser at the start."""
    return np.unique((np.linspace(0.05, 1, _POINTS) ** 2 * steps).round().astype(np.int64)).clip(min=1)


def _picture(found: _Found) -> Picture:
    figure, panels = empty_figure(columns=len(found))
    for axes, (world, curves) in zip(panels, found.items(), strict=True):
        steps = next(iter(curves.values())).private.shape[1]
        places = _places(steps)
        for style, (policy, rewards) in enumerate(curves.items()):
            private, _ = rewards.running(places)
            label = f"{policy}  ({rewards.mean():.3f})"
            add_curve(axes, style, places, private.mean(axis=0), private.std(axis=0), label)
        axes.set(title=world, xlabel="step t (decisions made)", ylabel="average reward of steps 1 to t")
        axes.set_xlim(0, steps)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        add_legend(axes, loc="lower right", fontsize=8)
    caption = (
        "Average reward of private policies during training, and that of the whole run. Shaded: deviation of runs."
    )
    return Picture("policies", caption, figure)


def _summary(found: _Found) -> Table:
    rows = [
        (world, policy, len(rewards.private), round(rewards.mean(_FIRST), 4), *summary_row(rewards))
        for world, curves in found.items()
        for policy, rewards in curves.items()
    ]
    header = ("world", "policy", "runs", f"reward of the first {_FIRST}", *SUMMARY_HEADER)
    return Table("policies-summary", "Reward of a whole run, private and plain, with the same coins", header, rows)


def _points(found: _Found) -> Table:
    rows = []
    for world, curves in found.items():
        for policy, rewards in curves.items():
            places = _places(rewards.private.shape[1])
            private, plain = rewards.running(places)
            for column, step in enumerate(places.tolist()):
                values = private[:, column].mean(), private[:, column].std(), plain[:, column].mean()
                rows.append((world, policy, step, *(round(float(value), 5) for value in values)))
    header = ("world", "policy", "step", "average reward", "standard deviation", "plain average reward")
    return Table("policies", "The points of the figure", header, rows, shown=False)


def _same_rewards(found: _Found) -> Claim:
    every = [rewards for curves in found.values() for rewards in curves.values()]
    worst = max(abs(rewards.mean() - rewards.plain_mean()) for rewards in every)
    least = min(rewards.agreement for rewards in every)
    long = min(rewards.private.shape[1] for rewards in every) >= 10 * _FIRST
    same = worst < _SAME
    return Claim(
        sentence="(Private policies earn what their plain twins earn.)",
        place="not in the paper",
        measured=f"largest difference of mean rewards {worst:.4f}; a plain learner taught the same would choose alike "
        f"in at least {100 * least:.2f} % of the steps",
        verdict=judged(same) if long else "not checked",
        explanation=""
        if same and long
        else "Runs of this length part by chance, at ties."
        if not long
        else "They part.",
    )


def _bonus_pays(setting: Setting, found: _Found) -> Claim:
    curves = found[setting.data]
    greedy = max(rewards.mean() for policy, rewards in curves.items() if policy.startswith("epsilon-greedy"))
    least = min(rewards.mean() for policy, rewards in curves.items() if not policy.startswith("epsilon-greedy"))
    decided = setting.scale == "full"
    return Claim(
        sentence="(A bonus for what is not known well earns more than exploration by chance.)",
        place="not in the paper",
        measured=f"{setting.data}: the least of bonus, LinUCB and Thompson sampling {least:.4f}, "
        f"the best of epsilon-greedy {greedy:.4f}",
        verdict=judged(least > greedy) if decided else "not checked",
        explanation=""
        if decided and least > greedy
        else "It does not here."
        if decided
        else "Runs are too short to tell.",
    )
