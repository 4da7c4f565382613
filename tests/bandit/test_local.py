"""The federation in one process: bad input raises a typed error and consumes nothing."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from hiddenarm import Decision, HiddenArmError, LocalFederation
from hiddenarm.bandit import lockstep
from hiddenarm.bandit.answers import Answers, arms_in, first_arms_in
from hiddenarm.bandit.decisions import DecisionIds, new_epoch
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ConfigError, DecisionIdError, FeatureError, NoArmError, RewardError
from hiddenarm.ring.words import Words
from support import fixed_key

GOOD = ([0.1, -0.2], [0.3])


@pytest.fixture
def federation() -> LocalFederation:
    """Two parties with two features and one; one interaction learnt and one decision waiting."""
    made = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    made.reward(made.decide(GOOD).id, 1.0)
    made.decide(GOOD)
    return made


def state(federation: LocalFederation) -> list[Any]:
    """Everything that learning and deciding move: all shares, all counters."""
    lockstep = federation._lockstep
    return [
        [words.tolist() for state in lockstep.states for words in state.values()],
        lockstep.decisions,
        lockstep._lessons,
        repr(lockstep.schedule),
        sorted(lockstep.pending),
        repr(lockstep.meter),
    ]


def waiting(federation: LocalFederation) -> str:
    return federation._ids.id_of(1)


def assert_unmoved(federation: LocalFederation, before: list[Any]) -> None:
    """The state is the same, and the next decision and reward still work with the next numbers."""
    assert state(federation) == before
    decision = federation.decide(GOOD)
    assert decision.id == federation._ids.id_of(2)
    federation.reward(waiting(federation), 0.5)
    assert federation._lockstep.interactions_learned == 2


@pytest.mark.parametrize(
    "contexts",
    [
        ([0.1, nan], [0.3]),
        ([0.1, inf], [0.3]),
        ([-inf, 0.1], [0.3]),
        ([0.1, 0.2], [nan]),
        ([0.1], [0.3]),
        ([0.1, 0.2, 0.3], [0.3]),
        ([0.1, 0.2], []),
        ([[0.1, 0.2]], [0.3]),
        (0.1, [0.3]),
        ([0.1, 0.2],),
        ([0.1, 0.2], [0.3], [0.4]),
        (),
        (["a", "b"], [0.3]),
        (["0.1", "0.2"], [0.3]),
        ("ab", [0.3]),
        ([None, 0.2], [0.3]),
        ([[0.1], [0.2, 0.3]], [0.3]),
        ([{}, 0.2], [0.3]),
        ([1j, 0.2], [0.3]),
        (np.array([1j, 0.2]), [0.3]),
        ([10**400, 0.2], [0.3]),
        ([1e308, 1e308], [0.3]),
    ],
    ids=str,
)
def test_bad_contexts_are_refused_and_consume_nothing(federation: LocalFederation, contexts: Any) -> None:
    before = state(federation)
    with pytest.raises(FeatureError):
        federation.decide(contexts)
    assert_unmoved(federation, before)


@pytest.mark.parametrize("reward", [-0.001, 1.001, nan, inf, -inf, "a", "0.5", b"1", None, [], [0.1, 0.2], 1j, 10**400])
def test_bad_rewards_are_refused_and_consume_nothing(federation: LocalFederation, reward: Any) -> None:
    before = state(federation)
    with pytest.raises(RewardError):
        federation.reward(waiting(federation), reward)
    assert_unmoved(federation, before)


ZEROS = "0" * 16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ids: ids.id_of(0), "rewarded before"),
        (lambda ids: ids.id_of(2), "never made"),
        (lambda ids: ids.id_of(10**14), "never made"),
        (lambda ids: f"{ids.epoch}-000001-{ZEROS}", "never made"),
        (lambda ids: ids.id_of(2).replace("000002", "000001"), "never made"),
        (lambda _: f"0123456789ab-000001-{ZEROS}", "belongs to epoch 0123456789ab"),
        (lambda ids: ids.id_of(1).replace("-000001-", "-1-"), "not the id"),
        (lambda ids: ids.id_of(1).replace("-000001-", "-0000001-"), "not the id"),  # another spelling of decision 1
        (lambda ids: ids.id_of(1).replace("-000001-", "-00000a-"), "not the id"),
        (lambda ids: ids.id_of(1).replace("-000001-", "--00001-"), "not the id"),
        (lambda ids: ids.id_of(1) + "\n", "not the id"),
        (lambda ids: ids.id_of(1).replace("000001", "00000\u0661"), "not the id"),
        (lambda ids: ids.id_of(1)[:-1], "not the id"),
        (lambda ids: ids.epoch, "not the id"),
        (lambda _: "", "not the id"),
        (lambda _: None, "not the id"),
        (lambda _: 1, "not the id"),
        (lambda ids: ids.id_of(1).encode(), "not the id"),
    ],
)
def test_bad_ids_are_refused_and_consume_nothing(federation: LocalFederation, make: Any, message: str) -> None:
    before = state(federation)
    with pytest.raises(DecisionIdError, match=message):
        federation.reward(make(federation._ids), 0.5)
    assert_unmoved(federation, before)


def test_a_reward_counts_once(federation: LocalFederation) -> None:
    federation.reward(waiting(federation), 0.0)
    before = state(federation)
    with pytest.raises(DecisionIdError, match="rewarded before"):
        federation.reward(waiting(federation), 1.0)
    assert state(federation) == before


def test_ids_of_one_federation_mean_nothing_to_another(federation: LocalFederation) -> None:
    other = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    decision = other.decide(GOOD)
    with pytest.raises(DecisionIdError, match="belongs to epoch"):
        federation.reward(decision.id, 1.0)


@pytest.mark.parametrize("number", [0, 1, 17, 999_999, 1_000_000, 123_456_789_012])
def test_ids_there_and_back(number: int) -> None:
    ids = DecisionIds(new_epoch(), b"key")
    assert ids.number_of(ids.id_of(number)) == number
    with pytest.raises(DecisionIdError, match="never made"):
        DecisionIds(ids.epoch, b"another key").number_of(ids.id_of(number))


def test_the_readme_example() -> None:
    federation = LocalFederation(arms=10, features=[12, 8], epsilon=0.1)
    decision = federation.decide([np.full(12, 0.1), np.full(8, -0.1)])
    assert isinstance(decision, Decision)
    assert 0 <= decision.arm < 10
    federation.reward(decision.id, 1.0)


def test_options_reach_the_federation() -> None:
    made = LocalFederation(arms=2, features=[1, 1], epsilon=0.0, norms=[0.5, 0.5], ridge=2.0, fraction_bits=16)
    assert (made.federation.norms, made.federation.ridge, made.federation.fraction_bits) == ((0.5, 0.5), 2.0, 16)
    made.reward(made.decide([[0.5], [0.5]]).id, 1.0)


def test_the_number_of_features_must_be_that_of_each_party() -> None:
    for features in (5, 2.5, None):
        with pytest.raises(
            ConfigError, match=r"features must have the number of features of each party, such as \[3, 2\]"
        ):
            LocalFederation(arms=2, features=features, epsilon=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "count"), [([0.1], 1), ([0.1, 0.2, 0.3], 3), ([], 0)])
def test_a_wrong_number_of_features_is_told_as_it_was_given(
    federation: LocalFederation, given: list[float], count: int
) -> None:
    with pytest.raises(FeatureError, match=f"^party 0 declared 2 features but gave {count}$"):
        federation.decide([given, [0.3]])


def test_the_oldest_decisions_are_forgotten_and_named_so() -> None:
    made = LocalFederation(arms=2, features=[2, 1], epsilon=0.1, max_pending=3)
    ids = [made.decide([[0.1, 0.2], [0.3]]).id for _ in range(3)]
    made.reward(ids[0], 1.0)
    ids += [made.decide([[0.1, 0.2], [0.3]]).id for _ in range(2)]
    assert sorted(made._lockstep.pending) == [2, 3, 4]
    before = state(made)
    with pytest.raises(DecisionIdError, match=f"^decision {ids[1]} is forgotten: only the newest 3 decisions"):
        made.reward(ids[1], 1.0)
    with pytest.raises(DecisionIdError, match="was rewarded before"):
        made.reward(ids[0], 1.0)
    assert state(made) == before
    for identifier in reversed(ids[2:]):
        made.reward(identifier, 0.5)
    assert made._lockstep.interactions_learned == 4


def test_pending_decisions_have_a_bound_unless_one_is_given() -> None:
    assert LocalFederation(arms=2, features=[2, 1], epsilon=0.1)._lockstep._max_pending == 100_000
    with pytest.raises(ConfigError, match="max_pending must be at least 1"):
        LocalFederation(arms=2, features=[2, 1], epsilon=0.1, max_pending=0)


class NeverListed(OrderedDict[int, Any]):
    """Decisions that can be looked up but not gone through."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a reward went through all pending decisions")


