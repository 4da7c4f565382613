"""Several policies in the same worlds, one run after another: results with curves, as files and as a DataFrame.

    from hiddenarm.research.sweep import Sweep
    frame = Sweep(data="users.csv", policies=["epsilon-greedy:epsilon=0.1", "linucb:alpha=0.5"]).run("results")

A folder has a file for each run that has ended, with configuration, result and curve. A sweep that was interrupted goes
on with the runs that are missing, when it is run again. Runs have a seed, and so can be repeated; what is learned is
not secret then.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies import parse_policy
from hiddenarm.errors import ConfigError, DataError
from hiddenarm.files import replacing
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.tables import read_table_data
from hiddenarm.research.data.worlds import World, split_features
from hiddenarm.research.progress import ProgressDisplay
from hiddenarm.research.simulate import Simulation
from hiddenarm.ring.streams import seeded_key

if TYPE_CHECKING:
    from pandas import DataFrame

Run = dict[str, Any]
"""A run that has ended: `configuration`, `report` and `curve`."""
_CURVE_POINTS: Final = 200
"""Steps at which the mean rewards so far are kept, at most."""
_SHOWN: Final = ("reward", "plain_reward", "agreement")
CURVE_COLUMNS: Final = ("policy", "step", "reward", "plain_reward")


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to run: each of `policies`, as `--policy` names them, in the same worlds. `data` is a world of `load_world`
    or a CSV file (`data.tables`), which says how many parties, arms and features there are."""

    policies: Sequence[str]
    data: str = "digits"
    steps: int = 1500
    replicates: int = 1
    seed: int = 0
    parties: int = 2
    arms: int = 10
    features: int = 20
    norms: Sequence[float] = ()
    ridge: float = 1.0

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

    def run(self, folder: str | Path) -> DataFrame:
        """Run what has not ended yet, and write `results.csv`, `results.json` and `curves.csv`; a row for each run."""
        self.run_missing(Path(folder))
        return results_frame(folder)

    def run_missing(self, folder: Path) -> list[Run]:
        """Run what has not ended yet; all runs, in the order of the policies."""
        runs_folder = folder / "runs"
        try:
            runs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {folder}: {error.strerror}") from None
        world, split = self._world()
        federations = [self._federation(policy, world, split) for policy in self.policies]
        runs = [
            self._run_once(runs_folder, federation, world, f"{place + 1} of {len(federations)}")
            for place, federation in enumerate(federations)
        ]
        write_results(folder, runs)
        return runs

    def _world(self) -> tuple[World, tuple[int, ...]]:
        if is_table(self.data):
            table = read_table_data(Path(self.data))
            return table.world(self.seed), table.features
        world = load_world(self.data, arms=self.arms, features=self.features, seed=self.seed, steps=self.steps)
        return world, tuple(split_features(self.features, self.parties))

    def _federation(self, policy: str, world: World, split: tuple[int, ...]) -> Federation:
        return Federation(
            arms=world.arms,
            features=split,
            policy=parse_policy(policy),
            norms=tuple(self.norms),
            ridge=self.ridge,
        )

    def _run_once(self, folder: Path, federation: Federation, world: World, place: str) -> Run:
        configuration = {
            **json.loads(json.dumps(federation.terms)),
            "policy": str(federation.policy),
            "data": self.data,
            "world": world.name,
            "steps": self.steps,
            "replicates": self.replicates,
            "seed": self.seed,
        }
        digest = sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:16]
        path = folder / f"{federation.policy.name}-{digest}.json"
        if path.exists():
            return _read_run(path)
        worlds = [world.reseeded(self.seed + replicate) for replicate in range(self.replicates)]
        simulation = Simulation(federation, worlds, self.steps, seeded_key(self.seed))
        with ProgressDisplay(self.steps, f"{federation.policy}, {place}") as display:
            board, traffic, ledger = simulation.run(display)
        if board.steps < self.steps:
            raise KeyboardInterrupt  # what is not whole is not kept
        report = asdict(board.report(federation, traffic, self.data, ledger))
        at = _points(self.steps)
        curve = {
            "step": (at + 1).tolist(),
            "reward": _means(board.rewards)[at].tolist(),
            "plain_reward": _means(board.plain_rewards)[at].tolist(),
        }
        run: Run = {"configuration": configuration, "report": report, "curve": curve}
        with replacing(path) as file:
            file.write((json.dumps(run, indent=2, allow_nan=False) + "\n").encode())
        return run


def is_table(data: str) -> bool:
    """Whether `--data` names a file of one's own."""
    return data.endswith(".csv")


def write_results(folder: Path, runs: Sequence[Run]) -> None:
    """`results.json` has everything, `results.csv` a row for each run, `curves.csv` one for each point of a curve."""
    rows = [_row(run) for run in runs]
    points = [
        dict(zip(CURVE_COLUMNS, (run["configuration"]["policy"], *point), strict=True))
        for run in runs
        for point in zip(*(run["curve"][name] for name in CURVE_COLUMNS[1:]), strict=True)
    ]
    texts = {
        "results.json": json.dumps(list(runs), indent=2, allow_nan=False) + "\n",
        "results.csv": _csv(rows),
        "curves.csv": _csv(points),
    }
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())


def print_sweep(console: Console, runs: Sequence[Run], folder: Path) -> None:
    """What the runs came to."""
    table = RichTable("policy", "reward", "plain reward", "agreement")
    for run in runs:
        report = run["report"]
        table.add_row(run["configuration"]["policy"], *(f"{report[name]:.4f}" for name in _SHOWN))
    console.print(table)
    console.print(f"Results: {folder / 'results.csv'}, results.json and curves.csv")


def read_results(folder: str | Path) -> list[Run]:
    """The runs of a sweep, from its folder."""
    path = Path(folder) / "results.json"
    try:
        runs: list[Run] = json.loads(path.read_text())
    except (OSError, ValueError):
        raise DataError(f"{path} is not the result of a sweep") from None
    return runs


def results_frame(folder: str | Path) -> DataFrame:
    """A row for each run of a sweep: its configuration and what it came to. Needs pandas."""
    from pandas import DataFrame

    return DataFrame([_row(run) for run in read_results(folder)])


def curves_frame(folder: str | Path) -> DataFrame:
    """The learning curves of a sweep: policy, step, and the mean rewards so far. Needs pandas."""
    from pandas import DataFrame, concat

    return concat(
        [DataFrame({"policy": run["configuration"]["policy"], **run["curve"]}) for run in read_results(folder)],
        ignore_index=True,
    )


def _row(run: Run) -> dict[str, Any]:
    """The report of a run, and what of its configuration is not in it."""
    return {**run["report"], "seed": run["configuration"]["seed"], "ridge": run["configuration"]["ridge"]}


def _read_run(path: Path) -> Run:
    try:
        run: Run = json.loads(path.read_text())
    except ValueError:
        raise DataError(f"{path} is damaged: remove it, and it will be run again") from None
    return run


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _points(steps: int) -> Any:
    """The places of a curve that are kept."""
    return np.unique(np.linspace(0, steps - 1, min(steps, _CURVE_POINTS)).round().astype(np.int64))


def _means(rewards: Any) -> Any:
    """The mean reward so far, over all replicates."""
    return np.cumsum(rewards.mean(axis=0)) / np.arange(1, rewards.shape[1] + 1)
