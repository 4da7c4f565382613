"""Arms that have features: one model for all of them learns on shares as its plain twin does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joint_views import check_joint_views, check_masks_are_new, run_decisions, worlds_of
from scipy import stats

from hiddenarm import ArmTable, LocalFederation, NoisySums
from hiddenarm.bandit.arm_table import OWN_UNITS
from hiddenarm.bandit.audit import plain_twin
from hiddenarm.bandit.catalogue import DECIDE_ONE, GATHER, LEARN_ONE, SOLVE, STEP_ONE, ProgramId, program_text
from hiddenarm.bandit.changes import changed_federation
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.ring.words import Floats, decode, encode
from support import SIGNIFICANCE, fixed_key


def table_of(arms: int, width: int, seed: int = 0) -> ArmTable:
    return ArmTable.of(np.random.default_rng(seed).standard_normal((arms, width)))


def federation_of(arms: int = 6, width: int = 3, **numbers: Any) -> Federation:
    numbers = {"features": (2, 2), "epsilon": 0.2, **numbers}
    return Federation(arms=arms, arm_features=table_of(arms, width), **numbers)


class Beside:
    """A private run and a plain twin that is taught what it did."""

    def __init__(self, federation: Federation, name: str, online: bool = False) -> None:
        self.federation = federation
        self.lockstep = Lockstep(federation, fixed_key(name), deal_ahead=8, online=online)
        self.twin: PlainBandit = plain_twin(
            federation,
            lambda refresh: tuple(part[0] for part in self.lockstep.noise(refresh)),
        )
        self._random = np.random.default_rng(7)
        self._truth = self._random.standard_normal((federation.dimension, federation.arm_width))

    def contexts(self, count: int) -> Floats:
        """Of norm at most 1 at each party, as they are entered."""
        drawn = self._random.uniform(-1, 1, (count, self.federation.dimension)) / np.sqrt(self.federation.dimension)
        bits = self.federation.context_bits
        return decode(encode(drawn, bits), bits)

    def rewards(self, contexts: Floats, arms: Any) -> Floats:
        assert self.federation.arm_features is not None
        features = self.federation.arm_features.features[arms]
        chances: Floats = np.clip(0.5 + np.einsum("bi,ij,bj->b", contexts, self._truth, features), 0, 1)
        return chances

    def single(self) -> bool:
        """Decide and learn; whether the twin agrees with the arm."""
        (x,) = contexts = self.contexts(1)
        step, arms = self.lockstep.decide(self._split(contexts))
        explored, tags = coins_at(self.lockstep.coins(step, 1), 0)
        agrees = self.twin.agrees(int(arms[0]), x, explored, tags, self.federation.score_rounding)
        rewards = self.rewards(contexts, arms)
        self.lockstep.learn(step, rewards)
        self.teach(contexts, arms, rewards)
        return agrees

    def batch(self, count: int) -> None:
        contexts = self.contexts(count)
        name, (arms,) = self.lockstep.decide_batch([part[None] for part in self._split(contexts)])
        rewards = self.rewards(contexts, arms)
        self.lockstep.learn_batch(name, rewards[None])
        self.teach(contexts, arms, rewards)

    def teach(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        for x, arm, reward in zip(contexts, arms, rewards, strict=True):
            self.twin.learn(x, int(arm), float(reward))
        self.twin.end_lesson()

    def off(self) -> float:
        """How far the weights are from the twin's."""
        _, (weights,) = self.lockstep.reveal_model()
        return float(np.abs(weights - self.twin.weights).max())

    def _split(self, contexts: Floats) -> list[Floats]:
        return np.split(contexts, np.cumsum(self.federation.features)[:-1], axis=1)


