"""Many decisions and many rewards at once, and repairs after single lessons: the roles against a plain solution."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from memory_network import KEYS, MemoryNetwork, small_federation

from hiddenarm.bandit.catalogue import DECIDE, STEP_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_number, split_number
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.schedule import GATHERED_AT_ONCE, Counters, Repairing, RidgeSchedule
from hiddenarm.errors import DecisionIdError, FeatureError, InputError
from hiddenarm.mpc.masking import triangle_to_square
from hiddenarm.ring.words import encode
from hiddenarm.roles.actor import all_decided
from hiddenarm.roles.party_areas import decode_state, encode_state
from hiddenarm.roles.updater import Updater


class Class:
    """Asks and teaches in batches, and remembers what was learned."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        network.collecting = False
        self.lessons: list[tuple[str, int, float]] = []
        self.keys: dict[str, str] = {}

    def decide(self, *keys: str, after: int = 0) -> list[Decision]:
        with self.network.handouts:
            name = self.network.actor.ask(*keys, after=after)
        self.network.settle()
        outcome = self.network.actor.outcomes.pop(name)
        if isinstance(outcome, Exception):
            raise outcome
        decisions = all_decided(outcome)
        self.keys |= {decision.id: key for decision, key in zip(decisions, keys, strict=True)}
        return decisions

    def reward(self, *rewards: tuple[Decision, float]) -> int:
        with self.network.handouts:
            lesson = self.network.rewarder.teach(*((decision.id, value) for decision, value in rewards))
        self.network.settle()
        assert self.network.rewarder.has_ended(lesson)
        self.network.rewarder.check_learned(lesson)
        self.lessons += [(self.keys[decision.id], decision.arm, value) for decision, value in rewards]
        return lesson + 1

    def check_model(self, unit: float) -> None:
        """The shared model is the ridge solution of all that was learned, within `unit`."""
        federation = self.network.federation
        inverses, weights = self.network.shared_model()
        square = triangle_to_square(federation.dimension)
        for arm in range(federation.arms):
            gram, moment = federation.ridge * np.eye(federation.dimension), np.zeros(federation.dimension)
            for key, pulled, reward in self.lessons:
                if pulled == arm:
                    context = np.concatenate([table.rows[key] for table in self.network.tables])
                    gram += np.outer(context, context)
                    moment += reward * context
            assert np.abs(inverses[0, arm][square] - np.linalg.inv(gram)).max() < unit
            assert np.abs(weights[0, arm] - np.linalg.solve(gram, moment)).max() < unit


def some(count: int, rng: random.Random) -> list[str]:
    return [rng.choice(KEYS) for _ in range(count)]


# Features are rounded to 2^-20 and W enters at 2^-20: with fewer than 300 interactions of norm at most sqrt(2) the
# solution moves by less than 300 * 2^-19 relative to W >= I; M and w themselves carry a few units of 2^-20.
UNIT = 300 * 2.0**-19


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_batches_solve_the_least_squares_problem(parties: int) -> None:
    rng = random.Random(parties)
    room = Class(MemoryNetwork(small_federation(parties)).start())
    version = 0
    for count in (7, 2, 16, 7):
        decisions = room.decide(*some(count, rng), after=version)
        assert len({decision.id for decision in decisions}) == count
        version = room.reward(*((decision, rng.random()) for decision in decisions))
        room.check_model(UNIT)


def test_single_lessons_and_batches_mix_in_any_order() -> None:
    rng = random.Random(1)
    room = Class(MemoryNetwork(small_federation(2)).start())
    kept: list[Decision] = []
    for _ in range(6):
        kept += room.decide(*some(rng.choice((1, 3, 5)), rng))
        rng.shuffle(kept)
        taught, kept = kept[: rng.choice((1, 2, 4))], kept[4:]
        room.reward(*((decision, rng.random()) for decision in taught))
    (single,) = room.decide(KEYS[0])
    pair = room.decide(*some(2, rng))
    room.reward((single, 0.5))
    room.reward(*((decision, 1.0) for decision in pair))
    room.check_model(UNIT)


