"""The actor, as a state machine without I/O: it asks for decisions by key; it alone learns the arms (`arms`).

A run in which a party has no features for some keys is refused as a whole, with the positions of these keys. Then the
actor asks again for the others, in another run with its own randomness. A party names all its keys at once, so there
are at most as many runs more as parties that refuse; and each has fewer keys than the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    RefusedKeyError,
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


KeyAnswer = Decision | RefusedKeyError
"""What becomes of a key that was asked for."""


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


class Actor(Client):
    """Asks the parties; `outcomes` holds what came of it: an answer for each key, or the error to raise for all."""

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        max_batch: int = 256,
        version: int = 0,
        name_of: Callable[[Identity], str] = str,
    ) -> None:
        super().__init__(federation, send, max_batch=max_batch, name_of=name_of)
        self.outcomes: dict[RunName, list[KeyAnswer] | HiddenArmError] = {}
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
        return name in self.outcomes or any(asked.question.name == name for asked in self._asked.values())

    def ask(self, *keys: str, after: int = 0) -> RunName:
        """Ask all parties to decide for some keys at once, with a model that holds at least `after` lessons."""
        check_request(keys, after, self._max_batch)
        if not self.ready:
            raise PeerLost("the actor has not met all parties and the dealer")
        if self.full:
            raise UnavailableError(f"{MAX_ASKED} requests wait already; make this one again later")
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
            self._streams[count] = self._decision_stream(count, count * self._reports.actor_words)
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
            self._stranded |= program.count == 1 and why == NO_STOCK
            return
        positions, named = [asked.positions[place] for place in refused], self._party_name(identity)
        errors = {at: RefusedKeyError(question.keys[at], identity.number, why, named=named) for at in positions}
        self._take(question, errors)
        if left := [position for position in asked.positions if position not in question.answers]:
            self._run(question, left, max(self._version, asked.version))


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


def _check_key(key: str) -> None:
    """Refuse what is no key: it must be text that can be sent, not empty and not too long."""
    try:
        fits = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FeatureError(f"a key must be text of 1 to {MAX_KEY_BYTES} bytes")