def test_a_row_is_scaled_by_its_own_norm() -> None:
    """However large others are: [3, 4] has norm 5, though its squares vanish beside 1e200."""
    assert ArmTable.of([[3.0, 4.0], [1e200, 0.0]]).features.tolist() == [[0.59765625, 0.796875], [1.0, 0.0]]


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("arms", [2, 6, 60])
def test_one_by_one_it_learns_what_the_twin_learns(arms: int, parties: int) -> None:
    beside = Beside(federation_of(arms, features=(2,) * parties), f"singly {arms} {parties}")
    assert sum(beside.single() for _ in range(120)) == 120
    assert beside.off() < 6 * beside.federation.numbers.weight_drift


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("arms", [2, 6])
def test_online_it_learns_what_the_twin_learns(arms: int, parties: int) -> None:
    """By `step`, which goes on to learn."""
    beside = Beside(federation_of(arms, features=(2,) * parties), f"online {arms} {parties}", online=True)
    assert sum(beside.single() for _ in range(120)) == 120
    assert beside.off() < 6 * beside.federation.numbers.weight_drift
    assert beside.lockstep.meter.rounds["step"] == 7 * 120


@pytest.mark.parametrize("alpha", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("arms", [6, 60])
def test_a_bonus_is_added_as_the_twin_adds_it(arms: int, alpha: float) -> None:
    """Every arm is the best but for rounding: of keys, and of the context of which x'Mx is made."""
    federation = federation_of(arms, policy=Bonus(alpha, 0.1), epsilon=None)
    beside = Beside(federation, f"bonus {arms} {alpha}")
    error, norm = federation.policy.feature_error(federation), federation.joint_norm  # type: ignore[attr-defined]
    off = 2 * alpha * (2 * error * norm + error**2) + 2.0**-18
    assert off < 0.02 * max(1, alpha)
    for _ in range(80):
        (x,) = contexts = beside.contexts(1)
        step, (arm,) = beside.lockstep.decide(beside._split(contexts))
        explored, tags = coins_at(beside.lockstep.coins(step, 1), 0)
        assert beside.twin.agrees(int(arm), x, explored, tags, federation.score_rounding + off)
        rewards = beside.rewards(contexts, np.array([arm]))
        beside.lockstep.learn(step, rewards)
        beside.teach(contexts, np.array([arm]), rewards)
    assert beside.off() < 6 * federation.numbers.weight_drift


def test_a_bonus_takes_one_round_more_and_nothing_that_grows_with_the_arms() -> None:
    policy: dict[str, Any] = {"policy": Bonus(0.5), "epsilon": None}
    with_it, without = (layout_of(program_text(federation_of(100, **one), DECIDE_ONE), 2, 1) for one in (policy, {}))
    more, fewer = (layout_of(program_text(federation_of(200, **one), DECIDE_ONE), 2, 1) for one in (policy, {}))
    assert with_it.rounds == without.rounds + 1
    assert with_it.correction_words - without.correction_words == more.correction_words - fewer.correction_words


def test_replicates_have_twins_with_the_same_bonus() -> None:
    federation = federation_of(5, policy=Bonus(0.7), epsilon=None)
    many, one = federation.policy.twins(federation, 2), federation.policy.twin(federation)
    draw = np.random.default_rng(3)
    for _ in range(10):
        contexts, arms, rewards = draw.uniform(-0.5, 0.5, (2, 4)), draw.integers(0, 5, 2), draw.uniform(0, 1, 2)
        one.learn(contexts[1], int(arms[1]), float(rewards[1]))
        many.learn(contexts, arms, rewards)
    x = draw.uniform(-0.5, 0.5, (2, 4))
    np.testing.assert_allclose(many.scores(x)[1], one.scores(x[1]), atol=1e-12)
    products = [np.outer(x[1], z).ravel() for z in federation.arm_features.features]  # type: ignore[union-attr]
    expected = [one.weights[0] @ phi + 0.7 * phi @ one.inverses[0] @ phi for phi in products]
    np.testing.assert_allclose(one.scores(x[1]), expected, atol=1e-12)


def test_repairs_and_batches_learn_what_the_twin_learns() -> None:
    beside = Beside(federation_of(8, repair_every=30), "mixed")
    for _ in range(3):
        assert sum(beside.single() for _ in range(40)) == 40
        beside.batch(25)
        assert beside.off() < 1e-4


def test_what_is_unlearned_is_gone() -> None:
    """After all of it, the model is the prior."""
    fed = LocalFederation(table_of(6, 3), features=[2, 2], epsilon=0.3, seed=1)
    draw, ids = np.random.default_rng(5), []
    for _ in range(12):
        decision = fed.decide(list(draw.uniform(-0.7, 0.7, (2, 2))))
        fed.reward(decision.id, float(draw.uniform(0, 1)))
        ids.append(decision.id)
    for id in ids:
        fed.unlearn(id)
    _, (weights,) = fed._lockstep.reveal_model()
    assert np.abs(weights).max() < 1e-4


def test_a_catalogue_changes_and_the_model_stays() -> None:
    """Arms are added, changed and retired; the twin gets the same model on the new table."""
    before, names = np.random.default_rng(1).uniform(-0.5, 0.5, (4, 3)), ["a", "b", "c", "d"]
    fed = LocalFederation(ArmTable.of(before, names), features=[2, 2], epsilon=0.1, seed=1)
    draw, waiting = np.random.default_rng(2), []
    for turn in range(30):
        decision = fed.decide(list(draw.uniform(-0.7, 0.7, (2, 2))))
        if turn % 3:
            fed.reward(decision.id, float(decision.arm == 2))
        else:
            waiting.append(decision.id)
    _, kept = fed._lockstep.reveal_model()
    fed.change(arms=ArmTable.of(np.vstack([before[0], before[1:] * 0.5, [[0.9, 0.1, 0.2]]]), [*names, "e"]))
    fed.retire_arm("b")
    _, weights = fed._lockstep.reveal_model()
    np.testing.assert_array_equal(weights, kept)
    fed.reward_many(waiting, [0.5] * len(waiting))
    chosen = [fed.decide(list(draw.uniform(-0.7, 0.7, (2, 2)))).arm_name for _ in range(60)]
    assert "b" not in chosen
    assert "e" in chosen


def test_arms_are_added_where_sums_are_noisy() -> None:
    """The sums are of no arm: their noise is what it was. With a model for each arm, those of a new one would lack the
    noise of the refreshes before."""
    privacy = NoisySums(8.0, first_refresh=50)
    before = federation_of(6, 2, privacy=privacy, max_interactions=2_000)
    after = changed_federation(before, arms=7, arm_features=table_of(7, 2))
    assert (after.numbers, after.arms) == (before.numbers, 7)
    plain = Federation(arms=6, features=(2, 2), epsilon=0.2, privacy=privacy, max_interactions=2_000)
    with pytest.raises(ConfigError, match="arms cannot grow, from 6 to 7, with privacy noisy-sums"):
        changed_federation(plain, arms=7)


def test_a_table_that_does_not_follow_the_one_before_is_refused() -> None:
    fed = LocalFederation(ArmTable.of([[0.5, 0.1], [0.1, 0.5]], ["a", "b"]), features=[2, 2], epsilon=0.1)
    with pytest.raises(ConfigError, match="begin with the arms that there are"):
        fed.change(arms=ArmTable.of([[0.5, 0.1], [0.1, 0.5]], ["b", "a"]))
    with pytest.raises(ConfigError, match="cannot go on"):
        fed.change(arms=ArmTable.of([[0.5], [0.1]], ["a", "b"]))
    with pytest.raises(ConfigError, match="arm_features has 2 arms where the federation has 3"):
        fed.add_arm("c")
    plain = LocalFederation(2, features=[2, 2], epsilon=0.1)
    with pytest.raises(ConfigError, match="arm_features cannot change"):
        plain.change(arms=ArmTable.of([[0.5, 0.1], [0.1, 0.5]]))


def test_replicates_have_twins_that_learn_alike() -> None:
    federation = federation_of(5)
    many, one = federation.policy.twins(federation, 2), federation.policy.twin(federation)
    draw = np.random.default_rng(3)
    for _ in range(20):
        contexts, arms, rewards = draw.uniform(-0.5, 0.5, (2, 4)), draw.integers(0, 5, 2), draw.uniform(0, 1, 2)
        one.learn(contexts[1], int(arms[1]), float(rewards[1]))
        many.learn(contexts, arms, rewards)
    context = draw.uniform(-0.5, 0.5, (2, 4))
    np.testing.assert_allclose(many.scores(context)[1], one.scores(context[1]), atol=1e-12)
    np.testing.assert_allclose(many.inverses[1], one.inverses, atol=1e-12)


@pytest.mark.parametrize("arms", [6, 60])
def test_only_eligible_arms_are_chosen(arms: int) -> None:
    beside = Beside(federation_of(arms, epsilon=0.5), f"eligible {arms}")
    for turn in range(20):
        contexts = beside.contexts(1)
        eligible = [turn % arms, (turn * 7 + 1) % arms]
        step, chosen = beside.lockstep.decide([contexts[:, :2], contexts[:, 2:]], sorted(set(eligible)))
        assert int(chosen[0]) in eligible
        beside.lockstep.learn(step, [0.5])


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize(("arms", "online"), [(6, False), (6, True), (60, False)])
def test_arms_without_features_win_no_more_ties_than_others(arms: int, online: bool, parties: int) -> None:
    """Of an empty model all scores are zero. The shares of some scores are zero, too: these arms won all ties."""
    rows = np.random.default_rng(arms).normal(size=(arms, 2))
    rows[1::5] = 0.0
    federation = Federation(arms, (2,) * parties, epsilon=0.0, arm_features=ArmTable.of(rows))
    key, count = fixed_key(f"ties {arms} {online} {parties}"), 40 * arms
    lockstep = Lockstep(federation, key, replicates=count, deal_ahead=1, online=online)
    _, chosen = lockstep.decide([np.full((count, 2), 0.3)] * parties)
    assert stats.chisquare(np.bincount(chosen, minlength=arms)).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize(("parties", "row"), [(3, 0.0), (2, 0.4), (3, 0.4)])
def test_arms_with_the_same_features_win_alike(parties: int, row: float, online: bool) -> None:
    """Also where there are more arms than weights. Two arms whose shares of zero were of one word lost alike, so that
    an arm that had a word alone won more often: in 29 % of decisions with three parties, not in 25 %."""
    arms, times, count = parties + 1, 4, 6_000
    federation = Federation(arms, (1,) * parties, epsilon=0.0, arm_features=ArmTable.of([[row]] * arms))
    lockstep = Lockstep(
        federation, fixed_key(f"same {parties} {row} {online}"), replicates=count, deal_ahead=1, online=online
    )
    won = np.zeros(arms)
    for turn in range(times):
        context = [np.full((count, 1), 0.3 + 0.1 * turn)] * parties
        step, chosen = lockstep.decide(context)
        won += np.bincount(chosen, minlength=arms)
        lockstep.learn(step, np.full(count, 0.7))
    assert stats.chisquare(won).pvalue > SIGNIFICANCE, f"arms with the same features have won {won}"


def test_noisy_sums_learn_what_the_twin_with_the_same_noise_learns() -> None:
    privacy = NoisySums(8.0, first_refresh=50)
    beside = Beside(federation_of(6, 2, privacy=privacy, max_interactions=2_000), "noisy")
    for _ in range(3):
        beside.batch(50)
    assert beside.twin.arrays["counts"][2] >= 2
    assert beside.off() < 1e-3


# Models of their own on top


class Hybrid:
    """Hybrid LinUCB (Li et al. 2010, algorithm 2) without its bonus, block by block, with a prior of so much: what arms
    have in common, z = x z_a', and what some of them have alone, x."""

    def __init__(self, shared: Floats, own: tuple[int, ...], dimension: int, ridge: float) -> None:
        self._shared, self._own = shared, own
        size = dimension * shared.shape[1]
        self.a0, self.b0 = ridge * np.eye(size), np.zeros(size)
        self.a = {arm: ridge * np.eye(dimension) for arm in own}
        self.b = {arm: np.zeros((dimension, size)) for arm in own}
        self.r = {arm: np.zeros(dimension) for arm in own}

    def _correct(self, arm: int, sign: int) -> None:
        """What is known of an arm alone goes into what all have in common, once."""
        inverse = np.linalg.inv(self.a[arm])
        self.a0 += sign * self.b[arm].T @ inverse @ self.b[arm]
        self.b0 += sign * self.b[arm].T @ inverse @ self.r[arm]

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        z = np.outer(x, self._shared[arm]).ravel()
        if arm in self._own:
            self._correct(arm, 1)
            self.a[arm] += np.outer(x, x)
            self.b[arm] += np.outer(x, z)
            self.r[arm] += reward * x
        self.a0 += np.outer(z, z)
        self.b0 += reward * z
        if arm in self._own:
            self._correct(arm, -1)

    def scores(self, x: Floats) -> Floats:
        common = np.linalg.solve(self.a0, self.b0)
        scores = np.array([np.outer(x, z).ravel() @ common for z in self._shared])
        for arm in self._own:
            scores[arm] += x @ np.linalg.solve(self.a[arm], self.r[arm] - self.b[arm] @ common)
        return scores


@pytest.mark.parametrize("own", [(2,), (0, 5)])
def test_the_twin_of_own_models_is_hybrid_linucb(own: tuple[int, ...]) -> None:
    """Learned jointly or block by block, scores are the same: both priors are twice as strong, as both kinds of
    features have the same factor."""
    before = table_of(6, 3)
    federation = Federation(6, (2, 2), epsilon=0.2, arm_features=before.with_own(own))
    shared = before.with_own(own).features[:, :3] * 256 / OWN_UNITS
    twin, hybrid = federation.policy.twin(federation), Hybrid(shared, own, 4, (256 / OWN_UNITS) ** 2)
    draw = np.random.default_rng(9)
    for _ in range(60):
        x, arm, reward = draw.uniform(-0.5, 0.5, 4), int(draw.integers(0, 6)), float(draw.uniform(0, 1))
        twin.learn(x, arm, reward)
        hybrid.learn(x, arm, reward)
    x = draw.uniform(-0.5, 0.5, 4)
    np.testing.assert_allclose(twin.scores(x), hybrid.scores(x), atol=1e-10)


@pytest.mark.parametrize("online", [False, True])
def test_own_models_are_learned_as_the_twin_learns_them(online: bool) -> None:
    federation = Federation(6, (2, 2), epsilon=0.2, repair_every=50, arm_features=table_of(6, 2).with_own([1, 4]))
    beside = Beside(federation, f"hybrid {online}", online)
    assert sum(beside.single() for _ in range(80)) == 80
    beside.batch(20)
    assert beside.off() < 1e-4
    _, (weights,) = beside.lockstep.reveal_model()
    alone = weights.reshape(4, 4)[:, 2:]
    assert (np.abs(alone).max(axis=0) > 0.01).all(), "each of the two has learned something of its own"


def test_an_own_model_learns_what_features_do_not_tell() -> None:
    """Two arms of the same features, one of which is liked and the other not."""
    table, draw = ArmTable.of([[0.7], [0.7], [0.1]], ["liked", "not", "other"]), np.random.default_rng(4)
    chosen = {}
    for own in ((), ("liked",)):
        fed = LocalFederation(table, features=[1, 1], epsilon=0.1, own_models=own, seed=3)
        names = []
        for _ in range(150):
            decision = fed.decide([[0.7], [draw.uniform(0.3, 0.7)]])
            names.append(decision.arm_name)
            fed.reward(decision.id, float(decision.arm_name == "liked"))
        chosen[own] = names[50:].count("liked")
    assert chosen["liked",] > 80
    assert chosen[()] < 75


def test_own_models_stay_with_a_catalogue_that_changes(tmp_path: Path) -> None:
    first = ArmTable.of([[0.5, 0.1], [0.1, 0.5]], ["a", "b"])
    fed = LocalFederation(first, features=[2, 2], epsilon=0.1, own_models=["b"])
    later = ArmTable.of([[0.4, 0.1], [0.1, 0.5], [0.3, 0.3]], ["a", "b", "c"])
    fed.change(arms=later)
    assert fed.federation.arm_features == later.with_own([1])
    fed.save(tmp_path / "fed")
    assert LocalFederation.load(tmp_path / "fed").federation == fed.federation
    with pytest.raises(ConfigError, match="own_models cannot change"):
        fed.change(arms=later.with_own(["c"]))
    plain = LocalFederation(first, features=[2, 2], epsilon=0.1)
    with pytest.raises(ConfigError, match=r"arm_columns cannot change.*own_models cannot change"):
        plain.change(arms=later.with_own(["b"]))


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (["d"], "own_models names 'd', which is no arm"),
        ([3], "own_models names 3, which is no arm"),
        ([True], "own_models names True"),
        (["a", 0], "each of them once"),
    ],
)
def test_own_models_of_no_arm_are_refused(own: list[Any], why: str) -> None:
    table = ArmTable.of([[0.5, 0.1], [0.1, 0.5], [0.3, 0.3]], ["a", "b", "c"])
    with pytest.raises(ConfigError, match=why):
        LocalFederation(table, features=[2, 2], epsilon=0.1, own_models=own)


