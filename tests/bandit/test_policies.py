"""Policies: how they are found and configured, what they guarantee; and that the seam holds policies of other kinds."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from math import inf, log
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.bandit.policies import make_policy, parse_policy, policy_class, policy_from_table, policy_names, table_of
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policy import Guarantee, Policy
from hiddenarm.errors import ConfigError
from other_policies import Refreshed, RoundedBonus
from support import fixed_key

# Finding and configuring


def test_policies_are_found_by_the_names_of_their_modules() -> None:
    assert {"epsilon-greedy", "epsilon-schedule"} <= set(policy_names())
    for name in policy_names():
        kind = policy_class(name)
        assert kind.name == name
        assert set(kind.learners) <= {"fast", "paper"}


def test_options_have_names_that_a_federation_does_not_use() -> None:
    """The hello has both side by side."""
    taken = {field.name for field in fields(Federation)} | {"federation", "role", "name", "names", "durable"}
    for name in policy_names():
        assert not taken & {field.name for field in fields(policy_class(name))}


@pytest.mark.parametrize("name", ["", "__init__", "epsilon_greedy", "../epsilon-greedy", "os", "Epsilon-Greedy", "-"])
def test_what_is_no_name_of_a_policy_loads_nothing(name: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigError, match="there is no policy"):
        policy_class(name)
    assert set(sys.modules) == before


def test_an_unknown_policy_or_option_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="no policy 'epsilon-shedule'; did you mean epsilon-schedule"):
        make_policy("epsilon-shedule", {})
    with pytest.raises(ConfigError, match="no option 'epsilom'; did you mean epsilon"):
        make_policy("epsilon-greedy", {"epsilom": 0.1})
    with pytest.raises(ConfigError, match="no option 'temperature'; it has epsilon"):
        make_policy("epsilon-greedy", {"temperature": 0.1})
    with pytest.raises(ConfigError, match="needs epsilon"):
        make_policy("epsilon-greedy", {})


def test_a_policy_is_written_and_read_as_text_and_as_a_table() -> None:
    for policy in (EpsilonGreedy(0.25), parse_policy("epsilon-schedule:initial=0.5,decay=1000")):
        assert parse_policy(str(policy)) == policy
        assert policy_from_table(table_of(policy)) == policy
    assert parse_policy("epsilon-schedule").options == {"initial": 1.0, "final": 0.01, "decay": 1000.0}
    with pytest.raises(ConfigError, match="name is missing; known are bonus, epsilon-greedy"):
        policy_from_table({"epsilon": 0.1})


@pytest.mark.parametrize(
    "text", ["epsilon-greedy:epsilon", "epsilon-greedy:=1", "epsilon-greedy:epsilon=0.1,epsilon=1"]
)
def test_what_is_no_policy_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a policy such as"):
        parse_policy(text)


@pytest.mark.parametrize(
    "text", ["epsilon-greedy:epsilon=much", "epsilon-greedy:epsilon=true", "epsilon-greedy:epsilon=2"]
)
def test_options_are_typed(text: str) -> None:
    with pytest.raises(ConfigError, match="epsilon must"):
        parse_policy(text)


def test_epsilon_is_short_for_epsilon_greedy() -> None:
    assert Federation(arms=2, features=(1, 1), epsilon=0).policy == EpsilonGreedy(0.0)
    assert Federation(arms=2, features=(1, 1), epsilon=1) == Federation(2, (1, 1), EpsilonGreedy(1.0))
    assert repr(EpsilonGreedy(1)) == "EpsilonGreedy(epsilon=1.0)"  # as 1 and 1.0 differ in the text of a hello
    with pytest.raises(ConfigError, match="needs a policy"):
        Federation(arms=2, features=(1, 1))
    with pytest.raises(ConfigError, match="one of the two"):
        Federation(arms=2, features=(1, 1), epsilon=0.1, policy=EpsilonGreedy(0.1))
    with pytest.raises(ConfigError, match="must be a policy such as"):
        Federation(2, (1, 1), 0.1)  # type: ignore[arg-type]


def test_a_number_of_another_suite_is_rejected() -> None:
    given: dict[str, Any] = {"arms": 2, "features": (1, 1), "epsilon": 0.1}
    for name in ("max_interactions", "max_batch", "reciprocal_bits", "repair_every"):
        with pytest.raises(ConfigError, match=f"{name} belongs to suite fast"):
            Federation(**given, suite="paper", **{name: 8})  # type: ignore[arg-type]
        assert name not in Federation(**given, suite="paper").terms
    with pytest.raises(ConfigError, match="newton_iterations belong to suite paper"):
        Federation(**given, newton_iterations=7)
    assert "newton_iterations" not in Federation(**given).terms
    paper = Federation(**given, suite="paper")
    assert replace(paper, arms=3) == Federation(**{**given, "arms": 3}, suite="paper", newton_iterations=7)


# What they guarantee


def test_a_guarantee_is_exact() -> None:
    found = EpsilonGreedy(0.1).guarantee(10)
    assert found == Guarantee(10, int(0.1 * 2.0**63) / 2.0**63)
    assert (found.least, found.most) == pytest.approx((0.01, 0.91))
    assert found.eta == pytest.approx(log(found.most / found.least)) == pytest.approx(4.5109, abs=1e-4)
    assert "eta = 4.511" in found.sentence
    assert EpsilonGreedy(1.0).guarantee(10).eta == 0
    assert EpsilonGreedy(0.0).guarantee(10).eta == inf
    assert "no differential privacy" in EpsilonGreedy(0.0).guarantee(10).sentence


# Policies of other kinds


def test_a_policy_may_score_in_another_way() -> None:
    federation = Federation(arms=4, features=(3, 2), policy=RoundedBonus(0.1), max_interactions=500)
    lockstep, twin = Lockstep(federation, fixed_key("bonus"), online=True), federation.policy.twin(federation)
    plain = PlainBandit(4, 5)
    rng, coins = np.random.default_rng(0), lockstep.coins(0, 150)
    best, same, without = rng.standard_normal((4, 5)), 0, 0
    for step in range(150):
        x = rng.standard_normal(5)
        x /= np.linalg.norm(x)
        number, arms = lockstep.decide([x[None, :3], x[None, 3:]])
        same += twin.decide(x, *coins_at(coins, step)) == arms[0]
        without += plain.decide(x, *coins_at(coins, step)) == arms[0]
        reward = float(best[arms[0]] @ x > 0)
        lockstep.learn(number, [reward])
        for learner in (twin, plain):
            learner.learn(x, int(arms[0]), reward)
    assert same >= 148  # but for scores within the rounding
    assert without < same - 7  # the bonus matters
    assert not federation.learner.has_step  # the weights are masked for the scores alone
    assert lockstep.meter.rounds == {"decide": 4 * 150, "learn": 5 * 150}


def test_a_policy_says_in_which_suites_it_runs() -> None:
    with pytest.raises(ConfigError, match="policy rounded-bonus does not run in suite paper; it runs in fast"):
        Federation(arms=4, features=(3, 2), policy=RoundedBonus(), suite="paper")


REFRESHED = Federation(arms=3, features=(2, 2), policy=Refreshed(0.5))


def test_a_policy_may_have_another_schedule() -> None:
    lockstep, twin = Lockstep(REFRESHED, fixed_key("refresh")), PlainBandit(3, 4)
    rng, learned = np.random.default_rng(1), []
    for lesson in range(9):
        x = rng.uniform(-0.5, 0.5, 4)
        number, arms = lockstep.decide([x[None, :2], x[None, 2:]])
        before = lockstep.reveal_model()[1]
        lockstep.learn(number, [1.0])
        learned.append((x, int(arms[0])))
        if (lesson + 1) % 3:
            assert np.array_equal(lockstep.reveal_model()[1], before)
        else:
            for context, arm in learned:
                twin.learn(context, arm, 1.0)
            learned = []
            assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < 1e-4
    assert "learn" not in lockstep.meter.runs


def test_policies_are_dataclasses_whose_options_are_frozen() -> None:
    assert issubclass(EpsilonGreedy, Policy)
    with pytest.raises(AttributeError):
        EpsilonGreedy(0.1).epsilon = 0.2  # type: ignore[misc]
