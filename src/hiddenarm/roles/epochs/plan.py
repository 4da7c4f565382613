"""What roles tell each other when an epoch is opened, and the plan that follows from it. Pure functions.

    OPEN n      party -> party      its last prepared and activated epoch, log, decisions, checkpoints, notes of what
                                    each party has told it to have committed, and its privacy ledger
                rewarder -> party   how many lessons it has made, and how many it knows to be kept by all parties
                party -> rewarder   what lasts at the party, the name of the last epoch that it has activated, consent;
                                    whom it is not connected to
                party -> actor      whom it is not connected to
                party -> dealer     how many decisions last at the party: a policy may explore by position
                dealer -> anyone    the epoch's name and the role's seed; to clients also the key of decision ids
                actor -> party      the last run of which the party has told it, and the last whose one-hots the party
                                    has said to keep
                others              nothing; clients say no OPEN where the loss of a peer ends the federation
    PREPARED    party -> party      the plan, which this party has written down
                rewarder -> party   nothing: it has written down the epoch's seed
    ACTIVE      party -> clients    the plan, which this party has activated
    COMMITTED   party -> party      lessons and decisions that last at this party

A plan is the next epoch's number and name, the checkpoint from which all parties start, and the length of the log.
All parties compute it from the same statements; so they do the privacy ledger, of which each takes the largest counts
that anybody has, and the number of decisions before this epoch, from which the dealer counts positions.

Who is behind? An epoch is activated only after all parties have prepared it. So a party that has prepared less than
another has activated has lost state: it is an old backup or a clone. So is one whose log is shorter, or whose decisions
are fewer, than it has told others to have committed, or whose log is shorter than what the rewarder was told to be
kept, or that does not hold a decision, or a returned one-hot, of which it has told the actor; and a rewarder that has
made fewer lessons than any party holds, or does not know the last epoch that a party has activated: a lesson and a seed
last at the rewarder before anything is done with them. No plan is made with any of them, unless all parties consent
(`hiddenarm recover`) to go back to what they still have in common.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from hiddenarm.bandit.decisions import decision_name, split_name, split_number
from hiddenarm.errors import DecisionIdError, FrameError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.privacy.ledger import MOST_LEDGER_BYTES, NOTHING_RELEASED, PrivacyLedger

EPOCH_NAME_BYTES = 6
MAX_CHECKPOINTS = 64
_HEAD = struct.Struct("<QQQQBBB")
_PAIR = struct.Struct("<QQ")
_STANDING = struct.Struct("<QQQB")
_PLAN = struct.Struct(f"<Q{EPOCH_NAME_BYTES}sQQQB")
_LESSONS = struct.Struct("<QQB")
_MEMBER = struct.Struct("<BH")
_ROLES = tuple(Role)
_HEARD = struct.Struct("<QQQQ")


class CheckpointName(NamedTuple):
    """Shares of one version made in two epochs do not add up, so the epoch is part of the name."""

    version: int
    epoch: int


INITIAL = CheckpointName(0, 0)
"""The model before the first lesson is public: everybody has it."""


class Committed(NamedTuple):
    """Lessons and decisions that last at a party."""

    lessons: int
    decisions: int

    def encode(self) -> bytes:
        return _PAIR.pack(*self)

    @classmethod
    def decode(cls, payload: bytes) -> Committed:
        _check(len(payload) == _PAIR.size)
        return cls(*_PAIR.unpack(payload))


class Standing(NamedTuple):
    """What a party tells the rewarder: what lasts there; the last epoch that it has activated, by its name as a number,
    0 if there is none; whether its operator agrees to go back; whom it is not connected to."""

    lessons: int
    decisions: int
    epoch: int
    consents: bool = False
    missing: tuple[Identity, ...] = ()

    def encode(self) -> bytes:
        *numbers, missing = self
        return _STANDING.pack(*numbers) + encode_members(missing)

    @classmethod
    def decode(cls, payload: bytes) -> Standing:
        _check(len(payload) >= _STANDING.size)
        lessons, decisions, epoch, consents = _STANDING.unpack_from(payload)
        return cls(lessons, decisions, epoch, bool(consents), decode_members(payload[_STANDING.size :]))


@dataclass(frozen=True, slots=True)
class PartyStatement:
    """What a party has."""

    prepared: int
    activated: int
    committed: Committed
    checkpoints: tuple[CheckpointName, ...]
    noted: tuple[Committed, ...]
    """What each party was heard to have committed, by its number."""
    consents: bool = False
    """Whether its operator agrees to go back to an older common state."""
    ledger: PrivacyLedger = NOTHING_RELEASED
    """What it has seen released."""

    def encode(self) -> bytes:
        head = _HEAD.pack(
            self.prepared, self.activated, *self.committed, self.consents, len(self.checkpoints), len(self.noted)
        )
        pairs = b"".join(_PAIR.pack(*pair) for pair in (*self.checkpoints, *self.noted))
        return head + pairs + self.ledger.encode()

    @classmethod
    def decode(cls, payload: bytes) -> PartyStatement:
        _check(len(payload) >= _HEAD.size)
        prepared, activated, lessons, decisions, consents, checkpoints, noted = _HEAD.unpack_from(payload)
        end = _HEAD.size + (checkpoints + noted) * _PAIR.size
        _check(len(payload) > end)
        pairs = list(_PAIR.iter_unpack(payload[_HEAD.size : end]))
        return cls(
            prepared,
            activated,
            Committed(lessons, decisions),
            tuple(CheckpointName(*pair) for pair in pairs[:checkpoints]),
            tuple(Committed(*pair) for pair in pairs[checkpoints:]),
            bool(consents),
            _decode_ledger(payload[end:]),
        )


def _decode_ledger(payload: bytes) -> PrivacyLedger:
    try:
        return PrivacyLedger.decode(payload)
    except ValueError:
        raise FrameError("the privacy ledger in a party's statement is none") from None


class Spent(NamedTuple):
    """What was released before an epoch, as all parties agree: the largest counts that any of them has, and how many
    decisions were made, from which the dealer counts positions (`bandit.coins`). That is what lasts at the last party:
    it alone orders, and it tells the dealer so."""

    ledger: PrivacyLedger = NOTHING_RELEASED
    decisions: int = 0


UNSPENT = Spent()


def agree_on_spent(parties: Sequence[PartyStatement]) -> Spent:
    """What all parties know to have been released."""
    ledger = reduce(PrivacyLedger.merged, (party.ledger for party in parties))
    return Spent(ledger, parties[-1].committed.decisions)


class RewarderStatement(NamedTuple):
    """Lessons that the rewarder has made, and the first of them that it does not know to be kept by all parties."""

    made: int
    kept: int
    consents: bool = False

    def encode(self) -> bytes:
        return _LESSONS.pack(*self)

    @classmethod
    def decode(cls, payload: bytes) -> RewarderStatement:
        _check(len(payload) == _LESSONS.size)
        made, kept, consents = _LESSONS.unpack(payload)
        return cls(made, kept, bool(consents))


class Heard(NamedTuple):
    """What a party has told the actor last: of the run that `decided`, and that it keeps the one-hots that were
    returned for the run `kept`; each by the name of the run's first decision, 0 if there is none. They lasted at the
    party before, and so did all that the party had told of earlier."""

    decided: int
    kept: int = 0

    def encode(self) -> bytes:
        return _HEARD.pack(*split_name(self.decided), *split_name(self.kept))

    @classmethod
    def decode(cls, payload: bytes) -> Heard:
        _check(len(payload) == _HEARD.size)
        epoch, number, kept_epoch, kept_number = _HEARD.unpack(payload)
        _check_number(number)
        _check_number(kept_number)
        return cls(decision_name(epoch, number), decision_name(kept_epoch, kept_number))


class Plan(NamedTuple):
    """An epoch to open: its number and name, where all parties start, the lessons in the common log, and whether all
    agreed to go back."""

    epoch: int
    name: bytes
    checkpoint: CheckpointName
    length: int
    recovers: bool = False

    @property
    def named(self) -> int:
        """The epoch's name as a number. Decisions are named by it, as it is what their ids carry."""
        return int.from_bytes(self.name, "big")

    def encode(self) -> bytes:
        return _PLAN.pack(self.epoch, self.name, *self.checkpoint, self.length, self.recovers)

    @classmethod
    def decode(cls, payload: bytes) -> Plan:
        _check(len(payload) == _PLAN.size)
        epoch, name, version, made_in, length, recovers = _PLAN.unpack(payload)
        return cls(epoch, name, CheckpointName(version, made_in), length, bool(recovers))