def test_a_reward_does_not_go_through_all_pending_decisions(federation: LocalFederation) -> None:
    lockstep = federation._lockstep
    lockstep._pending = NeverListed(lockstep._pending.items())
    federation.reward(waiting(federation), 1.0)
    with pytest.raises(DecisionIdError, match="rewarded before"):
        federation.reward(waiting(federation), 1.0)


def test_errors_show_no_feature_and_no_reward(federation: LocalFederation) -> None:
    for call in (
        lambda: federation.decide([[0.123456, nan], [0.3]]),
        lambda: federation.decide([[0.123456], [0.3]]),
        lambda: federation.reward(waiting(federation), 123456.5),
    ):
        with pytest.raises(HiddenArmError) as caught:
            call()
        assert "123456" not in str(caught.value)


def everything_in(thing: object, seen: dict[int, object]) -> dict[int, object]:
    """All objects of this package that hang on another, by identity."""
    if id(thing) in seen:
        return seen
    if type(thing).__module__.startswith("hiddenarm"):
        seen[id(thing)] = thing
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        held = [getattr(thing, name) for name in slots if hasattr(thing, name)] + list(
            getattr(thing, "__dict__", {}).values()
        )
    elif isinstance(thing, dict):
        held = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        held = list(thing)
    else:
        held = []
    for part in held:
        everything_in(part, seen)
    return seen


