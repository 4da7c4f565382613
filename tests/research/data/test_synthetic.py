"""The worlds that are drawn: sizes, chances, and what a uniform arm earns."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.research.data.synthetic import SYNTHETIC, cover_world, many_world


@pytest.mark.parametrize(("name", "arms", "uniform"), [("cover", 7, 0.143), ("many", 50, 0.199)])
def test_worlds_are_as_they_are_described(name: str, arms: int, uniform: float) -> None:
    world = SYNTHETIC[name]()
    assert (world.name, world.arms, world.contexts.shape) == (name, arms, (60_000, 20))
    assert np.allclose(np.linalg.norm(world.contexts, axis=1), 1)
    rng = np.random.default_rng(0)
    steps = np.arange(60_000)
    assert world.rewards(steps, rng.integers(arms, size=60_000)).mean() == pytest.approx(uniform, abs=0.012)
    chances = world.chances(steps[:100], np.zeros(100, np.int64))
    assert ((chances >= 0) & (chances <= 1)).all()
    assert world.reseeded(3).row(0) != world.row(0)


def test_a_world_is_drawn_alike_every_time() -> None:
    for make in (cover_world, many_world):
        assert np.array_equal(make().contexts, make().contexts)
        assert make().reward(5, 1) == make().reward(5, 1)


def test_the_best_arm_of_many_is_well_above_a_uniform_one() -> None:
    world = many_world()
    best = np.stack([world.chances(np.arange(2000), np.full(2000, arm)) for arm in range(50)]).max(axis=0)
    assert 0.35 < best.mean() < 0.6
