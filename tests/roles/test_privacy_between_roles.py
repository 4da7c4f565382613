"""The privacy ledger and the budget between roles: every answer is counted before it leaves, and none beyond the budget
leaves that tells anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_network import EPOCH_KEY, KEYS, MemoryNetwork, user_contexts

from hiddenarm import ActionBudget, EpsilonSchedule, Federation
from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.catalogue import DECIDE, ProgramId
from hiddenarm.bandit.decisions import run_of
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import BudgetSpentError, DamagedStoreError
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.privacy.ledger import COIN_UNITS, PrivacyLedger
from hiddenarm.roles.epochs.plan import Committed, PartyStatement, agree_on_spent
from hiddenarm.roles.messages import ACTOR
from hiddenarm.roles.party_areas import PRIVACY, read_ledger
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.store.contract import Put
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

QUARTER = COIN_UNITS // 4


def federation_of(**options: Any) -> Federation:
    return Federation(**{"arms": 3, "features": (2, 2), "epsilon": 0.25, **options})


def budget_for(decisions: int, when_spent: str = "refuse", **options: Any) -> Federation:
    """A federation whose budget pays for so many decisions; a single one loses log 10."""
    privacy = ActionBudget(decisions * np.log(10) + 0.01, when_spent=when_spent)
    federation = federation_of(privacy=privacy, **options)
    assert federation.budget is not None
    assert federation.budget.decisions == decisions
    return federation


def ledgers(network: MemoryNetwork) -> list[PrivacyLedger]:
    return [party.records.ledger for party in network.parties]


def ask_many(network: MemoryNetwork, *keys: str) -> Any:
    ticket = network.actor.ask(*keys)
    network.settle()
    return network.actor.outcomes.pop(ticket)


def online(network: MemoryNetwork, steps: int, version: int = 0) -> int:
    for step in range(steps):
        decision = network.decide(KEYS[step % len(KEYS)], version)
        version = network.reward(decision.id, 1.0)
    return version


# What is counted


@pytest.mark.parametrize("lasting", [False, True])
def test_every_decision_is_counted_once_at_every_party(lasting: bool) -> None:
    network = MemoryNetwork(federation_of(), lasting=lasting).start()
    online(network, 4)
    ask_many(network, *KEYS[:3])
    assert [ledger.decisions for ledger in ledgers(network)] == [{QUARTER: 7}] * 2


def test_what_is_counted_is_there_before_the_answer_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on disk: the ledger is in the commit that keeps the decision, and the answer follows it."""
    network = MemoryNetwork(federation_of(), lasting=True).start()
    seen: list[tuple[int, int]] = []

    def watched(number: int) -> Any:
        party = network.party(number)
        plain = party._links.send

        def watch(to: Identity, frame: Frame) -> None:
            if to == ACTOR and frame.kind in network.asking._reports.kinds:
                assert isinstance(party.records, PartyRecords)
                seen.append((number, read_ledger(party.records._store).count))
            plain(to, frame)

        return watch

    for number in range(2):
        monkeypatch.setattr(network.epoch(number), "_send", watched(number))
    for _ in range(3):
        network.decide(KEYS[0])
    assert sorted(seen) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


def test_a_key_that_is_refused_is_not_counted() -> None:
    network = MemoryNetwork(federation_of()).start()
    del network.tables[1].rows[KEYS[1]]
    outcome = ask_many(network, KEYS[0], KEYS[1], KEYS[2])
    assert [isinstance(answer, Decision) for answer in outcome] == [True, False, True]
    assert [ledger.count for ledger in ledgers(network)] == [2, 2]


def test_a_schedule_is_counted_by_the_positions_of_its_decisions() -> None:
    policy = EpsilonSchedule(1.0, 0.05, 3.0)
    network = MemoryNetwork(federation_of(epsilon=None, policy=policy), lasting=True).start()
    online(network, 1)
    ask_many(network, *KEYS[:4])
    positions = np.array([0, 0, 1, 2, 3])  # programs count apart within an epoch
    expected = PrivacyLedger().decided(*policy.thresholds(positions).tolist())
    assert ledgers(network) == [expected] * 2


# What lasts, and what is agreed


def test_the_ledger_is_read_back_and_a_damaged_one_is_named() -> None:
    network = MemoryNetwork(federation_of(), lasting=True).start()
    online(network, 3)
    records = network.party(0).records
    assert isinstance(records, PartyRecords)
    store = records._store
    again = PartyRecords(store, DirectJournal(store), network.federation, 0)
    assert again.ledger == records.ledger
    assert again.statement().ledger.count == 3
    store.commit([Put(PRIVACY, b"", b"{}")])
    with pytest.raises(DamagedStoreError, match="privacy ledger"):
        PartyRecords(store, DirectJournal(store), network.federation, 0)


def statement_with(ledger: PrivacyLedger, decisions: int = 0) -> PartyStatement:
    return PartyStatement(1, 1, Committed(0, decisions), (), (Committed(0, 0),) * 2, ledger=ledger)


def test_parties_agree_on_the_largest_counts_and_on_the_decisions_of_the_last_party() -> None:
    one = PrivacyLedger({QUARTER: 5, COIN_UNITS: 1}, refreshes=1)
    other = PrivacyLedger({QUARTER: 3, 7: 2}, refreshes=2, opened=0.5)
    spent = agree_on_spent([statement_with(one, decisions=6), statement_with(other, decisions=4)])
    assert spent.ledger == PrivacyLedger({7: 2, QUARTER: 5, COIN_UNITS: 1}, 2, 0.5)
    assert spent.decisions == 4
    decoded = PartyStatement.decode(statement_with(one).encode())
    assert decoded.ledger == one


