"""Requests that are decided together: what waits while runs are under way, in batches of powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from memory_network import (
    KEYS,
    MemoryNetwork,
    party,
    small_federation,
    small_paper_federation,
    user_contexts,
)

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, STEP, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import (
    BudgetSpentError,
    ConflictError,
    HiddenArmError,
    InputError,
    RefusedKeyError,
    UnavailableError,
)
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.privacy.mechanisms import ActionBudget
from hiddenarm.roles.actor import MAX_ASKED, RUNS_AT_ONCE, Ticket, batch_size
from hiddenarm.roles.client_records import ActorRecords
from hiddenarm.roles.messages import ACTOR, DEALER, NO_STOCK, Kind, bitmap_words, program_and_step, read_decide
from hiddenarm.roles.stock import BATCH_BYTES, step_bytes
from hiddenarm.store.contract import Change
from hiddenarm.store.journal import Then
from hiddenarm.store.memory import MemoryStore

ARMS = 5


def network_of(federation: Federation | None = None, **options: Any) -> MemoryNetwork:
    network = MemoryNetwork(federation or small_federation(2, arms=ARMS), **options).start()
    network.collecting = False
    return network


def arms_of(bitmap: bytes) -> list[int]:
    """The arms that a bitmap names."""
    arms: list[int] = np.flatnonzero(bitmap_words(bitmap, 8 * len(bitmap))).tolist()
    return arms


def ask(network: MemoryNetwork, key: str, **asked: Any) -> Ticket:
    with network.handouts:
        return network.actor.ask(key, together=True, **asked)


class Requests:
    """All DECIDE frames that the actor sends to party 0."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.frames: list[Frame] = []
        send = network.asking._send

        def note(to: Identity, frame: Frame) -> None:
            if to == party(0) and frame.kind is Kind.DECIDE:
                self.frames.append(frame)
            send(to, frame)

        network.asking._send = note

    @property
    def counts(self) -> list[int]:
        return [program_and_step(frame)[0].count for frame in self.frames]

    @property
    def keys(self) -> list[list[str]]:
        return [read_decide(frame, ARMS)[1] for frame in self.frames]


def answer_of(network: MemoryNetwork, ticket: Ticket) -> Decision | HiddenArmError:
    outcome = network.actor.outcomes[ticket]
    if isinstance(outcome, HiddenArmError):
        return outcome
    (answer,) = outcome
    return answer


def decision_of(network: MemoryNetwork, ticket: Ticket) -> Decision:
    answer = answer_of(network, ticket)
    assert isinstance(answer, Decision), answer
    return answer


@pytest.mark.parametrize(
    ("waiting", "most", "size"),
    [(1, 256, 1), (2, 256, 2), (3, 256, 2), (63, 256, 32), (500, 256, 256), (500, 100, 64), (7, 1, 1)],
)
def test_the_size_of_a_batch_is_a_power_of_two_that_fits(waiting: int, most: int, size: int) -> None:
    assert batch_size(waiting, most) == size


def test_what_waits_while_runs_are_under_way_is_decided_in_the_rounds_of_one() -> None:
    network = network_of()
    requests = Requests(network)
    tickets = [ask(network, key) for key in KEYS[:15]]
    assert requests.counts == [1] * RUNS_AT_ONCE
    network.settle()
    assert requests.counts == [1, 1, 8, 4, 1]
    assert [key for keys in requests.keys for key in keys] == list(KEYS[:15])
    assert len({decision_of(network, ticket).id for ticket in tickets}) == 15
    network.check_nothing_is_left()


def test_no_more_runs_are_under_way_than_are_worth_it() -> None:
    network = network_of(seed=3)
    tickets = [ask(network, KEYS[number % 40]) for number in range(100)]
    while network.deliver():
        assert len(network.asking._runs) <= RUNS_AT_ONCE
    assert all(decision_of(network, ticket) for ticket in tickets)


