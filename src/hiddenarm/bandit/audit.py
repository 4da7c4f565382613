"""The dealer's coins and noise, recomputed: only someone who holds its secret can.

For tests, and for demos where all roles run on one's own machine and the private learner is compared with its plain
twin.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE_ONE, ProgramId, program_text
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.noisy_sums import REFRESH_ONE, SumsNoise, noisy_sums
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Seeds, program_stream
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
    """The dealer's coins of `count` runs of a program that decides, as [count, replicates, its contexts].

    Without the last axis for single contexts. `exploration` is that of the federation's policy in the first epoch
    unless given.
    """
    normals, contexts = federation.policy.normals, program.count
    words = Coins.words(federation.arms, normals)
    stream = program_stream(seeds.coins(), program.label, _coin_words(federation, program, replicates))
    rows = stream.steps(first, count)[:, : replicates * contexts * words]  # other words of the dealer come after them
    rows = rows.reshape(count, replicates, contexts, words)
    thresholds = (exploration or federation.policy.exploration()).at(first, count, contexts)
    if contexts == 1:
        return Coins.from_words(rows[:, :, 0], thresholds[:, :, 0], normals)
    return Coins.from_words(rows, thresholds, normals)


def audit_noise(seeds: Seeds, federation: Federation, refresh: int, replicates: int = 1) -> tuple[Floats, Floats]:
    """The noise of a refresh of an epoch, counted from 0: of the sums W [replicates, arms, D, D] and b [replicates,
    arms, D]."""
    privacy = noisy_sums(federation)
    if privacy is None:
        raise ConfigError(f"privacy {federation.privacy.name} has no noise")
    noise = SumsNoise.of(federation, privacy)
    stream = program_stream(seeds.coins(), REFRESH_ONE.label, _coin_words(federation, REFRESH_ONE, replicates))
    grams, moments = np.split(stream.steps(refresh, 1)[0], [replicates * noise.gram_words])
    return noise.decoded(grams.reshape(replicates, -1), moments.reshape(replicates, -1))


@lru_cache
def _coin_words(federation: Federation, program: ProgramId, replicates: int) -> int:
    return layout_of(program_text(federation, program), federation.parties, replicates).coin_words
