"""The learner on secret values against its plain twin: the same coins, the same arms, nearly the same model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from hiddenarm.bandit.features import clipped_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.masking import triangle_to_square
from hiddenarm.ring.words import encode
from support import PARTIES, fixed_key

ARMS = 5


def federation_of(parties: int, **options: object) -> Federation:
    return Federation(arms=ARMS, features=(2,) * parties, epsilon=0.1, **options)  # type: ignore[arg-type]


@dataclass
class World:
    """Contexts near one of several centres; the arm of the centre pays 1 with probability 0.9, the others with 0.1."""

    federation: Federation
    steps: int
    seed: int = 0
    scale: float = 1.0
    contexts: np.ndarray = field(init=False)
    pays: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, self.federation.dimension])
        centres = rng.normal(size=(ARMS, self.federation.dimension))
        label = rng.integers(ARMS, size=self.steps)
        raw = centres[label] + 0.3 * rng.normal(size=(self.steps, self.federation.dimension))
        self.contexts = self.scale * raw / np.linalg.norm(raw, axis=1, keepdims=True)
        chance = np.where(np.arange(ARMS) == label[:, None], 0.9, 0.1)
        self.pays = (rng.random((self.steps, ARMS)) < chance).astype(float)

    def split(self, step: int) -> list[np.ndarray]:
        return np.split(self.contexts[step], np.cumsum(self.federation.features)[:-1])

    def clipped(self, step: int) -> np.ndarray:
        """What enters the computation: the twin's context."""
        parts = [clipped_features(values, self.federation, party) for party, values in enumerate(self.split(step))]
        return np.concatenate(parts)


class ErrorBound:
    """How far the private model may be from the plain one that saw the same log.

    A step commits local errors and passes on the old ones. With e the unit 2^-L and D features, in Euclidean norms:
      x: half a unit an entry, sqrt(D) e / 2.   u = M x and v = g u: below one unit an entry, sqrt(D) e.
      g: that of the look-up and one unit.      r - score: one unit.   u (r - score), v (r - score): one unit an entry.
    The derivative of Sherman-Morrison takes an error E of M to P E P' with P = I - v x', and an error of w to P times
    it plus (r - score) g P E x. The product of all P from step s to step t is M_t W_s: an error grows by its norm at
    most. Errors of second order are covered by a tenth.
    """

    def __init__(self, federation: Federation) -> None:
        self.ridge = federation.ridge
        self.unit = 2.0**-federation.fraction_bits
        self.entries = np.sqrt(federation.dimension)
        self.look_up = 4.0 ** -(federation.reciprocal_bits + 1)
        self._steps: list[list[tuple[np.ndarray, float, float, float]]] = [[] for _ in range(ARMS)]

    def learn(self, twin: PlainBandit, x: np.ndarray, arm: int, reward: float) -> None:
        """Note a step's local errors, before the twin learns it."""
        size = np.linalg.norm
        inverse, weights = twin.inverses[arm], twin.weights[arm]
        u = inverse @ x
        g = 1 / (1 + x @ u)
        v = g * u
        missed = abs(reward - weights @ x)
        dx = self.entries * self.unit / 2
        du = size(inverse, 2) * dx + self.entries * self.unit
        dg = g**2 * (size(x) * du + size(u) * dx) + self.look_up + self.unit
        dv = g * du + dg * size(u)
        in_inverse = (dv + self.entries * self.unit) * size(u) + size(v) * du
        in_weights = missed * dv + size(v) * (size(weights) * dx + self.unit) + (1 + g) * self.entries * self.unit
        self._steps[arm].append((x, 1.1 * in_inverse, 1.1 * in_weights, missed * g * size(x)))

    def of_arm(self, arm: int) -> tuple[float, float]:
        """Bounds of the inverse's spectral norm and of the weights' norm."""
        grams = [self.ridge * np.eye(round(self.entries**2))]
        for x, *_ in self._steps[arm]:
            grams.append(grams[-1] + np.outer(x, x))
        inverses = np.linalg.inv(grams)
        # The initial M is rounded to 2L bits: below a unit of L bits squared an entry, in every entry of the diagonal.
        in_inverse = [self.unit**2] + [step[1] for step in self._steps[arm]]
        in_weights = [0.0] + [step[2] for step in self._steps[arm]]
        weights = 0.0
        for now in range(len(grams)):
            growth = np.linalg.norm(inverses[now] @ np.stack(grams[: now + 1]), 2, axis=(1, 2))
            inverse = float(growth**2 @ in_inverse[: now + 1])
            if now + 1 < len(grams):
                # This error of M reaches the weights in the next step, from where it is passed on like the others.
                in_weights[now + 1] += (
                    float(np.linalg.norm(inverses[now + 1] @ grams[now], 2)) * inverse * self._steps[arm][now][3]
                )
            else:
                weights = float(growth @ in_weights)
        return inverse, weights


