"""A world is a function of its seed: its order, its coins and so its rewards. Its features are split over parties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hiddenarm.errors import ConfigError, InputError
from hiddenarm.research.data.load import cluster_world
from hiddenarm.research.data.worlds import (
    KernelWorld,
    LabelWorld,
    SeededOrder,
    World,
    split_features,
    uniform,
    uniforms,
    unit_rows,
)


def label_world(seed: int = 3) -> LabelWorld:
    return cluster_world(arms=4, features=5, seed=seed, rows=50)


def kernel_world(seed: int = 3, sigma: float = 0.5) -> KernelWorld:
    rng = np.random.default_rng(9)
    contexts, centres = (unit_rows(rng.standard_normal((rows, 5))) for rows in (50, 4))
    return KernelWorld(name="test", arms=4, seed=seed, contexts=contexts, centres=centres, sigma=sigma)


@pytest.fixture(params=[label_world, kernel_world], ids=["label", "kernel"])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    return made


def test_every_pass_is_a_fresh_permutation() -> None:
    order = SeededOrder(50, seed=1)
    passes = order.rows(np.arange(200)).reshape(4, 50)
    assert all(sorted(visited) == list(range(50)) for visited in passes.tolist())
    assert len({tuple(visited) for visited in passes.tolist()}) == 4


def test_order_does_not_depend_on_what_was_asked_first() -> None:
    steps = np.array([149, 0, 50, 7, 149])
    rows = SeededOrder(50, seed=1).rows(steps)
    assert rows.tolist() == [SeededOrder(50, seed=1).row(int(step)) for step in steps]


def test_orders_of_other_seeds_differ() -> None:
    steps = np.arange(50)
    assert not np.array_equal(SeededOrder(50, 1).rows(steps), SeededOrder(50, 2).rows(steps))


def test_coins_are_uniform_and_uncorrelated() -> None:
    steps, arms = (grid.ravel() for grid in np.meshgrid(np.arange(20_000), np.arange(10), indexing="ij"))
    coins = uniforms(0, steps, arms)
    shares = np.histogram(coins, bins=20, range=(0.0, 1.0))[0] / coins.size
    np.testing.assert_allclose(shares, 0.05, atol=5 * np.sqrt(0.05 * 0.95 / coins.size))
    between_arms = np.corrcoef(coins.reshape(-1, 10).T) - np.eye(10)
    assert np.abs(between_arms).max() < 5 / np.sqrt(20_000)
    assert abs(np.corrcoef(coins, uniforms(1, steps, arms))[0, 1]) < 5 / np.sqrt(coins.size)


def test_one_coin_is_the_same_as_among_many() -> None:
    steps, arms = np.array([0, 5, 2**40]), np.array([3, 0, 1])
    alone = [uniform(2**62, int(step), int(arm)) for step, arm in zip(steps, arms, strict=True)]
    assert uniforms(2**62, steps, arms).tolist() == alone


def test_known_coin() -> None:
    """SplitMix64 from state 0 first gives 0xE220A8397B1DCDAF, its published vector."""
    from hiddenarm.research.data.worlds import _mix

    assert _mix(0) == 0xE220A8397B1DCDAF
    assert int(_mix(np.zeros(1, dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF


def test_rewards_are_zero_or_one_and_repeatable(world: World) -> None:
    steps, arms = np.arange(400), np.arange(400) % world.arms
    rewards = world.rewards(steps, arms)
    assert set(rewards.tolist()) == {0.0, 1.0}
    assert rewards.dtype == np.float64
    backwards = [world.reward(step, step % world.arms) for step in reversed(range(400))]
    assert rewards.tolist() == backwards[::-1]
    assert world.rewards([], []).shape == (0,)


def test_context_follows_the_order(world: World) -> None:
    assert np.array_equal(world.context(60), world.contexts[world.row(60)])
    assert world.features == 5


def test_a_replicate_keeps_the_contexts_and_changes_the_order(world: World) -> None:
    other = world.reseeded(8)
    assert other.contexts is world.contexts
    assert world.rows(range(50)).tolist() != other.rows(range(50)).tolist()
    assert other.reseeded(world.seed).rows(range(50)).tolist() == world.rows(range(50)).tolist()


def test_label_reward_is_the_label() -> None:
    world = label_world()
    for step in range(100):
        earned = [world.reward(step, arm) for arm in range(world.arms)]
        assert earned == [float(arm == world.labels[world.row(step)]) for arm in range(world.arms)]


def test_kernel_chances_are_the_papers() -> None:
    world = kernel_world(sigma=0.25)
    distance = np.sqrt(((world.centres[2] - world.contexts[7]) ** 2).sum())
    assert float(world.chances(7, 2)) == pytest.approx(np.exp(-2.0 * distance))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"sigma": 0.0}, "sigma"), ({"sigma": float("nan")}, "sigma"), ({"centres": np.ones((3, 5))}, "4 centres of 5")],
)
def test_a_kernel_that_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(kernel_world(), **settings)


def test_kernel_rewards_have_their_chances() -> None:
    world = kernel_world()
    steps = np.arange(40_000)
    arms = np.full_like(steps, 1)
    earned = world.rewards(steps, arms)
    chances = world.chances(world.rows(steps), arms)
    assert earned.mean() == pytest.approx(chances.mean(), abs=5 * 0.5 / np.sqrt(steps.size))
    assert np.cov(earned, chances)[0, 1] == pytest.approx(chances.var(), rel=0.15)


@pytest.mark.parametrize("arm", [-1, 4])
def test_an_arm_out_of_range_is_refused(world: World, arm: int) -> None:
    with pytest.raises(InputError, match="from 0 to 3"):
        world.reward(0, arm)
    with pytest.raises(InputError, match="from 0 to 3"):
        world.rewards([0, 1], [0, arm])


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match="seed"):
        kernel_world(seed=seed)


def test_unit_rows_guard_zeros() -> None:
    rows = unit_rows(np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(rows, [[1.0, 0.0], [0.6, 0.8]])


def test_repr_shows_no_data(world: World) -> None:
    assert "array" not in repr(world)


@pytest.mark.parametrize(
    ("features", "parties", "sizes"),
    [(20, 2, [10, 10]), (20, 3, [7, 7, 6]), (5, 5, [1] * 5), (7, 1, [7]), (11, 4, [3, 3, 3, 2])],
)
def test_features_go_to_the_parties_in_nearly_equal_slices(features: int, parties: int, sizes: list[int]) -> None:
    assert split_features(features, parties) == sizes


@pytest.mark.parametrize(("features", "parties"), [(2, 3), (0, 1), (4, 0), (4, -1)])
def test_each_party_needs_a_feature(features: int, parties: int) -> None:
    with pytest.raises(ConfigError):
        split_features(features, parties)
