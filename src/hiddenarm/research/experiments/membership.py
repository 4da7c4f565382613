"""Experiment 7: what a membership-inference attack gains along training, for four epsilons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.experiments.attack import (
    AttackedRun,
    Rates,
    attack,
    attack_across_halves,
    sampling_variance,
    without_arms,
)
from hiddenarm.research.experiments.experiment import (
    EPSILONS,
    Cell,
    Claim,
    Findings,
    Picture,
    Scale,
    Setting,
    Table,
    judged,
)
from hiddenarm.research.experiments.figures import add_curve, add_legend, empty_figure
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.learners import checkpoints_within
from hiddenarm.ring.words import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RUNS: Mapping[Scale, int] = {"full": 200, "quick": 200, "tiny": 4}
_PRIVATE_RUNS: Mapping[Scale, int] = {"full": 2, "quick": 3, "tiny": 2}
_TOGETHER: Mapping[Scale, int] = {"full": 100, "quick": 200, "tiny": 4}
"""Replicates of a job."""
DIGITS_TO_TRAIN = 1_198
"""What is left of the digits where a third is held out."""

_EARLY_STEP = 1_000
"""Where CrypTen's example, by default, first keeps a model to attack."""
_EARLY, _LATE = (1.0, 2.0), 0.75
"""The paper's advantages in percent."""
_CLEAR = 2.0
"""Standard errors that make a difference."""
_TICKS = (50, 200, 1_000, 5_000, 20_000, 60_000)
_SHOWN_STEPS = (100, 1_000, 10_000)

_PLACE = "Experiments, Membership inference attacks"

Which = Literal["reward", "arm"]


@dataclass(frozen=True)
class _Attack:
    """An attack, and the same across halves."""

    name: str
    whole: Callable[[Floats, Floats], Rates]
    halves: Callable[[Floats, Floats], Rates]


def _on_wholes(members: Floats, others: Floats) -> Rates:
    return attack(members.sum(axis=-3), others.sum(axis=-3))


_ATTACKS: Mapping[Which, _Attack] = {
    "reward": _Attack(
        "from the reward alone",
        lambda members, others: _on_wholes(without_arms(members), without_arms(others)),
        lambda members, others: attack_across_halves(without_arms(members), without_arms(others)),
    ),
    "arm": _Attack("from arm and reward", _on_wholes, attack_across_halves),
}


class Membership:
    """One line for each epsilon, with a band of the standard error; once for each attack."""

    name = "membership"
    title = "Membership-inference attacks along training"
    place = "Figure 7 (fig:membership)"

    def jobs(self, setting: Setting) -> Sequence[AttackedRun]:
        return [
            run
            for epsilon in EPSILONS
            for run in (*_many_runs(setting, epsilon), _few_runs(setting, epsilon), _private_runs(setting, epsilon))
        ]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        steps = checkpoints_within(_steps(setting))
        courses = {epsilon: _Course.of(_many_runs(setting, epsilon), kept) for epsilon in EPSILONS}
        return Findings(
            pictures=[_picture(steps, courses), _control_picture(steps, courses)],
            tables=[_summary(steps, courses), _points(steps, courses)],
            claims=[claim for which in _ATTACKS for claim in _claims(setting, which, steps, courses)],
            remarks=[_how(setting), _of_private_models(setting, kept)],
        )


def _steps(setting: Setting) -> int:
    """One sweep through the training set, of which the digits here have fewer: some are held out."""
    return min(setting.sweep, DIGITS_TO_TRAIN) if setting.data == "digits" else setting.sweep


def _run(setting: Setting, learner: Literal["plain", "fast", "paper"], epsilon: float, seeds: range) -> AttackedRun:
    return AttackedRun(setting.data, learner, epsilon, tuple(seeds), _steps(setting))


def _many_runs(setting: Setting, epsilon: float) -> list[AttackedRun]:
    """The runs of the figure: of the plain twin."""
    runs, together = setting.sized(_RUNS), setting.sized(_TOGETHER)
    return [_run(setting, "plain", epsilon, range(start, start + together)) for start in range(0, runs, together)]


def _few_runs(setting: Setting, epsilon: float) -> AttackedRun:
    """The twins of the private runs."""
    return _run(setting, "plain", epsilon, range(setting.sized(_PRIVATE_RUNS)))


def _private_runs(setting: Setting, epsilon: float) -> AttackedRun:
    return _run(setting, setting.suites[0], epsilon, range(setting.sized(_PRIVATE_RUNS)))


