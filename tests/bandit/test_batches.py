"""Decisions, lessons and repairs in batches, in lockstep: against the plain twin, and what parties see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.planning import batch_plan, repair_plan
from hiddenarm.errors import InputError
from hiddenarm.mpc.masking import triangle_to_square
from support import fixed_key, words_from

FEATURES = {2: (3, 3), 3: (2, 2, 2), 5: (2, 1, 1, 1, 1)}


def contexts(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.standard_normal((*shape, 6))
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def split(federation: Federation, rows: np.ndarray) -> list[np.ndarray]:
    return np.split(rows, np.cumsum(federation.features)[:-1], axis=-1)


def residual(lockstep: Lockstep, learned: list[tuple[np.ndarray, int, float]]) -> tuple[float, float]:
    """How far inverse and weights of replicate 0 are from the solution of all that was learned."""
    federation = lockstep.federation
    inverses, weights = lockstep.reveal_model()
    square = triangle_to_square(federation.dimension)
    worst_inverse = worst_weights = 0.0
    for arm in range(federation.arms):
        gram, moment = federation.ridge * np.eye(federation.dimension), np.zeros(federation.dimension)
        for context, pulled, reward in learned:
            if pulled == arm:
                gram += np.outer(context, context)
                moment += reward * context
        worst_inverse = max(worst_inverse, np.abs(inverses[0, arm][square] - np.linalg.inv(gram)).max())
        worst_weights = max(worst_weights, np.abs(weights[0, arm] - np.linalg.solve(gram, moment)).max())
    return worst_inverse, worst_weights


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("count", [2, 17, 100])
def test_batches_choose_as_the_plain_twin_and_solve_the_same_problem(parties: int, count: int) -> None:
    federation = Federation(arms=4, features=FEATURES[parties], epsilon=0.2)
    lockstep = Lockstep(federation, fixed_key("batches", parties, count))
    twin = PlainBandit(4, 6)
    rng = np.random.default_rng(count)
    learned: list[tuple[np.ndarray, int, float]] = []
    for _ in range(4):
        rows = contexts(rng, 1, count)
        name, arms = lockstep.decide_batch(split(federation, rows))
        coins = lockstep.coins(name[1], 1, batch=count)
        for place, (row, arm) in enumerate(zip(rows[0], arms[0], strict=True)):
            explore, tags = bool(coins.explore[0, 0, place]), coins.tags[0, 0, place]
            assert twin.agrees(int(arm), row, explore, tags, federation.score_rounding)
        rewards = rng.random((1, count))
        lockstep.learn_batch(name, rewards)
        for row, arm, reward in zip(rows[0], arms[0], rewards[0], strict=True):
            twin.learn(row, int(arm), float(reward))
            learned.append((row, int(arm), float(reward)))
        # Features and W enter at 2^-20: each of n interactions of norm 1 moves W by at most sqrt(6) 2^-20 in norm, and
        # the solution of W >= I by no more than that times its own size (below 2); M, w carry a few roundings on top.
        inverse, weights = residual(lockstep, learned)
        assert max(inverse, weights) < (2 * len(learned) * np.sqrt(6) + 64) * 2.0**-20


def test_replicates_are_independent_and_have_their_own_epsilon() -> None:
    federation = Federation(arms=3, features=(3, 3), epsilon=0.5)
    lockstep = Lockstep(federation, fixed_key("batches", "replicates"), replicates=2, epsilons=[0.0, 1.0])
    rng = np.random.default_rng(5)
    rows = contexts(rng, 2, 40) / 10
    rows[..., 0] = 0.9  # what a constant can be learned from
    for _ in range(6):
        name, arms = lockstep.decide_batch(split(federation, rows))
        lockstep.learn_batch(name, (arms == 1).astype(float))
    assert (arms[0] == 1).mean() > 0.9  # never explores: it has found the arm that always pays
    assert (arms[1] == 1).mean() < 0.7  # always explores


def test_single_lessons_are_taken_up_before_a_batch_and_by_a_repair() -> None:
    federation = Federation(arms=2, features=(3, 3), epsilon=0.3, repair_every=50)
    lockstep = Lockstep(federation, fixed_key("batches", "mixed"))
    rng = np.random.default_rng(6)
    learned: list[tuple[np.ndarray, int, float]] = []

    def singly(times: int) -> None:
        for row in contexts(rng, times):
            number, arms = lockstep.decide(split(federation, row[None]))
            reward = float(rng.random())
            lockstep.learn(number, [reward])
            learned.append((row, int(arms[0]), reward))

    singly(60)  # one repair after 50, ten wait
    assert len(lockstep._singly) == 10
    assert lockstep.meter.runs["invert last"] == 1
    rows = contexts(rng, 1, 20)
    name, arms = lockstep.decide_batch(split(federation, rows))
    lockstep.learn_batch(name, np.ones((1, 20)))
    learned += [(row, int(arm), 1.0) for row, arm in zip(rows[0], arms[0], strict=True)]
    assert not lockstep._singly
    singly(5)
    lockstep.repair()
    assert max(residual(lockstep, learned)) < (2 * len(learned) * np.sqrt(6) + 64) * 2.0**-20


def test_a_repair_depends_on_the_sums_alone() -> None:
    federation = Federation(arms=2, features=(3, 3), epsilon=0.3)
    lockstep = Lockstep(federation, fixed_key("batches", "drift"))
    rng = np.random.default_rng(7)
    learned: list[tuple[np.ndarray, int, float]] = []
    for row in contexts(rng, 60):
        number, arms = lockstep.decide(split(federation, row[None]))
        lockstep.learn(number, [1.0])
        learned.append((row, int(arms[0]), 1.0))
    for name in ("inverses", "weights"):
        share = lockstep.states[0][name]
        share += words_from(share.shape, "spoilt")  # nothing is left of them
    lockstep.repair()
    assert max(residual(lockstep, learned)) < (2 * len(learned) * np.sqrt(6) + 64) * 2.0**-20


def stepped(eigenvalues: np.ndarray, boosts: Sequence[float]) -> np.ndarray:
    """Where Newton-Schulz steps take eigenvalues of W M, which never leave (0, 2)."""
    for boost in boosts:
        assert eigenvalues.min() > 0
        assert eigenvalues.max() < 2
        eigenvalues = boost * eigenvalues * (2 - eigenvalues)
    return eigenvalues


@pytest.mark.parametrize("count", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("ridge", [1.0, 4.0])
def test_the_public_plan_converges_for_every_spectrum(count: int, ridge: float) -> None:
    """Whatever the eigenvalues of W M in [1, 1 + B R^2 / ridge], they end within 2^-L of 1 and never reach 2."""
    federation = Federation(arms=2, features=(10, 10), epsilon=0.1, ridge=ridge)
    plan = batch_plan(federation.numbers, count)
    eigenvalues = np.linspace(1, 1 + count * federation.largest_quadratic_form, 100_001)
    eigenvalues = stepped(plan.start_units / 2**plan.start_bits * eigenvalues, plan.boosts)
    assert np.abs(eigenvalues - 1).max() <= 2.0**-federation.fraction_bits


@pytest.mark.parametrize("gathered", [1, 25, 10_000, 500_000])
@pytest.mark.parametrize("ridge", [1.0, 40.0])
def test_a_repair_converges_for_every_spectrum(gathered: int, ridge: float) -> None:
    """From a public multiple of the identity, whatever the eigenvalues of W in [ridge, ridge + n R^2]."""
    federation = Federation(arms=2, features=(10, 10), epsilon=0.1, ridge=ridge)
    plan = repair_plan(federation.numbers, gathered)
    eigenvalues = plan.start * np.geomspace(ridge, ridge + gathered * federation.joint_norm**2, 100_001)
    eigenvalues = stepped(eigenvalues, [30 / 16] * 2 * plan.boosted_runs + [1.0] * 2 * (plan.plain_runs + 1))
    assert np.abs(eigenvalues - 1).max() <= 2.0**-federation.fraction_bits


def test_what_is_sent_is_uniform_whatever_the_batch() -> None:
    """Bits of all that party 0 sends to party 1 in `decide`, `gather` and `solve` are balanced, for all-equal and
    for extreme inputs alike. 5 standard deviations: a false alarm has probability below 1e-6 a case."""
    for rows, rewards in ((np.zeros((1, 20, 6)), 0.0), (np.tile([1.0, 0, 0, 1.0, 0, 0], (1, 20, 1)), 1.0)):
        sent: list[np.ndarray] = []

        def observe(openings, by_opening, kept=sent) -> None:  # type: ignore[no-untyped-def]
            kept += [w[0].ravel() for o, w in zip(openings, by_opening, strict=True) if o.bits == 64]

        federation = Federation(arms=3, features=(3, 3), epsilon=0.1)
        lockstep = Lockstep(federation, fixed_key("batches", "views", int(rewards)), observer=observe)
        for _ in range(3):
            name, _arms = lockstep.decide_batch(split(federation, rows))
            lockstep.learn_batch(name, np.full((1, 20), rewards))
        bits = np.unpackbits(np.concatenate(sent).view(np.uint8).reshape(-1, 8), axis=1)
        ones, total = bits.sum(axis=0, dtype=np.int64), len(bits)
        assert total > 5000
        assert np.abs(ones - total / 2).max() < 5 * np.sqrt(total) / 2


def test_batches_cost_the_rounds_of_one_decision_and_a_few_for_learning() -> None:
    federation = Federation(arms=10, features=(10, 10), epsilon=0.1)
    lockstep = Lockstep(federation, fixed_key("batches", "cost"))
    rows = np.zeros((1, 100, 20))
    name, _ = lockstep.decide_batch(np.split(rows, [10], axis=-1))
    lockstep.learn_batch(name, np.zeros((1, 100)))
    steps = len(batch_plan(federation.numbers, 100).boosts)
    assert lockstep.meter.rounds == {"decide 100": 4, "gather 100": 2, "solve 100": 3 + 4 * steps}


@pytest.mark.parametrize(("count", "ridge"), [(100, 1.0), (256, 1.0), (256, 0.5)])
def test_lopsided_batches_stay_in_range(count: int, ridge: float) -> None:
    """Entries of W M exceed 4 when one direction is known well and a batch has a small part along the other: with W at
    L bits a third of such runs with 256 would come out wrong by up to 0.1."""
    replicates = 100
    federation = Federation(arms=2, features=(1, 1), epsilon=0.0, ridge=ridge)
    lockstep = Lockstep(federation, fixed_key("batches", "lopsided", count), replicates=replicates, deal_ahead=1)
    grams = np.tile(ridge * np.eye(2), (replicates, 2, 1, 1))
    for context in [(1.0, 0.0)] * 4 + [(1.0, 0.1)]:
        rows = np.tile(context, (replicates, count, 1))
        name, arms = lockstep.decide_batch([rows[..., :1], rows[..., 1:]])
        lockstep.learn_batch(name, np.ones((replicates, count)))
        pulled = np.stack([(arms == arm).sum(axis=1) for arm in range(2)], axis=1)
        grams += pulled[..., None, None] * np.outer(context, context)
    inverses, _ = lockstep.reveal_model()
    expected = np.linalg.inv(grams)[..., [0, 0, 1], [0, 1, 1]]
    # W is rounded to 2^-gram_bits, M W M^-1 moves M by at most that times |M|^2 <= ridge^-2, twice for both axes;
    # contexts are rounded to 2^-20 each, as often as there are interactions, along a direction that is known that well.
    plan = batch_plan(federation.numbers, count)
    assert np.abs(inverses - expected).max() < (2.0 ** (1 - plan.gram_bits) + 8 * 2.0**-20) / ridge**2


def test_a_model_that_is_full_refuses_rewards_and_goes_on_deciding() -> None:
    federation = Federation(arms=2, features=(1, 1), epsilon=0.0, max_interactions=30)
    lockstep = Lockstep(federation, fixed_key("batches", "full"))
    twin = PlainBandit(2, 2)
    rng = np.random.default_rng(8)
    for _ in range(29):
        row = np.array([1.0, rng.random()])
        number, arms = lockstep.decide([row[None, :1], row[None, 1:]])
        lockstep.learn(number, [0.5])
        twin.learn(row, int(arms[0]), 0.5)
    name, _ = lockstep.decide_batch([np.ones((1, 2, 1)), np.ones((1, 2, 1))])
    with pytest.raises(InputError, match="max_interactions"):
        lockstep.learn_batch(name, np.zeros((1, 2)))  # one would fit, two do not
    number, arms = lockstep.decide([[[1.0]], [[1.0]]])
    lockstep.learn(number, [0.5])
    twin.learn(np.array([1.0, 1.0]), int(arms[0]), 0.5)
    number, _ = lockstep.decide([[[1.0]], [[1.0]]])
    with pytest.raises(InputError, match="it learns no more"):
        lockstep.learn(number, [0.5])
    assert lockstep.pending == {number}
    _, weights = lockstep.reveal_model()
    assert np.abs(weights[0] - twin.weights).max() < 2.0**-14


def test_a_batch_beyond_max_batch_is_refused() -> None:
    federation = Federation(arms=2, features=(1, 1), epsilon=0.0, max_batch=4)
    lockstep = Lockstep(federation, fixed_key("batches", "too many"))
    name, _ = lockstep.decide_batch([np.ones((1, 5, 1)), np.ones((1, 5, 1))])
    with pytest.raises(InputError, match="max_batch 4"):
        lockstep.learn_batch(name, np.zeros((1, 5)))


@pytest.mark.parametrize(("parties", "ridge", "count"), [(5, 1.0, 131), (2, 0.6, 220), (3, 1.0, 203)])
def test_a_batch_of_one_context_that_is_new_to_an_arm(parties: int, ridge: float, count: int) -> None:
    """The largest eigenvalue of c W M comes as close to 2 as it can: a start c that were rounded up would diverge."""
    federation = Federation(arms=2, features=(1,) * parties, epsilon=0.0, ridge=ridge)
    lockstep = Lockstep(federation, fixed_key("batches", "edge", parties, count))
    learned: list[tuple[np.ndarray, int, float]] = []
    for rows, reward in ((np.full((1, 2, parties), 0.01), 1.0), (np.ones((1, count, parties)), 1.0)):
        name, arms = lockstep.decide_batch(np.split(rows, parties, axis=-1))
        lockstep.learn_batch(name, np.full((1, rows.shape[1]), reward))
        learned += [(row, int(arm), reward) for row, arm in zip(rows[0], arms[0], strict=True)]
    # Not an error bound but the line between converged and diverged: a start rounded up leaves w off by 0.3 and more.
    inverse, weights = residual(lockstep, learned)
    assert inverse < 2.0**-12
    assert weights < 2.0**-10


def test_a_federation_with_a_ridge_beyond_all_batches() -> None:
    federation = Federation(arms=2, features=(1, 1), epsilon=0.0, ridge=1e5, max_interactions=1000)
    assert len(batch_plan(federation.numbers, 2).boosts) >= 1
