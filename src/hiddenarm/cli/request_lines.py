"""Requests of actor and rewarder as lines of JSON on standard input, each answered by a line on standard output:

    actor      {"key": "user 17", "after": 3}  ->  {"id": "3f9c02d17ab4-000017-5d0e9a71c2b84f36", "arm": 4}
    rewarder   {"id": "3f9c02d17ab4-000017-5d0e9a71c2b84f36", "reward": 1}  ->  {"id": ..., "version": 4}

Many at once: {"keys": [...], "after": 3} -> {"decisions": [{"id": ..., "arm": ...}, ...]}, and
{"rewards": [{"id": ..., "reward": ...}, ...]} -> {"version": 4}. A key for which a party has no features gets
{"key": ..., "error": ...} in its place; the others are decided. "eligible": [0, 3] names the arms that may be chosen,
by their numbers, for all keys of the request; all may where it is left out.

{"unlearn": ID} has the rewarder take the interaction of a decision out of the model again, or drop it if it has no
reward: {"id": ID, "unlearned": true, "version": 5}.

With reward slots the rewarder answers {"id": ..., "kept": true}, or {"kept": true} to many: the reward is written down
and is learned with the slot of its decision.

A request may have a name, "request": "order 4711". Made again under this name, it gets the same answer; after a
restart only where state lasts (`durable` in kit.json). What cannot be answered now gets {"error": ...,
"retry_after": seconds}.

A request that is refused is answered by {"error": ...}; the role goes on. "after" is optional: the model must hold at
least so many lessons. A line has room for the longest keys, as many as the kit's `max_batch` allows, even if every
letter is escaped (`max_line_bytes`). A longer line is not kept, and refused as a whole.

Where one process serves both, a line with "key" or "keys" is for the actor, and one with "id", "reward", "rewards"
or "unlearn" for the rewarder. Lines are read one at a time, the next when the last is answered: answers come in the
order of the requests, whomever they are for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Final, TextIO

from hiddenarm.bandit.local import Decision
from hiddenarm.errors import BudgetSpentError, InputError, NoArmError, UnavailableError
from hiddenarm.net.identity import Role
from hiddenarm.roles.client_records import KeyAnswer
from hiddenarm.roles.messages import MAX_KEY_BYTES
from hiddenarm.service.application import ActorClient, RewarderClient
from hiddenarm.service.process import StopRequest

Request = dict[str, Any]
Answer = Callable[[Request], Request]
Idle = Callable[[Callable[[], bool]], None]
"""Serves the links of a client until it is woken up, or its argument holds."""

MAX_LINE_BYTES: Final = 64 * 1024
"""What a line may have in every kit; `max_line_bytes` says how much more where batches are large."""

_LETTER_BYTES: Final = 6
"""JSON takes at most so many bytes for a byte of text: \\u0001."""
_ITEM_BYTES: Final = 64
"""For quotes, commas, names and blanks around a text, and for the reward beside an id."""
_READ_BYTES: Final = 64 * 1024
_FIELDS: Final = {Role.ACTOR: {"key", "keys"}, Role.REWARDER: {"id", "reward", "rewards", "unlearn"}}
"""By which a request is known, where there are both."""
_EXAMPLES: Final = {Role.ACTOR: '{"key": "user 17"}', Role.REWARDER: '{"id": ID, "reward": 1}'}


def max_line_bytes(max_batch: int) -> int:
    """The longest line of requests for `max_batch` at once. The longest key is longer than any id of a decision."""
    return max(MAX_LINE_BYTES, (max_batch + 1) * (_LETTER_BYTES * MAX_KEY_BYTES + _ITEM_BYTES))


def end_of_input(descriptor: int) -> None:
    """Read a descriptor to its end."""
    while _chunk(descriptor):
        pass


class Desk:
    """Where a client gets its requests and gives its answers."""

    def __init__(self, role: Role, wake: Callable[[], None], answers: TextIO, answered: Callable[[], None]) -> None:
        self.role = role
        self._wake = wake
        self._answers = answers
        self._answered = answered
        self._requests: SimpleQueue[Request | InputError | None] = SimpleQueue()

    def put(self, request: Request | InputError | None) -> None:
        """Hand over a request, or what is wrong with a line, or None at the end of all. For another thread."""
        self._requests.put(request)
        self._wake()

    def answer_all(self, answer: Answer, idle: Idle, stop: StopRequest) -> None:
        """Answer requests until there are no more, or it is time to stop."""
        while (request := self._next(idle, stop)) is not None:
            try:
                if isinstance(request, InputError):
                    raise request
                reply = answer(request)
            except (InputError, NoArmError) as error:
                reply = {"error": str(error)}
            except BudgetSpentError as error:
                reply = {"error": str(error), "budget_spent": True}
            except UnavailableError as error:
                reply = {"error": str(error), "retry_after": error.retry_after}
            self._answers.write(json.dumps(reply) + "\n")
            self._answers.flush()
            self._answered()

    def _next(self, idle: Idle, stop: StopRequest) -> Request | InputError | None:
        while self._requests.empty() and not stop.made:
            idle(lambda: stop.made)
        return None if stop.made else self._requests.get()


class RequestLines:
    """The lines of a descriptor, read by a thread one at a time, so that links are served while none is there; each
    goes to the desk that it is for. `count` is how many there were.

    Of a line with more than `max_line_bytes`, one byte more than that is kept, and the rest dropped.
    """

    def __init__(self, descriptor: int, answers: TextIO, max_batch: int) -> None:
        self.count = 0
        self._descriptor = descriptor
        self._answers = answers
        self._max_batch = max_batch
        self._limit = max_line_bytes(max_batch)
        self._desks: list[Desk] = []
        self._answered = Semaphore(0)

    def desk(self, role: Role, wake: Callable[[], None]) -> Desk:
        """The desk of a client, to be had before `start`."""
        desk = Desk(role, wake, self._answers, self._answered.release)
        self._desks.append(desk)
        return desk

    @property
    def wanted(self) -> bool:
        """Whether anybody wants requests."""
        return bool(self._desks)

    @property
    def hint(self) -> str:
        """For somebody who starts a client without requests, which ends it."""
        examples = " or ".join(_EXAMPLES[desk.role] for desk in self._desks)
        return f"standard input ended at once: pipe in one request per line, such as {examples}"

    def start(self) -> None:
        """Read from now on, if requests are wanted."""
        if self.wanted:
            Thread(target=self._read_all, name="requests", daemon=True).start()

    def _read_all(self) -> None:
        """Not through `sys.stdin`: a thread that waits in there keeps the interpreter from ending."""
        line, rest = self._line(b"")
        while line is not None:
            self.count += 1
            self._hand_over(line)
            self._answered.acquire()
            line, rest = self._line(rest)
        for desk in self._desks:
            desk.put(None)

    def _hand_over(self, line: bytes) -> None:
        try:
            if len(line) > self._limit:
                raise InputError(_too_long(self._limit, self._max_batch))
            request = _parsed(line)
            desk = _addressed(request, self._desks)
        except InputError as error:
            self._desks[0].put(error)
        else:
            desk.put(request)

    def _line(self, chunk: bytes) -> tuple[bytes | None, bytes]:
        """The line that begins with `chunk`, or None if the stream ends there, and what was read beyond it."""
        line, newline, rest = bytearray(), b"", b""
        while True:
            head, newline, rest = chunk.partition(b"\n")
            line += head[: self._limit + 1 - len(line)]
            if newline or not (chunk := _chunk(self._descriptor)):
                return bytes(line) if line or newline else None, rest


def _chunk(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:
        return b""


def _addressed(request: Request, desks: Sequence[Desk]) -> Desk:
    """Whom a request is for: the only one there is, or the only one whose fields it has."""
    found = desks if len(desks) == 1 else [desk for desk in desks if _FIELDS[desk.role] & request.keys()]
    if len(found) != 1:
        raise InputError("a request has 'key' or 'keys', for the actor, or 'id' or 'rewards', for the rewarder")
    return found[0]


def actor_answer(actor: ActorClient, arm_names: Sequence[str]) -> Answer:
    """What answers the actor's requests."""

    def shown(answer: KeyAnswer) -> Request:
        if not isinstance(answer, Decision):
            return {"key": answer.key, "error": str(answer)}
        named = {"name": arm_names[answer.arm]} if arm_names else {}
        return {"id": answer.id, "arm": answer.arm, **named}

    def answer(request: Request) -> Request:
        after, name, eligible = _count(request, "after"), _name(request), _arms(request, "eligible")
        if "keys" not in request:
            return shown(actor.decide(_text(request, "key"), after, name, eligible=eligible))
        keys = request["keys"]
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise InputError("'keys' must be a list of texts")
        return {"decisions": [shown(one) for one in actor.decide_many(keys, after, name, eligible=eligible)]}

    return answer


