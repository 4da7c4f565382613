"""The records of a party as bytes. `PartyRecords` says when each is written.

    area        key                          payload
    me          -                            whose state this is (`owner`)
    epoch       -                            prepared and activated epoch, consent, what peers were heard to have
                                             committed
    opened      epoch                        the plan of an epoch that was activated
    went back   -                            the last epoch that was prepared with the consent of all to go back
    decision    epoch's name, count, step    own features, shares of the masks of one-hots and rewards; where sums are
                                             noisy, digests of the keys; where values are evaluated, shares of the
                                             coins; where one-hots are of slots, the arms of these; the count is 0 for
                                             a decision by `step`, and its upper bits say among how many slots
    arms        epoch's name, count, step    the masked one-hots that the actor has returned, of all decisions of this
                                             run
    lesson      number                       learned or why refused; names of decisions and masked rewards, or the
                                             decision that is unlearned and the lesson that learned it
    checkpoint  version, epoch               counters; this party's shares, by name (`bandit.state`)
    values      version                      the totals of all windows of values, the last of them filled by the lesson
                                             before (`roles.values`)
    refresh     version                      the epoch in which noise was added to the sums with the lesson before
    noise used  -                            the version of the newest refresh that a decision has used
    undone      version, epoch               a refresh that decisions have used and from before which all agreed to go
                                             on; the epoch with which they did
    pruned      -                            the first lesson whose interactions are kept: of earlier ones the records
                                             `decision` and `arms` are emptied (`retention`)
    privacy     -                            the privacy ledger: it is written with the decisions that it counts, before
                                             any of them is told

Keys are big-endian, so that their order is that of the numbers. The log of lessons has no gap, and is cut at its end
only, when all parties have agreed on a shorter one.
"""

from __future__ import annotations

import struct

from hiddenarm.bandit.catalogue import STEP, ProgramId
from hiddenarm.bandit.decisions import counted, decision_name, split_name
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policy import Learner
from hiddenarm.bandit.state import (
    State,
    check_state,
    decode_array,
    decode_arrays,
    encode_arrays,
    grown_state,
    initial_state,
)
from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.privacy.ledger import NOTHING_RELEASED, PrivacyLedger
from hiddenarm.roles.messages import Unlearning
from hiddenarm.roles.retention import CheckpointNeeds
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.store.contract import Store

EPOCH, OPENED, DECISION, ARMS, LESSON = "epoch", "opened", "decision", "arms", "lesson"
CHECKPOINT = "checkpoint"
REFRESH, NOISE_USED, UNDONE = "refresh", "noise used", "undone"
WENT_BACK = "went back"
VALUES = "values"
PRIVACY = "privacy"
ONLY = b""
NUMBER = struct.Struct(">Q")
RUN = struct.Struct(">QHQ")
NAME = struct.Struct(">QQ")
WINDOWS = struct.Struct("<QQ")
EPOCHS = struct.Struct("<QQBB")
PAIR = struct.Struct("<QQ")
_LESSON_HEAD = struct.Struct("<H")
_REWARD = struct.Struct("<QQQ")
_COUNTERS = struct.Struct("<QQBQ")
WORD = "<u8"
WORD_BYTES = 8
_FULL, _NAMED, _DUE = 1, 2, 3
"""How a checkpoint is written: its sums were full, which earlier versions went beyond; its arrays have names; the same,
and a repair is due. Earlier versions, whose arrays had no names, otherwise wrote zero."""
_UNNAMED_ARRAYS = 4
PRUNED, EMPTIED = "pruned", b"\x02"
"""The record of decisions, or of returned one-hots, that was pruned: that there was one is still known."""
_UNLEARNS = b"\x01"
"""Ends the record of an unlearning, which is by this longer than any number of rewards."""
OF_ONE_HOTS, HIDES_ZERO, RETURNED = b"", b"\x00", b"\x01"
"""How a record of decisions begins: earlier versions kept shares of the one-hots, with no head; the masks of the
one-hots hide zero; the actor returns the one-hots under them."""


def read_ledger(store: Store) -> PrivacyLedger:
    """The privacy ledger in a store; an empty one if there is none."""
    payload = store.get(PRIVACY, ONLY)
    return NOTHING_RELEASED if payload is None else decode_ledger(payload)


