"""What a party writes down: when checkpoints go, what a cut log leaves, what is damaged."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_name, decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.bandit.policy import Learner
from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.mpc.values import Shared
from hiddenarm.roles.decision_records import DecidedRun
from hiddenarm.roles.epochs.plan import (
    INITIAL,
    MAX_CHECKPOINTS,
    UNSPENT,
    CheckpointName,
    Committed,
    Plan,
    statement_bytes,
)
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.party_areas import decode_state, encode_state
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.store.contract import Change, Delete, Put
from hiddenarm.store.journal import DirectJournal, Then
from hiddenarm.store.memory import MemoryStore

FEDERATION = Federation(arms=3, features=(2, 1), epsilon=0.1)
NAMED = 77
FOUR = ProgramId(DECIDE, 4)


class LateJournal:
    """Commits when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._waiting: deque[tuple[Sequence[Change], Then]] = deque()

    def append(self, changes: Sequence[Change], then: Then) -> None:
        self._waiting.append((changes, then))

    def sync(self, groups: int) -> None:
        for _ in range(groups):
            changes, then = self._waiting.popleft()
            self._store.commit(changes)
            then()


def records_on(store: MemoryStore) -> PartyRecords:
    return PartyRecords(store, DirectJournal(store), FEDERATION, 0)


def nothing() -> None:
    return


def words(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.uint64).reshape(shape) + np.uint64(7)


def keep(records: PartyRecords, count: int, step: int) -> tuple[np.ndarray, Decided]:
    features = words(1, count, 2) + np.uint64(step)
    arm_mask, reward_mask = Shared((count, 3), words(1, count, 3)), Shared((count,), words(1, count))
    decided = Decided(None, arm_mask, reward_mask, np.zeros((1, count, 3), np.uint64))
    program = DECIDE_ONE if count == 1 else ProgramId(DECIDE, count)
    records.keep_decisions(DecidedRun(NAMED, program, step, features, decided), nothing)
    return features, decided


def learn(records: PartyRecords, number: int, *names: int, epoch: int | None = None) -> None:
    state = records.state(INITIAL)
    after = LearnedState(number + 1, state.arrays, gathered=number)
    checkpoint = None if epoch is None else (epoch, after)
    records.log_lesson(Lesson(number, [(name, 5) for name in names]), None, checkpoint, nothing)


def test_decisions_come_back_one_by_one() -> None:
    store = MemoryStore()
    features, decided = keep(records_on(store), 4, 9)
    again = records_on(store)
    assert again.committed == Committed(0, 4)
    for position in range(4):
        kept = again.interaction(decision_name(NAMED, decision_number(FOUR, 9, position)))
        assert kept is not None
        assert np.array_equal(kept.features, features[:, position])
        assert decided.arm_mask.share is not None
        assert np.array_equal(kept.arm_mask, decided.arm_mask.share[:, position])
        assert kept.masked_arm is not None
        assert np.array_equal(kept.masked_arm, np.zeros((1, 3)))
        assert kept.reward_mask.shape == (1,)
    assert again.interaction(decision_name(NAMED, decision_number(FOUR, 8, 0))) is None
    assert again.interaction(decision_name(NAMED + 1, decision_number(FOUR, 9, 0))) is None


def test_decisions_of_earlier_versions_come_back() -> None:
    store = MemoryStore()
    features, shares, masks = words(1, 4, 2), words(1, 4, 3), words(1, 4)
    payload = b"".join(array.tobytes() for array in (features, shares, masks))
    store.commit([Put("decision", struct.pack(">QHQ", NAMED, 4, 9), payload)])
    for position in range(4):
        kept = records_on(store).interaction(decision_name(NAMED, decision_number(FOUR, 9, position)))
        assert kept is not None
        assert np.array_equal(kept.features, features[:, position])
        assert np.array_equal(kept.arm_share(adds_constants=True), shares[:, position])
        assert np.array_equal(kept.arm_share(adds_constants=False), shares[:, position])
        assert np.array_equal(kept.reward_mask, masks[:, position])


def test_decisions_wait_until_a_lesson_has_used_them() -> None:
    store = MemoryStore()
    records = records_on(store)
    keep(records, 4, 9)
    keep(records, 1, 3)
    assert records.pending == 5
    learn(records, 0, decision_name(NAMED, decision_number(FOUR, 9, 2)), decision_name(NAMED, 3))
    assert records.pending == records_on(store).pending == 3
    plan = Plan(1, (NAMED + 1).to_bytes(6, "big"), INITIAL, 0)
    assert Ledger(records_on(store), plan, FEDERATION.policy, UNSPENT).pending == 3  # of an epoch before, none at hand