def square(packed: np.ndarray, dimension: int) -> np.ndarray:
    return packed[..., triangle_to_square(dimension)]


def assert_close(lockstep: Lockstep, twin: PlainBandit, bound: ErrorBound, replicate: int = 0) -> float:
    """Assert that the model lies within the bound; return the largest bound, which should be small to say anything."""
    inverses, weights = lockstep.reveal_model()
    full = square(inverses[replicate], lockstep.federation.dimension)
    largest = 0.0
    for arm in range(ARMS):
        of_inverse, of_weights = bound.of_arm(arm)
        assert np.linalg.norm(full[arm] - twin.inverses[arm], 2) <= of_inverse
        assert np.linalg.norm(weights[replicate, arm] - twin.weights[arm]) <= of_weights
        largest = max(largest, of_inverse, of_weights)
    return largest


def run_both(world: World, key: str, *, online: bool = False) -> tuple[float, Lockstep, PlainBandit, ErrorBound]:
    """Run the private learner, and a twin that is taught the same arms and rewards; the share of decisions on which
    they agree."""
    federation = world.federation
    lockstep = Lockstep(federation, fixed_key("learner", key), online=online)
    coins = lockstep.coins(0, world.steps)
    follower = PlainBandit(ARMS, federation.dimension, federation.ridge)
    bound = ErrorBound(federation)
    same = 0
    for step in range(world.steps):
        x = world.clipped(step)
        number, arms = lockstep.decide([values[None] for values in world.split(step)])
        arm = int(arms[0])
        same += follower.agrees(arm, x, *coins_at(coins, step), federation.score_rounding)
        lockstep.learn(number, [world.pays[step, arm]])
        bound.learn(follower, x, arm, world.pays[step, arm])
        follower.learn(x, arm, world.pays[step, arm])
    return same / world.steps, lockstep, follower, bound


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("parties", PARTIES)
def test_the_private_learner_is_the_plain_one(parties: int, online: bool) -> None:
    world = World(federation_of(parties), 300)
    agreement, lockstep, twin, bound = run_both(world, f"{parties} parties", online=online)
    assert agreement >= 0.995
    assert assert_close(lockstep, twin, bound) < 0.02  # of numbers up to 1: the bound says something


@pytest.mark.parametrize("bits", [16, 18, 20])
def test_fraction_bits(bits: int) -> None:
    agreement, lockstep, twin, bound = run_both(World(federation_of(2, fraction_bits=bits), 300), f"{bits} bits")
    assert agreement >= 0.995
    assert_close(lockstep, twin, bound)


@pytest.mark.parametrize("ridge", [0.5, 3.0])
def test_ridges(ridge: float) -> None:
    agreement, lockstep, twin, bound = run_both(World(federation_of(2, ridge=ridge), 200), f"ridge {ridge}")
    assert agreement >= 0.995
    assert_close(lockstep, twin, bound)


@pytest.mark.parametrize("norms", [(0.5, 0.25), (1.0, 1.0)])
def test_contexts_beyond_the_norm_are_clipped(norms: tuple[float, float]) -> None:
    world = World(federation_of(2, norms=norms), 200, scale=7.0)
    assert np.linalg.norm(world.clipped(0)) < 2
    agreement, lockstep, twin, bound = run_both(world, f"norms {norms}")
    assert agreement >= 0.995
    assert_close(lockstep, twin, bound)


@pytest.mark.parametrize("node_bits", [6, 10])
def test_reciprocal_bits(node_bits: int) -> None:
    world = World(federation_of(2, reciprocal_bits=node_bits), 200)
    _, lockstep, twin, bound = run_both(world, f"nodes {node_bits}")
    assert_close(lockstep, twin, bound)


