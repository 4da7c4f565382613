"""`make bench`: every bench once, quickly. For figures to keep, run the benches one by one on an idle machine.

python -m benchmarks
"""

from __future__ import annotations

import os
import time

from hiddenarm.cli.research import bench


def main() -> None:
    """Run the quick version of every bench; print what each took."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n", flush=True)
    for name in bench.commands:
        start = time.perf_counter()
        bench.main([name, "--quick"], prog_name="hiddenarm bench", standalone_mode=False)
        print(f"({name}: {time.perf_counter() - start:.1f} s)\n", flush=True)


if __name__ == "__main__":
    main()
