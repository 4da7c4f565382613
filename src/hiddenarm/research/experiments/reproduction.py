"""`hiddenarm reproduce` itself: collect jobs, do what is not kept, conclude, write the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import click
from rich.console import Console

from hiddenarm.errors import ConfigError
from hiddenarm.research.data.images import Split, read_mnist
from hiddenarm.research.experiments.arms_time import ArmsTime
from hiddenarm.research.experiments.experiment import Experiment, Setting
from hiddenarm.research.experiments.job_progress import JobProgress, UnderWay
from hiddenarm.research.experiments.jobs import Job, ResultStore, surroundings
from hiddenarm.research.experiments.many_arms import ManyArms
from hiddenarm.research.experiments.membership import Membership
from hiddenarm.research.experiments.newton import Newton
from hiddenarm.research.experiments.operations import Operations
from hiddenarm.research.experiments.page import Cost, Report, write_report
from hiddenarm.research.experiments.parties_time import PartiesTime
from hiddenarm.research.experiments.policies import Policies
from hiddenarm.research.experiments.pool import Backend, Workshop
from hiddenarm.research.experiments.precision import Precision
from hiddenarm.research.experiments.privacy import Privacy
from hiddenarm.research.experiments.privacy_arms import PrivacyArms
from hiddenarm.research.experiments.privacy_over_time import PrivacyOverTime
from hiddenarm.research.experiments.sequence_attack import SequenceAttacks
from hiddenarm.research.experiments.training import Training
from hiddenarm.research.progress import duration, obeying_interrupts

ALL = "all"


def experiments() -> list[Experiment]:
    """Every experiment of the paper."""
    return [
        Training(),
        Privacy(),
        Operations(),
        ArmsTime(),
        PartiesTime(),
        PrivacyArms(),
        Membership(),
        Precision(),
        Newton(),
    ]


def further_experiments() -> list[Experiment]:
    """Those that are not in the paper: made when they are named."""
    return [PrivacyOverTime(), SequenceAttacks(), Policies(), ManyArms()]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names; all of the paper for no name, or for `all`."""
    known = {experiment.name: experiment for experiment in (*experiments(), *further_experiments())}
    if not names or ALL in names:
        return experiments()
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no experiment {name!r}: choose among {', '.join(known)}, or {ALL}")
    return [experiment for name, experiment in known.items() if name in names]


@dataclass(frozen=True)
class Reproduction:
    """Some experiments, to be made in a folder."""

    experiments: Sequence[Experiment]
    setting: Setting
    folder: Path
    data_dir: Path | None
    backend: Backend = "loky"
    cluster: str | None = None

    def run(self, console: Console) -> Report:
        """Do what is missing, then write the page. Interrupted, it goes on from what was finished."""
        if self.setting.data == "mnist":
            for split in get_args(Split):
                read_mnist(self.data_dir, split)
        kept = ResultStore(self._runs_folder())
        jobs = list(dict.fromkeys(job for one in self.experiments for job in one.jobs(self.setting)))
        missing = [job for job in jobs if job not in kept]
        self._announce(console, jobs, missing)
        under_way = UnderWay(self.folder.resolve() / "under-way")
        try:
            with obeying_interrupts(), JobProgress(missing, len(jobs) - len(missing), under_way.read) as watch:
                workshop = Workshop(kept, self._data_folder(), under_way, self.backend, self.cluster)
                workshop.do_all(missing, watch)
        except KeyboardInterrupt:
            done = sum(job in kept for job in jobs)
            click.echo(f"{done} of {len(jobs)} runs are kept in {self.folder}; the same command goes on", err=True)
            raise
        report = self._report(kept, jobs)
        write_report(self.folder, report)
        return report

    def _data_folder(self) -> Path | None:
        """For workers, which may run elsewhere."""
        return None if self.data_dir is None else self.data_dir.resolve()

    def _runs_folder(self) -> Path:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {self.folder}: {error.strerror}") from error
        return self.folder / "runs"

    def _announce(self, console: Console, jobs: Sequence[Job], missing: Sequence[Job]) -> None:
        names = ", ".join(one.name for one in self.experiments)
        kept = len(jobs) - len(missing)
        console.print(f"{names}: {len(jobs)} runs, {kept} of them kept from before.", soft_wrap=True)

    def _report(self, kept: ResultStore, jobs: Sequence[Job]) -> Report:
        return Report(
            setting=self.setting,
            sections=[(one, one.conclude(self.setting, kept)) for one in self.experiments],
            costs=self._costs(kept),
            commits=sorted({kept[job].record.commit for job in jobs}),
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            surroundings=surroundings(),
        )

    def _costs(self, kept: ResultStore) -> list[Cost]:
        costs, made = [], set[Job]()
        for one in self.experiments:
            jobs = dict.fromkeys(one.jobs(self.setting))
            seconds = sum(kept[job].record.seconds for job in jobs if job not in made)
            costs.append(Cost(one.name, len(jobs), seconds))
            made.update(jobs)
        return costs


def print_summary(console: Console, report: Report, folder: Path) -> None:
    """The claims, and where to look."""
    for claim in report.claims:
        console.print(f"[bold]{claim.verdict}[/bold]  {claim.measured}", soft_wrap=True, highlight=False)
    console.print(
        f"Runs: {duration(report.seconds_of_runs)} on one core. Page: {folder / 'index.html'}", soft_wrap=True
    )
