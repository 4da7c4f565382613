"""Actor and rewarder inside an application, which calls them like functions.

In a federation whose state lasts, a client does not wait for the others, nor end with them. A request that cannot be
answered now raises `UnavailableError`, and may be made again. A request with a name (`request`) is answered once: made
again, also by another process after a crash, it gets the same answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from hiddenarm.bandit.local import Decision
from hiddenarm.errors import HiddenArmError, InputError, PeerError, PeerLost, UnavailableError
from hiddenarm.roles.actor import Actor, KeyAnswer, RunName, all_decided
from hiddenarm.roles.durable_actor import DurableActor, Ticket
from hiddenarm.roles.durable_rewarder import DurableRewarder
from hiddenarm.roles.kit import Kit
from hiddenarm.roles.process import Endpoint
from hiddenarm.roles.rewarder import Rewarder

CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""When to come back with a request that was answered with "unavailable"."""
READ_EVERY = 16
"""Rewards submitted until the answers to earlier ones are read."""
MAX_SUBMITTED = 256
"""Rewards that may be submitted before the first of them is learned."""

Question = RunName | Ticket
"""Names decisions that were asked for."""


class _Client:
    """A role inside an application: connect on entry, say goodbye on exit."""

    def __init__(self, kit: Kit) -> None:
        self._endpoint = Endpoint(kit)
        self._organisations = kit.organisations

    @property
    def endpoint(self) -> Endpoint:
        """What connects it, for whoever wants to watch over it."""
        return self._endpoint

    @property
    def ready(self) -> bool:
        """Whether requests can be answered now."""
        machine = self._endpoint.machine
        assert isinstance(machine, Actor | Rewarder | DurableActor | DurableRewarder)
        return machine.ready

    def __enter__(self) -> Self:
        machine = self._endpoint.machine
        try:
            self._endpoint.connect()
            if isinstance(machine, Actor | Rewarder):
                self._connect(machine)
        except HiddenArmError as error:
            self._endpoint.abort(str(error))
            self._organisations.put_into(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._endpoint.close("done")
        else:
            told = isinstance(error, HiddenArmError) and not isinstance(error, InputError)  # which may name a key
            why = str(error) if told else f"{self._endpoint.kit.identity} failed"
            self._endpoint.abort(why)

    def idle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve the links while the application has nothing to ask, until `wake` or `until`; a lost peer is raised."""
        try:
            self._endpoint.switchboard.run(until)
        except PeerError as error:
            self._organisations.put_into(error)
            raise

    def wake(self) -> None:
        """End `idle`, or the next one. May be called from another thread."""
        self._endpoint.switchboard.stop()

    def _connect(self, machine: Actor | Rewarder) -> None:
        if not self._endpoint.switchboard.run_until(lambda: machine.ready, CONNECT_SECONDS):
            raise PeerLost("not all parties and the dealer could be reached")

    def _await(self, until: Callable[[], bool], what: str) -> None:
        """Wait for an answer; in a federation whose state lasts, a wait in vain is no reason to end."""
        try:
            if self._endpoint.switchboard.run_until(until, ANSWER_SECONDS):
                return
        except PeerError as error:
            self._organisations.put_into(error)
            raise
        machine = self._endpoint.machine
        if not isinstance(machine, DurableActor | DurableRewarder):
            raise PeerLost(f"no answer to {what}")
        missing = ", ".join(self._organisations.of(peer) for peer in machine.missing)
        why = f"{missing} cannot be reached" if missing else "no answer has come in time"
        raise UnavailableError(f"not now: {why}; make the same request again", RETRY_SECONDS)


class ActorClient(_Client):
    """The actor inside an application.

    with ActorClient(Kit.read(folder)) as actor:
        decision = actor.decide("user 17")

    To ask without waiting:

        question = actor.ask(["user 17"])
        [decision] = all_decided(actor.answer(question))
    """

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        machine = self._endpoint.machine
        assert isinstance(machine, Actor | DurableActor)
        self._machine = machine

    def decide(self, key: str, after: int = 0, request: str | None = None) -> Decision:
        """A decision for a key, by a model that holds at least the lessons before number `after`."""
        return all_decided(self.decide_many([key], after, request))[0]

    def decide_many(self, keys: Sequence[str], after: int = 0, request: str | None = None) -> list[KeyAnswer]:
        """Decisions for many keys, in the rounds of one. In the place of a key for which a party has no features stands
        a `RefusedKeyError`, which is not raised: the other keys are decided all the same (see `all_decided`)."""
        return self.answer(self.ask(keys, after, request))

    def ask(self, keys: Sequence[str], after: int = 0, request: str | None = None) -> Question:
        """Have decisions made, but do not wait for them.

        `after` may be a version whose rewards are still to be given. Then the parties wait for them, and so does
        everything that is asked later; if they do not come within seconds, `answer` raises `UnavailableError`.
        """
        machine = self._machine
        if not isinstance(machine, Actor):
            return machine.ask(*keys, after=after, request=request)
        _refuse_name(request)
        if machine.idle:
            self._endpoint.switchboard.run_once()  # to know of the newest version
        return machine.ask(*keys, after=after)

    def answer(self, question: Question) -> list[KeyAnswer]:
        """Wait for what was asked for, as `decide_many` gives it. To be called once for each question."""
        machine = self._machine
        if isinstance(machine, Actor):
            assert isinstance(question, tuple)
            outcome = self._answer_now(machine, question)
        else:
            assert isinstance(question, int)
            outcome = self._answer_lasting(machine, question)
        if isinstance(outcome, HiddenArmError):
            raise outcome
        return outcome

    def _answer_now(self, machine: Actor, name: RunName) -> list[KeyAnswer] | HiddenArmError:
        if name not in machine.outcomes:
            _check_expected(machine.expected(name))
            self._await(lambda: name in machine.outcomes, f"decision {name[1]}")
        return machine.outcomes.pop(name)

    def _answer_lasting(self, machine: DurableActor, ticket: Ticket) -> list[KeyAnswer] | HiddenArmError:
        _check_expected(machine.expected(ticket))
        try:
            self._await(lambda: ticket in machine.outcomes, f"question {ticket}")
            return machine.outcomes.pop(ticket)
        finally:
            machine.give_up(ticket)


class RewarderClient(_Client):
    """The rewarder inside an application.

    with RewarderClient(Kit.read(folder)) as rewarder:
        version = rewarder.reward(decision_id, 1.0)

    To ask for the next decision at once, by a model that will hold the reward:

        version = rewarder.submit(decision_id, 1.0)
        decision = actor.decide("user 18", after=version)

    What was submitted is settled on the way out.
    """

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        machine = self._endpoint.machine
        assert isinstance(machine, Rewarder | DurableRewarder)
        self._machine = machine
        self._submitted: deque[int] = deque()
        self._unread = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.settle()
        finally:
            super().__exit__(kind, error, trace)

    def reward(self, decision: str, reward: float, request: str | None = None) -> int:
        """Have the reward of a decision learned; return the model's version that holds it."""
        return self.reward_many([(decision, reward)], request)

    def reward_many(self, rewards: Sequence[tuple[str, float]], request: str | None = None) -> int:
        """Have the rewards of many decisions learned at once; return the model's version that holds them."""
        lesson, machine = self._teach(rewards, request), self._machine
        self._await(lambda: machine.has_ended(lesson), f"lesson {lesson}")
        machine.check_learned(lesson)
        return lesson + 1

    def submit(self, decision: str, reward: float, request: str | None = None) -> int:
        """Have the reward of a decision learned, but do not wait for it: return the version that will hold it.

        In a federation whose state lasts, the reward is written down when this returns. Should the parties refuse a
        reward that was submitted, `settle` raises, or a later `submit`, before it does anything else. A peer that is
        lost may be noticed after the reward has left.
        """
        self._settle_ended()
        lesson, machine = self._teach([(decision, reward)], request), self._machine
        self._submitted.append(lesson)
        if not machine.lasts(lesson):
            self._await(lambda: machine.lasts(lesson), f"lesson {lesson}")
        self._read_answers()
        return lesson + 1

    def settle(self) -> None:
        """Wait until all that was submitted is learned. Raises for one that was refused, and may then be called again
        for the rest."""
        while self._submitted:
            self._settle_first()

    def _read_answers(self) -> None:
        """Now and then, read what became of earlier rewards. The parties are at work on the last one meanwhile."""
        self._unread += 1
        if self._unread >= READ_EVERY:
            self._unread = 0
            self._endpoint.switchboard.run_once()

    def _settle_ended(self) -> None:
        """Settle what has ended, and wait if too much has not."""
        submitted, ended = self._submitted, self._machine.has_ended
        while submitted and (ended(submitted[0]) or len(submitted) >= MAX_SUBMITTED):
            self._settle_first()

    def _settle_first(self) -> None:
        """Settle what was submitted first; it stays if no answer comes."""
        lesson, machine = self._submitted[0], self._machine
        if not machine.has_ended(lesson):
            self._await(lambda: machine.has_ended(lesson), f"lesson {lesson}")
        self._submitted.popleft()
        machine.check_learned(lesson)

    def _teach(self, rewards: Sequence[tuple[str, float]], request: str | None) -> int:
        machine = self._machine
        if not isinstance(machine, Rewarder):
            return self._teach_lasting(machine, rewards, request)
        _refuse_name(request)
        return machine.teach(*rewards)

    def _teach_lasting(
        self, machine: DurableRewarder, rewards: Sequence[tuple[str, float]], request: str | None
    ) -> int:
        """Make a lesson, or find the one that was made; a new one waits for the first epoch."""
        try:
            return machine.teach(*rewards, request=request)
        except UnavailableError:
            self._await(lambda: machine.checked, "any lesson")
            return machine.teach(*rewards, request=request)


def _check_expected(expected: bool) -> None:
    if not expected:
        raise InputError("this question was answered before, or never asked")


def _refuse_name(request: str | None) -> None:
    if request is not None:
        raise InputError("only a federation whose state lasts (`durable` in kit.json) knows requests by name")