def test_no_batch_is_larger_than_the_kit_allows() -> None:
    network = network_of()
    network.actor._max_batch = 5
    requests = Requests(network)
    tickets = [ask(network, KEYS[number]) for number in range(22)]
    network.settle()
    assert max(requests.counts) == 4
    assert all(decision_of(network, ticket) for ticket in tickets)


@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "durable"])
@pytest.mark.parametrize("seed", range(3))
def test_decisions_and_the_model_are_those_of_the_plain_twin(seed: int, lasting: bool) -> None:
    """Decided together, learned one by one, in another order than they were decided."""
    federation = small_federation(2, arms=3, epsilon=0.0)
    network = network_of(federation, seed=seed, lasting=lasting)
    contexts = user_contexts(federation)
    twin = PlainBandit(3, federation.dimension, federation.ridge)
    for first in (0, 11):
        keys = KEYS[first : first + 11]
        tickets = {key: ask(network, key, request=key) for key in keys}
        network.settle()
        made = {key: decision_of(network, ticket) for key, ticket in tickets.items()}
        for key, decision in made.items():
            scores = twin.weights @ contexts[key]
            assert scores.max() - scores[decision.arm] < 2.0**-10
        for place, key in enumerate(reversed(keys)):
            with network.handouts:
                network.rewarder.teach((made[key].id, float(place % 2)))
            network.settle()
            twin.learn(contexts[key], made[key].arm, float(place % 2))
    network.check_nothing_is_left()
    assert network.version_at(0) == 22
    assert np.abs(network.shared_model()[1][0] - twin.weights).max() < 1e-3


@pytest.mark.parametrize("arms", [ARMS, 49], ids=["payloads", "shuffle"])
def test_each_request_keeps_its_own_eligible_arms(arms: int) -> None:
    network = network_of(small_federation(2, arms=arms, epsilon=0.5))
    requests = Requests(network)
    wanted: list[list[int] | None] = [None, None, [0], [1, 3], None, [4], [2], [0, 1], [3], [4, 2]]
    tickets = [ask(network, KEYS[place], eligible=eligible) for place, eligible in enumerate(wanted)]
    network.settle()
    together = requests.frames[2]
    bitmaps, among = read_decide(together, arms)[2]
    if arms == ARMS:
        assert requests.counts == [1, 1, 8]
        told: list[list[int] | None] = wanted[2:]
    else:  # four slots are enough for the arms of these; the others take another run
        assert requests.counts[2] == 4
        assert among == (0, 1, 3, 4)
        told = [[0], [1, 3], [4], [0, 1]]
    known = range(arms) if among is None else among
    assert [[known[place] for place in arms_of(bitmap)] for bitmap in bitmaps] == [
        list(range(arms)) if eligible is None else sorted(eligible) for eligible in told
    ]
    for ticket, eligible in zip(tickets, wanted, strict=True):
        assert decision_of(network, ticket).arm in (range(arms) if eligible is None else eligible)


def test_a_request_that_waits_at_a_party_holds_bitmaps_and_no_words_for_each_arm() -> None:
    network = network_of()
    with network.handouts:
        ticket = network.actor.ask(*KEYS[:3], after=1, eligible=[1, 3])
    network.settle()
    for epoch in network.epochs:
        (request,) = epoch._requests
        assert [arms_of(bitmap) for bitmap in request.bitmaps] == [[1, 3]]
    assert ticket not in network.actor.outcomes


def test_the_same_eligible_arms_are_told_once_and_all_of_them_never() -> None:
    network = network_of()
    requests = Requests(network)
    for eligible in (None, None, [1, 2], [1, 2]):
        ask(network, KEYS[0], eligible=eligible)
    network.settle()
    for _ in range(RUNS_AT_ONCE + 4):
        ask(network, KEYS[0])
    network.settle()
    assert requests.counts == [1, 1, 2, 1, 1, 4]
    assert [len(read_decide(frame, ARMS)[2].bitmaps) for frame in requests.frames] == [0, 0, 1, 0, 0, 0]


