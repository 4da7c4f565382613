"""The experiments that the paper does not have: their runs, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hiddenarm.bandit.plain import PlainBandits
from hiddenarm.cli.main import commands
from hiddenarm.cli.research import FURTHER_EXPERIMENTS, PAPERS_EXPERIMENTS
from hiddenarm.privacy.actions import epsilon_total
from hiddenarm.research.data.catalogues import made_up_catalogue
from hiddenarm.research.experiments.experiment import Experiment, Setting
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.many_arms import ManyArms
from hiddenarm.research.experiments.privacy_over_time import OverTimeRun, PrivacyOverTime
from hiddenarm.research.experiments.reproduction import chosen, experiments, further_experiments
from hiddenarm.research.experiments.sequence_attack import AttackRun, SequenceAttacks

TINY = Setting("tiny", "digits")


def done(experiment: Experiment, folder: Path) -> ResultStore:
    kept = ResultStore(folder)
    for job in dict.fromkeys(experiment.jobs(TINY)):
        kept.keep(job, job.perform(None, lambda share, said: None), 1.0, "commit")
    return kept


def test_they_are_found_by_name_and_are_not_among_the_papers() -> None:
    assert [one.name for one in chosen(("attack", "privacy-over-time"))] == ["privacy-over-time", "attack"]
    further = {one.name for one in further_experiments()}
    assert further == {"attack", "privacy-over-time", "policies", "many-arms"}
    assert [*PAPERS_EXPERIMENTS] == [one.name for one in experiments()]
    assert [*FURTHER_EXPERIMENTS] == [one.name for one in further_experiments()]
    for names in ((), ("all",)):
        assert [one.name for one in chosen(names)] == [one.name for one in experiments()]
    assert not further & {one.name for one in experiments()}


def test_the_help_lists_them() -> None:
    told = " ".join(CliRunner().invoke(commands, ["reproduce", "--help"]).output.split())
    assert f"Experiments of the paper: {', '.join(one.name for one in experiments())} Further" in told
    assert told.endswith(f"made when they are named: {', '.join(one.name for one in further_experiments())}")


def test_many_arms_have_a_line_for_each_model_in_rewards_and_times(tmp_path: Path) -> None:
    kept = done(ManyArms(), tmp_path)
    findings = ManyArms().conclude(TINY, kept)
    (picture,) = findings.pictures
    assert [len(axes.containers) for axes in picture.figure.axes] == [3, 3, 2, 2]
    (table,) = findings.tables
    assert [row[:4] for row in table.rows] == [
        ("digits", 6, "one model", 6),
        ("digits", 60, "one model", 6),
        ("digits", 6, "one model", 21),
        ("digits", 60, "one model", 21),
        ("digits", 6, "a model for each arm", ""),
        ("digits", 60, "a model for each arm", ""),
        ("catalogue", 60, "one model", 16),
        ("catalogue", 60, "a model for each arm", ""),
    ]
    assert all(row[8] == 1.0 for row in table.rows), "a twin that is taught the same agrees"
    assert {claim.verdict for claim in findings.claims} == {"not checked"}


@pytest.mark.parametrize(("wide", "verdict"), [(0.47, "holds"), (0.45, "differs")])
def test_what_one_model_of_a_thousand_arms_must_earn_at_least(wide: float, verdict: str, tmp_path: Path) -> None:
    """Made-up results of runs at full size: 0.43 of rewards with 6 features, and `wide` with 21."""
    setting, kept = Setting("full", "mnist"), ResultStore(tmp_path)
    for job in ManyArms().jobs(setting):
        share = {0: 0.37, 21: wide}.get(job.width, 0.43)
        rewards = (np.arange(100) < round(100 * share)).astype(np.uint8)
        made = {"rewards": rewards, "plain_rewards": rewards, "agreed": rewards >= 0, "seconds": np.array([0.1, 0.1])}
        kept.keep(job, made, 1.0, "commit")
    near, enough, more, _ = ManyArms().conclude(setting, kept).claims
    assert (near.verdict, enough.verdict, more.verdict) == ("holds", verdict, "holds")
    assert enough.measured == f"6 features: 0.430; 21 features: {wide:.3f}"
    assert "at least 0.42 with 6 features of arms and 0.46 with 21" in enough.sentence


def test_a_catalogue_is_a_function_of_its_numbers() -> None:
    one, again = (made_up_catalogue(30, 4, 5, 50) for _ in range(2))
    assert np.array_equal(one.items, again.items)
    assert np.array_equal(one.contexts, again.contexts)
    for rows in (one.items, one.contexts):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    chances = one.chances(np.arange(50), np.arange(50) % 30)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert one.chances(7, 7) == chances[7]


def test_attacks_are_drawn_and_listed(tmp_path: Path) -> None:
    kept = done(SequenceAttacks(), tmp_path)
    findings = SequenceAttacks().conclude(TINY, kept)
    (table,) = findings.tables
    assert {row[0] for row in table.rows} == {"drop", "same", "any", "paper"}
    assert [row[3] for row in table.rows if row[3]] == [1.0, 4.0, 8.0]
    assert all(0 <= row[6] <= row[5] <= row[7] <= 1 for row in table.rows)  # type: ignore[operator]
    (picture,) = findings.pictures
    left, right = picture.figure.axes
    assert len(left.containers) == len(right.containers) == 4
    assert "at most 0.0183" in findings.remarks[1]


def test_an_attack_is_a_function_of_its_fields() -> None:
    run = AttackRun("digits", "any", 30, 0.1, 40)
    first, again = (run.perform(None, lambda share, said: None) for _ in range(2))
    assert np.array_equal(first["hits"], again["hits"])
    assert run.digest != AttackRun("digits", "any", 30, 0.1, 44).digest


def test_reward_over_time_is_drawn_and_listed(tmp_path: Path) -> None:
    kept = done(PrivacyOverTime(), tmp_path)
    findings = PrivacyOverTime().conclude(TINY, kept)
    (table,) = findings.tables
    lines = ("noisy sums", "noisy sums, correlated noise", "noisy gradient", "exploration alone")
    assert [row[:3] for row in table.rows] == [
        row
        for world in ("digits", "cover")
        for row in (*((world, line, total) for line in lines for total in (1.0, 8.0)), (world, "no bound", None))
    ]
    (picture,) = findings.pictures
    assert [axes.get_title() for axes in picture.figure.axes] == ["digits", "cover"]


def test_exploration_alone_explores_as_much_as_its_total_needs() -> None:
    for job in PrivacyOverTime().jobs(TINY):
        if job.mechanism == "exploration alone":
            assert epsilon_total(
                {"digits": 10, "cover": 7}[job.world], {job.epsilon: job.steps}, 1e-6
            ) == pytest.approx(job.total_epsilon, rel=1e-6)


def test_more_epsilon_earns_more() -> None:
    def reward(mechanism: str, total: float) -> float:
        lessons = 50 if mechanism == "noisy gradient" else 100
        run = OverTimeRun("digits", mechanism, total, 0.02, lessons, (0, 1, 2), 1500)
        return float(run.perform(None, lambda share, said: None)["rewards"].mean())

    low, high, unbounded = reward("noisy sums", 1.0), reward("noisy sums", 16.0), reward("no bound", 0.0)
    assert 0.1 < low < high - 0.1
    assert min(high, unbounded) > 0.5
    assert reward("noisy gradient", 16.0) > 0.2


def test_learners_without_a_bound_are_the_plain_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[int] = []
    learn = PlainBandits.learn

    def counted(self: PlainBandits, *lesson: np.ndarray) -> None:
        taught.append(len(lesson[1]))
        learn(self, *lesson)

    monkeypatch.setattr(PlainBandits, "learn", counted)
    OverTimeRun("digits", "no bound", 0.0, 0.02, 100, (0, 1), 50).perform(None, lambda share, said: None)
    assert taught == [2] * 50
