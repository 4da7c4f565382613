"""Experiment 2: reward against the privacy loss eta, for three lengths of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hiddenarm.research.experiments.experiment import Claim, Findings, Picture, Scale, Setting, Table, judged
from hiddenarm.research.experiments.figures import add_legend, add_line, empty_figure
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.learners import LearnerRun, learner_runs
from hiddenarm.research.experiments.rewards import (
    LOSS_HEADER,
    SUMMARY_HEADER,
    Rewards,
    loss_cells,
    mark_infinity,
    papers_bound,
    places_of,
    privacy_loss,
    summary_row,
)

_ARMS = 10
_RUNS: Mapping[Scale, int] = {"full": 5, "quick": 5, "tiny": 2}
_EPSILONS: Mapping[Scale, tuple[float, ...]] = {
    "full": (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0),
    "quick": (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0),
    "tiny": (1.0, 0.1, 0.0),
}
_CLEAR = 0.02
"""A difference of rewards that counts as one."""

_Points = Mapping[float, Rewards]


class Privacy:
    """A line for each length T; a run's first T steps are a run of length T."""

    name = "privacy"
    title = "Reward against privacy"
    place = "Figure 3 (fig:reward_privacy)"

    def jobs(self, setting: Setting) -> Sequence[LearnerRun]:
        return [run for epsilon in setting.sized(_EPSILONS) for run in _runs(setting, epsilon)]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        points = {epsilon: Rewards.of(_runs(setting, epsilon), kept) for epsilon in setting.sized(_EPSILONS)}
        lengths = _lengths(setting)
        return Findings(
            pictures=[_picture(points, lengths)],
            tables=[_table(points, lengths)],
            claims=[_bound(), _exploration_helps(points, lengths), _too_much_privacy(points, lengths)],
        )


def _runs(setting: Setting, epsilon: float) -> list[LearnerRun]:
    return learner_runs(
        setting.sized(_RUNS), data=setting.data, suite=setting.suites[0], epsilon=epsilon, steps=setting.sweep
    )


def _lengths(setting: Setting) -> tuple[int, ...]:
    return (1_000, 10_000, 60_000) if setting.sweep == 60_000 else tuple(setting.sweep // part for part in (5, 2, 1))


def _picture(points: _Points, lengths: Sequence[int]) -> Picture:
    figure, (axes,) = empty_figure()
    largest = max(privacy_loss(_ARMS, epsilon) for epsilon in points if epsilon > 0)
    places = places_of([privacy_loss(_ARMS, epsilon) for epsilon in points], largest)
    for style, length in enumerate(lengths):
        means = [rewards.mean(length) for rewards in points.values()]
        spread = [rewards.deviation(length) for rewards in points.values()]
        add_line(axes, style, places, means, f"T = {length:,}", spread)
    axes.set(ylabel="average reward of a run", ylim=(0, 1))
    mark_infinity(axes, largest)
    add_legend(axes, loc="upper left")
    runs = len(next(iter(points.values())).private)
    caption = (
        f"Average reward against the privacy loss; ∞ is ε = 0, without privacy. Mean and deviation of {runs} runs."
    )
    return Picture("privacy", caption, figure)


def _table(points: _Points, lengths: Sequence[int]) -> Table:
    rows = [
        (length, epsilon, *loss_cells(_ARMS, epsilon), *summary_row(rewards, length))
        for length in lengths
        for epsilon, rewards in points.items()
    ]
    return Table("privacy", "Reward against privacy", ("T", "epsilon", *LOSS_HEADER, *SUMMARY_HEADER), rows)


def _bound() -> Claim:
    losses = {
        epsilon: (privacy_loss(_ARMS, epsilon), papers_bound(_ARMS, epsilon)) for epsilon in (0.01, 0.1, 0.5, 1.0)
    }
    listed = ", ".join(f"{epsilon:g}: {exact:.3f} <= {bound:.3f}" for epsilon, (exact, bound) in losses.items())
    return Claim(
        sentence="If only the selected action is revealed, then a policy that uses epsilon-greedy exploration is "
        "log(|A| / epsilon)-differentially private.",
        place="Theorem 1",
        measured=f"log of the largest ratio of two probabilities, and the bound, for 10 arms: {listed}",
        verdict=judged(all(exact <= bound for exact, bound in losses.values())),
        explanation="The loss itself is log(|A| / epsilon - |A| + 1), which figures and tables have. It is for one "
        "decision. The loss of many decisions adds up; see docs/threat-model.md.",
    )


def _exploration_helps(points: _Points, lengths: Sequence[int]) -> Claim:
    gains = {
        length: max(
            (rewards.mean(length) - points[0.0].mean(length), epsilon) for epsilon, rewards in points.items() if epsilon
        )
        for length in lengths
    }
    best = {length: gain for length, (gain, _) in gains.items()}
    listed = "; ".join(
        f"T = {length:,}: {gain:+.4f} at epsilon {epsilon:g}" for length, (gain, epsilon) in gains.items()
    )
    return Claim(
        sentence="At certain levels of differential privacy, the reward obtained by the private algorithm is higher "
        "than that of its non-private counterpart.",
        place="Experiments, Reward and privacy",
        measured=f"best reward with exploration less that without, {listed}",
        verdict=judged(max(best.values()) > 0),
        explanation=""
        if min(best.values()) > 0
        else "Exploration pays in short runs. In long ones a greedy learner has found its arms by itself, and "
        "exploration only costs.",
    )


def _too_much_privacy(points: _Points, lengths: Sequence[int]) -> Claim:
    most = max(points)
    falls = [max(rewards.mean(length) for rewards in points.values()) - points[most].mean(length) for length in lengths]
    listed = ", ".join(f"{fall:.3f} (T = {length:,})" for fall, length in zip(falls, lengths, strict=True))
    falling = min(falls) > _CLEAR
    return Claim(
        sentence="For higher levels of privacy, however, the reward obtained starts to decrease because too much "
        "exploration is needed.",
        place="Experiments, Reward and privacy",
        measured=f"from the best epsilon to epsilon = {most:g} the reward falls by {listed}",
        verdict=judged(falling),
        explanation="" if falling else "These runs are too short for a learner that is worth following.",
    )
