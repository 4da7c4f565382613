"""Requests that name the arms which may be chosen: in every program, in batches, and under a name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, party, small_federation, small_paper_federation

from hiddenarm.bandit.answers import eligible_words
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import ClientError, InputError
from hiddenarm.net.frames import Frame
from hiddenarm.roles.actor import Asked
from hiddenarm.roles.messages import ACTOR, Kind, bitmap_words, eligible_bitmap, read_decide

ARMS = 5


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(small_federation(2, arms=ARMS, epsilon=0.5)).start()


def decided(network: MemoryNetwork, *keys: str, **asked: Any) -> list[Decision]:
    network.collecting = False
    with network.handouts:
        ticket = network.actor.ask(*keys, **asked)
    network.settle()
    outcome = network.actor.outcomes.pop(ticket)
    assert isinstance(outcome, list)
    return [answer for answer in outcome if isinstance(answer, Decision)]


def under_way(network: MemoryNetwork) -> list[Frame]:
    return [frame for frame in network.links[ACTOR, party(0)] if frame is not None and frame.kind is Kind.DECIDE]


@pytest.mark.parametrize("arms", [ARMS, 49], ids=["payloads", "shuffle"])
@pytest.mark.parametrize("parties", [2, 3])
def test_only_eligible_arms_are_chosen(arms: int, parties: int) -> None:
    """Explored or not, singly, in batches, and by `step`."""
    network = MemoryNetwork(small_federation(parties, arms=arms, epsilon=0.5)).start()
    chosen: dict[int, set[int]] = {1: set(), 2: set()}
    for version in range(12):
        (decision,) = decided(network, KEYS[version], after=version, eligible=[1, 4])
        with network.handouts:
            network.rewarder.teach((decision.id, 1.0))
        network.settle()
        chosen[1].add(decision.arm)
    for _ in range(6):
        chosen[2] |= {decision.arm for decision in decided(network, *KEYS[:2], eligible=(4, 1))}
    assert chosen == {1: {1, 4}, 2: {1, 4}}


def test_one_eligible_arm_is_the_arm(network: MemoryNetwork) -> None:
    for arm in range(ARMS):
        (decision,) = decided(network, KEYS[arm], eligible={arm})
        assert decision.arm == arm


def test_the_set_travels_as_a_bitmap_and_all_arms_as_none(network: MemoryNetwork) -> None:
    network.actor.ask(KEYS[0], eligible=[0, 3])
    network.actor.ask(KEYS[0], eligible=range(ARMS))
    network.actor.ask(KEYS[0])
    some, whole, none = (read_decide(frame, ARMS)[2].bitmaps for frame in under_way(network))
    assert some == [bytes([0b01001])]
    assert whole == none == []
    assert np.flatnonzero(bitmap_words(eligible_bitmap(100, [0, 8, 99]), 100)).tolist() == [0, 8, 99]


@pytest.mark.parametrize(
    ("eligible", "text"),
    [
        ([], "no arm is eligible"),
        ([0, 0], "named twice"),
        ([ARMS], "from 0 to 4"),
        ([-1], "from 0 to 4"),
        ([True], "whole numbers"),
        (["1"], "whole numbers"),
        ([0.0], "whole numbers"),
    ],
    ids=repr,
)
def test_a_set_that_cannot_be_is_refused_before_anything_is_sent(
    network: MemoryNetwork, eligible: list[Any], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        network.actor.ask(KEYS[0], eligible=eligible, request="named")
    assert not under_way(network)
    assert network.actor.idle
    (decision,) = decided(network, KEYS[0], request="named")
    assert decision.id.split("-")[1] == "000000"


def test_a_suite_without_eligible_arms_says_so() -> None:
    network = MemoryNetwork(small_paper_federation(2)).start()
    with pytest.raises(InputError, match="suite paper takes no eligible arms"):
        network.actor.ask(KEYS[0], eligible=[0])
    network.actor.ask(KEYS[0])
    (frame,) = under_way(network)
    named = frame._replace(round=1, payload=frame.payload[:8] + b"\1" + frame.payload[8:])
    with pytest.raises(ClientError, match="does not take"):
        network.inject(ACTOR, party(0), named)


def test_a_named_request_is_the_same_with_the_same_set_only() -> None:
    network = MemoryNetwork(small_federation(2, arms=ARMS), lasting=True).start()
    first = decided(network, KEYS[0], eligible=[2, 3], request="named")
    assert decided(network, KEYS[0], eligible=[3, 2], request="named") == first
    for other in (None, [2], [2, 4]):
        with pytest.raises(InputError, match="other eligible arms"):
            network.actor.ask(KEYS[0], eligible=other, request="named")


def test_the_digest_without_a_set_is_that_of_earlier_versions() -> None:
    whole = Asked(("ada", "bo"), 3)
    assert whole.digest.hex() == "4fdfed7d93b09edcf2b61075253bf035c8bac5584a631ebecaacca866c2a8514"
    digests = {Asked(("ada", "bo"), 3, eligible).digest for eligible in (None, frozenset({0}), frozenset({1}))}
    digests |= {Asked(("ada",), 3).digest, Asked(("ada", "bo"), 4).digest}
    assert len(digests) == 5


def test_keys_that_are_asked_for_again_keep_the_set(network: MemoryNetwork) -> None:
    """A party refuses one of them; the others are decided in another run."""
    del network.tables[1].rows[KEYS[1]]
    answers = decided(network, *KEYS[:4], eligible=[0])
    assert [answer.arm for answer in answers] == [0, 0, 0]


def test_bitmaps_of_many_arms_are_read_in_linear_time() -> None:
    """A party reads one for each key: at 100,000 arms, with shifts of one large number, 256 of them took 21 seconds."""
    arms = 100_000
    eligible = list(range(3, arms, 7))
    bitmap = eligible_bitmap(arms, eligible)
    assert len(bitmap) == arms // 8
    assert int.from_bytes(bitmap, "little") == sum(1 << arm for arm in eligible)
    assert np.array_equal(bitmap_words(bitmap, arms), eligible_words(arms, eligible))
