"""The dealer's coins and noise, recomputed: only someone who holds its secret can.

For tests, and for demos where all roles run on one's own machine and the private learner is compared with its plain
twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE_ONE, REFRESH, ProgramId, program_text, slots_of
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.noisy_gradient import GradientNoise, GradientTwin
from hiddenarm.bandit.noisy_sums import REFRESH_ONE, NoiseSource, NoisyTwin, SumsNoise
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.privacy.correlated import COEFFICIENT_BITS
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisyMechanism, NoisySums
from hiddenarm.ring.words import Floats


def audit_coins(
    seeds: Seeds,
    federation: Federation,
    first: int,
    count: int,
    replicates: int = 1,
    program: ProgramId = DECIDE_ONE,
    exploration: Exploration | None = None,
) -> Coins:
    """The dealer's coins of `count` runs of a program that decides, as [count, replicates, its contexts]; tags and
    normal numbers are those of its slots where it decides among a subset.

    Without the last axis for single contexts. `exploration` is that of the federation's policy in the first epoch
    unless given.
    """
    normals, contexts = federation.policy.normals, program.count
    words = Coins.words(slots_of(program) or federation.arms, normals)
    stream = program_stream(seeds.coins(), program.label, _coin_words(federation, program, replicates))
    rows = stream.steps(first, count)[:, : replicates * contexts * words]  # other words of the dealer come after them
    rows = rows.reshape(count, replicates, contexts, words)
    thresholds = (exploration or federation.policy.exploration()).at(first, count, contexts)
    if contexts == 1:
        return Coins.from_words(rows[:, :, 0], thresholds[:, :, 0], normals)
    return Coins.from_words(rows, thresholds, normals)


def audit_noise(seeds: Seeds, federation: Federation, refresh: int, replicates: int = 1) -> tuple[Floats, Floats]:
    """What the noise of a refresh of an epoch, counted from 0, adds to the sums W [replicates, arms, D, D] and b
    [replicates, arms, D]; where the gradient is noisy, to nothing [replicates, arms, 0] and to the gradient. With
    correlated noise, of the first epoch."""
    privacy = federation.noisy
    if privacy is None:
        raise ConfigError(f"privacy {federation.privacy.name} has no noise")
    if privacy.correlation is None:
        return _drawn(seeds, federation, _noise(federation), REFRESH_ONE, refresh, replicates)
    _, position = privacy.correlation.place(refresh + 1)
    numbers = range(refresh + 2 - position, refresh + 2)
    return with_taken_back(privacy, [audit_leaf(seeds, federation, number, replicates) for number in numbers])


def audit_leaf(seeds: Seeds, federation: Federation, refresh: int, replicates: int = 1) -> tuple[Floats, Floats]:
    """The leaf that the dealer of an epoch draws for a refresh, counted from 1 over all epochs, where noise is
    correlated."""
    privacy = federation.noisy
    assert privacy is not None
    assert privacy.correlation is not None
    block, position = privacy.correlation.place(refresh)
    return _drawn(seeds, federation, _noise(federation, position), ProgramId(REFRESH, position), block, replicates)


def with_taken_back(privacy: NoisyMechanism, leaves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """What the last of these leaves, which are all of a block so far, adds to the sums, with parts of the others taken
    back."""
    assert privacy.correlation is not None
    *before, (grams, moments) = leaves
    for units, (gram_leaf, moment_leaf) in zip(privacy.correlation.taken_back[len(before)], before, strict=True):
        part = units / 2**COEFFICIENT_BITS
        grams, moments = grams - part * gram_leaf, moments - part * moment_leaf
    return grams, moments


def _noise(federation: Federation, position: int = 1) -> SumsNoise | GradientNoise:
    """Of a refresh, at a position of a block if it is correlated."""
    if isinstance(federation.privacy, NoisyGradient):
        return GradientNoise.of(federation, federation.privacy, position)
    assert isinstance(federation.privacy, NoisySums)
    return SumsNoise.of(federation, federation.privacy, position)


def plain_twin(federation: Federation, noise: NoiseSource) -> PlainBandit:
    """The twin of a federation's policy and privacy."""
    twin, privacy = federation.policy.twin(federation), federation.noisy
    if privacy is None:
        return twin
    kind = GradientTwin if isinstance(privacy, NoisyGradient) else NoisyTwin
    return kind(twin, federation, privacy, noise)


def _drawn(
    seeds: Seeds,
    federation: Federation,
    noise: SumsNoise | GradientNoise,
    program: ProgramId,
    step: int,
    replicates: int,
) -> tuple[Floats, Floats]:
    """What the dealer has drawn for a run of a program that refreshes."""
    stream = program_stream(seeds.coins(), program.label, _coin_words(federation, program, replicates))
    grams, moments = np.split(stream.steps(step, 1)[0], [replicates * noise.gram_words])
    return noise.decoded(grams.reshape(replicates, -1), moments.reshape(replicates, -1))


@lru_cache
def _coin_words(federation: Federation, program: ProgramId, replicates: int) -> int:
    return layout_of(program_text(federation, program), federation.parties, replicates).coin_words
