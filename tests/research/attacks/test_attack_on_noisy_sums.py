"""The emulated mechanism of noisy sums, and the best attack on it."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.correlated import correlation
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisySums
from hiddenarm.research.attacks.evidence import calibration
from hiddenarm.research.attacks.measure import Plan, Scored, ledger, sequence
from hiddenarm.research.attacks.noisy_sums import NoisyModels, NormalNumbers, Sums, intervals
from hiddenarm.research.attacks.trials import Target
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import LabelWorld

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def digits() -> LabelWorld:
    world = load_world("digits", features=8)
    assert isinstance(world, LabelWorld)
    return world


def attacked(
    world: LabelWorld,
    total: float,
    target: Target = "drop",
    trials: int = 4000,
    steps: int = 120,
    correlated: int = 0,
    position: int | None = None,
) -> Scored:
    privacy = NoisySums(total, first_refresh=60, correlated=correlated)
    plan = Plan(world, steps, 0.1, trials, KEY, target, position, privacy=privacy)
    attack = plan.attack
    return sequence(plan, plan.portions(attack.at_a_time), attack)


def test_the_ratio_of_a_dropped_row_is_that_of_two_gaussians(digits: LabelWorld) -> None:
    """Mean mu^2 / 2 and deviation mu in either world, whatever the learner did."""
    scored = attacked(digits, 1.0, trials=8000)
    mu = NoisySums(1.0).mu
    for present, sign in ((True, 1), (False, -1)):
        scores = scored.whole[scored.present == present]
        assert scores.mean() == pytest.approx(sign * mu**2 / 2, abs=4 * mu / len(scores) ** 0.5)
        assert scores.std() == pytest.approx(mu, rel=4 / (2 * len(scores)) ** 0.5)


@pytest.mark.parametrize("position", [10, 70, 90])
def test_with_correlated_noise_the_ratio_is_that_of_all_leaves_that_a_row_moves(
    digits: LabelWorld, position: int
) -> None:
    """Refreshes after 60, 78 and 101 rows, and blocks of 2 and 3: a row tells of its own leaf and of all later ones of
    its block."""
    for leaves in (2, 3):
        scored = attacked(digits, 4.0, trials=6000, correlated=leaves, position=position)
        refresh = 1 + (position >= 60) + (position >= 78)
        block, at = correlation(leaves).place(refresh)
        last = min(leaves, 3 - block * leaves)
        strategy, widths = correlation(leaves).strategy, np.array(correlation(leaves).widths)
        moved = float(np.linalg.norm(strategy[at - 1 : last, at - 1] / widths[at - 1 : last]))
        assert 0 < moved <= 1 + 1e-12
        mu = NoisySums(4.0).mu * moved
        for present, sign in ((True, 1), (False, -1)):
            scores = scored.whole[scored.present == present]
            assert scores.mean() == pytest.approx(sign * mu**2 / 2, abs=4 * mu / len(scores) ** 0.5)
            assert scores.std() == pytest.approx(mu, rel=4 / (2 * len(scores)) ** 0.5)


@pytest.mark.parametrize(("total", "correlated"), [(1.0, 0), (8.0, 0), (8.0, 3)])
def test_no_attack_exceeds_what_is_proven(digits: LabelWorld, total: float, correlated: int) -> None:
    scored = attacked(digits, total, correlated=correlated)
    report = scored.report()
    hits, advantage = scored.rates
    assert report["refreshes"] == 3
    assert hits.low <= report["largest_tpr_at_1_percent"]
    assert hits.high >= report["largest_tpr_at_1_percent"]
    assert advantage.low <= report["largest_advantage"] <= advantage.high
    assert report["largest_tpr_at_1_percent"] == pytest.approx({1.0: 0.0183, 8.0: 0.2134}[total], abs=1e-4)


@pytest.mark.parametrize("correlated", [0, 2, 3])
@pytest.mark.parametrize("target", ["drop", "same", "any"])
def test_scores_are_calibrated_and_bounds_below_the_ledger(digits: LabelWorld, target: Target, correlated: int) -> None:
    scored = attacked(digits, 4.0, target, trials=8000, correlated=correlated)
    for limit in (0.5, 2.0, 4.0):
        assert abs(calibration(scored.whole, scored.present, limit).deviations) < 4
    report = scored.audit()
    assert 0 < report["lower_bound"] < report["ledger"]


def test_rows_after_the_last_refresh_are_not_candidates(digits: LabelWorld) -> None:
    plan = Plan(digits, 200, 0.1, 400, KEY, privacy=NoisySums(1.0, first_refresh=60))
    assert max(int(trials.place.max()) for trials in plan.portions(400)) < 171
    assert plan.refreshes == 5


def test_before_the_first_refresh_nothing_is_told(digits: LabelWorld) -> None:
    plan = Plan(digits, 50, 0.1, 400, KEY, "any", privacy=NoisySums(1.0, first_refresh=60))
    scored = sequence(plan, plan.portions(400), plan.attack)
    assert not scored.whole.any()
    assert scored.report()["refreshes"] == 0
    assert ledger(Plan(digits, 50, 0.1, 8, KEY, privacy=NoisySums(1.0, first_refresh=60))) == 0


def test_the_noisy_gradient_is_refused_by_name(digits: LabelWorld) -> None:
    with pytest.raises(ConfigError, match="of noisy sums, not of noisy-gradient"):
        Plan(digits, 50, 0.1, 8, KEY, privacy=NoisyGradient(1.0))


def test_intervals_end_at_refreshes() -> None:
    mechanism = NoisySums(1.0)
    assert list(intervals(mechanism, 700)) == [(range(500), True), (range(500, 650), True), (range(650, 700), False)]
    assert list(intervals(mechanism, 500)) == [(range(500), True)]


def test_sums_are_those_of_the_lessons_that_count() -> None:
    rng = np.random.default_rng(1)
    contexts, arms = rng.standard_normal((2, 5, 3)), rng.integers(2, size=(2, 5))
    rewards, counts = rng.integers(2, size=(2, 5)).astype(float), rng.random((2, 5)) < 0.7
    sums = Sums.of_lessons(contexts, arms, rewards, counts, 2)
    for learner in range(2):
        for arm in range(2):
            own = contexts[learner][counts[learner] & (arms[learner] == arm)]
            earned = rewards[learner][counts[learner] & (arms[learner] == arm)]
            assert sums.gram[learner, arm] == pytest.approx(own.T @ own)
            assert sums.moment[learner, arm] == pytest.approx((earned - 0.5) @ own)


def test_models_are_solved_from_noisy_sums_alone() -> None:
    """Noise has the variances that the mechanism asks for, adds up over refreshes, and is in the released sums."""
    mechanism = NoisySums(1.0)
    models = NoisyModels(4000, 1, 3, mechanism)
    normals = NormalNumbers(KEY, models.normals)
    nothing = Sums(np.zeros((4000, 1, 3, 3)), np.zeros((4000, 1, 3)))
    first = models.refresh(nothing, normals.at(0, 4000))
    second = models.refresh(nothing, normals.at(4000, 4000))
    variance = mechanism.sigma_gram(1.0) ** 2
    assert first.gram[:, 0, 0, 0].var() == pytest.approx(variance, rel=0.1)
    assert first.gram[:, 0, 0, 1].var() == pytest.approx(variance / 2, rel=0.1)
    assert np.array_equal(first.gram, first.gram.transpose(0, 1, 3, 2))
    assert first.moment[:, 0, 0].var() == pytest.approx(mechanism.sigma_moment(1.0) ** 2, rel=0.1)
    together = first.gram[:, 0] + second.gram[:, 0] + mechanism.shift(2, 1.0, 1.0, 3, 1) * np.eye(3)
    solved = np.linalg.solve(together, (first.moment + second.moment)[:, 0, :, None])[..., 0]
    assert models.weights[:, 0] == pytest.approx(solved)


def test_normal_numbers_are_normal() -> None:
    numbers = NormalNumbers(KEY, 7).at(0, 40_000)
    assert numbers.shape == (40_000, 7)
    assert numbers.mean() == pytest.approx(0, abs=0.01)
    assert numbers.var() == pytest.approx(1, abs=0.02)
    assert (numbers**4).mean() == pytest.approx(3, abs=0.1)
    assert np.abs(np.corrcoef(numbers.T) - np.eye(7)).max() < 0.03