def test_own_models_need_a_table_and_their_columns() -> None:
    with pytest.raises(ConfigError, match="give arms as an ArmTable"):
        LocalFederation(3, features=[2, 2], epsilon=0.1, own_models=[0])
    table = ArmTable.of([[0.5, 0.1], [0.1, 0.5]])
    with pytest.raises(ConfigError, match="do not go with them: use with_own"):
        ArmTable.of(table.features, own=[1])
    with pytest.raises(ConfigError, match="name all of them at once"):
        table.with_own([0]).with_own([1])
    with pytest.raises(ConfigError, match="must be named"):
        table.with_own([])


def test_own_models_count_in_the_bounds_of_a_federation() -> None:
    """Plans of `solve` and limits are those of a model of 4 x 254 numbers."""
    table = table_of(300, 4)
    few, many = (Federation(300, (2, 2), epsilon=0.2, arm_features=one) for one in (table, table.with_own(range(250))))
    assert many.model_size == 4 * 254
    assert many.numbers != few.numbers


# Costs


@pytest.mark.parametrize("program", [LEARN_ONE, ProgramId(GATHER, 10), ProgramId(SOLVE, 10)], ids=str)
def test_what_learning_costs_does_not_depend_on_the_number_of_arms(program: ProgramId) -> None:
    few, many = (layout_of(program_text(federation_of(arms), program), 2, 1) for arms in (10, 1000))
    assert few == many


