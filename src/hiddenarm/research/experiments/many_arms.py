"""One model of arms that have features beside a model for each arm: what they earn, and what a step takes, by arms.

The paper's experiment with many arms (K-means centres), whose features are principal components of the centres; and a
catalogue of items that have 16 features, made up (`research.data.catalogues`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import ClassVar, Literal

import numpy as np

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import coins_at
from hiddenarm.research.data.catalogues import made_up_catalogue
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import World, features_of_arms, split_features
from hiddenarm.research.experiments.experiment import Claim, Findings, Picture, Scale, Setting, Table, judged
from hiddenarm.research.experiments.figures import add_legend, add_line, empty_figure, set_logarithmic
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.ring.words import Floats

Model = Literal["one model", "a model for each arm"]
MODELS: tuple[Model, ...] = ("one model", "a model for each arm")
CATALOGUE = "catalogue"
_FEATURES = 20
_CATALOGUE_WIDTH = 16
_CENTRES_WIDTH = 6
_EPSILON = 0.1
_SEED = 1
_CENTRES: Mapping[Scale, Sequence[int]] = {"full": (10, 100, 1_000), "quick": (10, 40, 160), "tiny": (6, 60)}
_ITEMS: Mapping[Scale, Sequence[int]] = {"full": (100, 1_000, 10_000), "quick": (100, 400), "tiny": (60,)}
_STEPS: Mapping[Scale, int] = {"full": 20_000, "quick": 600, "tiny": 20}
_ITEM_STEPS: Mapping[Scale, int] = {"full": 2_000, "quick": 300, "tiny": 20}
"""Fewer: at 10,000 items a step with a model for each takes about half a second."""
_NEAR = 0.01
_FIFTH = 0.2
_STEPS_BETWEEN_NEWS = 50
_AHEAD_WORDS = 1 << 14


@dataclass(frozen=True)
class ManyArmsRun(Job):
    """One run. The result: rewards and plain_rewards [steps], agreed [steps] whether a twin that was taught the same
    would choose alike, and processor seconds [2] of all decisions and of all lessons, dealing included."""

    kind: ClassVar[str] = "many-arms"

    world: str
    model: Model
    arms: int
    steps: int

    @property
    def title(self) -> str:
        return f"{self.world}, {self.arms:,} arms, {self.model}"

    @property
    def expected_seconds(self) -> float:
        a_step = 0.6e-3 + self.arms * (5e-6 if self.model == "one model" else 45e-6)
        return 1 + self.steps * a_step

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        world, table = _load(self.world, self.arms, self.steps, data_dir)
        shares = self.model == "one model"
        features = tuple(split_features(world.features, 2))
        federation = Federation(
            self.arms, features, epsilon=_EPSILON, arm_features=ArmTable.of(table) if shares else None
        )
        return _Course(federation, world, self.steps, self._key).run(progress)

    @property
    def _key(self) -> bytes:
        """The same coins for both models."""
        return sha256(f"hiddenarm reproduce many-arms {self.world} {self.arms}".encode()).digest()


def _load(name: str, arms: int, steps: int, data_dir: Path | None) -> tuple[World, Floats]:
    """A world whose contexts have a constant, and the features of its arms."""
    if name == CATALOGUE:
        catalogue = made_up_catalogue(arms, _CATALOGUE_WIDTH, _FEATURES, min(steps, 20_000), _SEED)
        return catalogue, catalogue.items
    folder = data_dir if name == "mnist" else None
    world = load_world(name, arms=arms, features=_FEATURES, seed=_SEED, data_dir=folder, kind="kmeans")
    return world.with_constant(), features_of_arms(world.arm_points(), _CENTRES_WIDTH)


class _Course:
    """A private learner, a plain twin that goes its own way, and one that is taught what the private one did."""

    def __init__(self, federation: Federation, world: World, steps: int, key: bytes) -> None:
        self._federation, self._world, self._steps = federation, world, steps
        ahead = max(1, min(64, _AHEAD_WORDS // federation.arms))
        self._private = Lockstep(federation, key, deal_ahead=ahead)
        self._plain, self._taught = (federation.policy.twin(federation) for _ in range(2))
        self._cuts = np.cumsum(federation.features)[:-1]
        self._rewards = np.zeros((2, steps), np.uint8)
        self._agreed = np.zeros(steps, np.bool_)
        self._seconds = np.zeros(2)

    def run(self, progress: Progress) -> Arrays:
        for step in range(self._steps):
            self._step(step)
            if (step + 1) % _STEPS_BETWEEN_NEWS == 0:
                progress((step + 1) / self._steps, f"reward {self._rewards[0, : step + 1].mean():.3f}")
        return {
            "rewards": self._rewards[0],
            "plain_rewards": self._rewards[1],
            "agreed": self._agreed,
            "seconds": self._seconds,
        }

    def _step(self, step: int) -> None:
        world, x = self._world, self._world.context(step)
        explored, tags = coins_at(self._private.coins(step, 1), 0)
        plain_arm = self._plain.decide(x, explored, tags)
        self._rewards[1, step] = plain_reward = world.reward(step, plain_arm)
        self._plain.learn(x, plain_arm, plain_reward)
        start = process_time()
        number, (arm,) = self._private.decide(np.split(x[None], self._cuts, axis=1))
        decided = process_time()
        self._rewards[0, step] = reward = world.reward(step, int(arm))
        self._agreed[step] = self._taught.agrees(int(arm), x, explored, tags, self._federation.score_rounding)
        self._taught.learn(x, int(arm), reward)
        begun = process_time()
        self._private.learn(number, [reward])
        self._seconds += decided - start, process_time() - begun


class ManyArms:
    """Reward and time of a step against the number of arms, a line for each model; a pair of panels a world."""

    name = "many-arms"
    title = "Many arms that have features"
    place = "not in the paper"

    def jobs(self, setting: Setting) -> Sequence[ManyArmsRun]:
        return [run for runs in _runs(setting).values() for run in runs]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        points = [_Point.of(run, kept) for run in self.jobs(setting)]
        return Findings(
            pictures=[_picture(setting, points)],
            tables=[_table(points)],
            claims=[_earns_what_the_twin_earns(setting, points), _earns_more(setting, points), _takes_less(points)],
        )


@dataclass(frozen=True)
class _Point:
    run: ManyArmsRun
    reward: float
    plain: float
    agreed: float
    micros: tuple[float, float]

    @classmethod
    def of(cls, run: ManyArmsRun, kept: ResultStore) -> _Point:
        result = kept[run]
        decide, learn = (1e6 * result["seconds"] / run.steps).tolist()
        reward, plain, agreed = (float(result[name].mean()) for name in ("rewards", "plain_rewards", "agreed"))
        return cls(run, reward, plain, agreed, (decide, learn))


def _runs(setting: Setting) -> dict[tuple[str, Model], list[ManyArmsRun]]:
    sizes: dict[str, tuple[Sequence[int], int]] = {
        setting.data: (setting.sized(_CENTRES), setting.sized(_STEPS)),
        CATALOGUE: (setting.sized(_ITEMS), setting.sized(_ITEM_STEPS)),
    }
    return {
        (world, model): [ManyArmsRun(world, model, count, steps) for count in arms]
        for world, (arms, steps) in sizes.items()
        for model in MODELS
    }


def _picture(setting: Setting, points: Sequence[_Point]) -> Picture:
    worlds = list(dict.fromkeys(world for world, _ in _runs(setting)))
    figure, panels = empty_figure(columns=2 * len(worlds))
    for place, world in enumerate(worlds):
        rewards, times = panels[2 * place : 2 * place + 2]
        own = [point for point in points if point.run.world == world]
        sizes = sorted({point.run.arms for point in own})
        for style, model in enumerate(MODELS):
            line = [point for point in own if point.run.model == model]
            arms = [point.run.arms for point in line]
            add_line(rewards, style, arms, [point.reward for point in line], model)
            add_line(times, style, arms, [sum(point.micros) / 1e3 for point in line], model)
        named = world if world == CATALOGUE else f"{world}, K-means arms"
        rewards.set(title=f"{named}: reward", xlabel="number of arms", ylabel="average reward of all steps")
        times.set(title=f"{named}: time", xlabel="number of arms", ylabel="ms of processor time a step")
        set_logarithmic(times, sizes)
        set_logarithmic(rewards, sizes)
        rewards.set_yscale("linear")
        add_legend(rewards, loc="best", fontsize=8)
    caption = (
        "Reward, and processor time of a step of all parties and the dealer in one process, against the number of "
        "arms: one model of the products of features of contexts and arms, and a model for each arm."
    )
    return Picture("many-arms", caption, figure)


def _table(points: Sequence[_Point]) -> Table:
    header = ("world", "arms", "model", "steps", "reward", "plain reward", "same arm", "ms deciding", "ms learning")
    rows = [
        (
            point.run.world,
            point.run.arms,
            point.run.model,
            point.run.steps,
            round(point.reward, 4),
            round(point.plain, 4),
            round(point.agreed, 4),
            round(point.micros[0] / 1e3, 3),
            round(point.micros[1] / 1e3, 3),
        )
        for point in points
    ]
    return Table("many-arms", "Reward, and processor time of a step", header, rows)


def _earns_what_the_twin_earns(setting: Setting, points: Sequence[_Point]) -> Claim:
    worst = max(abs(point.reward - point.plain) for point in points if point.run.model == "one model")
    long = setting.scale == "full"
    return Claim(
        sentence="(With one model of arms that have features, the private learner earns what its plain twin earns.)",
        place=ManyArms.place,
        measured=f"largest difference of mean rewards {worst:.4f}; a plain learner taught the same would choose alike "
        f"in at least {100 * min(point.agreed for point in points):.2f} % of the steps",
        verdict=judged(worst < _NEAR) if long else "not checked",
        explanation=""
        if long and worst < _NEAR
        else "They part by chance, at ties."
        if long
        else "Runs are too short to tell.",
    )


def _earns_more(setting: Setting, points: Sequence[_Point]) -> Claim:
    """At the most arms of each world."""
    pairs = [_pair(points, world) for world in dict.fromkeys(point.run.world for point in points)]
    long, more = setting.scale == "full", all(one.reward > own.reward for one, own in pairs)
    return Claim(
        sentence="(With many arms, one model earns more than a model for each.)",
        place=ManyArms.place,
        measured="; ".join(
            f"{one.run.world}, {one.run.arms:,} arms: {one.reward:.3f} against {own.reward:.3f}" for one, own in pairs
        ),
        verdict=judged(more) if long else "not checked",
        explanation="" if long and more else "It does not here." if long else "Runs are too short to tell.",
    )


def _takes_less(points: Sequence[_Point]) -> Claim:
    one, own = _pair(points, CATALOGUE)
    part = sum(one.micros) / sum(own.micros)
    checked = one.run.arms >= 10_000
    return Claim(
        sentence="(At 10,000 arms a step with one model takes at most a fifth of the time with a model for each.)",
        place=ManyArms.place,
        measured=f"{one.run.arms:,} items: {part:.3f} of the processor time",
        verdict=judged(part <= _FIFTH) if checked else "not checked",
        explanation="" if checked and part <= _FIFTH else "It takes more." if checked else "There are fewer arms.",
    )


def _pair(points: Sequence[_Point], world: str) -> tuple[_Point, _Point]:
    """Both models at the most arms of a world."""
    own = [point for point in points if point.run.world == world]
    most = max(point.run.arms for point in own)
    one, each = (point for model in MODELS for point in own if (point.run.arms, point.run.model) == (most, model))
    return one, each
