"""Experiment 9: reward against the Newton iterations of the paper's reciprocal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hiddenarm.research.experiments.experiment import Claim, Findings, Picture, Scale, Setting, Table, judged
from hiddenarm.research.experiments.figures import add_line, empty_figure
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.learners import LearnerRun, learner_runs
from hiddenarm.research.experiments.rewards import SUMMARY_HEADER, Rewards, summary_row

_EPSILON = 0.1
_RUNS: Mapping[Scale, int] = {"full": 3, "quick": 3, "tiny": 1}
_STEPS: Mapping[Scale, int] = {"full": 5_000, "quick": 1_000, "tiny": 30}
_ITERATIONS: Mapping[Scale, tuple[int, ...]] = {
    "full": (0, 1, 2, 3, 4, 5, 7),
    "quick": (0, 1, 2, 3, 5, 7),
    "tiny": (0, 3, 7),
}
_ENOUGH = 0.01

_DOMAIN = (1.0, 2.0)
"""Where 1 + x'Mx lies, see `_range`."""

_Line = Mapping[int, Rewards]


class Newton:
    """One line. The default suite takes its reciprocal from a dealt table and a short polynomial, so it has none."""

    name = "newton"
    title = "Reward against Newton-Raphson iterations"
    place = "Figure 9 (fig:reward_nrits)"

    def jobs(self, setting: Setting) -> Sequence[LearnerRun]:
        return [run for count in setting.sized(_ITERATIONS) for run in _runs(setting, count)]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        line = {count: Rewards.of(_runs(setting, count), kept) for count in setting.sized(_ITERATIONS)}
        return Findings(
            pictures=[_picture(setting, line)],
            tables=[_table(line)],
            claims=[_three_suffice(setting, line), _range()],
            remarks=["Only the paper's suite iterates; this experiment is about it whatever --suite says.", _reached()],
        )


def _runs(setting: Setting, iterations: int) -> list[LearnerRun]:
    return learner_runs(
        setting.sized(_RUNS),
        data=setting.data,
        suite="paper",
        epsilon=_EPSILON,
        steps=setting.sized(_STEPS),
        newton_iterations=iterations,
    )


def _picture(setting: Setting, line: _Line) -> Picture:
    figure, (axes,) = empty_figure()
    means = [rewards.mean() for rewards in line.values()]
    add_line(axes, 1, list(line), means, "the paper's suite", [rewards.deviation() for rewards in line.values()])
    axes.set(xlabel="Newton-Raphson iterations", ylabel="average reward of a run", ylim=(0, 1))
    axes.set_xticks(list(line))
    steps, runs = setting.sized(_STEPS), setting.sized(_RUNS)
    caption = f"Average reward of {steps:,} steps against the iterations of the reciprocal, ε = {_EPSILON:g}. "
    return Picture("newton", caption + f"Mean and deviation of {runs} run(s).", figure)


def _table(line: _Line) -> Table:
    rows = [(count, *summary_row(rewards)) for count, rewards in line.items()]
    return Table("newton", "Reward against iterations", ("iterations", *SUMMARY_HEADER), rows)


def _three_suffice(setting: Setting, line: _Line) -> Claim:
    loss = max(rewards.mean() for count, rewards in line.items() if count > 3) - line[3].mean()
    enough = loss < _ENOUGH
    decided = setting.scale != "tiny"
    return Claim(
        sentence="The results reveal that three iterations suffice in our experiments.",
        place="Appendix, Numerical Precision",
        measured=f"three iterations earn {loss:.4f} less than the best number above three; with none "
        f"{line[0].mean():.3f}, with three {line[3].mean():.3f}",
        verdict=judged(enough) if decided else "not checked",
        explanation=_why(line, enough) if decided else "Too few steps.",
    )


def _why(line: _Line, enough: bool) -> str:
    """What has to be said about the rewards that were earned."""
    said = [] if enough else ["More iterations earn more here."]
    gain, spread = line[0].mean() - line[3].mean(), max(line[0].deviation(), line[3].deviation())
    if gain > 0:
        size = "less than" if gain < spread else "more than"
        said.append(
            f"No iteration earns {gain:.3f} more than three, {size} the standard deviation of a run ({spread:.3f}). "
            "It is not more exact but another learner, whose inverses shrink too fast (see the remark on the "
            "reciprocal): a plain learner taught the same would choose its arm in "
            f"{100 * line[0].agreement:.1f} % of the steps, with three iterations in {100 * line[3].agreement:.1f} %."
        )
    return " ".join(said)


def _reached() -> str:
    """How far iterations bring the reciprocal, in exact numbers."""
    start, one, three = (relative_reciprocal(count) for count in (0, 1, 3))
    return (
        "The start of the reciprocal, 3 exp(1/2 - x) + 0.003, is made for x up to 10. Here x = 1 + x'Mx lies in "
        f"[1, 2], and there the start is {start[0]:.2f} to {start[1]:.2f} times 1/x. One iteration overshoots, to "
        f"{one[0]:.2f} to {one[1]:.2f} times 1/x; three reach {three[0]:.2f} to {three[1]:.2f} times. An update with "
        "too large a reciprocal shrinks the inverse of the chosen arm too much, one with too small a one too little."
    )


def relative_reciprocal(iterations: int) -> tuple[float, float]:
    """The least and the largest x y, where y stands for 1/x after so many iterations, for x in the domain."""
    x = np.linspace(*_DOMAIN, 101)
    y = 3 * np.exp(0.5 - x) + 0.003
    for _ in range(iterations):
        y = 2 * y - x * y**2
    return float((x * y).min()), float((x * y).max())


def _range() -> Claim:
    return Claim(
        sentence="The domain of the private reciprocal is [1, c]. In all our experiments, we observed empirically that "
        "c < 10.",
        place="Appendix, Numerical Precision",
        measured="c <= 2: contexts have norm 1 and inverses are at most the identity, so 1 + x'Mx is at most 2",
        verdict="holds",
    )
