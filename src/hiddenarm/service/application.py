"""Actor and rewarder inside an application, which calls them like functions.

In a federation whose state lasts, a client does not wait for the others, nor end with them. A request that cannot be
answered now raises `UnavailableError`, and may be made again. In memory a client begins when it has met parties and
dealer, and ends with any of them, by `PeerLost`.

A request with a name (`request`) is answered once: made again, it gets the same answer; where state lasts, also in
another process after a crash, and in memory while it is one of the newest.

Clients may be used from many threads at once: their requests are under way at the same time (`shared_loop`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from hiddenarm.bandit.evaluation import OpenedValues
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import HiddenArmError, InputError, PeerError, PeerLost, StoreError, UnavailableError
from hiddenarm.net.identity import Identity
from hiddenarm.roles.actor import Actor, Outcome, Ticket, all_decided
from hiddenarm.roles.client import RETRY_SECONDS, Client
from hiddenarm.roles.client_records import KeyAnswer
from hiddenarm.roles.joint_rewards import JointRewarder, NamedReward
from hiddenarm.service.kit import Kit
from hiddenarm.service.process import Endpoint, make_actor, make_rewarder
from hiddenarm.service.shared_loop import SharedLoop
from hiddenarm.service.state import MemoryState, State

CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 60.0
STALE_SECONDS = 2.0
"""Who was gone when the links were last served, so long ago, may be back."""
READ_EVERY = 16
"""Rewards submitted until the answers to earlier ones are read."""
MAX_SUBMITTED = 256
"""Rewards that may be submitted before the first of them is learned."""

Question = Ticket
"""Names decisions that were asked for."""


def last_words(role: Identity, error: BaseException) -> str:
    """What an application's role tells its peers of the error that ends it, which they log. Only errors about peers and
    stores are told by their text: others may name a user's key, or a decision by its id, and tell how scores were."""
    return str(error) if isinstance(error, PeerError | StoreError) else f"{role} failed"


class _Client(ABC):
    """A role inside an application: connect on entry, say goodbye on exit."""

    _machine: Client

    def __init__(self, kit: Kit) -> None:
        self._lock = Lock()
        self._endpoint = Endpoint(kit, self._lock, self._make)
        self._loop = SharedLoop(self._endpoint.transport, self._lock)
        self._woken = False
        self._organisations = kit.organisations

    @property
    def endpoint(self) -> Endpoint:
        """What connects it, for whoever wants to watch over it."""
        return self._endpoint

    @property
    def ready(self) -> bool:
        """Whether requests can be answered now."""
        return self._machine.active

    @property
    def values(self) -> OpenedValues | None:
        """Values of policies, as of the last window that was opened to this role; None before the first, and where they
        are opened to another role, or to none (docs/evaluation.md)."""
        with self._lock:
            self._loop.check()
            self._loop.look()
            return self._machine.values

    @abstractmethod
    def _make(self, endpoint: Endpoint, state: State | MemoryState) -> Actor | JointRewarder:
        """Make and keep the machine."""

    def __enter__(self) -> Self:
        with self._lock:
            try:
                self._endpoint.connect()
                if not self._machine.lasting:
                    self._meet_all()
            except HiddenArmError as error:
                self._endpoint.abort(last_words(self._endpoint.kit.identity, error))
                self._organisations.put_into(error)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._loop.end()
            if error is None:
                self._endpoint.close("done")
            else:
                self._endpoint.abort(last_words(self._endpoint.kit.identity, error))

    def idle(self, until: Callable[[], bool] = lambda: False, seconds: float | None = None) -> None:
        """Serve the links while the application has nothing to ask, until `wake` or `until`, or for so many seconds; a
        lost peer is raised. For one thread: while another waits for an answer, the links are served anyway."""
        with self._lock:
            try:
                self._loop.wait_until(lambda: self._woken or until(), seconds)
            except HiddenArmError as error:
                self._organisations.put_into(error)
                raise
            self._woken = False

    def attend(self, until: Callable[[], bool]) -> None:
        """Serve the links until `until` holds. For a thread that looks after many requests; `poke` has it look
        again."""
        with self._lock:
            self._loop.wait_until(until)

    def poke(self) -> None:
        """Have every thread that waits look again. May be called from any thread."""
        self._loop.wake()

    @property
    def outage(self) -> HiddenArmError | None:
        """Why no request can be answered now, if somebody is known to be gone."""
        if not self._machine.gone:
            return None
        error = self._machine.unanswered("any request")
        self._organisations.put_into(error)
        return error

    def wake(self) -> None:
        """End `idle`, or the next one. May be called from another thread and from a signal handler."""
        self._woken = True
        self._loop.wake()

    def _meet_all(self) -> None:
        machine = self._machine
        if not self._loop.wait_until(lambda: machine.active, CONNECT_SECONDS):
            raise PeerLost(f"{', '.join(map(str, machine.absent)) or 'an open epoch'} could not be reached")

    def _await_written(self, is_written: Callable[[], bool], what: str) -> None:
        if not self._loop.wait_until(is_written, ANSWER_SECONDS):  # here, whoever is gone
            raise UnavailableError(f"{what} is not written yet; make the same request again", RETRY_SECONDS)

    def _await(self, until: Callable[[], bool], what: str) -> None:
        """Wait for an answer, but not while somebody is known to be gone."""
        machine = self._machine
        try:
            if self._loop.unserved_seconds > STALE_SECONDS:
                machine.doubt_absence()
            self._loop.wait_until(lambda: until() or bool(machine.gone), ANSWER_SECONDS)
            if not until():
                raise machine.unanswered(what)
        except HiddenArmError as error:
            self._organisations.put_into(error)
            raise


