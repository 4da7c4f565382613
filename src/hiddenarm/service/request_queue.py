"""Requests of many callers at one client: they wait in a queue, a thread takes what waits and sees to all of it.

The thread serves the client's links as well, so that nothing is polled and no caller has a thread of its own. A request
is answered by a call of its `deliver`, from that thread; what is wrong with it is delivered, too. While somebody is
known to be gone, all requests fail at once. What has a name goes on, for when it is asked for again. What ends the loop
of the role is told to all that wait, as it is.

Decisions are asked for together: what waits while the parties are at work is decided in the rounds of one (`Actor`).
So are rewards, where many wait (`roles.joint_rewards`): a few lessons are under way, the rest waits. If one of several
rewards is refused, each of them is asked for again, by itself. The rewarder's queue takes unlearnings, too.

At most `MAX_UNDER_WAY` requests are under way, the rest waits; at most `MAX_QUEUED` wait, the next is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Final, Generic, TypeVar

from hiddenarm.bandit.local import Decision
from hiddenarm.errors import HiddenArmError, RefusedRewardError, UnavailableError
from hiddenarm.roles.actor import Outcome
from hiddenarm.roles.client_records import KeyAnswer
from hiddenarm.roles.joint_rewards import NamedReward
from hiddenarm.service.application import ActorClient, RewarderClient

MAX_UNDER_WAY: Final = 256
MAX_QUEUED: Final = 4096
LESSONS_AT_ONCE: Final = 8
"""Under way, so that parties need not wait for the next one; what comes meanwhile may be learned together."""
BUSY_SECONDS: Final = 1.0

Asks = TypeVar("Asks")
Answers = TypeVar("Answers")


@dataclass(slots=True, eq=False, repr=False)
class Waiting(Generic[Asks, Answers]):
    """A request, and who gets its answer. Once `abandoned`, nobody."""

    asked: Asks
    deliver: Callable[[Answers | HiddenArmError], None]
    abandoned: bool = False
    refused: bool = False
    """Whether it was refused together with others: it is asked for once more, by itself."""


@dataclass(frozen=True, slots=True, repr=False)
class RankRequest:
    """A decision for a key, under the name of an event if it has one. Arms are as the request names them: it must be
    the same when it is repeated, whatever arms there are then."""

    key: str
    event: str | None = None
    eligible: frozenset[int] | None = None
    excluded: frozenset[int] = frozenset()
    deferred: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class UnlearnRequest:
    """The interaction of a decision is to be unlearned."""

    decision: str


Lesson = NamedReward | UnlearnRequest
"""What the rewarder makes lessons of."""


class RequestQueue(ABC, Generic[Asks, Answers]):
    """Started on entry; on exit whatever waits is refused."""

    def __init__(self, client: ActorClient | RewarderClient, name: str) -> None:
        self._client = client
        self._queue: deque[Waiting[Asks, Answers]] = deque()
        self._under_way: dict[int, list[Waiting[Asks, Answers]]] = {}
        self._closed = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take nothing more; refuse what waits."""
        self._closed = True
        self._client.poke()
        self._thread.join()

    def put(self, asked: Asks, deliver: Callable[[Answers | HiddenArmError], None]) -> Waiting[Asks, Answers]:
        """Have a request answered. May be called from any thread."""
        self._check_open()
        if len(self._queue) >= MAX_QUEUED:
            raise UnavailableError(f"{MAX_QUEUED} requests wait already; make this one again later", BUSY_SECONDS)
        waiting: Waiting[Asks, Answers] = Waiting(asked, deliver)
        self._queue.append(waiting)
        if self._closed and self._take_back(waiting):
            self._check_open()
        self._client.poke()
        return waiting

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("this role is about to stop; make the same request again")

    def _take_back(self, waiting: Waiting[Asks, Answers]) -> bool:
        """Whether nobody has seen to a request that came as the queue was closed: nobody will."""
        try:
            self._queue.remove(waiting)
        except ValueError:
            return False
        return True

    def _run(self) -> None:
        error: HiddenArmError = UnavailableError("this role was stopped; make the same request again")
        try:
            while not self._closed:
                self._client.attend(self._has_work)
                self._step()
        except HiddenArmError as ended:  # the loop ended, which whoever runs the role is told as well
            error = ended
        finally:
            self._closed = True
            self._fail_all(error)

    def _has_work(self) -> bool:
        """For `attend`."""
        if self._closed or self._any_ended(self._under_way):
            return True
        if (self._queue or self._under_way) and self._client.outage is not None:
            return True
        return bool(self._queue) and self._can_begin()

    def _can_begin(self) -> bool:
        return len(self._under_way) < MAX_UNDER_WAY

    def _step(self) -> None:
        for number, outcome in self._take_ended(list(self._under_way)):
            self._settle(self._under_way.pop(number), outcome)
        if (outage := self._client.outage) is not None:
            self._begin_what_waits()  # so that it goes on where it has a name
            self._fail_all(outage)
        else:
            self._begin_what_waits()

    def _settle(self, ended: Sequence[Waiting[Asks, Answers]], outcome: Answers | HiddenArmError) -> None:
        for waiting in ended:
            self._deliver(waiting, outcome)

    def _begin_what_waits(self) -> None:
        while self._queue and self._can_begin():
            taken = [self._queue.popleft() for _ in range(self._at_once(len(self._queue)))]
            wanted = [waiting for waiting in taken if not waiting.abandoned]
            for waiting, begun in zip(wanted, self._begin([one.asked for one in wanted]), strict=True):
                if isinstance(begun, HiddenArmError):
                    self._deliver(waiting, begun)
                else:
                    self._under_way.setdefault(begun, []).append(waiting)

    def _at_once(self, waiting: int) -> int:
        """How many of those that wait are begun at once."""
        return 1

    def _fail_all(self, error: HiddenArmError) -> None:
        for number in list(self._under_way):
            with suppress(HiddenArmError):
                self._give_up(number)
            for waiting in self._under_way.pop(number):
                self._deliver(waiting, error)
        while self._queue:
            self._deliver(self._queue.popleft(), error)

    def _deliver(self, waiting: Waiting[Asks, Answers], outcome: Answers | HiddenArmError) -> None:
        if not waiting.abandoned:
            waiting.deliver(outcome)

    # What an actor and a rewarder do differently

    @abstractmethod
    def _begin(self, asked: Sequence[Asks]) -> Sequence[int | HiddenArmError]:
        """Ask the client; for each the number under which it ends, or what is wrong with it."""

    @abstractmethod
    def _any_ended(self, numbers: Iterable[int]) -> bool:
        """Whether any of these has ended; called with the client's lock held."""

    @abstractmethod
    def _take_ended(self, numbers: Sequence[int]) -> list[tuple[int, Answers | HiddenArmError]]:
        """What came of those that have ended."""

    @abstractmethod
    def _give_up(self, number: int) -> None:
        """Nobody waits for this one any longer."""


