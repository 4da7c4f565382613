"""What is refused changes nothing: the next decision works everywhere and agrees with the references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, small_federation, small_paper_federation
from memory_network import party as party_number

from hiddenarm.bandit.catalogue import DECIDE, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import (
    ConfigError,
    DecisionIdError,
    FeatureError,
    FrameError,
    InputError,
    RefusedKeyError,
    RewardError,
    UnavailableError,
)
from hiddenarm.net.frames import Frame
from hiddenarm.roles.actor import MAX_ASKED, Actor, all_decided
from hiddenarm.roles.client_records import KeyAnswer, MemoryActorRecords, MemoryRewarderRecords
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.messages import ACTOR, MAX_KEY_BYTES, REWARDER, Kind, decide_frame, read_refused, refused_frame
from hiddenarm.roles.party_epoch import LESSON_SECONDS
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.runs import MAX_WAITING
from hiddenarm.roles.updater import KEPT_VERSIONS

Spoil = Callable[[MemoryNetwork, int], None]


def forget_key(network: MemoryNetwork, party: int) -> None:
    del network.tables[party].rows["spoilt"]


def put(value: Any) -> Spoil:
    def spoil(network: MemoryNetwork, party: int) -> None:
        network.tables[party].rows["spoilt"] = value

    return spoil


SPOILS = {
    "missing key": forget_key,
    "nan": put([0.1, np.nan]),
    "infinity": put([np.inf, 0.1]),
    "too short": put([0.1]),
    "too long": put([0.1, 0.2, 0.3]),
    "a matrix": put([[0.1, 0.2], [0.3, 0.4]]),
    "text": put(["0.1", "0.2"]),
    "a number": put(0.5),
    "none": put(None),
    "huge": put([1e308, 1e308]),
}


def spoilt_network(parties: int, seed: int, spoil: Spoil, spoilt: tuple[int, ...]) -> MemoryNetwork:
    network = MemoryNetwork(small_federation(parties), seed=seed).start()
    for number in range(parties):
        network.tables[number].rows["spoilt"] = [0.1, 0.2]
    for number in spoilt:
        spoil(network, number)
    return network


def check_goes_on(network: MemoryNetwork) -> None:
    """A decision, its reward and one more decision work, and everything agrees with the references."""
    decision = network.decide(KEYS[20])
    network.reward(decision.id, 1.0)
    network.decide(KEYS[20])
    network.check_against_references()


@pytest.mark.parametrize("what", SPOILS)
@pytest.mark.parametrize(("parties", "spoilt"), [(2, (0,)), (2, (1,)), (2, (0, 1)), (3, (1,)), (3, (0, 2))])
def test_features_that_a_party_cannot_use_end_one_decision_only(
    what: str, parties: int, spoilt: tuple[int, ...]
) -> None:
    network = spoilt_network(parties, len(what), SPOILS[what], spoilt)
    earlier = network.decide(KEYS[0])
    before = network.shared_model()
    number = network.ask("spoilt")
    network.settle()
    assert isinstance(network.refused[number], FeatureError)
    assert any(f"party {party} refused" in str(network.refused[number]) for party in spoilt)
    assert all(np.array_equal(was, now) for was, now in zip(before, network.shared_model(), strict=True))
    network.reward(earlier.id, 0.75)
    check_goes_on(network)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_refusals_among_decisions_in_flight(parties: int) -> None:
    """Some decisions of many are refused, each by another set of parties; frames of refused runs are not kept."""
    for seed in range(10):
        network = MemoryNetwork(small_federation(parties), seed=seed).start()
        for party in range(parties):
            del network.tables[party].rows[KEYS[party]]
            del network.tables[party].rows[KEYS[parties]]
        asked = [network.ask(key) for key in (*KEYS[: parties + 1], *KEYS[parties + 1 : parties + 4], KEYS[0])]
        network.settle()
        good = asked[parties + 1 : parties + 4]
        assert sorted(network.decisions) == good
        assert sorted(network.refused) == sorted(set(asked) - set(good))
        network.teach(network.decisions[good[1]].id, 1.0)
        network.teach(network.decisions[good[0]].id, 0.5)
        network.settle()
        check_goes_on(network)


def ask_many(network: MemoryNetwork, keys: Sequence[str], after: int = 0) -> list[KeyAnswer]:
    """Ask for many keys at once; what came of each."""
    network.collecting = False
    name = network.actor.ask(*keys, after=after)
    network.settle()
    outcome = network.actor.outcomes.pop(name)
    assert isinstance(outcome, list)
    network.collecting = True
    network.check_nothing_is_left()
    return outcome


def refusals(answers: Sequence[KeyAnswer]) -> list[tuple[int, str, int]]:
    """Position, key, and number of the party that refused it."""
    return [(at, one.key, one.party) for at, one in enumerate(answers) if isinstance(one, RefusedKeyError)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parties", [2, 3])
def test_one_key_without_features_does_not_refuse_the_others(parties: int, seed: int) -> None:
    network = MemoryNetwork(small_federation(parties), seed=seed).start()
    del network.tables[1].rows[KEYS[3]]
    answers = ask_many(network, KEYS[:6])
    assert refusals(answers) == [(3, KEYS[3], 1)]
    assert "party 1 refused key 'user 3'" in str(answers[3])
    made = [one for one in answers if isinstance(one, Decision)]
    assert len({decision.id for decision in made}) == 5
    lesson = network.rewarder.teach(*((decision.id, 1.0) for decision in made))
    network.settle()
    assert network.lessons == {lesson: None}
    with pytest.raises(RefusedKeyError, match="user 3"):
        all_decided(answers)


@pytest.mark.parametrize("seed", range(5))
def test_keys_refused_by_several_parties_are_each_told_with_one_that_refused(seed: int) -> None:
    """Also where one key stands there twice, and one is refused by two."""
    network = MemoryNetwork(small_federation(3), seed=seed).start()
    missing = {0: (KEYS[0], KEYS[4]), 1: (KEYS[2],), 2: (KEYS[4], KEYS[5])}
    for number, keys in missing.items():
        for key in keys:
            del network.tables[number].rows[key]
    answers = ask_many(network, [*KEYS[:6], KEYS[0], KEYS[1]])
    found = refusals(answers)
    assert [(at, key) for at, key, _ in found] == [(at, KEYS[at]) for at in (0, 2, 4, 5)] + [(6, KEYS[0])]
    assert all(key in missing[party] for _, key, party in found)
    assert [isinstance(one, Decision) for one in answers] == [False, True, False, True, False, False, False, True]
    assert len(ask_many(network, KEYS[6:9])) == 3


def test_a_batch_of_which_all_keys_are_refused() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    answers = ask_many(network, ["nobody", "no one"])
    assert [(at, key) for at, key, _ in refusals(answers)] == [(0, "nobody"), (1, "no one")]
    assert network.reward(network.decide(KEYS[20]).id, 1.0) == 1


def test_what_is_asked_again_waits_for_the_same_lessons() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    del network.tables[0].rows[KEYS[1]]
    decision = network.decide(KEYS[0])
    network.collecting = False
    name = network.actor.ask(KEYS[1], KEYS[2], KEYS[3], after=1)
    network.settle()
    assert name not in network.actor.outcomes
    assert network.actor.expected(name)
    network.rewarder.teach((decision.id, 1.0))
    network.settle()
    outcome = network.actor.outcomes[name]
    assert isinstance(outcome, list)
    assert refusals(outcome) == [(0, KEYS[1], 0)]
    assert all(network.versions[step] >= 1 for step in network.versions if step)


def test_peers_are_not_told_which_keys_a_party_refuses() -> None:
    network = MemoryNetwork(small_federation(3)).start()
    del network.tables[0].rows[KEYS[1]]
    sent: list[tuple[object, Frame]] = []
    machine = network.epoch(0)
    send = machine._send
    machine._send = lambda to, frame: (sent.append((to, frame)), send(to, frame))[1]  # type: ignore[func-returns-value]
    ask_many(network, KEYS[:3])
    told = {to: read_refused(frame)[0] for to, frame in sent if frame.kind is Kind.REFUSED}
    assert told == {party_number(1): [], party_number(2): [], ACTOR: [1]}


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", b"\x01\x00", b"\x04\x00" + bytes(8), b"\x01\x00\x03\x00", b"\x02\x00\x01\x00\x01\x00no"],
    ids=repr,
)
def test_a_refusal_of_positions_that_cannot_be(payload: bytes) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    network.actor.ask(*KEYS[:3])
    frame = decide_frame(ProgramId(DECIDE, 3), 0, 0, KEYS[:3])
    with pytest.raises(FrameError, match="REFUSED"):
        network.inject(party_number(0), ACTOR, Frame(Kind.REFUSED, frame.program, 0, frame.step, payload))


def test_a_refusal_without_positions_is_of_the_whole_batch() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    network.collecting = False
    name = network.actor.ask(*KEYS[:3])
    network.inject(party_number(0), ACTOR, refused_frame(ProgramId(DECIDE, 3), 0, "no", retry=True))
    assert isinstance(network.actor.outcomes[name], UnavailableError)


def test_more_refusals_than_may_wait() -> None:
    """A party that hears of refusals before the request must not count them as runs ahead for ever."""
    network = MemoryNetwork(small_federation(3), seed=3).start()
    del network.tables[0].rows[KEYS[0]]
    for _ in range(30):
        for _ in range(20):
            network.ask(KEYS[0])
        network.settle()
        network.check_nothing_is_left()
    assert len(network.refused) == 600


@pytest.mark.parametrize(
    "key",
    ["", "k" * (MAX_KEY_BYTES + 1), "é" * (MAX_KEY_BYTES // 2 + 1), "\ud800", None, 17, b"user 1", ["user 1"]],
    ids=repr,
)
def test_a_key_that_is_none(key: Any) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    with pytest.raises(FeatureError):
        network.ask(key)
    check_goes_on(network)


def test_the_longest_key() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    longest = "é" * (MAX_KEY_BYTES // 2)
    for table in network.tables:
        table.rows[longest] = [0.1, 0.2]
    assert network.decide(longest).arm in range(3)


@pytest.mark.parametrize("after", [MAX_WAITING + 1, 2**40])
def test_a_version_that_nobody_has_taught(after: int) -> None:
    network = MemoryNetwork(small_federation(3)).start()
    number = network.ask(KEYS[0], after)
    network.settle()
    assert isinstance(network.refused[number], InputError)
    assert str(after) in str(network.refused[number])
    check_goes_on(network)


@pytest.mark.parametrize("after", [1, 2, MAX_WAITING])
def test_a_lesson_that_does_not_come_is_waited_for_in_vain(after: int) -> None:
    """What was asked later waits too, but not for long."""
    network = MemoryNetwork(small_federation(3)).start()
    number = network.ask(KEYS[0], after)
    network.settle()
    assert not any(machine.busy for machine in network.parties)
    other = network.ask(KEYS[1])
    network.settle()
    network.wait(LESSON_SECONDS)
    assert not network.refused
    assert not network.decisions
    network.wait(0.001)
    assert isinstance(network.refused[number], UnavailableError)
    assert "has not been taught" in str(network.refused[number])
    assert other in network.decisions
    check_goes_on(network)


def test_the_wait_for_a_lesson_begins_when_everything_before_it_is_done() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    first, second = network.ask(KEYS[0]), network.ask(KEYS[1], after=1)
    for _ in range(3):
        network.deliver((ACTOR, party_number(0)), (ACTOR, party_number(1)))
    network.now += LESSON_SECONDS + 1
    network.settle()
    network.wait(LESSON_SECONDS)
    network.reward(network.decisions[first].id, 1.0)
    assert second in network.decisions
    check_goes_on(network)


def test_a_request_that_one_party_waits_for_and_another_refuses() -> None:
    """At party 0 it overtakes the rewards, and needs too many of them; party 1 would wait. Both let it go."""
    network = MemoryNetwork(small_federation(2)).start()
    decision = network.decide(KEYS[0])
    network.teach(decision.id, 1.0)
    number = network.ask(KEYS[1], after=MAX_WAITING + 1)
    while network.deliver((REWARDER, party_number(1))):
        pass
    while network.deliver((ACTOR, party_number(1))):
        pass
    assert network.waiting_at(1)[2] == 1
    while network.deliver((ACTOR, party_number(0))):
        pass
    network.settle()
    assert number in network.refused
    check_goes_on(network)


def test_an_actor_does_not_ask_without_end() -> None:
    """Parties would cut it off."""
    network = MemoryNetwork(small_federation(2), stock=256).start()
    asked = [network.ask(KEYS[0]) for _ in range(MAX_ASKED)]
    with pytest.raises(UnavailableError, match="wait already"):
        network.ask(KEYS[0])
    network.settle()
    assert set(asked) == set(network.decisions)
    check_goes_on(network)


@pytest.mark.parametrize("after", [-1, 2**64, 10**30, 1.5, "3", None, True])
def test_a_version_that_is_none(after: Any) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    with pytest.raises(InputError, match="after"):
        network.ask(KEYS[0], after)
    check_goes_on(network)


def test_a_version_that_is_no_longer_kept_is_refused() -> None:
    """Decisions queue behind one another while the model moves on: too old a version is refused, not guessed."""
    network = MemoryNetwork(small_federation(2), stock=256).start()
    asked = [network.ask(KEYS[0]) for _ in range(KEPT_VERSIONS + 2)]
    network.settle()
    late = network.ask(KEYS[1])
    held = {link: queue.copy() for link, queue in network.links.items() if queue}
    for link in held:
        network.links[link].clear()
    for number in asked:
        network.teach(network.decisions[number].id, 1.0)
    network.settle()
    for link, queue in held.items():
        network.links[link].extend(queue)
    network.settle()
    assert network.versions[late] == 0
    assert "no longer kept" in str(network.refused[late])
    check_goes_on(network)


@pytest.mark.parametrize("reward", [-0.01, 1.01, np.nan, np.inf, -np.inf, "1", b"1", None, [], [1.0, 0.0], 10**400, 1j])
def test_a_reward_that_is_none(reward: Any) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    decision = network.decide(KEYS[0])
    with pytest.raises(RewardError):
        network.rewarder.teach((decision.id, reward))
    network.reward(decision.id, 0.5)
    check_goes_on(network)


@pytest.mark.parametrize(
    "spell",
    [
        lambda _: "",
        lambda _: "17",
        lambda _: None,
        lambda _: 17,
        lambda real: real.encode(),
        lambda real: real + "0" * 18,
        lambda real: real[:-1],
        lambda real: real.upper().replace("-", "_"),
        lambda real: real + "\n",
        lambda real: real[:-17],
        lambda real: real.replace("-000000-", "--00000-"),
        lambda real: real.replace("-000000-", "-00000٠-"),
        lambda real: real.replace("-000000-", "-000001-"),
        lambda real: real.replace("-000000-", "-0000000-") + "0",
        lambda real: real[:-1] + ("0" if real[-1] != "0" else "1"),
        lambda real: ("0" if real[0] != "0" else "1") + real[1:],
    ],
)
def test_an_id_that_is_none_or_of_another_epoch(spell: Callable[[str], Any]) -> None:
    network = MemoryNetwork(small_federation(2)).start()
    decision = network.decide(KEYS[0])
    with pytest.raises(DecisionIdError):
        network.rewarder.teach((spell(decision.id), 1.0))
    network.reward(decision.id, 0.5)
    check_goes_on(network)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("number", [7, 999_999])
def test_an_id_of_a_decision_never_made(parties: int, number: int) -> None:
    network = MemoryNetwork(small_federation(parties)).start()
    decision = network.decide(KEYS[0])
    with pytest.raises(DecisionIdError, match=f"decision {number} was never made"):
        network.reward(network.id_of(number), 1.0)
    network.reward(decision.id, 0.5)
    check_goes_on(network)


def test_a_repeated_id() -> None:
    network = MemoryNetwork(small_federation(2)).start()
    decision = network.decide(KEYS[0])
    network.reward(decision.id, 0.5)
    with pytest.raises(DecisionIdError, match="rewarded before"):
        network.reward(decision.id, 0.5)
    check_goes_on(network)


def test_the_id_of_a_refused_decision() -> None:
    network = spoilt_network(2, 0, forget_key, (1,))
    network.decide(KEYS[0])
    refused = network.ask("spoilt")
    network.settle()
    with pytest.raises(DecisionIdError, match="refused"):
        network.reward(network.id_of(refused), 1.0)
    check_goes_on(network)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_a_guessed_id_of_a_decision_in_flight_is_learned_by_all_or_by_none(parties: int) -> None:
    """The reward overtakes the decision at some parties only. They must still agree, and go on."""
    learned = refused = 0
    for seed in range(16):
        network = MemoryNetwork(small_federation(parties), seed=seed).start()
        first = network.decide(KEYS[0])
        number = network.ask(KEYS[1])
        for _ in range(seed * parties // 5):
            network.deliver()
        lesson = network.teach(network.id_of(number), 1.0)
        second = network.teach(first.id, 0.25)
        network.settle()
        assert network.lessons[second] is None
        learned += network.lessons[lesson] is None
        refused += isinstance(network.lessons[lesson], DecisionIdError)
        network.decide(KEYS[2])
        later = network.ask(KEYS[3], after=2)
        network.settle()
        assert later in network.decisions
        check_goes_on(network)
    assert learned + refused == 16
    assert min(learned, refused) > 2, (learned, refused)


@pytest.mark.parametrize("parties", [2, 3])
def test_a_guessed_id_of_a_decision_that_is_being_refused(parties: int) -> None:
    """A lesson that waits for the end of a decision must not wait for ever when the decision is refused."""
    for seed in range(16):
        network = spoilt_network(parties, seed, forget_key, (parties - 1,))
        number = network.ask("spoilt")
        for _ in range(seed // 2):
            network.deliver()
        lesson = network.teach(network.id_of(number), 1.0)
        network.settle()
        assert isinstance(network.lessons[lesson], DecisionIdError)
        check_goes_on(network)


@pytest.mark.parametrize("role", [Actor, Rewarder])
def test_a_role_that_could_ask_for_more_at_once_than_the_federation_holds_is_refused(role: Any) -> None:
    """Numbers were checked for the federation's `max_batch`: no role is configured with more."""
    federation = Federation(arms=2, features=(1, 1), epsilon=0.1, max_batch=4)
    records = MemoryActorRecords() if role is Actor else MemoryRewarderRecords()
    options = {"records": records, "peer_loss": PeerLoss.ENDS_FEDERATION}
    with pytest.raises(ConfigError, match=f"max_batch of {role.me} is 5, and that of the federation is 4"):
        role(federation, lambda *_: None, max_batch=5, **options)
    assert role(federation, lambda *_: None, max_batch=4, **options)
    assert role(small_paper_federation(2), lambda *_: None, max_batch=5, **options), "that suite has no such number"
