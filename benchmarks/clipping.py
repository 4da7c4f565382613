"""Features within and beyond the declared norm: the time to clip and encode one row, and the ratio of both.

Others see when a party sends its first words. The ratio should be 1: the operations are the same
(tests/bandit/test_features.py). Rows of both kinds take turns, so that other work on the machine meets both alike.

    python -m benchmarks.clipping [--features 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from hiddenarm.bandit.features import checked_row
from hiddenarm.bandit.federation import Federation
from hiddenarm.ring.words import Floats
from hiddenarm.service.features import StoredFeatures

ROUNDS = 400
CALLS = 50
KINDS = ("within", "beyond")


def medians_us(act: Callable[[str], object]) -> dict[str, float]:
    """The median time of one call for each kind of row."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS):
        for kind in KINDS[:: 1 if number % 2 else -1]:
            start = perf_counter()
            for _ in range(CALLS):
                act(kind)
            times[kind].append((perf_counter() - start) / CALLS)
    return {kind: 1e6 * float(np.median(times[kind])) for kind in KINDS}


def measure(features: int) -> dict[str, dict[str, float]]:
    """Times in microseconds, and their ratio, of a source and of a table."""
    federation = Federation(arms=2, features=(features, features), epsilon=0.1)
    unit = np.full(features, features**-0.5)
    rows: dict[str, Floats] = {"within": 0.7 * unit, "beyond": 3.0 * unit}
    table = StoredFeatures({kind: row for row, kind in enumerate(KINDS)}, np.array([rows[kind] for kind in KINDS]))
    paths: dict[str, Callable[[str], object]] = {
        "source": lambda kind: checked_row(rows[kind], federation, 0),
        "table": table.encoded(federation, 0).words,
    }
    found = {name: medians_us(act) for name, act in paths.items()}
    return {name: {**times, "beyond_over_within": times["beyond"] / times["within"]} for name, times in found.items()}


def main() -> None:
    """Print a line for each path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.features)
    for name, figures in found.items():
        ratio = figures["beyond_over_within"]
        print(f"{name:7} within {figures['within']:5.2f} us   beyond {figures['beyond']:5.2f} us   ratio {ratio:.3f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
