"""The actor, as a state machine without I/O: it asks for decisions by key; it alone learns the arms (`arms`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hiddenarm.bandit.decisions import decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import (
    FeatureError,
    FrameError,
    HiddenArmError,
    InputError,
    PeerError,
    PeerLost,
    UnavailableError,
)
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.arms import Answer, arm_reports
from hiddenarm.roles.client import Client
from hiddenarm.roles.messages import (
    MAX_KEY_BYTES,
    MAX_LESSONS,
    NO_STOCK,
    decide_frame,
    program_and_step,
    read_learned,
    read_refused,
)
from hiddenarm.roles.runs import MAX_WAITING, Send
from hiddenarm.roles.vitals import Vitals

MAX_ASKED = MAX_WAITING // 2
"""Requests that may be under way: a party can be so many runs behind a peer, and keep what is for them."""

PREPARED_AT_ONCE = 64
"""Decisions whose answers are prepared together, before they are asked for."""

RunName = tuple[int, int]
"""How many decisions are made at once, and the step."""


@dataclass(slots=True, repr=False)
class _Asked:
    """Decisions under way: the model they want, their ids, who has told about them, and what."""

    version: int
    ids: list[str] = field(default_factory=list)
    told: set[Identity] = field(default_factory=set)
    answer: Answer | None = None


class Actor(Client):
    """Asks the parties; `outcomes` holds what came of it: decisions, or the error to raise."""

    def __init__(self, federation: Federation, send: Send, *, max_batch: int = 256, version: int = 0) -> None:
        super().__init__(federation, send, max_batch=max_batch)
        self.outcomes: dict[RunName, list[Decision] | HiddenArmError] = {}
        self._reports = arm_reports(federation)
        self._streams: dict[int, Stream] = {}
        self._prepared: dict[int, tuple[int, Sequence[Answer]]] = {}  # by count: the first step, what follows
        self._next_step: dict[int, int] = {}
        self._version = version
        self._asked: dict[RunName, _Asked] = {}
        self._stranded = False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._asked

    @property
    def full(self) -> bool:
        """Whether nothing more can be asked until answers have come."""
        return len(self._asked) >= MAX_ASKED

    def expected(self, name: RunName) -> bool:
        """Whether these decisions are under way, or there."""
        return name in self._asked or name in self.outcomes

    def ask(self, *keys: str, after: int = 0) -> RunName:
        """Ask all parties to decide for some keys at once, with a model that holds at least `after` lessons."""
        check_request(keys, after, self._max_batch)
        if not self.ready:
            raise PeerLost("the actor has not met all parties and the dealer")
        if self.full:
            raise UnavailableError(f"{MAX_ASKED} requests wait already; make this one again later")
        version = max(self._version, after)
        step = self._next_step.get(len(keys), 0)
        self._next_step[len(keys)] = step + 1
        asked = self._asked[len(keys), step] = _Asked(version)
        frame = decide_frame(step, version, *keys)
        for party in self._parties:
            self._send(party, frame)
        self._prepare(asked, len(keys), step)  # while the parties are at work
        return len(keys), step

    def _prepare(self, asked: _Asked, count: int, step: int) -> None:
        """Find out what can be known before the answers come."""
        assert self._ids is not None
        asked.ids = [self._ids.id_of(decision_number(count, step, position)) for position in range(count)]
        asked.answer = self._answer(count, step)

    def vitals(self) -> Vitals:
        """How it is doing."""
        return Vitals(waiting=len(self._asked), stranded=self._stranded)

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        match identity.role, frame.kind:
            case Role.PARTY, self._reports.kind:
                self._on_report(identity, frame)
            case Role.PARTY, Kind.LEARNED:
                self._version = max(self._version, read_learned(frame) + 1)
            case Role.PARTY, Kind.REFUSED:
                self._on_refused(identity, frame)
            case Role.DEALER, Kind.SEED:
                self._on_seed(frame)
            case _:
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
            self.outcomes[name] = self._decisions(step, asked)

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
            self._streams[count] = self._decision_stream(count, count * self._reports.actor_words)
        return self._streams[count]

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        program, step = program_and_step(frame)
        if self._asked.pop((program.count, step), None) is not None:
            kind, why = UnavailableError if frame.round else FeatureError, read_refused(frame)
            self.outcomes[program.count, step] = kind(f"{identity} refused the decision: {why}")
            self._stranded |= program.count == 1 and why == NO_STOCK


def check_request(keys: Sequence[str], after: int, max_batch: int) -> None:
    """Refuse what cannot be asked."""
    if not 1 <= len(keys) <= max_batch:
        raise InputError(f"a request has 1 to {max_batch} keys, got {len(keys)}")
    for key in keys:
        _check_key(key)
    if type(after) is not int or not 0 <= after < MAX_LESSONS:
        raise InputError("`after` must be a version of the model: a whole number, not negative")


def _check_key(key: str) -> None:
    """Refuse what is no key: it must be text that can be sent, not empty and not too long."""
    try:
        fits = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FeatureError(f"a key must be text of 1 to {MAX_KEY_BYTES} bytes")
