"""Noisy sums between roles: models of the plain twin, rows per key, and refreshes that last before they are used."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, Taught, party, user_contexts

from hiddenarm.bandit.audit import audit_noise, plain_twin
from hiddenarm.bandit.catalogue import DESCEND, GATHER, REFRESH, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Interaction, row_digest
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.planning import GradientNumbers
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.errors import StaleStateError
from hiddenarm.mpc.material import Seeds
from hiddenarm.privacy.ledger import statement
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisyMechanism, NoisySums
from hiddenarm.ring.words import Floats
from hiddenarm.roles.epochs.plan import CheckpointName, Plan
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.updater import RowLimit
from hiddenarm.store.contract import Change
from hiddenarm.store.memory import MemoryStore


def noisy_federation(parties: int = 2, *, rows_per_key: int = 1, first: int = 6, arms: int = 3) -> Federation:
    privacy = NoisySums(20.0, first_refresh=first, refresh_ratio=1.5, rows_per_key=rows_per_key)
    return Federation(arms=arms, features=(2,) * parties, epsilon=0.25, privacy=privacy)


def twin_of(network: MemoryNetwork) -> PlainBandit:
    def noise(refresh: int) -> tuple[Floats, Floats]:
        grams, moments = audit_noise(Seeds(network.epoch_key), network.federation, refresh)
        return grams[0], moments[0]

    return plain_twin(network.federation, noise)


def teach_twin(network: MemoryNetwork, lessons: Sequence[Sequence[Taught]]) -> PlainBandit:
    """The twin after some lessons, with rows beyond the limit left out."""
    privacy, twin, rows = network.federation.privacy, twin_of(network), Counter[str]()
    assert isinstance(privacy, NoisyMechanism)
    contexts, learned = user_contexts(network.federation), 0
    for lesson in lessons:
        for taught in lesson:
            key = network.keys[taught.decision]
            rows[key] += 1
            context = contexts[key] if rows[key] <= privacy.rows_per_key else np.zeros(network.federation.dimension)
            twin.learn(context, network.decisions[taught.decision].arm, taught.reward)
        twin.end_lesson()
        before, learned = learned, learned + len(lesson)
        if privacy.refreshes_by(before) != privacy.refreshes_by(learned):
            rows.clear()
    return twin


def check_model(network: MemoryNetwork, twin: PlainBandit, within: float = 1e-4) -> None:
    assert np.abs(network.shared_model()[1][0] - twin.weights).max() < within


def play(network: MemoryNetwork, steps: int, keys: Sequence[str]) -> None:
    version = 0
    for step in range(steps):
        decision = network.decide(keys[step % len(keys)], version)
        version = network.reward(decision.id, float(step % 3 == 0))
        network.wait(0.1)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_models_are_those_of_the_twin_with_the_same_noise(parties: int, lasting: bool) -> None:
    network = MemoryNetwork(noisy_federation(parties), lasting=lasting).start()
    play(network, 20, KEYS)
    twin = teach_twin(network, [[taught] for taught in network.learned()])
    check_model(network, twin)
    assert np.abs(twin.weights).max() > 0.001
    network.check_nothing_is_left()
    runs = network.epoch(0).health().runs
    assert runs[REFRESH].runs == 4
    assert "learn" not in runs
    assert "step" not in runs
    for machine in network.parties:
        assert machine.records.refreshed == (19 if lasting else 0)


POLICIES = [
    "epsilon-greedy:epsilon=0.2",
    "epsilon-schedule:initial=0.5,final=0.1,decay=5",
    "bonus:alpha=0.5,epsilon=0.1",
    "linucb:alpha=0.25,epsilon=0.1",
    "thompson:alpha=0.1,epsilon=0.1",
]
MECHANISMS = [
    NoisySums(20.0, first_refresh=4, refresh_ratio=1.5),
    NoisySums(20.0, first_refresh=4, refresh_ratio=1.5, correlated=2),
    NoisyGradient(20.0, refresh_every=4, correlated=2),
]
CELLS = [
    cell
    for cell in product(POLICIES, MECHANISMS, (3, 50), (False, True))
    if cell[0].startswith("epsilon") or not isinstance(cell[1], NoisyGradient)  # the rest: tests/bandit/test_matrix.py
]


@pytest.mark.parametrize(("policy", "privacy", "arms", "lasting"), CELLS, ids=str)
def test_every_policy_learns_from_noise_between_roles(
    policy: str, privacy: NoisyMechanism, arms: int, lasting: bool
) -> None:
    """With few arms and many, among eligible arms, in memory and durably: models are those of the twin that has the
    same noise, and nothing is decided but among eligible arms."""
    federation = Federation(arms=arms, features=(2, 2), policy=parse_policy(policy), privacy=privacy)
    network, version = MemoryNetwork(federation, lasting=lasting).start(), 0
    eligible = (0, arms - 1)
    for step in range(10):
        decision = network.decide(KEYS[step], version, eligible)
        assert decision.arm in eligible
        version = network.reward(decision.id, float(decision.arm == 0))
    downhill = isinstance(privacy, NoisyGradient)
    check_model(network, teach_twin(network, [[one] for one in network.learned()]), 0.1 if downhill else 2e-4)
    network.check_nothing_is_left()
    ledger = network.party(0).records.ledger
    assert (ledger.count, ledger.refreshes) == (10, privacy.refreshes_by(10))
    assert not statement(ledger, arms, privacy)["own_action"].vacuous
    assert isinstance(network.party(0).records, PartyRecords) == lasting


@pytest.mark.parametrize("rows_per_key", [1, 2])
def test_a_refresh_takes_so_many_rows_of_a_key_and_no_more(rows_per_key: int) -> None:
    network = MemoryNetwork(noisy_federation(rows_per_key=rows_per_key), lasting=True).start()
    play(network, 20, KEYS[:2])
    assert [error for error in network.lessons.values() if error] == [], "further rows are accepted"
    limited = teach_twin(network, [[taught] for taught in network.learned()])
    check_model(network, limited)
    sums = limited.arrays["grams"].sum(axis=0)
    unlimited = MemoryNetwork(noisy_federation(rows_per_key=20), lasting=True)
    unlimited.keys, unlimited.decisions = network.keys, network.decisions
    every = teach_twin(unlimited, [[taught] for taught in network.learned()]).arrays["grams"].sum(axis=0)
    assert np.trace(every - sums) == pytest.approx({1: 11, 2: 4}[rows_per_key])  # of refreshes after 6, 9, 13 and 19


@pytest.mark.parametrize("rows_per_key", [1, 20])
@pytest.mark.parametrize(("parties", "lasting"), [(2, False), (2, True), (3, True)])
def test_models_go_down_the_gradient_of_the_twin(parties: int, lasting: bool, rows_per_key: int) -> None:
    """With correlated noise, over two blocks. Clips are off by less than 2^-6 each, in steps of 0.2."""
    privacy = NoisyGradient(20.0, refresh_every=3, first_step=0.2, rows_per_key=rows_per_key, correlated=4)
    network = MemoryNetwork(
        Federation(arms=3, features=(2,) * parties, epsilon=0.25, privacy=privacy, max_interactions=1000),
        lasting=lasting,
    ).start()
    play(network, 20, KEYS[:2])
    twin = teach_twin(network, [[taught] for taught in network.learned()])
    numbers = network.federation.numbers
    assert isinstance(numbers, GradientNumbers)
    check_model(network, twin, within=min(0.1, 20 * 0.2 * network.federation.joint_norm * 2.0**-numbers.residual_bits))
    assert np.abs(twin.weights).max() > 0.1
    network.check_nothing_is_left()
    runs = network.epoch(0).health().runs
    assert sum(counted.runs for name, counted in runs.items() if name.startswith(REFRESH)) == 6
    assert sum(counted.runs for name, counted in runs.items() if name.startswith(DESCEND)) == 6
    assert network.parties[0].records.ledger.refreshes == 6
    assert network.parties[0].records.refreshed == (18 if lasting else 0)


def test_rows_are_counted_within_a_lesson_too() -> None:
    limit = RowLimit(2)
    rows = [_row(1), _row(2), _row(1), _row(1), _row(2)]
    taken = limit.taken(rows)
    assert [bool(own.arm_share(True).any()) for own in taken] == [True, True, True, False, True]
    assert limit.taken(rows)[0].arm_share(True).any(), "nothing counts before it is gathered"
    limit.count(rows)
    assert not any(own.arm_share(True).any() for own in limit.taken(rows))
    assert limit.taken([_row(3)])[0].arm_share(True).any()
    limit.begin_anew()
    assert limit.taken(rows)[0].arm_share(True).any()
    assert row_digest("user 1") != row_digest("user 2")


def _row(row_of: int) -> Interaction:
    ones = np.ones((1, 3), np.uint64)
    return Interaction(np.ones((1, 2), np.uint64), np.zeros_like(ones), ones, np.zeros(1, np.uint64), row_of)


def test_batches_are_gathered_and_refreshed() -> None:
    network = MemoryNetwork(noisy_federation(rows_per_key=3), lasting=True).start()
    lessons: list[list[Taught]] = []
    for first in range(0, 24, 4):
        numbers = [network.ask(key, len(lessons)) for key in KEYS[first : first + 4]]
        network.settle()
        with network.handouts:
            network.rewarder.teach(*((network.decisions[number].id, 1.0) for number in numbers))
        network.settle()
        lessons.append([Taught(len(lessons), number, 1.0) for number in numbers])
        network.wait(0.1)
    check_model(network, teach_twin(network, lessons))
    assert network.epoch(0).health().runs[REFRESH].runs == 4
    assert GATHER in network.epoch(0).health().runs


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_frames_gives_the_same_model(seed: int) -> None:
    network = MemoryNetwork(noisy_federation(rows_per_key=5), seed=seed, lasting=seed % 2 == 0).start()
    chance = random.Random(seed)
    for number in range(20):
        asked = network.ask(KEYS[number], 0)
        for _ in range(chance.randint(0, 60)):
            network.deliver()
        for ready in [known for known in network.decisions if chance.random() < 0.5]:
            if ready not in [taught.decision for taught in network.taught] and ready == asked:
                network.teach(network.decisions[ready].id, 1.0)
    network.settle()
    for number in sorted(set(network.decisions) - {taught.decision for taught in network.taught}):
        if network.decisions[number].id not in [network.decisions[taught.decision].id for taught in network.taught]:
            network.teach(network.decisions[number].id, 0.0)
    network.settle()
    network.wait(1)
    check_model(network, teach_twin(network, [[taught] for taught in network.learned()]))


# A refresh lasts before it is used


class HeldJournal:
    """Commits when it is let."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.held: list[tuple[Sequence[Change], Callable[[], None]]] = []
        self.holds = False

    def append(self, changes: Sequence[Change], then: Callable[[], None]) -> None:
        self.held.append((changes, then))
        if not self.holds:
            self.release()

    def release(self) -> None:
        held, self.held = self.held, []
        for changes, then in held:
            self.store.commit(changes)
            then()


