"""How long dealing takes when the C library gives freed memory back to the system, and when it keeps it.

python -m benchmarks.memory
"""

from __future__ import annotations

import multiprocessing
import statistics
from time import perf_counter

from hiddenarm.bandit.catalogue import LEARN_ONE, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.material import Seeds
from hiddenarm.ring.streams import fresh_key
from hiddenarm.service.process import keep_freed_memory

STEPS = 64
TURNS = 20


def microseconds_a_step(keep: bool) -> float:
    """Deal batches of `learn`; the median."""
    if keep:
        keep_freed_memory()
    federation = Federation(arms=10, features=(10, 10), epsilon=0.1)
    text = program_text(federation, LEARN_ONE)
    dealer = ProgramDealer(LEARN_ONE.label, text, layout_of(text, 2, 1), Seeds(fresh_key()), 1)
    times = []
    for turn in range(TURNS):
        start = perf_counter()
        dealer.deal(turn * STEPS, STEPS)
        times.append(perf_counter() - start)
    return statistics.median(times) / STEPS * 1e6


def main() -> None:
    """Each way in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        given_back, kept = (pool.apply(microseconds_a_step, (keep,)) for keep in (False, True))
    print(f"dealing a step of learn: {given_back:.0f} us given back, {kept:.0f} us kept, ratio {given_back / kept:.2f}")


if __name__ == "__main__":
    main()