def all_kinds_of_lessons() -> MemoryNetwork:
    """Lessons of all kinds, such that each kind is run at steps at which another one is."""
    room = Class(MemoryNetwork(small_federation(2, repair_every=1000)).start())
    pair = room.decide(*KEYS[:2])
    room.reward(*((decision, 1.0) for decision in pair))  # gather 2 at step 0
    first, second, _ = (room.decide(key, after=1)[0] for key in KEYS[:3])
    room.reward((second, 0.0))  # learn at step 1
    for version in (2, 3):
        (newest,) = room.decide(KEYS[3], after=version)
        room.reward((newest, 1.0))  # step at steps 0 and 1
    room.reward((first, 1.0))  # learn at step 4
    pair = room.decide(*KEYS[:2])
    room.reward(*((decision, 1.0) for decision in pair))  # repair 4 at step 0
    for _ in range(2):
        room.reward((room.decide(KEYS[4])[0], 1.0))
    pair = room.decide(*KEYS[:2])
    room.reward(*((decision, 1.0) for decision in pair))  # repair 2 at step 0
    return room.network


def test_no_word_is_handed_out_twice_in_lessons_of_all_kinds() -> None:
    dealt = all_kinds_of_lessons().handouts.dealt
    assert {"decide", "decide 2", "learn", "step", "gather 2", "repair 2", "repair 4"} <= dealt


def learn_singly(room: Class, rng: random.Random, times: int) -> None:
    for _ in range(times):
        (decision,) = room.decide(*some(1, rng))
        room.reward((decision, rng.random()))


def counters(updater: Updater) -> Counters:
    assert isinstance(updater.schedule, RidgeSchedule)
    assert updater.schedule.counters.singly == len(updater._singly)
    return updater.schedule.counters


def repairs(updater: Updater) -> int:
    return counters(updater).repairs


