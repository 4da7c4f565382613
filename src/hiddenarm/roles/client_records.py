"""What actor and rewarder write down.

role      area      key                   payload
actor     request   request               digest of what was asked; once it is answered, for each key the id and the
                                          arm, or null, the number of the party that refused it and why (JSON)
actor     deferred  request               whether the decision, which was deferred, is activated: a byte, 0 or 1
actor     arms      epoch, number of a    the masked one-hots of all decisions of this run, until all parties have said
                    run's first decision  that they keep them
actor     told      -                     the last run of which each party has told, and the last whose one-hots it has
                                          said to keep
rewarder  epoch     the epoch's name      the rewarder's seed, the key of decision ids
rewarder  lesson    number                request; names of decisions and masked rewards
rewarder  request   request               number of the lesson, also of one that holds rewards of other requests
rewarder  joined    number                of a lesson that holds rewards of several requests: these, in the order of its
                                          rewards (JSON)
rewarder  unlearned epoch, number of the  number of the lesson that unlearns this decision
                    decision
rewarder  ending    number                why the lesson was refused, empty if it was learned
rewarder  given     request               with reward slots: names of decisions and masked rewards that came under it
rewarder  slot      -                     with reward slots, or if decisions expire: names of the decisions whose
                                          rewards are awaited until the slot under way ends
rewarder  kept      -                     the first lesson that is not known to be kept by all parties
both      me        -                     whose state this is (`owner`)
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from hiddenarm.bandit.answers import NO_ARM, TWO_ARMS
from hiddenarm.bandit.catalogue import DECIDE, ProgramId
from hiddenarm.bandit.decisions import (
    MAX_PENDING,
    DecisionIds,
    DecisionSet,
    decision_name,
    decision_number,
    split_name,
    split_number,
)
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.retained import Retained
from hiddenarm.errors import DamagedStoreError, NoArmError, RefusedKeyError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import KEY_BYTES
from hiddenarm.roles.epochs.plan import Heard
from hiddenarm.roles.messages import ReturnedArms, Unlearning
from hiddenarm.store.contract import Delete, DeleteFrom, Put, Store
from hiddenarm.store.journal import Journal, Then

_REQUEST, _ARMS, _TOLD, _EPOCH, _LESSON, _ENDING, _KEPT = "request", "arms", "told", "epoch", "lesson", "ending", "kept"
_GIVEN, _SLOT, _DEFERRED, _JOINED, _UNLEARNED = "given", "slot", "deferred", "joined", "unlearned"
_HEARD = "heard"
"""In the place of `told` in earlier versions: epoch, how many at once, step."""
_ONLY = b""
_WAITING, _ACTIVE = b"\0", b"\1"
_NUMBER = struct.Struct(">Q")
_KEPT_STATE = struct.Struct("<QB")
_TOLD_OF = struct.Struct("<HQQQQ")
_HEARD_OF = struct.Struct("<HQHQ")
_RUN = struct.Struct(">QQ")
_LENGTH = struct.Struct("<H")
_REWARD = struct.Struct("<QQQ")
_UNLEARNS = b"\x01"
"""Ends the record of an unlearning, which is by this longer than any number of rewards."""
_DIGEST_BYTES = 32
_NO_EPOCH = 0
"""The name of no epoch: others are drawn from 2^48."""
KeyAnswer = Decision | RefusedKeyError | NoArmError
"""What becomes of a key that was asked for."""


class Deferral(Enum):
    """Whether the decision of a request can be rewarded."""

    NONE = "not deferred"
    WAITING = "deferred"
    ACTIVE = "activated"


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """What is kept of a request that was answered."""

    request: str
    digest: bytes
    answers: Sequence[KeyAnswer]


@dataclass(slots=True, repr=False)
class _Unkept:
    """One-hots that last at the actor, and the parties that have said to keep them."""

    returned: ReturnedArms
    kept_by: set[int] = field(default_factory=set)


class ActorRecords:
    """Requests that the application has named, and the replies they got; one-hots that are returned to the parties,
    until all of them keep them."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self.heard = _decode_told(store)
        """What each party has told last, by its number. It is written down with what is answered, and when one-hots
        are forgotten that all parties keep."""
        self._deferring: set[str] = set()
        """Requests with a deferred decision of which that is still to be written down."""
        self._unkept: dict[int, _Unkept] = {}
        for key, masked in store.items(_ARMS):
            epoch, number = _RUN.unpack(key)
            program, step, _ = split_number(number)
            returned = ReturnedArms(epoch, program, step, masked)
            self._unkept[returned.name] = _Unkept(returned)

    @property
    def unkept(self) -> list[ReturnedArms]:
        """The one-hots that last here, and that not all parties have said to keep."""
        return [unkept.returned for unkept in self._unkept.values()]

    def keep_arms(self, returned: ReturnedArms, then: Then) -> None:
        """Keep one-hots as they will be sent."""
        self._journal.append([_arms(returned)], partial(self._lasts, returned, then))

    def _lasts(self, returned: ReturnedArms, then: Then) -> None:
        self._unkept[returned.name] = _Unkept(returned)
        then()

    def arms_kept(self, party: int, names: Sequence[int], parties: int) -> None:
        """A party keeps the one-hots of these runs; what all `parties` keep is forgotten."""
        gone = []
        for name in names:
            self.heard[party] = Heard(self.heard[party].decided if party in self.heard else 0, name)
            if (unkept := self._unkept.get(name)) is not None:
                unkept.kept_by.add(party)
                if len(unkept.kept_by) == parties:
                    del self._unkept[name]
                    gone.append(Delete(_ARMS, _run_key(name)))
        if gone:
            self._journal.append([*gone, self._told()], lambda: None)

    def _told(self) -> Put:
        told = (
            _TOLD_OF.pack(party, *split_name(decided), *split_name(kept))
            for party, (decided, kept) in self.heard.items()
        )
        return Put(_TOLD, _ONLY, b"".join(told))

    def asked(self, request: str) -> bytes | None:
        """The digest of what was asked under this name."""
        payload = self._store.get(_REQUEST, request.encode())
        return None if payload is None else payload[:_DIGEST_BYTES]

    def reply(
        self, request: str, keys: Sequence[str], name_of: Callable[[Identity], str] = str
    ) -> list[KeyAnswer] | None:
        """What was answered under this name to these keys, which are not kept; nor are names of parties."""
        payload = self._store.get(_REQUEST, request.encode())
        if payload is None or len(payload) == _DIGEST_BYTES:
            return None
        answers = json.loads(payload[_DIGEST_BYTES:])
        return [_decode_answer(name_of, key, *kept) for key, kept in zip(keys, answers, strict=True)]

    def decided(self, request: str) -> list[str] | None:
        """The ids of the decisions that a request got, if it was answered."""
        payload = self._store.get(_REQUEST, request.encode())
        if payload is None or len(payload) == _DIGEST_BYTES:
            return None
        return [identifier for identifier, *_ in json.loads(payload[_DIGEST_BYTES:]) if identifier is not None]

    def ask(self, request: str, digest: bytes, then: Then, *, deferred: bool = False) -> None:
        """Note what is asked; a decision that is `deferred` cannot be rewarded until it is activated."""
        changes = [Put(_REQUEST, request.encode(), digest)]
        if not deferred:
            self._journal.append(changes, then)
            return

        def lasts() -> None:
            self._deferring.discard(request)
            then()

        self._deferring.add(request)
        self._journal.append([*changes, Put(_DEFERRED, request.encode(), _WAITING)], lasts)

    def activate(self, request: str, then: Then) -> None:
        """The decision of a request can be rewarded from now on."""
        self._journal.append([Put(_DEFERRED, request.encode(), _ACTIVE)], then)

    def deferral(self, request: str) -> Deferral:
        state = _WAITING if request in self._deferring else self._store.get(_DEFERRED, request.encode())
        return Deferral.NONE if state is None else Deferral.ACTIVE if state == _ACTIVE else Deferral.WAITING

    def answer(self, replies: Sequence[Reply], then: Then, returned: ReturnedArms | None = None) -> None:
        """Keep the replies to requests that were decided together, with the one-hots of all decisions of the run if
        they are to be returned: all of it or nothing."""
        changes = [*map(_encode_reply, replies), self._told()]
        if returned is None:
            self._journal.append(changes, then)
        else:
            self._journal.append([*changes, _arms(returned)], partial(self._lasts, returned, then))


