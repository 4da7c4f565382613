"""The dealer's coins, recomputed: only someone who holds its secret can.

For tests, and for demos where all roles run on one's own machine and the private learner is compared with its plain
twin.
"""

from __future__ import annotations

from hiddenarm.bandit.catalogue import DECIDE, ProgramId, program_text
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Seeds, program_stream


def audit_coins(
    seeds: Seeds,
    federation: Federation,
    first: int,
    count: int,
    replicates: int = 1,
    batch: int = 1,
    exploration: Exploration | None = None,
) -> Coins:
    """The dealer's coins of `count` runs of `decide` for `batch` contexts, as [count, replicates, batch].

    Without the last axis for single contexts. `exploration` is that of the federation's policy in the first epoch
    unless given.
    """
    program, words = ProgramId(DECIDE, batch), Coins.words(federation.arms)
    layout = layout_of(program_text(federation, program), federation.parties, replicates)
    stream = program_stream(seeds.coins(), program.label, layout.coin_words)
    # A step's coins come first; payloads follow.
    rows = stream.steps(first, count)[:, : replicates * batch * words].reshape(count, replicates, batch, words)
    thresholds = (exploration or federation.policy.exploration()).at(first, count, batch)
    if batch == 1:
        return Coins.from_words(rows[:, :, 0], thresholds[:, :, 0])
    return Coins.from_words(rows, thresholds)
