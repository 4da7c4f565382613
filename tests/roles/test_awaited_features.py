"""Features that must be waited for: the decision waits for them, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from memory_network import MemoryNetwork, small_federation

from hiddenarm.errors import FeatureError, UnavailableError
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import ACTOR
from hiddenarm.roles.party_epoch import NO_FEATURES, NO_SOURCE, Found


class Desk:
    """Look-ups of party 0 that are answered by hand."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.waiting: list[tuple[list[str], Callable[[list[Found]], None]]] = []
        party = network.party(0)
        self._words: Callable[[str], Words] = party._setup.own_words
        party._setup = replace(party._setup, look_up=self.look_up)

    def look_up(self, keys: Sequence[str], then: Callable[[list[Found]], None]) -> None:
        self.waiting.append((list(keys), then))

    def answer(self, *instead: Found) -> None:
        keys, then = self.waiting.pop(0)
        with self.network.handouts:
            then(list(instead) or [self._words(key) for key in keys])
        self.network.settle()


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(small_federation(3), lasting=True)


@pytest.fixture
def desk(network: MemoryNetwork) -> Desk:
    desk = Desk(network)
    network.start()
    return desk


def test_a_decision_waits_for_its_features_and_lessons_do_not(network: MemoryNetwork, desk: Desk) -> None:
    first = network.ask("user 0")
    network.settle()
    assert first not in network.decisions
    desk.answer()
    assert first in network.decisions
    second = network.ask("user 1")
    network.settle()
    network.reward(network.id_of(first), 1.0)
    assert [network.version_at(number) for number in range(3)] == [1, 1, 1]
    assert second not in network.decisions
    assert network.epoch(0).busy
    desk.answer()
    assert second in network.decisions
    assert not network.epoch(0).busy


def test_decisions_are_those_of_features_at_hand() -> None:
    arms = []
    for waits in (False, True):
        network = MemoryNetwork(small_federation(2), lasting=True)
        desk = Desk(network) if waits else None
        network.start()
        chosen = []
        for number in range(6):
            asked = network.ask(f"user {number % 3}")
            network.settle()
            if desk is not None:
                desk.answer()
            chosen.append(network.decisions[asked].arm)
            network.reward(network.id_of(asked), number % 2)
        arms.append(chosen)
    assert arms[0] == arms[1]


def test_later_features_may_come_first(network: MemoryNetwork, desk: Desk) -> None:
    asked = [network.ask(f"user {number}") for number in range(3)]
    network.settle()
    assert len(desk.waiting) == 3
    desk.waiting.reverse()
    desk.answer()
    assert not network.decisions
    desk.waiting.reverse()
    desk.answer()
    desk.answer()
    assert set(asked) <= set(network.decisions)


def test_a_source_that_fails_is_named_and_nothing_else_told(network: MemoryNetwork, desk: Desk) -> None:
    asked = [network.ask("user 0"), network.ask("user 1"), network.ask("user 2")]
    network.settle()
    desk.answer(UnavailableError("s3cr3t"))
    desk.answer(FeatureError("s3cr3t"))
    desk.answer()
    unavailable, refused = network.refused[asked[0]], network.refused[asked[1]]
    assert isinstance(unavailable, UnavailableError)
    assert str(unavailable) == f"party 0 refused the decision: {NO_SOURCE}"
    assert isinstance(refused, FeatureError)
    assert NO_FEATURES in str(refused)
    assert "s3cr3t" not in f"{unavailable}{refused}"
    assert asked[2] in network.decisions


def test_what_is_found_after_the_epoch_begins_nothing(network: MemoryNetwork, desk: Desk) -> None:
    network.ask("user 0")
    network.settle()
    party, epoch = network.party(0), network.epoch(0)
    party.on_lost(ACTOR, "gone", False)
    assert not party.active
    keys, then = desk.waiting.pop()
    with network.handouts:
        then([np.zeros(network.federation.features[0], np.uint64)])
    assert len(epoch._runs) == 0
    assert keys == ["user 0"]