class RankQueue(RequestQueue[RankRequest, Decision]):
    """Requests for decisions."""

    def __init__(self, client: ActorClient) -> None:
        super().__init__(client, "rank requests")
        self._actor = client

    def _begin(self, asked: Sequence[RankRequest]) -> Sequence[int | HiddenArmError]:
        return [self._begin_one(one) for one in asked]

    def _begin_one(self, asked: RankRequest) -> int | HiddenArmError:
        try:
            return self._ask(asked)
        except HiddenArmError as error:
            return error

    def _ask(self, asked: RankRequest) -> int:
        return self._actor.ask(
            [asked.key],
            request=asked.event,
            eligible=asked.eligible,
            excluded=asked.excluded,
            deferred=asked.deferred,
            together=True,
        )

    def _any_ended(self, numbers: Iterable[int]) -> bool:
        return self._actor.has_answer(numbers)

    def _take_ended(self, numbers: Sequence[int]) -> list[tuple[int, Decision | HiddenArmError]]:
        return [(number, _first(outcome)) for number, outcome in self._actor.answered(numbers).items()]

    def _give_up(self, number: int) -> None:
        self._actor.give_up(number)


class RewardQueue(RequestQueue[Lesson, int]):
    """Rewards of decisions, and what is to be unlearned; the answer is the version of the model that holds them, or no
    longer holds them; 0 for rewards with slots.

    Under way a reward has the number of its lesson, or with slots of its receipt, and an unlearning that of its lesson
    with all bits turned: a negative one, so that lessons and receipts are not mistaken for each other.
    """

    def __init__(self, client: RewarderClient) -> None:
        super().__init__(client, "rewards")
        self._rewarder = client

    def _can_begin(self) -> bool:
        """No reward before an epoch has opened in this process, see `Rewarder`. In an outage all are written down, for
        when they are asked for again."""
        most = LESSONS_AT_ONCE if self._rewarder.outage is None and not self._rewarder.has_slots else MAX_UNDER_WAY
        return len(self._under_way) < most and self._rewarder.checked

    def _at_once(self, waiting: int) -> int:
        return self._rewarder.together(waiting)

    def _begin(self, asked: Sequence[Lesson]) -> Sequence[int | HiddenArmError]:
        rewards = [one for one in asked if isinstance(one, NamedReward)]
        try:
            begun = iter(self._rewarder.begin(rewards) if rewards else [])
            return [self._begin_unlearning(one) if isinstance(one, UnlearnRequest) else next(begun) for one in asked]
        except HiddenArmError as error:  # the loop has ended
            return [error] * len(asked)

    def _begin_unlearning(self, asked: UnlearnRequest) -> int | HiddenArmError:
        begun = self._rewarder.begin_unlearning(asked.decision)
        return begun if isinstance(begun, HiddenArmError) else ~begun

    def _settle(self, ended: Sequence[Waiting[Lesson, int]], outcome: int | HiddenArmError) -> None:
        """Of several that were refused together each may be innocent: it is asked for again, once."""
        if len(ended) == 1 or not isinstance(outcome, RefusedRewardError):
            super()._settle(ended, outcome)
            return
        for waiting in ended:
            if waiting.refused:
                self._deliver(waiting, outcome)
            else:
                waiting.refused = True
                self._queue.append(waiting)

    def _any_ended(self, numbers: Iterable[int]) -> bool:
        numbers = list(numbers)
        first = min((number for number in numbers if number >= 0), default=None)  # rewards end in order
        lesson = min((~number for number in numbers if number < 0), default=None)
        return (first is not None and self._rewarder.has_ended(first)) or (
            lesson is not None and self._rewarder.has_unlearned(lesson)
        )

    def _take_ended(self, numbers: Sequence[int]) -> list[tuple[int, int | HiddenArmError]]:
        ended = self._rewarder.ended([number for number in numbers if number >= 0])
        if not (lessons := [~number for number in numbers if number < 0]):
            return list(ended.items())
        unlearned = self._rewarder.unlearned(lessons)
        return [*ended.items(), *((~lesson, outcome) for lesson, outcome in unlearned.items())]

    def _give_up(self, number: int) -> None:
        return


def _first(outcome: Outcome) -> Decision | HiddenArmError:
    if isinstance(outcome, HiddenArmError):
        return outcome
    answer: KeyAnswer = outcome[0]
    return answer