def test_nothing_in_a_federation_shows_a_share_or_a_key(federation: LocalFederation) -> None:
    lockstep = federation._lockstep
    things = list(everything_in(federation, {}).values())
    kinds = {type(thing).__name__ for thing in things}
    assert kinds >= {
        "Lockstep",
        "State",
        "Rewarded",
        "Interaction",
        "Seeds",
        "Stream",
        "ProgramMaterial",
        "DecisionIds",
    }
    keys = (lockstep._seeds.epoch_key, federation._ids.key)
    secret = {shown for key in keys for shown in (key.hex(), repr(key)[2:-1])}
    for state in lockstep.states:
        words = (*state["inverses"].ravel(), *state["weights"].ravel())
        large = [int(word) for word in words if word > 2**40]
        secret |= {str(word) for word in large} | {f"{word:x}" for word in large}
    assert len(secret) > 20
    for thing in things:
        shown = repr(thing) + str(thing)
        assert not [text for text in secret if text in shown]


def test_two_arms_that_look_chosen_are_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at an actor between organisations. The federation goes on: asked again, it decides, and learns."""
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "arms_in", ambiguous_arms)
        with pytest.raises(NoArmError, match="two arms look chosen"):
            federation.decide(GOOD, eligible=[1, 2])
        with pytest.raises(NoArmError):
            federation.decide_many([np.zeros((4, 2)), np.zeros((4, 1))])
    decision = federation.decide(GOOD, eligible=[1, 2])
    assert decision.arm in (1, 2)
    federation.reward(decision.id, 1.0)
    assert federation._lockstep.interactions_learned == 1


def test_many_replicates_take_the_first_eligible_arm_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arm 0 was taken, though it may not be eligible."""
    runs = Lockstep(Federation(3, (2, 1), epsilon=0.5), fixed_key("two arms"), replicates=5)
    monkeypatch.setattr(lockstep, "arms_in", ambiguous_arms)
    monkeypatch.setattr(lockstep, "first_arms_in", lambda answers, shares, may: first_arms_in(answers, ZERO, may))
    _, arms = runs.decide([np.zeros((5, 2)), np.zeros((5, 1))], [1, 2])
    assert arms.tolist() == [1] * 5


ZERO = [np.zeros(3, np.uint64)]
"""Answers in which all eligible arms look chosen."""


def ambiguous_arms(answers: Answers, shares: Any, eligible: Words) -> Any:
    return arms_in(answers, [np.zeros_like(words) for words in shares], eligible)
