"""Beyond the paper: what the best attack on a sequence of arms finds, against exploration and the length of a run; the
paper's attack and noisy sums beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hiddenarm.privacy.gaussian import tpr_at
from hiddenarm.privacy.mechanisms import Mechanism, NoisySums, Unbounded
from hiddenarm.research.attacks.evidence import Estimate
from hiddenarm.research.attacks.measure import FALSE_ALARMS, PaperScored, Plan, Scored, paper, sequence
from hiddenarm.research.attacks.paper import PaperAttack
from hiddenarm.research.attacks.trials import Target, Trials
from hiddenarm.research.data.load import load_pair, load_world
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.research.experiments.experiment import Data, Findings, Picture, Scale, Setting, Table
from hiddenarm.research.experiments.figures import add_legend, add_line, empty_figure
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EPSILONS: Mapping[Scale, tuple[float, ...]] = {
    "full": (0.01, 0.05, 0.1, 0.3, 0.5, 0.9),
    "quick": (0.05, 0.1, 0.5),
    "tiny": (0.1, 0.5),
}
_LENGTHS: Mapping[Scale, tuple[int, ...]] = {"full": (200, 1000, 5000), "quick": (100, 400), "tiny": (20, 40)}
_TRIALS: Mapping[Scale, int] = {"full": 4000, "quick": 800, "tiny": 40}
_NOISY_TRIALS: Mapping[Scale, int] = {"full": 40_000, "quick": 800, "tiny": 40}
"""Of noisy sums: half of them have no candidate, and one in a hundred of these fixes the threshold. Rates are small, so
with fewer trials the threshold's own error exceeds what is to be seen."""
_LEARNERS: Mapping[Scale, int] = {"full": 400, "quick": 80, "tiny": 8}
"""Of the paper's attack, whose rates are exact but for the learners."""
_TARGETS: tuple[Target, ...] = ("drop", "same", "any")
_TOTALS = (1.0, 4.0, 8.0)
_EPSILON = 0.1
"""Of the curves over lengths and of noisy sums."""
_FIRST_REFRESH = 500
_SECONDS_A_STEP = 5e-6


