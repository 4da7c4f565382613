"""`hiddenarm bench dealer`: what a step costs the dealer, and that its memory does not grow.

The dealer is the role's own state machine, asked for material in the batches in which the last party orders it. Its
time for a step stands beside that of the on-line step, measured in turn. A dealer in a process of its own then deals
many steps, and its resident memory is read on the way. What it sends is counted: the corrections of a step, and those
of an interaction that is decided and learned in a batch.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from time import perf_counter

from rich.console import Console

from hiddenarm.bandit.catalogue import DECIDE, GATHER, SOLVE, ProgramId, program_text, program_texts
from hiddenarm.bandit.decisions import new_epoch
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.run import ProgramText
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.bench.report import Result, micros, print_table, quartiles
from hiddenarm.research.bench.session import make_federation, measure_beside
from hiddenarm.research.bench.timing import Effort
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.dealer import DealerEpoch
from hiddenarm.roles.messages import want_frame
from hiddenarm.roles.stock import batch_steps
from hiddenarm.service.kit import KitFile
from hiddenarm.service.process import keep_freed_memory

READINGS = 20
"""How often the memory is read."""


class LoneDealer:
    """A dealer that is asked for steps, and whose corrections go nowhere."""

    def __init__(self, federation: Federation) -> None:
        stock = int(KitFile.model_fields["stock"].default)
        texts = program_texts(federation)
        self._batches = {
            name: batch_steps(layout_of(text, federation.parties, 1), stock) for name, text in texts.items()
        }
        self._last = Identity(Role.PARTY, federation.parties - 1)
        self._dealer = DealerEpoch(federation, fresh_key(), new_epoch(), lambda identity, frame: None)
        self._dealt = dict.fromkeys(texts, 0)

    def work(self, steps: int) -> float:
        """Seconds for so many steps of each program, in whole batches and scaled to `steps`."""
        return sum(self._deal(name, steps) for name in self._batches)

    def _deal(self, name: str, steps: int) -> float:
        batch = self._batches[name]
        batches = -(-steps // batch)
        start = perf_counter()
        for _ in range(batches):
            self._dealer.on_frame(self._last, want_frame(ProgramId(name), self._dealt[name], batch))
            self._dealt[name] += batch
        return (perf_counter() - start) * steps / (batches * batch)


def bench_dealer(
    console: Console,
    *,
    parties: int,
    arms: int,
    features: int,
    steps: int,
    online_steps: int,
    seconds: float,
    batch: int | None = None,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes."""
    if batch is not None and suite != "fast":
        raise ConfigError("--suite paper learns from one reward at a time: leave --batch out")
    keep_freed_memory()  # as a dealer does
    federation = make_federation(parties, arms, features, suite, newton_iterations)
    measured, (dealing,) = measure_beside(federation, Effort.of(online_steps, seconds), LoneDealer(federation).work)
    ratio = dealing.median / measured.private.median
    rows = [
        ("dealing a step", micros(dealing.median), quartiles(dealing), f"{ratio:.2f}"),
        ("the step on-line", micros(measured.private.median), quartiles(measured.private), "1"),
        ("the plain step", micros(measured.plain.median), quartiles(measured.plain), f"{1 / measured.ratio:.3f}"),
    ]
    title = f"The dealer: {parties} parties, {arms} arms, {features} features, {suite} suite"
    print_table(console, title, ("", "time", "quartiles", "to on-line"), rows)
    dealt = _dealt_bytes(federation, batch)
    print_table(
        console,
        "Sent to the last party",
        ("", "bytes"),
        [(name.removeprefix("dealt_bytes_per_"), f"{count:,.0f}") for name, count in dealt.items()],
    )
    readings = list(_memory_over(federation, steps))
    _print_memory(console, readings)
    return {
        **measured.as_dict(),
        "dealer_us_per_step": dealing.median,
        "ratio_to_online": ratio,
        **dealt,
        "memory": [{"steps": made, "resident_mb": megabytes} for made, megabytes in readings],
        "memory_growth_mb": readings[-1][1] - readings[len(readings) // 4][1],
    }


def _dealt_bytes(federation: Federation, batch: int | None) -> dict[str, float]:
    """What the last party is sent for a strictly online step; with a batch, also for one of its interactions."""
    step = sum(_corrections(federation, text) for text in program_texts(federation).values())
    if batch is None:
        return {"dealt_bytes_per_step": step}
    programs = (program_text(federation, ProgramId(name, batch)) for name in (DECIDE, GATHER, SOLVE))
    together = sum(_corrections(federation, text) for text in programs)
    return {"dealt_bytes_per_step": step, "dealt_bytes_per_interaction": together / batch}


def _corrections(federation: Federation, text: ProgramText) -> int:
    return 8 * layout_of(text, federation.parties, 1).correction_words


def _print_memory(console: Console, readings: list[tuple[int, float]]) -> None:
    shown = [reading for place, reading in enumerate(readings) if place % 4 == 0 or place == len(readings) - 1]
    rows = [(f"{made:,}", f"{megabytes:.1f} MB") for made, megabytes in shown]
    print_table(console, "Resident memory of a dealer", ("steps dealt", "resident"), rows)


def _memory_over(federation: Federation, steps: int) -> Iterator[tuple[int, float]]:
    """Steps dealt and resident megabytes, from a dealer in a process of its own."""
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_deal_and_report, args=(federation, steps, writer), daemon=True)
    process.start()
    writer.close()
    try:
        while True:
            yield reader.recv()
    except EOFError:
        process.join()
    finally:
        process.kill()
        process.join()


def _deal_and_report(federation: Federation, steps: int, pipe: Pipe) -> None:
    dealer, made = LoneDealer(federation), 0
    stride = max(1, steps // READINGS)
    while made < steps:
        dealer.work(stride)
        made += stride
        pipe.send((made, resident_megabytes()))


def resident_megabytes() -> float:
    """Resident memory of this process now; where the system does not tell, the most it ever was."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most / 1e3
