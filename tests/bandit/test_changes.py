"""A federation that changes while its model lives: after each operation the model is that of the plain twin after the
same one. What cannot change is refused by name, and nothing has changed then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hiddenarm import LocalFederation
from hiddenarm.bandit.changes import changed_federation, check_change, refused_changes
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import coins_at
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.policy import Policy
from hiddenarm.bandit.state import StateArray, padded_arms
from hiddenarm.errors import ConfigError, InputError
from hiddenarm.privacy.actions import epsilon_total
from hiddenarm.privacy.ledger import COIN_UNITS
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums
from hiddenarm.ring.words import Floats

FEATURES = [2, 1]
STEPS = 25
UNIT = 2.0**-20
"""Of weights. Lessons are exact to a few units each."""


class Together:
    """A federation and its plain twin, which gets the same operations, contexts, arms and rewards."""

    def __init__(self, policy: Policy | None = None, suite: str = "fast") -> None:
        self.fed = LocalFederation(
            arms=["beach", "city", "sea"],
            features=FEATURES,
            epsilon=None if policy else 0.2,
            policy=policy,
            seed=3,
            suite=suite,
        )
        self.twin = self.fed.federation.policy.twin(self.fed.federation)
        self.random = np.random.default_rng(1)
        self.waiting: list[tuple[str, Floats, int]] = []
        self.chosen: list[int] = []
        self.lessons = 0

    def decide(self) -> None:
        context = self.random.uniform(-0.5, 0.5, 3)
        step = self.fed._lockstep.decisions
        decision = self.fed.decide(np.split(context, [2]))
        explore, tags = coins_at(self.fed._lockstep.coins(step, 1), 0)
        eligible = np.ones(self.fed.federation.arms, np.bool_)
        eligible[list(self.fed.federation.retired)] = False
        if explore:
            assert decision.arm == self.twin.decide(context, True, tags, eligible=eligible)
        assert decision.arm_name == self.fed.arm_names[decision.arm]
        self.chosen.append(decision.arm)
        self.waiting.append((decision.id, context, decision.arm))

    def reward(self) -> None:
        identifier, context, arm = self.waiting.pop(0)
        reward = float(self.random.random() < 0.3 + 0.2 * arm)
        self.fed.reward(identifier, reward)
        self.twin.learn(context, arm, reward)
        self.lessons += 1

    def steps(self, count: int = STEPS) -> None:
        """Rewards come late: some decisions always wait."""
        for _ in range(count):
            self.decide()
            if len(self.waiting) > 3:
                self.reward()

    def check(self) -> None:
        _, weights = self.fed._lockstep.reveal_model()
        assert weights[0].shape == self.twin.weights.shape
        error = np.abs(weights[0] - self.twin.weights).max()
        assert error <= 8 * UNIT * (self.lessons + 1), error / UNIT


def test_an_added_arm_begins_at_the_prior_and_is_learned_like_the_twins() -> None:
    both = Together()
    both.steps()
    assert both.fed.add_arm("mountains") == 3
    both.twin.add_arm()
    both.check()
    inverses, weights = both.fed._lockstep.reveal_model()
    assert not weights[0, 3].any()
    np.testing.assert_array_equal(inverses[0, 3], [1, 0, 0, 1, 0, 1])
    both.steps(60)
    both.check()
    assert 3 in both.chosen
    assert both.fed.arm_names == ("beach", "city", "sea", "mountains")


def test_a_retired_arm_is_never_chosen_again_and_learns_what_is_pending() -> None:
    both = Together()
    both.steps()
    both.steps(5)
    arm = both.waiting[-1][2]
    both.fed.retire_arm(both.fed.arm_names[arm])
    before = both.twin.weights[arm].copy()
    made = len(both.chosen)
    both.steps(40)
    assert arm not in both.chosen[made:]
    assert (both.twin.weights[arm] != before).any(), "its pending reward was learned"
    both.check()


def test_epsilon_changes_and_the_model_stays() -> None:
    both = Together()
    both.steps()
    weights = both.fed._lockstep.reveal_model()[1]
    both.fed.change(epsilon=1.0)
    np.testing.assert_array_equal(both.fed._lockstep.reveal_model()[1], weights)
    both.steps()
    both.check()
    assert both.fed.ledger.decisions == {round(0.2 * COIN_UNITS): STEPS, COIN_UNITS: STEPS}


@pytest.mark.parametrize("policy", [EpsilonSchedule(initial=0.5, decay=100), Bonus(alpha=0.5, epsilon=0.1)])
def test_another_policy_goes_on_with_the_model(policy: Policy) -> None:
    both = Together()
    both.steps()
    both.fed.change(policy=policy)
    both.steps()
    both.check()


@pytest.mark.parametrize("policy", [None, Bonus(alpha=0.5, epsilon=0.1)])
def test_all_changes_one_after_another_also_through_a_file(policy: Policy | None, tmp_path: Any) -> None:
    both = Together(policy)
    for change in range(3):
        both.steps(10)
        both.fed.add_arm(f"new {change}")
        both.twin.add_arm()
        both.fed.save(tmp_path / "federation")
        both.fed = LocalFederation.load(tmp_path / "federation")
        both.steps(10)
        both.fed.retire_arm(change)
        both.check()
    made = len(both.chosen)
    both.steps(30)
    both.check()
    assert set(both.chosen[made:]) <= {3, 4, 5}
    assert "retired=[0, 1, 2]" in repr(both.fed)


def test_an_arm_is_added_beyond_those_that_are_compared_pair_by_pair() -> None:
    """The decisions that wait were answered in another way than those to come."""
    fed = LocalFederation(arms=48, features=[1, 1], epsilon=0.5, seed=1)
    waiting = [fed.decide([[0.5], [0.5]]) for _ in range(3)]
    assert fed.add_arm() == 48
    waiting.append(fed.decide([[0.5], [0.5]], eligible=[48]))
    twin = fed.federation.policy.twin(fed.federation)
    for decision in waiting:
        fed.reward(decision.id, 1.0)
        twin.learn(np.array([0.5, 0.5]), decision.arm, 1.0)
    np.testing.assert_allclose(fed._lockstep.reveal_model()[1][0], twin.weights, atol=16 * UNIT)


def test_what_was_learned_before_an_arm_was_added_is_unlearned_after_it() -> None:
    both = Together()
    both.decide()
    identifier, context, arm = both.waiting[0]
    both.fed.reward(identifier, 1.0)
    both.waiting.clear()
    both.steps(12)
    both.fed.add_arm("mountains")
    both.twin.add_arm()
    both.steps(6)
    both.fed.unlearn(identifier)
    both.check()  # the twin has never learned it
    assert both.fed.decide(np.split(context, [2]), eligible=[arm]).arm == arm


def test_the_papers_suite_adds_arms_and_cannot_retire_any() -> None:
    both = Together(suite="paper")
    both.steps(6)
    both.fed.add_arm("mountains")
    both.twin.add_arm()
    _, weights = both.fed._lockstep.reveal_model()
    np.testing.assert_allclose(weights[0], both.twin.weights, atol=0.02)
    with pytest.raises(ConfigError, match="suite paper takes no eligible arms, so none can be retired"):
        both.fed.retire_arm("beach")


def test_eligible_arms_are_those_that_are_asked_for_and_not_retired() -> None:
    fed = LocalFederation(arms=4, features=[1, 1], epsilon=1.0)
    fed.retire_arm(2)
    chosen = {fed.decide([[0.5], [0.5]], eligible=[1, 2, 3]).arm for _ in range(60)}
    assert chosen == {1, 3}
    with pytest.raises(InputError, match="all arms that are named as eligible are retired"):
        fed.decide([[0.5], [0.5]], eligible=[2])


SMALL = Federation(3, (2, 1), epsilon=0.1, max_interactions=20_000, retired=(1,))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": 2}, "arms cannot fall, from 3 to 2: what was learned of an arm would be lost; list it under `ret"),
        ({"features": (2, 2)}, "features cannot change"),
        ({"norms": (1.0, 0.5)}, "norms cannot change"),
        ({"ridge": 2.0}, "ridge cannot change, from 1.0 to 2.0"),
        ({"fraction_bits": 19}, "fraction_bits cannot change"),
        ({"suite": "paper"}, "suite cannot change"),
        ({"repair_every": 500}, "repair_every cannot change"),
        ({"reciprocal_bits": 7}, "reciprocal_bits cannot change"),
        ({"reward_slot": 60}, "reward_slot cannot change, from none to 60"),
        ({"privacy": NoisySums(1.0)}, "privacy cannot change"),
        ({"max_interactions": 10_000}, "max_interactions cannot fall, from 20,000 to 10,000"),
        ({"max_batch": 8}, "max_batch cannot fall"),
        ({"retired": ()}, "retired cannot lose arm 1"),
    ],
)
def test_what_cannot_change_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    fast = {"max_interactions": 20_000} if changes.get("suite") != "paper" else {}
    retired = {"retired": (1,)} if fast else {}
    after = Federation(**{"arms": 3, "features": (2, 1), "epsilon": 0.1, **fast, **retired, **changes})
    with pytest.raises(ConfigError) as raised:
        check_change(SMALL, after)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [{"arms": 9}, {"retired": (0, 1)}, {"max_batch": 512}, {"max_interactions": 30_000}, {"policy": Bonus(0.1, 0.2)}],
)
def test_what_can_change(changes: dict[str, Any]) -> None:
    assert not refused_changes(SMALL.terms, changed_federation(SMALL, **changes).terms)


def test_a_bound_over_time_is_not_undermined() -> None:
    budget = Federation(3, (1, 1), epsilon=0.5, privacy=ActionBudget(20.0))
    with pytest.raises(ConfigError, match=r"epsilon cannot change, from 0\.5 to 0\.9, with privacy action-budget"):
        changed_federation(budget, policy=type(budget.policy)(0.9))  # type: ignore[call-arg]
    grown = changed_federation(budget, arms=4)
    assert grown.budget is not None
    assert budget.budget is not None
    assert grown.budget.decisions <= budget.budget.decisions, "earlier decisions count as among all arms"
    noisy = Federation(3, (1, 1), epsilon=0.5, privacy=NoisySums(1.0))
    with pytest.raises(ConfigError, match="arms cannot grow, from 3 to 4, with privacy noisy-sums"):
        changed_federation(noisy, arms=4)
    changed_federation(noisy, retired=(1,))


def test_to_charge_earlier_decisions_with_more_arms_is_never_too_little() -> None:
    for chance, count in ((0.05, 1), (0.3, 40), (0.9, 500)):
        losses = [epsilon_total(arms, {chance: count}, 1e-6) for arms in (2, 3, 4, 8, 30)]
        assert losses == sorted(losses)


def test_a_refused_change_leaves_everything_as_it_was() -> None:
    both = Together()
    both.steps(6)
    for refused in (
        lambda: both.fed.change(max_batch=1),
        lambda: both.fed.change(max_interactions=10**9),
        lambda: both.fed.add_arm("city"),
        lambda: both.fed.add_arm(),
    ):
        with pytest.raises(ConfigError):
            refused()
    with pytest.raises(InputError, match="there is no arm 'hills'"):
        both.fed.retire_arm("hills")
    both.steps(6)
    both.check()
    assert both.fed.federation.arms == 3


@pytest.mark.parametrize("retired", [(3,), (-1,), (0, 0), (0, 1, 2), (True,), "0", (0.0,)])
def test_retired_must_be_some_arms(retired: Any) -> None:
    with pytest.raises(ConfigError, match="retired"):
        Federation(3, (1, 1), epsilon=0.1, retired=retired)


def test_shares_grow_to_shares_of_the_grown_array() -> None:
    array = StateArray("inverses", (3, 2), 20, np.array([1.0, 2.0]), 0.5)
    shares = [np.full((1, 2, 2), 7, np.uint64), np.full((1, 2, 2), 9, np.uint64)]
    total = np.add.reduce([array.grown(words, party) for party, words in enumerate(shares)])
    assert total[0].tolist() == [[16, 16], [16, 16], [2**19, 2**20]]
    other = np.zeros((1, 2, 5), np.uint64)
    assert array.grown(other, 0) is other, "what has other shapes is for whoever checks them"
    assert padded_arms(shares[0][0], 3).tolist() == [[7, 7, 0], [7, 7, 0]]