@pytest.mark.parametrize("parties", [2, 3])
def test_a_repair_replaces_a_model_that_was_spoilt(parties: int) -> None:
    """It is solved from the sums, taught the lessons since then, and put in place when it has caught up."""
    rng = random.Random(2)
    federation = small_federation(parties, repair_every=2 * GATHERED_AT_ONCE)
    room = Class(MemoryNetwork(federation).start())
    updater = room.network.epoch(0)._updater
    learn_singly(room, rng, federation.repair_every - 1)
    assert repairs(updater) == 0
    for name, error in (("inverses", 2.0**39), ("weights", 2.0**19)):
        updater.state[name] += np.uint64(error)  # a half
    learn_singly(room, rng, 2)  # each gathers a half
    assert repairs(updater) == 1
    assert counters(updater).repairing is not None
    learn_singly(room, rng, federation.repair_every // 2 - 1)
    assert counters(updater).repairing == Repairing(begun_at=federation.repair_every)
    with pytest.raises(AssertionError):
        room.check_model(0.1)
    learn_singly(room, rng, 10)
    assert counters(updater).repairing is None
    room.check_model(UNIT)
    assert len(updater._singly) < federation.repair_every


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_repairs_come_again_and_again(every: int) -> None:
    rng = random.Random(every)
    room = Class(MemoryNetwork(small_federation(2, repair_every=every)).start())
    updater = room.network.epoch(0)._updater
    learn_singly(room, rng, 60)
    longest = every + every // 2 + 8  # until it is due and may take the model's place; to gather and to catch up
    assert repairs(updater) >= 60 // longest
    assert len({repairs(machine._updater) for machine in room.network.epochs}) == 1
    assert len(updater._singly) <= longest
    room.check_model(UNIT)


@pytest.mark.parametrize("lessons", [0, 10, 27])
def test_a_batch_ends_a_repair_and_the_next_one_is_complete(lessons: int) -> None:
    rng = random.Random(3)
    federation = small_federation(2, repair_every=2 * GATHERED_AT_ONCE)
    room = Class(MemoryNetwork(federation).start())
    updater = room.network.epoch(1)._updater
    learn_singly(room, rng, federation.repair_every + 1 + lessons)
    assert counters(updater).repairing is not None
    room.reward(*((decision, rng.random()) for decision in room.decide(*some(3, rng))))
    assert counters(updater).repairing is None
    assert not updater._singly
    room.check_model(UNIT)
    before = repairs(updater)
    while repairs(updater) == before or counters(updater).repairing is not None:
        learn_singly(room, rng, 1)
    room.check_model(UNIT)


def in_another_epoch(room: Class, of_earlier_version: bool = False) -> Class:
    """All that is kept at the end of an epoch, in a new one. In a state of an earlier version a repair is due."""
    network = MemoryNetwork(room.network.federation).start()
    for before, after in zip(room.network.epochs, network.epochs, strict=True):
        kept = encode_state(replace(before._updater.learned(), version=0, ungathered=0))
        state = decode_state(kept, network.federation.learner, 0)
        after._updater._singly.extend(before._updater._singly)
        after.resume(replace(state, due=state.due or of_earlier_version), [], [])
    again = Class(network)
    again.lessons = room.lessons
    return again


def spoil(room: Class, error: float) -> None:
    """Add an error to the inverses, and a half to the weights."""
    state = room.network.epoch(0)._updater.state
    state["inverses"] += encode(error, 40)
    state["weights"] += encode(0.5, 20)


@pytest.mark.parametrize("singly", [0, 3, 30])
def test_a_batch_repairs_a_model_of_an_earlier_version(singly: int) -> None:
    """It may be indefinite, and a batch that began with it would diverge."""
    rng = random.Random(singly)
    room = Class(MemoryNetwork(small_federation(2)).start())
    room.reward(*((decision, rng.random()) for decision in room.decide(*some(5, rng))))
    learn_singly(room, rng, singly)
    spoil(room, -2.0)
    room = in_another_epoch(room, of_earlier_version=True)
    room.reward(*((decision, rng.random()) for decision in room.decide(*some(4, rng))))
    room.check_model(UNIT)
    room.reward(*((decision, rng.random()) for decision in room.decide(*some(4, rng))))
    learn_singly(room, rng, 3)
    room.check_model(UNIT)
    assert {repairs(machine._updater) for machine in room.network.epochs} == {1}


def test_single_lessons_repair_a_model_of_an_earlier_version_soon() -> None:
    rng = random.Random(5)
    room = Class(MemoryNetwork(small_federation(2)).start())
    learn_singly(room, rng, 30)
    spoil(room, 0.5)
    room = in_another_epoch(room, of_earlier_version=True)
    learn_singly(room, rng, 100)
    room.check_model(UNIT)


def test_a_repair_that_is_due_is_finished_however_short_epochs_are() -> None:
    """It was forgotten with the epoch, and a federation that is restarted every hundred lessons was never repaired."""
    rng = random.Random(6)
    room = Class(MemoryNetwork(small_federation(2, repair_every=250)).start())
    learn_singly(room, rng, 200)
    spoil(room, 0.5)
    for _ in range(3):
        room = in_another_epoch(room)
        learn_singly(room, rng, 100)
    room.check_model(UNIT)
    assert not room.network.epoch(0)._updater.learned().due


def test_a_model_that_is_full_refuses_rewards_and_goes_on_deciding() -> None:
    rng = random.Random(4)
    room = Class(MemoryNetwork(small_federation(2, max_interactions=5)).start())
    learn_singly(room, rng, 4)
    pair = room.decide(*some(2, rng))
    with pytest.raises(InputError, match="max_interactions"):
        room.reward(*((decision, 1.0) for decision in pair))
    learn_singly(room, rng, 1)
    (decision,) = room.decide(KEYS[0])
    with pytest.raises(InputError, match="learns no more"):
        room.reward((decision, 1.0))
    room.check_model(UNIT)


def test_rewards_are_refused_as_a_whole() -> None:
    """Also after a batch of which one key was refused."""
    room = Class(MemoryNetwork(small_federation(2)).start())
    before = room.network.shared_model()
    with pytest.raises(FeatureError, match="no usable features"):
        room.decide(KEYS[0], "nobody", KEYS[1])
    with pytest.raises(InputError, match="1 to 256 keys"):
        room.network.actor.ask()
    decisions = room.decide(*KEYS[:3])
    with pytest.raises(DecisionIdError, match="listed twice"):
        room.reward((decisions[0], 1.0), (decisions[0], 1.0))
    room.reward((decisions[1], 1.0))
    with pytest.raises(DecisionIdError, match="rewarded before"):
        room.reward((decisions[0], 1.0), (decisions[1], 1.0))
    assert all(len(words) for words in before)
    room.reward((decisions[0], 0.0), (decisions[2], 1.0))
    room.check_model(UNIT)


def test_numbers_of_decisions_are_taken_apart_again() -> None:
    room = Class(MemoryNetwork(small_federation(2)).start())
    for count in (1, 2, 3):
        numbers = [int(decision.id.split("-")[1]) for decision in room.decide(*KEYS[:count])]
        program = ProgramId(DECIDE, count)
        assert [split_number(number) for number in numbers] == [(program, 0, position) for position in range(count)]
    assert split_number(decision_number(STEP_ONE, 2**32 - 1)) == (STEP_ONE, 2**32 - 1, 0)