class Behind(NamedTuple):
    """A role whose state is older than what others know of it: "party 1" or "rewarder", and why."""

    role: str
    why: str


def find_behind(parties: Sequence[PartyStatement], rewarder: RewarderStatement) -> list[Behind]:
    """The roles that have lost state. With the consent of all parties, none of the parties counts as such."""
    behind = []
    held = max(party.committed.lessons for party in parties)
    if not all(party.consents for party in parties):
        reasons = (_why_behind(number, parties, rewarder) for number in range(len(parties)))
        behind = [Behind(f"party {number}", why) for number, why in enumerate(reasons) if why]
    if rewarder.made < held and not rewarder.consents:
        behind.append(Behind("rewarder", f"it has made {rewarder.made} lessons, and a party holds {held}"))
    return behind


def _why_behind(number: int, parties: Sequence[PartyStatement], rewarder: RewarderStatement) -> str:
    """How a party's state falls short of what others know; empty if it does not."""
    own = parties[number]
    for other, party in enumerate(parties):
        noted = party.noted[number]
        if own.prepared < party.activated:
            return f"it has prepared epoch {own.prepared}, and party {other} has activated epoch {party.activated}"
        if own.committed.lessons < noted.lessons:
            return f"it holds {own.committed.lessons} lessons, and told party {other} that it holds {noted.lessons}"
        if own.committed.decisions < noted.decisions:
            return (
                f"it holds {own.committed.decisions} decisions, and told party {other} that it holds {noted.decisions}"
            )
    if own.committed.lessons < rewarder.kept:
        return f"it holds {own.committed.lessons} lessons, and told the rewarder that it holds {rewarder.kept}"
    return ""


