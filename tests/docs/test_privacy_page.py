"""The tables of docs/privacy.md are what the functions compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hiddenarm.privacy.actions import epsilon_total, exploration_for
from hiddenarm.privacy.gaussian import REPLACED, advantage, epsilon_for, mu_for, own_action_epsilon, tpr_at
from hiddenarm.privacy.ledger import VACUOUS_FROM, _bound

PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
DELTA = 1e-6


def rows_after(heading: str) -> list[list[str]]:
    """The rows of a table, which begins with this text."""
    lines = PAGE[PAGE.index(heading) :].splitlines()
    table = lines[: next(place for place, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [table[0], *table[2:]]]


def number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix(" %"))


def test_what_attacks_find() -> None:
    head, gaussian, generic = rows_after("| epsilon (delta = 1e-6)")
    for epsilon, by_mu, by_epsilon in zip(head[1:], gaussian[1:], generic[1:], strict=True):
        found = tpr_at(mu_for(float(epsilon), DELTA), 0.01)
        assert number(by_mu) == pytest.approx(100 * found, abs=0.0501)
        assert number(by_epsilon) == pytest.approx(
            100 * _bound("", float(epsilon), DELTA, False).true_positives, abs=0.0501
        )
    assert f"from an epsilon of {VACUOUS_FROM:.1f} on" in PAGE


def test_the_loss_of_actions() -> None:
    head, *rows = rows_after("| arms | epsilon | 1 action")
    counts = [1, *(int(number(cell)) for cell in head[3:])]
    for arms, epsilon, *losses in rows:
        for count, loss in zip(counts, losses, strict=True):
            exact = epsilon_total(int(arms), {float(epsilon): count}, DELTA)
            assert f"{number(loss):.4g}" == f"{exact:.4g}" or number(loss) == round(exact)
    explored = exploration_for(10, 60_000, 1.0, DELTA)
    assert f"{100 * explored:.4f} % of them would have to be explored" in PAGE


def test_the_loss_of_noisy_sums() -> None:
    _, *rows = rows_after("| total epsilon, row dropped")
    for epsilon, mu, replaced, found, most in rows:
        exact = mu_for(float(epsilon), DELTA)
        assert number(mu) == pytest.approx(exact, abs=1e-5)
        assert number(replaced) == pytest.approx(epsilon_for(REPLACED * exact, DELTA), abs=6e-4)
        assert number(found) == pytest.approx(tpr_at(exact, 0.01), abs=6e-5)
        assert number(most) == pytest.approx(advantage(exact), abs=6e-4)
    own = [own_action_epsilon(mu_for(1, DELTA), 10, explored, DELTA) for explored in (0.1, 0.02, 0.5)]
    assert "{:.3f} at epsilon 0.1, {:.3f} at 0.02, {:.3f} at 0.5".format(*own) in PAGE


def test_a_replaced_row_counts_one_and_a_half_times() -> None:
    """By search over pairs of rows in three dimensions, each sum with half of mu^2, in units of mu."""
    generator = np.random.default_rng(1)
    x, y = (generator.standard_normal((400_000, 3)) for _ in range(2))
    x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y))
    products = np.sum(x * y, axis=1)
    gram = (2 - 2 * products**2) / 2
    for signs in (-1, 1):  # r - 1/2 of both, in units of 1/2
        moment = np.sum((x - signs * y) ** 2, axis=1) / 2
        largest = float(np.sqrt((gram + moment).max()))
        assert largest <= REPLACED + 1e-12
        assert signs == 1 or largest == pytest.approx(REPLACED, abs=1e-6)