class HeldNetwork(MemoryNetwork):
    """The last party's disk can be held."""

    def _party_records(self, number: int) -> PartyRecords | MemoryPartyRecords:
        if number < self.federation.parties - 1:
            return super()._party_records(number)
        store = MemoryStore()
        self.journal = HeldJournal(store)
        return PartyRecords(store, self.journal, self.federation, number)


def test_no_decision_uses_a_refresh_that_does_not_last_at_every_party() -> None:
    network = HeldNetwork(noisy_federation(), lasting=True)
    network.start()
    play(network, 5, KEYS)
    decision = network.decide(KEYS[5], 5)
    network.journal.holds = True
    network.teach(decision.id, 1.0)
    network.settle()
    assert [network.version_at(number) for number in (0, 1)] == [6, 6]
    assert network.party(0).records.refreshed == 6
    number = network.asked[network.actor.ask(KEYS[6], after=6)] = 10**6
    before = network.asked.copy()
    network.settle()
    network.wait(0.5)
    assert network.asked == before, "the decision waits for the last party's disk"
    assert number not in network.decisions
    assert [len(epoch._requests) for epoch in network.epochs] == [0, 1], "the last party does not begin it"
    network.journal.holds = False
    network.journal.release()
    network.wait(0.5)
    assert number in network.decisions
    check_model(network, teach_twin(network, [[taught] for taught in network.taught]))


