"""The checks of the suite that mutants are put to: each raises when it finds something, for a seed where there are
several worlds to look at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import test_arm_features
import test_batched_lessons
import test_clients
import test_features
import test_handouts
import test_hard_data
import test_masking
import test_noisy_gradient
import test_old_backups
import test_released_arm
import test_simulated_catalogues
import test_simulated_changes
import test_simulated_expiry
import test_simulated_faults
import test_simulated_noise
import test_simulated_slots
import test_simulated_subsets
import test_simulated_values
import test_views
from application import simulate, simulate_memory
from joint_views import (
    check_joint_views,
    check_masks_are_new,
    check_no_order_is_known,
    check_words_are_independent,
    run_decisions,
    worlds_of,
)
from trials import (
    EXTREMES,
    ZEROS,
    check_independent_of_arm,
    check_independent_of_exploring,
    check_no_mask_is_known,
    check_same_distribution,
    check_uniform,
    run_program,
    run_trials,
)
from unlearning_application import simulate_unlearning
from world import Faults

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import DECIDE, LEARN, STEP, ProgramId
from hiddenarm.errors import FrameError
from hiddenarm.net.frames import Frame
from hiddenarm.roles.messages import REWARDER, Kind
from hiddenarm.roles.party import Party
from support import FORMS

TRIES = 60
"""Worlds among which a mutant must be noticed."""
UNBROKEN = 3
"""Worlds in which the unbroken system must pass."""


@dataclass(frozen=True)
class Check:
    """What is run for each seed."""

    name: str
    run: Callable[[int], object]
    seeds: range = range(1)
    network: bool = False
    """Sockets are made for it."""


def worlds(crash: float, first: int = 0) -> Check:
    """Simulated worlds with so many crashes."""
    name = f"worlds with {crash} crashes an event"
    return Check(name, lambda seed: simulate(seed, Faults(crash=crash)), range(first, first + TRIES))


def _prepared_again(_: int) -> None:
    """The rewarder says PREPARED twice: the epoch that is open goes on."""
    world = test_old_backups.opened_world()
    node = world.nodes[world.parties[0]]
    party, disk = node.machine, node.disk
    assert isinstance(party, Party)
    assert disk is not None
    before = party._epoch
    with suppress(FrameError):
        world.run(node, lambda: party.on_frame(REWARDER, Frame(Kind.PREPARED)))
    while disk.pending:
        world.run(node, disk.sync)
    assert party._epoch is before, "the epoch began again, under the same seed"


def _lost_decisions(_: int) -> None:
    """A party comes back without a decision of which it has told the actor."""
    with pytest.MonkeyPatch.context() as patch:
        test_old_backups.test_a_party_that_lacks_a_decision_it_told_the_actor_is_refused(patch, actor_crashes=False)


def _last_words(_: int) -> None:
    with TemporaryDirectory() as folder:
        test_clients.check_last_words(Path(folder))


def _known_masks(programs: tuple[str, ...]) -> None:
    trials = run_trials(EXTREMES, "mutants", count=64, programs=programs)
    for coalition in ({0}, {1}):
        check_no_mask_is_known(trials, coalition)


def uniform_words(program: ProgramId) -> Check:
    """All words of a program alone are uniform, and no word goes with the arm or tells secrets apart."""

    def run(_: int) -> None:
        zeros, extremes = (run_program(program, secrets, "mutants", count=400) for secrets in (ZEROS, EXTREMES))
        check_uniform(extremes)
        check_independent_of_arm(extremes)
        check_same_distribution(zeros, extremes)

    return Check(f"uniform trials of {program.label}", run)


def no_known_mask(program: ProgramId) -> Check:
    """No word of a program alone, less what a party was dealt, is a secret of the other."""

    def run(_: int) -> None:
        for party in range(2):
            trials = run_program(program, EXTREMES, "mutants", count=64, holder=1 - party)
            check_no_mask_is_known(trials, {party})

    return Check(f"no known mask in {program.label}", run)


def uniform_with_features(programs: tuple[str, ...]) -> Check:
    """All words that anybody sees are uniform where arms have features, one of them a model of its own."""

    def run(_: int) -> None:
        table = ArmTable.of(np.eye(test_views.ARMS, 3) * 0.6 + 0.2).with_own([1])
        views, _bandit = test_views.watched("extremes", 1.0, "mutants", programs=programs, table=table, replicates=400)
        test_views.check_uniform(views)

    return Check(f"uniform words of {' and '.join(programs)}, features of arms", run)


def joint_views(form: str) -> Check:
    """Actor and a party learn the arm of decisions between three arms, and nothing else."""
    arm = 1

    def run(_: int) -> None:
        federation = FORMS[form](arms=3, features=(1, 1), epsilon=0.2)
        worlds = worlds_of(federation, arm)
        for party in range(2):
            decisions = [
                run_decisions(federation, world, arm, "mutants", contexts=1, count=400, other=1 - party)
                for world in worlds
            ]
            check_joint_views(decisions, {party})
            check_words_are_independent(decisions[0], {party})
            if decisions[0].returned:
                check_masks_are_new(decisions[0])
            else:
                check_no_order_is_known(decisions[0], worlds[0].scores(2), {party})

    return Check(f"joint views of decisions, {form}", run)


THREE_ROUNDS, FOUR_ROUNDS, SHUFFLED = map(joint_views, FORMS)
LOCKSTEP_WORDS = Check("words in one process", lambda _: test_handouts.mixed_lessons())
ROLES_WORDS = Check("words of the roles", lambda _: test_batched_lessons.all_kinds_of_lessons())
CALM_WORLDS = worlds(0.003)
UNLEARNING_WORLDS = Check("worlds that unlearn", simulate_unlearning, range(TRIES))
MEMORY_WORLDS = Check("worlds in memory", simulate_memory, range(TRIES))
UNIFORM = Check("uniform trials", lambda _: check_uniform(run_trials(EXTREMES, "mutants", count=400)))
NOT_TOLD_TO_EXPLORE = Check(
    "exploring in trials", lambda _: check_independent_of_exploring(run_trials(EXTREMES, "mutants", count=400))
)
UNIFORM_STEP = Check(
    "uniform trials of step", lambda _: check_uniform(run_trials(EXTREMES, "mutants", count=400, programs=(STEP,)))
)
NO_KNOWN_MASK = Check("no known mask", lambda _: _known_masks((DECIDE, LEARN)))
NO_KNOWN_MASK_IN_STEP = Check("no known mask in step", lambda _: _known_masks((STEP,)))
TIES = Check(
    "ties",
    lambda _: test_released_arm.test_ties_are_broken_evenly([0.0] * 4, [0, 1, 2, 3], 0.0, "three rounds"),
)
SAME_FEATURES = Check(
    "the same features",
    lambda _: test_arm_features.test_arms_with_the_same_features_win_alike(parties=2, row=0.4, online=False),
)
SUBSET_WORLDS = Check(
    "worlds with some of many arms",
    lambda seed: test_simulated_subsets.run(seed, test_simulated_subsets.MODELS[0]),
    range(TRIES),
)
VALUES_WORLDS = Check(
    "worlds that open values",
    lambda seed: test_simulated_values.simulate(seed, Faults(crash=0.008, cut=0.002)),
    range(TRIES),
)
CHANGING_WORLDS = Check("worlds that change", test_simulated_changes.run, range(TRIES))
GROWING_WORLDS = Check(
    "worlds that get more arms than are compared pair by pair",
    lambda seed: test_simulated_changes.run(seed, versions=test_simulated_changes.versions_of(48)[:3]),
    range(TRIES),
)
CATALOGUE_WORLDS = Check("worlds whose catalogue changes", test_simulated_catalogues.run, range(TRIES))
SLOTTED_WORLDS = Check("worlds with reward slots", test_simulated_slots.run, range(TRIES))
EXPIRING_WORLDS = Check("worlds in which decisions expire", test_simulated_expiry.run, range(TRIES))
NOISY_WORLDS = Check(
    "worlds with noisy sums",
    lambda seed: test_simulated_noise.simulate(seed, Faults(crash=0.006, cut=0.002)),
    range(TRIES),
)


def correlated_worlds(*, gradient: bool) -> Check:
    """Worlds without crashes, whose noise is correlated."""
    return Check(
        f"correlated noise of {'gradients' if gradient else 'sums'}",
        lambda seed: test_simulated_noise.simulate(seed, Faults(crash=0, cut=0), correlated=3, gradient=gradient),
        range(1, 4),
    )


MASKS_DIFFER = Check("two masks", lambda _: test_masking.test_two_masks_of_one_value_differ_uniformly())
OLD_BACKUP = Check("an old backup", test_simulated_faults.with_old_backup)
LOST_DECISIONS = Check("lost decisions", _lost_decisions)
PREPARED_AGAIN = Check("PREPARED again", _prepared_again)
LAST_WORDS = Check("last words of a client", _last_words, network=True)
CLIPPING = Check("clipping", lambda _: test_features.test_all_rows_take_the_same_operations("a row"))
NEW_DIRECTION = Check(
    "a new direction", lambda _: test_hard_data.test_single_lessons_in_a_new_direction_between_batches()
)
EXPLORING = Check(
    "exploring",
    lambda _: test_released_arm.test_ties_are_broken_evenly([0.3, 0.1, -0.2, 0.7], [3], 0.2, "three rounds"),
)

CLIPPED = Check("what a row moves in a noisy gradient", lambda _: test_noisy_gradient.check_what_a_row_moves(8.0))
