"""Off-policy values: exact sums, without bias, of the deviation that formulas say; and what is opened."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.off_policy import GREEDY, UNIFORM, OffPolicy
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.run import Openings, Sharing
from hiddenarm.privacy.gaussian import mu_for
from hiddenarm.privacy.mechanisms import ActionBudget
from hiddenarm.ring.words import Floats, Words
from support import SIGNIFICANCE, fixed_key, uniformity

ARMS, FEATURES, EPSILON = 4, (3, 2), 0.3
PI = np.random.default_rng(5).standard_normal((ARMS, 5)) / 4


class Trial:
    """A run of many replicates beside its evaluation, with what is true of it."""

    def __init__(
        self, replicates: int, steps: int, federation: Federation | None = None, mu: float | None = None
    ) -> None:
        federation = federation or Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON)
        lockstep = Lockstep(federation, fixed_key("off policy", steps), replicates=replicates, deal_ahead=16)
        self.off = OffPolicy(lockstep, window=50, mu=mu, models={"pi": PI})
        self.lockstep, self.steps = lockstep, steps
        twins = federation.policy.twins(federation, replicates)
        best, rng = np.random.default_rng(9).standard_normal((ARMS, 5)), np.random.default_rng(1)
        self.explored, self.rewards, self.matched = (np.zeros((steps, replicates)) for _ in range(3))
        self.true: dict[str, Floats] = {name: np.zeros((steps, replicates)) for name in (GREEDY, UNIFORM, "pi")}
        each = np.arange(replicates)
        for step in range(steps):
            x = rng.standard_normal((replicates, 5))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            earns = (x @ best.T > 0.3).astype(float)  # what every arm would earn
            number, arms = lockstep.decide(np.split(x, [3], axis=1))
            coins = lockstep.coins(number, 1)
            explore = coins.explore[0]
            greedy = np.where(explore, twins.decide(x, np.zeros(replicates, np.bool_), coins.tags[0]), arms)
            rewards, pi = earns[each, arms], (x @ PI.T).argmax(axis=1)
            self.explored[step], self.rewards[step], self.matched[step] = explore, rewards, arms == pi
            self.true[GREEDY][step], self.true[UNIFORM][step] = earns[each, greedy], earns.mean(axis=1)
            self.true["pi"][step] = earns[each, pi]
            self.off.add(number, rewards)
            lockstep.learn(number, rewards)
            twins.learn(x, arms, rewards)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(replicates=300, steps=300)


def test_values_are_those_of_the_same_sums_in_the_clear(trial: Trial) -> None:
    y, r, m, steps = trial.explored, trial.rewards, trial.matched, trial.steps
    greedy, uniform, pi = (trial.off.value(name) for name in (GREEDY, UNIFORM, "pi"))
    assert np.allclose(greedy.unbiased, ((1 - y) * r).sum(0) / ((1 - EPSILON) * steps), atol=1e-4)
    assert np.allclose(greedy.ratio, ((1 - y) * r).sum(0) / (1 - y).sum(0), atol=1e-4)
    assert np.allclose(uniform.unbiased, (y * r).sum(0) / (EPSILON * steps), atol=1e-4)
    expected = ARMS * (y * m * r).sum(0) / (EPSILON * steps)
    assert np.mean(np.abs(pi.unbiased - expected) < 1e-4) > 0.97  # but where two scores of pi tie within the rounding
    assert np.abs(pi.unbiased - expected).max() < 3 * ARMS / (EPSILON * steps)


def test_values_have_no_bias(trial: Trial) -> None:
    for name in (GREEDY, UNIFORM, "pi"):
        off = trial.off.value(name).unbiased - trial.true[name].mean(axis=0)
        assert abs(off.mean()) <= 4 * off.std() / sqrt(len(off)), name


def test_deviations_are_those_of_the_formulas(trial: Trial) -> None:
    """Given what every arm would earn: the coins alone vary."""
    value = {name: float(true.mean()) for name, true in trial.true.items()}
    square = float((trial.true[UNIFORM] ** 2).mean())
    expected = {
        GREEDY: sqrt(value[GREEDY] * EPSILON / (1 - EPSILON) / trial.steps),
        UNIFORM: sqrt((value[UNIFORM] / EPSILON - square) / trial.steps),
        "pi": sqrt((ARMS / EPSILON - 1) * value["pi"] / trial.steps),
    }
    for name, deviation in expected.items():
        off = trial.off.value(name).unbiased - trial.true[name].mean(axis=0)
        assert off.std() == pytest.approx(deviation, rel=0.25), name
    ratio = trial.off.value("pi").ratio - trial.true["pi"].mean(axis=0)
    expected_ratio = sqrt(value["pi"] * (1 - value["pi"]) * ARMS / (EPSILON * trial.steps))
    assert np.nanstd(ratio) == pytest.approx(expected_ratio, rel=0.25)


def test_noise_is_that_of_mu_and_is_counted() -> None:
    mu = mu_for(1.0, 1e-6)
    noisy, plain = Trial(replicates=400, steps=50, mu=mu), Trial(replicates=400, steps=50)
    assert noisy.lockstep.ledger.opened == pytest.approx(2 * mu**2)
    assert plain.lockstep.ledger.opened == 0
    for name, weight in ((GREEDY, 1 / (1 - EPSILON)), (UNIFORM, 1 / EPSILON), ("pi", ARMS / EPSILON)):
        off = (noisy.off.value(name).unbiased - plain.off.value(name).unbiased) * 50 / weight
        assert off.std() == pytest.approx(sqrt(2) / mu, rel=0.2), name
        assert abs(off.mean()) < 4 * off.std() / 20


def test_a_policy_with_a_bonus_is_evaluated_too() -> None:
    federation = Federation(arms=ARMS, features=FEATURES, policy=Bonus(0.3, EPSILON))
    trial = Trial(replicates=20, steps=50, federation=federation)
    expected = ((1 - trial.explored) * trial.rewards).sum(0) / ((1 - EPSILON) * 50)
    assert np.allclose(trial.off.value(GREEDY).unbiased, expected, atol=1e-4)


def test_all_that_is_opened_is_uniform() -> None:
    """Whatever contexts, arms, rewards and coins are: here the same in all replicates, but for what is masked."""
    federation = Federation(arms=3, features=(1, 1), epsilon=EPSILON)
    seen: list[Words] = []

    def observe(openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for opening, sent in zip(openings, by_opening, strict=True):
            if opening.owners is None and opening.sharing is Sharing.ADD and opening.bits == 64:
                seen.append(np.add.reduce(sent))

    lockstep = Lockstep(federation, fixed_key("uniform"), replicates=1500, observer=observe)
    off = OffPolicy(lockstep, window=2, models={"pi": np.array([[0.1, 0.2], [0.3, -0.1], [0.0, 0.4]])})
    for _ in range(2):
        number, _ = lockstep.decide([np.full((1500, 1), 0.5)] * 2)
        seen.clear()
        off.add(number, np.ones(1500))
    assert len(seen) >= 7  # rewards; weights, scores, arms, arms of pi, rewards, matches
    for words in seen:
        assert uniformity(words.reshape(1500, -1)[:, 0]) > SIGNIFICANCE


def test_rounds_of_a_window() -> None:
    trial = Trial(replicates=1, steps=50)
    rounds = trial.lockstep.meter.rounds
    assert rounds["value "] == 1
    assert rounds["value modelpi"] == 1 + 9 - 1 + 2  # contexts and weights; a decision by shuffle; arms, and matches


def test_what_cannot_be_evaluated_is_refused() -> None:
    def lockstep(**options: object) -> Lockstep:
        return Lockstep(Federation(arms=ARMS, features=FEATURES, **options), fixed_key("refused"))  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="need an epsilon above 0"):
        OffPolicy(lockstep(epsilon=0.0))
    with pytest.raises(ConfigError, match="need an epsilon above 0"):
        OffPolicy(lockstep(policy=EpsilonSchedule()))
    with pytest.raises(ConfigError, match="a budget that explores"):
        OffPolicy(lockstep(epsilon=0.5, privacy=ActionBudget(100.0, when_spent="explore")))
    with pytest.raises(ConfigError, match="suite fast"):
        OffPolicy(lockstep(epsilon=0.1, suite="paper"))
    with pytest.raises(ConfigError, match="a window has 1 to 256"):
        OffPolicy(lockstep(epsilon=0.1), window=300)
    with pytest.raises(ConfigError, match="weights of shape"):
        OffPolicy(lockstep(epsilon=0.1), models={"pi": PI[:2]})
    with pytest.raises(ConfigError, match="scale its weights down"):
        OffPolicy(lockstep(epsilon=0.1), models={"pi": PI * 1e6})
    with pytest.raises(ConfigError, match="no window of 100 decisions is complete"):
        OffPolicy(lockstep(epsilon=0.1)).value(GREEDY)
    with pytest.raises(ConfigError, match="there is no 'best'"):
        OffPolicy(lockstep(epsilon=0.1)).value("best")
