"""Noisy sums: the schedule, the programs beside the plain twin with the same noise, and what the noise hides."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from trials import Trials, check_uniform_columns, columns_of, dealt_words_noted

from hiddenarm.bandit.audit import audit_noise, plain_twin
from hiddenarm.bandit.catalogue import DECIDE_ONE, GATHER, REFRESH, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import opened
from hiddenarm.bandit.lockstep import Lockstep, _Supply
from hiddenarm.bandit.noisy_sums import REFRESH_ONE, NoisySchedule, SumsNoise, noisy_sums
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.bandit.ridge import TEACHES_WITHOUT_NOISE
from hiddenarm.bandit.schedule import BeginSecond, LessonPlan, Run, TakeSecond
from hiddenarm.bandit.state import reveal
from hiddenarm.errors import ConfigError, InputError, ProtocolError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import triangle_indices
from hiddenarm.mpc.material import Seeds
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums
from hiddenarm.ring.words import Floats
from support import SIGNIFICANCE, fixed_key, suggested

EARLY = NoisySums(4.0, first_refresh=40, refresh_ratio=1.5)


def federation_of(privacy: NoisySums = EARLY, **numbers: Any) -> Federation:
    usual: dict[str, Any] = {"arms": 3, "features": (2, 2), "epsilon": 0.1, "norms": (0.9, 0.6)}
    return Federation(**{**usual, **numbers}, privacy=privacy)


def contexts_of(federation: Federation, count: int, seed: int) -> Floats:
    """Contexts within the norms of all parties."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(count, size)) for size in federation.features]
    scaled = [
        part / np.linalg.norm(part, axis=1, keepdims=True) * norm
        for part, norm in zip(parts, federation.norms, strict=True)
    ]
    return np.concatenate(scaled, axis=1)


def split(federation: Federation, contexts: Floats) -> list[Floats]:
    return np.split(contexts, np.cumsum(federation.features)[:-1], axis=-1)


def twin_of(lockstep: Lockstep, replicate: int = 0) -> PlainBandit:
    def noise(refresh: int) -> tuple[Floats, Floats]:
        grams, moments = lockstep.noise(refresh)
        return grams[replicate], moments[replicate]

    return plain_twin(lockstep.federation, noise)


def sums_of(lockstep: Lockstep) -> dict[str, Floats]:
    """The sums in the clear: grams as upper triangles."""
    return reveal(lockstep.federation.learner.arrays, lockstep.states)


# The schedule


def planned(schedule: Any, count: int, lessons: int) -> tuple[list[LessonPlan], NoisySchedule]:
    plans = []
    for number in range(lessons):
        plans.append(schedule.lesson(number, count))
        schedule = plans[-1].after
    return plans, schedule


def test_single_lessons_are_only_gathered_until_a_count_is_reached() -> None:
    schedule = federation_of().learner.schedule()
    plans, after = planned(schedule, 1, 150)
    refreshing = [number + 1 for number, plan in enumerate(plans) if plan.refreshes]
    assert refreshing == [EARLY.refresh_at(k) for k in range(1, 5)] == [40, 60, 90, 135]
    for number, plan in enumerate(plans):
        assert plan.actions[0] == Run(ProgramId(GATHER), number)
        assert len(plan.actions) == 1 or plan.refreshes
        assert not plan.kept
        assert not plan.forgotten
    assert after.gathered == 150


def test_a_refresh_draws_noise_once_and_solves_from_a_public_start() -> None:
    federation = federation_of()
    plans, _ = planned(federation.learner.schedule(), 1, 60)
    used: set[tuple[ProgramId, int]] = set()
    for refresh, plan in enumerate((plans[39], plans[59])):
        gather, noise, begin, *runs, take = plan.actions
        assert noise == Run(REFRESH_ONE, refresh)
        assert isinstance(begin, BeginSecond)
        assert isinstance(take, TakeSecond)
        shift = EARLY.shift(refresh + 1, federation.ridge, federation.joint_norm, 4, 3)
        assert begin.shifts == (("grams", shift),)
        assert begin.starts["weights"] == 0
        largest = EARLY.refresh_at(refresh + 1) * federation.joint_norm**2 + 2 * shift
        assert begin.starts["inverses"] == pytest.approx(2 / (federation.ridge + 1.01 * largest))
        assert not begin.runs, "the lesson waits for all of them"
        for run in (gather, noise, *runs):
            assert isinstance(run, Run)
            assert (run.program, run.step) not in used
            used.add((run.program, run.step))