@dataclass(frozen=True)
class AttackRun(Job):
    """One attack: on the sequence, on noisy sums of a total epsilon, or the paper's. The result: rate and advantage,
    each with the ends of its interval."""

    kind: ClassVar[str] = "sequence-attack"

    data: Data
    attack: str
    steps: int
    epsilon: float
    trials: int
    total_epsilon: float = 0.0

    @property
    def title(self) -> str:
        total = f", total epsilon {self.total_epsilon:g}" if self.total_epsilon else ""
        return f"attack {self.attack}, {self.steps} steps, epsilon {self.epsilon:g}{total}"

    @property
    def expected_seconds(self) -> float:
        return 1 + self.trials * self.steps * _SECONDS_A_STEP

    @property
    def privacy(self) -> Mechanism:
        if not self.total_epsilon:
            return Unbounded()
        return NoisySums(self.total_epsilon, first_refresh=min(_FIRST_REFRESH, self.steps // 2))

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        folder = data_dir if self.data == "mnist" else None
        if self.attack == "paper":
            training, held_out = load_pair(self.data, data_dir=folder)
            assert isinstance(training, LabelWorld)
            assert isinstance(held_out, LabelWorld)
            plan = self._plan(training, "drop")
            made = PaperAttack(plan.design, held_out)
            scored: Scored | PaperScored = paper(plan, self._told(plan.portions(made.at_a_time), progress), made)
        else:
            world = load_world(self.data, data_dir=folder)
            assert isinstance(world, LabelWorld)
            plan = self._plan(world, self.attack)  # type: ignore[arg-type]
            attack = plan.attack
            scored = sequence(plan, self._told(plan.portions(attack.at_a_time), progress), attack)
        hits, advantage = scored.rates
        return {"hits": _numbers(hits), "advantage": _numbers(advantage)}

    def _plan(self, world: LabelWorld, target: Target) -> Plan:
        key = sha256(f"hiddenarm reproduce {self.description}".encode()).digest()
        return Plan(world, self.steps, self.epsilon, self.trials, key, target, privacy=self.privacy)

    def _told(self, portions: Iterable[Trials], progress: Progress) -> Iterator[Trials]:
        for trials in portions:
            yield trials
            progress(trials.numbers.stop / self.trials, "")


def _numbers(estimate: Estimate) -> np.ndarray:
    return np.array([estimate.value, estimate.low, estimate.high])


class SequenceAttacks:
    """Rates of the best attack, for each target; the paper's beside them."""

    name = "attack"
    title = "The best attack on what is released"
    place = "beyond the paper: docs/attacks.md"

    def jobs(self, setting: Setting) -> Sequence[AttackRun]:
        return [*_by_epsilon(setting).values(), *_by_length(setting).values(), *_of_noisy_sums(setting).values()]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        noisy = _of_noisy_sums(setting)
        return Findings(
            pictures=[_picture(setting, kept)],
            tables=[_table([*self.jobs(setting)], kept)],
            remarks=[
                "True positives at 1 % false ones of the best attack there is: a likelihood ratio of two replays of "
                "the learner, by an adversary who knows all rows but one. Bars are bootstrap intervals of 95 %.",
                "Against noisy sums, by an adversary who sees all of them, and the most that any attack can have: "
                + "; ".join(
                    f"total epsilon {total:g}: {kept[run]['hits'][0]:.4f}, at most "
                    f"{tpr_at(NoisySums(total).mu, FALSE_ALARMS):.4f}"
                    for total, run in noisy.items()
                )
                + ".",
            ],
        )


def _run(setting: Setting, attack: str, steps: int, epsilon: float, total: float = 0.0) -> AttackRun:
    trials = setting.sized(_LEARNERS if attack == "paper" else _NOISY_TRIALS if total else _TRIALS)
    return AttackRun(setting.data, attack, _steps(setting, attack, steps), epsilon, trials, total)


def _steps(setting: Setting, attack: str, steps: int) -> int:
    """No row comes twice, and of the digits some are held out from the paper's attack."""
    return min(steps, 1_000) if setting.data == "digits" else steps


def _by_epsilon(setting: Setting) -> dict[tuple[str, float], AttackRun]:
    shortest = setting.sized(_LENGTHS)[0]
    return {
        (attack, epsilon): _run(setting, attack, shortest, epsilon)
        for attack in (*_TARGETS, "paper")
        for epsilon in setting.sized(_EPSILONS)
    }


def _by_length(setting: Setting) -> dict[tuple[str, int], AttackRun]:
    return {
        (attack, steps): _run(setting, attack, steps, _EPSILON)
        for attack in (*_TARGETS, "paper")
        for steps in setting.sized(_LENGTHS)
    }


def _of_noisy_sums(setting: Setting) -> dict[float, AttackRun]:
    steps = setting.sized(_LENGTHS)[1]
    return {total: _run(setting, "drop", steps, _EPSILON, total) for total in _TOTALS}


def _picture(setting: Setting, kept: ResultStore) -> Picture:
    figure, (left, right) = empty_figure(columns=2, share_y=True)
    by_epsilon, by_length = _by_epsilon(setting), _by_length(setting)
    for style, attack in enumerate((*_TARGETS, "paper")):
        label = "the paper's attack" if attack == "paper" else f"sequence, {attack}"
        for axes, points in (
            (left, {epsilon: kept[run]["hits"] for (name, epsilon), run in by_epsilon.items() if name == attack}),
            (right, {steps: kept[run]["hits"] for (name, steps), run in by_length.items() if name == attack}),
        ):
            rates = np.array(list(points.values()))
            spread = np.abs(rates[:, 1:].T - rates[:, 0])
            add_line(axes, style, list(points), rates[:, 0], label, spread)
    left.set(ylabel="true positives at 1 % false ones", ylim=(0, 1))
    _dress(left, "epsilon", setting.sized(_EPSILONS), f"{setting.sized(_LENGTHS)[0]:,} steps")
    _dress(right, "steps", setting.sized(_LENGTHS), f"epsilon {_EPSILON:g}")
    add_legend(left, loc="upper right")
    return Picture("attack", "The best attack on the sequence of arms, for three targets, and the paper's.", figure)


def _dress(axes: Axes, across: str, places: Sequence[float], title: str) -> None:
    axes.set(xscale="log", xlabel=across, title=title)
    axes.minorticks_off()
    axes.set_xticks(list(places))
    axes.xaxis.set_major_formatter("{x:g}")


def _table(runs: Sequence[AttackRun], kept: ResultStore) -> Table:
    header = ("attack", "steps", "epsilon", "total epsilon", "trials", "TPR at 1 %", "low", "high", "advantage")
    rows = [
        (
            *(run.attack, run.steps, run.epsilon, run.total_epsilon or None, run.trials),
            *(round(float(number), 4) for number in (*kept[run]["hits"], kept[run]["advantage"][0])),
        )
        for run in dict.fromkeys(runs)
    ]
    return Table("attack", "True positives at 1 % false ones, and advantage", header, rows)
