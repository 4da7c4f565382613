"""Known answers for every frame: `make vectors` writes them to the files beside this one.

A file has two lists. In `accepted`, `hex` is a whole frame, `kind`, `program`, `round` and `step` are its header, and
`fields` is what the message says: encoding the fields gives the bytes, decoding the bytes gives the fields. In
`rejected`, a reader that is fed the bytes, or the function that reads the message, raises `error` with `text`.

Integers go up to 2^64 - 1. Bytes inside `fields` are written in hexadecimal. All keys are public.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE_AMONG, ProgramId
from hiddenarm.bandit.decisions import decision_name, split_name
from hiddenarm.errors import HiddenArmError
from hiddenarm.net.frames import HEADER, MAGIC, VERSION, Frame, FrameReader, LinkKind, encode, notice, notice_text
from hiddenarm.net.hello import hello_payload, parse_hello
from hiddenarm.net.identity import Identity, Role
from hiddenarm.privacy.ledger import PrivacyLedger
from hiddenarm.roles.epochs.plan import (
    CheckpointName,
    Committed,
    Heard,
    PartyStatement,
    Plan,
    RewarderStatement,
    Standing,
    decode_members,
    encode_members,
)
from hiddenarm.roles.messages import (
    END_OF_ARMS,
    MAX_KEY_BYTES,
    MAX_LESSONS,
    NEVER_LEARNED,
    PROGRAM_NUMBERS,
    Eligible,
    Kind,
    ReturnedArms,
    Unlearning,
    arms_frame,
    arms_kept_frame,
    bitmap_words,
    decide_among_frame,
    decide_frame,
    decided_payload,
    eligible_bitmap,
    learned_frame,
    one_hot_frame,
    payloads_frame,
    program_and_step,
    read_arms,
    read_arms_kept,
    read_client_seed,
    read_decide,
    read_decided,
    read_learned,
    read_one_hots,
    read_payloads,
    read_refused,
    read_rewards,
    read_seed,
    read_slot,
    read_unlearn,
    read_values,
    read_want,
    refused_frame,
    reward_frame,
    run_frame,
    seed_payload,
    slot_frames,
    unlearn_frame,
    values_frame,
    want_frame,
)

FOLDER: Final = Path(__file__).parent
CAP: Final = 4096
KINDS: Final[Mapping[str, IntEnum]] = {kind.name: kind for kind in (*LinkKind, *Kind)}
EMPTY: Final = (LinkKind.PING, LinkKind.PONG, Kind.LEARNED)
CAPS: Final[Mapping[IntEnum, int]] = {kind: 0 if kind in EMPTY else CAP for kind in KINDS.values()}
ARMS: Final = 3
EPOCH: Final = "3f9c02d17ab4"
LARGEST: Final = 2**64 - 1

Fields = dict[str, Any]
"""What a message says, as JSON has it."""
Vector = dict[str, Any]
Damage = Callable[[Frame], Frame]


@dataclass(frozen=True)
class Message:
    """How a message is written and read, what it may say, and how it can be damaged so that it must be rejected."""

    name: str
    kind: IntEnum
    write: Callable[[Fields], Frame]
    read: Callable[[Frame], Fields]
    examples: Mapping[str, Fields]
    damages: Mapping[str, Damage]
    """Each is done to the first example."""


def read_stream(data: bytes, caps: Mapping[IntEnum, int] = CAPS, first: Iterable[IntEnum] = ()) -> list[Frame]:
    """The frames in some bytes, as they are read from a link."""
    return FrameReader(caps, tuple(first)).feed(data)


# Damages


def shorter(frame: Frame) -> Frame:
    return frame._replace(payload=frame.payload[:-1])


def longer(frame: Frame) -> Frame:
    return frame._replace(payload=frame.payload + b"\0")


def empty(frame: Frame) -> Frame:
    return frame._replace(payload=b"")


def unknown_program(frame: Frame) -> Frame:
    return frame._replace(program=99)


def for_none_at_once(frame: Frame) -> Frame:
    """A count travels in the upper 16 bits of the step, with its lowest bit turned: a 1 there is no interaction."""
    return frame._replace(step=1 << 48)


def with_payload(payload: bytes) -> Damage:
    return lambda frame: frame._replace(payload=payload)


def with_program(name: str) -> Damage:
    return lambda frame: frame._replace(program=PROGRAM_NUMBERS[name])


LENGTHS: Final[Mapping[str, Damage]] = {"a byte less": shorter, "a byte more": longer}
RUNS: Final[Mapping[str, Damage]] = {"an unknown program": unknown_program, "for none at once": for_none_at_once}


# What links say about themselves


def _hello(kind: LinkKind) -> Message:
    return Message(
        kind.name.lower(),
        kind,
        lambda fields: Frame(kind, payload=hello_payload(fields)),
        lambda frame: dict(parse_hello(frame.payload)),
        {
            "scalars and lists": {"arms": 3, "epsilon": 0.1, "features": [2, 1], "name": "clinic", "none": None},
            "nothing": {},
        },
        {
            "no JSON": with_payload(b"{"),
            "no object": with_payload(b"[]"),
            "an object inside": with_payload(b'{"a":{}}'),
            "a key twice": with_payload(b'{"a":1,"a":1}'),
            "not a number": with_payload(b'{"a":NaN}'),
            "no UTF-8": with_payload(b"\xff"),
            "nothing at all": empty,
        },
    )


def _notice(kind: LinkKind) -> Message:
    return Message(
        kind.name.lower(),
        kind,
        lambda fields: notice(kind, fields["reason"], retry=fields["retry"]),
        lambda frame: {"reason": notice_text(frame), "retry": bool(frame.round)},
        {
            "for good": {"reason": "the federation has ended", "retry": False},
            "try again": {"reason": "not yet", "retry": True},
            "no reason": {"reason": "", "retry": False},
        },
        {},
    )


def _bare(kind: LinkKind) -> Message:
    """A frame that says all with its kind. Its payload is refused from the header."""
    return Message(kind.name.lower(), kind, lambda _: Frame(kind), lambda frame: {}, {"nothing": {}}, {})


LINK: Final = (
    _hello(LinkKind.HELLO),
    _hello(LinkKind.PROBE),
    _notice(LinkKind.ABORT),
    _notice(LinkKind.BYE),
    _bare(LinkKind.PING),
    _bare(LinkKind.PONG),
)


# What roles say about runs: `hiddenarm.roles.messages`


def _run_of(frame: Frame) -> Fields:
    program, step = program_and_step(frame)
    return {"program": program.name, "count": program.count, "step": step}


def _program(fields: Fields) -> ProgramId:
    return ProgramId(fields["program"], fields["count"])


def _run(program: str, count: int = 1, step: int = 0, **others: Any) -> Fields:
    return {"program": program, "count": count, "step": step, **others}


def _seed(payload: bytes) -> Fields:
    epoch, seed = read_seed(payload)
    return {"epoch": epoch, "seed": seed.hex()}


def _client_seed(payload: bytes) -> Fields:
    ids, seed = read_client_seed(payload)
    return {"epoch": ids.epoch, "seed": seed.hex(), "id_key": ids.key.hex()}


def _want(frame: Frame) -> Fields:
    program, first, steps = read_want(frame)
    return _run(program.name, program.count, first, steps=steps)


def _words(payload: bytes) -> list[int]:
    return [int(word) for word in np.frombuffer(payload, "<u8")]


def _raw_words(kind: Kind) -> tuple[Callable[[Fields], Frame], Callable[[Frame], Fields]]:
    """A frame of a run whose payload is words; how many there must be, only the program knows."""

    def write(fields: Fields) -> Frame:
        payload = np.array(fields["words"], "<u8").tobytes()
        return run_frame(kind, _program(fields), fields["step"], round=fields["round"], payload=payload)

    def read(frame: Frame) -> Fields:
        return {**_run_of(frame), "round": frame.round, "words": _words(frame.payload)}

    return write, read


def _decide(frame: Frame) -> Fields:
    version, keys, eligible = read_decide(frame, ARMS)
    named = {} if eligible.arms is None else {"among": list(eligible.arms)}
    bitmaps = [np.flatnonzero(bitmap_words(each, ARMS)).tolist() for each in eligible.bitmaps]
    return {**_run_of(frame), "version": version, "keys": keys, "eligible": bitmaps, **named}


def _write_decide(fields: Fields) -> Frame:
    program, among = _program(fields), fields.get("among")
    known = ARMS if among is None else len(among)
    eligible = [eligible_bitmap(known, arms) for arms in fields["eligible"]]
    run = program, fields["step"], fields["version"], fields["keys"]
    if program.name == DECIDE_AMONG[4]:
        return decide_among_frame(*run, Eligible(eligible, None if among is None else tuple(among)))
    return decide_frame(*run, *eligible)


def _payloads(frame: Frame) -> Fields:
    shares = np.frombuffer(read_payloads(frame, ARMS), "<u4").reshape(-1, ARMS)
    return {**_run_of(frame), "shares": shares.tolist()}


def _one_hots(frame: Frame) -> Fields:
    return {**_run_of(frame), "shares": read_one_hots(frame, ARMS).tolist()}


def _arms(frame: Frame) -> Fields:
    returned = read_arms(frame, ARMS)
    return {**_run_of(frame), "epoch": returned.epoch, "masked": returned.words[0].tolist()}


def _write_arms(fields: Fields) -> Frame:
    masked = np.array(fields["masked"], "<u8").tobytes()
    return arms_frame(ReturnedArms(fields["epoch"], _program(fields), fields["step"], masked))


def _arms_kept(frame: Frame) -> Fields:
    runs = [split_name(name) for name in read_arms_kept(frame)]
    return {"runs": [{"epoch": epoch, "number": number} for epoch, number in runs]}


def _slot(frame: Frame) -> Fields:
    names, more = read_slot(frame)
    decisions = [split_name(name) for name in names]
    return {
        "slot": frame.step,
        "more": more,
        "decisions": [{"epoch": epoch, "number": number} for epoch, number in decisions],
    }


def _write_slot(fields: Fields) -> Frame:
    names = [decision_name(each["epoch"], each["number"]) for each in fields["decisions"]]
    return slot_frames(fields["slot"], names)[0]._replace(round=int(fields["more"]))


def _rewards(frame: Frame) -> Fields:
    read = [(*split_name(name), masked) for name, masked in read_rewards(frame)]
    return {
        "lesson": frame.step,
        "rewards": [{"epoch": epoch, "number": number, "masked": masked} for epoch, number, masked in read],
    }


def _write_rewards(fields: Fields) -> Frame:
    rewards = [(decision_name(each["epoch"], each["number"]), each["masked"]) for each in fields["rewards"]]
    return reward_frame(fields["lesson"], *rewards)


def _unlearning(frame: Frame) -> Fields:
    unlearning = read_unlearn(frame)
    epoch, number = split_name(unlearning.name)
    learned_in = None if unlearning.drops else unlearning.learned_in
    return {"lesson": frame.step, "epoch": epoch, "number": number, "learned_in": learned_in}


def _write_unlearning(fields: Fields) -> Frame:
    learned_in = NEVER_LEARNED if fields["learned_in"] is None else fields["learned_in"]
    name = decision_name(fields["epoch"], fields["number"])
    return unlearn_frame(fields["lesson"], Unlearning(name, learned_in))


def _refused(frame: Frame) -> Fields:
    positions, why = read_refused(frame)
    return {**_run_of(frame), "positions": positions, "why": why, "retry": bool(frame.round)}


def _positions(*numbers: int) -> Damage:
    """A REFUSED frame that begins with these numbers of 16 bits."""
    return with_payload(np.array(numbers, "<u2").tobytes())


def _key(length: int, key: bytes) -> Damage:
    """A DECIDE frame with one key, which says that it has `length` bytes."""
    return with_payload(bytes(8) + length.to_bytes(2, "little") + key)


def _bitmap(bits: int) -> Damage:
    """A DECIDE frame with a bitmap of eligible arms."""
    return lambda frame: frame._replace(round=1, payload=frame.payload[:8] + bytes([bits]) + frame.payload[8:])


def _among(*arms: int) -> Damage:
    """A DECIDE frame that is decided among these arms."""
    named = b"".join(number.to_bytes(4, "little") for number in (len(arms), *arms))
    run = with_program(DECIDE_AMONG[4])
    return lambda frame: run(frame)._replace(round=1, payload=frame.payload[:8] + named + frame.payload[8:])


REWARD_EXAMPLES: Final = {
    "one": {"lesson": 7, "rewards": [{"epoch": int(EPOCH, 16), "number": 17, "masked": 2**63 + 1}]},
    "two": {
        "lesson": MAX_LESSONS - 1,
        "rewards": [
            {"epoch": 0, "number": 0, "masked": 0},
            {"epoch": LARGEST, "number": LARGEST, "masked": LARGEST},
        ],
    },
}
MESSAGES: Final = (
    Message(
        "want",
        Kind.WANT,
        lambda fields: want_frame(_program(fields), fields["step"], fields["steps"]),
        _want,
        {
            "the first decisions": _run("decide", steps=64),
            "a batch of 25, the last step": _run("gather", 25, 2**48 - 1, steps=2**32 - 1),
            **{f"a step of {name}": _run(name, step=1, steps=1) for name in PROGRAM_NUMBERS},
        },
        {**LENGTHS, **RUNS},
    ),
    Message(
        "corrections",
        Kind.CORRECTIONS,
        *_raw_words(Kind.CORRECTIONS),
        {"two words": _run("learn", 1, 64, round=0, words=[1, LARGEST])},
        RUNS,
    ),
    Message(
        "decide",
        Kind.DECIDE,
        _write_decide,
        _decide,
        {
            "one key": _run("decide", 1, 5, version=4, keys=["ada"], eligible=[]),
            "three keys": _run(
                "decide", 3, 0, version=LARGEST, keys=["a", "\u00e4\u4e16", "c" * MAX_KEY_BYTES], eligible=[]
            ),
            "two eligible arms": _run("decide", 2, 7, version=1, keys=["a", "b"], eligible=[[0, 2]]),
            "eligible arms of each key": _run("decide", 2, 8, version=1, keys=["a", "b"], eligible=[[1], [0, 1, 2]]),
            "a step": _run("step", 1, 6, version=2, keys=["ada"], eligible=[]),
            "among two arms": _run("decide among 4", 1, 9, version=1, keys=["a"], eligible=[], among=[0, 2]),
            "among some arms, others for each key": _run(
                "decide among 4", 2, 9, version=1, keys=["a", "b"], eligible=[[1], [0, 1]], among=[0, 2]
            ),
            "among all that are left": _run("decide among 4", 1, 10, version=1, keys=["a"], eligible=[]),
        },
        {
            **LENGTHS,
            **RUNS,
            "among no arm": _among(),
            "among more arms than there are slots": _among(0, 1, 2, 1, 0),
            "among arms that are not in order": _among(1, 0),
            "among an arm twice": _among(1, 1),
            "among an arm that is not there": _among(0, ARMS),
            "among more arms than are named": lambda frame: _among(0, 1)(frame)._replace(
                payload=bytes(8) + b"\2\0\0\0"
            ),
            "among arms of which none is named": lambda frame: _among(0)(frame)._replace(payload=bytes(8)),
            "another program": with_program("learn"),
            "no version": with_payload(bytes(7)),
            "no key": with_payload(bytes(8)),
            "a key of no bytes": _key(0, b""),
            "a key that is too long": _key(MAX_KEY_BYTES + 1, b"k" * (MAX_KEY_BYTES + 1)),
            "a key that is shorter than it says": _key(4, b"ada"),
            "a key that is no text": _key(2, b"\xc3\x28"),
            "a key too many": lambda frame: frame._replace(payload=frame.payload + b"\x01\x00k"),
            "no eligible arm": _bitmap(0),
            "an eligible arm that is not there": _bitmap(1 << ARMS),
            "eligible arms that are not named": lambda frame: frame._replace(round=1, payload=bytes(8)),
            "arms of each key, of which there is one": lambda frame: _bitmap(1)(frame)._replace(round=2),
            "an unknown round": lambda frame: frame._replace(round=3),
        },
    ),
    Message(
        "payloads",
        Kind.PAYLOADS,
        lambda fields: payloads_frame(_program(fields), fields["step"], np.array(fields["shares"], np.uint64)),
        _payloads,
        {
            "one": _run("decide", 1, 5, shares=[[0, 2**32 - 1, 2]]),
            "two": _run("decide", 2, 6, shares=[[1, 2, 3], [4, 5, 2**31]]),
            "a step": _run("step", 1, 2**48 - 1, shares=[[1, 2, 3]]),
        },
        {**LENGTHS, **RUNS},
    ),
    Message(
        "one-hot",
        Kind.ONE_HOT,
        lambda fields: one_hot_frame(_program(fields), fields["step"], np.array(fields["shares"], np.uint64)),
        _one_hots,
        {
            "one": _run("decide", 1, 5, shares=[[0, LARGEST, 2]]),
            "two": _run("decide", 2, 6, shares=[[1, 2, 3], [4, 5, 2**63]]),
        },
        {**LENGTHS, **RUNS},
    ),
    Message(
        "arms",
        Kind.ARMS,
        _write_arms,
        _arms,
        {
            "one": _run("decide", 1, 5, epoch=int(EPOCH, 16), masked=[[0, LARGEST, 2]]),
            "two": _run("decide", 2, 6, epoch=LARGEST, masked=[[1, 2, 3], [4, 5, 2**63]]),
            "of a step": _run("step", 1, 2**32 - 1, epoch=1, masked=[[1, 2, 3]]),
        },
        {**LENGTHS, **RUNS, "nothing": empty, "another program": with_program("learn")},
    ),
    Message(
        "end of arms",
        Kind.ARMS,
        lambda fields: END_OF_ARMS,
        lambda frame: {} if frame == END_OF_ARMS else {"run": _arms(frame)},
        {"of earlier epochs": {}},
        {"with words": longer},
    ),
    Message(
        "arms kept",
        Kind.ARMS_KEPT,
        lambda fields: arms_kept_frame([decision_name(each["epoch"], each["number"]) for each in fields["runs"]]),
        _arms_kept,
        {
            "one run": {"runs": [{"epoch": int(EPOCH, 16), "number": 5}]},
            "two runs": {"runs": [{"epoch": 0, "number": 0}, {"epoch": LARGEST, "number": LARGEST}]},
        },
        {**LENGTHS, "nothing": empty},
    ),
    Message(
        "slot",
        Kind.SLOT,
        _write_slot,
        _slot,
        {
            "of one": {"slot": 7, "more": False, "decisions": [{"epoch": int(EPOCH, 16), "number": 5}]},
            "of no decision": {"slot": 0, "more": False, "decisions": []},
            "the first part": {"slot": 2**32, "more": True, "decisions": [{"epoch": LARGEST, "number": LARGEST}]},
        },
        {**LENGTHS, "another round": lambda frame: frame._replace(round=2)},
    ),
    Message(
        "values",
        Kind.VALUES,
        lambda fields: values_frame(fields["windows"], np.array(fields["shares"], np.uint64)),
        lambda frame: {"windows": frame.step, "shares": read_values(frame, 3).tolist()},
        {
            "of two policies": {"windows": 2, "shares": [1, 2**40, LARGEST]},
            "before the first window": {"windows": 0, "shares": [0, 0, 0]},
        },
        LENGTHS,
    ),
    Message(
        "reward",
        Kind.REWARD,
        _write_rewards,
        _rewards,
        REWARD_EXAMPLES,
        {**LENGTHS, "nothing": empty},
    ),
    Message(
        "unlearn",
        Kind.UNLEARN,
        _write_unlearning,
        _unlearning,
        {
            "the second lesson": {"lesson": 2, "epoch": int(EPOCH, 16), "number": 17, "learned_in": 1},
            "a decision without a reward": {"lesson": 0, "epoch": int(EPOCH, 16), "number": 5, "learned_in": None},
        },
        {**LENGTHS, "nothing": empty, "a lesson to come": lambda frame: frame._replace(step=1)},
    ),
    Message(
        "learned",
        Kind.LEARNED,
        lambda fields: learned_frame(fields["lesson"]),
        lambda frame: {"lesson": read_learned(frame)},
        {"the first lesson": {"lesson": 0}, "the last lesson": {"lesson": MAX_LESSONS - 1}},
        {"a lesson that cannot be": lambda frame: frame._replace(step=MAX_LESSONS)},
    ),
    Message(
        "refused",
        Kind.REFUSED,
        lambda fields: refused_frame(
            _program(fields), fields["step"], fields["why"], positions=fields["positions"], retry=fields["retry"]
        ),
        _refused,
        {
            "keys 0 and 2 of three": _run("decide", 3, 9, positions=[0, 2], why="no usable features", retry=False),
            "a whole run, for now": _run("decide", 1, 9, positions=[], why="later \u2013 perhaps", retry=True),
            "a lesson": _run("learn", 1, 3, positions=[], why="", retry=False),
        },
        {
            **RUNS,
            "nothing": empty,
            "half a number": with_payload(b"\0"),
            "more positions than keys": _positions(4, 0, 1, 2, 3),
            "fewer positions than it says": _positions(2, 0),
            "a position twice": _positions(2, 1, 1),
            "positions out of order": _positions(2, 2, 0),
            "a position beyond the keys": _positions(1, 3),
        },
    ),
    Message(
        "round",
        Kind.ROUND,
        *_raw_words(Kind.ROUND),
        {
            "round 2 of a lesson": _run("learn", 1, 12, round=2, words=[0, 1, 2**63]),
            "the last round": _run("decide", 2**16 - 1, 2**48 - 1, round=255, words=[]),
        },
        RUNS,
    ),
)


# What roles say when an epoch is opened: `hiddenarm.roles.epochs.plan`


class _Payload(NamedTuple):
    """How the payload of a frame without a run is written and read."""

    write: Callable[[Fields], bytes]
    read: Callable[[bytes], Fields]


def _opening(
    name: str, kind: Kind, payload: _Payload, examples: Mapping[str, Fields], damages: Mapping[str, Damage]
) -> Message:
    """The step of an OPEN is the number of the attempt; others have none."""

    def write(fields: Fields) -> Frame:
        return Frame(kind, step=fields.get("attempt", 0), payload=payload.write(fields))

    def read(frame: Frame) -> Fields:
        attempt = {"attempt": frame.step} if kind is Kind.OPEN else {}
        return {**attempt, **payload.read(frame.payload)}

    return Message(name, kind, write, read, examples, damages)


def _read_statement(payload: bytes) -> Fields:
    statement = PartyStatement.decode(payload)
    return {
        "prepared": statement.prepared,
        "activated": statement.activated,
        "committed": statement.committed._asdict(),
        "checkpoints": [checkpoint._asdict() for checkpoint in statement.checkpoints],
        "noted": [noted._asdict() for noted in statement.noted],
        "consents": statement.consents,
        "ledger": statement.ledger.to_dict(),
    }


def _write_statement(fields: Fields) -> bytes:
    return PartyStatement(
        fields["prepared"],
        fields["activated"],
        Committed(**fields["committed"]),
        tuple(CheckpointName(**each) for each in fields["checkpoints"]),
        tuple(Committed(**each) for each in fields["noted"]),
        fields["consents"],
        PrivacyLedger.from_dict(fields["ledger"]),
    ).encode()


def _read_members(payload: bytes) -> list[list[Any]]:
    return [[member.role.value, member.number] for member in decode_members(payload)]


def _members(fields: Fields) -> tuple[Identity, ...]:
    return tuple(Identity(Role(role), number) for role, number in fields["missing"])


def _write_standing(fields: Fields) -> bytes:
    return Standing(
        fields["lessons"], fields["decisions"], fields["epoch"], fields["consents"], _members(fields)
    ).encode()


def _read_standing(payload: bytes) -> Fields:
    standing = Standing.decode(payload)
    return {**standing._asdict(), "missing": [[member.role.value, member.number] for member in standing.missing]}


def _read_plan(payload: bytes) -> Fields:
    plan = Plan.decode(payload)
    return {**plan._asdict(), "name": plan.name.hex(), "checkpoint": plan.checkpoint._asdict()}


def _write_plan(fields: Fields) -> bytes:
    checkpoint = CheckpointName(**fields["checkpoint"])
    return Plan(
        fields["epoch"], bytes.fromhex(fields["name"]), checkpoint, fields["length"], fields["recovers"]
    ).encode()


def _without_attempt(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name != "attempt"}


STATEMENT: Final = _Payload(_write_statement, _read_statement)
STANDING: Final = _Payload(_write_standing, _read_standing)
MISSING: Final = _Payload(
    lambda fields: encode_members(_members(fields)), lambda payload: {"missing": _read_members(payload)}
)
MADE: Final = _Payload(
    lambda fields: RewarderStatement(**_without_attempt(fields)).encode(),
    lambda payload: RewarderStatement.decode(payload)._asdict(),
)


def _run_name(run: Fields) -> int:
    return decision_name(run["epoch"], run["number"])


def _run_fields(name: int) -> Fields:
    return dict(zip(("epoch", "number"), split_name(name), strict=True))


HEARD: Final = _Payload(
    lambda fields: Heard(_run_name(fields["decided"]), _run_name(fields["kept"])).encode(),
    lambda payload: {name: _run_fields(run) for name, run in Heard.decode(payload)._asdict().items()},
)
SEED: Final = _Payload(lambda fields: seed_payload(fields["epoch"], bytes.fromhex(fields["seed"])), _seed)
CLIENT_SEED: Final = _Payload(
    lambda fields: seed_payload(fields["epoch"], bytes.fromhex(fields["seed"]), bytes.fromhex(fields["id_key"])),
    _client_seed,
)
DECIDED: Final = _Payload(
    lambda fields: decided_payload(fields["decisions"]), lambda payload: {"decisions": read_decided(payload)}
)
NOTHING: Final = _Payload(lambda fields: b"", lambda payload: {})
PLAN: Final = _Payload(_write_plan, _read_plan)
COMMITTED: Final = _Payload(
    lambda fields: Committed(**fields).encode(), lambda payload: Committed.decode(payload)._asdict()
)
A_PLAN: Final = {
    "epoch": 3,
    "name": EPOCH,
    "checkpoint": {"version": 64, "epoch": 2},
    "length": 70,
    "recovers": False,
}
FIRST_PLAN: Final = {
    "epoch": 1,
    "name": "000000000000",
    "checkpoint": {"version": 0, "epoch": 0},
    "length": 0,
    "recovers": True,
}
AN_UNKNOWN_ROLE: Final = bytes([4, 0, 0])
OPENINGS: Final = (
    _opening(
        "statement of a party to a party",
        Kind.OPEN,
        STATEMENT,
        {
            "two checkpoints, three parties": {
                "attempt": 2,
                "prepared": 3,
                "activated": 2,
                "committed": {"lessons": 70, "decisions": 90},
                "checkpoints": [{"version": 64, "epoch": 2}, {"version": 32, "epoch": 1}],
                "noted": [{"lessons": n, "decisions": LARGEST - n} for n in range(3)],
                "consents": True,
                "ledger": PrivacyLedger({2**60: 90, 2**63: 3}, 2, 0.25, row_opened=0.25).to_dict(),
            },
            "at the beginning": {
                "attempt": 0,
                "prepared": 0,
                "activated": 0,
                "committed": {"lessons": 0, "decisions": 0},
                "checkpoints": [],
                "noted": [{"lessons": 0, "decisions": 0}] * 2,
                "consents": False,
                "ledger": PrivacyLedger().to_dict(),
            },
        },
        {**LENGTHS, "nothing": empty},
    ),
    _opening(
        "statement of the rewarder to a party",
        Kind.OPEN,
        MADE,
        {"seven made": {"attempt": 2, "made": 7, "kept": 5, "consents": False}},
        {**LENGTHS, "nothing": empty},
    ),
    _opening(
        "standing of a party, to the rewarder",
        Kind.OPEN,
        STANDING,
        {
            "two are missing": {
                "attempt": 4,
                "lessons": 70,
                "decisions": 90,
                "epoch": int(EPOCH, 16),
                "consents": True,
                "missing": [["party", 2], ["dealer", 0]],
            },
            "nobody is missing": {
                "attempt": 4,
                "lessons": 0,
                "decisions": 0,
                "epoch": 0,
                "consents": False,
                "missing": [],
            },
        },
        {
            **LENGTHS,
            "nothing": empty,
            "an unknown role": lambda frame: frame._replace(payload=frame.payload + AN_UNKNOWN_ROLE),
        },
    ),
    _opening(
        "missing members, a party to the actor",
        Kind.OPEN,
        MISSING,
        {
            "one of each role": {
                "attempt": 1,
                "missing": [["party", 999], ["dealer", 0], ["actor", 0], ["rewarder", 0]],
            },
            "nobody": {"attempt": 1, "missing": []},
        },
        {**LENGTHS, "an unknown role": with_payload(AN_UNKNOWN_ROLE)},
    ),
    _opening(
        "last runs that the actor heard of",
        Kind.OPEN,
        HEARD,
        {
            "a batch": {
                "attempt": 2,
                "decided": {"epoch": int(EPOCH, 16), "number": LARGEST},
                "kept": {"epoch": 5, "number": 12},
            },
            "none": {"attempt": 0, "decided": {"epoch": 0, "number": 0}, "kept": {"epoch": 0, "number": 0}},
        },
        {**LENGTHS, "nothing": empty},
    ),
    _opening(
        "seed of an attempt, from the dealer",
        Kind.OPEN,
        SEED,
        {"a party": {"attempt": 2, "epoch": EPOCH, "seed": bytes(range(32)).hex()}},
        {**LENGTHS, "nothing": empty},
    ),
    _opening(
        "seed of an attempt, from the dealer to a client",
        Kind.OPEN,
        CLIENT_SEED,
        {
            "a client": {
                "attempt": 2,
                "epoch": EPOCH,
                "seed": bytes(range(32)).hex(),
                "id_key": bytes(range(32, 64)).hex(),
            }
        },
        {**LENGTHS, "nothing": empty},
    ),
    _opening(
        "decisions that a party holds, to the dealer",
        Kind.OPEN,
        DECIDED,
        {"some": {"attempt": 2, "decisions": 90}, "the most": {"attempt": 3, "decisions": LARGEST}},
        {**LENGTHS, "nothing": empty},
    ),
    _opening("nothing to say", Kind.OPEN, NOTHING, {"a client to the dealer": {"attempt": LARGEST}}, {}),
    _opening(
        "plan that is prepared",
        Kind.PREPARED,
        PLAN,
        {"epoch 3": A_PLAN, "the first epoch": FIRST_PLAN},
        {**LENGTHS, "nothing": empty},
    ),
    _opening("prepared by the rewarder", Kind.PREPARED, NOTHING, {"nothing": {}}, {}),
    _opening("plan that is active", Kind.ACTIVE, PLAN, {"epoch 3": A_PLAN}, {**LENGTHS, "nothing": empty}),
    _opening(
        "committed",
        Kind.COMMITTED,
        COMMITTED,
        {"some": {"lessons": 70, "decisions": 90}, "the most": {"lessons": LARGEST, "decisions": LARGEST}},
        {**LENGTHS, "nothing": empty},
    ),
)
FILES: Final[Mapping[str, tuple[Message, ...]]] = {
    "link.json": LINK,
    "messages.json": MESSAGES,
    "openings.json": OPENINGS,
}
BY_NAME: Final = {message.name: message for messages in FILES.values() for message in messages}


# Headers that a reader rejects, whatever follows


class Stream(NamedTuple):
    """Bytes that come on a link, and what the link allows."""

    data: bytes
    caps: Mapping[str, int]
    first: tuple[str, ...] = ()

    def read(self) -> list[Frame]:
        return read_stream(
            self.data, {KINDS[kind]: cap for kind, cap in self.caps.items()}, [KINDS[kind] for kind in self.first]
        )


def _header(
    magic: bytes = MAGIC, version: int = VERSION, kind: int = Kind.ROUND, used: int = 0, size: int = 0
) -> bytes:
    return HEADER.pack(magic, version, kind, 0, 0, used, 0, size)


ROUNDS_ONLY: Final = {"ROUND": 100}
HEADERS: Final[Mapping[str, Stream]] = {
    "another magic": Stream(_header(magic=b"GE"), ROUNDS_ONLY),
    "another version": Stream(_header(version=VERSION + 1), ROUNDS_ONLY),
    "a reserved field in use": Stream(_header(used=1), ROUNDS_ONLY),
    "kind 0": Stream(_header(kind=0), ROUNDS_ONLY),
    "kind 255": Stream(_header(kind=255), ROUNDS_ONLY),
    "a kind that is not expected": Stream(_header(kind=Kind.WANT), ROUNDS_ONLY),
    "a byte above the cap": Stream(_header(size=101), ROUNDS_ONLY),
    "the largest length": Stream(_header(size=2**32 - 1), ROUNDS_ONLY),
    "before the hello": Stream(_header(), ROUNDS_ONLY, ("HELLO", "PROBE", "ABORT")),
    "after a good frame": Stream(_header() + _header(magic=b"XX"), ROUNDS_ONLY),
    "a hello above its cap": Stream(_header(kind=LinkKind.HELLO, size=2**16 + 1), {}),
    "a ping with a payload": Stream(_header(kind=LinkKind.PING, size=1) + b"x", {}),
    "a pong with a payload": Stream(_header(kind=LinkKind.PONG, size=1) + b"x", {}),
    "a lesson learned with a payload": Stream(_header(kind=Kind.LEARNED, size=1) + b"x", {"LEARNED": 0}),
}


# Generating


def generate() -> dict[str, dict[str, list[Vector]]]:
    """All vectors, by the name of their file."""
    files = {
        name: {"accepted": [*_accepted(messages)], "rejected": [*_rejected(messages)]}
        for name, messages in FILES.items()
    }
    return {"headers.json": {"rejected": [*_rejected_headers()]}, **files}


def _accepted(messages: Iterable[Message]) -> Iterator[Vector]:
    for message in messages:
        for title, fields in message.examples.items():
            frame = message.write(fields)
            assert frame.kind is message.kind
            yield {
                "message": message.name,
                "case": title,
                "kind": frame.kind.name,
                "program": frame.program,
                "round": frame.round,
                "step": frame.step,
                "fields": fields,
                "hex": encode(frame).hex(),
            }


def _rejected(messages: Iterable[Message]) -> Iterator[Vector]:
    for message in messages:
        for title, damage in message.damages.items():
            frame = damage(message.write(next(iter(message.examples.values()))))
            said = complaint(partial(message.read, frame))
            yield {"message": message.name, "case": title, "hex": encode(frame).hex(), **said}


def _rejected_headers() -> Iterator[Vector]:
    for title, stream in HEADERS.items():
        said = complaint(stream.read)
        yield {"case": title, "caps": stream.caps, "first": [*stream.first], "hex": stream.data.hex(), **said}


def complaint(read: Callable[[], object]) -> dict[str, str]:
    """The error that reading raises, by its class and text."""
    try:
        read()
    except HiddenArmError as error:
        return {"error": type(error).__name__, "text": str(error)}
    raise AssertionError("this must be rejected")


def text_of(vectors: Mapping[str, list[Vector]]) -> str:
    """A file: one vector, one line, so that a change shows which vectors it changes."""
    lists = (
        f'  "{name}": [\n' + ",\n".join("    " + json.dumps(vector) for vector in each) + "\n  ]"
        for name, each in vectors.items()
    )
    return "{\n" + ",\n".join(lists) + "\n}\n"


def write_files() -> None:
    for name, vectors in generate().items():
        (FOLDER / name).write_text(text_of(vectors))


if __name__ == "__main__":
    write_files()
