"""The privacy ledger and the budget in one process: counted before anything is done, refused or purely explored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hiddenarm import ActionBudget, EpsilonGreedy, EpsilonSchedule, Federation, LocalFederation
from hiddenarm.bandit.accounting import ledger_of_words, ledger_words, planned_ledger
from hiddenarm.bandit.lockstep import LEDGER, Lockstep
from hiddenarm.bandit.policies import make_policy
from hiddenarm.errors import BudgetSpentError, ConfigError
from hiddenarm.privacy.ledger import COIN_UNITS, PrivacyLedger
from other_policies import RoundedBonus
from support import fixed_key

QUARTER = COIN_UNITS // 4


def federation_of(decisions: int, when_spent: str, **options: Any) -> Federation:
    """With a budget for so many decisions, of which each loses log 10."""
    privacy = ActionBudget(decisions * np.log(10) + 0.01, when_spent=when_spent)
    given: dict[str, Any] = {"arms": 3, "features": (2, 2), "privacy": privacy, **options}
    if "policy" not in given:
        given["epsilon"] = 0.25
    return Federation(**given)


def contexts(generator: np.random.Generator, *shape: int) -> list[np.ndarray]:
    return [generator.uniform(-0.5, 0.5, (*shape, 2)) for _ in range(2)]


def spend(lockstep: Lockstep, generator: np.random.Generator, decisions: int) -> None:
    """Decide and learn that arm 1 is good."""
    for _ in range(decisions):
        step, arms = lockstep.decide(contexts(generator, lockstep.replicates))
        lockstep.learn(step, (arms == 1).astype(float))


@pytest.mark.parametrize("online", [False, True])
def test_decisions_beyond_the_budget_are_refused_and_nothing_happens(online: bool) -> None:
    generator = np.random.default_rng(1)
    lockstep = Lockstep(federation_of(4, "refuse"), fixed_key(1), online=online)
    spend(lockstep, generator, 4)
    before, made = lockstep.snapshot(), lockstep.decisions
    with pytest.raises(BudgetSpentError, match="the privacy budget is spent: 4 decisions lose all"):
        lockstep.decide(contexts(generator, 1))
    with pytest.raises(BudgetSpentError):
        lockstep.decide_batch(contexts(generator, 1, 2))
    assert lockstep.decisions == made
    after = lockstep.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("suite", ["fast", "paper"])
@pytest.mark.parametrize("online", [False, True])
def test_beyond_the_budget_all_arms_are_equally_likely_whatever_was_learned(suite: str, online: bool) -> None:
    """300 replicates learn that arm 1 is good, each a few times: without the budget most would choose it."""
    counts = {}
    for when_spent, budget in (("explore", 12), ("refuse", 1000)):
        lockstep = Lockstep(federation_of(budget, when_spent, suite=suite), fixed_key(2), replicates=300, online=online)
        same = np.tile([0.5, 0.2], (300, 1))
        for _ in range(12):
            step, arms = lockstep.decide([same, same])
            lockstep.learn(step, (arms == 1).astype(float))
        _, arms = lockstep.decide([same, same])
        counts[when_spent] = np.bincount(arms, minlength=3)
    assert counts["refuse"][1] > 200
    assert np.abs(counts["explore"] - 100).max() < 4 * np.sqrt(300 * 2 / 9)


def test_more_than_48_arms_and_a_policy_that_scores_in_another_way_explore_purely_too() -> None:
    for policy, arms in ((EpsilonGreedy(0.25), 60), (RoundedBonus(0.25), 3)):
        budget = ActionBudget(60.0, when_spent="explore")
        federation = Federation(arms, (2, 2), policy, privacy=budget, max_interactions=500)
        assert federation.budget is not None
        most = federation.budget.decisions
        lockstep = Lockstep(federation, fixed_key(3), replicates=4)
        spend(lockstep, np.random.default_rng(3), most)
        step, chosen = lockstep.decide(contexts(np.random.default_rng(4), 4))
        coins = lockstep.coins(step, 1)
        assert coins.explore.all()
        assert np.array_equal(chosen, coins.tags[0].argmax(axis=-1))
        assert lockstep.ledger.decisions[COIN_UNITS] == 1
        assert lockstep.ledger.telling == most


@pytest.mark.parametrize("policy", ["bonus", "epsilon-greedy", "linucb", "thompson"])
def test_policies_that_explore_on_top_have_a_budget_and_explore_purely_where_zeros_tie(policy: str) -> None:
    """A table of roots is rounded: with it, scores differ though the model is zero."""
    options = {"epsilon": 0.25} if policy == "epsilon-greedy" else {"alpha": 0.25, "epsilon": 0.25}
    made = make_policy(policy, options)
    refused = Federation(3, (2, 2), made, privacy=ActionBudget(20.0))
    assert refused.budget is not None
    if policy in ("linucb", "thompson"):
        with pytest.raises(ConfigError, match=f"policy {policy} in suite fast cannot explore purely"):
            Federation(3, (2, 2), made, privacy=ActionBudget(20.0, when_spent="explore"))
        return
    lockstep = Lockstep(
        replace(refused, privacy=ActionBudget(20.0, when_spent="explore")), fixed_key(11), replicates=50
    )
    spend(lockstep, np.random.default_rng(11), refused.budget.decisions)
    for _ in range(4):
        step, arms = lockstep.decide(contexts(np.random.default_rng(12), 50))
        assert np.array_equal(arms, lockstep.coins(step, 1).tags[0].argmax(axis=-1))


def test_coins_say_from_which_step_on_all_is_explored() -> None:
    lockstep = Lockstep(federation_of(5, "explore"), fixed_key(5))
    ahead = lockstep.coins(0, 100).explore[:, 0]
    assert ahead[5:].all()
    assert not ahead[:5].all()
    spend(lockstep, np.random.default_rng(5), 8)
    assert np.array_equal(lockstep.coins(0, 100).explore[:, 0], ahead)


def test_a_snapshot_keeps_the_ledger_and_restoring_never_rewinds_it() -> None:
    generator = np.random.default_rng(6)
    one = Lockstep(federation_of(5, "refuse"), fixed_key(6))
    spend(one, generator, 3)
    saved = one.snapshot()
    other = Lockstep(one.federation, fixed_key(6))
    other.restore(saved)
    assert other.ledger == one.ledger == PrivacyLedger({QUARTER: 3})
    spend(other, generator, 2)
    other.restore(saved)
    assert other.ledger.count == 5
    with pytest.raises(BudgetSpentError):
        other.decide(contexts(generator, 1))


def test_a_snapshot_of_an_earlier_version_is_counted_by_its_steps() -> None:
    lockstep = Lockstep(federation_of(50, "refuse"), fixed_key(7))
    spend(lockstep, np.random.default_rng(7), 3)
    lockstep.decide_batch(contexts(np.random.default_rng(8), 1, 4))
    saved = lockstep.snapshot()
    del saved[LEDGER]
    other = Lockstep(lockstep.federation, fixed_key(7))
    other.restore(saved)
    assert other.ledger == lockstep.ledger == PrivacyLedger({QUARTER: 7})


def test_a_ledger_as_words() -> None:
    ledger = PrivacyLedger({QUARTER: 3, COIN_UNITS: 2**40}, 7, 0.125, 1, row_opened=0.0625, openings=2, bare=1)
    assert ledger_of_words(ledger_words(ledger)) == ledger
    unopened = PrivacyLedger({QUARTER: 3}, 7, 0.0, 1)
    assert ledger_of_words(ledger_words(unopened)) == unopened
    for wrong in (np.zeros(1, np.uint64), np.zeros(4, np.uint64), np.array([0, 2**63 | 2**52, 0, 1, 1], np.uint64)):
        with pytest.raises(ValueError, match="a ledger has"):
            ledger_of_words(wrong)


def test_replicates_with_an_epsilon_each_are_counted_as_the_one_that_explores_least() -> None:
    federation = Federation(3, (2, 2), epsilon=0.25)
    lockstep = Lockstep(federation, fixed_key(9), replicates=2, epsilons=[0.5, 0.125])
    lockstep.decide(contexts(np.random.default_rng(9), 2))
    assert lockstep.ledger.decisions == {COIN_UNITS // 8: 1}


def test_a_schedule_is_counted_as_it_is_planned() -> None:
    policy = EpsilonSchedule(1.0, 0.05, 4.0)
    lockstep = Lockstep(Federation(3, (2, 2), policy), fixed_key(10))
    spend(lockstep, np.random.default_rng(10), 20)
    assert lockstep.ledger == planned_ledger(policy, 20)


def test_a_local_federation_says_what_it_has_released() -> None:
    fed = LocalFederation(3, [2, 2], 0.25, privacy=ActionBudget(7.0))
    for _ in range(3):
        fed.decide([[0.1, 0.2], [0.3, 0.4]])
    assert fed.ledger.count == 3
    assert fed.privacy().headline.epsilon <= 7.0
    with pytest.raises(BudgetSpentError):
        fed.decide([[0.1, 0.2], [0.3, 0.4]])


def test_a_budget_that_cannot_be_is_refused_when_the_federation_is_made() -> None:
    with pytest.raises(ConfigError, match="does not pay for a single decision"):
        Federation(3, (2, 2), epsilon=0.25, privacy=ActionBudget(1.0))
    with pytest.raises(ConfigError, match="needs the same chance to explore at all decisions"):
        Federation(3, (2, 2), EpsilonSchedule(), privacy=ActionBudget(100.0))