@dataclass(frozen=True)
class _Course:
    """Outcomes of all runs of one epsilon, [checkpoints, runs, halves, arms, 2]. Advantages are in percent."""

    members: Floats
    others: Floats

    @classmethod
    def of(cls, runs: Sequence[AttackedRun], kept: ResultStore) -> _Course:
        results = [kept[run] for run in runs]
        return cls(*(np.concatenate([result[name] for result in results], axis=1) for name in ("members", "others")))

    @property
    def runs(self) -> int:
        return int(self.members.shape[1])

    def rates(self, which: Which) -> Rates:
        """[checkpoints, runs]."""
        return _ATTACKS[which].whole(self.members, self.others)

    def advantages(self, which: Which) -> Floats:
        """[checkpoints, runs]."""
        return 100 * self.rates(which).advantage

    def advantages_across_halves(self, which: Which) -> Floats:
        """[checkpoints, runs]."""
        return 100 * _ATTACKS[which].halves(self.members, self.others).advantage

    @property
    def rewards(self) -> tuple[Floats, Floats]:
        """The policy's mean reward on members and on the others, [checkpoints, runs]."""
        members, others = (counts.sum(axis=(2, 3)) for counts in (self.members, self.others))
        return members[..., 1] / members.sum(axis=-1), others[..., 1] / others.sum(axis=-1)

    def sampled_deviation(self, epsilon: float) -> Floats:
        """The standard deviation of the difference of mean rewards, in points, if the policy's coins were tossed."""
        members, others = self.rewards
        coins = sum(sampling_variance(counts.sum(axis=2), epsilon) for counts in (self.members, self.others))
        return np.asarray(100 * np.sqrt((members - others).var(axis=1) + np.mean(coins, axis=1)))


Courses = Mapping[float, _Course]


def _error(values: Floats) -> Floats:
    """The standard error of the mean over the last axis."""
    return np.asarray(values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1]))


def _picture(steps: Sequence[int], courses: Courses) -> Picture:
    figure, panels = empty_figure(columns=2, share_y=True)
    for axes, which in zip(panels, _ATTACKS, strict=True):
        axes.axhspan(*_EARLY, color="0.93", zorder=0)
        axes.axhline(_LATE, color="0.45", linewidth=1, linestyle=(0, (1, 2)))
        _draw(axes, steps, {epsilon: course.advantages(which) for epsilon, course in courses.items()})
        axes.set(title=_ATTACKS[which].name, yscale="log")
        axes.minorticks_off()
        axes.set_yticks([0.2, 0.5, 1, 2, 5, 10], minor=False)
        axes.yaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel("advantage of the adversary (%)")
    add_legend(panels[1], "epsilon", loc="lower left")
    return Picture(
        "membership",
        f"Advantage of the membership-inference attack after T steps. Mean of {_runs(courses)} runs, shaded: its "
        "standard error over runs, which share one held-out set. Left: the adversary looks at the reward alone, as "
        "CrypTen's example code for this figure does; right: at arm and reward, as the paper's text says. Grey: the "
        "paper's 1 to 2 % of the early stages; dotted: its 0.75 % of the later ones.",
        figure,
    )


def _control_picture(steps: Sequence[int], courses: Courses) -> Picture:
    figure, panels = empty_figure(columns=2, share_y=True)
    for axes, which in zip(panels, _ATTACKS, strict=True):
        axes.axhline(0, color="0.3", linewidth=1)
        _draw(axes, steps, {epsilon: course.advantages_across_halves(which) for epsilon, course in courses.items()})
        axes.set(title=_ATTACKS[which].name)
    panels[0].set_ylabel("advantage of the adversary (%)")
    add_legend(panels[1], "epsilon", loc="upper right")
    return Picture(
        "membership-halves",
        "A control: the adversary knows the distributions on one half of the training examples and of the held-out "
        "set, and attacks the other half. The luck of the examples it knows is no advantage then, and can cost "
        "instead: halves of one set err to opposite sides. What is left above 0 is what tells members from others.",
        figure,
    )


