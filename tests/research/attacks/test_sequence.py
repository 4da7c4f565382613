"""The attack on the sequence of arms: against a slow replay, its calibration, and what it is to find."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest

from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.mechanisms import ActionBudget
from hiddenarm.research.attacks.evidence import calibration
from hiddenarm.research.attacks.measure import Plan, Scored, ledger, sequence
from hiddenarm.research.attacks.sequence import SequenceAttack
from hiddenarm.research.attacks.trials import Design, Target, Trials
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.worlds import LabelWorld

KEY = bytes(range(32))
TARGETS: tuple[Target, ...] = ("drop", "same", "any")
every_target = pytest.mark.parametrize("target", TARGETS)


@pytest.fixture(scope="module")
def digits() -> LabelWorld:
    world = load_world("digits")
    assert isinstance(world, LabelWorld)
    return world


def design(world: LabelWorld, target: Target = "drop", trials: int = 8, **numbers: float) -> Design:
    return Design(world, target, **{"steps": 60, "epsilon": 0.3, **numbers}, trials=trials)  # type: ignore[arg-type]


def attacked(plan: Plan) -> Scored:
    attack = plan.attack
    return sequence(plan, plan.portions(attack.at_a_time), attack)


class Adversary:
    """One replay of one trial, by the plain twin: the probability of each arm that was seen."""

    def __init__(self, design: Design, trials: Trials, trial: int, present: bool) -> None:
        self.design, self.present = design, present
        self.rows = trials.rows[trial].copy()
        self.place = int(trials.place[trial])
        if not present and design.target != "drop":
            self.rows[self.place] = trials.other[trial]
        self.bandit = PlainBandit(design.world.arms, design.world.features)

    def best(self, step: int) -> np.ndarray:
        scores = self.bandit.scores(self.design.world.contexts[self.rows[step]])
        return np.asarray(scores == scores.max())

    def chance(self, step: int, arm: int) -> float:
        best, epsilon = self.best(step), self.design.epsilon
        return float(epsilon / len(best) + (1 - epsilon) * best[arm] / best.sum())

    def learn(self, step: int, arm: int) -> None:
        if step == self.place and not self.present and self.design.target == "drop":
            return
        world, row = self.design.world, self.rows[step]
        self.bandit.learn(world.contexts[row], arm, float(world.labels[row] == arm))


@every_target
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_scores_are_those_of_a_slow_replay(digits: LabelWorld, target: Target, epsilon: float) -> None:
    made = design(digits, target, 32, epsilon=epsilon)
    (trials,) = made.portions(KEY, 32)
    scores = SequenceAttack(made).scores(trials)
    for trial in range(32):
        worlds = [Adversary(made, trials, trial, present) for present in (False, True)]
        ratios = []
        for step in range(made.steps):
            truth = worlds[trial % 2]
            allowed = np.flatnonzero(truth.best(step) | trials.coins.explore[trial, step])
            arm = int(allowed[int(trials.coins.picks[trial, step] * len(allowed))])
            ratios.append(log(worlds[1].chance(step, arm) / worlds[0].chance(step, arm)))
            for world in worlds:
                world.learn(step, arm)
        assert scores.whole[trial] == pytest.approx(sum(ratios), abs=1e-9)
        assert scores.own_action[trial] == pytest.approx(ratios[int(trials.place[trial])], abs=1e-9)
    assert np.count_nonzero(scores.whole) > 3
    assert bool(np.count_nonzero(scores.own_action)) == (target != "drop")


def test_scores_do_not_depend_on_how_many_trials_advance_together(digits: LabelWorld) -> None:
    made = design(digits, "any", 40)
    attack = SequenceAttack(made)
    by_size = [np.concatenate([attack.scores(trials).whole for trials in made.portions(KEY, size)]) for size in (7, 40)]
    assert by_size[0] == pytest.approx(by_size[1], abs=1e-9)


def test_another_row_of_the_same_class_is_another_row(digits: LabelWorld) -> None:
    made = design(digits, "same", 2000)
    (trials,) = made.portions(KEY, 2000)
    candidates = trials.rows[np.arange(2000), trials.place]
    assert np.array_equal(digits.labels[candidates], digits.labels[trials.other])
    assert not np.any(candidates == trials.other)
    assert len(np.unique(trials.other)) > 1000
    assert trials.place.min() == 0
    assert trials.place.max() == made.steps - 1


@every_target
def test_arms_are_explored_as_often_as_epsilon_says(digits: LabelWorld, target: Target) -> None:
    made = design(digits, target, 400)
    (trials,) = made.portions(KEY, 400)
    assert trials.coins.explore.mean() == pytest.approx(0.3, abs=4 * (0.21 / trials.coins.explore.size) ** 0.5)


@every_target
def test_scores_are_calibrated(digits: LabelWorld, target: Target) -> None:
    scored = attacked(Plan(digits, 60, 0.5, 20_000, KEY, target))
    for limit in (1.0, 3.0, 5.0):
        assert abs(calibration(scored.whole, scored.present, limit).deviations) < 4


def test_an_adversary_who_knows_how_ties_were_broken_is_not_calibrated(
    digits: LabelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trap: one of several best arms in place of all of them."""
    import hiddenarm.research.attacks.sequence as module

    ratio = module.log_ratio
    monkeypatch.setattr(
        module,
        "log_ratio",
        lambda one, other, arms, epsilon: ratio(
            one & (one.cumsum(axis=-1) == 1), other & (other.cumsum(axis=-1) == 1), arms, epsilon
        ),
    )
    scored = attacked(Plan(digits, 60, 0.5, 20_000, KEY, "any"))
    assert abs(calibration(scored.whole, scored.present, 5.0).deviations) > 4


