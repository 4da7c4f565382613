"""What the roles say to each other, beside the rounds of a program.

    WANT         last party -> dealer      program, first step; number of steps (u32)
    CORRECTIONS  dealer -> last party      program, first step; rows of words
    DECIDE       actor -> parties          program, step; model version (u64); round = 1: a bitmap of the arms that are
                                           eligible, the first arm lowest, round = 2: such a bitmap for each key; keys
                                           (length u16, text). Of `decide among N`, where round is not 0: before them
                                           how many arms have slots and their numbers (u32 each), in order; round = 2:
                                           bitmaps of these arms; round = 0: all arms that are not retired
    PAYLOADS     party -> actor            program, step; its share of a payload (u32) for each key and arm; here and
                                           below, where some arms are decided among, a slot is in the place of an arm
    ONE_HOT      party -> actor            program, step; its share of a one-hot (words) for each key
    ARMS         actor -> parties          program, step; the run's epoch (u64), a masked one-hot (words) for each key;
                                           program 0 and nothing: all of earlier epochs were sent
    ARMS_KEPT    party -> actor            runs whose ARMS last here: for each its epoch, number of its first decision
                                           (u64 each)
    REWARD       rewarder -> parties       step = number of the lesson; for each: the decision's epoch and number (u64
                                           each), masked reward (u64)
    UNLEARN      rewarder -> parties       step = number of the lesson; the decision's epoch and number, the number of
                                           the lesson that learned it (u64 each), 2^64 - 1 if it has no reward
    SLOT         party -> rewarder         step = number of a reward slot that has ended, counted in each epoch; the
                                           decisions that can be rewarded since the one before: epoch and number (u64
                                           each); round = 1 if more of this slot follow
    LEARNED      party -> rewarder         step = number of the lesson now in the model; party 0 tells the actor too
    VALUES       party -> receiver         step = windows so far; its shares of the noisy sums of all of them, added up
                                           (words); the receiver is the client that `[evaluation]` names
    REFUSED      party -> anyone           program, step; how many keys of a DECIDE are refused (u16) and their
                                           positions (u16 each), 0 if it is all of it, and for all but the actor; why
                                           (text): this run ends, the federation goes on; round = 1 if the same may be
                                           asked for again later
    ROUND        party -> party            program, step, round; words

The dealer's seeds and all else that opens an epoch: `epochs.plan`.

A program is a name and how many interactions it treats at once; its number travels in the frame's field of that name,
the count in the upper 16 bits of the step.

The actor numbers decisions and the rewarder numbers lessons, so all parties run the same programs in the same order
without asking each other. Model version v holds lessons 0 to v - 1. A decision names the version it wants and
only reads. It may be a version that the parties do not have yet: they wait for the lessons.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hiddenarm.bandit.catalogue import DECIDING, LEARN, PROGRAMS, SINGLE_PROGRAMS, UNLEARN, ProgramId, slots_of
from hiddenarm.bandit.decisions import (
    DecisionIds,
    decision_name,
    decision_number,
    fits_number,
    split_name,
    split_number,
)
from hiddenarm.errors import ClientError, DecisionIdError, FrameError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import KEY_BYTES
from hiddenarm.ring.words import Words


class Kind(IntEnum):
    """What a frame between roles is for. Numbers of `net.frames.LinkKind` are not used."""

    WANT = 3
    CORRECTIONS = 4
    DECIDE = 5
    REWARD = 7
    LEARNED = 8
    ROUND = 9
    REFUSED = 12
    ONE_HOT = 13
    OPEN = 14
    PREPARED = 15
    ACTIVE = 16
    COMMITTED = 17
    PAYLOADS = 18
    ARMS = 19
    ARMS_KEPT = 23
    SLOT = 24
    UNLEARN = 25
    VALUES = 26

    __hash__ = int.__hash__  # the hash of a kind is taken for every frame


DEALER = Identity(Role.DEALER)
ACTOR = Identity(Role.ACTOR)
REWARDER = Identity(Role.REWARDER)

CLIENTS = (ACTOR, REWARDER)

PROGRAM_NUMBERS = {name: number for number, name in enumerate(PROGRAMS, start=1)}
_LEARN_NUMBER = PROGRAM_NUMBERS[LEARN]
PROGRAM_NAMES = {number: name for name, number in PROGRAM_NUMBERS.items()}

NO_STOCK = "the dealer is away and what it dealt is used up; try again when it is back"
"""Why the last party refuses a decision that may be asked for again."""

NO_MODEL = "it no longer has all of this version of the model that `step` needs; ask for a decision alone"
"""Why a party refuses a `step` that may be asked for as `decide`."""

MAX_KEY_BYTES = 512
MAX_REASON_BYTES = 512
MAX_LESSONS = 2**48

_EPOCH_BYTES = 6
_STEP_BITS = 48
_STEP_MASK = (1 << _STEP_BITS) - 1
_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<H")
_VERSION = struct.Struct("<Q")
_EACH = 2
"""In the field `round` of a DECIDE frame: there is a bitmap for each key."""
_REWARD = struct.Struct("<QQQ")
REWARD_BYTES = _REWARD.size
_RUN = struct.Struct("<QQ")
_PAYLOAD = "<u4"
_PAYLOAD_BYTES = 4
_WORD = "<u8"
_WORD_BYTES = 8
NAMED_AT_ONCE = 256
"""Decisions that one SLOT names."""
KEPT_AT_ONCE = 64
"""Runs that one ARMS_KEPT names."""


def run_frame(kind: Kind, program: ProgramId, step: int, *, round: int = 0, payload: bytes = b"") -> Frame:
    """A frame about one run. A count of 1 leaves the upper bits of the step at zero."""
    return Frame(kind, PROGRAM_NUMBERS[program.name], round, _address(program.count, step), payload)


def _address(count: int, step: int) -> int:
    return (count ^ 1) << _STEP_BITS | step


def program_and_step(frame: Frame) -> tuple[ProgramId, int]:
    """Which run a frame is about."""
    step = frame.step
    return program_of(frame.program, step >> _STEP_BITS ^ 1), step & _STEP_MASK


@lru_cache
def program_of(number: int, count: int) -> ProgramId:
    """The program with a number, for so many interactions at once."""
    name = PROGRAM_NAMES.get(number)
    if name is None:
        raise FrameError(f"no program has number {number}")
    if count == 0 or (count > 1 and name in SINGLE_PROGRAMS):
        raise FrameError(f"there is no program {name} for {count} at once")
    return ProgramId(name, count)


def seed_payload(epoch: str, *keys: bytes) -> bytes:
    """What the dealer says in OPEN: the epoch's name and a role's seed; to clients also the key of decision ids."""
    return bytes.fromhex(epoch) + b"".join(keys)


def decided_payload(decisions: int) -> bytes:
    """What a party tells the dealer when an epoch is opened: how many decisions it holds."""
    return _VERSION.pack(decisions)


def read_decided(payload: bytes) -> int:
    if len(payload) != _VERSION.size:
        raise FrameError("a party must tell the dealer how many decisions it holds")
    decisions: int = _VERSION.unpack(payload)[0]
    return decisions


def read_seed(payload: bytes) -> tuple[str, bytes]:
    """A party's epoch and seed."""
    _check_seed(payload, _EPOCH_BYTES + KEY_BYTES)
    return payload[:_EPOCH_BYTES].hex(), payload[_EPOCH_BYTES:]


