"""The paper's attack in the frame of the other."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.research.attacks.measure import PaperScored, Plan, paper
from hiddenarm.research.attacks.paper import Outcomes, PaperAttack
from hiddenarm.research.data.load import load_pair
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.research.experiments.attack import attack

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def scored() -> PaperScored:
    training, held_out = load_pair("digits")
    assert isinstance(training, LabelWorld)
    assert isinstance(held_out, LabelWorld)
    plan = Plan(training, 200, 0.1, 400, KEY)
    made = PaperAttack(plan.design, held_out)
    return paper(plan, plan.portions(150), made)


def test_the_advantage_is_that_of_the_papers_rule(scored: PaperScored) -> None:
    outcomes = scored.outcomes
    assert len(outcomes.members) == 400
    rates = attack(outcomes.members.sum(axis=1), outcomes.others.sum(axis=1))
    assert scored.report()["advantage"] == pytest.approx(rates.advantage.mean(), abs=1e-12)


def test_it_finds_little_and_nothing_where_noise_does_not_count(scored: PaperScored) -> None:
    report = scored.report()
    assert 0 < report["advantage"] < 0.12
    assert abs(report["advantage_across_halves"]) < 0.03
    assert 0.01 < report["tpr_at_1_percent"] < 0.05
    assert "target" not in report


def test_every_example_counts_once(scored: PaperScored) -> None:
    evidence = scored.outcomes.evidence
    assert evidence.present.sum(axis=1) == pytest.approx(np.ones(400))
    assert evidence.absent.sum(axis=1) == pytest.approx(np.ones(400))


def test_an_arm_that_one_set_never_chooses_accuses_nobody() -> None:
    members = np.zeros((1, 2, 2, 2))
    members[..., 0, 1] = 5
    others = members.copy()
    others[..., 1, 0] = 5
    evidence = Outcomes(members, others).evidence
    assert evidence.scores[0].tolist() == [-np.inf, 0, -np.inf, -np.inf]