def test_dropped_rows_of_digits_are_found(digits: LabelWorld) -> None:
    hits, advantage = attacked(Plan(digits, 200, 0.1, 4000, KEY)).rates
    assert hits.value == pytest.approx(0.43, abs=0.05)
    assert advantage.value == pytest.approx(0.42, abs=0.05)
    assert 0.03 < hits.high - hits.low < 0.06


def test_the_bound_on_one_action_is_none_on_the_sequence(digits: LabelWorld) -> None:
    plan = Plan(digits, 200, 0.5, 8000, KEY, "any", position=20)
    report = attacked(plan).audit()
    assert report["one_action"] == pytest.approx(log(11))
    assert report["lower_bound_from_own_action"] < report["one_action"]
    assert report["one_action"] < report["lower_bound"] < report["ledger"]
    assert report["ledger"] == pytest.approx(301, abs=3)


@pytest.mark.parametrize(("epsilon", "total"), [(0.1, 803), (0.3, 497), (0.5, 301), (0.9, 37.8)])
def test_the_ledger_counts_actions_from_the_row_on(digits: LabelWorld, epsilon: float, total: float) -> None:
    assert ledger(Plan(digits, 200, epsilon, 8, KEY, "any", position=20)) == pytest.approx(total, rel=0.01)
    dropped = ledger(Plan(digits, 200, epsilon, 8, KEY, "drop", position=20))
    assert dropped < ledger(Plan(digits, 200, epsilon, 8, KEY, "any", position=20))


def test_without_exploration_a_single_arm_can_tell_for_sure(digits: LabelWorld) -> None:
    scored = attacked(Plan(digits, 60, 0.0, 400, KEY, "any"))
    assert np.any(scored.whole == inf)
    assert np.all(scored.whole[~scored.present] < inf)
    report = scored.audit()
    assert report["ledger"] is None
    assert report["one_action"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 1.5}, "--epsilon is a probability"),
        ({"trials": 6}, "--trials must be a multiple of 4"),
        ({"steps": 1797}, "--steps must lie in 1..1796"),
        ({"position": 60}, "--position must lie in 0..59"),
        ({"privacy": ActionBudget(1.0)}, "does not change what it tells"),
    ],
)
def test_impossible_trials_are_refused(digits: LabelWorld, changes: dict[str, object], message: str) -> None:
    numbers: dict[str, object] = {"steps": 60, "epsilon": 0.1, "trials": 8, "key": KEY, **changes}
    with pytest.raises(ConfigError, match=message):
        Plan(digits, **numbers)  # type: ignore[arg-type]
