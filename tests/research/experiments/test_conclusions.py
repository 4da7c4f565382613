"""What the reward experiments conclude follows from the rewards: the same sentence holds or differs with them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.research.experiments.experiment import Experiment, Findings, Setting
from hiddenarm.research.experiments.jobs import Job, ResultStore
from hiddenarm.research.experiments.learners import LearnerRun
from hiddenarm.research.experiments.newton import Newton, relative_reciprocal
from hiddenarm.research.experiments.precision import Precision, fits
from hiddenarm.research.experiments.privacy import Privacy
from hiddenarm.research.experiments.privacy_arms import PrivacyArms
from hiddenarm.research.experiments.rewards import papers_bound, places_of, privacy_loss
from hiddenarm.research.experiments.training import Training

QUICK = Setting("quick", "digits")
FULL = Setting("full", "digits")

Reward = Callable[[LearnerRun], float]


def concluded(
    experiment: Experiment, reward: Reward, folder: Path, setting: Setting = QUICK, plain: Reward | None = None
) -> Findings:
    """What an experiment concludes if its runs earn so much."""
    kept = ResultStore(folder)
    for job in experiment.jobs(setting):
        kept.keep(job, made_up(job, reward, plain or reward), 1.0, "abc")
    return experiment.conclude(setting, kept)


def made_up(job: Job, reward: Reward, plain: Reward) -> dict[str, np.ndarray]:
    assert isinstance(job, LearnerRun)
    shape = (len(job.seeds), job.steps)
    agreed = np.broadcast_to(np.arange(job.steps) >= abs(reward(job) - plain(job)) * job.steps, shape)
    return {
        "rewards": spread_out(reward(job), shape),
        "plain_rewards": spread_out(plain(job), shape),
        "agreed": agreed,
        "steps_made": np.array(job.steps),
    }


def spread_out(mean: float, shape: tuple[int, int]) -> np.ndarray:
    """Zeros and ones of this mean, in any long part of a run."""
    steps = np.arange(shape[1] + 1)
    return np.broadcast_to(np.diff(np.floor(steps * max(mean, 0.0) + 1e-9)).astype(np.uint8), shape)


def verdicts(findings: Findings) -> list[str]:
    return [claim.verdict for claim in findings.claims]


def test_training_holds_if_private_and_plain_earn_the_same(tmp_path: Path) -> None:
    same = concluded(Training(), lambda run: 0.7, tmp_path / "same")
    apart = concluded(Training(), lambda run: 0.7, tmp_path / "apart", plain=lambda run: 0.75)
    assert (verdicts(same), verdicts(apart)) == (["holds"], ["differs"])
    assert same.tables[0].rows[0][:3] == (0.01, 10, pytest.approx(0.7, abs=1e-3))
    assert apart.tables[0].rows[0][4] == pytest.approx(0.75, abs=1e-3)


def test_privacy_pays_or_costs(tmp_path: Path) -> None:
    pays = concluded(Privacy(), lambda run: {0.0: 0.5, 1.0: 0.1}.get(run.epsilon, 0.6), tmp_path / "pays")
    costs = concluded(Privacy(), lambda run: 0.6 - run.epsilon / 2, tmp_path / "costs")
    free = concluded(Privacy(), lambda run: 0.6, tmp_path / "free")
    assert verdicts(pays) == ["holds", "holds", "holds"]
    assert verdicts(costs) == ["holds", "differs", "holds"]
    assert verdicts(free) == ["holds", "differs", "differs"]
    assert len(pays.tables[0].rows) == 3 * 8


def test_the_best_loss_moves_slightly_or_far(tmp_path: Path) -> None:
    near = concluded(PrivacyArms(), lambda run: 0.5 - abs(run.epsilon - 0.1), tmp_path / "near", FULL)
    far = concluded(
        PrivacyArms(), lambda run: 0.5 - abs(run.epsilon - (0.5 if run.arms == 10 else 0.02)), tmp_path / "far", FULL
    )
    assert (verdicts(near), verdicts(far)) == (["holds"], ["differs"])
    assert verdicts(concluded(PrivacyArms(), lambda run: 0.5, tmp_path / "quick")) == ["not checked"]


def cliff(run: LearnerRun) -> float:
    return 0.6 if run.suite == "fast" or 18 <= run.fraction_bits <= 22 else 0.3


def test_precision_finds_the_cliffs_and_the_flat_line(tmp_path: Path) -> None:
    there = concluded(Precision(), cliff, tmp_path / "there")
    absent = concluded(Precision(), lambda run: 0.6, tmp_path / "absent")
    uneven = concluded(Precision(), lambda run: 0.4 + run.fraction_bits / 100, tmp_path / "uneven")
    assert verdicts(there) == ["holds", "holds", "holds", "holds"]
    assert verdicts(absent) == ["holds", "differs", "differs", "holds"]
    assert verdicts(uneven) == ["differs", "differs", "holds", "differs"]
    assert {row[1] for row in there.tables[0].rows if row[0] == "fast suite"} == {16, 18, 20}


def test_one_suite_alone_is_concluded_about(tmp_path: Path) -> None:
    for suite, claims in (("fast", 1), ("paper", 3)):
        setting = Setting("quick", "digits", (suite,))  # type: ignore[arg-type]
        assert len(concluded(Precision(), cliff, tmp_path / suite, setting).claims) == claims


def test_the_default_suite_takes_the_bits_that_fit() -> None:
    assert [bits for bits in range(12, 31) if fits(bits)] == list(range(16, 21))


def test_three_iterations_suffice_or_not(tmp_path: Path) -> None:
    enough = concluded(Newton(), lambda run: 0.6 if run.newton_iterations >= 3 else 0.2, tmp_path / "enough")
    short = concluded(Newton(), lambda run: run.newton_iterations / 10, tmp_path / "short")
    assert verdicts(enough) == ["holds", "holds"]
    assert verdicts(short) == ["differs", "holds"]


def test_no_iteration_that_earns_more_than_three_is_explained(tmp_path: Path) -> None:
    def reward(run: LearnerRun) -> float:
        return 0.7 if run.newton_iterations == 0 else 0.6

    more = concluded(Newton(), reward, tmp_path / "more", plain=lambda run: 0.6)
    less = concluded(Newton(), lambda run: min(0.6, 0.5 + run.newton_iterations / 10), tmp_path / "less")
    explained = more.claims[0].explanation
    assert more.claims[0].verdict == less.claims[0].verdict == "holds"
    assert "No iteration earns 0.100 more than three, more than the standard deviation of a run (0.000)" in explained
    assert "arm in 90.0 % of the steps, with three iterations in 100.0 %" in explained
    assert less.claims[0].explanation == ""
    assert any("the start is 1.34 to 1.82 times 1/x" in remark for remark in more.remarks)


def test_the_start_of_the_reciprocal_is_too_large_and_one_iteration_too_small() -> None:
    assert relative_reciprocal(0) == pytest.approx((1.345, 1.823), abs=1e-3)
    assert relative_reciprocal(1) == pytest.approx((0.323, 0.881), abs=1e-3)
    assert relative_reciprocal(20) == pytest.approx((1.0, 1.0))


def test_figures_and_tables_have_the_exact_loss(tmp_path: Path) -> None:
    for name, experiment in (("one", Privacy()), ("arms", PrivacyArms())):
        found = concluded(experiment, lambda run: 0.5, tmp_path / name)
        table, (axes,) = found.tables[0], found.pictures[0].figure.axes
        by_epsilon = {row[1]: row[2:4] for row in table.rows if row[0] in (10, 300)}
        assert table.header[:4] == (table.header[0], "epsilon", "eta", "eta: the paper's bound")
        assert by_epsilon[0.2] == (round(log(41), 3), round(log(50), 3))
        assert by_epsilon[1.0] == (0.0, round(log(10), 3))
        assert by_epsilon[0.0] == ("infinite", "infinite")
        assert "log(A / ε - A + 1)" in axes.get_xlabel()
        assert np.min(np.asarray(axes.lines[0].get_xdata())) == 0


def test_losses() -> None:
    assert privacy_loss(10, 0.1) == pytest.approx(log(91))
    assert papers_bound(10, 0.1) == pytest.approx(log(100))
    assert privacy_loss(10, 0.0) == papers_bound(10, 0.0) == inf
    assert privacy_loss(10, 1.0) == 0
    assert places_of([1.0, inf, 3.0], 3.0) == [1.0, 4.0, 3.0]
