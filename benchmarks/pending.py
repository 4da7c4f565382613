"""How long `LocalFederation.reward` takes with many decisions that wait for their reward, and with few.

python -m benchmarks.pending

The two federations take turns, so that both see the same machine. The rewards are those of decisions that were made
last; all others keep waiting.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

from hiddenarm import LocalFederation

FEW = 100
BLOCK = 50
TURNS = 40
CONTEXT = ([0.6, 0.0, 0.3], [0.1, -0.7])


def federation_with(pending: int) -> LocalFederation:
    """A federation with so many decisions that wait for their reward."""
    federation = LocalFederation(arms=4, features=[3, 2], epsilon=0.1)
    for _ in range(pending):
        federation.decide(CONTEXT)
    return federation


def microseconds_a_reward(federation: LocalFederation) -> float:
    """Of a block of decisions that are made before the clock starts."""
    decisions = [federation.decide(CONTEXT).id for _ in range(BLOCK)]
    start = perf_counter()
    for decision in decisions:
        federation.reward(decision, 1.0)
    return 1e6 * (perf_counter() - start) / BLOCK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=60_000)
    pending = parser.parse_args().pending
    few, many = federation_with(FEW), federation_with(pending)
    turns = [(microseconds_a_reward(few), microseconds_a_reward(many)) for _ in range(TURNS)]
    with_few, with_many = (median(column) for column in zip(*turns, strict=True))
    print(
        f"a reward: {with_few:.0f} us with {FEW} decisions pending, {with_many:.0f} us with {pending:,}: "
        f"ratio {with_many / with_few:.2f}"
    )


if __name__ == "__main__":
    main()