def test_a_key_without_features_is_the_matter_of_its_own_request() -> None:
    """The others are asked again, among themselves: a request that came later is not among them."""
    network = network_of(seed=1)
    for number, key in ((0, KEYS[3]), (1, KEYS[5])):
        del network.tables[number].rows[key]
    requests = Requests(network)
    tickets = [ask(network, key) for key in KEYS[:10]]
    network.settle()
    answers = [answer_of(network, ticket) for ticket in tickets]
    for place, answer in enumerate(answers):
        assert isinstance(answer, RefusedKeyError if place in (3, 5) else Decision)
    assert requests.counts[:3] == [1, 1, 8]
    assert set(requests.counts) <= {1, 2, 4, 8}
    for key in (KEYS[2], KEYS[4], *KEYS[6:10]):
        assert 2 <= sum(key in keys for keys in requests.keys) <= 1 + network.federation.parties
    network.check_nothing_is_left()


def test_a_stream_of_bad_keys_does_not_keep_a_good_one_from_its_answer() -> None:
    """What is asked again is asked with no others."""
    network = network_of(seed=2)
    requests = Requests(network)
    tickets = [ask(network, key) for key in (*KEYS[:2], "nobody", KEYS[2])]
    while network.deliver() and tickets[3] not in network.actor.outcomes:
        if network.actor.health().waiting < 40:
            ask(network, "nobody")
    assert decision_of(network, tickets[3])
    first, *again = (keys for keys in requests.keys if KEYS[2] in keys)
    assert "nobody" in first
    assert again == [[KEYS[2]]]


def test_what_the_stock_has_not_for_many_is_asked_for_one_by_one() -> None:
    """The dealer is gone: single decisions are in stock, batches are not."""
    network = network_of(lasting=True, stock=64)
    network.wait(1.0)
    requests = Requests(network)
    for number in range(2):
        network._ready.discard((party(number), DEALER))
        network.links[DEALER, party(number)].clear()
        network.party(number).on_lost(DEALER, "cut off", False)
    network._ready.discard((ACTOR, DEALER))
    network.actor.on_lost(DEALER, "cut off", False)
    tickets = [ask(network, key) for key in KEYS[:10]]
    network.settle()
    assert requests.counts == [1, 1, 8, *[1] * 8]
    assert all(decision_of(network, ticket) for ticket in tickets)
    assert not network.actor.health().out_of_stock
    more = [ask(network, KEYS[number % 40]) for number in range(100)]
    network.settle()
    refused = [answer for ticket in more if isinstance(answer := answer_of(network, ticket), UnavailableError)]
    assert 0 < len(refused) < 100
    assert all(NO_STOCK in str(error) for error in refused)
    assert network.actor.health().out_of_stock


def test_the_last_decisions_of_a_budget_are_made_one_by_one() -> None:
    """A batch that would exceed it is refused; single requests have what is left, to the last one."""
    privacy = ActionBudget(7 * float(np.log(6)) + 0.01)
    federation = Federation(arms=ARMS, features=(2, 2), epsilon=0.5, privacy=privacy)
    assert federation.budget is not None
    assert federation.budget.decisions == 7
    network = network_of(federation)
    tickets = [ask(network, key) for key in KEYS[:10]]
    network.settle()
    answers = [answer_of(network, ticket) for ticket in tickets]
    assert sum(isinstance(answer, Decision) for answer in answers) == 7
    assert sum(isinstance(answer, BudgetSpentError) for answer in answers) == 3


def test_strictly_online_use_is_as_without() -> None:
    """Each request comes when the one before was answered and rewarded: the parties run `step`."""
    network = network_of()
    requests = Requests(network)
    for _ in range(4):
        ticket = ask(network, KEYS[0])
        network.settle()
        with network.handouts:
            network.rewarder.teach((decision_of(network, ticket).id, 1.0))
        network.settle()
    programs = [program_and_step(frame)[0].name for frame in requests.frames]
    assert programs[1:] == [STEP] * 3


