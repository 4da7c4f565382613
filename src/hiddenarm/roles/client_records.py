"""What actor and rewarder write down.

role      area      key                   payload
actor     request   request               digest of what was asked; once it is answered, for each key the id and the
                                          arm, or null, the number of the party that refused it and why (JSON)
actor     heard     -                     the last decision of which each party has told
rewarder  epoch     the epoch's name      the rewarder's seed, the key of decision ids
rewarder  lesson    number                request; names of decisions and masked rewards
rewarder  request   request               number of the lesson
rewarder  ending    number                why the lesson was refused, empty if it was learned
rewarder  kept      -                     the first lesson that is not known to be kept by all parties
both      me        -                     whose state this is (`owner`)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hiddenarm.bandit.decisions import DecisionIds, decision_name, split_name, split_number
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import DamagedStoreError, RefusedKeyError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import KEY_BYTES, SpentSteps
from hiddenarm.roles.openings import Heard
from hiddenarm.store.contract import DeleteFrom, Put, Store
from hiddenarm.store.journal import Journal, Then

_REQUEST, _HEARD, _EPOCH, _LESSON, _ENDING, _KEPT = "request", "heard", "epoch", "lesson", "ending", "kept"
_ONLY = b""
_NUMBER = struct.Struct(">Q")
_KEPT_STATE = struct.Struct("<QB")
_HEARD_OF = struct.Struct("<HQHQ")
_LENGTH = struct.Struct("<H")
_REWARD = struct.Struct("<QQQ")
_DIGEST_BYTES = 32
_NO_EPOCH = 0
"""The name of no epoch: others are drawn from 2^48."""


class ActorRecords:
    """Requests that the application has named, and the replies they got."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        notes = _HEARD_OF.iter_unpack(store.get(_HEARD, _ONLY) or b"")
        self.heard = {party: Heard(*heard) for party, *heard in notes}
        """The last decision of which each party has told, by its number. It is written down with what is answered."""

    def asked(self, request: str) -> bytes | None:
        """The digest of what was asked under this name."""
        payload = self._store.get(_REQUEST, request.encode())
        return None if payload is None else payload[:_DIGEST_BYTES]

    def reply(
        self, request: str, keys: Sequence[str], name_of: Callable[[Identity], str] = str
    ) -> list[Decision | RefusedKeyError] | None:
        """What was answered under this name to these keys, which are not kept; nor are names of parties."""
        payload = self._store.get(_REQUEST, request.encode())
        if payload is None or len(payload) == _DIGEST_BYTES:
            return None
        answers = json.loads(payload[_DIGEST_BYTES:])
        return [_decode_answer(name_of, key, *kept) for key, kept in zip(keys, answers, strict=True)]

    def ask(self, request: str, digest: bytes, then: Then) -> None:
        self._journal.append([Put(_REQUEST, request.encode(), digest)], then)

    def answer(self, request: str, digest: bytes, answers: Sequence[Decision | RefusedKeyError], then: Then) -> None:
        text = json.dumps([_encode_answer(answer) for answer in answers]).encode()
        heard = b"".join(_HEARD_OF.pack(party, *heard) for party, heard in self.heard.items())
        changes = [Put(_REQUEST, request.encode(), digest + text), Put(_HEARD, _ONLY, heard)]
        self._journal.append(changes, then)


def _encode_answer(answer: Decision | RefusedKeyError) -> tuple[object, ...]:
    if isinstance(answer, Decision):
        return answer.id, answer.arm
    return None, answer.party, answer.reason


def _decode_answer(
    name_of: Callable[[Identity], str], key: str, identifier: str | None, number: int, why: str = ""
) -> Decision | RefusedKeyError:
    if identifier is not None:
        return Decision(identifier, number)
    return RefusedKeyError(key, number, why, named=name_of(Identity(Role.PARTY, number)))


@dataclass(frozen=True, slots=True, repr=False)
class KnownEpoch:
    """What the rewarder needs for decisions of an epoch."""

    seed: bytes
    ids: DecisionIds


@dataclass(frozen=True, slots=True, repr=False)
class MadeLesson:
    """A lesson as it was made: under which request, and (name of the decision, masked reward)."""

    request: str
    rewards: list[tuple[int, int]]


