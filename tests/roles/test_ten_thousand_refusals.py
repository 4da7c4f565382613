"""Ten thousand requests that cannot be: each is refused by a typed error, uses no randomness and changes nothing."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, small_federation

from hiddenarm.errors import DecisionIdError, FeatureError, InputError, RewardError
from hiddenarm.mpc.evaluation import DealtWords, ProgramMaterial
from hiddenarm.roles.messages import MAX_KEY_BYTES

FEATURE_CASES, REWARD_CASES, ID_CASES, REQUEST_CASES = 1_000, 3_000, 3_000, 3_000
GARBAGE: list[Any] = [None, [], {}, b"", object(), 1j, "x", "", float("nan"), math.inf, -math.inf, 10**400, ["0.5"]]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """How often each step of each party's material was taken."""
    counts: Counter[tuple[int, int]] = Counter()
    take = ProgramMaterial.take

    def counting(self: ProgramMaterial, step: int) -> DealtWords:
        counts[id(self), step] += 1
        return take(self, step)

    monkeypatch.setattr(ProgramMaterial, "take", counting)
    return counts


def state(network: MemoryNetwork) -> str:
    """A digest of everything that parties keep: shares of the model, versions, decisions and what waits."""
    digest = hashlib.sha256()
    for number, machine in enumerate(network.epochs):
        for words in machine._updater.state.values():
            digest.update(np.ascontiguousarray(words).tobytes())
        digest.update(
            repr(
                (machine._updater.version, sorted(machine._interactions._at_hand), network.waiting_at(number))
            ).encode()
        )
    return digest.hexdigest()


def bad_reward(choice: random.Random) -> Any:
    return choice.choice(
        [
            choice.uniform(1.0001, 1e6),
            -choice.uniform(1e-9, 1e6),
            choice.choice(GARBAGE),
            f"{choice.random()}",
            10 ** choice.randint(1, 300),
        ]
    )


def bad_id(choice: random.Random, real: str) -> Any:
    """Anything but `real`: garbage, a flipped letter, another number, a piece, an expired epoch."""
    at = choice.randrange(len(real))
    flipped = real[:at] + choice.choice("0123456789abcdefx-") + real[at + 1 :]
    other = choice.choice(
        [flipped, real[:at], real + flipped[at], real.upper() + "A", f"{choice.randrange(10**6):06d}"]
    )
    return choice.choice(GARBAGE) if other == real or choice.random() < 0.2 else other


def bad_features(choice: random.Random) -> Any:
    wrong = choice.choice([math.nan, math.inf, -math.inf, 1e308 * choice.choice([1, -1]), "0.1", None, 1j])
    row: list[Any] = [choice.uniform(-1, 1), wrong]
    choice.shuffle(row)
    if wrong in (1e308, -1e308):
        row = [wrong, wrong]
    return choice.choice([row, row[:1], [*row, 0.1], [row, row], None, "text", wrong])


def test_rewards_that_are_none(taken: Counter[tuple[int, int]]) -> None:
    network, choice = MemoryNetwork(small_federation(2)).start(), random.Random(1)
    decision = network.decide(KEYS[0])
    before, used = state(network), dict(taken)
    for _ in range(REWARD_CASES):
        with pytest.raises(RewardError):
            network.rewarder.teach((decision.id, bad_reward(choice)))
        assert not any(network.links.values())
    assert (state(network), dict(taken)) == (before, used)
    network.reward(decision.id, 0.5)
    network.check_against_references()


def test_ids_that_are_unknown_or_of_another_epoch(taken: Counter[tuple[int, int]]) -> None:
    network, choice = MemoryNetwork(small_federation(2)).start(), random.Random(2)
    expired = MemoryNetwork(small_federation(2), seed=1).start().decide(KEYS[0]).id
    decision = network.decide(KEYS[0])
    before, used = state(network), dict(taken)
    for case in range(ID_CASES):
        with pytest.raises(DecisionIdError):
            network.rewarder.teach((expired if case % 10 == 0 else bad_id(choice, decision.id), 1.0))
        assert not any(network.links.values())
    assert (state(network), dict(taken)) == (before, used)
    network.reward(decision.id, 0.5)
    network.check_against_references()


def test_requests_that_are_none(taken: Counter[tuple[int, int]]) -> None:
    network, choice = MemoryNetwork(small_federation(2)).start(), random.Random(3)
    before, used = state(network), dict(taken)
    for case in range(REQUEST_CASES):
        key: Any = choice.choice([*GARBAGE[:6], "", "k" * (MAX_KEY_BYTES + 1 + choice.randrange(999)), "\ud800", case])
        after: Any = choice.choice([-1 - choice.randrange(99), 2**64 + case, 1.5, "3", None, True, math.nan])
        with pytest.raises(InputError):
            network.ask(*((key, 0) if case % 2 else (KEYS[case % 40], after)))
        assert not any(network.links.values())
    assert (state(network), dict(taken)) == (before, used)
    network.decide(KEYS[0])
    network.check_against_references()


def test_features_that_cannot_be_used(taken: Counter[tuple[int, int]]) -> None:
    """The party that has them takes no word for the decision; no step is ever taken twice; no model, no decision
    changes."""
    network, choice = MemoryNetwork(small_federation(2), stock=64).start(), random.Random(4)
    first = network.decide(KEYS[0])
    before = state(network)
    materials = [{id(line.material) for line in machine._supply._lines.values()} for machine in network.epochs]
    for case in range(FEATURE_CASES):
        spoilt = choice.randrange(2)
        rows = network.tables[spoilt].rows
        rows.pop("spoilt", None)
        if case % 10:
            rows["spoilt"] = bad_features(choice)
        network.tables[1 - spoilt].rows["spoilt"] = [0.1, 0.2]
        used = {key for key in taken if key[0] in materials[spoilt]}
        number = network.ask("spoilt")
        network.settle()
        assert isinstance(network.refused[number], FeatureError)
        assert {key for key in taken if key[0] in materials[spoilt]} == used
    assert state(network) == before
    assert set(taken.values()) == {1}
    network.reward(first.id, 0.5)
    network.decide(KEYS[1])
    network.check_against_references()
    assert FEATURE_CASES + REWARD_CASES + ID_CASES + REQUEST_CASES == 10_000