def rewarder_answer(rewarder: RewarderClient) -> Answer:
    """What answers the rewarder's requests."""

    def answer(request: Request) -> Request:
        if "unlearn" in request:
            return unlearned(rewarder, _text(request, "unlearn"))
        if "rewards" not in request:
            version = rewarder.reward(*_reward(request), _name(request))
            if rewarder.has_slots:
                return {"id": request["id"], "kept": True}
            return {"id": _text(request, "id"), "version": version}
        rewards = request["rewards"]
        if not isinstance(rewards, list) or not all(isinstance(one, dict) for one in rewards):
            raise InputError("'rewards' must be a list of objects with 'id' and 'reward'")
        version = rewarder.reward_many([_reward(one) for one in rewards], _name(request))
        return {"kept": True} if rewarder.has_slots else {"version": version}

    return answer


def unlearned(rewarder: RewarderClient, decision: str) -> Request:
    """Have a decision unlearned; what is answered then."""
    return {"id": decision, "unlearned": True, "version": rewarder.unlearn(decision)}


def _too_long(limit: int, max_batch: int) -> str:
    return (
        f"a line may have {limit:,} bytes, enough for `max_batch` = {max_batch} in kit.json; "
        "this one has more and was not read: put its requests on several lines"
    )


def _parsed(line: bytes) -> Request:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("a request must be one JSON object a line") from None
    if not isinstance(request, dict):
        raise InputError("a request must be a JSON object")
    return request


def _reward(request: Request) -> tuple[str, Any]:
    if "reward" not in request:
        raise InputError("a request of the rewarder needs a reward")
    return _text(request, "id"), request["reward"]


def _text(request: Request, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise InputError(f"a request needs {name!r}, a text")
    return value


def _name(request: Request) -> str | None:
    """The name that the application gave its request."""
    return _text(request, "request") if "request" in request else None


def _arms(request: Request, name: str) -> list[int] | None:
    """Some arms by their numbers, if the request names any."""
    arms = request.get(name)
    if arms is not None and not isinstance(arms, list):
        raise InputError(f"{name!r} must be a list of arms, by their numbers")
    return arms


def _count(request: Request, name: str) -> int:
    value = request.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**63:
        raise InputError(f"{name!r} must be a whole number, not negative")
    return value