def test_a_party_does_not_count_on_lessons_that_are_about_to_be_cut_off() -> None:
    """Its statement for another attempt may be made before the cut lasts, and even before the lessons do."""
    store = MemoryStore()
    journal = LateJournal(store)
    records = PartyRecords(store, journal, FEDERATION, 0)
    for number in range(3):
        learn(records, number)
    journal.sync(2)
    records.activate(Plan(1, NAMED.to_bytes(6, "big"), INITIAL, 1), nothing)
    assert records.statement().committed.lessons == 1
    journal.sync(1)  # the third lesson lasts, and is cut off with the second
    assert records.statement().committed.lessons == 1
    journal.sync(1)
    assert records.statement().committed.lessons == records_on(store).statement().committed.lessons == 1
    learn(records, 1)
    journal.sync(1)
    assert records.statement().committed.lessons == 2


def test_a_checkpoint_comes_back_as_it_was() -> None:
    store = MemoryStore()
    learn(records_on(store), 0, epoch=1)
    again = records_on(store)
    state, initial = again.state(CheckpointName(1, 1)), again.state(INITIAL)
    assert state.version == 1
    assert list(state.arrays) == list(initial.arrays) == ["inverses", "weights", "grams", "moments"]
    for name, words in state.arrays.items():
        assert np.array_equal(words, initial.arrays[name])
    with pytest.raises(DamagedStoreError, match="version 2 is not there"):
        again.state(CheckpointName(2, 1))


def earlier_state(learner: Learner, sums_full: bool) -> bytes:
    """As earlier versions wrote version 9: counters, and four arrays without names. The paper's suite had sums that it
    did not use."""
    shapes = [array.shape for array in learner.arrays]
    shapes += [(3, 6), (3, 3)][: 4 - len(shapes)]
    arrays = [words(1, *shape) + np.uint64(place) for place, shape in enumerate(shapes)]
    heads = [struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape) for array in arrays]
    counters = struct.pack("<QQBQ", 9, 7, sums_full, 4)
    return counters + b"".join(head + array.tobytes() for head, array in zip(heads, arrays, strict=True))


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_a_checkpoint_of_an_earlier_version(suite: str) -> None:
    learner = Federation(arms=3, features=(2, 1), epsilon=0.1, suite=suite).learner
    state = decode_state(earlier_state(learner, sums_full=False), learner, 0)
    assert (state.version, state.gathered, state.ungathered) == (9, 7, 4 if suite == "fast" else 9)
    for place, array in enumerate(learner.arrays):
        assert np.array_equal(state.arrays[array.name], words(1, *array.shape) + np.uint64(place))
    assert len(state.arrays) == len(learner.arrays)
    again = decode_state(encode_state(state), learner, 0)
    assert all(np.array_equal(again.arrays[name], words) for name, words in state.arrays.items())


def test_a_checkpoint_of_an_earlier_version_whose_sums_were_full() -> None:
    """Always so in the paper's suite, which has none. Of the other nothing is known then but the model, which cannot
    be repaired."""
    learner = FEDERATION.learner
    with pytest.raises(StoreError, match=r"written by an earlier version.*max_interactions"):
        decode_state(earlier_state(learner, sums_full=True), learner, 0)
    paper = Federation(arms=3, features=(2, 1), epsilon=0.1, suite="paper").learner
    assert decode_state(earlier_state(paper, sums_full=True), paper, 0).ungathered == 9


def test_a_checkpoint_of_another_model_is_refused() -> None:
    other = Federation(arms=2, features=(2, 1), epsilon=0.1).learner
    state = records_on(MemoryStore()).state(INITIAL)
    with pytest.raises(DamagedStoreError, match=r"where .* were expected"):
        decode_state(encode_state(state), other, 0)
    with pytest.raises(DamagedStoreError, match="cannot be read"):
        decode_state(encode_state(state)[:-1], FEDERATION.learner, 0)


def test_a_repair_that_is_due_is_written_down() -> None:
    """Of a model of an earlier version, which may be wrong, one is due."""
    state = records_on(MemoryStore()).state(INITIAL)
    sound, due = (encode_state(replace(state, due=due)) for due in (False, True))
    learner = FEDERATION.learner
    assert not decode_state(sound, learner, 0).due
    assert decode_state(due, learner, 0).due
    assert decode_state(earlier_state(learner, sums_full=False), learner, 0).due


def test_more_interactions_than_the_federation_holds_are_refused() -> None:
    """An earlier version had no such bound, and scores beyond it would be compared wrongly."""
    store = MemoryStore()
    journal, records = DirectJournal(store), records_on(store)
    learn(records, 0, decision_name(NAMED, 0))
    learn(records, 1, decision_name(NAMED, 1))
    PartyRecords(store, journal, replace(FEDERATION, max_interactions=2), 0)
    with pytest.raises(StoreError, match="holds 2 interactions; this federation holds at most 1 "):
        PartyRecords(store, journal, replace(FEDERATION, max_interactions=1), 0)


