"""Values of policies between roles: sums, noise, who hears them, what is counted, and what is refused."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.catalogue import VALUE
from hiddenarm.bandit.changes import changed_federation
from hiddenarm.bandit.decisions import split_number
from hiddenarm.bandit.evaluation import GREEDY, UNIFORM, OpenedValues, PolicyValues, estimated
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import ConfigError, FrameError
from hiddenarm.mpc.material import Seeds
from hiddenarm.privacy.ledger import statement
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums
from hiddenarm.ring.words import encode
from hiddenarm.roles.messages import ACTOR, PROGRAM_NUMBERS, REWARDER, Kind, values_frame
from hiddenarm.roles.values import HeardValues, OwnWindows

LOUD = 1e4
"""A mu at which noise is far below what is counted, so that sums can be compared."""


def evaluated_federation(opened_to: str = "rewarder", window: int = 4, arms: int = 3, **options: Any) -> Federation:
    mu = options.pop("mu", LOUD)
    return Federation(
        arms=arms, features=(2, 2), epsilon=0.5, evaluation=PolicyValues(mu, opened_to, window), **options
    )


def play(network: MemoryNetwork, steps: int) -> list[tuple[int, float]]:
    """Decide and reward, one after another: the numbers of the decisions, and their rewards."""
    version, made = 0, []
    for step in range(steps):
        decision = network.decide(KEYS[step % len(KEYS)], version)
        made.append((int(decision.id.split("-")[1]), float(step % 3 != 1)))
        version = network.reward(decision.id, made[-1][1])
        network.wait(0.1)
    return made


def was_kept(network: MemoryNetwork, number: int) -> bool:
    """Whether the policy's own arm was chosen, as the dealer's coin has it."""
    program, step, _ = split_number(number)
    coins = audit_coins(Seeds(network.epoch_key), network.federation, step, 1, program=program)
    return not coins.explore.item()


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("receiver", ["actor", "rewarder"])
def test_the_receiver_hears_full_windows_and_nobody_else_does(receiver: str, lasting: bool) -> None:
    network = MemoryNetwork(evaluated_federation(receiver), lasting=lasting).start()
    made = play(network, 10)
    values, other = network.actor.values, network.rewarder.values
    if receiver == "rewarder":
        values, other = other, values
    assert other is None
    assert values is not None
    assert (values.windows, values.decisions) == (2, 8)
    assert values.by_policy[GREEDY].noise == pytest.approx(np.sqrt(3 * 2) / LOUD / 4)
    total = values.by_policy[GREEDY].unbiased * 4 + values.by_policy[UNIFORM].unbiased * 4
    rewards = sum(reward for _, reward in made[:8])
    assert total == pytest.approx(rewards, abs=0.01), "every reward of the windows is in one of the two sums"
    for machine in network.parties:
        ledger = machine.records.ledger
        assert (ledger.openings, ledger.bare) == (2, 0)
        assert (ledger.row_opened, ledger.opened) == pytest.approx((LOUD**2, 2 * LOUD**2))
        assert network.epoch(machine.number).health().runs[VALUE].runs == 2
    network.check_nothing_is_left()


@pytest.mark.parametrize("options", [{}, {"arms": 50}, {"privacy": NoisySums(20.0, first_refresh=6)}], ids=str)
def test_sums_are_those_of_the_coins_that_the_dealer_drew(options: dict[str, Any]) -> None:
    """By `step`, by a shuffle, and where lessons are only gathered."""
    network = MemoryNetwork(evaluated_federation(window=5, **options), lasting=True).start()
    made = play(network, 20)
    found = network.rewarder.values
    assert found is not None
    kept = [was_kept(network, number) for number, _ in made]
    own = sum(reward for (_, reward), one in zip(made, kept, strict=True) if one)
    explored = sum(reward for _, reward in made) - own
    assert 0 < sum(kept) < 20
    assert found.by_policy[GREEDY].unbiased == pytest.approx(own / 10, abs=0.01)
    assert found.by_policy[GREEDY].ratio == pytest.approx(own / sum(kept), abs=0.01)
    assert found.by_policy[UNIFORM].ratio == pytest.approx(explored / (20 - sum(kept)), abs=0.01)
    assert found.at_epsilon(0.0) == found.by_policy[GREEDY].unbiased
    assert found.at_epsilon(0.5) == pytest.approx((own + explored) / 20, abs=0.01), "what was earned indeed"


def test_a_lesson_may_fill_several_windows_and_begin_another() -> None:
    network = MemoryNetwork(evaluated_federation(window=3), lasting=True).start()
    decisions = [network.decide(key) for key in KEYS[:8]]
    with network.handouts:
        network.rewarder.teach(*((decision.id, 1.0) for decision in decisions[:7]))
    network.settle()
    assert network.rewarder.values is not None
    assert network.rewarder.values.windows == 2
    totals = network.party(0).records.window_totals()
    assert totals is not None
    assert (totals.windows, totals.version, totals.position) == (2, 1, 6)
    network.reward(decisions[7].id, 1.0)
    assert network.rewarder.values.windows == 2
    assert len(network.epoch(0)._updater._windows._filling.kept) == 2  # type: ignore[union-attr]


def test_noise_has_the_deviation_that_it_says() -> None:
    """Over 300 windows; the bound is beyond four standard errors."""
    network = MemoryNetwork(evaluated_federation(mu=0.5, window=1)).start()
    off: list[float] = []
    version = 0
    for step in range(300):
        before = network.rewarder.values
        decision = network.decide(KEYS[step % len(KEYS)], version)
        version = network.reward(decision.id, 0.0)
        values = network.rewarder.values
        assert values is not None
        off.append(_total(values) - (0.0 if before is None else _total(before)))
    expected = np.sqrt(3) / 0.5
    assert np.std(off) == pytest.approx(expected, rel=0.17)
    assert abs(np.mean(off)) < 4 * expected / np.sqrt(300)


def _total(values: OpenedValues) -> float:
    """The sum of rewards that were not explored."""
    return values.by_policy[GREEDY].unbiased * 0.5 * values.decisions


def test_a_window_takes_so_many_rows_of_a_key_and_no_more() -> None:
    privacy = NoisySums(20.0, first_refresh=6, rows_per_key=2)
    network = MemoryNetwork(evaluated_federation(window=4, privacy=privacy), lasting=True).start()
    version = 0
    for key in [KEYS[0]] * 5 + [KEYS[1]]:
        version = network.reward(network.decide(key, version).id, 1.0)
    assert network.rewarder.values is None
    network.reward(network.decide(KEYS[2], version).id, 1.0)
    assert network.rewarder.values is not None
    assert network.rewarder.values.windows == 1


def test_a_decision_that_is_unlearned_before_its_window_is_full_is_no_part_of_it() -> None:
    network = MemoryNetwork(evaluated_federation(window=3), lasting=True).start()
    decisions = [network.decide(key) for key in KEYS[:4]]
    for decision, reward in zip(decisions[:2], (1.0, 0.0), strict=True):
        network.reward(decision.id, reward)
    with network.handouts:
        network.rewarder.unlearn(decisions[0].id)
    network.settle()
    network.reward(decisions[2].id, 0.0)
    assert network.rewarder.values is None
    for machine in network.parties:
        since = machine.records.lessons(0, machine.records.committed.lessons)
        again = OwnWindows(network.federation, machine.number)
        live = network.epoch(machine.number)._updater._windows
        assert live is not None
        unlearned = {lesson.unlearning.name for lesson in since if lesson.unlearning is not None}
        rewards = [(lesson.number, lesson.rewards) for lesson in since]
        again.resume(None, rewards, unlearned, network.epoch(machine.number)._interactions.__getitem__)
        assert again._filling.names == live._filling.names, "after a crash the same are found in the log"
        assert len(live._filling.names) == 2
    network.reward(decisions[3].id, 0.0)
    values = network.rewarder.values
    assert values is not None
    assert values.by_policy[GREEDY].unbiased + values.by_policy[UNIFORM].unbiased == pytest.approx(0, abs=0.01)


# What is counted


def test_opened_sums_leave_exploration_without_a_bound_and_add_to_that_of_noisy_sums_once() -> None:
    alone = MemoryNetwork(evaluated_federation(mu=0.1, window=1)).start()
    play(alone, 4)
    told = statement(alone.party(0).records.ledger, 3, alone.federation.privacy)
    assert told.headline.vacuous
    assert told.to_dict()["epsilon_total"] is None
    assert told["own_action"].epsilon < 2
    privacy = NoisySums(1.0)
    bounds = []
    for steps in (1, 6):
        noisy = MemoryNetwork(evaluated_federation(mu=privacy.mu, window=1, privacy=privacy)).start()
        play(noisy, steps)
        bounds.append(statement(noisy.party(0).records.ledger, 3, privacy)["dropped"].epsilon)
    assert bounds[0] == bounds[1], "a row is part of one window, however many there are"
    assert 1.4 < bounds[0] < 1.5, "two mechanisms of the same mu"


def test_a_decision_whose_scores_left_their_range_is_counted_before_it_is_told() -> None:
    network = MemoryNetwork(evaluated_federation(), lasting=True).start()
    records, told = network.party(0).records, []
    network.epoch(0)._interactions.left_range(3, lambda: told.append(records.ledger.out_of_range))
    assert told == [3]


# What is refused


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"opened_to": "dealer"}, "actor or rewarder"),
        ({"mu": 0.0}, "positive"),
        ({"mu": 1e9}, "cannot be drawn"),
        ({"window": 0}, r"1\.\.4095"),
        ({"suite": "paper"}, "suite fast"),
        ({"privacy": ActionBudget(50.0)}, "action-budget does not go with"),
        ({"epsilon": 0.0}, "above 0"),
        ({"policy": EpsilonSchedule(0.5)}, "the same for all"),
        ({"policies": "greedy, model"}, "evaluated in lockstep only"),
        ({"policies": "greedy, other"}, "once each"),
        ({"policies": "greedy,greedy"}, "once each"),
    ],
    ids=str,
)
def test_what_cannot_be_evaluated_is_refused_by_name(options: dict[str, Any], why: str) -> None:
    table: dict[str, Any] = {"mu": 0.2, "opened_to": "actor"}
    table |= {name: options.pop(name) for name in ("mu", "opened_to", "window", "policies") if name in options}
    if "policy" not in options:
        options.setdefault("epsilon", 0.1)
    with pytest.raises(ConfigError, match=why):
        Federation(arms=3, features=(2, 2), evaluation=PolicyValues(**table), **options)


def test_neither_what_is_evaluated_nor_epsilon_changes_while_a_model_lives() -> None:
    before = evaluated_federation()
    assert changed_federation(before, arms=4).evaluation == before.evaluation
    with pytest.raises(ConfigError, match=r"epsilon cannot change, from 0\.5 to 0\.25, where values"):
        changed_federation(before, policy=EpsilonGreedy(0.25))
    with pytest.raises(ConfigError, match=r"evaluation cannot change, .*,window=5,"):
        changed_federation(before, evaluation=PolicyValues(LOUD, "rewarder", 5))


def test_values_are_taken_from_parties_by_their_receiver_only() -> None:
    network = MemoryNetwork(evaluated_federation("actor")).start()
    with pytest.raises(FrameError, match="not opened to rewarder"):
        network.inject(party(0), REWARDER, values_frame(1, np.zeros(3, np.uint64)))
    with pytest.raises(FrameError, match="expected 24"):
        network.inject(party(0), ACTOR, values_frame(1, np.zeros(2, np.uint64)))
    network.inject(party(0), ACTOR, values_frame(1, np.zeros(3, np.uint64)))
    with pytest.raises(FrameError, match="two totals"):
        network.inject(party(0), ACTOR, values_frame(1, np.ones(3, np.uint64)))


def test_totals_count_when_all_parties_have_sent_them_in_one_epoch() -> None:
    federation = evaluated_federation()
    told: list[OpenedValues] = []
    heard = HeardValues(federation, [party(0), party(1)], told.append)
    share = encode(np.array([1.0, 1.0, 1.5]), federation.fraction_bits)
    heard.hear(party(0), 2, share)
    heard.begin()
    heard.hear(party(1), 2, share)
    assert heard.values is None
    heard.hear(party(0), 2, share)
    assert heard.values == estimated(federation, 2, share + share)
    assert told[0].by_policy[GREEDY].unbiased == 0.5
    heard.hear(party(0), 0, share)
    heard.hear(party(1), 0, share)
    assert heard.values is None, "all agreed to go back"
    assert len(told) == 1


def test_parties_see_masked_words_of_a_window_and_send_shares_to_the_receiver_alone() -> None:
    """Twenty federations with the same rewards: what party 1 is sent in the round of a window, and what the receiver is
    sent by one party, has no word twice."""
    rounds, shares = [], []
    for seed in range(20):
        network = MemoryNetwork(evaluated_federation(window=2), seed, epoch_key=bytes([seed]) * 32).start()
        frames = _watch(network)
        play(network, 2)
        assert {to for to, kind in frames if kind is Kind.VALUES} == {REWARDER}
        rounds += frames[party(1), Kind.ROUND]
        shares += frames[REWARDER, Kind.VALUES]
    assert len(rounds) == 20
    for words in (rounds, shares):
        found = np.concatenate([np.frombuffer(payload, "<u8") for payload in words if any(payload)])
        assert len(set(found.tolist())) == len(found)
        assert abs(np.mean(found / 2.0**64) - 0.5) < 4 / np.sqrt(12 * len(found))


class _Watched(deque[Any]):
    """A link that notes what is sent of windows."""

    sent: list[Any]

    def append(self, frame: Any) -> None:
        if frame.kind is Kind.VALUES or (frame.kind is Kind.ROUND and frame.program == PROGRAM_NUMBERS[VALUE]):
            self.sent.append((frame.kind, frame.payload))
        super().append(frame)


def _watch(network: MemoryNetwork) -> dict[Any, list[bytes]]:
    """Payloads that party 0 sends of windows, by receiver and kind, as they come."""
    frames: dict[Any, list[bytes]] = {}
    for sender, to in list(network.links):
        if sender == party(0):
            watched = _Watched(network.links[sender, to])
            watched.sent = _Notes(to, frames)
            network.links[sender, to] = watched
    return frames


class _Notes(list[Any]):
    def __init__(self, to: Any, frames: dict[Any, list[bytes]]) -> None:
        super().__init__()
        self._to, self._frames = to, frames

    def append(self, noted: Any) -> None:
        kind, payload = noted
        self._frames.setdefault((self._to, kind), []).append(payload)
