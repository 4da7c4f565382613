"""A role that serves HTTP and ends: whatever ended it, a request is told that it may be made again, by the code for
that. That nothing is lost which was written down before is held by `tests/recovery` and `test_http.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from deployment import PATIENCE
from hiddenarm.errors import AddressError, HelloError, HiddenArmError, PeerLost, StaleStateError, UnavailableError
from hiddenarm.roles.joint_rewards import NamedReward
from hiddenarm.service.request_queue import RankQueue, RequestQueue, RewardQueue
from hiddenarm.web.api import actor_router, rewarder_router
from hiddenarm.web.app import tell_problems
from hiddenarm.web.guard import Guard

TOKEN = "x" * 64
DECISION = "3f9c02d17ab4-000017-5d0e9a71c2b84f36"
QUEUED: dict[str, tuple[str, dict[str, Any]]] = {
    "rank": ("/rank", {"key": "user 17", "eventId": "visit-1"}),
    "reward": ("/events/visit-1/reward", {"value": 1, "decisionId": DECISION}),
    "unlearn": ("/events/visit-1/unlearn", {"decisionId": DECISION}),
}
REASONS = (
    HelloError("party 1 has another arm_features"),
    PeerLost("party 1 is gone"),
    StaleStateError("party 1 has seen newer state of this role"),
    AddressError("step 17 was asked for twice"),
    UnavailableError("the store does not answer"),
)


class Client:
    """In the place of a client of either role. Once `over`, its loop has ended by an error, and whoever asks for
    something is told; whoever waits is told by `end`."""

    checked = True
    has_slots = False
    outage = None

    def __init__(self, error: HiddenArmError) -> None:
        self.over = False
        self.begun = threading.Event()
        self._told = False
        self._error = error
        self._changed = threading.Condition()

    def end(self) -> None:
        self.over = self._told = True
        self.poke()

    def attend(self, until: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: until() or self._told, PATIENCE)
            if not until():
                raise self._error

    def poke(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def together(self, waiting: int) -> int:
        return 1

    def ask(self, keys: Sequence[str], **_: Any) -> int:
        return self._begin()

    def begin(self, rewards: Sequence[NamedReward]) -> list[int | HiddenArmError]:
        return [self._begin() for _ in rewards]

    def begin_unlearning(self, decision: str) -> int:
        return self._begin()

    def activate(self, event: str) -> str:
        self._begin()
        return DECISION

    def _begin(self) -> int:
        if self.over:
            raise self._error
        self.begun.set()
        return 0

    def has_answer(self, numbers: Iterable[int]) -> bool:
        return False

    def has_ended(self, number: int) -> bool:
        return False

    def has_unlearned(self, lesson: int) -> bool:
        return False

    def answered(self, numbers: Iterable[int]) -> dict[int, Any]:
        return {}

    def ended(self, numbers: Iterable[int]) -> dict[int, Any]:
        return {}

    def unlearned(self, numbers: Iterable[int]) -> dict[int, Any]:
        return {}

    def give_up(self, number: int) -> None:
        return


@contextmanager
def serving(client: Any) -> Iterator[Callable[[str, Any], Any]]:
    """The paths of actor and rewarder before a client; yields what posts to them."""
    ranks, rewards = RankQueue(client), RewardQueue(client)
    app = FastAPI()
    app.state.guard = Guard(TOKEN)
    app.include_router(actor_router(client, ranks, ("beach", "city")))
    app.include_router(rewarder_router(rewards, has_slots=False, resolve=None))
    tell_problems(app)
    caller = TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {TOKEN}"})
    ranks.start()
    rewards.start()
    yield lambda path, body: caller.post(path, json=body)
    for queue in (ranks, rewards):
        queue.close()


def check_may_be_repeated(answer: Any, reason: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
    assert reason in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("reason", REASONS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", QUEUED)
def test_what_is_under_way_and_what_comes_later_may_be_repeated(call: str, reason: HiddenArmError) -> None:
    client = Client(reason)
    with serving(client) as post, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(post, *QUEUED[call])
        assert client.begun.wait(PATIENCE)
        client.end()
        check_may_be_repeated(under_way.result(PATIENCE), str(reason))
        check_may_be_repeated(post(*QUEUED[call]), "this role is about to stop")


@pytest.mark.parametrize("reason", REASONS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", [*QUEUED, "activate"])
def test_what_finds_that_the_role_has_ended_may_be_repeated(call: str, reason: HiddenArmError) -> None:
    """The loop has ended, which the queue has not been told when it begins the request."""
    client = Client(reason)
    client.over = True
    with serving(client) as post:
        check_may_be_repeated(post(*QUEUED.get(call, ("/events/visit-1/activate", None))), str(reason))


def test_a_request_that_comes_as_the_queue_closes_is_refused_and_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put where nobody looks any more, after all that waited were refused."""
    client: Any = Client(PeerLost("party 1 is gone"))
    queue, outcomes = RewardQueue(client), SimpleQueue[Any]()
    queue.start()
    check = RequestQueue._check_open
    looked: list[bool] = []

    def closed_after_the_first_look(self: Any) -> None:
        check(self)
        if not looked:
            looked.append(True)
            queue.close()

    monkeypatch.setattr(RequestQueue, "_check_open", closed_after_the_first_look)
    with pytest.raises(UnavailableError, match="about to stop"):
        queue.put(NamedReward(DECISION, 1.0, "visit-1"), outcomes.put)
    assert looked
    assert outcomes.empty()