class MemoryActorRecords:
    """The records of an actor whose state ends with it: the newest requests and their answers, `most` in all. One-hots
    are sent once, on links that end with the federation."""

    unkept: Sequence[ReturnedArms] = ()

    def __init__(self, most: int = MAX_PENDING) -> None:
        self.heard: dict[int, Heard] = {}
        self._most = most
        self._size = 0
        self._kept: OrderedDict[str, tuple[bytes, Sequence[KeyAnswer]]] = OrderedDict()
        self._deferrals: dict[str, Deferral] = {}

    def keep_arms(self, returned: ReturnedArms, then: Then) -> None:
        then()

    def arms_kept(self, party: int, names: Sequence[int], parties: int) -> None:
        return

    def asked(self, request: str) -> bytes | None:
        return self._kept[request][0] if request in self._kept else None

    def reply(
        self, request: str, keys: Sequence[str], name_of: Callable[[Identity], str] = str
    ) -> list[KeyAnswer] | None:
        if request not in self._kept or not (answers := self._kept[request][1]):
            return None
        return [_answered_again(answer, key, name_of) for answer, key in zip(answers, keys, strict=True)]

    def decided(self, request: str) -> list[str] | None:
        answers = self._kept[request][1] if request in self._kept else ()
        return [answer.id for answer in answers if isinstance(answer, Decision)] or None

    def ask(self, request: str, digest: bytes, then: Then, *, deferred: bool = False) -> None:
        if deferred:
            self._deferrals[request] = Deferral.WAITING
        self.answer([Reply(request, digest, ())], then)

    def activate(self, request: str, then: Then) -> None:
        self._deferrals[request] = Deferral.ACTIVE
        then()

    def deferral(self, request: str) -> Deferral:
        return self._deferrals.get(request, Deferral.NONE)

    def answer(self, replies: Sequence[Reply], then: Then, returned: ReturnedArms | None = None) -> None:
        for reply in replies:
            self._keep(reply.request, reply.digest, reply.answers)
        then()

    def _keep(self, request: str, digest: bytes, answers: Sequence[KeyAnswer]) -> None:
        if request in self._kept:
            self._size -= 1 + len(self._kept.pop(request)[1])
        self._kept[request] = digest, answers
        self._size += 1 + len(answers)
        while self._size > self._most:
            name, (_, oldest) = self._kept.popitem(last=False)
            self._deferrals.pop(name, None)
            self._size -= 1 + len(oldest)


