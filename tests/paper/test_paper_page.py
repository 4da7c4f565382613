"""The numbers in docs/paper-suite.md, computed again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.bandit.catalogue import program_texts
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.frames import HEADER
from hiddenarm.paper import rounds
from hiddenarm.paper.fixed_point import SQUARES
from hiddenarm.research.bench.session import make_federation
from hiddenarm.research.data.load import load_world
from hiddenarm.roles.messages import one_hot_bytes

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "paper-suite.md").read_text().split())
PERFORMANCE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text().split("### The paper's suite")[1]
STEPS = 1500


def says(text: str) -> bool:
    return text in PAGE


def test_rounds_of_the_operations() -> None:
    assert [rounds.carry_save(parties) for parties in (2, 3, 4, 5)] == [0, 1, 2, 3]
    assert says("0, 1, 2, 3 for N = 2, 3, 4, 5")
    assert [rounds.maxima(2, arms) - rounds.comparison(2) for arms in (10, 100)] == [4, 7]
    assert says("4 for 10 arms and 7 for 100")
    assert rounds.exponential() == 17
    assert says("| reciprocal, T iterations | `fixed_point.py` | | | 17 + 4 T |")
    assert rounds.ADDER == 7
    for parties in (2, 3, 5):
        assert rounds.arithmetic_to_binary(parties) == 8 + rounds.carry_save(parties)
        assert rounds.comparison(parties) == 9 + rounds.carry_save(parties)
    assert says("`comparison.py` | | | 9 + c(N) |")


def test_rounds_beside_the_papers() -> None:
    assert says(f"| addition | 0 | {rounds.ADDITION} |")
    assert says(f"| multiplication | 2 | {rounds.MULTIPLICATION} |")
    assert says(f"| reciprocal | 30 | {rounds.reciprocal(7)} | 1 + {SQUARES} x 2 for the exponential, 7 x 4 for seven")
    assert says(f"it is {rounds.reciprocal(3)} here")
    assert says(f"| argmax | O(N + log2 A) | {rounds.argmax(2, 100)} | 2 (9 + 7) + 1 |")


def test_rounds_of_a_step() -> None:
    assert says(f"argmax {rounds.argmax(2, 10)} | {rounds.decide(2, 10)} |")
    assert says(f"the choice o 1 | {rounds.learn(7)} |")


def test_what_a_step_sends() -> None:
    """The tables of the paper's suite in docs/performance.md."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ([\d,]+) \|$", PERFORMANCE, re.MULTILINE)
    assert len(rows) == 7
    for parties, arms, decide, learn, sent in ([int(cell.replace(",", "")) for cell in row] for row in rows):
        assert (decide, learn) == (rounds.decide(parties, arms), rounds.learn(7))
        assert sent == bytes_sent(parties, arms)
    for name, count in (("addition", 0), ("multiplication", 2), ("reciprocal", 45), ("comparison", 9)):
        assert f"| {name} | {count} |" in PERFORMANCE
    for size in (10, 100):
        assert f"| argmax of {size} | {rounds.argmax(2, size)} |" in PERFORMANCE


def bytes_sent(parties: int, arms: int) -> int:
    """The most that a party sends in a step: all rounds to all others, its one-hot, its notices of the lesson."""
    federation = make_federation(parties, arms, 20, "paper")
    texts = program_texts(federation)
    layouts = [layout_of(text, parties, 1) for text in texts.values()]
    headers = HEADER.size * sum(layout.rounds for layout in layouts)
    notices = [2, *[1] * (parties - 1)]
    return max(
        (sum(layout.bytes_to_each_peer(party) for layout in layouts) + headers) * (parties - 1)
        + HEADER.size * (1 + notices[party])
        + one_hot_bytes(1, arms)
        for party in range(parties)
    )


def divided_for_one_arm(inverse: np.ndarray, x: np.ndarray, reward: float) -> float:
    """The sum of the magnitudes of all that is divided to learn an interaction, of the arm that was pulled."""
    u = inverse @ x
    q = float(x @ u)
    denominator = 1 + q
    power, found = 1 + (0.5 - denominator) / 2**SQUARES, 0.0
    total = np.abs(u).sum() + q + np.abs(np.outer(u, u)).sum() * (1 + 1 / denominator) + reward * np.abs(x).sum()
    for _ in range(SQUARES):
        power = power**2
        total += power
    found = 3 * power + 0.003
    for _ in range(7):
        total += found**2 + denominator * found**2
        found = 2 * found - denominator * found**2
    return float(total)


@pytest.fixture(scope="module")
def divided() -> float:
    """The same for a step, on average over a run on the digits."""
    world = load_world("digits", arms=10, features=20, steps=STEPS)
    twin, totals = PlainBandit(10, 20), []
    explore = np.random.default_rng(0)
    for step in range(STEPS):
        x = world.context(step)
        arm = twin.decide(x, bool(explore.random() < 0.1), explore.permutation(10))
        reward = world.reward(step, arm)
        totals.append(divided_for_one_arm(twin.inverses[arm], x, reward))
        twin.learn(x, arm, reward)
    return float(np.mean(totals))


def test_how_many_steps_it_takes_for_a_division_to_fail(divided: float) -> None:
    assert says(f"magnitudes add up to about {round(divided)} per step")
    every = {bits: 2.0 ** (64 - 2 * bits) / divided for bits in (20, 22, 24, 28)}
    rounded = [f"{float(f'{every[bits]:.1g}'):,.0f}" for bits in (20, 22, 24, 28)]
    assert says("every {} steps at 20 bits, {} at 22, {} at 24 and {} at 28".format(*rounded))


def test_how_often_one_product_fails() -> None:
    once = [f"{2 ** (64 - 2 * bits):,}" for bits in (20, 24, 28)]
    assert says("once in 2^(64 - 2 L) times: in {} at 20 bits, in {} at 24 and in {} at 28".format(*once))