def test_a_cut_log_gives_its_decisions_back() -> None:
    store = MemoryStore()
    records = records_on(store)
    for step in range(3):
        keep(records, 1, step)
        learn(records, step, decision_name(NAMED, step), epoch=1)
    names = [decision_name(NAMED, step) for step in range(3)]
    assert [records.is_taught(name) for name in names] == [True, True, True]
    plan = Plan(4, bytes(6), CheckpointName(1, 1), 2)
    records.prepare(plan, nothing)
    records.activate(plan, nothing)
    for one in (records, records_on(store)):
        assert [one.is_taught(name) for name in names] == [True, True, False]
        assert one.committed == Committed(2, 3)
        assert one.pending == 1
        assert one.checkpoints == {CheckpointName(1, 1), CheckpointName(2, 1)}
        assert (one.prepared, one.activated) == (4, 4)
        assert [lesson.number for lesson in one.lessons(0, 9)] == [0, 1]
    assert records.opened() == {4: plan}
    learn(records, 2, names[2])
    assert records.is_taught(names[2])


def test_a_checkpoint_goes_when_all_parties_are_known_to_have_a_newer_one() -> None:
    records = records_on(MemoryStore())
    for number in range(3):
        learn(records, number, epoch=1)
    assert {name.version for name in records.checkpoints} == {1, 2, 3}
    records.note(1, Committed(2, 0))
    learn(records, 3, epoch=1)
    assert {name.version for name in records.checkpoints} == {2, 3, 4}


def test_what_was_learned_again_does_not_count_as_known_to_all() -> None:
    records = records_on(MemoryStore())
    for number in range(3):
        learn(records, number, epoch=1)
    records.note(1, Committed(3, 0))
    plan = Plan(2, bytes(6), CheckpointName(1, 1), 3)
    records.prepare(plan, nothing)
    records.activate(plan, nothing)
    state = records.state(INITIAL)
    for version in (2, 3):
        records.keep_checkpoint(2, LearnedState(version, state.arrays), nothing)
    assert CheckpointName(1, 1) in records.checkpoints
    records.note(1, Committed(4, 0))
    learn(records, 3, epoch=2)
    assert records.checkpoints == {CheckpointName(3, 1), CheckpointName(3, 2), CheckpointName(4, 2)}


def test_no_more_checkpoints_are_kept_than_a_statement_holds() -> None:
    """Also while a long log is learned again. The one from which the epoch started stays: all parties have it."""
    store = MemoryStore()
    records = records_on(store)
    many = MAX_CHECKPOINTS + 30
    for number in range(many):
        learn(records, number, epoch=1 if number == 0 else None)
    plan = Plan(2, bytes(6), CheckpointName(1, 1), many)
    records.prepare(plan, nothing)
    records.activate(plan, nothing)
    state = records.state(INITIAL)
    for version in range(2, many + 1):
        records.keep_checkpoint(2, LearnedState(version, state.arrays), nothing)
    newest = {CheckpointName(version, 2) for version in range(many - MAX_CHECKPOINTS + 2, many + 1)}
    assert records.checkpoints == newest | {CheckpointName(1, 1)}
    assert records_on(store).checkpoints == records.checkpoints
    assert len(records.statement().encode()) <= statement_bytes(2)


def test_a_store_with_too_many_checkpoints_states_the_newest() -> None:
    store = MemoryStore()
    keys = [version.to_bytes(8, "big") + (1).to_bytes(8, "big") for version in range(1, MAX_CHECKPOINTS + 3)]
    store.commit([Put("checkpoint", key, b"") for key in keys])
    stated = records_on(store).statement()
    assert [name.version for name in stated.checkpoints] == list(range(3, MAX_CHECKPOINTS + 3))
    assert len(stated.encode()) <= statement_bytes(2)


def test_notes_last_with_whatever_is_written_next() -> None:
    store = MemoryStore()
    records = records_on(store)
    records.note(1, Committed(3, 8))
    assert records_on(store).noted[1] == Committed(0, 0)
    keep(records, 1, 0)
    assert records_on(store).noted[1] == Committed(3, 8)


def test_consent_lasts_until_an_epoch_is_activated() -> None:
    store = MemoryStore()
    records_on(store).consent()
    records = records_on(store)
    assert records.statement().consents
    plan = Plan(1, bytes(6), INITIAL, 0, recovers=True)
    records.prepare(plan, nothing)
    assert records_on(store).consents
    records.activate(plan, nothing)
    assert not records_on(store).consents


def test_a_gap_in_the_log_is_refused() -> None:
    store = MemoryStore()
    records = records_on(store)
    for number in range(3):
        learn(records, number)
    with pytest.raises(StoreError, match="cannot follow"):
        learn(records, 5)
    store.commit([Delete("lesson", (1).to_bytes(8, "big"))])
    with pytest.raises(DamagedStoreError, match="lesson 1 is missing"):
        records_on(store)