def test_a_request_for_a_lesson_to_come_holds_no_others_up_in_its_run() -> None:
    network = network_of()
    requests = Requests(network)
    first = ask(network, KEYS[0])
    network.settle()
    waiting = [
        ask(network, key, after=after) for key, after in ((KEYS[1], 1), (KEYS[2], 0), (KEYS[3], 1), (KEYS[4], 0))
    ]
    assert all(len(keys) == 1 for keys in requests.keys)
    with network.handouts:
        network.rewarder.teach((decision_of(network, first).id, 1.0))
    network.settle()
    assert all(decision_of(network, ticket) for ticket in waiting)


def test_a_request_for_many_keys_is_a_run_of_its_own() -> None:
    network = network_of()
    requests = Requests(network)
    for key in KEYS[:4]:
        ask(network, key)
    with network.handouts:
        many = network.actor.ask(*KEYS[4:9], together=True)
    assert requests.counts == [1, 1, 5]
    network.settle()
    assert requests.counts == [1, 1, 5, 2]
    outcome = network.actor.outcomes[many]
    assert isinstance(outcome, list)
    assert len(outcome) == 5


@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "durable"])
def test_a_request_with_a_name_is_answered_once(lasting: bool) -> None:
    network = network_of(lasting=lasting)
    tickets = [ask(network, KEYS[0], request=f"r{number}") for number in range(6)]
    again = ask(network, KEYS[0], request="r5")
    with pytest.raises(ConflictError, match="'r4' was made before"):
        ask(network, KEYS[1], request="r4")
    network.settle()
    assert decision_of(network, again) == decision_of(network, tickets[5])
    repeated = ask(network, KEYS[0], request="r3")
    assert decision_of(network, repeated) == decision_of(network, tickets[3])
    assert network.actor.decided_under("r4") == decision_of(network, tickets[4]).id


def test_what_nobody_waits_for_is_not_asked_for() -> None:
    network = network_of()
    requests = Requests(network)
    tickets = [ask(network, key) for key in KEYS[:6]]
    named = ask(network, KEYS[6], request="named")
    for ticket in (*tickets[3:], named):
        network.actor.give_up(ticket)
    network.settle()
    assert requests.keys == [[KEYS[0]], [KEYS[1]], [KEYS[2], KEYS[6]]]
    assert network.actor.idle
    assert network.actor.decided_under("named")


def test_too_many_are_refused_as_ever() -> None:
    network = network_of()
    for _ in range(MAX_ASKED):
        ask(network, KEYS[0])
    with pytest.raises(UnavailableError, match="wait already"):
        ask(network, KEYS[0])


def test_the_papers_suite_decides_together_too() -> None:
    network = network_of(small_paper_federation(2))
    requests = Requests(network)
    tickets = [ask(network, key) for key in KEYS[:4]]
    network.settle()
    assert requests.counts == [1, 1, 2]
    assert all(decision_of(network, ticket) for ticket in tickets)
    network.check_nothing_is_left()


