"""Decisions among some of many arms: at the cost of these, with the chances of these, and learned as all others are."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joint_views import check_joint_views, check_masks_are_new, run_decisions, worlds_of
from numpy.typing import NDArray

from hiddenarm import ArmTable, LocalFederation
from hiddenarm.bandit.answers import eligible_words
from hiddenarm.bandit.catalogue import DECIDE_ONE, LEARN_ONE, SUBSET_SIZES, ProgramId, deciding, program_text
from hiddenarm.bandit.decisions import decision_number, split_number
from hiddenarm.bandit.federation import PAYLOAD_ARMS, Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.subsets import Subset, subset_of
from hiddenarm.errors import DecisionIdError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.tournament import comparisons, levels, tournament
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.research.experiments.experiment import Setting
from hiddenarm.research.experiments.many_arms import CATALOGUE, ITEM_STEPS, STEPS, ManyArms
from hiddenarm.ring.words import Floats, Words, decode, encode
from support import fixed_key

MODELS = ["a model for each arm", "one model"]


def federation_of(model: str, arms: int = 120, parties: int = 2, **numbers: Any) -> Federation:
    numbers = {"features": (2,) * parties, "epsilon": 0.2, **numbers}
    if model == "one model":
        numbers["arm_features"] = ArmTable.of(np.random.default_rng(1).standard_normal((arms, 3)))
    return Federation(arms=arms, **numbers)


class Beside:
    """A private run and its plain twin."""

    def __init__(self, federation: Federation, key: str) -> None:
        self.federation = federation
        self.lockstep = Lockstep(federation, fixed_key("subsets", key), deal_ahead=4)
        self.twin = federation.policy.twin(federation)
        self.draw = np.random.default_rng(3)

    def context(self) -> Floats:
        drawn = self.draw.uniform(-1, 1, self.federation.dimension) / np.sqrt(self.federation.dimension)
        bits = self.federation.context_bits
        return decode(encode(drawn, bits), bits)

    def split(self, context: Floats) -> list[Floats]:
        return [part[None] for part in np.split(context, np.cumsum(self.federation.features)[:-1])]

    def single(self, eligible: list[int] | None) -> int:
        """Decide, compare with the twin, and learn; the arm."""
        x, arms = self.context(), self.federation.arms
        number, (arm,) = self.lockstep.decide(self.split(x), eligible)
        program, step, _ = split_number(number)
        subset = subset_of(self.federation, eligible_words(arms, eligible))
        coins = self.lockstep.coins_of(program, step, 1)
        tags = coins.tags[0, 0] if subset is None else spread_tags(subset, coins.tags[0, 0], arms)
        may_win = np.isin(np.arange(arms), range(arms) if eligible is None else eligible)
        expected = self.twin.decide(x, bool(coins.explore[0, 0]), tags, eligible=may_win)
        if expected != arm:
            scores = self.twin.scores(x)
            assert not coins.explore[0, 0]
            assert scores[expected] - scores[arm] <= self.federation.score_rounding
        reward = float(arm % 3 == 0)
        self.lockstep.learn(number, [reward])
        self.twin.learn(x, int(arm), reward)
        return int(arm)

    def off(self) -> float:
        _, (weights,) = self.lockstep.reveal_model()
        return float(np.abs(weights - self.twin.weights).max())


def spread_tags(subset: Subset, tags: NDArray[np.int64], arms: int) -> NDArray[np.int64]:
    """Tags of slots as tags of arms; none of those that were left out."""
    spread = np.full(arms, -1)
    spread[subset.arms] = tags[: len(subset.arms)]
    return spread


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_one_by_one_it_decides_and_learns_as_the_twin_does(model: str, parties: int) -> None:
    """Of few arms, of many, and of all in turn; by programs for payloads and for shuffles."""
    beside = Beside(federation_of(model, parties=parties), f"{model} {parties}")
    for turn in range(40):
        size = (1, 3, 4, 30, 60, 120)[turn % 6]
        eligible = sorted(beside.draw.permutation(120)[:size].tolist())
        assert beside.single(None if size == 120 else eligible) in eligible
    assert beside.off() < 6 * beside.federation.numbers.weight_drift


@pytest.mark.parametrize("model", MODELS)
def test_batches_among_a_subset_learn_what_the_twin_learns(model: str) -> None:
    beside = Beside(federation_of(model, epsilon=0.5), f"batches {model}")
    for eligible in ([7, 50, 100], None, [3, 119, 64, 30, 31], list(range(20, 80))):
        contexts = np.stack([beside.context() for _ in range(5)])
        rows = [part[None] for part in np.split(contexts, 2, axis=1)]
        batch, (arms,) = beside.lockstep.decide_batch(rows, eligible)
        assert eligible is None or set(arms.tolist()) <= set(eligible)
        rewards = (arms % 2).astype(float)
        beside.lockstep.learn_batch(batch, [rewards])
        for x, arm, reward in zip(contexts, arms, rewards, strict=True):
            beside.twin.learn(x, int(arm), float(reward))
    assert beside.off() < 1e-4


def test_a_bonus_is_that_of_the_eligible_arms() -> None:
    beside = Beside(federation_of(MODELS[0], epsilon=None, policy=Bonus(0.5), arms=60), "bonus")
    for turn in range(24):
        beside.single(sorted(beside.draw.permutation(60)[: 2 + turn % 5].tolist()))


def test_noisy_sums_keep_the_bounds_of_all_arms() -> None:
    """Noise is that of the models of all arms, so keys among a few must hold scores of all."""
    federation = federation_of(MODELS[0], privacy=NoisySums(8.0, first_refresh=50), max_interactions=2_000)
    narrow = federation.among(4)
    assert narrow.score_bound == federation.score_bound
    assert narrow.arms == 4
    beside = Beside(federation, "noisy")
    number, (arm,) = beside.lockstep.decide(beside.split(beside.context()), [5, 6, 7])
    assert arm in (5, 6, 7)
    beside.lockstep.learn(number, [1.0])


# Local federations


@pytest.mark.parametrize("arms", [90, ArmTable.of(np.random.default_rng(2).standard_normal((90, 3)))], ids=MODELS)
def test_a_local_federation_learns_late_rewards_saves_and_unlearns(arms: int | ArmTable, tmp_path: Path) -> None:
    fed = LocalFederation(arms, features=[2, 2], epsilon=0.3, seed=1)
    draw, waiting = np.random.default_rng(5), []
    for turn in range(12):
        eligible = draw.permutation(90)[: 3 + turn].tolist()
        decision = fed.decide(list(draw.uniform(-0.7, 0.7, (2, 2))), eligible=eligible)
        assert decision.arm in eligible
        waiting.append(decision.id)
    many = fed.decide_many(list(draw.uniform(-0.7, 0.7, (2, 3, 2))), eligible=[1, 2, 3])
    fed.save(tmp_path / "fed.npz")
    loaded = LocalFederation.load(tmp_path / "fed.npz")
    for one in (fed, loaded):
        one.reward_many([*waiting[6:], *(decision.id for decision in many)], [0.25] * 9)
        for id in waiting[:6]:
            one.reward(id, 1.0)
        with pytest.raises(DecisionIdError, match="rewarded before"):
            one.reward(waiting[0], 1.0)
    np.testing.assert_allclose(fed._lockstep.reveal_model()[1], loaded._lockstep.reveal_model()[1], atol=1e-4)
    for id in (*waiting, *(decision.id for decision in many)):
        fed.unlearn(id)
    assert np.abs(fed._lockstep.reveal_model()[1]).max() < 1e-3


def test_retired_arms_cost_nothing() -> None:
    federation = Federation(100, (1, 1), epsilon=1.0, retired=tuple(range(40, 100)))
    lockstep = Lockstep(federation, fixed_key("retired"), deal_ahead=1)
    number, (arm,) = lockstep.decide([np.zeros((1, 1))] * 2)
    assert split_number(number)[0] == deciding(1, 48)
    assert arm < 40


# Chances


@pytest.mark.parametrize("model", MODELS)
def test_exploration_is_uniform_over_the_eligible_arms(model: str) -> None:
    """5 of 60 arms in 8 slots, always explored: counts of 600 decisions, within six deviations of 120 each. By a
    Chernoff bound an honest run, whose seed is fixed besides, is outside with a chance below 1e-6."""
    federation, eligible = federation_of(model, arms=60, epsilon=1.0), [3, 9, 27, 31, 59]
    lockstep = Lockstep(federation, fixed_key("uniform", model), replicates=200, deal_ahead=1)
    counts = np.zeros(60, int)
    for _ in range(3):
        _, arms = lockstep.decide([np.zeros((200, 2))] * 2, eligible)
        counts += np.bincount(arms, minlength=60)
    assert counts[eligible].sum() == 600
    assert np.abs(counts[eligible] - 120).max() < 6 * np.sqrt(600 * 0.2 * 0.8)


# Costs


@pytest.mark.parametrize("model", MODELS)
def test_what_a_decision_costs_follows_from_the_slots_alone(model: str) -> None:
    few, many = (
        [layout_of(program_text(federation_of(model, arms), deciding(1, size)), 2, 1) for size in SUBSET_SIZES[:7]]
        for arms in (1_000, 3_000)
    )
    tags_alike = [layout.party_words for layout in few]
    assert tags_alike == [layout.party_words for layout in many]
    assert [layout.rounds for layout in few[:5]] == [3, 3, 3, 4, 4]
    whole = layout_of(program_text(federation_of(model, 3_000), DECIDE_ONE), 2, 1)
    assert max(few[4].party_words) < max(whole.party_words) / 4


def test_the_page_has_what_programs_declare() -> None:
    """The table of costs in docs/arm-features.md."""
    page = (Path(__file__).parents[2] / "docs" / "arm-features.md").read_text()
    for arms in (100, 1_000, 10_000):
        for model in MODELS:
            numbers: dict[str, Any] = {"features": (10, 10), "epsilon": 0.1}
            if model == "one model":
                numbers["arm_features"] = ArmTable.of(np.full((arms, 6), 0.25))
            federation = Federation(arms, **numbers)
            parts = []
            for program in (DECIDE_ONE, LEARN_ONE):
                layout = layout_of(program_text(federation, program), 2, 1)
                sent = max(layout.bytes_to_each_peer(party) for party in (0, 1))
                parts.append(f"{layout.rounds}, {sent:,}, {layout.correction_words:,}")
            first = f"| {arms:,} | one |" if model == "one model" else "| | for each arm |"
            assert f"{first} {parts[0]} | {parts[1]} |" in page


def page() -> str:
    return (Path(__file__).parents[2] / "docs" / "arm-features.md").read_text()


def costs(federation: Federation, program: ProgramId) -> str:
    layout = layout_of(program_text(federation, program), 2, 1)
    sent = max(layout.bytes_to_each_peer(party) for party in (0, 1))
    return f"{layout.rounds}, {sent:,}, {layout.correction_words:,}"


def test_the_page_has_what_subsets_and_models_of_their_own_cost() -> None:
    numbers: dict[str, Any] = {"features": (10, 10), "epsilon": 0.1}
    table = ArmTable.of(np.full((10_000, 6), 0.25))
    whole = Federation(10_000, arm_features=table, **numbers)
    for name, program in (
        ("among all", DECIDE_ONE),
        ("among 40", deciding(1, 48)),
        ("16 contexts together, among the same 40", deciding(16, 48)),
    ):
        assert f"| {name} | {costs(whole, program).replace(', ', ' | ')} |" in page()
    few = ArmTable.of(np.full((16, 6), 0.25))
    for own in (1, 4, 16):
        federation = Federation(16, arm_features=few.with_own(range(own)), **numbers)
        assert f"| {own} | {federation.model_size} | {costs(federation, LEARN_ONE)} |" in page()


def test_the_page_has_what_tournaments_take() -> None:
    for arms in (1_000, 10_000):
        for depth in (2, 3, 4):
            plan = tournament(arms, depth)
            taken = f"**{depth}**" if plan == levels(arms) else f"{depth}"
            groups, pairs = ", ".join(str(max(sizes)) for sizes in plan), comparisons(plan)
            assert f"| {taken} | {groups} | {pairs:,} | {pairs / arms:.1f} | {6 + 3 * depth} |" in page()


@pytest.mark.parametrize(
    ("arms", "eligible", "size"),
    [
        (PAYLOAD_ARMS, 3, None),
        (49, 3, 4),
        (49, 48, 48),
        (49, 49, None),
        (10_000, 40, 48),
        (10_000, 49, 96),
        (10_000, 6_145, None),
        (100_000, 40_000, 49_152),
        (100_000, 50_000, None),
    ],
)
def test_a_subset_takes_the_next_size(arms: int, eligible: int, size: int | None) -> None:
    subset = subset_of(federation_of(MODELS[0], arms), eligible_words(arms, range(eligible)))
    assert (None if subset is None else subset.size) == size


# What is seen


@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_actor_and_all_parties_but_one_learn_the_arm_and_nothing_else(model: str, contexts: int, other: int) -> None:
    numbers: dict[str, Any] = {"features": (1, 1), "epsilon": 0.2}
    if model == "one model":
        numbers["arm_features"] = ArmTable.of(np.eye(49) * 0.75 + 0.02)
    federation, eligible = Federation(arms=49, **numbers), [4, 17, 30, 48]
    decisions = [
        run_decisions(federation, world, 30, model, contexts=contexts, count=400, other=other, eligible=eligible)
        for world in worlds_of(federation, 30)
    ]
    check_joint_views(decisions, {0, 1} - {other})
    check_masks_are_new(decisions[0])


# What the sizes must not change


def test_a_schedule_goes_on_whatever_is_eligible() -> None:
    """Positions are counted by program: each size would begin again, and explore as at the start."""
    federation = federation_of(MODELS[0], epsilon=None, policy=EpsilonSchedule(1.0, 0.01, 1.0))
    assert subset_of(federation, eligible_words(120, [1, 2, 3])) is None
    beside = Beside(federation, "schedule")
    numbers = [beside.lockstep.decide(beside.split(beside.context()), [1, 2, 3])[0] for _ in range(3)]
    assert numbers == [0, 1, 2]


def test_federations_among_some_arms_are_equal_only_if_their_whole_is() -> None:
    noisy: dict[str, Any] = {"privacy": NoisySums(8.0, first_refresh=50), "max_interactions": 2_000}
    few, many = (federation_of(MODELS[0], arms, **noisy).among(48) for arms in (100, 5_000))
    assert few.numbers != many.numbers
    assert few != many
    assert few == federation_of(MODELS[0], 100, **noisy).among(48)
    assert hash(few) == hash(federation_of(MODELS[0], 100, **noisy).among(48))


# Numbers of decisions


def test_numbers_of_decisions_name_their_program() -> None:
    programs = [deciding(count, size) for count in (1, 2, 4095) for size in (None, *SUBSET_SIZES)]
    for program in programs:
        position = program.count - 1
        for step in (0, 5, 2**32 - 1):
            assert split_number(decision_number(program, step, position)) == (program, step, position)
            assert decision_number(program, step, position) < 2**64


@pytest.mark.parametrize("number", [4096 << 48, 15 * 4096 << 48, 16 * 4096 << 48, 2**64, 10**19 * 9])
def test_numbers_of_no_decision_are_refused(number: int) -> None:
    with pytest.raises(DecisionIdError, match="not the number of a decision"):
        split_number(number)


def test_slots_are_arms_and_the_others_are_zero() -> None:
    subset = Subset(np.array([2, 5, 6]), 4, 8)
    words: Words = np.array([[1, 2, 3, 9]], np.uint64)
    assert subset.spread(words).tolist() == [[0, 0, 1, 0, 0, 2, 3, 0]]
    assert subset.arms_of(np.array([0, 2, -1])).tolist() == [2, 6, -1]
    assert (subset.eligible(1) != 0).tolist() == [[True, True, True, False]]


def reproduced() -> list[dict[str, str]]:
    """The table of the kept run of `reproduce many-arms`."""
    with (Path(__file__).parents[2] / "docs" / "results" / "beyond" / "many-arms.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def shown(row: dict[str, str]) -> str:
    """What a run came to, as the page has it: rewards and milliseconds; no reward where it was only timed."""
    milliseconds = float(row["ms deciding"]) + float(row["ms learning"])
    ms = f"{milliseconds:.0f}" if milliseconds >= 10 else f"{milliseconds:.1f}"
    rewards = [f"{float(row[name]):.3f}" if row[name] else "-" for name in ("reward", "plain reward")]
    return ", ".join((*rewards, ms))


def test_the_page_has_what_was_reproduced() -> None:
    """The table of both models in docs/arm-features.md is that of the kept run."""
    rows = reproduced()
    assert {row["same arm"] for row in rows} == {"1.0"}
    for one in rows:
        if one["model"] != "one model":
            continue
        (each,) = [
            row
            for row in rows
            if (row["world"], row["arms"]) == (one["world"], one["arms"]) and row["model"] != "one model"
        ]
        arms = f"{int(one['arms']):,}" + (", 21 features" if one.get("arm features") == "21" else "")
        assert f"| {arms} | {shown(one)} | {shown(each)} |" in page(), one


def test_the_page_says_what_the_command_makes_now_and_the_kept_run_did_not() -> None:
    """Steps and features of arms: a sentence for each is there if, and only if, the kept run is of an earlier one."""
    rows, text = reproduced(), " ".join(page().split())
    for world, steps in (("mnist", STEPS["full"]), (CATALOGUE, ITEM_STEPS["full"])):
        stale = {row["steps"] for row in rows if row["world"] == world} != {str(steps)}
        assert (f"The command now makes {steps:,} steps of the {world}" in text) == stale
    made = {(row["world"], row.get("arm features")) for row in rows}
    wide = {(run.world, str(run.width)) for run in ManyArms().jobs(Setting("full", "mnist")) if run.width}
    assert ("The command now also runs 21 features of K-means arms" in text) == (not wide <= made)