def test_a_lesson_takes_five_rounds_and_a_step_seven() -> None:
    federation = federation_of()
    assert [layout_of(program_text(federation, one), 2, 1).rounds for one in (LEARN_ONE, STEP_ONE)] == [5, 7]


def test_there_is_no_step_where_it_cannot_be() -> None:
    """With many arms, which are shuffled; with a bonus, whose factors are masked for scores alone; where rewards wait
    for a slot."""
    assert federation_of().learner.has_step
    bonus: dict[str, Any] = {"policy": Bonus(0.5), "epsilon": None}
    for numbers in ({"arms": 60}, bonus, {"reward_slot": 60}):
        assert not federation_of(**numbers).learner.has_step


# What is seen


@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("contexts", [1, 2])
def test_with_a_bonus_actor_and_all_parties_but_one_learn_the_arm_and_nothing_else(contexts: int, other: int) -> None:
    features, policy = np.eye(4) * 0.75 + 0.1, Bonus(0.01, 0.2)
    federation = Federation(arms=4, features=(1, 1), policy=policy, arm_features=ArmTable.of(features))
    decisions = [
        run_decisions(federation, world, 1, f"bonus {contexts}", contexts=contexts, count=400, other=other)
        for world in worlds_of(federation, 1)
    ]
    check_joint_views(decisions, {0, 1} - {other})
    check_masks_are_new(decisions[0])


