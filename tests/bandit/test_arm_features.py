"""Arms that have features: one model for all of them learns on shares as its plain twin does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joint_views import check_joint_views, check_masks_are_new, run_decisions, worlds_of

from hiddenarm import ArmTable, LocalFederation, NoisySums
from hiddenarm.bandit.audit import plain_twin
from hiddenarm.bandit.catalogue import DECIDE_ONE, GATHER, LEARN_ONE, SOLVE, ProgramId, program_text
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
from support import fixed_key


def table_of(arms: int, width: int, seed: int = 0) -> ArmTable:
    return ArmTable.of(np.random.default_rng(seed).standard_normal((arms, width)))


def federation_of(arms: int = 6, width: int = 3, **numbers: Any) -> Federation:
    numbers = {"features": (2, 2), "epsilon": 0.2, **numbers}
    return Federation(arms=arms, arm_features=table_of(arms, width), **numbers)


class Beside:
    """A private run and a plain twin that is taught what it did."""

    def __init__(self, federation: Federation, name: str) -> None:
        self.federation = federation
        self.lockstep = Lockstep(federation, fixed_key(name), deal_ahead=8)
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


def test_noisy_sums_learn_what_the_twin_with_the_same_noise_learns() -> None:
    privacy = NoisySums(8.0, first_refresh=50)
    beside = Beside(federation_of(6, 2, privacy=privacy, max_interactions=2_000), "noisy")
    for _ in range(3):
        beside.batch(50)
    assert beside.twin.arrays["counts"][2] >= 2
    assert beside.off() < 1e-3


# Costs


@pytest.mark.parametrize("program", [LEARN_ONE, ProgramId(GATHER, 10), ProgramId(SOLVE, 10)], ids=str)
def test_what_learning_costs_does_not_depend_on_the_number_of_arms(program: ProgramId) -> None:
    few, many = (layout_of(program_text(federation_of(arms), program), 2, 1) for arms in (10, 1000))
    assert few == many


def test_a_lesson_takes_six_rounds() -> None:
    assert layout_of(program_text(federation_of(), LEARN_ONE), 2, 1).rounds == 6


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
        ({"policy": LinUcb(0.5), "epsilon": None}, "policy linucb does not run with arm_features"),
        ({"policy": Thompson(0.5), "epsilon": None}, "policy thompson does not run with arm_features"),
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
