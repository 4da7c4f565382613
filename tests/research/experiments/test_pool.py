"""Jobs run side by side unless they measure time; what is finished stays when another fails."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from rich.console import Console

from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress
from hiddenarm.research.experiments.kept import Kept
from hiddenarm.research.experiments.pool import Workshop
from hiddenarm.research.experiments.watch import Watch


@dataclass(frozen=True)
class Nap(Job):
    """Sleeps, and tells when."""

    kind: ClassVar[str] = "nap"
    number: int
    seconds: float = 0.2

    @property
    def title(self) -> str:
        return f"nap {self.number}"

    @property
    def expected_seconds(self) -> float:
        return self.seconds

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        begun = time.time()
        progress(0.5, "half way")
        time.sleep(self.seconds)
        return {"times": np.array([begun, time.time()]), "threads": np.array(int(os.environ["OMP_NUM_THREADS"]))}


@dataclass(frozen=True)
class LonelyNap(Nap):
    kind: ClassVar[str] = "lonely"
    alone: ClassVar[bool] = True


@dataclass(frozen=True)
class Mishap(Nap):
    kind: ClassVar[str] = "mishap"
    error: str = ""

    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        time.sleep(self.seconds)
        match self.error:
            case "ours":
                raise ConfigError("that cannot be")
            case "killed":
                os._exit(9)
        raise ZeroDivisionError("never mind")


def do(jobs: list[Job], folder: Path) -> Kept:
    kept = Kept(folder)
    with Watch(jobs, 0, Console(file=StringIO())) as watch:
        Workshop(kept, None, "abc").do_all(jobs, watch)
        assert watch.share == pytest.approx(1.0)
    return kept


def test_all_jobs_are_done_each_with_one_thread(tmp_path: Path) -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    jobs: list[Job] = [Nap(number) for number in range(3)]
    kept = do(jobs, tmp_path)
    assert all(job in kept for job in jobs)
    assert {int(kept[job]["threads"]) for job in jobs} == {1}
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_what_measures_time_runs_alone(tmp_path: Path) -> None:
    jobs: list[Job] = [LonelyNap(0), Nap(1), LonelyNap(2), Nap(3)]
    kept = do(jobs, tmp_path)
    for lonely in (job for job in jobs if job.alone):
        begun, ended = kept[lonely]["times"]
        others = [kept[job]["times"] for job in jobs if job != lonely]
        assert all(other[1] <= begun or ended <= other[0] for other in others)


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        ("ours", ConfigError, "that cannot be"),
        ("killed", ConfigError, "'nap 7' was ended from outside"),
        ("other", RuntimeError, "'nap 7' failed:(.|\n)*ZeroDivisionError: never mind"),
    ],
)
def test_an_error_names_its_run_and_keeps_what_was_finished(
    tmp_path: Path, error: str, kind: type[Exception], says: str
) -> None:
    finished = Nap(1, seconds=0.0)
    do([finished], tmp_path)
    with pytest.raises(kind, match=says):
        do([Nap(2, seconds=30.0), Mishap(7, error=error, seconds=31.0 if error == "" else 0.1)], tmp_path)
    assert finished in Kept(tmp_path)


def test_the_time_left_follows_from_the_work_done(tmp_path: Path) -> None:
    now = [0.0]
    text = StringIO()
    jobs: list[Job] = [Nap(1, seconds=30.0), Nap(2, seconds=10.0)]
    with Watch(jobs, 3, Console(file=text, width=200), lambda: now[0]) as watch:
        watch.begin(jobs[0])
        now[0] = 20.0
        watch.news(jobs[0], 1 / 3, "reward 0.5")
        now[0] = 60.0
        watch.end(jobs[0])
    first, second = text.getvalue().splitlines()
    assert "3/5 runs  25.0%  elapsed 0:00:20  left 0:01:00  [nap 1: 33% reward 0.5]" in first
    assert "4/5 runs  75.0%  elapsed 0:01:00  left 0:00:20" in second