def test_what_another_party_has_counted_is_written_down_when_an_epoch_opens() -> None:
    store = MemoryStore()
    records = PartyRecords(store, DirectJournal(store), federation_of(), 0)
    records.charge([QUARTER])
    network = MemoryNetwork(federation_of(), lasting=True).start()
    plan = network.party(0)._opening.plan
    assert plan is not None
    records.prepare(plan, lambda: None, PrivacyLedger({QUARTER: 9}))
    records.prepare(plan, lambda: None, PrivacyLedger({QUARTER: 2}))  # never rewound
    assert read_ledger(store) == records.ledger == PrivacyLedger({QUARTER: 9})


# The budget


@pytest.mark.parametrize("lasting", [False, True])
def test_a_spent_budget_refuses_before_anything_is_consumed(lasting: bool) -> None:
    network = MemoryNetwork(budget_for(4), lasting=lasting).start()
    version = online(network, 4)
    before = ledgers(network)
    waiting = network.actor.ask(KEYS[0], after=version)
    network.settle()
    outcome = network.actor.outcomes.pop(waiting)
    assert isinstance(outcome, BudgetSpentError)
    assert "the privacy budget is spent: 4 decisions lose all" in str(outcome)
    assert ledgers(network) == before
    network.check_nothing_is_left()


def test_rewards_are_still_learned_when_the_budget_is_spent() -> None:
    network = MemoryNetwork(budget_for(2)).start()
    first, second = network.decide(KEYS[0]), network.decide(KEYS[1])
    assert isinstance(ask_many(network, KEYS[2]), BudgetSpentError)
    assert network.reward(second.id, 1.0) == 1
    assert network.reward(first.id, 0.0) == 2


def test_a_batch_that_the_rest_does_not_pay_for_is_refused_and_a_smaller_one_is_not() -> None:
    network = MemoryNetwork(budget_for(5)).start()
    assert len(ask_many(network, *KEYS[:3])) == 3
    assert isinstance(ask_many(network, *KEYS[:3]), BudgetSpentError)
    assert len(ask_many(network, *KEYS[:2])) == 2
    assert isinstance(ask_many(network, KEYS[0]), BudgetSpentError)
    assert [ledger.count for ledger in ledgers(network)] == [5, 5]


@pytest.mark.parametrize("seed", range(6))
def test_decisions_under_way_count_against_the_budget(seed: int) -> None:
    """All are asked for at once: exactly as many are answered as the budget pays for."""
    network = MemoryNetwork(budget_for(3), seed=seed).start()
    network.collecting = False
    tickets = [network.actor.ask(KEYS[number]) for number in range(8)]
    network.settle()
    outcomes = [network.actor.outcomes.pop(ticket) for ticket in tickets]
    assert sum(isinstance(outcome, BudgetSpentError) for outcome in outcomes) == 5
    assert [ledger.count for ledger in ledgers(network)] == [3, 3]


def test_a_refused_key_spends_nothing() -> None:
    network = MemoryNetwork(budget_for(3)).start()
    del network.tables[0].rows[KEYS[9]]
    for _ in range(5):
        ask_many(network, KEYS[9])
    assert len([network.decide(KEYS[0]) for _ in range(3)]) == 3


def tag_arms(network: MemoryNetwork, decision: Decision) -> int:
    """The arm that the tags alone choose."""
    program, step = run_of(decision.id)
    coins = audit_coins(Seeds(EPOCH_KEY), network.federation, step, 1, program=program)
    return int(np.argmax(coins.tags[0, 0]))


@pytest.mark.parametrize("suite", ["fast", "paper"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_spent_budget_explores_purely_alike_at_all_parties(suite: str, lasting: bool) -> None:
    federation = budget_for(6, "explore", suite=suite)
    network = MemoryNetwork(federation, lasting=lasting).start()
    version = online(network, 6)
    greedy = network.shared_model()[1] if suite == "fast" else None
    assert greedy is None or np.abs(greedy).max() > 0.1
    chosen = []
    for step in range(12):
        decision = network.decide(KEYS[step], version)
        version = network.reward(decision.id, float(decision.arm == 1))  # it goes on to learn
        assert decision.arm == tag_arms(network, decision)
        chosen.append(decision.arm)
    assert len(set(chosen)) == 3
    assert [ledger.decisions for ledger in ledgers(network)] == [{QUARTER: 6, COIN_UNITS: 12}] * 2
    network.check_nothing_is_left()


def test_what_is_learned_from_purely_explored_decisions_is_the_plain_twins_model() -> None:
    network = MemoryNetwork(budget_for(3, "explore")).start()
    online(network, 12)
    twin = network.federation.policy.twin(network.federation)
    contexts = user_contexts(network.federation)
    for taught in network.learned():
        decision = network.decisions[taught.decision]
        twin.learn(contexts[network.keys[taught.decision]], decision.arm, taught.reward)
    assert np.abs(network.shared_model()[1][0] - twin.weights).max() < 1e-4


def test_a_batch_beyond_the_rest_is_explored_as_a_whole() -> None:
    network = MemoryNetwork(budget_for(4, "explore")).start()
    ask_many(network, *KEYS[:3])
    decisions = ask_many(network, *KEYS[:2])
    coins = audit_coins(Seeds(EPOCH_KEY), network.federation, 0, 1, program=ProgramId(DECIDE, 2))
    assert [decision.arm for decision in decisions] == coins.tags[0, 0].argmax(axis=-1).tolist()
    assert [ledger.decisions for ledger in ledgers(network)] == [{QUARTER: 3, COIN_UNITS: 2}] * 2
