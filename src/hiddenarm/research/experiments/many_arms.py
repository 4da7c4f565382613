"""One model of arms that have features beside a model for each arm: what they earn, and what a step takes, by arms.

The paper's experiment with many arms (K-means centres), whose features are principal components of the centres; and a
catalogue of items that have 16 features, made up (`research.data.catalogues`). Where a model for each of 10,000 items
would take hours on shares, a short private run gives the times, and the plain learner the rewards of the whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import process_time
from typing import ClassVar, Literal

import numpy as np

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import coins_at
from hiddenarm.mpc.material import Seeds
from hiddenarm.research.data.catalogues import made_up_catalogue
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import World, features_of_arms, split_features
from hiddenarm.research.experiments.experiment import Claim, Findings, Picture, Scale, Setting, Table, judged
from hiddenarm.research.experiments.figures import (
    add_dots,
    add_legend,
    add_line,
    empty_figure,
    set_logarithmic,
)
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore
from hiddenarm.ring.words import Floats

Model = Literal["one model", "a model for each arm"]
MODELS: tuple[Model, ...] = ("one model", "a model for each arm")
CATALOGUE = "catalogue"
_FEATURES = 20
_CATALOGUE_WIDTH = 16
_CENTRES_WIDTHS = (6, 21)
"""Features of K-means arms: 5 principal components of their centres, or all of their coordinates, and a constant."""
_EPSILON = 0.1
_SEED = 1
_CENTRES: Mapping[Scale, Sequence[int]] = {"full": (10, 100, 1_000), "quick": (10, 40, 160), "tiny": (6, 60)}
_ITEMS: Mapping[Scale, Sequence[int]] = {"full": (100, 1_000, 10_000), "quick": (100, 400), "tiny": (60,)}
STEPS: Mapping[Scale, int] = {"full": 20_000, "quick": 600, "tiny": 20}
ITEM_STEPS: Mapping[Scale, int] = {"full": 6_000, "quick": 300, "tiny": 20}
_TIMED: Mapping[Scale, tuple[int, int]] = {"full": (10_000, 2_000), "quick": (400, 100), "tiny": (60, 10)}
"""From how many items on a model for each is timed only, in so many private steps: at 10,000 items a step takes a fifth
of a second."""
_NEAR = 0.01
_LEAST = {6: 0.42, 21: 0.46}
"""What the private learner earns at least with so many features of each of 1,000 K-means arms of MNIST, where a model
for each arm earns 0.37."""
_FIFTH = 0.2
_STEPS_BETWEEN_NEWS = 50
_AHEAD_WORDS = 1 << 14


@dataclass(frozen=True)
class ManyArmsRun(Job):
    """One run. The result: rewards and plain_rewards [steps], agreed [steps] whether a twin that was taught the same
    would choose alike, and processor seconds [2] of all decisions and of all lessons, dealing included."""

    kind: ClassVar[str] = "many-arms"

    world: str
    width: int
    """Features of an arm, of which there is one model; 0 with a model for each arm."""
    arms: int
    steps: int

    @property
    def model(self) -> Model:
        return MODELS[0] if self.width else MODELS[1]

    @property
    def line(self) -> str:
        """What the line of this run is called in figures."""
        return f"{self.model}, {self.width} features" if self.width else self.model

    @property
    def title(self) -> str:
        return f"{self.world}, {self.arms:,} arms, {self.line}"

    @property
    def expected_seconds(self) -> float:
        weights = (_FEATURES * self.width) ** 2
        a_step = 0.6e-3 + (self.arms * 5e-6 + weights * 35e-9 if self.width else self.arms * 45e-6)
        return 1 + self.steps * a_step

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        world, table = _load(self.world, self.width, self.arms, self.steps, data_dir)
        return _Course(self.federation_of(world, table), world, self.steps, self._key).run(progress)

    def federation_of(self, world: World, table: Floats) -> Federation:
        """Two parties, and the model of this run."""
        features = tuple(split_features(world.features, 2))
        arm_features = ArmTable.of(table) if self.width else None
        return Federation(self.arms, features, epsilon=_EPSILON, arm_features=arm_features)

    @property
    def _key(self) -> bytes:
        """The same coins for both models."""
        return sha256(f"hiddenarm reproduce many-arms {self.world} {self.arms}".encode()).digest()


def _load(name: str, width: int, arms: int, steps: int, data_dir: Path | None) -> tuple[World, Floats]:
    """A world whose contexts have a constant, and the features of its arms; any where each has a model of its own."""
    if name == CATALOGUE:
        catalogue = made_up_catalogue(arms, _CATALOGUE_WIDTH, _FEATURES, min(steps, 20_000), _SEED)
        return catalogue, catalogue.items
    folder = data_dir if name == "mnist" else None
    world = load_world(name, arms=arms, features=_FEATURES, seed=_SEED, data_dir=folder, kind="kmeans")
    return world.with_constant(), features_of_arms(world.arm_points(), width or min(_CENTRES_WIDTHS))


@dataclass(frozen=True)
class PlainManyArmsRun(ManyArmsRun):
    """The plain learner alone, with the coins of the private one: plain_rewards [steps]."""

    kind: ClassVar[str] = "many-arms-plain"

    @property
    def title(self) -> str:
        return f"{super().title}, plain"

    @property
    def expected_seconds(self) -> float:
        return 1 + self.steps * (0.1e-3 + self.arms * 0.1e-6)

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        world, table = _load(self.world, self.width, self.arms, self.steps, data_dir)
        federation = self.federation_of(world, table)
        learner, seeds = federation.policy.twin(federation), Seeds(self._key)
        ahead = max(1, _AHEAD_WORDS // self.arms)
        rewards = np.zeros(self.steps, np.uint8)
        for first in range(0, self.steps, ahead):
            coins = audit_coins(seeds, federation, first, min(ahead, self.steps - first))
            for step in range(first, min(first + ahead, self.steps)):
                x = world.context(step)
                arm = learner.decide(x, *coins_at(coins, step - first))
                rewards[step] = reward = world.reward(step, arm)
                learner.learn(x, arm, reward)
            progress((first + len(coins.explore)) / self.steps, f"reward {rewards[: first + ahead].mean():.3f}")
        return {"plain_rewards": rewards}


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
    """Reward and time of a step against the number of arms, a line for each model; a pair of panels for each world."""

    name = "many-arms"
    title = "Many arms that have features"
    place = "not in the paper"

    def jobs(self, setting: Setting) -> Sequence[ManyArmsRun]:
        return [run for pair in _runs(setting) for run in pair if run is not None]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        points = [_Point.of(run, whole, kept) for run, whole in _runs(setting)]
        return Findings(
            pictures=[_picture(setting, points)],
            tables=[_table(points)],
            claims=[
                _earns_what_the_twin_earns(setting, points),
                _earns_enough(setting, points),
                _earns_more(setting, points),
                _takes_less(points),
            ],
        )


@dataclass(frozen=True)
class _Point:
    """What came of a run. Where it was timed only, `reward` is None, and the plain one is that of the whole."""

    run: ManyArmsRun
    steps: int
    reward: float | None
    plain: float
    agreed: float
    micros: tuple[float, float]

    @classmethod
    def of(cls, run: ManyArmsRun, whole: PlainManyArmsRun | None, kept: ResultStore) -> _Point:
        result = kept[run]
        decide, learn = (1e6 * result["seconds"] / run.steps).tolist()
        reward, plain, agreed = (float(result[name].mean()) for name in ("rewards", "plain_rewards", "agreed"))
        if whole is None:
            return cls(run, run.steps, reward, plain, agreed, (decide, learn))
        return cls(run, whole.steps, None, float(kept[whole]["plain_rewards"].mean()), agreed, (decide, learn))

    @property
    def earned(self) -> float:
        """By the private learner, or where it was timed only by the plain one."""
        return self.plain if self.reward is None else self.reward


def _runs(setting: Setting) -> list[tuple[ManyArmsRun, PlainManyArmsRun | None]]:
    """Each run, with the plain one of as many steps as others have where it is timed only."""
    sizes: dict[str, tuple[Sequence[int], Sequence[int], int]] = {
        setting.data: (_CENTRES_WIDTHS, setting.sized(_CENTRES), setting.sized(STEPS)),
        CATALOGUE: ((_CATALOGUE_WIDTH,), setting.sized(_ITEMS), setting.sized(ITEM_STEPS)),
    }
    timed_from, timed = setting.sized(_TIMED)
    runs: list[tuple[ManyArmsRun, PlainManyArmsRun | None]] = []
    for world, (widths, arms, steps) in sizes.items():
        for width, count in product((*widths, 0), arms):
            if world == CATALOGUE and not width and count >= timed_from:
                runs.append((ManyArmsRun(world, width, count, timed), PlainManyArmsRun(world, width, count, steps)))
            else:
                runs.append((ManyArmsRun(world, width, count, steps), None))
    return runs


def _picture(setting: Setting, points: Sequence[_Point]) -> Picture:
    worlds = list(dict.fromkeys(run.world for run, _ in _runs(setting)))
    figure, panels = empty_figure(columns=2, rows=len(worlds))
    for place, world in enumerate(worlds):
        rewards, times = panels[2 * place : 2 * place + 2]
        own = [point for point in points if point.run.world == world]
        sizes = sorted({point.run.arms for point in own})
        for style, name in enumerate(dict.fromkeys(point.run.line for point in own)):
            line = [point for point in own if point.run.line == name]
            arms = [point.run.arms for point in line]
            add_line(rewards, style, arms, [point.earned for point in line], name)
            add_dots(rewards, style, {point.run.arms: [point.plain] for point in line})
            add_line(times, style, arms, [sum(point.micros) / 1e3 for point in line], name)
        named = world if world == CATALOGUE else f"{world}, K-means arms"
        steps = max(point.steps for point in own)
        rewards.set(title=f"{named}: reward", xlabel="number of arms", ylabel=f"average reward of {steps:,} steps")
        times.set(title=f"{named}: time", xlabel="number of arms", ylabel="ms of processor time a step")
        set_logarithmic(times, sizes)
        set_logarithmic(rewards, sizes)
        rewards.set_yscale("linear")
        add_legend(rewards, loc="best", fontsize=8)
    caption = (
        "Reward, and processor time of a step of all parties and the dealer in one process, against the number of "
        "arms: one model of the products of features of contexts and arms, and a model for each arm. Dots are rewards "
        "of a plain learner with the same coins on its own way."
    )
    plain = [f"{point.run.arms:,} {point.run.world} arms" for point in points if point.reward is None]
    if plain:
        caption += (
            f" With a model for each of {' and '.join(plain)} the reward is the plain learner's, and the time that of "
            "a shorter private run."
        )
    return Picture("many-arms", caption, figure)


def _table(points: Sequence[_Point]) -> Table:
    header = (
        *("world", "arms", "model", "arm features", "steps", "private steps", "reward", "plain reward", "same arm"),
        *("ms deciding", "ms learning"),
    )
    rows = [
        (
            point.run.world,
            point.run.arms,
            point.run.model,
            point.run.width or "",
            point.steps,
            point.run.steps,
            "" if point.reward is None else round(point.reward, 4),
            round(point.plain, 4),
            round(point.agreed, 4),
            round(point.micros[0] / 1e3, 3),
            round(point.micros[1] / 1e3, 3),
        )
        for point in points
    ]
    return Table("many-arms", "Reward, and processor time of a step", header, rows)


def _earns_what_the_twin_earns(setting: Setting, points: Sequence[_Point]) -> Claim:
    ones = [point for point in points if point.run.model == MODELS[0] and point.run.world != CATALOGUE]
    worst = max(abs(point.earned - point.plain) for point in ones)
    long = setting.scale == "full"
    return Claim(
        sentence="(With one model of arms that have features, the private learner earns what its plain twin earns on "
        "its own way, on the paper's data.)",
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


def _earns_enough(setting: Setting, points: Sequence[_Point]) -> Claim:
    """At 1,000 K-means arms of MNIST."""
    asked = {
        point.run.width: point.earned
        for point in points
        if point.run.world == "mnist" and point.run.arms == 1_000 and point.run.width
    }
    checked = setting.scale == "full" and bool(asked)
    enough = checked and all(asked[width] >= least for width, least in _LEAST.items())
    return Claim(
        sentence="(With 1,000 arms and one model, the private learner earns at least "
        + " and ".join(f"{least} with {width} features of arms" for width, least in _LEAST.items())
        + ".)",
        place=ManyArms.place,
        measured="; ".join(f"{width} features: {earned:.3f}" for width, earned in asked.items()) or "no such run",
        verdict=judged(enough) if checked else "not checked",
        explanation="" if enough else "It earns less." if checked else "Only long runs on MNIST can tell.",
    )


def _earns_more(setting: Setting, points: Sequence[_Point]) -> Claim:
    """At the most arms of each world."""
    pairs = [pair for world in dict.fromkeys(point.run.world for point in points) for pair in _pairs(points, world)]
    long, more = setting.scale == "full", all(one.earned > own.earned for one, own in pairs)
    return Claim(
        sentence="(With many arms, one model earns more than a model for each.)",
        place=ManyArms.place,
        measured="; ".join(
            f"{one.run.world}, {one.run.arms:,} arms with {one.run.width} features: {one.earned:.3f} against "
            f"{own.earned:.3f}"
            for one, own in pairs
        ),
        verdict=judged(more) if long else "not checked",
        explanation="" if long and more else "It does not here." if long else "Runs are too short to tell.",
    )


def _takes_less(points: Sequence[_Point]) -> Claim:
    ((one, own),) = _pairs(points, CATALOGUE)
    part = sum(one.micros) / sum(own.micros)
    checked = one.run.arms >= 10_000
    return Claim(
        sentence="(At 10,000 arms a step with one model takes at most a fifth of the time with a model for each.)",
        place=ManyArms.place,
        measured=f"{one.run.arms:,} items: {part:.3f} of the processor time",
        verdict=judged(part <= _FIFTH) if checked else "not checked",
        explanation="" if checked and part <= _FIFTH else "It takes more." if checked else "There are fewer arms.",
    )


def _pairs(points: Sequence[_Point], world: str) -> list[tuple[_Point, _Point]]:
    """At the most arms of a world, each one model with the model for each arm."""
    most = max(point.run.arms for point in points if point.run.world == world)
    *ones, own = (point for point in points if (point.run.world, point.run.arms) == (world, most))
    return [(one, own) for one in ones]