class ActorClient(_Client):
    """The actor inside an application. Many threads may use one client.

    with ActorClient(Kit.read(folder)) as actor:
        decision = actor.decide("user 17")

    To ask without waiting:

        question = actor.ask(["user 17"])
        [decision] = all_decided(actor.answer(question))
    """

    _machine: Actor

    def _make(self, endpoint: Endpoint, state: State | MemoryState) -> Actor:
        self._machine = make_actor(endpoint, state)
        return self._machine

    def decide(
        self,
        key: str,
        after: int = 0,
        request: str | None = None,
        *,
        eligible: Iterable[int] | None = None,
    ) -> Decision:
        """A decision for a key, by a model that holds at least the lessons before number `after`. `eligible` names the
        arms that may be chosen; all may unless given. Actor and parties know them."""
        return all_decided(self.decide_many([key], after, request, eligible=eligible))[0]

    def decide_many(
        self,
        keys: Sequence[str],
        after: int = 0,
        request: str | None = None,
        *,
        eligible: Iterable[int] | None = None,
    ) -> list[KeyAnswer]:
        """Decisions for many keys, in the rounds of one; `eligible` holds for all of them. In the place of a key for
        which a party has no features stands a `RefusedKeyError`, and a `NoArmError` where no arm was found. They are
        not raised: the other keys are decided all the same (see `all_decided`)."""
        return self.answer(self.ask(keys, after, request, eligible=eligible))

    def ask(
        self,
        keys: Sequence[str],
        after: int = 0,
        request: str | None = None,
        *,
        eligible: Iterable[int] | None = None,
        excluded: Iterable[int] = (),
        deferred: bool = False,
        together: bool = False,
    ) -> Question:
        """Have decisions made, but do not wait for them. One that is `deferred` is to be activated (`activate`). With
        `together`, single keys of several questions may be decided in the rounds of one.

        `after` may be a version whose rewards are still to be given. Then the parties wait for them, and so does
        everything that is asked later; if they do not come within seconds, `answer` raises `UnavailableError`.
        """
        with self._lock:
            self._loop.check()
            if self._machine.idle:
                self._loop.look()  # to know of the newest version
            return self._machine.ask(
                *keys,
                after=after,
                request=request,
                eligible=eligible,
                excluded=excluded,
                deferred=deferred,
                together=together,
            )

    def answer(self, question: Question) -> list[KeyAnswer]:
        """Wait for what was asked for, as `decide_many` gives it. To be called once for each question."""
        with self._lock:
            outcome = self._answer(question)
        if isinstance(outcome, HiddenArmError):
            raise outcome
        return outcome

    def answered(self, questions: Iterable[Question]) -> dict[Question, Outcome]:
        """What came of those questions that have an outcome by now, each given once. Under way with `attend`."""
        with self._lock:
            outcomes = self._machine.outcomes
            found = {question: outcomes[question] for question in questions if question in outcomes}
            for question in found:
                self._machine.give_up(question)
        return found

    def has_answer(self, questions: Iterable[Question]) -> bool:
        """Whether one of these questions has an outcome; for `attend`."""
        return not self._machine.outcomes.keys().isdisjoint(questions)

    def give_up(self, question: Question) -> None:
        """Nobody waits for this answer any longer."""
        with self._lock:
            self._machine.give_up(question)

    def decided_under(self, request: str) -> str:
        """The id of the decision that a request with this name got. Raises `EventError` if there is none, or if it was
        deferred and is not activated."""
        with self._lock:
            return self._machine.decided_under(request)

    def activate(self, request: str) -> str:
        """Let the decision of a request, which was deferred, be rewarded; return its id. It may be repeated."""
        written: list[bool] = []
        with self._lock:
            self._loop.check()
            identifier = self._machine.activate(request, lambda: written.append(True))
            self._await_written(lambda: bool(written), "the activation")
        return identifier

    def _answer(self, ticket: Ticket) -> Outcome:
        machine, outcomes = self._machine, self._machine.outcomes
        _check_expected(machine.expected(ticket))
        try:
            self._await(lambda: ticket in outcomes or not machine.expected(ticket), f"question {ticket}")
            _check_expected(ticket in outcomes)
            return outcomes[ticket]
        finally:
            machine.give_up(ticket)


