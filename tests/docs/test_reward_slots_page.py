"""docs/reward-slots.md states what slots cost in reward, in plain learners on MNIST. To learn again what it states is a
part of `make soak`: a minute."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hiddenarm.bandit.plain import PlainBandits
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.ring.words import Floats

ROOT = Path(__file__).parents[2]
MNIST = ROOT.parent / "shared" / "data" / "mnist"
PAGE = (ROOT / "docs" / "reward-slots.md").read_text()
ORDERS, ARMS, SLOT, EPSILON = 8, 10, 100, 0.1


def table() -> list[list[str]]:
    lines = PAGE[PAGE.index("| decisions | rewards lost") :].splitlines()
    rows = lines[2 : next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip().replace(",", "") for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_divides_rewards_by_decisions() -> None:
    for steps, lost, of_a_decision, _ in table():
        mean, deviation = (float(number) for number in lost.split(" ± "))
        stated_mean, stated_deviation = (float(number) for number in of_a_decision.split(" ± "))
        rounding = 0.51 / float(steps) + 6e-5
        assert abs(stated_mean - mean / float(steps)) <= rounding
        assert abs(stated_deviation - deviation / float(steps)) <= rounding


def rewards_of_learners(world: LabelWorld, steps: int, slot: int) -> Floats:
    """Of each decision, in eight orders; the coins are the same with and without slots."""
    each = np.arange(ORDERS)
    generators = [np.random.default_rng([order, 3]) for order in range(ORDERS)]
    rows = np.stack([one.permutation(len(world.contexts))[:steps] for one in generators])
    explore = np.stack([one.random(steps) < EPSILON for one in generators])
    tags = np.stack([one.permuted(np.tile(np.arange(ARMS), (steps, 1)), axis=1) for one in generators])
    bandits, earned = PlainBandits(ORDERS, ARMS, world.features), np.zeros((ORDERS, steps))
    ended: list[tuple[Floats, NDArray[np.int64], Floats]] = []
    under_way: list[tuple[Floats, NDArray[np.int64], Floats]] = []
    for step in range(steps):
        contexts = world.contexts[rows[:, step]]
        arms = bandits.decide(contexts, explore[:, step], tags[:, step])
        earned[:, step] = world.labels[rows[each, step]] == arms
        under_way.append((contexts, arms, earned[:, step]))
        if not slot or (step + 1) % slot == 0:
            for lesson in ended if slot else under_way:
                bandits.learn(*lesson)
            ended, under_way = under_way, []
    return earned


@pytest.mark.skipif(not os.environ.get("HIDDENARM_SOAK"), reason="a part of `make soak`: a minute")
@pytest.mark.skipif(not MNIST.is_dir(), reason="needs MNIST beside the project")
def test_rewards_that_slots_lose_are_those_of_the_table() -> None:
    world = load_world("mnist", data_dir=MNIST)
    assert isinstance(world, LabelWorld)
    without, slotted = (rewards_of_learners(world, 60_000, slot) for slot in (0, SLOT))
    lost = (without - slotted).cumsum(axis=1)
    for steps, stated, _, most in table():
        found = lost[:, int(steps) - 1]
        mean, deviation = (float(number) for number in stated.split(" ± "))
        assert abs(found.mean() - mean) <= 0.51
        assert abs(found.std() - deviation) <= 0.51
        assert float(most) == pytest.approx(found.max() / float(steps), abs=6e-5)