def _run_key(name: int) -> bytes:
    """The key of a decision, or of a run by its first decision."""
    return _RUN.pack(*split_name(name))


def _arms(returned: ReturnedArms) -> Put:
    return Put(_ARMS, _run_key(returned.name), returned.masked)


def _decode_told(store: Store) -> dict[int, Heard]:
    """What each party has told last; earlier versions wrote only of which decision."""
    if (told := store.get(_TOLD, _ONLY)) is not None:
        runs = _TOLD_OF.iter_unpack(told)
        return {party: Heard(decision_name(*run[:2]), decision_name(*run[2:])) for party, *run in runs}
    earlier = _HEARD_OF.iter_unpack(store.get(_HEARD, _ONLY) or b"")
    return {
        party: Heard(decision_name(epoch, decision_number(ProgramId(DECIDE, count), step)))
        for party, epoch, count, step in earlier
    }


def _answered_again(answer: KeyAnswer, key: str, name_of: Callable[[Identity], str]) -> KeyAnswer:
    """An error that may be raised once more is made anew."""
    if isinstance(answer, Decision):
        return answer
    if isinstance(answer, NoArmError):
        return NoArmError(key, ambiguous=answer.ambiguous)
    return RefusedKeyError(key, answer.party, answer.reason, named=name_of(Identity(Role.PARTY, answer.party)))


def _encode_reply(reply: Reply) -> Put:
    text = json.dumps([_encode_answer(answer) for answer in reply.answers]).encode()
    return Put(_REQUEST, reply.request.encode(), reply.digest + text)


def _encode_answer(answer: KeyAnswer) -> tuple[object, ...]:
    if isinstance(answer, Decision):
        return answer.id, answer.arm
    if isinstance(answer, NoArmError):
        return None, TWO_ARMS if answer.ambiguous else NO_ARM
    return None, answer.party, answer.reason


def _decode_answer(
    name_of: Callable[[Identity], str], key: str, identifier: str | None, number: int, why: str = ""
) -> KeyAnswer:
    if identifier is not None:
        return Decision(identifier, number)
    if number in (NO_ARM, TWO_ARMS):
        return NoArmError(key, ambiguous=number == TWO_ARMS)
    return RefusedKeyError(key, number, why, named=name_of(Identity(Role.PARTY, number)))


@dataclass(frozen=True, slots=True, repr=False)
class KnownEpoch:
    """What the rewarder needs for decisions of an epoch."""

    seed: bytes
    ids: DecisionIds


