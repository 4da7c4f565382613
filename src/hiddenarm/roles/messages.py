"""What the roles say to each other, beside the rounds of a program.

    SEED         dealer -> anyone          epoch (6 bytes), seed (32 bytes); to clients also the key of decision ids
    WANT         last party -> dealer      program, first step; count (u32)
    CORRECTIONS  dealer -> last party      program, first step; rows of words
    DECIDE       actor -> parties          step = number of the decision; model version (u64), key (text)
    SLOT         party -> actor            step; slot (u32)
    REWARD       rewarder -> parties       step = number of the lesson; decision (u64), masked reward (u64)
    LEARNED      party -> rewarder, actor  step = number of the lesson now in the model
    REFUSED      party -> anyone           program, step; why (text): this run ends, the federation goes on
    ROUND        party -> party            program, step, round; words

The actor numbers decisions and the rewarder numbers lessons, so all parties run the same programs in the same order
without asking each other. Model version v holds lessons 0 to v - 1. A decision names the version it wants and
only reads.
"""

from __future__ import annotations

import struct

from hiddenarm.bandit.decisions import DecisionIds
from hiddenarm.bandit.programs import DECIDE, LEARN
from hiddenarm.errors import FrameError
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import KEY_BYTES

DEALER = Identity(Role.DEALER)
ACTOR = Identity(Role.ACTOR)
REWARDER = Identity(Role.REWARDER)

PROGRAM_NUMBERS = {DECIDE: 1, LEARN: 2}
PROGRAM_NAMES = {number: name for name, number in PROGRAM_NUMBERS.items()}

MAX_KEY_BYTES = 512
MAX_REASON_BYTES = 512
MAX_LESSONS = 2**62

_EPOCH_BYTES = 6
_COUNT = struct.Struct("<I")
_VERSION = struct.Struct("<Q")
_REWARD = struct.Struct("<QQ")


def seed_frame(epoch: str, *keys: bytes) -> Frame:
    return Frame(Kind.SEED, 0, 0, 0, bytes.fromhex(epoch) + b"".join(keys))


def read_seed(frame: Frame) -> tuple[str, bytes]:
    """A party's epoch and seed."""
    _check_length(frame, _EPOCH_BYTES + KEY_BYTES)
    return frame.payload[:_EPOCH_BYTES].hex(), frame.payload[_EPOCH_BYTES:]


def read_client_seed(frame: Frame) -> tuple[DecisionIds, bytes]:
    """The epoch's decision ids and the seed of an actor or a rewarder."""
    _check_length(frame, _EPOCH_BYTES + 2 * KEY_BYTES)
    seed, id_key = frame.payload[_EPOCH_BYTES:-KEY_BYTES], frame.payload[-KEY_BYTES:]
    return DecisionIds(frame.payload[:_EPOCH_BYTES].hex(), id_key), seed


def want_frame(program: str, first: int, count: int) -> Frame:
    return Frame(Kind.WANT, PROGRAM_NUMBERS[program], 0, first, _COUNT.pack(count))


def read_want(frame: Frame) -> tuple[str, int, int]:
    _check_length(frame, _COUNT.size)
    return program_of(frame), frame.step, _COUNT.unpack(frame.payload)[0]


def decide_frame(number: int, version: int, key: str) -> Frame:
    return Frame(Kind.DECIDE, PROGRAM_NUMBERS[DECIDE], 0, number, _VERSION.pack(version) + key.encode())


def read_decide(frame: Frame) -> tuple[int, str]:
    if not _VERSION.size < len(frame.payload) <= _VERSION.size + MAX_KEY_BYTES:
        raise FrameError(f"a DECIDE frame has {len(frame.payload)} bytes")
    try:
        key = frame.payload[_VERSION.size :].decode()
    except UnicodeDecodeError:
        raise FrameError("the key in a DECIDE frame is not text") from None
    return _VERSION.unpack_from(frame.payload)[0], key


def slot_frame(number: int, slot: int) -> Frame:
    return Frame(Kind.SLOT, PROGRAM_NUMBERS[DECIDE], 0, number, _COUNT.pack(slot))


def read_slot(frame: Frame) -> int:
    _check_length(frame, _COUNT.size)
    slot: int = _COUNT.unpack(frame.payload)[0]
    return slot


def reward_frame(lesson: int, decision: int, masked_reward: int) -> Frame:
    return Frame(Kind.REWARD, PROGRAM_NUMBERS[LEARN], 0, lesson, _REWARD.pack(decision, masked_reward))


def read_reward(frame: Frame) -> tuple[int, int]:
    _check_length(frame, _REWARD.size)
    decision, masked_reward = _REWARD.unpack(frame.payload)
    return decision, masked_reward


def learned_frame(lesson: int) -> Frame:
    return Frame(Kind.LEARNED, PROGRAM_NUMBERS[LEARN], 0, lesson, b"")


def read_learned(frame: Frame) -> int:
    _check_length(frame, 0)
    if frame.step >= MAX_LESSONS:
        raise FrameError("a LEARNED frame names a lesson that cannot be")
    return frame.step


def refused_frame(program: str, step: int, why: str) -> Frame:
    return Frame(Kind.REFUSED, PROGRAM_NUMBERS[program], 0, step, why.encode()[:MAX_REASON_BYTES])


def read_refused(frame: Frame) -> str:
    text = frame.payload.decode(errors="replace")
    return "".join(letter for letter in text if letter.isprintable())


def program_of(frame: Frame) -> str:
    name = PROGRAM_NAMES.get(frame.program)
    if name is None:
        raise FrameError(f"no program has number {frame.program}")
    return name


def _check_length(frame: Frame, expected: int) -> None:
    if len(frame.payload) != expected:
        raise FrameError(f"a {frame.kind.name} frame has {len(frame.payload)} bytes, expected {expected}")