def test_a_batch_that_passes_several_counts_has_one_refresh_with_the_last_number() -> None:
    federation = federation_of()
    plan = federation.learner.schedule().lesson(0, 100)
    assert [action for action in plan.actions if isinstance(action, Run) and action.program.name == REFRESH] == [
        Run(REFRESH_ONE, 0)
    ]
    (begin,) = [action for action in plan.actions if isinstance(action, BeginSecond)]
    assert begin.shifts[0][1] == EARLY.shift(3, federation.ridge, federation.joint_norm, 4, 3)


def test_a_schedule_goes_on_in_another_epoch_and_from_a_snapshot() -> None:
    schedule = federation_of().learner.schedule()
    _, after = planned(schedule, 1, 70)
    assert schedule.recounted(after.counted()) == after
    resumed = schedule.resumed(70, 0, 70)
    assert resumed.lesson(70, 1).actions == (Run(ProgramId(GATHER), 0),)
    _, later = planned(schedule.resumed(0, 0, 89), 1, 1)
    assert later.refreshes == 1
    with pytest.raises(ProtocolError, match="changes at refreshes only"):
        after.repair(70)


def test_no_program_teaches_without_noise() -> None:
    learner = federation_of().learner
    assert not learner.has_step
    assert learner.online_programs == learner.single_programs == (DECIDE_ONE, ProgramId(GATHER))
    for name in TEACHES_WITHOUT_NOISE:
        with pytest.raises(ProtocolError, match="it would teach without noise"):
            learner.program(ProgramId(name))
    with pytest.raises(ProtocolError, match="there is no program 'refresh'"):
        Federation(arms=3, features=(2, 2), epsilon=0.1).learner.program(REFRESH_ONE)
    with pytest.raises(ProtocolError, match="changes at refreshes only"):
        Lockstep(federation_of(), fixed_key("no repair")).repair()


# Beside the plain twin


def follow(federation: Federation, steps: int, seed: int) -> tuple[Lockstep, PlainBandit, float]:
    """Learn singly, and teach the twin the same; how often it agrees."""
    lockstep = Lockstep(federation, fixed_key("noisy", seed), online=True)
    twin, coins = twin_of(lockstep), lockstep.coins(0, steps)
    rng, agreed = np.random.default_rng(seed), 0
    for step, context in enumerate(contexts_of(federation, steps, seed)):
        number, arms = lockstep.decide([part[None] for part in split(federation, context)])
        arm, reward = int(arms[0]), float(rng.random() < 0.5 + 0.5 * context[0])
        agreed += twin.agrees(arm, context, *coins_at(coins, step), federation.score_rounding)
        lockstep.learn(number, [reward])
        twin.learn(context, arm, reward)
        twin.end_lesson()
    return lockstep, twin, agreed / steps


@pytest.mark.parametrize("parties", [2, 3])
def test_models_are_those_of_the_twin_with_the_same_noise(parties: int) -> None:
    federation = federation_of(features=(2,) * parties, norms=(0.6,) * parties)
    lockstep, twin, agreement = follow(federation, 140, parties)
    assert agreement == 1.0
    inverses, weights = lockstep.reveal_model()
    rows, columns = triangle_indices(federation.dimension)
    assert np.abs(weights[0] - twin.weights).max() < 1e-5
    assert np.abs(inverses[0] - twin.inverses[:, rows, columns]).max() < 1e-6
    assert np.abs(twin.weights).max() > 0.01
    assert lockstep.meter.runs[REFRESH] == 4


def test_sums_hold_lessons_and_noise_and_no_ridge() -> None:
    federation = federation_of()
    lockstep, twin, _ = follow(federation, 70, 1)
    found = sums_of(lockstep)
    rows, columns = triangle_indices(federation.dimension)
    assert np.abs(found["grams"][0] - twin.arrays["grams"][:, rows, columns]).max() < 1e-3
    assert np.abs(found["moments"][0] - twin.arrays["moments"]).max() < 1e-3
    noise = sum(lockstep.noise(refresh)[0][0] for refresh in range(2))
    assert np.trace(twin.arrays["grams"] - noise, axis1=1, axis2=2).sum() == pytest.approx(70 * (0.81 + 0.36))


def test_nothing_that_decisions_read_changes_between_refreshes() -> None:
    federation = federation_of(epsilon=0.0)
    lockstep = Lockstep(federation, fixed_key("still"))
    before = lockstep.reveal_model()
    models = []
    for context in contexts_of(federation, 70, 5):
        number, _ = lockstep.decide([part[None] for part in split(federation, context)])
        lockstep.learn(number, [1.0])
        models.append(lockstep.reveal_model())
    for lesson, (inverses, weights) in enumerate(models):
        expected = before if lesson < 39 else models[39] if lesson < 59 else models[59]
        assert np.array_equal(inverses, expected[0])
        assert np.array_equal(weights, expected[1])
    assert not before[1].any()
    assert models[39][1].any()


