"""The actor, as a state machine without I/O: it asks for decisions by key; it alone learns the arms (`arms`).

Requests wait until an epoch is open, and are asked again in the next one if theirs ended before they were answered;
that is another draw for the same key, and only the last one is given. A request that the application has named is
answered once: its decisions are written down before they are given, and given again whenever the request is repeated,
with the refusals of single keys among them. The same name with other content is refused. A request of which every key
was refused has no answer to keep: made again, it is asked anew.

A run in which a party has no features for some keys is refused as a whole, with the positions of these keys. Then the
actor asks again for the others, in another run with its own randomness. A party names all its keys at once, so there
are at most as many runs more as parties that refuse; and each has fewer keys than the one before.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hiddenarm.bandit.catalogue import DECIDE, ProgramId
from hiddenarm.bandit.decisions import decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import (
    FeatureError,
    FrameError,
    HiddenArmError,
    InputError,
    PeerError,
    RefusedKeyError,
    UnavailableError,
)
from hiddenarm.mpc.material import program_stream
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.arms import Answer, arm_reports
from hiddenarm.roles.attempts import PeerLoss
from hiddenarm.roles.client import Client, check_name
from hiddenarm.roles.client_records import ActorRecords, MemoryActorRecords
from hiddenarm.roles.messages import (
    ACTOR,
    MAX_KEY_BYTES,
    MAX_LESSONS,
    NO_STOCK,
    decide_frame,
    program_and_step,
    read_client_seed,
    read_learned,
    read_refused,
)
from hiddenarm.roles.openings import Heard, Plan, decode_members
from hiddenarm.roles.runs import MAX_WAITING, Send
from hiddenarm.roles.vitals import Vitals

MAX_ASKED = MAX_WAITING // 2
"""Requests that may be under way: a party can be so many runs behind a peer, and keep what is for them."""

PREPARED_AT_ONCE = 64
"""Decisions whose answers are prepared together, before they are asked for."""

RunName = tuple[int, int]
"""How many decisions are made at once, and the step."""


Ticket = int
"""Names a request that waits, in this process."""

KeyAnswer = Decision | RefusedKeyError
"""What becomes of a key that was asked for."""

Outcome = list[KeyAnswer] | HiddenArmError
"""What becomes of a request: an answer for each key, or the error to raise for all."""


@dataclass(slots=True, repr=False)
class _Question:
    """Keys that were asked for together, and what became of each. It is named by its first run."""

    name: RunName
    keys: tuple[str, ...]
    answers: dict[int, KeyAnswer] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class _Asked:
    """A run under way: which keys of a question it is for, by position; the model they want, the ids of the decisions,
    who has told about them, and what."""

    question: _Question
    positions: Sequence[int]
    version: int
    ids: list[str] = field(default_factory=list)
    told: set[Identity] = field(default_factory=set)
    answer: Answer | None = None


class ActorEpoch:
    """What the actor asks in one epoch, from its seed; `outcomes` holds what came of it: an answer for each key, or the
    error to raise for all. `version` is that of the model when the epoch began."""

    def __init__(
        self, federation: Federation, send: Send, seed: bytes, version: int, name_of: Callable[[Identity], str] = str
    ) -> None:
        self.outcomes: dict[RunName, Outcome] = {}
        self.stranded = False
        """Whether the last party has refused a single decision, as it has nothing in stock."""
        self._send = send
        self._party_name = name_of
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._ids, self._seed = read_client_seed(seed)
        self._reports = arm_reports(federation)
        self._streams: dict[int, Stream] = {}
        self._prepared: dict[int, tuple[int, Sequence[Answer]]] = {}  # by count: the first step, what follows
        self._next_step: dict[int, int] = {}
        self._version = version
        self._asked: dict[RunName, _Asked] = {}

    @property
    def full(self) -> bool:
        """Whether nothing more can be asked until answers have come."""
        return len(self._asked) >= MAX_ASKED

    def ask(self, keys: tuple[str, ...], after: int) -> RunName:
        """Ask all parties to decide for some keys at once, with a model that holds at least `after` lessons."""
        name = len(keys), self._next_step.get(len(keys), 0)
        self._run(_Question(name, keys), range(len(keys)), max(self._version, after))
        return name

    def _run(self, question: _Question, positions: Sequence[int], version: int) -> None:
        """Have the parties decide for some keys of a question."""
        count, keys = len(positions), [question.keys[position] for position in positions]
        step = self._next_step.get(count, 0)
        self._next_step[count] = step + 1
        asked = self._asked[count, step] = _Asked(question, positions, version)
        frame = decide_frame(step, version, *keys)
        for party in self._parties:
            self._send(party, frame)
        self._prepare(asked, count, step)  # while the parties are at work

    def _prepare(self, asked: _Asked, count: int, step: int) -> None:
        """Find out what can be known before the answers come."""
        asked.ids = [self._ids.id_of(decision_number(count, step, position)) for position in range(count)]
        asked.answer = self._answer(count, step)

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        """A frame of a party."""
        if frame.kind is self._reports.kind:
            self._on_report(identity, frame)
        elif frame.kind is Kind.LEARNED:
            self._version = max(self._version, read_learned(frame) + 1)
        elif frame.kind is Kind.REFUSED:
            self._on_refused(identity, frame)
        else:
            raise FrameError(f"{identity} may not send {frame.kind.name}")

    def _on_report(self, identity: Identity, frame: Frame) -> None:
        program, step = program_and_step(frame)
        name = (program.count, step)
        asked = self._asked.get(name)
        if asked is None or identity in asked.told:
            raise FrameError(f"{identity} reported decision {step}, which does not wait for it")
        assert asked.answer is not None
        asked.answer.take(frame)
        asked.told.add(identity)
        if len(asked.told) == len(self._parties):
            del self._asked[name]
            self._version = max(self._version, asked.version)
            self._take(asked.question, dict(zip(asked.positions, self._decisions(step, asked), strict=True)))

    def _take(self, question: _Question, answers: Mapping[int, KeyAnswer]) -> None:
        """Answers to some keys of a question; it ends with the last of them."""
        question.answers.update(answers)
        if len(question.answers) == len(question.keys):
            self.outcomes[question.name] = [question.answers[position] for position in range(len(question.keys))]

    def _decisions(self, step: int, asked: _Asked) -> list[Decision]:
        """Turn what all parties have told into arms."""
        assert asked.answer is not None
        arms = asked.answer.arms()
        if arms is None:
            raise PeerError(f"the parties do not agree on decision {step}: they are not in step")
        return [Decision(identifier, arm) for identifier, arm in zip(asked.ids, arms, strict=True)]

    def _answer(self, count: int, step: int) -> Answer:
        """Where the answers to a request are collected. Those of many requests are prepared together."""
        first, answers = self._prepared.get(count, (0, ()))
        if not first <= step < first + len(answers):
            words = self._stream(count).steps(step, max(1, PREPARED_AT_ONCE // count))
            first, answers = self._prepared[count] = step, self._reports.answers(count, words)
        return answers[step - first]

    def _stream(self, count: int) -> Stream:
        """This role's words for decisions that are made `count` at once."""
        if count not in self._streams:
            label, words = ProgramId(DECIDE, count).label, count * self._reports.actor_words
            self._streams[count] = program_stream(self._seed, label, words)
        return self._streams[count]

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        program, step = program_and_step(frame)
        refused, why = read_refused(frame)
        asked = self._asked.pop((program.count, step), None)
        if asked is None:
            return  # another party has refused it before
        question = asked.question
        if not refused:
            kind = UnavailableError if frame.round else FeatureError
            self.outcomes[question.name] = kind(f"{self._party_name(identity)} refused the decision: {why}")
            self.stranded |= program.count == 1 and why == NO_STOCK
            return
        positions, named = [asked.positions[place] for place in refused], self._party_name(identity)
        errors = {at: RefusedKeyError(question.keys[at], identity.number, why, named=named) for at in positions}
        self._take(question, errors)
        if left := [position for position in asked.positions if position not in question.answers]:
            self._run(question, left, max(self._version, asked.version))


