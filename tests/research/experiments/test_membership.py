"""Experiment 7: its runs against slow ones, and what it concludes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.material import Seeds
from hiddenarm.research.data.load import load_pair
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.research.experiments import attack as attack_module
from hiddenarm.research.experiments.attack import AttackedRun, attack
from hiddenarm.research.experiments.experiment import EPSILONS, Findings, Setting
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.learners import checkpoints_within
from hiddenarm.research.experiments.membership import DIGITS_TO_TRAIN, Membership
from hiddenarm.ring.words import Floats

TINY = Setting("tiny", "digits")
RUN = AttackedRun("digits", "plain", epsilon=0.3, seeds=(0, 5, 2), steps=120)


def silent(share: float, say: str) -> None:
    """No progress."""


def digits() -> tuple[LabelWorld, LabelWorld]:
    training, held_out = load_pair("digits")
    assert isinstance(training, LabelWorld)
    assert isinstance(held_out, LabelWorld)
    return training, held_out


def slow_outcomes(model: Floats, world: LabelWorld, steps: int, epsilon: float) -> Floats:
    """Example by example, arm by arm."""
    counts = np.zeros((2, 10, 2))
    for step in range(steps):
        scores = model @ world.context(step)
        best = np.flatnonzero(scores == scores.max())
        for arm in range(10):
            chance = epsilon / 10 + (1 - epsilon) * (arm in best) / len(best)
            counts[step % 2, arm, int(world.reward(step, arm))] += chance
    return counts


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> ResultStore:
    kept = ResultStore(tmp_path_factory.mktemp("runs"))
    for job in Membership().jobs(TINY):
        kept.keep(job, job.perform(None, silent), 1.0, "test")
    return kept


@pytest.fixture(scope="module")
def findings(kept: ResultStore) -> Findings:
    return Membership().conclude(TINY, kept)


def test_runs_are_those_of_a_slow_learner() -> None:
    result = RUN.perform(None, silent)
    training, held_out = digits()
    coins = audit_coins(Seeds(RUN.epoch_key), RUN.federation, 0, RUN.steps, len(RUN.seeds))
    checkpoints = checkpoints_within(RUN.steps)
    for replicate, seed in enumerate(RUN.seeds):
        world, others = training.reseeded(seed), held_out.reseeded(seed)
        bandit = PlainBandit(10, 20)
        for step in range(RUN.steps):
            arm = bandit.decide(world.context(step), *coins_at(coins, step, replicate))
            bandit.learn(world.context(step), arm, world.reward(step, arm))
            if step + 1 in checkpoints:
                at = checkpoints.index(step + 1), replicate
                assert result["members"][at] == pytest.approx(
                    slow_outcomes(bandit.weights, world, step + 1, RUN.epsilon)
                )
                assert result["others"][at] == pytest.approx(slow_outcomes(bandit.weights, others, 599, RUN.epsilon))


def test_outcomes_count_every_example_of_both_sets() -> None:
    result = RUN.perform(None, silent)
    sizes = np.array(checkpoints_within(RUN.steps))
    assert result["members"].sum(axis=(2, 3, 4)) == pytest.approx(np.repeat(sizes[:, None], 3, axis=1))
    assert result["others"].sum(axis=(2, 3, 4)) == pytest.approx(599)


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_private_models_are_attacked_as_their_twins_are(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins that have the coins of the same suite."""
    short = replace(RUN, steps=40, seeds=(3, 4), learner=suite)  # type: ignore[arg-type]
    private = short.perform(None, silent)
    monkeypatch.setattr(attack_module, "_Private", attack_module._Plain)
    plain = short.perform(None, silent)
    advantage = [
        attack(result["members"].sum(axis=2), result["others"].sum(axis=2)).advantage for result in (plain, private)
    ]
    assert np.abs(advantage[0] - advantage[1]).max() < 0.02


def test_a_learner_on_its_own_held_out_set_is_attacked_without_success() -> None:
    """Members and others are one set, so nothing tells them apart."""
    training, _ = digits()
    run = replace(RUN, steps=DIGITS_TO_TRAIN, seeds=(1,))
    result = run.attacked(training, training, silent)
    last = attack(result["members"][-1].sum(axis=1), result["others"][-1].sum(axis=1))
    assert last.advantage == pytest.approx(0, abs=1e-9)


def test_one_sweep_goes_through_the_training_digits() -> None:
    training, _ = digits()
    assert len(training.contexts) == DIGITS_TO_TRAIN
    for scale, data, steps in (("full", "mnist", 60_000), ("full", "digits", 1_198), ("tiny", "digits", 60)):
        jobs = Membership().jobs(Setting(scale, data))  # type: ignore[arg-type]
        assert {job.steps for job in jobs} == {steps}