def test_arms_are_uniform_before_the_first_refresh() -> None:
    federation = federation_of(epsilon=0.0)
    lockstep = Lockstep(federation, fixed_key("uniform"), replicates=900)
    context = np.repeat(contexts_of(federation, 1, 2), 900, axis=0)
    _, arms = lockstep.decide(split(federation, context))
    assert stats.chisquare(np.bincount(arms, minlength=3)).pvalue > SIGNIFICANCE


def learned_in_batches(federation: Federation, batches: list[int], seed: int) -> tuple[Lockstep, PlainBandit]:
    lockstep = Lockstep(federation, fixed_key("batches", seed))
    twin, rng = twin_of(lockstep), np.random.default_rng(seed)
    for count in batches:
        contexts = contexts_of(federation, count, int(rng.integers(1 << 30)))
        name, arms = lockstep.decide_batch(split(federation, contexts[None]))
        rewards = (rng.random(count) < 0.5 + 0.5 * contexts[:, 0]).astype(np.float64)
        lockstep.learn_batch(name, rewards[None])
        for context, arm, reward in zip(contexts, arms[0].tolist(), rewards.tolist(), strict=True):
            twin.learn(context, arm, reward)
        twin.end_lesson()
    return lockstep, twin


def test_batches_are_gathered_too() -> None:
    lockstep, twin = learned_in_batches(federation_of(), [30, 7, 80, 1, 64], 4)
    assert lockstep.meter.runs[REFRESH] == 2
    assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < 1e-5


@pytest.mark.parametrize(
    ("total_epsilon", "ridge", "norms"), [(0.05, 1.0, (1.0, 1.0)), (8.0, 0.1, (0.5, 0.2)), (1.0, 4.0, (2.0, 2.0))]
)
def test_models_hold_at_the_ends_of_the_range(total_epsilon: float, ridge: float, norms: tuple[float, float]) -> None:
    """Much noise and little, a small ridge, large contexts, and as many interactions as are declared."""
    privacy = NoisySums(total_epsilon, first_refresh=500)
    federation = federation_of(privacy, ridge=ridge, norms=norms, max_interactions=80_000, max_batch=4000)
    lockstep, twin = learned_in_batches(federation, [500, *[4000] * 19, 3500], 9)
    assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < 1e-4
    assert lockstep.interactions_learned == 80_000
    with pytest.raises(InputError, match="it learns no more"):
        learned_more(lockstep)


def learned_more(lockstep: Lockstep) -> None:
    contexts = contexts_of(lockstep.federation, 1, 0)
    number, _ = lockstep.decide(split(lockstep.federation, contexts))
    lockstep.learn(number, [1.0])


def test_a_run_goes_on_from_a_snapshot() -> None:
    federation, key = federation_of(), fixed_key("snapshot")

    def learn(lockstep: Lockstep, contexts: Floats) -> None:
        for context in contexts:
            number, _ = lockstep.decide([part[None] for part in split(federation, context)])
            lockstep.learn(number, [1.0])

    contexts = contexts_of(federation, 100, 3)
    through, first, second = (Lockstep(federation, key) for _ in range(3))
    learn(through, contexts)
    learn(first, contexts[:50])
    second.restore(first.snapshot())
    learn(second, contexts[50:])
    for one, other in zip(through.reveal_model(), second.reveal_model(), strict=True):
        assert np.array_equal(one, other)


# The noise


def one_lesson(federation: Federation, replicates: int, key: str, *, dropped: bool) -> tuple[Lockstep, NDArray[Any]]:
    """A lesson of a context of norm 1 and reward 1, or of one that adds nothing, in every replicate; and the arms."""
    lockstep = Lockstep(federation, fixed_key("refresh", key), replicates=replicates, deal_ahead=1)
    context = np.tile([0.0 if dropped else 0.8, 0.0, 0.0 if dropped else 0.6, 0.0], (replicates, 1))
    number, arms = lockstep.decide(split(federation, context))
    lockstep.learn(number, np.ones(replicates))
    return lockstep, arms


