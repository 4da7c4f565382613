"""Rewards that wait: begun together, and each once more by itself where several were refused together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any

from deployment import PATIENCE
from hiddenarm.errors import HiddenArmError, PeerLost, RefusedRewardError
from hiddenarm.roles.joint_rewards import NamedReward
from hiddenarm.service.request_queue import LESSONS_AT_ONCE, RewardQueue

TOGETHER = 4


class Rewards:
    """In the place of a client: a lesson ends when `end` says so. Decision "bad" is refused, and so is any lesson with
    it."""

    checked = True
    has_slots = False
    outage = None

    def __init__(self) -> None:
        self.lessons: list[list[NamedReward]] = []
        self.first = 0
        self._changed = threading.Condition()

    def attend(self, until: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(until, PATIENCE)

    def poke(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def together(self, waiting: int) -> int:
        return TOGETHER if waiting >= TOGETHER else 1

    def begin(self, rewards: Sequence[NamedReward]) -> list[int | HiddenArmError]:
        with self._changed:
            self.lessons.append(list(rewards))
            self._changed.notify_all()
        return [len(self.lessons) - 1] * len(rewards)

    def has_ended(self, number: int) -> bool:
        return number < self.first

    def ended(self, begun: Iterable[int]) -> dict[int, int | HiddenArmError]:
        return {number: self._outcome(number) for number in begun if self.has_ended(number)}

    def _outcome(self, number: int) -> int | HiddenArmError:
        if any(reward.decision == "bad" for reward in self.lessons[number]):
            return RefusedRewardError("forgotten")
        return number + 1

    def end(self, lessons: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.lessons) >= lessons, PATIENCE)
            self.first = lessons
            self._changed.notify_all()


def test_what_waits_is_begun_together_and_what_was_refused_together_once_more_alone() -> None:
    client: Any = Rewards()
    queue, outcomes = RewardQueue(client), dict[str, Any]()
    done = threading.Event()

    def put(name: str, decision: str) -> None:
        def deliver(outcome: Any) -> None:
            outcomes[name] = outcome
            if len(outcomes) == LESSONS_AT_ONCE + TOGETHER + 1:
                done.set()

        queue.put(NamedReward(decision, 1.0, name), deliver)

    names = [f"single {number}" for number in range(LESSONS_AT_ONCE)]
    queue.start()
    for number, name in enumerate(names):
        put(name, name)
        with client._changed:
            assert client._changed.wait_for(lambda least=number + 1: len(client.lessons) >= least, PATIENCE)
    for name in ("a", "b", "c", "d"):
        put(name, "bad" if name == "c" else name)
    put("e", "e")
    assert len(client.lessons) == LESSONS_AT_ONCE, "the rest waits"
    client.end(LESSONS_AT_ONCE)
    client.end(LESSONS_AT_ONCE + 2)
    joint, alone, *_ = client.lessons[LESSONS_AT_ONCE:]
    assert [reward.request for reward in joint] == ["a", "b", "c", "d"]
    assert [reward.request for reward in alone] == ["e"]
    client.end(LESSONS_AT_ONCE + 3)  # those of the first one again: what becomes of them is up to the machine
    assert done.wait(PATIENCE)
    queue.close()
    refused = {name for name, outcome in outcomes.items() if isinstance(outcome, HiddenArmError)}
    assert {"e", *names}.isdisjoint(refused)
    assert "c" in refused


class Ended(Rewards):
    """Its loop has ended, which the queue finds out when it begins."""

    def begin(self, rewards: Sequence[NamedReward]) -> list[int | HiddenArmError]:
        raise PeerLost("party 1 is gone")


def test_what_could_not_be_begun_is_told() -> None:
    client: Any = Ended()
    queue, outcomes = RewardQueue(client), SimpleQueue[Any]()
    queue.put(NamedReward("a", 1.0, "a"), outcomes.put)
    queue.start()
    assert isinstance(outcomes.get(timeout=PATIENCE), PeerLost)
    queue.close()
