"""`hiddenarm bench ops`: the operations of which the programs of a suite are made, one by one."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from hiddenarm.research.bench.operation import OperationCost, cost_of
from hiddenarm.research.bench.operations import operations_of
from hiddenarm.research.bench.report import Result, print_table


def measure_operations(
    suite: str,
    *,
    parties: int = 2,
    replicates: int = 10_000,
    repeats: int = 15,
    newton_iterations: int | None = None,
) -> list[OperationCost]:
    """What each operation of a suite costs a party for one element, when `replicates` are done at once."""
    return [
        cost_of(operation, parties, replicates, repeats)
        for operation in operations_of(suite, parties, newton_iterations)
    ]


def bench_ops(
    console: Console,
    *,
    parties: int,
    replicates: int,
    repeats: int,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, return what `--json` writes."""
    costs = measure_operations(
        suite, parties=parties, replicates=replicates, repeats=repeats, newton_iterations=newton_iterations
    )
    title = f"Operations: {parties} parties, {suite} suite, {replicates:,} elements at once"
    columns = ("for each element", "rounds", "bytes to a peer", "words", "corrections", "time", "plain", "ratio")
    print_table(console, title, columns, [_cells(cost) for cost in costs])
    figures = [asdict(cost) for cost in costs]
    return {"operations": figures, "suite": suite, "parties": parties, "replicates": replicates}


def _cells(cost: OperationCost) -> tuple[str, ...]:
    return (
        cost.name,
        str(cost.rounds),
        f"{cost.bytes_to_each_peer:,.1f}",
        f"{cost.dealt_words:,.1f}",
        f"{cost.correction_words:,.1f}",
        f"{cost.us:.3f} µs",
        "" if cost.plain_us is None else f"{cost.plain_us:.4f} µs",
        "" if cost.ratio is None else f"{cost.ratio:,.0f}",
    )
