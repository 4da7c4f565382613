"""What is unlearned was never learned: sums, model and decisions are those of all other interactions."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hard_worlds import ExactTwin, HardWorld, clipped, contexts, reward_of, score_error

from hiddenarm.bandit.catalogue import REPAIR_RUNS, UNLEARN, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import LocalFederation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.planning import TOLERANCE, repair_plan
from hiddenarm.bandit.retained import Retained
from hiddenarm.bandit.schedule import BeginSecond, RidgeSchedule, Run, Schedule, repair_programs
from hiddenarm.bandit.state import reveal
from hiddenarm.errors import ConfigError, DecisionIdError, InputError
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.ring.words import Floats, decode, encode
from support import fixed_key

HARD_WORLDS = 10
LESSONS = 60
Seen = tuple[Floats, int, float]
"""Context as it is entered, arm, reward."""


class UnlearningWorld:
    """A federation of `hard_worlds` that learns singly and in batches, and unlearns some of it."""

    def __init__(self, seed: int, *, online: bool) -> None:
        self.world = HardWorld(seed, interactions=LESSONS)
        self.federation = self.world.federation
        self.draw = random.Random(seed)
        key = fixed_key("unlearning", seed, online)
        self.lockstep = Lockstep(self.federation, key, online=online, deal_ahead=4, keep_interactions=LESSONS)
        self.held: dict[int, Seen] = {}
        self._stream = contexts(self.draw, self.federation, self.world.kinds[0])
        self._number = 0

    def learn(self, count: int) -> None:
        chosen = [next(self._stream) for _ in range(count)]
        self._number += count
        if count == 1:
            number, arms = self.lockstep.decide([part[None] for part in chosen[0]])
            numbers, pulled = [number], [int(arms[0])]
        else:
            numbers, arms = self.lockstep.decide_each([np.array(parts)[None] for parts in zip(*chosen, strict=True)])
            pulled = arms[0].tolist()
        rewards = [reward_of(self.draw, self.world.rewards, self._number, arm) for arm in pulled]
        if count == 1:
            self.lockstep.learn(numbers[0], rewards)
        else:
            self.lockstep.learn_each(numbers, [rewards])
        seen = [clipped(self.federation, context) for context in chosen]
        bits = self.federation.fraction_bits
        rounded = decode(encode(rewards, bits), bits).tolist()
        self.held.update(zip(numbers, zip(seen, pulled, rounded, strict=True), strict=True))

    def unlearn(self, number: int) -> None:
        self.lockstep.unlearn(number)
        del self.held[number]

    def sums_error(self) -> float:
        """How far the sums are from those of what is held, which are exact but for the ridge in fixed point."""
        clear = reveal(self.federation.learner.arrays, self.lockstep.states)
        twin = self.twin()
        rows, columns = np.triu_indices(self.federation.dimension)
        grams, moments = twin._grams[:, rows, columns], twin._moments
        errors = (
            np.abs(clear["grams"][0] - grams) / max(1.0, np.abs(grams).max()),
            np.abs(clear["moments"][0] - moments),
        )
        return max(float(error.max()) for error in errors)

    def twin(self) -> ExactTwin:
        """That never saw what was unlearned."""
        twin = ExactTwin(self.federation)
        for context, arm, reward in self.held.values():
            twin.learn(context, arm, reward)
        return twin

    def score_error(self) -> float:
        return score_error(self.lockstep, self.twin(), [next_clipped(self) for _ in range(8)])


def next_clipped(world: UnlearningWorld) -> Floats:
    return clipped(world.federation, next(world._stream))


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("seed", range(HARD_WORLDS))
def test_the_model_is_that_of_a_twin_which_never_saw_it(seed: int, online: bool) -> None:
    """Over hard but legal data, singly and in batches, in the middle of repairs and before any."""
    world = UnlearningWorld(seed, online=online)
    largest = min(8, world.federation.max_batch)
    for _ in range(4):
        for _ in range(world.draw.randint(1, 6)):
            world.learn(world.draw.choice((1, 1, world.draw.randint(1, largest))))
        for number in world.draw.sample(sorted(world.held), min(2, len(world.held))):
            world.unlearn(number)
        if not world.lockstep.schedule.counters.singly:  # type: ignore[attr-defined]
            assert world.sums_error() <= 1e-10 + 2.0 ** -(2 * world.federation.fraction_bits)
        assert world.score_error() <= 5 * TOLERANCE, str(world.world)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_when_all_is_unlearned_the_model_is_the_prior(seed: int) -> None:
    world = UnlearningWorld(seed, online=False)
    for _ in range(3):
        world.learn(1)
        world.learn(min(4, world.federation.max_batch))
    for number in world.draw.sample(sorted(world.held), len(world.held)):
        world.unlearn(number)
    fresh = Lockstep(world.federation, fixed_key("fresh"))
    clear, before = (reveal(world.federation.learner.arrays, one.states) for one in (world.lockstep, fresh))
    for name in ("grams", "moments"):
        assert np.array_equal(clear[name], before[name]), name
    assert np.abs(clear["weights"]).max() == 0
    error = np.abs(clear["inverses"] - before["inverses"]).max() * world.federation.ridge
    assert error <= 2.0**-10
    assert world.score_error() <= 2.0**-world.federation.fraction_bits
    assert world.lockstep.interactions_learned == world.lockstep.schedule.gathered == 0


def test_the_plain_twin_unlearns() -> None:
    rng, twin, other = np.random.default_rng(5), PlainBandit(2, 3), PlainBandit(2, 3)
    rows = rng.standard_normal((20, 3))
    for number, row in enumerate(rows):
        twin.learn(row, number % 2, 0.25 * (number % 4))
        if number % 3:
            other.learn(row, number % 2, 0.25 * (number % 4))
    for number in range(0, 20, 3):
        twin.unlearn(rows[number], number % 2, 0.25 * (number % 4))
    assert np.abs(twin.inverses - other.inverses).max() < 1e-12
    assert np.abs(twin.weights - other.weights).max() < 1e-12


def test_room_is_made_for_another_interaction() -> None:
    fed = LocalFederation(arms=2, features=[1, 1], epsilon=0.1, max_interactions=3)
    ids = [fed.decide([[0.3], [0.4]]).id for _ in range(4)]
    fed.reward_many(ids[:3], [1, 0, 1])
    with pytest.raises(InputError, match="max_interactions"):
        fed.reward(ids[3], 1)
    fed.unlearn(ids[1])
    fed.reward(ids[3], 1)


def test_a_pending_decision_is_dropped_and_nothing_is_unlearned_twice() -> None:
    fed = LocalFederation(arms=2, features=[1, 1], epsilon=0.1, seed=3)
    pending, learned = fed.decide([[0.3], [0.4]]), fed.decide([[0.1], [0.4]])
    fed.reward(learned.id, 1)
    for _ in range(2):
        fed.unlearn(pending.id)
        fed.unlearn(learned.id)
    assert "rewards=0, pending=0" in repr(fed)
    for decision in (pending, learned):
        with pytest.raises(DecisionIdError, match="was unlearned"):
            fed.reward(decision.id, 1)


def test_what_is_not_kept_is_refused_by_name() -> None:
    fed = LocalFederation(arms=2, features=[1, 1], epsilon=0.1, keep_interactions=2)
    ids = [fed.decide([[0.3], [0.4]]).id for _ in range(3)]
    for id in ids:
        fed.reward(id, 1)
    with pytest.raises(DecisionIdError, match=r"no longer kept.* newest 2"):
        fed.unlearn(ids[0])
    fed.unlearn(ids[1])
    never = fed._ids.id_of(17)
    with pytest.raises(DecisionIdError, match="never made"):
        fed.unlearn(never)
    with pytest.raises(ConfigError, match="keep_interactions"):
        LocalFederation(arms=2, features=[1, 1], epsilon=0.1, keep_interactions=-1)


@pytest.mark.parametrize(
    ("federation", "why"),
    [
        (LocalFederation(arms=2, features=[1, 1], epsilon=0.1, suite="paper"), "no sums"),
        (LocalFederation(arms=2, features=[1, 1], epsilon=0.1, privacy=NoisySums(1.0)), "sums are noisy"),
    ],
    ids=["paper", "noisy"],
)
def test_where_it_cannot_be_done_it_is_refused_and_nothing_changes(federation: LocalFederation, why: str) -> None:
    decision = federation.decide([[0.3], [0.4]])
    with pytest.raises(InputError, match=why):
        federation.unlearn(decision.id)
    federation.reward(decision.id, 1)
    with pytest.raises(InputError, match=why):
        federation.unlearn(decision.id)


@pytest.mark.parametrize("seed", [None, 11])
def test_what_is_kept_is_saved(tmp_path: Path, seed: int | None) -> None:
    fed = LocalFederation(arms=2, features=[1, 1], epsilon=0.1, seed=seed)
    first, second, third = (fed.decide([[0.3], [0.1 * n]]).id for n in range(3))
    fed.reward_many([first, second], [1, 0])
    fed.reward(third, 1)
    fed.unlearn(first)
    fed.save(tmp_path / "saved")
    loaded = LocalFederation.load(tmp_path / "saved")
    loaded.unlearn(first)
    loaded.unlearn(second)
    loaded.unlearn(third)
    clear = reveal(loaded.federation.learner.arrays, loaded._lockstep.states)
    assert np.abs(clear["moments"]).max() == 0
    assert np.abs(clear["weights"]).max() == 0


def test_addresses_are_used_once_and_follow_from_public_counters() -> None:
    """Over lessons, batches and unlearnings in any order, no program has a step twice."""
    numbers = Federation(arms=2, features=(1, 1), epsilon=0.1, repair_every=30).numbers
    for seed in range(20):
        draw, used, held = random.Random(seed), set[tuple[ProgramId, int]](), 0
        schedule: Schedule = RidgeSchedule(numbers)
        for number in range(120):
            if held and draw.random() < 0.2:
                plan, change = schedule.unlearning(number), -1
            else:
                change = draw.choice((1, 1, 1, 5))
                plan = schedule.lesson(number, change)
            held += change
            runs = [action for action in plan.actions if isinstance(action, Run)]
            runs += [run for action in plan.actions if isinstance(action, BeginSecond) for run in action.runs]
            addresses = [(run.program, run.step) for run in runs]
            assert not used.intersection(addresses)
            assert len(set(addresses)) == len(addresses)
            used.update(addresses)
            schedule = plan.after
            assert isinstance(schedule, RidgeSchedule)
            assert schedule.gathered + schedule.counters.singly == held


def test_an_unlearning_is_the_program_and_a_repair() -> None:
    numbers = Federation(arms=2, features=(1, 1), epsilon=0.1).numbers
    schedule: Schedule = RidgeSchedule(numbers)
    for number in range(150):
        schedule = schedule.lesson(number, 1).after
    plan = schedule.unlearning(150)
    runs = [action for action in plan.actions if isinstance(action, Run)]
    assert runs[0] == Run(ProgramId(UNLEARN), 150)
    assert [run.program for run in runs if run.program.name in REPAIR_RUNS] == repair_programs(
        repair_plan(numbers, 149)
    )
    assert [run.of for run in runs if run.of] == [range(100), range(100, 150)]
    assert plan.forgotten == 150


def test_the_newest_are_retained() -> None:
    retained: Retained[str] = Retained(2)
    for number in range(4):
        retained.add(number, str(number))
    assert list(retained) == [2, 3]
    assert not list(Retained(0))
