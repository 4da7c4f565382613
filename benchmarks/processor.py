"""The processor time of a strictly online step, role by role: what a step costs, whatever else the machine does.

Roles sleep while they wait, so that no time is counted in which they only poll (`spin_microseconds` is 0). Actor and
rewarder are in the process of the benchmark: `clients`. Linux only: the kernel's own count of each thread is read.

    python -m benchmarks.processor [--steps 300] [--runs 6]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.roles.messages import DEALER

WARM_UP = 100


def processor_us(process: int) -> float:
    """Microseconds of processor time of all threads of a process so far."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e3


def asleep(_: LocalRoles) -> dict[str, Any]:
    """What kits say of polling: nobody polls."""
    return {"spin_microseconds": 0}


def measure(steps: int, runs: int) -> Mapping[str, float]:
    """The median over runs of microseconds a step, by role."""
    federation = make_federation(2, 10, 20, "fast", None)
    with patch.object(LocalRoles, "_spinning", asleep), Session(federation) as session:
        roles = [*(Identity(Role.PARTY, party) for party in range(federation.parties)), DEALER]
        processes = {str(role): session.process(role) for role in roles} | {"clients": os.getpid()}
        session.make_steps(WARM_UP)
        times: dict[str, list[float]] = {name: [] for name in processes}
        for _ in range(runs):
            before = {name: processor_us(process) for name, process in processes.items()}
            session.make_steps(steps)
            for name, process in processes.items():
                times[name].append((processor_us(process) - before[name]) / steps)
        session.finish()
    return {name: median(made) for name, made in times.items()}


def main() -> None:
    """Print a line for each role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=6)
    given = parser.parse_args()
    for name, time in measure(given.steps, given.runs).items():
        print(f"{name:10} {time:6.0f} us a step")


if __name__ == "__main__":
    main()