def make_plan(name: bytes, parties: Sequence[PartyStatement]) -> Plan:
    """The next epoch of parties of which none is behind."""
    length = min(party.committed.lessons for party in parties)
    common = set.intersection(*({INITIAL, *party.checkpoints} for party in parties))
    return Plan(
        epoch=max(party.prepared for party in parties) + 1,
        name=name,
        checkpoint=max(checkpoint for checkpoint in common if checkpoint.version <= length),
        length=length,
        recovers=all(party.consents for party in parties),
    )


def statement_bytes(parties: int) -> int:
    """The longest statement."""
    return _HEAD.size + (MAX_CHECKPOINTS + parties) * _PAIR.size + MOST_LEDGER_BYTES


def plan_bytes() -> int:
    return _PLAN.size


def committed_bytes() -> int:
    return _PAIR.size


def encode_members(members: Sequence[Identity]) -> bytes:
    """Some members of a federation."""
    return b"".join(_MEMBER.pack(_ROLES.index(role), number) for role, number in members)


def decode_members(payload: bytes) -> tuple[Identity, ...]:
    _check(len(payload) % _MEMBER.size == 0)
    found = tuple(_MEMBER.iter_unpack(payload))
    _check(all(role < len(_ROLES) for role, _ in found))
    return tuple(Identity(_ROLES[role], number) for role, number in found)


def _check(fits: bool) -> None:
    if not fits:
        raise FrameError("a message about opening an epoch has a wrong length")


def _check_number(number: int) -> None:
    """Refuse a number that no decision has."""
    try:
        split_number(number)
    except DecisionIdError as error:
        raise FrameError(str(error)) from None
