"""Several policies in the same worlds, one run after another: results with curves, as files and as a DataFrame.

    from hiddenarm.research.sweep import Sweep
    frame = Sweep(data="users.csv", policies=["epsilon-greedy:epsilon=0.1", "linucb:alpha=0.5"]).run("results")

A folder has a file for each run that has ended, with configuration, result, curve and the rewards of each replicate. A
sweep that was interrupted goes on with the runs that are missing, when it is run again. Runs have a seed, and so can be
repeated; what is learned is not secret then.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table as RichTable

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.errors import ConfigError, DataError
from hiddenarm.files import replacing
from hiddenarm.privacy.mechanisms import Mechanism
from hiddenarm.research.data.task import Task
from hiddenarm.research.progress import ProgressDisplay
from hiddenarm.research.results import (
    CURVE_COLUMNS,
    INTERRUPTED,
    REPLICATE_COLUMNS,
    Outcome,
    configuration_of,
    outcome_of,
    shown_reward,
)
from hiddenarm.research.simulate import Simulation
from hiddenarm.ring.streams import seeded_key

if TYPE_CHECKING:
    from pandas import DataFrame

_PARTS: Final = ("configuration", "report", "curve", "by_replicate")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep(Task):
    """What to run: each of `policies`, as `--policy` names them, in the same worlds and as many `replicates`. What the
    worlds are is told as in `Task`: `data` and, where they are no table of one's own, `parties`, `arms` and `features`.
    The other numbers, and `privacy`, are those of a `Federation`."""

    policies: Sequence[str]
    replicates: int = 1
    norms: Sequence[float] = ()
    ridge: float = 1.0
    suite: str = "fast"
    newton_iterations: int | None = None
    fraction_bits: int = 20
    max_interactions: int = 0
    privacy: Mechanism | None = None

    def __post_init__(self) -> None:
        if not self.policies:
            raise ConfigError("a sweep needs at least one policy, or one epsilon")
        for name in self.policies:
            if list(self.policies).count(name) > 1:
                raise ConfigError(f"the policy {name} is there twice: give each once")
            parse_policy(name)
        for name in ("steps", "replicates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        super().__post_init__()

    def run(self, folder: str | Path) -> DataFrame:
        """Run what has not ended yet, and write `results.csv`, `results.json` and `curves.csv`; a row for each run."""
        self.run_missing(Path(folder))
        return results_frame(folder)

    def run_missing(self, folder: Path) -> list[Outcome]:
        """Run what has not ended yet; all runs, in the order of the policies."""
        federations = [self._federation(policy) for policy in self.policies]
        runs_folder = folder / "runs"
        try:
            runs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {folder}: {error.strerror}") from None
        runs = [
            self._run_once(runs_folder, federation, f"{place + 1} of {len(federations)}")
            for place, federation in enumerate(federations)
        ]
        write_results(folder, runs)
        return runs

    def _federation(self, policy: str) -> Federation:
        return self.federation(
            policy=parse_policy(policy),
            norms=tuple(self.norms),
            ridge=self.ridge,
            suite=self.suite,
            newton_iterations=self.newton_iterations,
            fraction_bits=self.fraction_bits,
            max_interactions=self.max_interactions,
            privacy=self.privacy,
        )

    def _run_once(self, folder: Path, federation: Federation, place: str) -> Outcome:
        worlds = self.worlds(self.replicates)
        configuration = configuration_of(
            federation,
            data=self.name,
            world=worlds[0].name,
            steps=self.steps,
            replicates=self.replicates,
            seed=self.seed,
        )
        digest = sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:16]
        path = folder / f"{federation.policy.name}-{digest}.json"
        if path.exists():
            return _read_run(path)
        simulation = Simulation(federation, worlds, self.steps, seeded_key(self.seed))
        with ProgressDisplay(self.steps, f"{federation.policy}, {place}") as display:
            board, traffic, ledger = simulation.run(display)
        if board.steps < self.steps and board.ended == INTERRUPTED:
            raise KeyboardInterrupt  # what is not whole is not kept
        run = outcome_of(configuration, board.report(federation, traffic, self.name, ledger), board)
        with replacing(path) as file:
            file.write((json.dumps(run, indent=2, allow_nan=False) + "\n").encode())
        return run


def write_results(folder: Path, runs: Sequence[Outcome]) -> None:
    """`results.json` has everything, `results.csv` a row for each run, `replicates.csv` one for each replicate,
    `curves.csv` one for each point of a curve."""
    texts = {
        "results.json": json.dumps(list(runs), indent=2, allow_nan=False) + "\n",
        "results.csv": _csv([_row(run) for run in runs]),
        "replicates.csv": _csv(_rows(runs, "by_replicate", REPLICATE_COLUMNS)),
        "curves.csv": _csv(_rows(runs, "curve", CURVE_COLUMNS)),
    }
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())


def print_sweep(console: Console, runs: Sequence[Outcome], folder: Path) -> None:
    """What the runs came to."""
    table = RichTable("policy", "reward", "plain reward", "agreement")
    for run in runs:
        report = run["report"]
        rewards = [shown_reward(report[name], report[f"{name}_standard_error"]) for name in ("reward", "plain_reward")]
        table.add_row(report["policy"], *rewards, f"{report['agreement']:.4f}")
    console.print(table)
    console.print(f"Results: {folder / 'results.csv'}, results.json, replicates.csv and curves.csv")


def read_results(folder: str | Path) -> list[Outcome]:
    """The runs of a sweep, from its folder."""
    path = Path(folder) / "results.json"
    try:
        runs: list[Outcome] = json.loads(path.read_text())
    except (OSError, ValueError):
        raise DataError(f"{path} is not the result of a sweep") from None
    return runs


def results_frame(folder: str | Path) -> DataFrame:
    """A row for each run of a sweep: its configuration and what it came to. Needs pandas."""
    from pandas import DataFrame

    return DataFrame([_row(run) for run in read_results(folder)])


def replicates_frame(folder: str | Path) -> DataFrame:
    """A row for each replicate of each run: policy, replicate, and its mean rewards. Needs pandas."""
    from pandas import DataFrame

    return DataFrame(_rows(read_results(folder), "by_replicate", REPLICATE_COLUMNS))


def curves_frame(folder: str | Path) -> DataFrame:
    """The learning curves of a sweep: policy, step, and the mean rewards so far with their standard errors over
    replicates. Needs pandas."""
    from pandas import DataFrame

    return DataFrame(_rows(read_results(folder), "curve", CURVE_COLUMNS))


def _rows(runs: Sequence[Outcome], part: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of one part of all runs as rows, with the policy first."""
    return [
        {"policy": run["configuration"]["policy"], **dict(zip(columns, row, strict=True))}
        for run in runs
        for row in zip(*(run[part][name] for name in columns), strict=True)
    ]


def _row(run: Outcome) -> dict[str, Any]:
    """The report of a run, and what of its configuration is not in it."""
    return {**run["report"], "seed": run["configuration"]["seed"], "ridge": run["configuration"]["ridge"]}


def _read_run(path: Path) -> Outcome:
    try:
        run: Outcome = json.loads(path.read_text())
        whole = run.keys() >= set(_PARTS)
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        raise DataError(f"{path} is damaged, or of another version: remove it, and it will be run again")
    return run


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