@dataclass(frozen=True, slots=True, repr=False)
class MadeLesson:
    """A lesson as it was made: under which request, and (name of the decision, masked reward); or an unlearning, which
    has neither. `joined` are the requests whose rewards are learned together in it, in the order of these, empty for
    one without a name; `again` says that its reward is one of a joint lesson that was refused, under the mask that it
    had there. Neither is read back with it (`joined`)."""

    request: str
    rewards: list[tuple[int, int]]
    unlearning: Unlearning | None = None
    joined: tuple[str, ...] = ()
    again: bool = False

    @property
    def requests(self) -> list[str]:
        """All names under which it is known."""
        return [name for name in (self.request, *self.joined) if name]


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
        self._spent = DecisionSet()
        """Those of which a reward was masked."""
        self._unlearned = DecisionSet()
        """Those that are unlearned, or dropped as they have expired, which may be most of all."""
        self._load_lessons()
        self._given = _Given()
        for _, rewards in store.items(_GIVEN):
            self._given.add(_decode_rewards(rewards), self.is_spent)
        self.awaited = [decision_name(*pair) for pair in _RUN.iter_unpack(store.get(_SLOT, _ONLY) or b"")]
        """The decisions of the slot that ended last: their rewards are sent when the one under way ends."""

    # Epochs

    def learn_epoch(self, epoch: KnownEpoch, then: Then) -> None:
        """Keep the seed of an epoch: rewards of its decisions may come at any time."""
        key = bytes.fromhex(epoch.ids.epoch)
        self.epochs[_named(key)] = epoch
        self._journal.append([Put(_EPOCH, key, epoch.seed + epoch.ids.key)], then)

    # Lessons

    def is_spent(self, name: int) -> bool:
        """Whether a reward of this decision was masked."""
        return name in self._spent

    def make(self, lesson: MadeLesson, then: Then) -> int:
        """Keep a lesson, which gets the next number."""
        number, self.made = self.made, self.made + 1
        self._spend(lesson)
        self._lessons[number] = lesson
        self._journal.append(self._made(number, lesson), then)
        return number

    def _made(self, number: int, lesson: MadeLesson) -> list[Put]:
        """What is written of a lesson that was made."""
        key = _NUMBER.pack(number)
        changes = [Put(_LESSON, key, _encode_lesson(lesson))]
        if lesson.unlearning is None:
            changes.extend(Put(_REQUEST, request.encode(), key) for request in lesson.requests)
            if lesson.joined:
                changes.append(Put(_JOINED, key, json.dumps(lesson.joined).encode()))
        else:
            self._unlearned.add(lesson.unlearning.name)
            changes.append(Put(_UNLEARNED, _run_key(lesson.unlearning.name), key))
        return changes

    # Unlearning

    def unlearned_by(self, name: int) -> int | None:
        """The unlearning of a decision, by its number, if there is one. That of an earlier version is searched for in
        all of the log."""
        if name not in self._unlearned:
            return None
        payload = self._store.get(_UNLEARNED, _run_key(name))
        if payload is not None:
            return int(_NUMBER.unpack(payload)[0])
        written = ((int(_NUMBER.unpack(key)[0]), _decode_lesson(lesson)) for key, lesson in self._store.items(_LESSON))
        made = itertools.chain(self._lessons.items(), written)  # that which does not last yet is among the former
        return next(number for number, lesson in made if lesson.unlearning and lesson.unlearning.name == name)

    def learned_in(self, name: int) -> int | None:
        """The lesson that has the reward of a decision, the last one if it was refused in others. One with several
        rewards, or of a request that had a name, is searched for in all of the log."""
        for number, lesson in reversed(self._lessons.items()):
            if _has(lesson, name):
                return number
        single = self.lesson_of(self.name_of([name]))
        if single is not None and _has(self.lesson(single), name):
            return single
        found = (key for key, payload in self._store.items(_LESSON) if _has(_decode_lesson(payload), name))
        return max((int(_NUMBER.unpack(key)[0]) for key in found), default=None)

    # Reward slots

    def give(self, request: str, rewards: list[tuple[int, int]], then: Then) -> None:
        """Keep masked rewards until the slots of their decisions are sent."""
        self._given.add(rewards, self.is_spent)
        self._journal.append([Put(_GIVEN, request.encode(), _encode_rewards(rewards))], then)

    def given_under(self, request: str) -> list[tuple[int, int]] | None:
        """What came under the name of a request, if it lasts."""
        payload = self._store.get(_GIVEN, request.encode())
        return None if payload is None else _decode_rewards(payload)

    def was_given(self, name: int) -> bool:
        """Whether a reward of this decision has come."""
        return self._given.came(name)

    def given(self, name: int) -> int | None:
        """The masked reward of a decision that has come and was not sent."""
        return self._given.waiting.get(name)

    def end_slot(self, lessons: Sequence[MadeLesson], awaited: list[int], then: Then) -> None:
        """Make the lessons of the slot that was awaited, which get the next numbers, and await another one: both or
        neither."""
        changes: list[Put] = []
        for lesson in lessons:
            changes += self._made(self.made, lesson)
            self._lessons[self.made] = lesson
            self.made += 1
            self._spend(lesson)
            self._given.sent(lesson)
        self.awaited = awaited
        slot = b"".join(_RUN.pack(*split_name(name)) for name in awaited)
        self._journal.append([*changes, Put(_SLOT, _ONLY, slot)], then)

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

    def joined(self, number: int) -> Sequence[str]:
        """The requests whose rewards are learned together in a lesson, in the order of these; none of other lessons."""
        if number in self._lessons and self._lessons[number].joined:
            return self._lessons[number].joined
        payload = self._store.get(_JOINED, _NUMBER.pack(number))
        return () if payload is None else tuple(json.loads(payload))

    def name_of(self, names: Sequence[int]) -> str:
        """The name of a request that the application gave none: its decisions, which are rewarded once. So it may be
        repeated, too."""
        digest = hashlib.blake2b(digest_size=24, person=b"hiddenarm teach")
        for name in names:
            digest.update(name.to_bytes(16, "big"))
        return f"decisions {digest.hexdigest()}"

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
            _spend_any(self._spent, lesson)
            if lesson.unlearning is not None and lesson.unlearning.name not in self._unlearned:
                self._unlearned.add(lesson.unlearning.name)
            self.made = max(self.made, number + 1)
            if number >= self.kept:
                self._lessons[number] = lesson

    def _spend(self, lesson: MadeLesson) -> None:
        _spend(self._spent, lesson)