def read_client_seed(payload: bytes) -> tuple[DecisionIds, bytes]:
    """The epoch's decision ids and the seed of an actor or a rewarder."""
    _check_seed(payload, _EPOCH_BYTES + 2 * KEY_BYTES)
    seed, id_key = payload[_EPOCH_BYTES:-KEY_BYTES], payload[-KEY_BYTES:]
    return DecisionIds(payload[:_EPOCH_BYTES].hex(), id_key), seed


def _check_seed(payload: bytes, expected: int) -> None:
    if len(payload) != expected:
        raise FrameError(f"the dealer sent a seed of {len(payload)} bytes, expected {expected}")


def want_frame(program: ProgramId, first: int, count: int) -> Frame:
    return run_frame(Kind.WANT, program, first, payload=_COUNT.pack(count))


def read_want(frame: Frame) -> tuple[ProgramId, int, int]:
    _check_length(frame, _COUNT.size)
    return *program_and_step(frame), _COUNT.unpack(frame.payload)[0]


class Eligible(NamedTuple):
    """The arms that may be chosen, as a request names them: bitmaps, none if all may, one for all keys, or one for
    each. Where some arms are decided among, `arms` are these, in order, None for all that are not retired; bitmaps are
    of them, and there are none unless keys differ."""

    bitmaps: Sequence[bytes] = ()
    arms: tuple[int, ...] | None = None


