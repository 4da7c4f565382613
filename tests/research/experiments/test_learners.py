"""A learner's run: private and plain side by side, the same whatever else runs with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.material import Seeds
from hiddenarm.research.experiments import learners
from hiddenarm.research.experiments.experiment import Suite
from hiddenarm.research.experiments.jobs import Arrays
from hiddenarm.research.experiments.learners import (
    BufferedCoins,
    ContextStream,
    LearnerRun,
    checkpoints_within,
    learner_runs,
    load_course,
)


def run(suite: Suite = "fast", **fields: object) -> Arrays:
    job = LearnerRun(**({"data": "digits", "suite": suite, "epsilon": 0.1, "seeds": (0, 1), "steps": 60} | fields))  # type: ignore[arg-type]
    return job.perform(None, lambda share, say: None)


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_private_and_plain_learner_choose_alike(suite: Suite) -> None:
    result = run(suite)
    assert result["agreed"].shape == (2, 60)
    assert result["agreed"].mean() > 0.99
    np.testing.assert_array_equal(result["rewards"], result["plain_rewards"])  # no tie that rounding decides
    assert result["weights"].shape == (2, 2, 10, 20)
    np.testing.assert_allclose(result["weights"], result["plain_weights"], atol=1e-3)
    assert result["steps_made"] == 60


def test_kernel_worlds_earn_by_chance() -> None:
    result = run(arms=12, arm_kind="kmeans", epsilon=0.0)
    assert 0 < result["rewards"].mean() < 1
    assert result["agreed"].all()


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_epsilons_share_their_coins(suite: Suite) -> None:
    """Explored steps of a small epsilon are explored under a larger one, so curves differ by epsilon alone."""
    jobs = [LearnerRun("digits", suite, epsilon, (0, 1), 60) for epsilon in (0.1, 0.5)]
    small, large = (audit_coins(Seeds(learners._epoch_key(job)), job.federation, 0, 60, replicates=2) for job in jobs)
    np.testing.assert_array_equal(small.tags, large.tags)
    assert 0 < small.explore.sum() < large.explore.sum()
    assert not (small.explore & ~large.explore).any()


def test_seeds_give_different_orders_and_the_same_rows_again() -> None:
    course = load_course("digits", 10, "classes", (3, 4), 1_797, None)
    assert (course.rows[0] != course.rows[1]).any()
    np.testing.assert_array_equal(np.sort(course.rows, axis=1), np.tile(np.arange(1_797), (2, 1)))


def test_a_course_earns_what_its_world_says() -> None:
    for kind, arms in (("classes", 10), ("kmeans", 7)):
        course = load_course("digits", arms, kind, (3, 4), 20, None)  # type: ignore[arg-type]
        chosen = np.array([2, 5])
        for step in range(20):
            worlds = [course.world.reseeded(seed) for seed in (3, 4)]
            expected = [world.reward(step, int(arm)) for world, arm in zip(worlds, chosen, strict=True)]
            np.testing.assert_array_equal(course.rewards(step, chosen), expected)
            np.testing.assert_array_equal(course.contexts(step), [world.context(step) for world in worlds])


def test_a_learner_whose_scores_leave_their_range_earns_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Lockstep):
        def decide(self, contexts: Any, eligible: Any = None) -> Any:
            if self.decisions == 25:
                raise ScoreRangeError("a score is out of range")
            return super().decide(contexts, eligible)

    monkeypatch.setattr(learners, "Lockstep", Failing)
    result = run()
    assert result["steps_made"] == 25
    assert not result["rewards"][:, 25:].any()
    assert not result["agreed"][:, 25:].any()
    assert result["plain_rewards"][:, 25:].any()


def test_experiments_with_fewer_runs_share_the_first_jobs() -> None:
    fields = {"data": "digits", "suite": "fast", "epsilon": 0.1, "steps": 5}
    many, few = learner_runs(12, **fields), learner_runs(5, **fields)
    assert [job.seeds for job in many] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (10, 11)]
    assert few == many[:1]


def test_checkpoints_end_with_the_run() -> None:
    assert checkpoints_within(60) == [50, 60]
    assert checkpoints_within(1_000) == [50, 100, 200, 500, 1_000]


def test_buffered_coins_are_those_of_the_source() -> None:
    rng = np.random.default_rng(5)
    explore, tags = rng.random((1_300, 2)) < 0.5, rng.permuted(np.tile(np.arange(4), (1_300, 2, 1)), axis=-1)

    def source(first: int, count: int) -> Coins:
        assert first + count <= 1_300
        return Coins(explore[first : first + count], tags[first : first + count])

    coins = BufferedCoins(source, 1_300)
    for step in range(1_300):
        got = coins.at(step)
        np.testing.assert_array_equal(got[0], explore[step])
        np.testing.assert_array_equal(got[1], tags[step])


def test_the_plain_rewards_are_those_of_a_single_plain_bandit() -> None:
    result = run(epsilon=0.0, seeds=(7,))
    course: ContextStream = load_course("digits", 10, "classes", (7,), 60, None)
    bandit = PlainBandit(10, 20)
    job = LearnerRun("digits", "fast", 0.0, (7,), 60)
    coins = learners.Pair(job.federation, learners._epoch_key(job), 1, 60, course)._coins
    for step in range(60):
        explore, tags = coins.at(step)
        (context,) = course.contexts(step)
        arm = bandit.decide(context, bool(explore[0]), tags[0])
        (reward,) = course.rewards(step, np.array([arm]))
        bandit.learn(context, arm, reward)
        assert result["plain_rewards"][0, step] == reward
