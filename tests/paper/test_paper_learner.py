"""The learner in the paper's suite: against the plain twin with the same coins, its rounds, its views, its failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from hiddenarm.bandit.coins import Coins, exploration_thresholds
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.paper_ridge import samples_of
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.errors import ConfigError, InputError
from hiddenarm.mpc.masking import share_of
from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Openings, Run, Sharing
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Shared
from hiddenarm.paper import fixed_point, rounds
from hiddenarm.research.data.load import load_world
from hiddenarm.ring.words import Words
from support import PARTIES, SIGNIFICANCE, evenness, fixed_key, uniformity, words_from

ARMS, FEATURES = 10, 20


def paper_federation(parties: int, **options: object) -> Federation:
    sizes = tuple(len(part) for part in np.array_split(np.arange(FEATURES), parties))
    return Federation(suite="paper", arms=ARMS, features=sizes, epsilon=0.1, **options)  # type: ignore[arg-type]


@dataclass
class Digits:
    """A run on the digits. The twin follows it: it learns what the private learner earned."""

    lockstep: Lockstep
    twin: PlainBandit
    reward: float
    agreement: float
    clear_agreement: float
    """Agreement where the twin's best arm is ahead by more than rounding could make up for."""
    differences: tuple[float, float]
    """Largest differences of inverses and weights from the twin's."""


def run_on_digits(federation: Federation, steps: int, *labels: str | int) -> Digits:
    world = load_world("digits", arms=ARMS, features=FEATURES, steps=steps)
    lockstep = Lockstep(federation, fixed_key("paper learner", *labels))
    coins, twin = lockstep.coins(0, steps), PlainBandit(ARMS, FEATURES)
    rewards, same, clear = [], [], []
    for step in range(steps):
        x = world.context(step)
        number, arms = lockstep.decide(np.split(x, np.cumsum(federation.features)[:-1]))
        rewards.append(world.reward(step, int(arms[0])))
        lockstep.learn(number, rewards[-1])
        explore, tags = coins_at(coins, step)
        same.append(twin.decide(x, explore, tags) == arms[0])
        best = np.sort(twin.weights @ x)
        clear.append(explore or best[-1] - best[-2] > 1e-3)
        twin.learn(x, int(arms[0]), rewards[-1])
    inverses, weights = lockstep.reveal_model()
    differences = float(np.abs(inverses - twin.inverses).max()), float(np.abs(weights - twin.weights).max())
    agreed = np.array(same)
    return Digits(lockstep, twin, float(np.mean(rewards)), agreed.mean(), agreed[np.array(clear)].mean(), differences)


def test_two_parties_choose_the_twins_arms() -> None:
    ran = run_on_digits(paper_federation(2), 400)
    assert ran.agreement >= 0.95
    assert ran.clear_agreement >= 0.99
    assert ran.differences[0] < 1e-3
    assert ran.differences[1] < 1e-2


@pytest.mark.parametrize("parties", [3, 5])
def test_more_parties_choose_the_twins_arms_where_scores_differ(parties: int) -> None:
    """With more than two parties zero divided is not always zero: rounding, not the permutation, breaks the ties of
    arms that have earned nothing yet."""
    ran = run_on_digits(paper_federation(parties), 250, parties)
    assert ran.clear_agreement >= 0.99
    assert ran.differences[0] < 1e-3
    assert ran.differences[1] < 1e-2


def test_three_newton_iterations_are_nearly_enough() -> None:
    ran = run_on_digits(paper_federation(2, newton_iterations=3), 250)
    assert ran.clear_agreement >= 0.9
    assert ran.differences[0] < 0.1


def without_failures(run: Run, parties: int, value: Shared, bits: int) -> SharedLater:
    """A division that computes eta, in effect: the truncation of the other suite."""
    (truncated,) = yield (truncate(run, value, bits),)
    return share_of(run, truncated)