@pytest.mark.parametrize(("scale", "runs"), [("full", 200), ("quick", 200), ("tiny", 4)])
def test_every_epsilon_has_all_its_runs_and_a_few_private_ones(scale: str, runs: int) -> None:
    jobs = Membership().jobs(Setting(scale, "digits"))  # type: ignore[arg-type]
    assert len(set(jobs)) == len(jobs)
    for epsilon in EPSILONS:
        own = [job for job in jobs if job.epsilon == epsilon]
        (private,) = (job for job in own if job.learner != "plain")
        assert private.learner == "fast"
        assert replace(private, learner="plain") in own
        many = [seed for job in own if job.learner == "plain" and job.seeds != private.seeds for seed in job.seeds]
        assert sorted(many) == list(range(runs))


def test_private_runs_are_of_the_suite_that_was_chosen() -> None:
    jobs = Membership().jobs(Setting("tiny", "digits", ("paper",)))
    assert {job.learner for job in jobs} == {"plain", "paper"}


def test_a_tiny_run_checks_nothing_and_says_what_it_is_of(findings: Findings) -> None:
    assert {claim.verdict for claim in findings.claims} == {"not checked"}
    assert "plain twin" in findings.remarks[0]
    assert "32 of 32" in findings.remarks[1]
    assert {picture.name for picture in findings.pictures} == {"membership", "membership-halves"}


def test_tables_hold_what_the_runs_gave(findings: Findings, kept: ResultStore) -> None:
    (points,) = (table for table in findings.tables if table.name == "membership")
    assert len(points.rows) == 2 * len(EPSILONS) * len(checkpoints_within(60))
    row = dict(zip(points.header, points.rows[0], strict=True))
    assert row["T"] == 50
    difference = row["true positives (%)"] - row["false positives (%)"]  # type: ignore[operator]
    assert row["advantage (%)"] == pytest.approx(difference, abs=1e-3)


GAPS = (0.06, 0.05, 0.04, 0.03, 0.015, 0.01, 0.004, -0.004, -0.005, -0.006, -0.007)
"""By how much members win more often, along training."""


def made_up(job: AttackedRun, gaps: Sequence[float], noise: float) -> dict[str, Floats]:
    """Rewards of 0.6 on the held-out set, and of more by the gaps on members, for every arm alike."""
    each = noise * np.resize([-1.0, 1.0], len(job.seeds))
    won = 0.6 + np.sign(gaps)[:, None] * (np.abs(gaps)[:, None] + each)
    members = np.stack([1 - won, won], axis=-1)[:, :, None, None] * np.ones((2, 10, 1))
    return {"members": members, "others": np.broadcast_to([0.4, 0.6], members.shape).copy()}


def verdicts(folder: Path, gaps: Sequence[float], noise: Callable[[float], float]) -> list[str]:
    """What becomes of the paper's four sentences, for both attacks."""
    setting, kept = Setting("full", "mnist"), ResultStore(folder)
    for job in Membership().jobs(setting):
        kept.keep(job, made_up(job, gaps, noise(job.epsilon)), 1.0, "test")
    return [claim.verdict for claim in Membership().conclude(setting, kept).claims]


def test_the_papers_sentences_hold_for_runs_like_the_papers(tmp_path: Path) -> None:
    assert verdicts(tmp_path, GAPS, lambda epsilon: 0.01 * epsilon) == ["holds"] * 8


def test_the_papers_sentences_differ_for_other_runs(tmp_path: Path) -> None:
    """Too much at first, never little enough, falling to the end, and no more spread for more exploration."""
    gaps = sorted((0.02 + abs(gap) for gap in GAPS), reverse=True)
    assert verdicts(tmp_path, gaps, lambda epsilon: 0.001) == ["differs"] * 8


def test_a_private_learner_whose_scores_leave_their_range_is_attacked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Lockstep):
        def decide(self, contexts: object) -> object:  # type: ignore[override]
            if self.decisions == 70:
                raise ScoreRangeError("a score is out of range")
            return super().decide(contexts)  # type: ignore[arg-type]

    monkeypatch.setattr(attack_module, "Lockstep", Failing)
    result = replace(RUN, learner="fast", seeds=(0,)).perform(None, silent)
    for name in ("members", "others"):
        assert np.isfinite(result[name]).all(axis=(1, 2, 3, 4)).tolist() == [True, False, False]