def test_a_wrong_update_is_caught() -> None:
    """The bound is tight enough to notice a learner that learnt one interaction more than 300."""
    world = World(federation_of(2), 300)
    _, lockstep, twin, bound = run_both(world, "2 parties")
    number, _ = lockstep.decide([values[None] for values in world.split(0)])
    lockstep.learn(number, [1.0])
    with pytest.raises(AssertionError):
        assert_close(lockstep, twin, bound)


@pytest.mark.parametrize("online", [False, True])
def test_late_unordered_and_missing_rewards(online: bool) -> None:
    """Rewards come late, shuffled, and every fifth never: the twin that learns in the same order is the same."""
    world = World(federation_of(3), 250)
    federation = world.federation
    lockstep = Lockstep(federation, fixed_key("learner", "late"), online=online, deal_ahead=16)
    coins = lockstep.coins(0, world.steps)
    twin, bound = PlainBandit(ARMS, federation.dimension), ErrorBound(federation)
    rng = np.random.default_rng(9)
    waiting: list[tuple[int, int]] = []
    same = 0
    for step in range(world.steps):
        number, arms = lockstep.decide([values[None] for values in world.split(step)])
        same += twin.agrees(int(arms[0]), world.clipped(step), *coins_at(coins, step), federation.score_rounding)
        if step % 5:
            waiting.append((number, int(arms[0])))
        while len(waiting) > 12:
            number, arm = waiting.pop(int(rng.integers(len(waiting))))
            lockstep.learn(number, [world.pays[number, arm]])
            bound.learn(twin, world.clipped(number), arm, world.pays[number, arm])
            twin.learn(world.clipped(number), arm, world.pays[number, arm])
    assert same >= 0.995 * world.steps
    assert_close(lockstep, twin, bound)
    assert lockstep.interactions_learned == 200 - 12
    assert len(lockstep.pending) == 50 + 12


@pytest.mark.parametrize("online", [False, True])
def test_each_replicate_is_its_own_twin(online: bool) -> None:
    epsilons = [0.0, 0.05, 0.3, 1.0]
    steps = 150
    federation = federation_of(2)
    worlds = [World(federation, steps, seed) for seed in range(len(epsilons))]
    key = fixed_key("learner", "replicates")
    lockstep = Lockstep(federation, key, replicates=4, epsilons=epsilons, online=online)
    coins = lockstep.coins(0, steps)
    twins = [PlainBandit(ARMS, federation.dimension) for _ in epsilons]
    bounds = [ErrorBound(federation) for _ in epsilons]
    same = np.zeros(4)
    for step in range(steps):
        contexts = [np.stack(parts) for parts in zip(*(world.split(step) for world in worlds), strict=True)]
        number, arms = lockstep.decide(contexts)
        rewards = [world.pays[step, arm] for world, arm in zip(worlds, arms, strict=True)]
        for index, (world, twin, bound) in enumerate(zip(worlds, twins, bounds, strict=True)):
            x = world.clipped(step)
            same[index] += twin.decide(x, *coins_at(coins, step, index)) == arms[index]
            bound.learn(twin, x, int(arms[index]), rewards[index])
            twin.learn(x, int(arms[index]), rewards[index])
        lockstep.learn(number, rewards)
    assert np.all(same >= 0.995 * steps)
    assert not coins.explore[:, 0].any()
    assert coins.explore[:, 3].all()
    for index, (twin, bound) in enumerate(zip(twins, bounds, strict=True)):
        assert_close(lockstep, twin, bound, index)


def test_contexts_of_zeros_change_nothing_in_the_inverse() -> None:
    federation = federation_of(2)
    lockstep = Lockstep(federation, fixed_key("learner", "zeros"))
    before = lockstep.reveal_model()
    for _ in range(20):
        number, _ = lockstep.decide([np.zeros((1, 2))] * 2)
        lockstep.learn(number, [1.0])
    after = lockstep.reveal_model()
    assert np.array_equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])


