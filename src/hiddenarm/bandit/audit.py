"""What only someone who holds every secret can compute: the dealer's coins and the model in the clear.

For tests, and for demos where all roles run on one's own machine and the private learner is compared with its plain
twin.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import DECIDE, Model, opened
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.ring.words import Floats, Words, decode


def audit_coins(
    seeds: Seeds, federation: Federation, thresholds: Words, first: int, count: int, replicates: int = 1, batch: int = 1
) -> Coins:
    """The dealer's coins of `count` runs of `decide` for `batch` contexts, as [count, replicates, batch].

    Without the last axis for single contexts.
    """
    words = Coins.words(federation.arms)
    stream = program_stream(seeds.coins(), ProgramId(DECIDE, batch).label, replicates * batch * words)
    rows = stream.steps(first, count).reshape(count, replicates, batch, words)
    if batch == 1:
        return Coins.from_words(rows[:, :, 0], thresholds)
    return Coins.from_words(rows, thresholds[..., None])


def reveal_model(federation: Federation, models: Sequence[Model]) -> tuple[Floats, Floats]:
    """Add up all parties' shares: inverses (packed upper triangles) and weights."""
    inverses = opened([model.inverses for model in models])
    weights = opened([model.weights for model in models])
    return decode(inverses, 2 * federation.fraction_bits), decode(weights, federation.fraction_bits)