@dataclass(slots=True, repr=False, eq=False)
class _Waiting:
    """A request that was not answered yet: its name, if the application gave one, and what is asked."""

    request: str | None
    digest: bytes
    keys: tuple[str, ...]
    after: int
    first: Ticket
    tickets: set[Ticket]
    answered: bool = False
    """Whether the answer is only being written down."""


class Actor(Client):
    """Asks the parties; `outcomes` holds what came of it, by ticket: an answer for each key, or the error to raise for
    all."""

    me = ACTOR

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        records: ActorRecords | MemoryActorRecords,
        peer_loss: PeerLoss,
        max_batch: int = 256,
        name_of: Callable[[Identity], str] = str,
    ) -> None:
        super().__init__(federation, send, peer_loss=peer_loss, max_batch=max_batch, name_of=name_of)
        self.outcomes: dict[Ticket, Outcome] = {}
        self._records = records
        self._tickets = itertools.count()
        self._waiting: dict[Ticket, _Waiting] = {}  # by the first ticket, in the order of requests
        self._by_ticket: dict[Ticket, _Waiting] = {}
        self._by_name: dict[str, _Waiting] = {}
        self._asked: dict[RunName, _Waiting] = {}
        self._epoch: ActorEpoch | None = None
        self._epoch_name = 0
        self._reported = arm_reports(federation).kind

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting

    def vitals(self) -> Vitals:
        """How it is doing."""
        return Vitals(waiting=len(self._waiting), stranded=self._epoch is not None and self._epoch.stranded)

    def ask(self, *keys: str, after: int = 0, request: str | None = None) -> Ticket:
        """Ask for decisions, now or when an epoch is open."""
        check_request(keys, after, self._max_batch)
        ticket = next(self._tickets)
        digest = b""
        if request is not None:
            digest = _digest(keys, after)
            if self._answer_again(ticket, check_name(request), digest, keys):
                return ticket
        if len(self._waiting) >= MAX_ASKED or (self._epoch is not None and self._epoch.full):
            raise UnavailableError(f"{MAX_ASKED} requests wait already; make this one again later")
        waiting = _Waiting(request, digest, keys, after, ticket, {ticket})
        self._waiting[ticket] = self._by_ticket[ticket] = waiting
        if request is not None:
            self._by_name[request] = waiting
            self._records.ask(request, digest, lambda: None)
        if self._epoch is not None:
            self._asked[self._epoch.ask(keys, after)] = waiting
        return ticket

    def expected(self, ticket: Ticket) -> bool:
        """Whether an answer is awaited, or there."""
        return ticket in self.outcomes or ticket in self._by_ticket

    def give_up(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any longer. What has a name is answered all the same, for when it is asked for
        again."""
        self.outcomes.pop(ticket, None)
        waiting = self._by_ticket.pop(ticket, None)
        if waiting is not None:
            waiting.tickets.discard(ticket)
            if not waiting.tickets and waiting.request is None:
                del self._waiting[waiting.first]

    def _answer_again(self, ticket: Ticket, request: str, digest: bytes, keys: Sequence[str]) -> bool:
        """Give the reply that was given under this name, or is awaited; whether it was ever asked for."""
        waiting = self._by_name.get(request)
        for other in (self._records.asked(request), None if waiting is None else waiting.digest):
            if other is not None and other != digest:
                raise InputError(f"request {request!r} was made before, with other keys or another `after`")
        if (reply := self._records.reply(request, keys, self._party_name)) is not None:
            self.outcomes[ticket] = reply
        elif waiting is not None:
            waiting.tickets.add(ticket)
            self._by_ticket[ticket] = waiting
        return reply is not None or waiting is not None

    def _missing_at(self, said: bytes) -> Sequence[Identity]:
        return decode_members(said)

    def _say(self, identity: Identity) -> bytes:
        heard = self._records.heard.get(identity.number) if identity in self.parties else None
        return b"" if heard is None else heard.encode()

    def _start(self, plan: Plan, seed: bytes) -> None:
        self._epoch_name = plan.named
        self._epoch = epoch = ActorEpoch(self.federation, self._send, seed, plan.length, self._party_name)
        for waiting in self._waiting.values():
            if not waiting.answered:
                self._asked[epoch.ask(waiting.keys, waiting.after)] = waiting

    def _stop(self) -> None:
        self._epoch = None
        self._asked = {}

    def _on_epoch_frame(self, identity: Identity, frame: Frame) -> None:
        epoch = self._epoch
        if epoch is None:
            return  # told before all parties are active: a new lesson, or the end of a run nobody asked for
        epoch.on_frame(identity, frame)
        if self.lasting and frame.kind is self._reported:
            program, step = program_and_step(frame)
            self._records.heard[identity.number] = Heard(self._epoch_name, program.count, step)
        while epoch.outcomes:
            self._settle(*epoch.outcomes.popitem())

    def _settle(self, name: RunName, outcome: Outcome) -> None:
        """Give an answer; one that must be the same when the request is repeated lasts before."""
        waiting = self._asked.pop(name)
        waiting.answered = True
        answers = None if isinstance(outcome, HiddenArmError) else outcome
        if waiting.request is None or answers is None or not any(isinstance(answer, Decision) for answer in answers):
            self._give(waiting, outcome)
        else:
            give = partial(self._give, waiting, outcome)
            self._records.answer(waiting.request, waiting.digest, answers, give)

    def _give(self, waiting: _Waiting, outcome: Outcome) -> None:
        self._waiting.pop(waiting.first, None)
        if waiting.request is not None:
            self._by_name.pop(waiting.request, None)
        for ticket in waiting.tickets:
            del self._by_ticket[ticket]
            self.outcomes[ticket] = outcome


def all_decided(answers: Sequence[KeyAnswer]) -> list[Decision]:
    """The decisions for all keys; raises for the first key that was refused."""
    decisions = []
    for answer in answers:
        if isinstance(answer, RefusedKeyError):
            raise answer
        decisions.append(answer)
    return decisions


def check_request(keys: Sequence[str], after: int, max_batch: int) -> None:
    """Refuse what cannot be asked."""
    if not 1 <= len(keys) <= max_batch:
        raise InputError(f"a request has 1 to {max_batch} keys, got {len(keys)}")
    for key in keys:
        _check_key(key)
    if type(after) is not int or not 0 <= after < MAX_LESSONS:
        raise InputError("`after` must be a version of the model: a whole number, not negative")


def _digest(keys: Sequence[str], after: int) -> bytes:
    digest = hashlib.blake2b(after.to_bytes(8, "big"), digest_size=32, person=b"hiddenarm ask")
    for key in keys:
        encoded = key.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.digest()


def _check_key(key: str) -> None:
    """Refuse what is no key: it must be text that can be sent, not empty and not too long."""
    try:
        fits = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FeatureError(f"a key must be text of 1 to {MAX_KEY_BYTES} bytes")
