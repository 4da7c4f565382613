"""How long decisions wait while the model is repaired, over real processes with TLS.

    python -m benchmarks.repair [--features 30] [--repairs 5] [--json FILE]

Steps are strictly online: a decision is asked for when the reward before it has left, by the model that holds it. A
repair begins after every `repair_every` lessons and is spread over some hundreds; the worst wait of each period is
divided by the median wait, and the median of these is `worst_wait_over_median`. The same for periods of the same length
just before, in which nothing is repaired, is `quiet_worst_wait_over_median`: what the machine does to both alike.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from hiddenarm.bandit.schedule import GATHERED_AT_ONCE, LEARNED_AGAIN, REPAIR_LAG
from hiddenarm.research.bench.session import Session, make_federation

REPAIR_EVERY = 1000
PERIOD = REPAIR_EVERY // GATHERED_AT_ONCE + REPAIR_LAG + REPAIR_LAG // (LEARNED_AGAIN - 1) + 20
"""Lessons from the first that gathers for a repair to the one that puts the repaired model in place, and some."""


def waits(session: Session, steps: int) -> list[float]:
    """Seconds that each of so many decisions took to be answered."""
    taken = []
    for _ in range(steps):
        key, label = session.next_context()
        start = perf_counter()
        decision = session.actor.decide(key, session.version)
        taken.append(perf_counter() - start)
        session.version = session.rewarder.submit(decision.id, float(decision.arm == label))
    return taken


def measure(features: int, repairs: int) -> dict[str, float]:
    """Waits over some repairs; the first is not counted, as its programs are recorded then."""
    federation = replace(make_federation(2, 10, features), repair_every=REPAIR_EVERY)
    quiet: list[float] = []
    repaired: list[float] = []
    every: list[float] = []
    with Session(federation) as session:
        waits(session, REPAIR_EVERY + PERIOD)
        for number in range(repairs):
            # What was learned while the model was repaired counts for the next repair.
            every += waits(session, REPAIR_EVERY - 2 * PERIOD)
            before, around = waits(session, PERIOD), waits(session, PERIOD)
            every += before + around
            quiet.append(max(before))
            repaired.append(max(around))
            print(
                f"repair {number + 1}: worst wait {1e3 * repaired[-1]:.1f} ms, before it {1e3 * quiet[-1]:.1f} ms",
                flush=True,
            )
    usual = median(every)
    return {
        "features": features,
        "median_wait_us": 1e6 * usual,
        "worst_wait_over_median": median(repaired) / usual,
        "quiet_worst_wait_over_median": median(quiet) / usual,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--repairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.features, options.repairs)
    for name, value in found.items():
        print(f"{name}: {value:.1f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