def _draw(axes: Axes, steps: Sequence[int], lines: Mapping[float, Floats]) -> None:
    for style, (epsilon, advantages) in enumerate(lines.items()):
        add_curve(axes, style, steps, advantages.mean(axis=1), _error(advantages), f"{epsilon:g}")
    axes.set(xlabel="training examples T", xscale="log")
    axes.set_xlim(steps[0], steps[-1])
    axes.set_xticks([step for step in _TICKS if step <= steps[-1]])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _summary(steps: Sequence[int], courses: Courses) -> Table:
    """Some rows of all points, and fewer columns."""
    header = (
        "epsilon",
        "T",
        *(f"{one.name} (%)" for one in _ATTACKS.values()),
        *(f"{one.name}, across halves (%)" for one in _ATTACKS.values()),
        "reward on members",
        "reward on the others",
    )
    shown = [place for place, step in enumerate(steps) if step in (*_SHOWN_STEPS, steps[-1])]
    rows = [
        (epsilon, steps[place], *(round(value, 3) for value in _means(course, place)))
        for epsilon, course in courses.items()
        for place in shown
    ]
    return Table("membership-summary", "Advantage of the adversary, mean over all runs", header, rows)


def _means(course: _Course, place: int) -> list[float]:
    values = [
        *(course.advantages(which) for which in _ATTACKS),
        *(course.advantages_across_halves(which) for which in _ATTACKS),
        *course.rewards,
    ]
    return [float(value[place].mean()) for value in values]


def _points(steps: Sequence[int], courses: Courses) -> Table:
    names = ("advantage", "standard deviation", "standard error", "true positives", "false positives")
    header = ("epsilon", "attack", "T", "runs", *(f"{name} (%)" for name in names), "advantage across halves (%)")
    rows = [
        row
        for epsilon, course in courses.items()
        for which in _ATTACKS
        for row in _points_of(epsilon, course, which, steps)
    ]
    return Table("membership", "The points of the figures", (*header, "standard error across halves (%)"), rows,
                 shown=False)  # fmt: skip


def _points_of(epsilon: float, course: _Course, which: Which, steps: Sequence[int]) -> list[list[Cell]]:
    rates, advantages, halves = course.rates(which), course.advantages(which), course.advantages_across_halves(which)
    columns = (
        advantages.mean(axis=1),
        advantages.std(axis=1, ddof=1),
        _error(advantages),
        100 * rates.true_positive.mean(axis=1),
        100 * rates.false_positive.mean(axis=1),
        halves.mean(axis=1),
        _error(halves),
    )
    return [
        [epsilon, _ATTACKS[which].name, step, course.runs, *(round(float(column[place]), 4) for column in columns)]
        for place, step in enumerate(steps)
    ]


def _claims(setting: Setting, which: Which, steps: Sequence[int], courses: Courses) -> list[Claim]:
    judge = _Judge(setting, which, steps, {epsilon: course.advantages(which) for epsilon, course in courses.items()})
    return [judge.early(), judge.later(), judge.last(), judge.spread(_why_not_wider(courses))]


_NEEDS_MNIST = "The paper's numbers are for MNIST and 60,000 steps: leave out --quick, and give --data-dir."
_WHAT_IS_EARLY = (
    f"The paper does not say when. Judged after {_EARLY_STEP:,} steps, where CrypTen's example by default first "
    "keeps a model."
)
_WHY: Mapping[Which, str] = {
    "reward": "These runs give other numbers than the paper's; the tables have them.",
    "arm": "Ten distributions p(r | a) are estimated in place of one, and the noise of the estimates counts as "
    "advantage: it falls with every example and hides what else changes. Most of it is gone across halves. Compare the "
    "attack from the reward alone, that of CrypTen's example.",
}


def _why_not_wider(courses: Courses) -> str:
    low, high = min(courses), max(courses)
    return (
        "Outcomes are expectations over the policy's coins here. Were the arm of every example drawn, as in CrypTen's "
        "example, the coins would add spread that grows with epsilon: at the end the difference of mean rewards would "
        f"have a standard deviation of {courses[low].sampled_deviation(low)[-1]:.2f} points at epsilon {low:g} and of "
        f"{courses[high].sampled_deviation(high)[-1]:.2f} at {high:g}."
    )


