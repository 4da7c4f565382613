"""How much other processes took of the processor while something was timed: a time is worth what the machine was idle.

Busy time of the cores that we may use, less the time of this process and of those it has started and awaited. What the
system does for networks is left out, since it cannot be told for whom.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

from hiddenarm.research.experiments.findings import Verdict, judged

BUSY = 0.25
"""With more of a core than this taken by others, nothing is concluded from a time."""
_STAT = Path("/proc/stat")
_USER, _NICE, _SYSTEM, _STOLEN = 1, 2, 3, 8


class OtherLoad:
    """Begins to look when it is made."""

    def __init__(self) -> None:
        self._start = perf_counter(), _busy_seconds(), _own_seconds()

    def cores(self) -> float:
        """Cores that others took since then, on average; 0 where the system does not tell."""
        clock, busy, own = self._start
        others = _busy_seconds() - busy - (_own_seconds() - own)
        return max(0.0, others / (perf_counter() - clock))


def _busy_seconds() -> float:
    """Of the cores that we may use, stolen time included."""
    ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in _STAT.read_text().splitlines()]
    except OSError:
        return 0.0
    ticks = sum(int(line[place]) for line in lines if line[0] in ours for place in (_USER, _NICE, _SYSTEM, _STOLEN))
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def judged_times(condition: bool, explanation: str, cores_of_others: Iterable[float]) -> tuple[Verdict, str]:
    """Holds or differs, for this reason; but not checked where others were busy while it was timed."""
    most = max(cores_of_others)
    if most <= BUSY:
        return judged(condition), "" if condition else explanation
    return "not checked", (
        f"Other processes took up to {most:.1f} cores while this was timed, so the times say little. Repeat it on an "
        "idle machine: remove the runs of kind step and operations, and run the command again."
    )