def test_a_lesson_that_gathers_only_makes_no_decision_wait() -> None:
    network = HeldNetwork(noisy_federation(), lasting=True)
    network.start()
    play(network, 2, KEYS)
    updater = network.epoch(1)._updater
    assert updater.may_decide(2)
    assert not updater._unkept


# Records


def records_after(lessons: int) -> tuple[MemoryNetwork, PartyRecords]:
    network = MemoryNetwork(noisy_federation(), lasting=True).start()
    play(network, lessons, KEYS)
    records = network.party(0).records
    assert isinstance(records, PartyRecords)
    return network, records


def reloaded(records: PartyRecords) -> PartyRecords:
    return PartyRecords(records._store, records._journal, records._federation, records._number)


def plan_of(records: PartyRecords, length: int, *, recovers: bool) -> Plan:
    checkpoint = max(name for name in [CheckpointName(0, 0), *records.checkpoints] if name.version <= length)
    return Plan(records.prepared + 1, bytes(5) + b"\7", checkpoint, length, recovers)


def test_a_refresh_ends_in_a_checkpoint_that_lasts_with_its_lesson() -> None:
    _, records = records_after(10)
    assert records.refreshed == 9
    assert {name.version for name in records.checkpoints} >= {9}
    again = reloaded(records)
    assert again.refreshed == 9
    assert again.releases == 1
    assert (again.ledger.refreshes, again.ledger.repeated) == (2, 0)  # after six lessons, and after nine
    interaction = again.interaction(again.lessons(0, 1)[0].rewards[0][0])
    assert interaction is not None
    assert interaction.row_of == row_digest(KEYS[0])