class RewarderClient(_Client):
    """The rewarder inside an application. Many threads may use one client.

    with RewarderClient(Kit.read(folder)) as rewarder:
        version = rewarder.reward(decision_id, 1.0)

    To ask for the next decision at once, by a model that will hold the reward:

        version = rewarder.submit(decision_id, 1.0)
        decision = actor.decide("user 18", after=version)

    What was submitted is settled on the way out.

    With reward slots, a reward is written down when `reward` or `submit` returns, and learned with the slot of its
    decision. No version is known that holds it, and 0 is returned; a reward that comes after its slot was sent raises
    `DecisionIdError`.
    """

    _machine: JointRewarder

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._submitted: deque[int] = deque()
        self._unread = 0
        self._server = Thread(target=self._serve_slots, name="reward slots", daemon=True)

    def _make(self, endpoint: Endpoint, state: State | MemoryState) -> JointRewarder:
        self._machine = make_rewarder(endpoint, state)
        return self._machine

    def __enter__(self) -> Self:
        super().__enter__()
        if self._machine.ends_slots:
            self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.settle()
        finally:
            super().__exit__(kind, error, trace)
            if self._server.is_alive():
                self._server.join()

    def _serve_slots(self) -> None:
        """Serve the links at all times: a slot is sent when it ends, not when the application has its next reward. What
        ends the loop is raised in whatever the application calls next."""
        with self._lock, suppress(HiddenArmError):
            self._loop.wait_until(lambda: False)

    def reward(self, decision: str, reward: float, request: str | None = None) -> int:
        """Have the reward of a decision learned; return the model's version that holds it."""
        return self.reward_many([(decision, reward)], request)

    def reward_many(self, rewards: Sequence[tuple[str, float]], request: str | None = None) -> int:
        """Have the rewards of many decisions learned at once; return the model's version that holds them."""
        with self._lock:
            if self.has_slots:
                return self._give(rewards, request)
            lesson, machine = self._teach(rewards, request), self._machine
            self._await(lambda: machine.has_ended(lesson), f"lesson {lesson}")
            machine.check_learned(lesson)
        return lesson + 1

    def unlearn(self, decision: str) -> int:
        """Have a decision unlearned: its interaction is taken out of the model, exactly, or, if it has no reward yet,
        dropped. The model's version that no longer holds it. What was unlearned before stays so; what was never made or
        is no longer kept raises `DecisionIdError`."""
        with self._lock:
            lesson, machine = self._made(lambda: self._machine.unlearn(decision)), self._machine
            self._await(lambda: machine.has_ended(lesson), f"lesson {lesson}")
            machine.check_learned(lesson)
        return lesson + 1

    def submit(self, decision: str, reward: float, request: str | None = None) -> int:
        """Have the reward of a decision learned, but do not wait for it: return the version that will hold it.

        In a federation whose state lasts, the reward is written down when this returns. Should the parties refuse a
        reward that was submitted, `settle` raises, or a later `submit`, before it does anything else, in whatever
        thread comes first. A peer that is lost may be noticed after the reward has left.
        """
        with self._lock:
            if self.has_slots:
                return self._give([(decision, reward)], request)
            self._settle_ended()
            lesson, machine = self._teach([(decision, reward)], request), self._machine
            self._submitted.append(lesson)
            self._await_written(lambda: machine.lasts(lesson), "the reward")
            self._read_answers()
        os.sched_yield()  # a party on this machine may wait for this very core, to learn from what has just left
        return lesson + 1

    def begin(self, rewards: Sequence[NamedReward]) -> list[int | HiddenArmError]:
        """Have rewards learned together, or with slots kept, but do not wait for it: for each a number for `ended`, or
        what is wrong with it."""
        with self._lock:
            self._loop.check()
            if not self.has_slots:
                return self._machine.teach_together(rewards)
            self._loop.look()  # slots may have ended
            return [self._give_begun(reward) for reward in rewards]

    def _give_begun(self, reward: NamedReward) -> int | HiddenArmError:
        try:
            return self._machine.give(reward[:2], request=reward.request)
        except HiddenArmError as error:
            return error

    def begin_unlearning(self, decision: str) -> int | HiddenArmError:
        """Have a decision unlearned, but do not wait for it: the number of its lesson for `unlearned`, or what is wrong
        with it."""
        with self._lock:
            self._loop.check()
            try:
                return self._machine.unlearn(decision)
            except HiddenArmError as error:
                return error

    def unlearned(self, lessons: Iterable[int]) -> dict[int, int | HiddenArmError]:
        """What came of those unlearnings that have ended: the version of the model that no longer holds what was
        learned, or the error to raise. Under way with `attend`."""
        with self._lock:
            return {number: self._outcome(number) for number in lessons if self.has_unlearned(number)}

    def has_unlearned(self, lesson: int) -> bool:
        """Whether an unlearning that was begun is done or refused; for `attend`."""
        return self._machine.has_ended(lesson)

    def together(self, waiting: int) -> int:
        """How many of the rewards that wait are best begun together."""
        return 1 if self.has_slots else self._machine.together(waiting)

    def ended(self, begun: Iterable[int]) -> dict[int, int | HiddenArmError]:
        """What came of those rewards that have ended: the version of the model that holds them, with slots 0, or the
        error to raise. Under way with `attend`."""
        with self._lock:
            return {number: self._ending(number) for number in begun if self.has_ended(number)}

    def has_ended(self, number: int) -> bool:
        """Whether a reward that was begun has been learned, refused or kept; for `attend`."""
        return self._machine.is_given(number) if self.has_slots else self._machine.has_ended(number)

    def _ending(self, number: int) -> int | HiddenArmError:
        return 0 if self.has_slots else self._outcome(number)

    def _outcome(self, number: int) -> int | HiddenArmError:
        """What came of a lesson that has ended."""
        try:
            self._machine.check_learned(number)
        except HiddenArmError as error:
            return error
        return number + 1

    @property
    def checked(self) -> bool:
        """Whether new rewards can be taken: an epoch has opened in this process."""
        return self._machine.checked

    @property
    def has_slots(self) -> bool:
        """Whether rewards are sent in slots."""
        return self._machine.has_slots

    def _give(self, rewards: Sequence[tuple[str, float]], request: str | None) -> int:
        """With reward slots: have rewards written down. No version of the model is known to hold them."""
        machine = self._machine
        self._loop.check()
        self._loop.look()  # slots may have ended
        try:
            receipt = machine.give(*rewards, request=request)
        except UnavailableError:
            self._await(lambda: machine.checked, "any reward")
            receipt = machine.give(*rewards, request=request)
        self._await_written(lambda: machine.is_given(receipt), "the reward")
        return 0

    def settle(self) -> None:
        """Wait until all that was submitted, by any thread, is learned. Raises for one that was refused, and may then
        be called again for the rest."""
        with self._lock:
            while self._submitted:
                self._settle_first()

    def _read_answers(self) -> None:
        """Now and then, read what became of earlier rewards. The parties are at work on the last one meanwhile."""
        self._unread += 1
        if self._unread >= READ_EVERY:
            self._unread = 0
            self._loop.look()

    def _settle_ended(self) -> None:
        """Settle what has ended, and wait if too much has not."""
        submitted, ended = self._submitted, self._machine.has_ended
        while submitted and (ended(submitted[0]) or len(submitted) >= MAX_SUBMITTED):
            self._settle_first()

    def _settle_first(self) -> None:
        """Settle what was submitted first, unless another thread does; it stays if no answer comes."""
        submitted, machine = self._submitted, self._machine
        lesson = submitted[0]

        def is_first() -> bool:
            return bool(submitted) and submitted[0] == lesson

        self._await(lambda: machine.has_ended(lesson) or not is_first(), f"lesson {lesson}")
        if is_first():
            submitted.popleft()
            machine.check_learned(lesson)

    def _teach(self, rewards: Sequence[tuple[str, float]], request: str | None) -> int:
        """Make a lesson, or find the one that was made."""
        return self._made(lambda: self._machine.teach(*rewards, request=request))

    def _made(self, make: Callable[[], int]) -> int:
        """The number of a lesson; a new one waits for the first epoch."""
        self._loop.check()
        try:
            return make()
        except UnavailableError:
            self._await(lambda: self._machine.checked, "any lesson")
            return make()


def _check_expected(expected: bool) -> None:
    if not expected:
        raise InputError("this question was answered before, or never asked")
