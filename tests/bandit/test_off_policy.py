"""Off-policy values: exact sums, without bias, of the deviation that formulas say; and what is opened."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest

from hiddenarm.bandit.evaluation import GREEDY, UNIFORM
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.off_policy import ESTIMATORS, IMPORTANCE, LOW_VARIANCE, OffPolicy
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError, InputError
from hiddenarm.mpc.run import Openings, Sharing
from hiddenarm.privacy.gaussian import epsilon_for, mu_for
from hiddenarm.privacy.ledger import statement
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums, Unbounded
from hiddenarm.ring.words import Floats, Words
from support import SIGNIFICANCE, fixed_key, uniformity

ARMS, FEATURES, EPSILON = 4, (3, 2), 0.3
BEST = np.random.default_rng(9).standard_normal((ARMS, 5))
"""An arm earns where its score by these is above 0.3."""
PI = np.random.default_rng(5).standard_normal((ARMS, 5)) / 4


class Trial:
    """A run of many replicates beside its evaluation, with what is true of it."""

    def __init__(
        self,
        replicates: int,
        steps: int,
        federation: Federation | None = None,
        mu: float | None = None,
        estimators: tuple[str, ...] = (IMPORTANCE,),
        model: Floats = PI,
    ) -> None:
        federation = federation or Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON)
        lockstep = Lockstep(federation, fixed_key("off policy", steps), replicates=replicates, deal_ahead=16)
        self.off = OffPolicy(lockstep, window=50, mu=mu, models={"pi": model}, estimators=estimators)
        self.lockstep, self.steps = lockstep, steps
        twins = federation.policy.twins(federation, replicates)
        rng = np.random.default_rng(1)
        self.explored, self.rewards, self.matched = (np.zeros((steps, replicates)) for _ in range(3))
        self.agreed, self.tied = (np.zeros((steps, replicates)) for _ in range(2))
        self.true: dict[str, Floats] = {name: np.zeros((steps, replicates)) for name in (GREEDY, UNIFORM, "pi")}
        each = np.arange(replicates)
        for step in range(steps):
            x = rng.standard_normal((replicates, 5))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            earns = (x @ BEST.T > 0.3).astype(float)  # what every arm would earn
            number, arms = lockstep.decide(np.split(x, [3], axis=1))
            coins = lockstep.coins(number, 1).of(0)
            explore = coins.explore
            own = twins.decide(x, np.zeros(replicates, np.bool_), coins.tags, coins.normals)
            greedy = np.where(explore, own, arms)
            rewards, pi = earns[each, arms], (x @ model.T).argmax(axis=1)
            self.explored[step], self.rewards[step], self.matched[step] = explore, rewards, arms == pi
            best_two = np.sort(twins.scores(x, coins.normals), axis=1)[:, -2:]
            self.agreed[step], self.tied[step] = greedy == pi, best_two[:, 1] - best_two[:, 0] < 1e-3
            self.true[GREEDY][step], self.true[UNIFORM][step] = earns[each, greedy], earns.mean(axis=1)
            self.true["pi"][step] = earns[each, pi]
            self.off.add(number, rewards)
            lockstep.learn(number, rewards)
            twins.learn(x, arms, rewards)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(replicates=300, steps=300, estimators=ESTIMATORS)


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


def test_low_variance_is_that_of_the_same_sums_in_the_clear(trial: Trial) -> None:
    """In all replicates but those with an explored match whose own arm is one of several that tie, as arms do before
    they have earned: the tie is broken anew."""
    y, r, m, differs = trial.explored, trial.rewards, trial.matched, 1 - trial.agreed
    clear = (y * m * trial.tied).sum(0) == 0
    assert clear.mean() > 0.4
    weights = (1 - y) * m / (1 - EPSILON) + y * m * differs * ARMS / EPSILON
    found = trial.off.value("pi", LOW_VARIANCE)
    off = np.abs(found.unbiased - (weights * r).mean(0)), np.abs(found.ratio - (weights * r).sum(0) / weights.sum(0))
    for each in off:
        assert np.mean(each[clear] < 1e-4) > 0.97  # but where two scores of pi tie within the rounding
        assert each.max() < 10 * ARMS / (EPSILON * trial.steps)


def test_low_variance_has_no_bias_and_the_deviation_of_its_formula(trial: Trial) -> None:
    """Given what every arm would earn, and where the policy's own arm is pi's. The run is seeded, so this holds or not;
    under another seed the first would fail with a chance of 6e-5, the second of 1e-8."""
    true = trial.true["pi"]
    off = trial.off.value("pi", LOW_VARIANCE).unbiased - true.mean(axis=0)
    assert abs(off.mean()) <= 4 * off.std() / sqrt(len(off))
    kept, explored = float((true * trial.agreed).mean()), float((true * (1 - trial.agreed)).mean())
    deviation = sqrt((kept * EPSILON / (1 - EPSILON) + explored * (ARMS / EPSILON - 1)) / trial.steps)
    assert off.std() == pytest.approx(deviation, rel=0.25)
    by_importance = trial.off.value("pi").unbiased - true.mean(axis=0)
    assert off.std() < 0.9 * by_importance.std()


def test_low_variance_pays_where_arms_agree() -> None:
    """The nearer pi is to the policy, the more decisions tell of it. Both are near the best here. Seeded."""
    trial = Trial(replicates=200, steps=200, estimators=ESTIMATORS, model=BEST / 8)
    deviations = [
        (trial.off.value("pi", estimator).unbiased - trial.true["pi"].mean(axis=0)).std() for estimator in ESTIMATORS
    ]
    assert trial.agreed[100:].mean() > 0.6
    assert deviations[1] < 0.7 * deviations[0]


def test_noise_is_that_of_mu_and_is_counted() -> None:
    """Each estimator is an opening. That of low variance adds up two sums, each with noise."""
    mu = mu_for(1.0, 1e-6)
    noisy = Trial(replicates=400, steps=50, mu=mu, estimators=ESTIMATORS)
    plain = Trial(replicates=400, steps=50, estimators=ESTIMATORS)
    assert noisy.lockstep.ledger.opened == pytest.approx(3 * mu**2)
    assert plain.lockstep.ledger.opened == 0
    for name, estimator, weight in (
        (GREEDY, IMPORTANCE, 1 / (1 - EPSILON)),
        (UNIFORM, IMPORTANCE, 1 / EPSILON),
        ("pi", IMPORTANCE, ARMS / EPSILON),
        ("pi", LOW_VARIANCE, sqrt((ARMS / EPSILON) ** 2 + 1 / (1 - EPSILON) ** 2)),
    ):
        off = (noisy.off.value(name, estimator).unbiased - plain.off.value(name, estimator).unbiased) * 50 / weight
        assert off.std() == pytest.approx(sqrt(2) / mu, rel=0.2), name
        assert abs(off.mean()) < 4 * off.std() / 20


def test_a_policy_with_a_bonus_is_evaluated_too() -> None:
    federation = Federation(arms=ARMS, features=FEATURES, policy=Bonus(0.3, EPSILON))
    trial = Trial(replicates=20, steps=50, federation=federation)
    expected = ((1 - trial.explored) * trial.rewards).sum(0) / ((1 - EPSILON) * 50)
    assert np.allclose(trial.off.value(GREEDY).unbiased, expected, atol=1e-4)


@pytest.mark.parametrize("policy", [Bonus(0.3, EPSILON), LinUcb(0.3, EPSILON), Thompson(0.3, EPSILON)], ids=str)
def test_own_arms_are_those_of_the_policy(policy: Policy) -> None:
    """With low variance, of a policy that scores by inverses and normal numbers: without bias, by four standard errors
    of a seeded run."""
    federation = Federation(arms=ARMS, features=FEATURES, policy=policy)
    trial = Trial(replicates=150, steps=50, federation=federation, estimators=(LOW_VARIANCE,), model=BEST / 8)
    off = trial.off.value("pi", LOW_VARIANCE).unbiased - trial.true["pi"].mean(axis=0)
    assert abs(off.mean()) <= 4 * off.std() / sqrt(len(off))
    with pytest.raises(ConfigError, match="evaluated by low-variance here"):
        trial.off.value("pi")


def test_values_beside_noisy_sums_are_bounded_and_counted_once_for_a_row() -> None:
    """The sums of every window are those of the decisions as they were, by models of noisy sums; and the ledger states
    a bound, where that of exploration alone has none."""
    privacy, mu = NoisySums(4.0, first_refresh=40), mu_for(1.0, 1e-6)
    federation = Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON, privacy=privacy)
    lockstep = Lockstep(federation, fixed_key("off policy beside noisy sums"), replicates=8)
    off, earned, rng = OffPolicy(lockstep, window=25, mu=mu), np.zeros((2, 8)), np.random.default_rng(2)
    for _ in range(100):
        x = rng.standard_normal((8, 5)) / 4
        number, arms = lockstep.decide(np.split(x, [3], axis=1))
        explore = lockstep.coins(number, 1).of(0).explore
        rewards = (arms == 1).astype(float)
        earned += np.stack([explore * rewards, ~explore * rewards])
        off.add(number, rewards)
        lockstep.learn(number, rewards)
    assert (lockstep.ledger.refreshes, lockstep.ledger.openings) == (privacy.refreshes_by(100), 4)
    greedy, uniform = (off.value(name).unbiased for name in (GREEDY, UNIFORM))
    noise = 6 * sqrt(4) * sqrt(2) / mu  # six deviations of the noise of four windows
    assert np.abs(100 * EPSILON * uniform - earned[0]).max() < noise
    assert np.abs(100 * (1 - EPSILON) * greedy - earned[1]).max() < noise
    told = statement(lockstep.ledger, ARMS, privacy)
    assert told.headline.epsilon == pytest.approx(epsilon_for(sqrt(privacy.mu**2 + mu**2), 1e-6))
    assert not told.headline.vacuous
    assert statement(lockstep.ledger, ARMS, Unbounded()).headline.vacuous


def test_all_that_is_opened_is_uniform() -> None:
    """Whatever contexts, arms, rewards and coins are: here the same in all replicates, but for what is masked."""
    federation = Federation(arms=3, features=(1, 1), epsilon=EPSILON)
    seen: list[Words] = []

    def observe(openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for opening, sent in zip(openings, by_opening, strict=True):
            if opening.owners is None and opening.sharing is Sharing.ADD and opening.bits == 64:
                seen.append(np.add.reduce(sent))

    lockstep = Lockstep(federation, fixed_key("uniform"), replicates=1500, observer=observe)
    model = np.array([[0.1, 0.2], [0.3, -0.1], [0.0, 0.4]])
    off = OffPolicy(lockstep, window=2, models={"pi": model}, estimators=ESTIMATORS)
    for _ in range(2):
        number, _ = lockstep.decide([np.full((1500, 1), 0.5)] * 2)
        seen.clear()
        off.add(number, np.ones(1500))
    # own arm: weights, scores; rewards; weights, scores, arms, arms of pi, rewards, own arms, matches of two and three
    assert len(seen) >= 11
    for words in seen:
        assert uniformity(words.reshape(1500, -1)[:, 0]) > SIGNIFICANCE


def test_decisions_that_cannot_be_weighed_are_refused() -> None:
    federation = Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON)
    lockstep = Lockstep(federation, fixed_key("weighed"))
    off = OffPolicy(lockstep, window=3, models={"pi": PI}, estimators=ESTIMATORS)
    context = [np.full((1, 3), 0.1), np.full((1, 2), 0.1)]
    limited, _ = lockstep.decide(context, eligible=[0, 1])
    with pytest.raises(InputError, match="single decisions among all arms"):
        off.add(limited, [1.0])
    early, _ = lockstep.decide(context)
    lockstep.learn(limited, [1.0])
    with pytest.raises(InputError, match="was made before the last lesson"):
        off.add(early, [1.0])
    number, _ = lockstep.decide(context)
    off.add(number, [1.0])
    with pytest.raises(InputError, match="each once"):
        off.add(number, [1.0])


@pytest.mark.parametrize("rewards", [[1.5], [-0.1], [float("nan")], [1.0, 1.0], 1.0], ids=str)
def test_rewards_that_noise_is_not_for_are_refused_before_anything_is_taken_up(rewards: Sequence[float]) -> None:
    lockstep = Lockstep(Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON), fixed_key("rewards"))
    off = OffPolicy(lockstep, window=3, mu=1.0)
    number, _ = lockstep.decide([np.full((1, 3), 0.1), np.full((1, 2), 0.1)])
    with pytest.raises(InputError, match="one of each replicate, from 0 to 1"):
        off.add(number, rewards)
    off.add(number, [1.0])


def test_noise_that_cannot_be_drawn_is_refused_at_once() -> None:
    lockstep = Lockstep(Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON), fixed_key("mu"))
    with pytest.raises(ConfigError):
        OffPolicy(lockstep, mu=1e9)
    assert not lockstep.evaluated


def test_decisions_that_wait_no_longer_leave_nothing_behind() -> None:
    federation = Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON)
    lockstep = Lockstep(federation, fixed_key("left"), max_pending=4)
    context = [np.full((1, 3), 0.1), np.full((1, 2), 0.1)]
    for _ in range(3):
        lockstep.learn_each([lockstep.decide(context)[0] for _ in range(3)], np.ones((1, 3)))
    lockstep.learn(lockstep.decide(context)[0], [1.0])
    assert not lockstep._made_at
    for _ in range(9):
        lockstep.decide(context)
    assert lockstep._made_at.keys() == lockstep.pending


def test_a_run_is_evaluated_once_and_from_its_start() -> None:
    """A second evaluation would use masks and noise again."""
    federation = Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON)
    lockstep = Lockstep(federation, fixed_key("once"))
    OffPolicy(lockstep)
    with pytest.raises(ConfigError, match="by one evaluation only"):
        OffPolicy(lockstep)
    begun = Lockstep(federation, fixed_key("begun"))
    begun.decide([np.zeros((1, 3)), np.zeros((1, 2))])
    with pytest.raises(ConfigError, match="from the first decision of a run on"):
        OffPolicy(begun)
    saved = Lockstep(federation, fixed_key("once")).snapshot()
    for goes_on_elsewhere in (lockstep.snapshot, lambda: lockstep.restore(saved)):
        with pytest.raises(ConfigError, match="goes on only as it is"):
            goes_on_elsewhere()
    retired = Federation(arms=ARMS, features=FEATURES, epsilon=EPSILON, retired=(1,))
    with pytest.raises(ConfigError, match="with retired arms they are not evaluated"):
        OffPolicy(Lockstep(retired, fixed_key("retired")))


def test_rounds_of_a_window() -> None:
    trial = Trial(replicates=1, steps=50)
    rounds = trial.lockstep.meter.rounds
    assert rounds["value "] == 1
    assert rounds["value modelpi"] == 1 + 9 - 1 + 2  # contexts and weights; a decision by shuffle; arms, and matches
    low = Trial(replicates=1, steps=50, estimators=ESTIMATORS).lockstep.meter.rounds
    assert low["value modelpi"] == rounds["value modelpi"]
    assert low["value own arm"] == 50 * 9  # a decision by shuffle for each


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
    with pytest.raises(ConfigError, match="estimators must be some of importance, low-variance"):
        OffPolicy(lockstep(epsilon=0.1), models={"pi": PI}, estimators=("doubly-robust",))
    with pytest.raises(ConfigError, match="no window of 100 decisions is complete"):
        OffPolicy(lockstep(epsilon=0.1)).value(GREEDY)
    with pytest.raises(ConfigError, match="there is no 'best'"):
        OffPolicy(lockstep(epsilon=0.1)).value("best")
