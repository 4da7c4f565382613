"""The ledger: it counts, never takes back, and says what the counts mean."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm import ActionBudget, EpsilonGreedy, EpsilonSchedule, NoisySums
from hiddenarm.bandit.accounting import budget_of, check_budget, planned_ledger
from hiddenarm.bandit.policies import make_policy, policy_class, policy_names
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.actions import epsilon_total
from hiddenarm.privacy.gaussian import epsilon_for
from hiddenarm.privacy.ledger import COIN_UNITS, VACUOUS_FROM, PrivacyLedger, coarse, statement
from hiddenarm.privacy.mechanisms import Unbounded

TENTH = EpsilonGreedy(0.1).levels(0, 1)[0]

ledgers = st.builds(
    PrivacyLedger,
    st.dictionaries(st.integers(0, COIN_UNITS), st.integers(1, 10**6), max_size=4),
    st.integers(0, 100),
    st.floats(0, 100),
    st.integers(0, 3),
    st.floats(0, 100),
    st.integers(0, 100),
    st.integers(0, 3),
    st.integers(0, 3),
)


@given(ledgers, ledgers, ledgers)
def test_merging_takes_nothing_back(one: PrivacyLedger, other: PrivacyLedger, third: PrivacyLedger) -> None:
    both = one.merged(other)
    assert both.covers(one)
    assert both.covers(other)
    assert both == other.merged(one)
    assert both.merged(third) == one.merged(other.merged(third))
    assert one.merged(one) == one
    assert both.count >= max(one.count, other.count)


@given(ledgers)
def test_a_decision_takes_nothing_else_back(ledger: PrivacyLedger) -> None:
    after = ledger.decided(TENTH)
    assert after.covers(ledger)
    assert replace(after, decisions=ledger.decisions) == ledger


@given(ledgers)
def test_a_ledger_is_written_and_read(ledger: PrivacyLedger) -> None:
    assert PrivacyLedger.decode(ledger.encode()) == ledger
    assert PrivacyLedger.from_dict(json.loads(json.dumps(ledger.to_dict()))) == ledger


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"decisions":{},"refreshes":0,"repeated":0}',
        b'{"decisions":{"1":-1},"refreshes":0,"opened":0,"repeated":0}',
        b'{"decisions":{"-1":1},"refreshes":0,"opened":0,"repeated":0}',
        b'{"decisions":{"x":1},"refreshes":0,"opened":0,"repeated":0}',
        b'{"decisions":{"1":1.5},"refreshes":0,"opened":0,"repeated":0}',
        b'{"decisions":[],"refreshes":0,"opened":0,"repeated":0}',
        b'{"decisions":{},"refreshes":0,"opened":0,"repeated":-1}',
        b'{"decisions":{},"refreshes":true,"opened":0,"repeated":0}',
        b'{"decisions":{},"refreshes":0,"opened":-1,"repeated":0}',
        b'{"decisions":{},"refreshes":0,"opened":NaN,"repeated":0}',
        b'{"decisions":{},"refreshes":0,"opened":0,"repeated":0,"more":1}',
    ],
)
def test_what_is_no_ledger_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  it has many texts, and they are not shown
        PrivacyLedger.decode(payload)


def test_counts_add_up() -> None:
    ledger = PrivacyLedger().decided(TENTH).decided(TENTH, TENTH, COIN_UNITS).refreshed().opened_with(3).opened_with(4)
    assert ledger.decisions == {TENTH: 3, COIN_UNITS: 1}
    assert (ledger.count, ledger.refreshes, ledger.opened) == (4, 1, 25.0)
    assert ledger.levels == {TENTH / COIN_UNITS: 3, 1.0: 1}
    assert not PrivacyLedger().covers(ledger)


# What it means


def test_exploration_alone_loses_all_actions_together() -> None:
    found = statement(PrivacyLedger({TENTH: 1000}), 10, Unbounded())
    assert found["own_action"].epsilon == pytest.approx(log(91))
    assert not found["own_action"].vacuous
    for relation in ("dropped", "replaced", "with_own_action", "user"):
        assert found[relation].epsilon == pytest.approx(4263.385, abs=1e-3)
        assert found[relation].vacuous
    report = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert report["epsilon_total"] == pytest.approx(4263.385, abs=1e-3)
    assert report["vacuous"] is True


def test_noisy_sums_lose_the_same_after_any_number_of_actions() -> None:
    for count in (1000, 10**6):
        found = statement(PrivacyLedger({TENTH: count}, refreshes=1), 10, NoisySums(1.0))
        assert found["dropped"].epsilon == pytest.approx(1.0)
        assert found["dropped"].true_positives == pytest.approx(0.0183, abs=5e-5)
        assert found["replaced"].epsilon == pytest.approx(1.551, abs=5e-4)
        assert found["with_own_action"].epsilon == pytest.approx(5.506, abs=5e-4)
        assert found["user"].epsilon == pytest.approx(1.0)
        assert not any(bound.vacuous for bound in found.bounds)
    rows = statement(PrivacyLedger({TENTH: 1}, refreshes=10), 10, NoisySums(1.0))["user"]
    assert rows.epsilon == pytest.approx(3.525, abs=5e-4)


def test_noise_that_was_drawn_again_counts_as_rows_in_two_refreshes() -> None:
    found = statement(PrivacyLedger({TENTH: 1}, refreshes=1, repeated=1), 10, NoisySums(1.0))
    assert found["dropped"].epsilon == pytest.approx(1.455, abs=5e-4)
    assert found["user"].epsilon == found["dropped"].epsilon
    assert PrivacyLedger(refreshes=5).with_refreshes(3, 1) == PrivacyLedger(refreshes=5, repeated=1)


def test_openings_add_to_both() -> None:
    sums = NoisySums(1.0)
    opened = PrivacyLedger({TENTH: 10}).opened_with(sums.mu)
    assert statement(opened, 10, sums)["dropped"].epsilon == pytest.approx(1.455, abs=5e-4)  # as two rows in two
    assert statement(opened.opened_with(sums.mu), 10, sums)["dropped"] == statement(opened, 10, sums)["dropped"]
    again = statement(opened.opens_again(sums.mu), 10, sums)["dropped"].epsilon
    assert again == pytest.approx(epsilon_for(sums.mu * 3**0.5, 1e-6)), "a row that is part of two openings"
    for bare in (statement(opened, 10, Unbounded()), statement(opened.opened_with(None), 10, sums)):
        assert bare["own_action"].epsilon < 5
        for relation in ("dropped", "replaced", "with_own_action", "user"):
            assert bare[relation].epsilon == inf
            assert bare[relation].vacuous, "there is no bound"


def test_a_decision_that_left_its_range_leaves_no_bound_but_that_of_noisy_sums_about_others() -> None:
    """That it ended says that it was not explored; with other data its chance may be 0."""
    ledger = PrivacyLedger({TENTH: 10}, refreshes=1)
    alone = statement(ledger.left_range(1), 10, Unbounded())
    assert all(bound.epsilon == inf and bound.vacuous for bound in alone.bounds)
    noisy, before = (statement(each, 10, NoisySums(1.0)) for each in (ledger.left_range(1), ledger))
    for relation in ("own_action", "with_own_action"):
        assert noisy[relation].epsilon == inf
        assert noisy[relation].vacuous
        assert before[relation].epsilon < 6
    for relation in ("dropped", "replaced", "user"):
        assert noisy[relation] == before[relation], "a function of the noisy sums and of its own row"


def test_without_exploration_the_loss_is_infinite_and_json_says_null() -> None:
    found = statement(PrivacyLedger({0: 1}), 10, Unbounded())
    assert found.headline.epsilon == inf
    report = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert report["epsilon_total"] is None
    assert report["vacuous"] is True


def test_nothing_released_tells_nothing() -> None:
    found = statement(PrivacyLedger(), 10, Unbounded())
    assert [bound.epsilon for bound in found.bounds] == [0.0] * 5
    assert found.headline.true_positives == pytest.approx(0.01, abs=2e-6)


def test_a_bound_is_vacuous_where_an_attack_may_find_nearly_all() -> None:
    just = statement(PrivacyLedger({TENTH: 1}), 10, Unbounded())["dropped"]
    assert just.epsilon < VACUOUS_FROM
    assert not just.vacuous
    assert statement(PrivacyLedger({TENTH: 2}), 10, Unbounded())["dropped"].vacuous


def test_noisy_sums_keep_the_delta_they_were_made_for() -> None:
    with pytest.raises(ConfigError, match="privacy noisy-sums has the delta that it was made for, 1e-06"):
        statement(PrivacyLedger(), 10, NoisySums(1.0), delta=1e-5)
    assert statement(PrivacyLedger({TENTH: 9}), 10, Unbounded(), delta=1e-3).delta == 1e-3


# Of a policy


@given(st.integers(1, COIN_UNITS))
def test_rounding_a_threshold_never_understates_the_loss(threshold: int) -> None:
    assert threshold * 15 / 16 < coarse(threshold) <= threshold
    assert coarse(coarse(threshold)) == coarse(threshold)


def test_a_schedule_has_few_levels_and_a_constant_epsilon_its_own() -> None:
    steady, falling = EpsilonGreedy(0.1), EpsilonSchedule(1.0, 0.01, 100.0)
    assert steady.explores_alike
    assert not falling.explores_alike
    assert planned_ledger(steady, 70_000).decisions == {TENTH: 70_000}
    ledger = planned_ledger(falling, 70_000)
    assert ledger.count == 70_000
    assert len(ledger.decisions) <= 16 * 8


@pytest.mark.parametrize("name", policy_names())
def test_what_is_said_to_explore_alike_does(name: str) -> None:
    """The ledger relies on it."""
    kind = policy_class(name)
    given = {field.name: 0.1 for field in fields(kind) if field.name in ("epsilon", "alpha")}
    policy = make_policy(name, given)
    probed = policy.thresholds(np.array([0, *(10**digits for digits in range(13))], np.int64)).tolist()
    assert policy.explores_alike == (len(set(probed)) == 1)


def test_the_bound_of_a_schedule_is_that_of_its_coins() -> None:
    policy, count = EpsilonSchedule(1.0, 0.1, 20.0), 100
    chances, counts = np.unique(policy.thresholds(np.arange(count)) / COIN_UNITS, return_counts=True)
    coins = dict(zip(chances.tolist(), counts.tolist(), strict=True))
    assert sum(coins.values()) == count
    bound = statement(planned_ledger(policy, count), 5, Unbounded()).headline.epsilon
    assert bound == epsilon_total(5, coins, 1e-6), "what the coins have, and nothing else"


def test_a_budget_holds_as_many_decisions_as_it_pays_for() -> None:
    policy, privacy = EpsilonGreedy(0.9), ActionBudget(100.0, when_spent="explore")
    budget = budget_of(10, policy, privacy)
    assert budget is not None
    assert budget.explores
    for steps in (budget.decisions, budget.decisions + 10**6):
        assert statement(planned_ledger(policy, steps, budget), 10, privacy).headline.epsilon <= 100
    assert epsilon_total(10, {0.9: budget.decisions + 1}, 1e-6) > 100
    assert budget_of(10, policy, Unbounded()) is None
    assert budget_of(10, policy, NoisySums(1.0)) is None


def test_a_budget_that_no_decision_fits_or_that_changes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"total_epsilon 4 does not pay for a single decision, which loses 4\.511"):
        check_budget(10, EpsilonGreedy(0.1), ActionBudget(4.0))
    with pytest.raises(ConfigError, match="does not pay for a single decision, which loses inf"):
        check_budget(10, EpsilonGreedy(0.0), ActionBudget(1e9))
    with pytest.raises(ConfigError, match="needs the same chance to explore at all decisions: choose another policy"):
        check_budget(10, EpsilonSchedule(), ActionBudget(100.0))
