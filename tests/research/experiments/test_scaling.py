"""What the experiments on run time conclude from times that grow in a known way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.research.experiments.arms_time import ArmsTime
from hiddenarm.research.experiments.experiment import Experiment, Findings, Setting
from hiddenarm.research.experiments.jobs import Job, ResultStore
from hiddenarm.research.experiments.operations import Operations
from hiddenarm.research.experiments.parties_time import PartiesTime
from hiddenarm.research.experiments.step_times import StepTiming

FULL, QUICK, TINY = (Setting(scale, "digits") for scale in ("full", "quick", "tiny"))

Time = Callable[[StepTiming], float]


def concluded(
    experiment: Experiment, time: Time, folder: Path, setting: Setting = FULL, others: float = 0.0
) -> Findings:
    """What an experiment concludes if steps take so many milliseconds, and bytes grow with the peers."""
    kept = ResultStore(folder)
    for job in experiment.jobs(setting):
        kept.keep(job, made_up(job, time, others), 1.0, "abc")
    return experiment.conclude(setting, kept)


def made_up(job: Job, time: Time, others: float = 0.0) -> dict[str, np.ndarray]:
    assert isinstance(job, StepTiming)
    ms = time(job)
    return {
        "us": 1e3 * ms * np.array([0.95, 1, 1.05]),
        "plain_us": np.array([24.0, 25.0, 27.0]),
        "rounds": np.array(84 if job.suite == "paper" else 10),
        "rounds_of_decision": np.array(32 if job.suite == "paper" else 5),
        "bytes": np.array(2_000.0 * job.arms * (job.parties - 1)),
        "steps": np.array(60),
        "others": np.array(others),
    }


def verdicts(findings: Findings) -> list[str]:
    return [claim.verdict for claim in findings.claims]


def as_the_paper_says(job: StepTiming) -> float:
    return (10 if job.arms <= 20 else job.arms**2 / 40) * job.parties**2


def test_arms_find_overhead_and_exponents(tmp_path: Path) -> None:
    found = concluded(ArmsTime(), as_the_paper_says, tmp_path)
    assert verdicts(found) == ["holds", "holds", "holds"]
    exponents = found.tables[0].rows
    assert exponents[0] == ("fast suite", 2, 0.0, 2.0, 1.0)
    assert len(exponents) == 8
    assert len(found.tables[1].rows) == 2 * 4 * 5
    assert [picture.name for picture in found.pictures] == ["arms-time"]
    assert found.remarks == []


def test_arms_that_grow_otherwise_differ_with_a_reason(tmp_path: Path) -> None:
    linear = concluded(ArmsTime(), lambda job: job.arms / 10, tmp_path / "linear")
    assert verdicts(linear) == ["differs", "differs", "differs"]
    assert "tournament" in linear.claims[1].explanation
    assert "on its way to 2" in linear.claims[2].explanation
    cubic = concluded(ArmsTime(), lambda job: job.arms**3 / 1000, tmp_path / "cubic")
    assert "caches" in cubic.claims[2].explanation


def test_parties_find_the_square(tmp_path: Path) -> None:
    found = concluded(PartiesTime(), as_the_paper_says, tmp_path)
    assert verdicts(found) == ["holds", "holds", "holds"]
    suite, arms, over_all, sharing, by_peers, of_all = found.tables[0].rows[0]
    assert (suite, arms, over_all, sharing, by_peers) == ("fast suite", 10, 2.0, 2.0, 1.0)
    assert of_all == pytest.approx(2.4, abs=0.05)
    assert "N from 3 to 8" in found.claims[0].measured


def test_two_parties_with_a_core_each_do_not_bend_the_slope(tmp_path: Path) -> None:
    found = concluded(PartiesTime(), lambda job: 1 if job.parties == 2 else 2 * job.parties**2, tmp_path)
    assert verdicts(found)[:2] == ["holds", "holds"]
    assert found.tables[0].rows[0][2] > 2.5  # type: ignore[operator]


@pytest.mark.parametrize(("power", "word"), [(0.5, "Flatter"), (4, "Steeper")])
def test_parties_that_grow_otherwise_differ_with_a_reason(tmp_path: Path, power: float, word: str) -> None:
    found = concluded(PartiesTime(), lambda job: job.parties**power, tmp_path)
    assert verdicts(found) == ["differs", "differs", "holds"]
    assert word in found.claims[0].explanation


def test_smaller_scales_and_one_suite_are_concluded_about(tmp_path: Path) -> None:
    tiny = concluded(ArmsTime(), as_the_paper_says, tmp_path / "tiny", TINY)
    assert verdicts(tiny)[1:] == ["not checked", "not checked"]
    assert verdicts(concluded(PartiesTime(), as_the_paper_says, tmp_path / "tiny", TINY))[2] == "holds"
    quick = concluded(ArmsTime(), as_the_paper_says, tmp_path / "quick", QUICK)
    assert verdicts(quick) == ["holds", "holds", "holds"]
    for suite in ("fast", "paper"):
        setting = Setting("quick", "digits", (suite,))
        for experiment, claims in ((ArmsTime(), 2), (PartiesTime(), 2)):
            assert len(concluded(experiment, as_the_paper_says, tmp_path / suite, setting).claims) == claims


def test_nothing_is_concluded_from_times_of_a_busy_machine(tmp_path: Path) -> None:
    arms = concluded(ArmsTime(), as_the_paper_says, tmp_path, others=1.3)
    parties = concluded(PartiesTime(), as_the_paper_says, tmp_path, others=1.3)
    assert verdicts(arms) == ["not checked"] * 3
    assert verdicts(parties) == ["not checked", "not checked", "holds"]
    assert "took up to 1.3 cores" in arms.claims[0].explanation
    assert arms.remarks[0].startswith("At 40 of 40 points")


def test_experiments_share_their_points() -> None:
    arms, parties = set(ArmsTime().jobs(FULL)), set(PartiesTime().jobs(FULL))
    assert len(arms & parties) == 2 * 3 * 4
    assert {job for job in Operations().jobs(FULL) if isinstance(job, StepTiming)} <= arms & parties