def test_the_plain_twin_is_ridge_regression() -> None:
    """The oracle itself, against the normal equations."""
    rng = np.random.default_rng(1)
    twin = PlainBandit(2, 4, ridge=2.0)
    contexts, rewards = rng.normal(size=(50, 4)), rng.random(50)
    for x, reward in zip(contexts, rewards, strict=True):
        twin.learn(x, 1, reward)
    gram = 2.0 * np.eye(4) + contexts.T @ contexts
    assert np.allclose(twin.inverses[1], np.linalg.inv(gram), atol=1e-12)
    assert np.allclose(twin.weights[1], np.linalg.solve(gram, contexts.T @ rewards), atol=1e-12)
    assert np.array_equal(twin.inverses[0], np.eye(4) / 2.0)
    assert twin.decide(np.zeros(4), False, np.array([1, 0])) == 0
    assert twin.decide(np.zeros(4), False, np.array([0, 1])) == 1
    assert twin.decide(contexts[0], True, np.array([1, 0])) == 0
    assert twin.decide(contexts[0], True, np.array([0, 1])) == 1


def test_a_decision_whose_scores_are_out_of_range_does_not_stop_the_next() -> None:
    federation = Federation(arms=3, features=(1, 1), epsilon=0.0, max_interactions=120)
    assert federation.score_range_bits == 4
    lockstep = Lockstep(federation, fixed_key("learner", "range"))
    share = lockstep.states[0]["weights"]
    share[0, :, 0] = encode([9.0, 0.0, -9.0], 20)  # differences of 18 in a range of 16
    with pytest.raises(ScoreRangeError):
        lockstep.decide([[[1.0]], [[0.0]]])
    number, arms = lockstep.decide([[[0.1]], [[0.0]]])
    assert (number, int(arms[0])) == (1, 0)
    assert lockstep.pending == {1}


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("tiny", [1, -1])
def test_scores_further_apart_than_the_rounding_keep_their_order(parties: int, tiny: int) -> None:
    """Each party loses up to a unit of the last bit compared, so a difference of one for each party is seen."""
    replicates = 2000
    federation = Federation(arms=4, features=(1,) * parties, epsilon=0.0)
    lockstep = Lockstep(federation, fixed_key("learner", "unit", parties), replicates=replicates, deal_ahead=1)
    unit = 2.0**-federation.key_fraction_bits
    lockstep.states[0]["weights"][:, 2, 0] = encode(tiny * parties * unit, 20)
    nothing = [np.zeros((replicates, 1))] * (parties - 1)
    _, arms = lockstep.decide([np.ones((replicates, 1)), *nothing])
    assert set(arms) == ({2} if tiny > 0 else {0, 1, 3})


@pytest.mark.parametrize("arms", [2, 5, 15, 20, 49])
@pytest.mark.parametrize("parties", [2, 3])
def test_decisions_are_the_best_of_the_encoded_scores_but_for_rounding(parties: int, arms: int) -> None:
    """Random weights and contexts of all sizes, ties included, against whole numbers; with eligible arms only, too."""
    replicates, rng = 1000, np.random.default_rng(arms)
    federation = Federation(arms=arms, features=(3, 2, 1)[:parties], epsilon=0.0)
    lockstep = Lockstep(federation, fixed_key("learner", "best", arms), replicates=replicates, deal_ahead=1)
    scales = 2.0 ** rng.integers(0, 24, size=(replicates, 1, 1))
    drawn = rng.uniform(-(2.0**24), 2.0**24, size=(replicates, arms, federation.dimension))
    weights = np.round(drawn / scales).astype(np.int64)
    lockstep.states[1]["weights"][:] = weights.view(np.uint64)
    contexts = [rng.uniform(-0.5, 0.5, size=(replicates, size)) for size in federation.features]
    x = np.concatenate([encode(part, 20).view(np.int64) for part in contexts], axis=-1)
    scores = np.einsum("rai,ri->ra", weights, x)
    rounding = parties << (40 - federation.key_fraction_bits)
    for eligible in (None, [0, arms - 1]):
        allowed = scores if eligible is None else scores[:, eligible]
        _, chosen = lockstep.decide(contexts, eligible)
        assert eligible is None or set(chosen) <= set(eligible)
        assert (allowed.max(axis=-1) - scores[np.arange(replicates), chosen] < rounding).all()