def test_many_bits_break_the_learner_because_divisions_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 28 bits products have 56: one of magnitude 1 fails every 256 times. With a division that cannot fail, and
    nothing else changed, the same learner does as well as at 20 bits."""
    steps = 250
    usual, broken = (run_on_digits(paper_federation(2, fraction_bits=bits), steps) for bits in (20, 28))
    monkeypatch.setattr(fixed_point, "divide", without_failures)
    sound = run_on_digits(paper_federation(2, fraction_bits=28), steps)
    assert broken.reward < 0.75 * usual.reward
    assert broken.differences[0] > 100
    assert sound.reward > 0.95 * usual.reward
    assert sound.clear_agreement >= 0.99
    assert sound.differences[0] < 1e-4


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("iterations", [3, 7])
def test_rounds_are_those_declared(parties: int, iterations: int) -> None:
    federation = paper_federation(parties, newton_iterations=iterations)
    lockstep = Lockstep(federation, fixed_key("rounds"), deal_ahead=1)
    number, _ = lockstep.decide([np.zeros(size) for size in federation.features])
    lockstep.learn(number, 1.0)
    assert lockstep.meter.rounds == {"decide": rounds.decide(parties, ARMS), "learn": rounds.learn(iterations)}
    layouts = lockstep.layouts
    assert {name: layout.rounds for name, layout in layouts.items()} == lockstep.meter.rounds
    sent = {name: layout.bytes_to_each_peer(0) for name, layout in layouts.items()}
    assert sent == lockstep.meter.bytes_to_each_peer


def test_replicates_learn_apart() -> None:
    federation = Federation(suite="paper", arms=3, features=(2, 2), epsilon=0.1)
    lockstep = Lockstep(federation, fixed_key("replicates"), replicates=4, epsilons=[0, 0, 1, 1], deal_ahead=2)
    twins, coins = [PlainBandit(3, 4) for _ in range(4)], lockstep.coins(0, 30)
    rng = np.random.default_rng(4)
    for step in range(30):
        x = rng.normal(size=(4, 4))
        x /= 2 * np.linalg.norm(x, axis=1, keepdims=True)
        number, arms = lockstep.decide(np.split(x, 2, axis=1))
        rewards = rng.random(4)
        lockstep.learn(number, rewards)
        for r, twin in enumerate(twins):
            assert coins_at(coins, step, r)[0] == (r >= 2)
            assert twin.decide(x[r], *coins_at(coins, step, r)) == arms[r]
            twin.learn(x[r], int(arms[r]), rewards[r])


def test_many_contexts_are_decided_at_once_and_learned_one_by_one() -> None:
    ran = run_on_digits(paper_federation(2), 60, "batch")
    x = load_world("digits", arms=ARMS, features=FEATURES, steps=100).contexts[:7]
    name, arms = ran.lockstep.decide_batch(np.split(x[None], 2, axis=2))
    coins = ran.lockstep.coins(0, 1, batch=7)
    plain = [ran.twin.decide(x[b], bool(coins.explore[0, 0, b]), coins.tags[0, 0, b]) for b in range(7)]
    assert arms[0].tolist() == plain
    with pytest.raises(InputError, match="one reward at a time"):
        ran.lockstep.learn_batch(name, np.zeros((1, 7)))


def test_a_run_goes_on_from_its_snapshot() -> None:
    federation, key = Federation(suite="paper", arms=3, features=(2, 2), epsilon=0.5), fixed_key("snapshot")
    runs = [Lockstep(federation, key, deal_ahead=2) for _ in range(2)]
    x = np.random.default_rng(5).normal(size=(10, 4)) / 4
    for step in range(5):
        number, _ = runs[0].decide(np.split(x[step], 2))
        runs[0].learn(number, 1.0)
    runs[1].restore(runs[0].snapshot())
    for step in range(5, 10):
        (first, arm), (second, other) = (run.decide(np.split(x[step], 2)) for run in runs)
        assert (first, arm[0]) == (second, other[0])
        for run, number in zip(runs, (first, second), strict=True):
            run.learn(number, 0.5)
    assert all(np.array_equal(one, other) for one, other in zip(*(run.reveal_model() for run in runs), strict=True))


@pytest.mark.parametrize("parties", PARTIES)
def test_all_that_parties_receive_is_uniform(parties: int) -> None:
    """Every opening of both programs, on the same inputs in all replicates: each party's words, and what they add up
    to. The public start of the model, and features that are zero, would show if anything were sent as it is."""
    replicates, tests, smallest = 1500, 0, 1.0

    def watch(openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        nonlocal tests, smallest
        for opening, sent in zip(openings, by_opening, strict=True):
            seen = list(sent)
            if len({words.shape for words in sent}) == 1:
                seen.append((np.bitwise_xor if opening.sharing is Sharing.XOR else np.add).reduce(seen))
            for words in seen:
                tests, smallest = tests + 1, min(smallest, uniformity(words, opening.bits))

    federation = Federation(suite="paper", arms=2, features=(1,) * parties, epsilon=0.5, newton_iterations=1)
    key, epsilons = fixed_key("views", parties), [0.5] * replicates
    lockstep = Lockstep(federation, key, replicates=replicates, epsilons=epsilons, deal_ahead=1, observer=watch)
    number, _ = lockstep.decide([np.zeros((replicates, 1)) for _ in range(parties)])
    lockstep.learn(number, np.ones(replicates))
    assert tests > 150
    assert smallest * tests > SIGNIFICANCE


def test_samples_are_uniform_and_agree_with_the_coins() -> None:
    words = words_from((20_000, 1 + 4), "coins")
    thresholds = exploration_thresholds(0.25)
    samples, coins = samples_of(words, thresholds, 20), Coins.from_words(words, thresholds)
    assert np.array_equal(samples.explore, coins.explore)
    assert uniformity(samples.uniform, 20) > SIGNIFICANCE
    assert evenness(samples.uniform.argmax(axis=1), 4) > SIGNIFICANCE
    assert np.array_equal(samples.uniform.argmax(axis=1), coins.tags.argmax(axis=1))
    assert np.array_equal(np.sort(samples.permutation, axis=1), np.tile([1, 2, 3, 4], (20_000, 1)))


def test_the_budget_of_bits_is_the_other_suites() -> None:
    with pytest.raises(ConfigError, match="the limit is 62"):
        Federation(arms=ARMS, features=(10, 10), epsilon=0.1, fraction_bits=24)
    assert paper_federation(2, fraction_bits=24).fraction_bits == 24
    for wrong in (-1, 21, 2.5, True):
        with pytest.raises(ConfigError, match="newton_iterations"):
            paper_federation(2, newton_iterations=wrong)
    with pytest.raises(ConfigError, match="fraction_bits"):
        paper_federation(2, fraction_bits=31)