@pytest.mark.parametrize(
    ("lessons", "length", "undone", "left"), [(10, 9, [], 9), (9, 8, [], 6), (10, 8, [9], 6), (10, 5, [6, 9], 0)]
)
def test_going_back_behind_a_refresh_is_noted_if_a_decision_has_used_it(
    lessons: int, length: int, undone: list[int], left: int
) -> None:
    """After nine lessons there was a refresh, but no decision yet."""
    _, records = records_after(lessons)
    plan = plan_of(records, length, recovers=True)
    assert records.undoes_used(plan) == bool(undone)
    records.activate(plan, lambda: None)
    for held in (records, reloaded(records)):
        assert [name.version for name in sorted(held._undone)] == undone
        assert held.releases == 1 + bool(undone)
        assert held.refreshed == left
        assert not held.undoes_used(plan)


def test_noise_that_was_used_is_not_drawn_again_without_consent() -> None:
    """Party 1 has lost the checkpoints of refreshes, and nothing else that others could notice."""
    network, _ = records_after(10)
    lossy = network.party(1).records
    assert isinstance(lossy, PartyRecords)
    lossy.checkpoints.clear()
    with pytest.raises(StaleStateError, match=r"noise that would be drawn again.*hiddenarm recover"):
        reopen(network)


def reopen(network: MemoryNetwork) -> None:
    """The link between the parties is cut, and made again."""
    ends = (party(0), party(1)), (party(1), party(0))
    for here, there in ends:
        network._ready.discard((here, there))
        network.links[there, here].clear()
    for here, there in ends:
        with network.handouts:
            network.machines[here].on_lost(there, "cut off", False)
        network.links[there, here].append(None)
    network.settle()


def test_rows_since_the_last_refresh_are_counted_again_after_a_restart() -> None:
    """The log says whose rows were gathered."""
    network = MemoryNetwork(noisy_federation(), lasting=True).start()
    play(network, 8, KEYS)
    machine: Any = network.party(0)
    plan = machine._opening.plan
    since = machine._since_refresh(Plan(plan.epoch, plan.name, CheckpointName(8, plan.epoch), 8))
    assert [lesson.number for lesson in since] == [6, 7]
    assert ProgramId(GATHER) in network.federation.learner.single_programs