def test_the_inverse_loses_no_more_than_it_should_to_rounding() -> None:
    """u is rounded twice, independently, or v u' would lose the variance of a rounding in every step.

    With M = I / 2 and a context of one unit e in each entry, u = e / 2 is rounded to 0 or e with equal probability, and
    u / 2 to e with probability 1/4. The entries of v u' / 2 are then e^2 with probability 1/8, and on the diagonal 1/4
    if u were rounded once; M loses twice that, off the diagonal as the sum of two that are independent.
    """
    replicates = 20_000
    federation = Federation(arms=2, features=(1, 1), epsilon=0.0, ridge=2.0)
    lockstep = Lockstep(federation, fixed_key("learner", "rounding"), replicates=replicates, deal_ahead=1)
    number, arms = lockstep.decide([np.full((replicates, 1), 2.0**-20)] * 2)
    before = lockstep.reveal_model()[0]
    lockstep.learn(number, np.zeros(replicates))
    lost = (before - lockstep.reveal_model()[0]) * 2.0**40
    chosen = np.arange(replicates), arms
    assert not lost[chosen[0], 1 - arms].any()
    # 1/4 within 4.5 standard deviations of a mean: 7e-6 for each of three entries.
    # g = 1 / (1 + e^2 / 2) is 1 - e with a probability of e: nothing at this size.
    variances = np.array([4, 2, 4]) * (1 / 8) * (7 / 8)
    assert np.all(np.abs((lost[chosen]).mean(axis=0) - 0.25) < 4.5 * np.sqrt(variances / replicates))


@pytest.mark.parametrize("online", [False, True])
def test_a_run_goes_on_from_its_snapshot(online: bool) -> None:
    federation, key = federation_of(2), fixed_key("learner", "snapshot")
    world = World(federation, 6)
    whole, resumed = (Lockstep(federation, key, deal_ahead=4, online=online) for _ in range(2))
    for step in range(6):
        if step == 3:
            resumed.restore(whole.snapshot())
        for lockstep in (whole, resumed) if step >= 3 else (whole,):
            number, arms = lockstep.decide([values[None] for values in world.split(step)])
            lockstep.learn(number, [world.pays[step, int(arms[0])]])
    for found, expected in zip(resumed.reveal_model(), whole.reveal_model(), strict=True):
        assert np.array_equal(found, expected)


def test_a_step_goes_on_only_with_the_reward_of_its_own_decision() -> None:
    """A run of `step` is of use while the model is that of its start. Else its decision is learned as others are."""
    federation = federation_of(2)
    world, twin, bound = World(federation, 8), PlainBandit(ARMS, federation.dimension), ErrorBound(federation)
    lockstep = Lockstep(federation, fixed_key("learner", "steps"), online=True)
    made: list[int] = []

    def decide() -> int:
        number, arms = lockstep.decide([values[None] for values in world.split(len(made))])
        made.append(int(arms[0]))
        return number

    def learn(number: int) -> tuple[int, int]:
        before = lockstep.meter.rounds.get("learn", 0), lockstep.meter.rounds["step"]
        lockstep.learn(number, [world.pays[number, made[number]]])
        for learner in (bound.learn, lambda _, *lesson: twin.learn(*lesson)):
            learner(twin, world.clipped(number), made[number], world.pays[number, made[number]])
        return lockstep.meter.rounds.get("learn", 0) - before[0], lockstep.meter.rounds["step"] - before[1]

    by_step, by_learn = (0, 3), (5, 0)  # the last round before the reward is under way
    assert learn(decide()) == by_step
    first, second = decide(), decide()
    assert learn(first) == by_learn  # the second has taken its place
    assert learn(second) == by_learn  # and is of the model before
    third = decide()
    batch, arms = lockstep.decide_batch([values[None, None] for values in world.split(3)])
    lockstep.learn_batch(batch, [[0.0]])
    for learner in (bound.learn, lambda _, *lesson: twin.learn(*lesson)):
        learner(twin, world.clipped(3), int(arms[0, 0]), 0.0)
    assert learn(third) == by_learn
    assert learn(decide()) == by_step
    assert_close(lockstep, twin, bound)


def test_a_run_of_decisions_goes_on_with_steps_at_the_same_positions() -> None:
    federation, key = federation_of(2), fixed_key("learner", "positions")
    world = World(federation, 6)
    before, after = Lockstep(federation, key), Lockstep(federation, fixed_key("another"), online=True)
    for step in range(3):
        number, arms = before.decide([values[None] for values in world.split(step)])
        before.learn(number, [world.pays[step, int(arms[0])]])
    after.restore(before.snapshot())
    number, _ = after.decide([values[None] for values in world.split(3)])
    assert number == 3
    assert after.meter.runs == {"step": 1}