class _Given:
    """With reward slots: the masked rewards that have come and were not sent, and of which decisions any came."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}
        self._came = DecisionSet()

    def add(self, rewards: Sequence[tuple[int, int]], is_sent: Callable[[int], bool]) -> None:
        for name, masked in rewards:
            self._came.add(name)
            if not is_sent(name):
                self.waiting[name] = masked

    def came(self, name: int) -> bool:
        return name in self._came

    def sent(self, lesson: MadeLesson) -> None:
        for name, _ in lesson.rewards:
            self.waiting.pop(name, None)


class MemoryRewarderRecords:
    """The records of a rewarder whose state ends with it; nothing is encoded. A lesson is kept until it has ended. Of
    the lessons that have ended those with a name are kept, the newest of them, as many as have `most` rewards; and why
    some were refused, of as many."""

    consents = False

    def __init__(self, most: int = MAX_PENDING) -> None:
        self.kept = self.made = 0
        self.epochs: dict[int, KnownEpoch] = {}
        self._most = most
        self._lessons: dict[int, MadeLesson] = {}
        self._numbers: dict[str, int] = {}
        self._ended: OrderedDict[int, int] = OrderedDict()  # named lessons that have ended, and their rewards
        self._ended_rewards = 0
        self._refused: OrderedDict[int, str] = OrderedDict()
        self._spent = DecisionSet()
        self._given = _Given()
        self._given_under: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()
        self.awaited: list[int] = []
        self._learned_in: Retained[int] = Retained(most)
        self._unlearned: Retained[int] = Retained(most)

    def give(self, request: str, rewards: list[tuple[int, int]], then: Then) -> None:
        self._given.add(rewards, self.is_spent)
        if request:
            self._given_under[request] = rewards
            if len(self._given_under) > self._most:
                self._given_under.popitem(last=False)
        then()

    def given_under(self, request: str) -> list[tuple[int, int]] | None:
        return self._given_under.get(request)

    def was_given(self, name: int) -> bool:
        return self._given.came(name)

    def given(self, name: int) -> int | None:
        return self._given.waiting.get(name)

    def end_slot(self, lessons: Sequence[MadeLesson], awaited: list[int], then: Then) -> None:
        for lesson in lessons:
            self._given.sent(lesson)
            self.make(lesson, lambda: None)
        self.awaited = awaited
        then()

    def learn_epoch(self, epoch: KnownEpoch, then: Then) -> None:
        self.epochs[int(epoch.ids.epoch, 16)] = epoch
        then()

    def is_spent(self, name: int) -> bool:
        return name in self._spent

    def make(self, lesson: MadeLesson, then: Then) -> int:
        number, self.made = self.made, self.made + 1
        _spend(self._spent, lesson)
        self._lessons[number] = lesson
        self._numbers.update(dict.fromkeys(lesson.requests, number))
        for name, _ in lesson.rewards:
            self._learned_in.add(name, number)
        if lesson.unlearning is not None:
            self._unlearned.add(lesson.unlearning.name, number)
        then()
        return number

    def unlearned_by(self, name: int) -> int | None:
        return self._unlearned.get(name)

    def learned_in(self, name: int) -> int | None:
        return self._learned_in.get(name)

    def lesson(self, number: int) -> MadeLesson:
        return self._lessons[number]

    def lesson_of(self, request: str) -> int | None:
        return self._numbers.get(request)

    def joined(self, number: int) -> Sequence[str]:
        return self._lessons[number].joined

    def name_of(self, names: Sequence[int]) -> str:
        """A request without a name has none: it is not known again."""
        return ""

    def ending(self, number: int) -> str | None:
        return self._refused.get(number, "") if number < self.kept else None

    def end(self, number: int, refused: str, then: Then) -> None:
        self.kept = number + 1
        if refused:
            self._refused[number] = refused
            if len(self._refused) > self._most:
                self._refused.popitem(last=False)
        if self._lessons[number].requests:
            self._keep_ended(number)
        else:
            del self._lessons[number]
        then()

    def _keep_ended(self, number: int) -> None:
        self._ended[number] = len(self._lessons[number].rewards)
        self._ended_rewards += self._ended[number]
        while self._ended_rewards > self._most:
            oldest, rewards = self._ended.popitem(last=False)
            self._ended_rewards -= rewards
            for request in self._lessons.pop(oldest).requests:
                if self._numbers.get(request) == oldest:
                    del self._numbers[request]

    def go_back(self, length: int, then: Then) -> None:
        then()

    def start_behind(self, length: int, named: int, then: Then) -> None:
        then()

    def use_consent(self) -> None:
        return


def _spend(spent: DecisionSet, lesson: MadeLesson) -> None:
    """No other reward of these decisions is masked: that of one whose mask is used is an error."""
    if lesson.again:
        return
    for name in _used_by(lesson):
        spent.add(name)


def _spend_any(spent: DecisionSet, lesson: MadeLesson) -> None:
    """The same for a lesson that was made before, and may have been made again."""
    for name in _used_by(lesson):
        if name not in spent:
            spent.add(name)


def _used_by(lesson: MadeLesson) -> list[int]:
    """The decisions of a lesson. One that is dropped has no reward, and gets none."""
    dropped = [lesson.unlearning.name] if lesson.unlearning is not None and lesson.unlearning.drops else []
    return [*(name for name, _ in lesson.rewards), *dropped]


def _has(lesson: MadeLesson, name: int) -> bool:
    return any(own == name for own, _ in lesson.rewards)


def _lost(number: int) -> MadeLesson:
    """In the place of a lesson that is not known any more: of a decision that was never made, which all refuse."""
    return MadeLesson("", [(decision_name(_NO_EPOCH, number), 0)])


def _decode_epoch(key: bytes, payload: bytes) -> KnownEpoch:
    return KnownEpoch(payload[:KEY_BYTES], DecisionIds(key.hex(), payload[KEY_BYTES:]))


def _named(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _encode_lesson(lesson: MadeLesson) -> bytes:
    request = lesson.request.encode()
    if lesson.unlearning is not None:
        return _LENGTH.pack(len(request)) + request + lesson.unlearning.encode() + _UNLEARNS
    return _LENGTH.pack(len(request)) + request + _encode_rewards(lesson.rewards)


def _decode_lesson(payload: bytes) -> MadeLesson:
    start = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    request = payload[_LENGTH.size : start].decode()
    if (len(payload) - start) % _REWARD.size:
        return MadeLesson(request, [], Unlearning.decode(payload[start : -len(_UNLEARNS)]))
    return MadeLesson(request, _decode_rewards(payload[start:]))


def _encode_rewards(rewards: Sequence[tuple[int, int]]) -> bytes:
    return b"".join(_REWARD.pack(*split_name(name), masked) for name, masked in rewards)


def _decode_rewards(payload: bytes) -> list[tuple[int, int]]:
    return [(decision_name(epoch, number), word) for epoch, number, word in _REWARD.iter_unpack(payload)]