def decode_ledger(payload: bytes) -> PrivacyLedger:
    """The privacy ledger of a record."""
    try:
        return PrivacyLedger.decode(payload)
    except ValueError:
        raise DamagedStoreError("the record of the privacy ledger cannot be read") from None


def public_start(federation: Federation, number: int) -> LearnedState:
    """A party's part of the state before the first lesson."""
    return LearnedState(0, initial_state(federation.learner.arrays, number))


def run_key(epoch: int, program: ProgramId, step: int) -> bytes:
    """The key of what is kept of a run."""
    return RUN.pack(epoch, 0 if program.name == STEP else counted(program), step)


def read_needs(payload: bytes) -> CheckpointNeeds:
    """What is needed to start from a checkpoint; one of an earlier version, or a damaged one, may need all lessons."""
    if len(payload) < _COUNTERS.size:
        return CheckpointNeeds(0, 0)
    version, _, form, ungathered = _COUNTERS.unpack_from(payload)
    return CheckpointNeeds(version, ungathered if form in (_NAMED, _DUE) else 0)


def encode_lesson(lesson: Lesson, refused: str | None) -> bytes:
    why = (refused or "").encode()
    if lesson.unlearning is not None:
        return _LESSON_HEAD.pack(len(why)) + why + lesson.unlearning.encode() + _UNLEARNS
    rewards = (_REWARD.pack(*split_name(name), masked) for name, masked in lesson.rewards)
    return _LESSON_HEAD.pack(len(why)) + why + b"".join(rewards)


def decode_lesson(number: int, payload: bytes) -> Lesson:
    (length,) = _LESSON_HEAD.unpack_from(payload)
    start = _LESSON_HEAD.size + length
    refused = payload[_LESSON_HEAD.size : start].decode()
    if (len(payload) - start) % _REWARD.size:
        unlearning = Unlearning.decode(payload[start : -len(_UNLEARNS)])
        return Lesson(number, [], logged=True, refused=refused, unlearning=unlearning)
    rewards = [(decision_name(epoch, number), word) for epoch, number, word in _REWARD.iter_unpack(payload[start:])]
    return Lesson(number, rewards, logged=True, refused=refused)


def encode_state(state: LearnedState) -> bytes:
    form = _DUE if state.due else _NAMED
    return _COUNTERS.pack(state.version, state.gathered, form, state.ungathered) + encode_arrays(state.arrays)


def decode_state(payload: bytes, learner: Learner, party: int) -> LearnedState:
    """A checkpoint; one that was made when there were fewer arms grows to those that there are now."""
    version, gathered, form, ungathered = _COUNTERS.unpack_from(payload)
    if form not in (_NAMED, _DUE):
        return _decode_unnamed(payload, learner, party)
    arrays = grown_state(learner.arrays, decode_arrays(payload[_COUNTERS.size :]), party)
    check_state(learner.arrays, arrays)
    return LearnedState(version, arrays, gathered, ungathered, due=form == _DUE)


def _decode_unnamed(payload: bytes, learner: Learner, party: int) -> LearnedState:
    """A checkpoint of an earlier version: counters, whether the sums were full, and four arrays without names in the
    order of the learner's. The paper's suite, which has two, kept sums that it did not use. Earlier versions could make
    a wrong model: a repair is due."""
    version, gathered, form, ungathered = _COUNTERS.unpack_from(payload)
    if form == _FULL and learner.learns_many:
        raise StoreError(
            "this state was written by an earlier version after more interactions than its sums could hold; the model "
            "cannot be repaired any more. Start a new federation, with `max_interactions` as many as it is to learn"
        )
    at, arrays = _COUNTERS.size, []
    for _ in range(_UNNAMED_ARRAYS):
        words, at = decode_array(payload, at)
        arrays.append(words)
    unnamed = State(zip((array.name for array in learner.arrays), arrays, strict=False))
    named = grown_state(learner.arrays, unnamed, party)
    check_state(learner.arrays, named)
    return LearnedState(version, named, gathered, ungathered if learner.learns_many else version, learner.learns_many)