ALL_ELIGIBLE = Eligible()


def decide_frame(program: ProgramId, step: int, version: int, keys: Sequence[str], *eligible: bytes) -> Frame:
    """`eligible` are bitmaps of the arms that may be chosen: none if all may, one for all keys, or one for each."""
    return _request(program, step, version, keys, min(len(eligible), _EACH), eligible)


def decide_among_frame(program: ProgramId, step: int, version: int, keys: Sequence[str], eligible: Eligible) -> Frame:
    """The same for a program that decides among some arms."""
    if eligible.arms is None:
        return _request(program, step, version, keys, 0, ())
    named = struct.pack(f"<{1 + len(eligible.arms)}I", len(eligible.arms), *eligible.arms)
    return _request(program, step, version, keys, _EACH if eligible.bitmaps else 1, (named, *eligible.bitmaps))


def _request(
    program: ProgramId, step: int, version: int, keys: Sequence[str], form: int, eligible: Sequence[bytes]
) -> Frame:
    encoded = b"".join([_LENGTH.pack(len(key)) + key for key in map(str.encode, keys)])
    payload = b"".join((_VERSION.pack(version), *eligible, encoded))
    return Frame(Kind.DECIDE, PROGRAM_NUMBERS[program.name], form, _address(len(keys), step), payload)


def read_decide(frame: Frame, arms: int) -> tuple[int, list[str], Eligible]:
    """The model version, the keys, as many as the program's count says, and the eligible arms."""
    program, _ = program_and_step(frame)
    each = frame.round == _EACH
    if program.name not in DECIDING or frame.round > _EACH or (each and program.count == 1):
        raise FrameError(f"a DECIDE frame is malformed: program {program.name}, round {frame.round}")
    at, named, bitmaps = _VERSION.size, None, program.count if each else frame.round
    if (slots := slots_of(program)) is not None and frame.round:
        named = _named_arms(frame.payload, slots, arms)
        at += _COUNT.size * (1 + len(named))
        arms, bitmaps = len(named), program.count if each else 0
    size = bitmap_bytes(arms)
    begin, at = at, at + bitmaps * size
    if len(frame.payload) < at:
        raise FrameError(f"a DECIDE frame is malformed: program {program.name}, {len(frame.payload)} bytes")
    eligible = [frame.payload[start : start + size] for start in range(begin, at, size)]
    for bitmap in eligible:
        _check_bitmap(bitmap, arms)
    return _VERSION.unpack_from(frame.payload)[0], _read_keys(frame, program.count, at), Eligible(eligible, named)


def _named_arms(payload: bytes, slots: int, arms: int) -> tuple[int, ...]:
    """The arms among which is decided: in order, no more than there are slots."""
    count = _COUNT.unpack_from(payload, _VERSION.size)[0] if len(payload) >= _VERSION.size + _COUNT.size else 0
    start = _VERSION.size + _COUNT.size
    if not 0 < count <= slots or len(payload) < start + count * _COUNT.size:
        raise FrameError(f"a DECIDE frame among {slots} slots names {count} arms, or is cut short")
    named: tuple[int, ...] = struct.unpack_from(f"<{count}I", payload, start)
    if named[-1] >= arms or any(one >= next for one, next in pairwise(named)):
        raise FrameError("a DECIDE frame names arms that are not there, or not in order")
    return named


