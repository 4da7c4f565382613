"""What it costs that state lasts: the same work by two federations of real processes, one in memory, one durable.

    python -m benchmarks.durability

Requests have names, so the actor writes its answers too. The two take turns, so that both see the same machine; the
figures are medians of blocks.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.roles.actor import all_decided

BATCH = 100
STEPS = 20


def step_block(session: Session, number: int, named: bool) -> float:
    """Seconds a strictly online step."""
    start = perf_counter()
    for position in range(STEPS):
        key, label = session.next_context()
        name = f"step {number} {position}" if named else None
        decision = session.actor.decide(key, session.version, name)
        session.version = session.rewarder.reward(decision.id, float(decision.arm == label))
    return (perf_counter() - start) / STEPS


def batch_block(session: Session, number: int, named: bool) -> float:
    """Seconds an interaction, in one batch."""
    contexts = [session.next_context() for _ in range(BATCH)]
    start = perf_counter()
    name = f"batch {number}" if named else None
    decisions = all_decided(session.actor.decide_many([key for key, _ in contexts], session.version, name))
    earned = [float(decision.arm == label) for decision, (_, label) in zip(decisions, contexts, strict=True)]
    rewards = [(decision.id, reward) for decision, reward in zip(decisions, earned, strict=True)]
    session.version = session.rewarder.reward_many(rewards)
    return (perf_counter() - start) / BATCH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=20)
    blocks = parser.parse_args().blocks
    federation = make_federation(2, 10, 20)
    with Session(federation) as memory, Session(federation, durable=True) as durable:
        for name, block in (("strictly online step", step_block), ("interaction in a batch of 100", batch_block)):
            for number in range(-3, 0):  # until programs are recorded and stock is there
                block(memory, number, False)
                block(durable, number, True)
            times = [(block(memory, number, False), block(durable, number, True)) for number in range(blocks)]
            off, on = (1e3 * median(column) for column in zip(*times, strict=True))
            print(f"{name}: {off:.3f} ms in memory, {on:.3f} ms durable: {off / on:.0%} of the throughput", flush=True)


if __name__ == "__main__":
    main()
