"""What the records of a party prune, what they must not, and which one-hots fit a run; with stores in memory."""

from __future__ import annotations

import numpy as np
import pytest
from test_party_records import NAMED, keep, nothing, words

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, ProgramId
from hiddenarm.bandit.decisions import MAX_PENDING, decision_name, decision_number
from hiddenarm.bandit.evaluation import PolicyValues
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.errors import FrameError
from hiddenarm.mpc.values import Shared
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.decision_records import DecidedRun
from hiddenarm.roles.epochs.plan import INITIAL, Committed
from hiddenarm.roles.messages import ReturnedArms, Unlearning
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.slots import HeardSlots
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

KEPT = 2
FEDERATION = Federation(arms=3, features=(2, 1), epsilon=0.1, keep_interactions=KEPT)
EMPTIED = b"\x02"


def records_on(store: MemoryStore, federation: Federation = FEDERATION) -> PartyRecords:
    return PartyRecords(store, DirectJournal(store), federation, 0)


def name(step: int) -> int:
    return decision_name(NAMED, decision_number(DECIDE_ONE, step))


def learn(records: PartyRecords, number: int, *names: int, ungathered: int | None = None) -> None:
    """A lesson, with a checkpoint after it whose sums hold all lessons, or those before one; the peer has all before
    it."""
    records.note(1, Committed(number, 0))
    first = number + 1 if ungathered is None else ungathered
    after = LearnedState(number + 1, records.state(INITIAL).arrays, first, first)
    records.log_lesson(Lesson(number, [(one, 5) for one in names]), None, (1, after), nothing)


def unlearn(records: PartyRecords, number: int, unlearned: int, learned_in: int) -> None:
    after = LearnedState(number + 1, records.state(INITIAL).arrays, number + 1, number + 1)
    lesson = Lesson(number, [], unlearning=Unlearning(unlearned, learned_in))
    records.log_lesson(lesson, None, (1, after), nothing)


def emptied(store: MemoryStore) -> list[bool]:
    return [payload == EMPTIED for _, payload in store.items("decision")]


def test_the_oldest_interactions_are_emptied_and_the_rest_are_whole() -> None:
    store = MemoryStore()
    records = records_on(store)
    for number in range(8):
        keep(records, 1, number)
        learn(records, number, name(number))
    pruned = emptied(store)
    assert pruned == [True] * 5 + [False] * 3, "the oldest checkpoint has seven lessons, of which two are kept"
    again = records_on(store)
    for number, gone in enumerate(pruned):
        assert (again.interaction(name(number)) is None) is gone
        assert again.is_taught(name(number))
    assert again.pending == 0
    assert not list(again.untaught())


def test_a_record_of_many_is_emptied_with_the_last_of_its_decisions() -> None:
    store = MemoryStore()
    records = records_on(store)
    keep(records, 4, 0)
    four = ProgramId(DECIDE, 4)
    names = [decision_name(NAMED, decision_number(four, 0, place)) for place in range(4)]
    for number in range(3):
        learn(records, number, names[number])
    for number in range(3, 12):
        keep(records, 1, number)
        learn(records, number, name(number))
    assert records.interaction(names[0]) is not None, "one of the four waits for its reward"
    learn(records, 12, names[3])
    for number in range(13, 22):
        keep(records, 1, number)
        learn(records, number, name(number))
    assert records.interaction(names[0]) is None


def test_after_a_restart_pruning_goes_on_where_it_was() -> None:
    """The records of a run that is pruned in part are counted anew from the log."""
    stores = MemoryStore(), MemoryStore()
    for store, restarts in zip(stores, (False, True), strict=True):
        records = records_on(store)
        for number in range(10):
            keep(records, 2, number)
            two = ProgramId(DECIDE, 2)
            for place in range(2):
                records = records_on(store) if restarts else records
                learn(records, 2 * number + place, decision_name(NAMED, decision_number(two, number, place)))
    assert emptied(stores[0]) == emptied(stores[1])
    assert sum(emptied(stores[0])) >= 5


def test_what_an_unlearning_behind_the_checkpoint_may_do_again_is_needed() -> None:
    records = records_on(MemoryStore())
    for number in range(6):
        keep(records, 1, number)
        learn(records, number, name(number))
    assert records._first_needed(5) == 5
    unlearn(records, 6, name(4), 4)
    assert records._first_needed(6) == 4
    assert records._first_needed(7) == 7, "it is in the state from there on"


def test_what_a_checkpoint_has_not_gathered_is_kept() -> None:
    store = MemoryStore()
    records = records_on(store)
    for number in range(8):
        keep(records, 1, number)
        learn(records, number, name(number), ungathered=0)
    assert not any(emptied(store))


def test_what_a_window_under_way_has_learned_is_needed() -> None:
    """No window was filled yet: all lessons may be part of it."""
    values = PolicyValues(1.0, "rewarder", 2)
    federation = Federation(arms=3, features=(2, 1), epsilon=0.1, max_batch=1, keep_interactions=3, evaluation=values)
    records = records_on(MemoryStore(), federation)
    assert records._first_needed(5) == 0


@pytest.mark.parametrize("federation", [FEDERATION, Federation(arms=5, features=(2, 1), epsilon=0.1)], ids=["3", "5"])
def test_one_hots_must_have_as_many_arms_as_their_run_had(federation: Federation) -> None:
    """Three, also after arms were added; of a run that is not known here, any number."""
    store = MemoryStore()
    arm_mask, reward_mask = Shared((2, 3), words(1, 2, 3)), Shared((2,), words(1, 2))
    decided = Decided(None, arm_mask, reward_mask, None)
    two = ProgramId(DECIDE, 2)
    records_on(store).keep_decisions(DecidedRun(NAMED, two, 0, words(1, 2, 2), decided), nothing)
    records = records_on(store, federation)
    for arms in (2, 4, 5):
        wrong = ReturnedArms(NAMED, two, 0, np.zeros(2 * arms, np.uint64).tobytes())
        assert not records.keep_arms(wrong, nothing)
    right = ReturnedArms(NAMED, two, 0, words(2, 3).tobytes())
    assert records.keep_arms(right, nothing)
    assert records.keep_arms(right, nothing), "sent again"
    assert not records.keep_arms(ReturnedArms(NAMED, two, 0, bytes(48)), nothing), "two under one mask"
    assert records.keep_arms(ReturnedArms(NAMED, two, 1, bytes(80)), nothing)
    kept = records.interaction(decision_name(NAMED, decision_number(two, 0, 1)))
    assert kept is not None
    assert kept.masked_arm is not None
    assert kept.masked_arm.shape == (1, federation.arms)
    assert np.array_equal(kept.masked_arm[0, :3], words(2, 3)[1])


def test_a_party_cannot_name_decisions_without_bound() -> None:
    """What the others do not know is kept until they name it: only so much of it."""
    parties = [Identity(Role.PARTY, number) for number in range(2)]
    slots = HeardSlots(parties)
    most = 2 * MAX_PENDING
    assert slots.hear(parties[1], 0, range(most), more=False) == []
    assert slots.hear(parties[0], 0, [3, 1], more=False) == [[1, 3]]
    assert slots.hear(parties[1], 1, [most, most + 1, most + 2], more=False) == []
    with pytest.raises(FrameError, match=r"more than .* decisions that other parties do not know"):
        slots.hear(parties[0], 1, [], more=False)
