"""The noisy gradient: the programs beside the plain twin with the same noise, what a row can change, what is opened,
what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
import pytest
from test_noisy_sums import contexts_of, learned_in_batches, learned_more, split, twin_of

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import DESCEND, GATHER, REFRESH, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.noisy_gradient import GRADIENT, GradientNoise, clip_table
from hiddenarm.bandit.noisy_sums import REFRESH_ONE
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.bandit.planning import RESIDUAL_NODES, GradientNumbers
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.bandit.schedule import Run
from hiddenarm.bandit.state import reveal
from hiddenarm.errors import ConfigError, InputError, ProtocolError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.lookup import PolynomialTable
from hiddenarm.mpc.run import Openings
from hiddenarm.privacy.correlated import correlation
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisySums
from hiddenarm.ring.words import Floats, Words, encode
from support import SIGNIFICANCE, evenness, fixed_key, uniformity

EARLY = NoisyGradient(4.0, refresh_every=20, correlated=3)
FRESH = NoisyGradient(4.0, refresh_every=20, correlated=0)


def federation_of(privacy: NoisyGradient = EARLY, **numbers: Any) -> Federation:
    usual: dict[str, Any] = {"arms": 3, "features": (2, 2), "epsilon": 0.1, "norms": (0.9, 0.6)}
    return Federation(**{**usual, "max_interactions": 10_000, **numbers}, privacy=privacy)


def numbers_of(federation: Federation) -> GradientNumbers:
    numbers = federation.numbers
    assert isinstance(numbers, GradientNumbers)
    return numbers


def largest_difference(federation: Federation, lessons: int) -> float:
    """From the twin: each lesson's clip is off by less than a node, and so moves the weights by less than the first
    step times that; a change of the weights moves the clip of later lessons by as much again at most."""
    privacy = federation.privacy
    assert isinstance(privacy, NoisyGradient)
    each = privacy.first_step * federation.joint_norm * 2.0 ** -numbers_of(federation).residual_bits
    return each * lessons * (1 + privacy.first_step * federation.joint_norm**2) ** lessons


def state_of(lockstep: Lockstep) -> dict[str, Floats]:
    return reveal(lockstep.federation.learner.arrays, lockstep.states)


def follow(federation: Federation, steps: int, seed: int) -> tuple[Lockstep, PlainBandit]:
    """Learn singly, and teach the twin the same."""
    lockstep = Lockstep(federation, fixed_key("gradient", seed), online=True)
    twin, rng = twin_of(lockstep), np.random.default_rng(seed)
    for context in contexts_of(federation, steps, seed):
        number, arms = lockstep.decide([part[None] for part in split(federation, context)])
        reward = float(rng.random() < 0.5 + 0.5 * context[0])
        lockstep.learn(number, [reward])
        twin.learn(context, int(arms[0]), reward)
        twin.end_lesson()
    return lockstep, twin


# Beside the plain twin


@pytest.mark.parametrize("privacy", [EARLY, FRESH], ids=["correlated", "fresh"])
@pytest.mark.parametrize("parties", [2, 3])
def test_models_are_those_of_the_twin_with_the_same_noise(parties: int, privacy: NoisyGradient) -> None:
    federation = federation_of(privacy, features=(2,) * parties, norms=(0.6,) * parties)
    lockstep, twin = follow(federation, 130, parties)
    assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < min(0.1, largest_difference(federation, 130))
    assert np.abs(twin.weights).max() > 0.02
    runs = lockstep.meter.runs
    assert sum(count for name, count in runs.items() if name.startswith(REFRESH)) == 6
    assert sum(count for name, count in runs.items() if name.startswith(DESCEND)) == 6
    assert lockstep.ledger.refreshes == 6


def test_without_rounding_models_are_exactly_those_of_the_twin() -> None:
    """Rewards are half, and contexts zero, so that no clip is between two nodes: noise alone moves the weights."""
    federation = federation_of()
    lockstep = Lockstep(federation, fixed_key("exact"))
    twin = twin_of(lockstep)
    for _ in range(130):
        number, arms = lockstep.decide([np.zeros((1, 2)), np.zeros((1, 2))])
        lockstep.learn(number, [0.5])
        twin.learn(np.zeros(4), int(arms[0]), 0.5)
        twin.end_lesson()
    assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < 1e-5
    assert np.abs(twin.weights).max() > 0.02


def test_the_clip_is_right_on_average() -> None:
    """2,000 lessons of one context in as many copies: five standard errors of what a random node can be off by."""
    federation = federation_of(FRESH, arms=2, epsilon=0.0)
    lockstep, copies = Lockstep(federation, fixed_key("average"), replicates=2000, deal_ahead=1), 2000
    context = np.array([0.31, -0.2, 0.4, 0.13])
    for states in lockstep.states:
        states["weights"][:] = 0
    lockstep.states[0]["weights"][:] = encode(np.full((2, 4), 0.37), federation.fraction_bits)
    number, _ = lockstep.decide([np.tile(part, (copies, 1)) for part in split(federation, context)])
    lockstep.learn(number, np.full(copies, 0.7))
    gained = state_of(lockstep)[GRADIENT].sum(axis=1)
    exact = 0.2 - 0.37 * context.sum()
    spacing = 2.0 ** -numbers_of(federation).residual_bits
    clipped = gained @ context / (context @ context)
    assert np.abs(clipped - exact).max() < spacing
    assert abs(clipped.mean() - exact) < 5 * spacing / 2 / sqrt(copies)


def test_batches_are_gathered_too() -> None:
    """The third passes several counts at once: a leaf for each, and one step, which is that of the last."""
    federation = federation_of()
    plan = federation.learner.schedule().lesson(0, 70)
    programs = [action.program for action in plan.actions if isinstance(action, Run)]
    level = EARLY.step_level(3, federation.arms * 4) + 1
    assert programs == [
        ProgramId(GATHER, 70),
        *(ProgramId(REFRESH, position) for position in (1, 2, 3)),
        ProgramId(DESCEND, level),
    ]
    lockstep, twin = learned_in_batches(federation, [15, 7, 70, 1, 64], 4)
    error = np.abs(lockstep.reveal_model()[1][0] - twin.weights).max()
    assert error < min(0.1, largest_difference(federation, 157))


def test_nothing_that_decisions_read_changes_between_refreshes() -> None:
    federation = federation_of(epsilon=0.0)
    lockstep, models = Lockstep(federation, fixed_key("still")), []
    for context in contexts_of(federation, 45, 5):
        number, _ = lockstep.decide([part[None] for part in split(federation, context)])
        lockstep.learn(number, [1.0])
        models.append(lockstep.reveal_model()[1])
    for lesson, weights in enumerate(models):
        expected = np.zeros_like(weights) if lesson < 19 else models[19] if lesson < 39 else models[39]
        assert np.array_equal(weights, expected)
    assert models[19].any()
    assert not np.array_equal(models[19], models[39])


def test_a_run_goes_on_from_a_snapshot_in_the_middle_of_a_block() -> None:
    federation, key = federation_of(), fixed_key("snapshot")

    def learn(lockstep: Lockstep, contexts: Floats) -> None:
        for context in contexts:
            number, _ = lockstep.decide([part[None] for part in split(federation, context)])
            lockstep.learn(number, [1.0])

    contexts = contexts_of(federation, 90, 3)
    through, first, second = (Lockstep(federation, key) for _ in range(3))
    learn(through, contexts)
    learn(first, contexts[:50])
    second.restore(first.snapshot())
    learn(second, contexts[50:])
    assert np.array_equal(through.reveal_model()[1], second.reveal_model()[1])


def test_decisions_are_those_of_the_twin_that_has_the_models_weights() -> None:
    """The twin is given the private weights, so that only rounding of scores is left."""
    federation = federation_of(epsilon=0.2)
    lockstep = Lockstep(federation, fixed_key("decides"), online=True)
    twin, coins = twin_of(lockstep), lockstep.coins(0, 80)
    for step, context in enumerate(contexts_of(federation, 80, 8)):
        twin.weights[:] = lockstep.reveal_model()[1][0]
        number, arms = lockstep.decide([part[None] for part in split(federation, context)])
        assert twin.agrees(int(arms[0]), context, *coins_at(coins, step), federation.score_rounding)
        lockstep.learn(number, [float(step % 2)])


# What a row can change


def check_bounded(table: PolynomialTable) -> None:
    """The table has constants only, none of which is larger than a half."""
    if table.degree:
        raise AssertionError("a table of lines goes beyond its nodes")
    if np.abs(table.polynomials).max() > 0.5:
        raise AssertionError("a row may move the gradient by more than half its norm")


def test_the_table_bounds_the_clip() -> None:
    for federation in (federation_of(), federation_of(NoisyGradient(0.5), max_interactions=1_000_000)):
        check_bounded(clip_table(numbers_of(federation)))
    federation = federation_of(NoisyGradient(0.05), max_interactions=1_000_000)
    finest, coarsest = numbers_of(federation_of()), numbers_of(federation)
    assert finest.residual_bits > coarsest.residual_bits >= 1
    reach = RESIDUAL_NODES / 2 * 2.0**-coarsest.residual_bits
    assert reach > federation.score_bound + 0.5 + 2.0**-coarsest.residual_bits


def check_what_a_row_moves(scale: float) -> None:
    """In integers: a row moves the gradient of one arm, by half its norm at most and nearly that, with weights of this
    scale."""
    federation = federation_of(FRESH, norms=(0.8, 0.6), epsilon=1.0)
    lockstep = Lockstep(federation, fixed_key("bounded", str(scale)), replicates=400, deal_ahead=1)
    rng = np.random.default_rng(3)
    lockstep.states[0]["weights"][:] = encode(rng.normal(size=(400, 3, 4)) * scale, federation.fraction_bits)
    context = np.tile([0.8, 0.0, 0.6, 0.0], (400, 1))
    number, _ = lockstep.decide(split(federation, context))
    lockstep.learn(number, rng.integers(2, size=400).astype(np.float64))
    gained = state_of(lockstep)[GRADIENT]
    lengths = np.sqrt((gained**2).sum(axis=(1, 2)))
    longest = lengths.max() / federation.joint_norm
    assert longest <= 0.5, f"a row moves the gradient by {longest:.3g} of its norm"
    assert lengths.max() / EARLY.sigma_moment(federation.joint_norm) <= EARLY.mu
    assert longest > 0.499
    assert (np.abs(gained).sum(axis=2) > 0).sum(axis=1).max() == 1, "a row moves the gradient of several arms"


@pytest.mark.parametrize("scale", [0.5, 8.0, 1e5])
def test_a_row_moves_the_gradient_by_half_its_norm_at_most_whatever_the_weights_are(scale: float) -> None:
    """Also with weights that no data can bring about, which the table does not reach."""
    check_what_a_row_moves(scale)


def test_a_replaced_row_tells_twice_as_much() -> None:
    privacy = NoisyGradient(1.0)
    assert privacy.sigma_moment(1.0) == pytest.approx(1 / (2 * privacy.mu))
    assert privacy.mu == NoisySums(1.0).mu
    assert privacy.epsilon_replaced() == pytest.approx(2.1229, abs=1e-4)
    opposite = 2 * 0.5 / privacy.sigma_moment(1.0)
    assert opposite == pytest.approx(privacy.replaced * privacy.mu)


def seen_after_a_refresh(draws: int, key: str, *, dropped: bool) -> Floats:
    """The released gradients of one lesson in units of noise: along the context, of the arm that was chosen. The step
    is public, so the weights tell the gradient."""
    privacy = NoisyGradient(1.0, refresh_every=1, correlated=0)
    federation = federation_of(privacy, arms=2, norms=(0.8, 0.6))
    lockstep = Lockstep(federation, fixed_key("likelihood", key), replicates=draws, deal_ahead=1)
    context = np.tile([0.0 if dropped else 0.8, 0.0, 0.0 if dropped else 0.6, 0.0], (draws, 1))
    number, arms = lockstep.decide(split(federation, context))
    lockstep.learn(number, np.ones(draws))
    units, divisor = privacy.step_of(privacy.step_level(1, 8))
    weights = lockstep.reveal_model()[1][np.arange(draws), arms]
    along: Floats = weights @ np.array([0.8, 0.0, 0.6, 0.0]) * divisor / units
    return along / privacy.sigma_moment(federation.joint_norm)


def test_likelihood_ratio_of_one_refresh() -> None:
    """As much as mu says, in 4000 draws: what an adversary learns who knows all but one row."""
    mu = NoisyGradient(1.0).mu
    present = seen_after_a_refresh(4000, "present", dropped=False) * mu - mu**2 / 2
    absent = seen_after_a_refresh(4000, "absent", dropped=True) * mu - mu**2 / 2
    assert abs(present.mean() - 0.028) < 0.015
    assert abs(absent.mean() + 0.028) < 0.015
    assert abs(present.std() - 0.237) < 0.01
    assert abs(absent.std() - 0.237) < 0.01
    assert abs((present > np.quantile(absent, 0.99)).mean() - 0.018) < 0.009


@pytest.mark.parametrize("privacy", [NoisyGradient(1.0, correlated=0), NoisyGradient(1.0), EARLY])
def test_the_noise_that_is_drawn_hides_a_row_of_every_refresh(privacy: NoisyGradient) -> None:
    """As it is drawn, in integers: a row of refresh j moves leaf k by C_kj times half its norm. All leaves of a block
    together tell mu at most, and nearly that of the row that is hidden least."""
    federation = federation_of(privacy)
    positions = range(1, max(1, privacy.correlated) + 1)
    noise = [GradientNoise.of(federation, privacy, position) for position in positions]
    assert {each.fraction_bits for each in noise} == {federation.fraction_bits}
    deviations = np.array([each.moment.deviation for each in noise]) * 2.0 ** (-2 * federation.fraction_bits)
    strategy = np.eye(1) if privacy.correlation is None else privacy.correlation.strategy
    moved = strategy * (federation.joint_norm / 2) / deviations[:, None]
    told = np.sqrt((moved**2).sum(axis=0))
    assert 0.999 * privacy.mu < told.max() <= privacy.mu


# The steps


def test_steps_fall_as_they_should() -> None:
    privacy, weights = NoisyGradient(1.0), 200
    levels = [privacy.step_level(k, weights) for k in range(1, 301)]
    assert levels == sorted(levels)
    for k, level in zip(range(1, 301), levels, strict=True):
        units, divisor = privacy.step_of(level)
        wanted = 1 / (50 + (k - 1) * 200 / weights)
        assert wanted * 2**-0.25 * (1 - 2.0**-5) < units / divisor <= wanted
        assert 64 <= units < 128


def test_the_noise_of_the_weights_is_within_its_bound() -> None:
    """The bound is one that 300 refreshes of 2,000 arms exceed with a chance below one in a million; and not idle."""
    privacy, last = NoisyGradient(1.0), 300
    bound, rng = privacy.weight_noise(last, 1.0, 5, 10), np.random.default_rng(0)
    added = np.zeros((last, 2000, 5))
    leaves: list[Floats] = []
    for refresh in range(last):
        _, position = correlation(64).place(refresh + 1)
        leaves = leaves if position > 1 else []
        width = correlation(64).widths[position - 1] * privacy.sigma_moment(1.0)
        leaves.append(rng.normal(0, width, (2000, 5)))
        back = zip(correlation(64).taken_back[position - 1], leaves[:-1], strict=True)
        added[refresh] = leaves[-1] - sum(units / 1024 * leaf for units, leaf in back)
    steps = [privacy.step_of(privacy.step_level(k + 1, 50)) for k in range(last)]
    moved = np.cumsum(added * np.array([units / divisor for units, divisor in steps])[:, None, None], axis=0)
    assert bound / 10 < np.linalg.norm(moved, axis=2).max() < bound
    of_gradients = privacy.most_moment_noise(last, 1.0, 5, 10)
    assert of_gradients / 10 < np.linalg.norm(np.cumsum(added, axis=0), axis=2).max() < of_gradients


def test_batches_reach_as_far_as_is_allowed_for_and_no_further() -> None:
    """19 lessons and then a batch of 20, which all pull one arm alike and take the first step."""
    privacy = NoisyGradient(1000.0, refresh_every=20, first_step=0.5, correlated=0)
    federation = federation_of(privacy, arms=2, features=(1, 1), norms=(0.8, 0.6), max_batch=20, max_interactions=150)
    lockstep, bounds = Lockstep(federation, fixed_key("pulled")), numbers_of(federation)
    for count in (19, 20):
        contexts = [np.full((1, count, 1), norm) for norm in federation.norms]
        name, _ = lockstep.decide_batch(contexts, eligible=[0])
        lockstep.learn_batch(name, np.ones((1, count)))
    longest = np.linalg.norm(lockstep.reveal_model()[1][0, 0])
    assert 0.85 * bounds.largest_weights < longest <= bounds.largest_weights
    assert 0.9 * bounds.largest_moment < longest / privacy.first_step <= bounds.largest_moment


# What is opened


def test_what_is_opened_is_uniform_and_no_two_words_have_one_mask() -> None:
    """Of two lessons, which end a refresh each. A mask used twice leaves words uniform, but not their difference."""
    seen: dict[str, list[Words]] = {}

    def observe(openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for opening, sent in zip(openings, by_opening, strict=True):
            seen.setdefault(opening.meaning, []).append(np.add.reduce(sent))

    privacy = NoisyGradient(4.0, refresh_every=1, correlated=3)
    federation = federation_of(privacy, arms=2, features=(1, 1))
    lockstep = Lockstep(federation, fixed_key("opened"), replicates=1500, deal_ahead=1, observer=observe)
    columns: list[Words] = []
    for _ in range(2):
        number, _ = lockstep.decide([np.full((1500, 1), 0.3)] * 2)
        seen.clear()
        lockstep.learn(number, np.ones(1500))
        columns += [column for opened in seen.values() for words in opened for column in words.reshape(1500, -1).T]
    found = " ".join(seen)
    for meaning in ("contexts x", "rewards r - 1/2", "weights w", "o x'", "clip(", "r - 1/2 - w'x", "step times"):
        assert meaning in found
    assert "taken back" in found
    assert len(columns) == 40
    p_values = [uniformity(words) for words in columns]
    p_values += [evenness((one - other) >> np.uint64(58), 64) for one, other in combinations(columns, 2)]
    assert min(p_values) * len(p_values) > SIGNIFICANCE


# What it costs, and what is refused


def test_cost() -> None:
    federation = Federation(arms=10, features=(10, 10), epsilon=0.1, privacy=NoisyGradient(1.0))
    layouts = {
        program: layout_of(program_text(federation, program), 2, 1)
        for program in (ProgramId(GATHER), REFRESH_ONE, ProgramId(REFRESH, 64), ProgramId(DESCEND))
    }
    assert [layout.rounds for layout in layouts.values()] == [4, 0, 1, 1]
    assert layouts[ProgramId(GATHER)].bytes_to_each_peer(0) < 3500
    assert layouts[REFRESH_ONE].correction_words == 10 * 20


def test_it_learns_no_more_than_declared() -> None:
    lockstep, _ = learned_in_batches(federation_of(max_interactions=300, max_batch=100), [100, 100, 100], 9)
    with pytest.raises(InputError, match="it learns no more"):
        learned_more(lockstep)


@pytest.mark.parametrize("policy", ["bonus:alpha=0.5,epsilon=0.1", "linucb:alpha=0.25", "thompson:alpha=0.1"])
def test_policies_that_need_inverses_are_refused(policy: str) -> None:
    with pytest.raises(ConfigError, match="does not run with privacy noisy-gradient"):
        federation_of(epsilon=None, policy=parse_policy(policy))


def test_what_cannot_be_is_rejected_when_the_federation_is_made() -> None:
    with pytest.raises(ConfigError, match="suite paper does not run with privacy noisy-gradient"):
        Federation(arms=3, features=(2, 2), epsilon=0.1, suite="paper", privacy=NoisyGradient(1.0))
    with pytest.raises(ConfigError, match="noisy-gradient does not run with arm_features"):
        federation_of(arm_features=ArmTable.of([[0.5], [0.2], [0.1]]))
    with pytest.raises(ConfigError, match="beyond the table that clips"):
        federation_of(NoisyGradient(0.01, first_step=1.0))
    with pytest.raises(ConfigError, match="max_batch 40 is the limit"):
        federation_of(NoisyGradient(1.0), max_batch=40)
    with pytest.raises(ConfigError, match="cannot be drawn with 24 fractional bits"):
        federation_of(NoisyGradient(1e13, correlated=0), fraction_bits=12)
    with pytest.raises(ConfigError, match="cannot be drawn with 24 fractional bits"):  # but for the first leaves
        federation_of(NoisyGradient(7.5e11, first_step=1e-3), fraction_bits=12, max_interactions=300)
    tiny = NoisyGradient(100.0, first_step=1e-6, correlated=0)
    with pytest.raises(ConfigError, match=r"divided by 2\^63, with 29 fractional bits"):
        federation_of(tiny, arms=2, features=(1, 1), norms=(1e-6, 1e-6), fraction_bits=29, max_interactions=10**9)
    with pytest.raises(ConfigError, match="first_step must lie in"):
        NoisyGradient(1.0, first_step=2.0)
    with pytest.raises(ConfigError, match="refresh_every must lie in"):
        NoisyGradient(1.0, refresh_every=0)


def test_there_is_no_program_that_teaches_without_noise() -> None:
    learner = federation_of().learner
    for name in ("learn", "step", "solve", "repair", "unlearn", "invert", "learn again"):
        with pytest.raises(ProtocolError, match="it would teach without noise"):
            learner.program(ProgramId(name))
    with pytest.raises(ProtocolError, match="no program 'refresh' for position 4"):
        learner.program(ProgramId(REFRESH, 4))
    assert learner.schedule().no_unlearning
    with pytest.raises(ProtocolError, match="a repair would have no noise"):
        Lockstep(federation_of(), fixed_key("no repair")).repair()