@dataclass(frozen=True)
class _Judge:
    """What becomes of the paper's sentences under one attack: advantages [checkpoints, runs] for every epsilon."""

    setting: Setting
    which: Which
    steps: Sequence[int]
    advantages: Mapping[float, Floats]

    def early(self) -> Claim:
        place = int(np.searchsorted(self.steps, min(_EARLY_STEP, self.steps[-1])))
        means = self._means[:, place]
        return self._claim(
            "In the early stages of learning, the adversary has a slight advantage of 1-2%",
            f"after {self.steps[place]:,} steps {_span(means)} % for the four epsilons (after the first "
            f"{self.steps[0]:,} steps {_span(self._means[:, 0])} %)",
            bool((means >= _EARLY[0]).all() and (means <= _EARLY[1]).all()),
            also=_WHAT_IS_EARLY,
        )

    def later(self) -> Claim:
        lowest, last = self._means.min(axis=1), self._means[:, -1]
        return self._claim(
            "this advantage rapidly decreases below 0.75% after the learner has observed more training examples",
            f"lowest means {_span(lowest)} %, after {self._where_lowest} steps; at the end {_span(last)} %",
            bool((lowest < _LATE).all()),
        )

    def last(self) -> Claim:
        gains, errors = np.array([self._gain(one) for one in self.advantages.values()]).T
        return self._claim(
            "The advantage slightly increases in the later stages of training",
            f"from the lowest mean to the end it gains {_span(gains)} points (standard error up to {errors.max():.2f})",
            bool((gains > _CLEAR * errors).all()),
        )

    def spread(self, why: str) -> Claim:
        low, high = min(self.advantages), max(self.advantages)
        ratios = self.advantages[high].std(axis=1) / self.advantages[low].std(axis=1)
        return self._claim(
            "For higher values of epsilon, ... higher variance in the advantage values",
            f"standard deviation over runs at epsilon {high:g}: {_span(ratios)} times that at {low:g}",
            bool(np.median(ratios) > 1 + _CLEAR / np.sqrt(len(self.advantages[high].T))),
            why,
        )

    @property
    def _means(self) -> Floats:
        """[epsilons, checkpoints]."""
        return np.array([one.mean(axis=1) for one in self.advantages.values()])

    @property
    def _where_lowest(self) -> str:
        places = [self.steps[place] for place in self._means.argmin(axis=1)]
        return f"{min(places):,}" if len(set(places)) == 1 else f"{min(places):,} to {max(places):,}"

    def _gain(self, advantages: Floats) -> tuple[float, float]:
        """From the checkpoint with the lowest mean to the end, in the same runs; and its standard error."""
        lowest = int(advantages.mean(axis=1).argmin())
        gains = advantages[-1] - advantages[lowest]
        return float(gains.mean()), float(_error(gains))

    def _claim(self, sentence: str, measured: str, holds: bool, why: str = "", also: str = "") -> Claim:
        """`why` is said where it differs, `also` in any case."""
        measured = f"attack {_ATTACKS[self.which].name}: {measured}"
        if self.setting.scale != "full" or self.setting.data != "mnist":
            return Claim(sentence, _PLACE, measured, "not checked", _NEEDS_MNIST)
        why = "" if holds else why or _WHY[self.which]
        return Claim(sentence, _PLACE, measured, judged(holds), f"{also} {why}".strip())


def _span(values: NDArray[np.float64]) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


def _runs(courses: Courses) -> int:
    return next(iter(courses.values())).runs


def _how(setting: Setting) -> str:
    return (
        f"The {setting.sized(_RUNS)} runs are of the plain twin of the private learner: the same learner in the clear, "
        "with coins from the same source. The learners sweep through the training set; the held-out set is MNIST's "
        "test set, or a third of the digits. Outcomes of the epsilon-greedy policy are expectations over its coins, "
        "not samples."
    )


def _of_private_models(setting: Setting, kept: ResultStore) -> str:
    """How far the attack on private models is from that on their twins."""
    differences = np.array([_difference(setting, epsilon, kept) for epsilon in EPSILONS])
    there = np.isfinite(differences)
    largest = f"{differences[there].max():.4f}" if there.any() else "unknown"
    return (
        f"Models of the private learner itself (suite {setting.suites[0]}) were attacked in "
        f"{setting.sized(_PRIVATE_RUNS)} runs for each epsilon, beside twins with the same coins: {int(there.sum())} "
        f"of {there.size} attacks could be compared, and the largest difference of the advantages is {largest} "
        f"points; {int((differences[there] < 0.01).sum())} differ by less than 0.01."
    )


def _difference(setting: Setting, epsilon: float, kept: ResultStore) -> Floats:
    """Between the advantages on private models and on their twins, [attacks, checkpoints, runs]."""
    private, plain = (_Course.of([run(setting, epsilon)], kept) for run in (_private_runs, _few_runs))
    return np.array([abs(private.advantages(which) - plain.advantages(which)) for which in _ATTACKS])
