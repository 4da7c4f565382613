"""A researcher's sweep: what exploration costs and earns, private and plain, over several epsilons.

    python examples/sweep.py sweep.csv --steps 400

`Sweep` runs the private learner in one process beside its plain twin, once for each policy and in the same worlds. The
folder beside the file, here `sweep`, has every run with its configuration and learning curve; a sweep that was
interrupted goes on when it is run again. `hiddenarm sweep` does the same from a shell.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hiddenarm.research.sweep import Sweep, curves_frame

COLUMNS = ["epsilon", "reward", "plain_reward", "agreement", "rounds_per_step", "bytes_per_step_per_party"]


def main() -> None:
    parser = argparse.ArgumentParser(description="What exploration costs and earns, over several epsilons.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.0, 0.1, 0.5])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--replicates", type=int, default=5)
    given = parser.parse_args()
    sweep = Sweep(
        policies=[f"epsilon-greedy:epsilon={epsilon}" for epsilon in given.epsilons],
        data="clusters",
        arms=5,
        steps=given.steps,
        replicates=given.replicates,
        seed=1,
    )
    folder = given.out.with_suffix("")
    results = sweep.run(folder)[COLUMNS]
    results.to_csv(given.out, index=False)
    print(results.to_string(index=False))
    early = curves_frame(folder).query("step <= @given.steps / 2").groupby("policy", sort=False)["reward"].last()
    print(early.rename("reward of the first half").to_string())


if __name__ == "__main__":
    main()