class RewarderRecords:
    """Epochs and lessons of the rewarder. Reading is immediate; what is written lasts when `then` is called."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self.kept = 0
        self.consents = False
        self.epochs = {_named(key): _decode_epoch(key, payload) for key, payload in store.items(_EPOCH)}
        """By the epoch's name, as a number."""
        if (payload := store.get(_KEPT, _ONLY)) is not None:
            kept, consents = _KEPT_STATE.unpack(payload)
            self.kept, self.consents = kept, bool(consents)
        self.made = self.kept
        self._lessons: dict[int, MadeLesson] = {}
        self._spent: dict[tuple[int, int], SpentSteps] = {}
        self._load_lessons()

    # Epochs

    def learn_epoch(self, epoch: KnownEpoch, then: Then) -> None:
        """Keep the seed of an epoch: rewards of its decisions may come at any time."""
        key = bytes.fromhex(epoch.ids.epoch)
        self.epochs[_named(key)] = epoch
        self._journal.append([Put(_EPOCH, key, epoch.seed + epoch.ids.key)], then)

    # Lessons

    def is_spent(self, name: int) -> bool:
        """Whether a reward of this decision was masked."""
        line, place = _place(name)
        return line in self._spent and place in self._spent[line]

    def make(self, lesson: MadeLesson, then: Then) -> int:
        """Keep a lesson, which gets the next number."""
        number, self.made = self.made, self.made + 1
        self._spend(lesson)
        self._lessons[number] = lesson
        key = _NUMBER.pack(number)
        changes = [Put(_LESSON, key, _encode_lesson(lesson)), Put(_REQUEST, lesson.request.encode(), key)]
        self._journal.append(changes, then)
        return number

    def lesson(self, number: int) -> MadeLesson:
        """A lesson that was made."""
        if number in self._lessons:
            return self._lessons[number]
        payload = self._store.get(_LESSON, _NUMBER.pack(number))
        if payload is None:
            raise DamagedStoreError(f"lesson {number} is missing")
        return _decode_lesson(payload)

    def lesson_of(self, request: str) -> int | None:
        """The lesson that was made under a request's name."""
        key = self._store.get(_REQUEST, request.encode())
        return None if key is None else int(_NUMBER.unpack(key)[0])

    def ending(self, number: int) -> str | None:
        """Why a lesson was refused, empty if it was learned; None while that is not known."""
        payload = self._store.get(_ENDING, _NUMBER.pack(number))
        return None if payload is None else payload.decode()

    def end(self, number: int, refused: str, then: Then) -> None:
        """Note how a lesson ended at all parties. They end in order."""
        self.kept = number + 1
        self._lessons.pop(number, None)
        changes = [Put(_ENDING, _NUMBER.pack(number), refused.encode()), self._kept()]
        self._journal.append(changes, then)

    def go_back(self, length: int, then: Then) -> None:
        """All parties have agreed on a shorter log: what comes after it is to be taught again."""
        self.kept = min(self.kept, length)
        self._journal.append([DeleteFrom(_ENDING, _NUMBER.pack(self.kept)), self._kept()], then)

    def start_behind(self, length: int, named: int, then: Then) -> None:
        """State was lost, and it was agreed to go on: which masks were used is not known, so no decision of an epoch
        before this one, of which the name is `named`, can be rewarded. The next lesson follows those that the parties
        hold, and those that were made here. In the place of lost ones come lessons that nobody can learn, so that the
        parties can still go back and be taught all numbers again."""
        self.epochs = {name: epoch for name, epoch in self.epochs.items() if name == named}
        numbers = range(self.made, length)
        lost = [Put(_LESSON, _NUMBER.pack(number), _encode_lesson(_lost(number))) for number in numbers]
        if lost:
            self.kept = self.made = length
            self._lessons = {}
        known = [Put(_EPOCH, bytes.fromhex(one.ids.epoch), one.seed + one.ids.key) for one in self.epochs.values()]
        self._journal.append([DeleteFrom(_EPOCH, b""), *known, *lost, self._kept()], then)

    def consent(self) -> None:
        """Agree to go on after a loss of state; it holds until the next epoch begins."""
        self.consents = True
        self._store.commit([self._kept()])

    def use_consent(self) -> None:
        """An epoch begins: the consent is used up, whether it was needed or not."""
        if self.consents:
            self.consents = False
            self._journal.append([self._kept()], lambda: None)

    def _kept(self) -> Put:
        return Put(_KEPT, _ONLY, _KEPT_STATE.pack(self.kept, self.consents))

    def _load_lessons(self) -> None:
        for key, payload in self._store.items(_LESSON):
            (number,) = _NUMBER.unpack(key)
            lesson = _decode_lesson(payload)
            self._spend(lesson)
            self.made = max(self.made, number + 1)
            if number >= self.kept:
                self._lessons[number] = lesson

    def _spend(self, lesson: MadeLesson) -> None:
        for name, _ in lesson.rewards:
            line, place = _place(name)
            self._spent.setdefault(line, SpentSteps(in_order=False)).spend(place)


def _place(name: int) -> tuple[tuple[int, int], int]:
    epoch, number = split_name(name)
    count, step, position = split_number(number)
    return (epoch, count), step * count + position


def _lost(number: int) -> MadeLesson:
    """In the place of a lesson that is not known any more: of a decision that was never made, which all refuse."""
    return MadeLesson("", [(decision_name(_NO_EPOCH, number), 0)])


def _decode_epoch(key: bytes, payload: bytes) -> KnownEpoch:
    return KnownEpoch(payload[:KEY_BYTES], DecisionIds(key.hex(), payload[KEY_BYTES:]))


def _named(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _encode_lesson(lesson: MadeLesson) -> bytes:
    request = lesson.request.encode()
    rewards = (_REWARD.pack(*split_name(name), masked) for name, masked in lesson.rewards)
    return _LENGTH.pack(len(request)) + request + b"".join(rewards)


def _decode_lesson(payload: bytes) -> MadeLesson:
    start = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    rewards = [(decision_name(epoch, number), word) for epoch, number, word in _REWARD.iter_unpack(payload[start:])]
    return MadeLesson(payload[_LENGTH.size : start].decode(), rewards)
