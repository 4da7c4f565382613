"""The options of `hiddenarm reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from hiddenarm.cli.research import ResearchCommand
from hiddenarm.errors import ConfigError

_SUITES = ("both", "fast", "paper")
_BACKENDS = ("loky", "dask")
_SCALES = ("full", "quick", "tiny")
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(cls=ResearchCommand)
@click.argument("names", nargs=-1, metavar="[NAME...|all]")
@click.option("--quick", is_flag=True, help="Minutes in place of hours: shorter runs.")
@click.option("--out", "folder", type=_FOLDER, default=Path("reproduction"), show_default=True, help="Where to write.")
@click.option("--data-dir", type=_FOLDER, help="Folder with the MNIST files. Without it: the cache, or else digits.")
@click.option("--suite", type=click.Choice(_SUITES), default="both", show_default=True, help="Protocols to compare.")
@click.option(
    "--backend",
    type=click.Choice(_BACKENDS),
    default="loky",
    show_default=True,
    help="Who does the runs: all cores of this machine, or a Dask cluster. Timed runs are always done here.",
)
@click.option("--cluster", metavar="ADDRESS", help="Scheduler of an existing Dask cluster, such as tcp://HOST:8786.")
@click.option("--scale", type=click.Choice(_SCALES), hidden=True, help="Overrides --quick; tiny is the tests' size.")
def reproduce(
    names: tuple[str, ...],
    quick: bool,
    folder: Path,
    data_dir: Path | None,
    suite: str,
    backend: str,
    cluster: str | None,
    scale: str | None,
) -> None:
    """Repeat the paper's experiments, and write a page with every figure, table and claim.

    Without a name, all experiments are made. Finished runs are kept in the folder: the same command goes on after an
    interrupt.
    """
    from rich.console import Console

    from hiddenarm.research.data.load import default_world
    from hiddenarm.research.experiments.experiment import Setting, Suite
    from hiddenarm.research.experiments.reproduction import Reproduction, chosen, print_summary

    if cluster is not None and backend != "dask":
        raise ConfigError("--cluster is the address of a Dask scheduler: give --backend dask too")
    small = quick or scale in ("quick", "tiny")
    data = "digits" if small and data_dir is None else default_world(data_dir)
    suites = get_args(Suite) if suite == "both" else (suite,)
    setting = Setting(scale or ("quick" if quick else "full"), data, suites)  # type: ignore[arg-type]
    console = Console()
    report = Reproduction(chosen(names), setting, folder, data_dir, backend, cluster).run(console)  # type: ignore[arg-type]
    print_summary(console, report, folder)