def in_units_of_noise(federation: Federation, lockstep: Lockstep, arms: NDArray[Any]) -> Floats:
    """The sums of the arm of each replicate, each entry over the deviation of its noise."""
    privacy = noisy_sums(federation)
    assert privacy is not None
    noise = SumsNoise.of(federation, privacy)
    unit = 2.0 ** (2 * federation.fraction_bits)
    rows, columns = triangle_indices(federation.dimension)
    found, each = sums_of(lockstep), np.arange(len(arms))
    deviations = np.where(rows == columns, noise.diagonal.deviation, noise.above.deviation) / unit
    parts = found["grams"][each, arms] / deviations, found["moments"][each, arms] * unit / noise.moment.deviation
    return np.concatenate(parts, axis=1)


def test_sensitivity_in_integers() -> None:
    """(x x')^2 / variance over all entries of the upper triangle, and |(r - 1/2) x|^2 / sb^2, come to mu^2."""
    privacy = NoisySums(1.0)
    federation = federation_of(privacy, norms=(0.8, 0.6))
    lockstep, arms = one_lesson(federation, 1, "sensitivity", dropped=False)
    length = float((in_units_of_noise(federation, lockstep, arms) ** 2).sum())
    assert abs(length - privacy.mu**2) < 1e-6
    assert length <= privacy.mu**2


def test_likelihood_ratio_of_one_refresh() -> None:
    """What an adversary learns who knows all but one row and sees the noisy sums: as much as mu says, in 4000 draws."""
    draws, privacy = 4000, NoisySums(1.0, first_refresh=1)
    federation = federation_of(privacy, arms=2, norms=(0.8, 0.6))
    quiet = federation_of(NoisySums(1.0), arms=2, norms=(0.8, 0.6))
    signal = in_units_of_noise(quiet, *one_lesson(quiet, 1, "signal", dropped=False))[0]

    def ratios(key: str, *, dropped: bool) -> Floats:
        seen = in_units_of_noise(federation, *one_lesson(federation, draws, key, dropped=dropped))
        found: Floats = seen @ signal - signal @ signal / 2
        return found

    present, absent = ratios("present", dropped=False), ratios("absent", dropped=True)
    assert abs(present.mean() - 0.028) < 0.015
    assert abs(absent.mean() + 0.028) < 0.015
    assert abs(present.std() - 0.237) < 0.01
    assert abs(absent.std() - 0.237) < 0.01
    assert abs((present > np.quantile(absent, 0.99)).mean() - 0.018) < 0.009


def test_noise_is_that_of_the_audit_and_new_at_every_refresh() -> None:
    federation = federation_of(NoisySums(4.0, first_refresh=1, refresh_ratio=1.0001))
    lockstep = Lockstep(federation, fixed_key("audit"), replicates=2)
    rows, columns = triangle_indices(federation.dimension)
    before, seen = sums_of(lockstep), []
    for _ in range(3):
        number, _ = lockstep.decide([np.zeros((2, 2)), np.zeros((2, 2))])
        lockstep.learn(number, [0.0, 0.0])
        after = sums_of(lockstep)
        seen.append({name: after[name] - before[name] for name in ("grams", "moments")})
        before = after
    for refresh, drawn in enumerate(seen):
        grams, moments = audit_noise(Seeds(fixed_key("audit")), federation, refresh, replicates=2)
        assert np.array_equal(grams[..., rows, columns], drawn["grams"])
        assert np.array_equal(moments, drawn["moments"])
    values = np.concatenate([part.ravel() for drawn in seen for part in drawn.values()])
    assert len(np.unique(values)) == values.size
    with pytest.raises(ConfigError, match="privacy none has no noise"):
        audit_noise(Seeds(bytes(32)), Federation(arms=3, features=(2, 2), epsilon=0.1), 0)


@pytest.mark.parametrize("parties", [2, 3])
def test_no_coalition_of_parties_knows_anything_of_the_noise(parties: int) -> None:
    """Shares of the noise are uniform at all parties but one together, whichever that is, and what they hold does not
    go with the noise: neither with its sign nor with its last bit."""
    federation = federation_of(features=(1,) * parties, norms=(0.5,) * parties, arms=2)
    count, arrays = 1000, federation.learner.arrays
    supply = _Supply(
        federation, federation.policy.exploration(), REFRESH_ONE, Seeds(fixed_key("noise", parties)), 1, ahead=count
    )
    trials, drawn, shares = Trials(parties), [], []
    zeros = [np.zeros((1, *array.shape), np.uint64) for array in arrays if array.name in supply.program.reads]
    with dealt_words_noted(trials):
        for step in range(count):
            trials.start(REFRESH)
            results = run_lockstep(supply.begin([zeros] * parties, step))
            drawn.append(np.concatenate([opened(both).ravel() for both in zip(*results, strict=True)]))
            shares.append([np.concatenate([part.share.ravel() for part in own]) for own in results])
    check_uniform_columns(trials.corrections_of(REFRESH))
    noise, held = np.stack(drawn), np.array(shares)
    for missing in range(parties):
        others = [party for party in range(parties) if party != missing]
        check_uniform_columns(columns_of("the missing share", held[:, missing], 64))
        for known in (held[:, others].sum(axis=1), *(held[:, party] for party in others)):
            for part in (noise >> np.uint64(63), noise & np.uint64(1)):
                for bit in (63, 40, 0):
                    check_independent(part, known >> np.uint64(bit) & np.uint64(1))