class OneCommit:
    """A journal that keeps every list of changes as it came."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.commits: list[list[Change]] = []

    def append(self, changes: Sequence[Change], then: Then) -> None:
        self._store.commit(changes)
        self.commits.append(list(changes))
        then()


def test_replies_and_one_hots_of_a_run_last_together() -> None:
    """All or none: an answer that was given can be learned, and no mask hides two one-hots after a crash."""
    network = network_of(lasting=True)
    store = MemoryStore()
    journal = OneCommit(store)
    network.actor._records = ActorRecords(store, journal)
    for number in range(6):
        ask(network, KEYS[number], request=f"r{number}")
    network.settle()
    answered = [[change.area for change in changes] for changes in journal.commits if len(changes) > 2]
    assert answered == [["request", "told", "arms"]] * 2 + [[*["request"] * 4, "told", "arms"]]


def test_other_callers_do_not_hold_up_what_waits() -> None:
    """Requests that are asked at once, by callers who never pause: those that may share a run get their turn."""
    network = network_of(seed=4)
    waiting = [ask(network, key) for key in KEYS[:6]]
    with network.handouts:
        others = [network.actor.ask(KEYS[7]) for _ in range(4)]
    for _ in range(3000):
        network.deliver()
        with network.handouts:
            others = [network.actor.ask(KEYS[7]) if one in network.actor.outcomes else one for one in others]
    assert all(decision_of(network, ticket) for ticket in waiting)


@pytest.mark.parametrize(
    "federation",
    [
        Federation(arms=ARMS, features=(2, 2), policy=EpsilonSchedule(1.0, 0.01, decay=1.0)),
        Federation(
            arms=ARMS, features=(2, 2), epsilon=0.5, privacy=ActionBudget(7 * float(np.log(6)), when_spent="explore")
        ),
    ],
    ids=["schedule", "budget that explores"],
)
def test_nothing_is_shared_where_exploration_depends_on_how_many_are_asked_for(federation: Federation) -> None:
    """Batches of each size are counted apart by a schedule, and a budget counts what was asked for in a run that one
    unknown key ends."""
    network = network_of(federation)
    requests = Requests(network)
    tickets = [ask(network, key) for key in KEYS[:9]]
    network.settle()
    assert requests.counts == [1] * 9
    assert all(decision_of(network, ticket) for ticket in tickets)


@pytest.mark.parametrize("arms", [ARMS, 48, 1000])
def test_a_run_has_no_more_keys_than_fit_into_what_is_dealt_at_once(arms: int) -> None:
    actor = MemoryNetwork(small_federation(2, arms=arms)).actor
    one = layout_of(program_text(actor.federation, DECIDE_ONE), 2, 1)
    most = batch_size(10**6, actor._most_joined(None))
    dealt = layout_of(program_text(actor.federation, ProgramId(DECIDE, most)), 2, 1)
    assert step_bytes(dealt) <= max(1.05 * BATCH_BYTES, step_bytes(one))
    assert most == actor._max_batch or 2 * most * step_bytes(one) > BATCH_BYTES


class Again:
    """A request that is made before arms are added or retired, and again after."""

    def __init__(self) -> None:
        self._before = network_of(small_federation(2, arms=4), lasting=True)
        self._records = self._before.actor._records

    def made(self, **asked: object) -> Decision:
        ticket = ask(self._before, KEYS[0], request="named", **asked)
        self._before.settle()
        return decision_of(self._before, ticket)

    def repeated(self, federation: Federation, **asked: object) -> Decision:
        after = network_of(federation, lasting=True)
        after.actor._records = self._records
        return decision_of(after, ask(after, KEYS[0], request="named", **asked))


@pytest.mark.parametrize(
    "asked",
    [{}, {"excluded": [1]}, {"eligible": [0, 1, 2, 3]}, {"eligible": [3]}, {"eligible": [2, 3], "excluded": [2]}],
    ids=["all", "excluded", "all named", "one", "both"],
)
def test_a_request_gets_its_answer_again_after_arms_were_added_or_retired(asked: dict[str, object]) -> None:
    more = Federation(arms=5, features=(2, 2), epsilon=0.25)
    fewer = Federation(arms=4, features=(2, 2), epsilon=0.25, retired=(3,))
    request = Again()
    made = request.made(**asked)
    assert request.repeated(more, **asked) == made
    assert request.repeated(fewer, **asked) == made
    for other in ({"excluded": [0]}, {"eligible": [0, 1]}):
        with pytest.raises(ConflictError, match="other eligible arms"):
            request.repeated(more, **other)


def test_excluded_arms_are_not_chosen_and_cannot_be_all() -> None:
    network = network_of(small_federation(2, arms=ARMS, epsilon=1.0))
    tickets = [ask(network, KEYS[number], excluded=[0, 1, 3]) for number in range(8)]
    network.settle()
    assert {decision_of(network, ticket).arm for ticket in tickets} <= {2, 4}
    for asked in ({"excluded": range(ARMS)}, {"eligible": [1], "excluded": [1]}, {"excluded": [ARMS]}):
        with pytest.raises(InputError):
            ask(network, KEYS[0], request="new", **asked)
    assert network.actor.idle