def _read_keys(frame: Frame, count: int, at: int) -> list[str]:
    keys = []
    while at + _LENGTH.size <= len(frame.payload):
        (length,) = _LENGTH.unpack_from(frame.payload, at)
        at += _LENGTH.size + length
        keys.append(_key_text(frame.payload[at - length : at], length))
    if at != len(frame.payload) or len(keys) != count:
        raise FrameError(f"a DECIDE frame for {count} keys holds {len(keys)}, or is cut short")
    return keys


def bitmap_bytes(arms: int) -> int:
    return -(-arms // 8)


def eligible_bitmap(arms: int, eligible: Iterable[int]) -> bytes:
    """Some arms as a bitmap."""
    bits = np.zeros(arms, np.uint8)
    bits[list(eligible)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def bitmap_words(bitmap: bytes, arms: int) -> Words:
    """A word for each arm: all bits set for those of a bitmap, which was checked, or none."""
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=arms, bitorder="little")
    words: Words = np.uint64(0) - bits.astype(np.uint64)
    return words


def _check_bitmap(bitmap: bytes, arms: int) -> None:
    if not 0 < int.from_bytes(bitmap, "little") < 1 << arms:
        raise FrameError("a DECIDE frame names no eligible arm, or one that is not there")


def _key_text(key: bytes, length: int) -> str:
    if not 0 < length <= MAX_KEY_BYTES or len(key) != length:
        raise FrameError(f"a key in a DECIDE frame has {length} bytes; 1 to {MAX_KEY_BYTES} are allowed")
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise FrameError("a key in a DECIDE frame is not text") from None


def payloads_frame(program: ProgramId, step: int, shares: Words) -> Frame:
    """This party's shares of some payloads [count, arms]."""
    return run_frame(Kind.PAYLOADS, program, step, payload=shares.astype(_PAYLOAD).tobytes())


def read_payloads(frame: Frame, arms: int) -> bytes:
    """Shares of payloads as they came: [count, arms] numbers of 32 bits."""
    program, _ = program_and_step(frame)
    _check_length(frame, payloads_bytes(program.count, arms))
    return frame.payload


def payloads_bytes(count: int, arms: int) -> int:
    return count * arms * _PAYLOAD_BYTES


def one_hot_frame(program: ProgramId, step: int, shares: Words) -> Frame:
    """This party's shares of some one-hots [count, arms]."""
    return run_frame(Kind.ONE_HOT, program, step, payload=np.ascontiguousarray(shares, _WORD).tobytes())


def read_one_hots(frame: Frame, arms: int) -> Words:
    program, _ = program_and_step(frame)
    _check_length(frame, one_hot_bytes(program.count, arms))
    shares: Words = np.frombuffer(frame.payload, _WORD).reshape(program.count, arms)
    return shares


def one_hot_bytes(count: int, arms: int) -> int:
    return count * arms * _WORD_BYTES


class ReturnedArms(NamedTuple):
    """The one-hots of all decisions of a run, masked, as the actor returns them: words [count, arms]."""

    epoch: int
    program: ProgramId
    step: int
    masked: bytes

    @property
    def name(self) -> int:
        """The name of the run's first decision."""
        return decision_name(self.epoch, decision_number(self.program, self.step))

    @property
    def words(self) -> Words:
        return np.frombuffer(self.masked, _WORD).reshape(1, self.program.count, -1)


END_OF_ARMS = Frame(Kind.ARMS)
"""All one-hots of earlier epochs that will ever be returned were sent."""


def arms_frame(returned: ReturnedArms) -> Frame:
    epoch, program, step, masked = returned
    return run_frame(Kind.ARMS, program, step, payload=_VERSION.pack(epoch) + masked)


def read_arms(frame: Frame, arms: int, epoch: int | None = None) -> ReturnedArms:
    """Not of END_OF_ARMS. In `epoch` there are so many arms; in others there may have been fewer, but two at least."""
    program, step = program_and_step(frame)
    named, size = frame.payload[: _VERSION.size], len(frame.payload)
    fewer = (
        slots_of(program) is None
        and epoch is not None
        and len(named) == _VERSION.size
        and _VERSION.unpack(named)[0] != epoch
    )
    allowed = {arms_bytes(program.count, had) for had in range(2, arms)} if fewer else set()
    if size not in allowed:
        _check_length(frame, arms_bytes(program.count, arms))
    if program.name not in DECIDING:
        raise FrameError(f"an ARMS frame is about program {program.name}")
    if not fits_number(program, step):  # else its name would be that of another run
        raise FrameError("an ARMS frame names a step that cannot be")
    return ReturnedArms(_VERSION.unpack_from(frame.payload)[0], program, step, frame.payload[_VERSION.size :])


def arms_bytes(count: int, arms: int) -> int:
    return _VERSION.size + one_hot_bytes(count, arms)


def arms_kept_frame(names: Sequence[int]) -> Frame:
    """Names of runs, KEPT_AT_ONCE at most."""
    return Frame(Kind.ARMS_KEPT, payload=b"".join([_RUN.pack(*split_name(name)) for name in names]))


def read_arms_kept(frame: Frame) -> list[int]:
    if not frame.payload or len(frame.payload) % _RUN.size:
        raise FrameError(f"an ARMS_KEPT frame has {len(frame.payload)} bytes, no multiple of {_RUN.size}")
    return [decision_name(epoch, number) for epoch, number in _RUN.iter_unpack(frame.payload)]


def arms_kept_bytes() -> int:
    return KEPT_AT_ONCE * _RUN.size


def slot_frames(slot: int, names: Sequence[int]) -> list[Frame]:
    """A reward slot that has ended, and the decisions that can be rewarded since the one before."""
    portions = [names[first : first + NAMED_AT_ONCE] for first in range(0, len(names), NAMED_AT_ONCE)] or [[]]
    payloads = [b"".join([_RUN.pack(*split_name(name)) for name in portion]) for portion in portions]
    return [Frame(Kind.SLOT, 0, int(place > 0), slot, payloads[-place - 1]) for place in reversed(range(len(payloads)))]


def read_slot(frame: Frame) -> tuple[list[int], bool]:
    """Names of decisions, and whether more follow."""
    if frame.round > 1 or len(frame.payload) > slot_bytes() or len(frame.payload) % _RUN.size:
        raise FrameError(f"a SLOT frame is malformed: {len(frame.payload)} bytes, round {frame.round}")
    return [decision_name(epoch, number) for epoch, number in _RUN.iter_unpack(frame.payload)], frame.round == 1


def slot_bytes() -> int:
    return NAMED_AT_ONCE * _RUN.size


NEVER_LEARNED = 2**64 - 1
"""In the place of a lesson: there was none."""


class Unlearning(NamedTuple):
    """A decision that is to be unlearned, by its name, and the lesson that learned it. One that was never learned is
    dropped."""

    name: int
    learned_in: int = NEVER_LEARNED

    @property
    def drops(self) -> bool:
        return self.learned_in == NEVER_LEARNED

    def encode(self) -> bytes:
        return _REWARD.pack(*split_name(self.name), self.learned_in)

    @classmethod
    def decode(cls, payload: bytes) -> Unlearning:
        epoch, number, lesson = _REWARD.unpack(payload)
        return cls(decision_name(epoch, number), lesson)


def unlearn_frame(lesson: int, unlearning: Unlearning) -> Frame:
    return Frame(Kind.UNLEARN, PROGRAM_NUMBERS[UNLEARN], 0, lesson, unlearning.encode())


def read_unlearn(frame: Frame) -> Unlearning:
    _check_length(frame, _REWARD.size)
    unlearning = Unlearning.decode(frame.payload)
    _named(*split_name(unlearning.name))
    if not unlearning.drops and unlearning.learned_in >= frame.step:
        raise FrameError("an UNLEARN frame names a lesson that is still to come")
    return unlearning


def values_frame(windows: int, shares: Words) -> Frame:
    """This party's shares of the sums of so many windows."""
    return Frame(Kind.VALUES, 0, 0, windows, np.ascontiguousarray(shares, _WORD).tobytes())


def read_values(frame: Frame, sums: int) -> Words:
    _check_length(frame, values_bytes(sums))
    return np.frombuffer(frame.payload, _WORD).astype(np.uint64)


def values_bytes(sums: int) -> int:
    return sums * _WORD_BYTES


def reward_frame(lesson: int, *rewards: tuple[int, int]) -> Frame:
    """Rewards of some decisions: (name of the decision, masked reward)."""
    payload = b"".join([_REWARD.pack(*split_name(name), masked) for name, masked in rewards])
    return Frame(Kind.REWARD, _LEARN_NUMBER, 0, lesson, payload)


def read_rewards(frame: Frame) -> list[tuple[int, int]]:
    if not frame.payload or len(frame.payload) % _REWARD.size:
        raise FrameError(f"a REWARD frame has {len(frame.payload)} bytes, no multiple of {_REWARD.size}")
    return [(_named(epoch, number), masked) for epoch, number, masked in _REWARD.iter_unpack(frame.payload)]


def _named(epoch: int, number: int) -> int:
    """The name of a decision in a frame of a client, whose number must be one that decisions have."""
    try:
        split_number(number)
    except DecisionIdError as error:
        raise FrameError(str(error)) from None
    return decision_name(epoch, number)


def learned_frame(lesson: int) -> Frame:
    return Frame(Kind.LEARNED, _LEARN_NUMBER, 0, lesson, b"")


def read_learned(frame: Frame) -> int:
    _check_length(frame, 0)
    if frame.step >= MAX_LESSONS:
        raise FrameError("a LEARNED frame names a lesson that cannot be")
    return frame.step


def refused_frame(
    program: ProgramId, step: int, why: str, *, positions: Sequence[int] = (), retry: bool = False
) -> Frame:
    """`positions` are those of the keys to which the refusal is due, in their order; none if it is the whole run."""
    numbers = b"".join(_LENGTH.pack(number) for number in (len(positions), *positions))
    return run_frame(Kind.REFUSED, program, step, round=int(retry), payload=numbers + why.encode()[:MAX_REASON_BYTES])


def read_refused(frame: Frame) -> tuple[list[int], str]:
    """The positions of refused keys, and why."""
    program, _ = program_and_step(frame)
    (count,) = _LENGTH.unpack_from(frame.payload) if len(frame.payload) >= _LENGTH.size else (0xFFFF,)
    start = _LENGTH.size * (1 + count)
    if count > program.count or len(frame.payload) < start:
        raise FrameError(f"a REFUSED frame about {program.count} at once is malformed")
    positions = [position for (position,) in _LENGTH.iter_unpack(frame.payload[_LENGTH.size : start])]
    if positions != sorted(set(positions)) or any(position >= program.count for position in positions):
        raise FrameError(f"a REFUSED frame about {program.count} at once names positions that cannot be")
    text = frame.payload[start:].decode(errors="replace")
    return positions, "".join(letter for letter in text if letter.isprintable())


def refused_bytes(count: int) -> int:
    """The longest refusal of so many at once."""
    return _LENGTH.size * (1 + count) + MAX_REASON_BYTES


def misuse(identity: Identity, why: str) -> FrameError:
    """The error to raise for a frame that a peer may not send: that of a client ends its link, and nothing else."""
    return ClientError(why) if identity in CLIENTS else FrameError(why)


def _check_length(frame: Frame, expected: int) -> None:
    if len(frame.payload) != expected:
        raise FrameError(f"a {frame.kind.name} frame has {len(frame.payload)} bytes, expected {expected}")