def check_independent(bits: NDArray[np.uint64], others: NDArray[np.uint64]) -> None:
    alike = (bits == others).sum(axis=0)
    p_values = [stats.binomtest(int(same), len(bits)).pvalue for same in alike]
    assert min(p_values) * len(p_values) * 72 > SIGNIFICANCE


def test_variances_are_those_of_the_mechanism() -> None:
    federation = federation_of(NoisySums(1.0, first_refresh=1), arms=2)
    lockstep, _ = one_lesson(federation, 3000, "variance", dropped=True)
    found, privacy = sums_of(lockstep), federation.privacy
    assert isinstance(privacy, NoisySums)
    rows, columns = triangle_indices(federation.dimension)
    gram, moment = privacy.sigma_gram(federation.joint_norm), privacy.sigma_moment(federation.joint_norm)
    for part, deviation in (
        (found["grams"][..., rows == columns], gram),
        (found["grams"][..., rows != columns], gram / sqrt(2)),
        (found["moments"], moment),
    ):
        assert abs(part.var() / deviation**2 - 1) < 5 * sqrt(2 / part.size)


# What it costs, and what is rejected


def test_rounds() -> None:
    federation = Federation(arms=10, features=(10, 10), epsilon=0.1, privacy=NoisySums(1.0))
    gather, refresh = (
        layout_of(program_text(federation, program), 2, 1) for program in (ProgramId(GATHER), REFRESH_ONE)
    )
    assert gather.rounds == 2
    assert refresh.rounds == 0
    assert refresh.correction_words == 10 * (210 + 20)
    solve = federation.learner.schedule().resumed(0, 0, 60_000 - 1)
    for at in (499, 43_186):
        plan = solve.resumed(0, 0, at).lesson(0, 1)
        runs = [action.program for action in plan.actions[2:] if isinstance(action, Run)]
        rounds = sum(layout_of(program_text(federation, program), 2, 1).rounds for program in runs)
        assert 39 <= rounds <= 75
    assert gather.bytes_to_each_peer(0) < 2400


def test_centring_takes_half_off_the_reward() -> None:
    federation = federation_of()
    lockstep = Lockstep(federation, fixed_key("centred"), replicates=3)
    number, arms = lockstep.decide([np.full((3, 2), 0.25), np.full((3, 2), -0.25)])
    lockstep.learn(number, [0.0, 0.5, 1.0])
    found = sums_of(lockstep)["moments"][np.arange(3), arms]
    assert np.allclose(found, np.outer([-0.5, 0.0, 0.5], [0.25, 0.25, -0.25, -0.25]))


def test_what_cannot_be_is_rejected_when_the_federation_is_made() -> None:
    with pytest.raises(ConfigError, match="suite paper does not run with privacy noisy-sums"):
        Federation(arms=3, features=(2, 2), epsilon=0.1, suite="paper", privacy=NoisySums(1.0))
    with pytest.raises(ConfigError, match="cannot be drawn with 40 fractional bits"):
        federation_of(NoisySums(1e6), norms=(3e-5, 3e-5))
    with pytest.raises(ConfigError, match="the limit is 62"):
        federation_of(NoisySums(1e-4), norms=(100.0, 100.0), max_interactions=100)
    Federation(arms=3, features=(2, 2), epsilon=0.1, privacy=ActionBudget(100.0))


def test_the_error_says_what_would_fit() -> None:
    with pytest.raises(ConfigError, match="What would fit") as raised:
        federation_of(NoisySums(0.01), norms=(3.0, 3.0), max_interactions=900_000)
    changes = suggested(str(raised.value))
    assert changes
    for change in changes:
        federation_of(NoisySums(0.01), **{"norms": (3.0, 3.0), "max_interactions": 900_000, **change})


def test_scores_that_are_compared_have_room_for_noise() -> None:
    """More noise, larger scores, more bits to compare."""
    much, little = federation_of(NoisySums(0.05)), federation_of(NoisySums(8.0))
    assert much.score_bound > 4 * little.score_bound
    assert much.comparison_bits > little.comparison_bits or much.key_fraction_bits < little.key_fraction_bits