# The table


@given(st.integers(2, 5), st.integers(1, 4), st.floats(-1e300, 1e300), st.integers(0, 100))
def test_rows_have_norms_of_at_most_one(arms: int, width: int, scale: float, seed: int) -> None:
    features = np.random.default_rng(seed).uniform(-1, 1, (arms, width)) * scale
    table = ArmTable.of(features)
    assert (np.linalg.norm(table.features, axis=1) <= 1).all()
    inside = np.abs(features).sum(axis=1) <= 1
    assert (np.abs(table.features - features)[inside] < 2.0**-8).all()


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ([[1.0, np.nan], [0.0, 1.0]], "arm 0 are not all finite"),
        ([[1.0], [0.0, 1.0]], "a row of the same length"),
        ([0.1, 0.2], "a row for each arm"),
        ([["a"], ["b"]], "must be numbers"),
        ([[0.5]], "2 to 100,000 arms"),
    ],
)
def test_a_table_that_is_none_is_refused(features: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ArmTable.of(features)


def test_names_must_fit_the_rows() -> None:
    with pytest.raises(ConfigError, match="as many names"):
        ArmTable.of([[0.1], [0.2]], ["one", "one"])


def test_the_digest_is_of_features_and_names() -> None:
    digests = {
        table.digest
        for table in (
            ArmTable.of([[0.5], [0.25]]),
            ArmTable.of([[0.5], [0.75]]),
            ArmTable.of([[0.5], [0.25]], ["a", "b"]),
            ArmTable.of([[0.5], [0.25]], ["b", "a"]),
        )
    }
    assert len(digests) == 4
    assert federation_of().terms["arm_features"] == table_of(6, 3).digest


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ({"suite": "paper"}, "suite paper does not run with arm_features"),
        (
            {"policy": LinUcb(0.5), "epsilon": None},
            "policy linucb does not run with arm_features: choose one of bonus, epsilon-greedy, epsilon-schedule,",
        ),
        (
            {"policy": Thompson(0.5), "epsilon": None},
            "policy thompson does not run with arm_features: choose one of bonus, epsilon-greedy, epsilon-schedule,",
        ),
        ({"fraction_bits": 15}, "at least 16 fraction_bits"),
        ({"arm_features": table_of(5, 3)}, "has 5 arms where the federation has 6"),
        ({"arm_features": [[0.5], [0.25]]}, "must be a table"),
    ],
)
def test_what_does_not_go_together_is_refused(numbers: dict[str, Any], why: str) -> None:
    given = {"features": (2, 2), "epsilon": 0.2, "arm_features": table_of(6, 3), **numbers}
    with pytest.raises(ConfigError, match=why):
        Federation(arms=6, **given)


# In a notebook


def test_a_local_federation_takes_a_table_and_keeps_it(tmp_path: Path) -> None:
    table = ArmTable.of([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]], ["beach", "city", "lake"])
    fed = LocalFederation(table, features=[2, 1], epsilon=0.1)
    decision = fed.decide([[0.3, 0.4], [0.2]])
    assert decision.arm_name == table.names[decision.arm]
    fed.save(tmp_path / "fed")
    loaded = LocalFederation.load(tmp_path / "fed")
    assert loaded.federation == fed.federation
    loaded.reward(decision.id, 1.0)
