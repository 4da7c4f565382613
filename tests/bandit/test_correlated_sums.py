"""Noisy sums with correlated noise: the programs beside the plain twin, the leaves, what is opened, what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from test_noisy_sums import contexts_of, federation_of, follow, learned_in_batches, split, sums_of

from hiddenarm.bandit.catalogue import REFRESH, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.noisy_sums import leaf_names
from hiddenarm.bandit.schedule import Run
from hiddenarm.errors import ConfigError, ProtocolError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.masking import triangle_indices
from hiddenarm.mpc.run import Openings
from hiddenarm.privacy.correlated import correlation
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.ring.words import Floats, Words
from support import SIGNIFICANCE, fixed_key, uniformity

BLOCKS_OF_THREE = NoisySums(4.0, first_refresh=40, refresh_ratio=1.3, correlated=3)


def every_lesson(leaves: int) -> NoisySums:
    """A refresh after each lesson."""
    return NoisySums(4.0, first_refresh=1, refresh_ratio=1.0001, correlated=leaves)


@pytest.mark.parametrize("parties", [2, 3])
def test_models_are_those_of_the_twin_with_the_same_noise(parties: int) -> None:
    """Over three blocks."""
    federation = federation_of(BLOCKS_OF_THREE, features=(2,) * parties, norms=(0.6,) * parties)
    lockstep, twin, agreement = follow(federation, 300, parties)
    assert agreement == 1.0
    assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < 1e-5
    assert np.abs(twin.weights).max() > 0.01
    runs = {name: count for name, count in lockstep.meter.runs.items() if name.startswith(REFRESH)}
    assert runs == {"refresh": 3, "refresh 2": 3, "refresh 3": 2}


def test_a_batch_that_passes_several_counts_draws_a_leaf_for_each() -> None:
    federation = federation_of(BLOCKS_OF_THREE)
    plan = federation.learner.schedule().lesson(0, 100)
    assert [action for action in plan.actions if isinstance(action, Run) and action.program.name == REFRESH] == [
        *(Run(ProgramId(REFRESH, position), 0) for position in (1, 2, 3)),
        Run(ProgramId(REFRESH, 1), 1),
    ]
    lockstep, twin = learned_in_batches(federation, [30, 7, 80, 1, 64], 4)
    assert np.abs(lockstep.reveal_model()[1][0] - twin.weights).max() < 1e-5


def test_addresses_are_new_after_a_resume_within_a_block() -> None:
    """Positions go on where the sums are; an address comes once in an epoch."""
    schedule = federation_of(BLOCKS_OF_THREE).learner.schedule().resumed(0, 0, 50)
    used: list[Run] = []
    for number in range(200):
        plan = schedule.lesson(number, 1)
        used += [action for action in plan.actions if isinstance(action, Run) and action.program.name == REFRESH]
        schedule = plan.after
    assert [run.program.count for run in used] == [2, 3, 1, 2, 3, 1, 2]
    assert len(set(used)) == len(used)


def taught_nothing(lockstep: Lockstep, lessons: int) -> list[dict[str, Floats]]:
    """The sums after lessons of contexts of zero: noise alone."""
    copies, seen = lockstep.replicates, []
    for _ in range(lessons):
        number, _ = lockstep.decide([np.zeros((copies, 2)), np.zeros((copies, 2))])
        lockstep.learn(number, np.zeros(copies))
        seen.append(sums_of(lockstep))
    return seen


def test_the_sums_have_the_noise_of_the_audit_but_for_rounding() -> None:
    federation = federation_of(every_lesson(4))
    lockstep = Lockstep(federation, fixed_key("audit"), replicates=2)
    rows, columns = triangle_indices(federation.dimension)
    before = sums_of(lockstep)
    for refresh, after in enumerate(taught_nothing(lockstep, 9)):
        grams, moments = lockstep.noise(refresh)
        unit = 2.0 ** (-2 * federation.fraction_bits)
        assert np.abs(after["grams"] - before["grams"] - grams[..., rows, columns]).max() <= 1.01 * unit
        assert np.abs(after["moments"] - before["moments"] - moments).max() <= 1.01 * unit
        before = after


def test_noise_in_the_sums_spreads_as_planned() -> None:
    """Two blocks. 36,000 samples of b and their variance, in a seeded run; five standard errors."""
    federation = federation_of(every_lesson(4))
    lockstep, privacy = Lockstep(federation, fixed_key("spread"), replicates=3000), every_lesson(4)
    sigma = privacy.sigma_moment(federation.joint_norm)
    for refresh, sums in enumerate(taught_nothing(lockstep, 6)):
        moments = sums["moments"]
        expected = (privacy.spread(refresh + 1) * sigma) ** 2
        assert abs(moments.var() / expected - 1) < 5 * np.sqrt(2 / moments.size)


def test_leaves_explain_what_is_released() -> None:
    """C times what is released is the leaves, as they are kept: the mechanism is that of the proof."""
    federation = federation_of(every_lesson(4))
    lockstep = Lockstep(federation, fixed_key("leaves"), replicates=2)
    seen = taught_nothing(lockstep, 4)
    released = np.diff([np.zeros_like(seen[0]["moments"]), *(sums["moments"] for sums in seen)], axis=0)
    matrix = np.eye(4)
    for k, row in enumerate(correlation(4).taken_back):
        matrix[k, :k] = -np.array(row) / 1024
    leaves = np.tensordot(np.linalg.inv(matrix), released, axes=1)
    for position in range(1, 4):
        assert np.abs(leaves[position - 1] - seen[-1][leaf_names(position)[1]]).max() < 1e-10


def test_what_is_opened_of_the_leaves_is_uniform() -> None:
    seen: list[Words] = []

    def observe(openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for opening, sent in zip(openings, by_opening, strict=True):
            if "taken back" in opening.meaning:
                seen.append(np.add.reduce(sent))

    lockstep = Lockstep(federation_of(every_lesson(3)), fixed_key("opened"), replicates=1500, observer=observe)
    taught_nothing(lockstep, 3)
    assert len(seen) == 4  # of W and of b, at the second and at the third refresh
    for words in seen:
        assert uniformity(words.reshape(1500, -1)[:, 0]) > SIGNIFICANCE


def test_a_run_goes_on_from_a_snapshot_in_the_middle_of_a_block() -> None:
    federation, key = federation_of(BLOCKS_OF_THREE), fixed_key("snapshot")

    def learn(lockstep: Lockstep, contexts: Floats) -> None:
        for context in contexts:
            number, _ = lockstep.decide([part[None] for part in split(federation, context)])
            lockstep.learn(number, [1.0])

    contexts = contexts_of(federation, 100, 3)
    through, first, second = (Lockstep(federation, key) for _ in range(3))
    learn(through, contexts)
    learn(first, contexts[:60])
    second.restore(first.snapshot())
    learn(second, contexts[60:])
    for one, other in zip(through.reveal_model(), second.reveal_model(), strict=True):
        assert np.array_equal(one, other)


def test_a_refresh_takes_a_round_more_and_as_many_words_again() -> None:
    federation = Federation(arms=10, features=(10, 10), epsilon=0.1, privacy=NoisySums(1.0, correlated=19))
    first, last = (layout_of(program_text(federation, ProgramId(REFRESH, k)), 2, 1) for k in (1, 19))
    assert (first.rounds, last.rounds) == (0, 1)
    assert last.bytes_to_each_peer(0) == 8 * 10 * (210 + 20)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no program 'refresh' for position 4"):
        federation_of(BLOCKS_OF_THREE).learner.program(ProgramId(REFRESH, 4))
    with pytest.raises(ProtocolError, match="no program 'refresh' for position 2"):
        federation_of().learner.program(ProgramId(REFRESH, 2))
    with pytest.raises(ConfigError, match=r"correlated noise of .* does not fit"):
        federation_of(NoisySums(0.02, correlated=19), norms=(1.0, 1.0), max_interactions=2000)
    with pytest.raises(ConfigError, match="max_batch 8 is the limit"):
        federation_of(NoisySums(4.0, correlated=19), max_batch=8)
