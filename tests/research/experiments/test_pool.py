"""Jobs run side by side unless they measure time; what is finished stays when another fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

import numpy as np
import pytest
from rich.console import Console

from deployment import PATIENCE
from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments import job_progress as watch_module
from hiddenarm.research.experiments.job_progress import JobProgress, News, OrphanedError, UnderWay
from hiddenarm.research.experiments.jobs import Arrays, Job, Progress, ResultStore, commit_of_source
from hiddenarm.research.experiments.pool import Backend, Workshop, do_job


def awaited(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


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


def do(jobs: list[Job], folder: Path, backend: Backend = "loky") -> ResultStore:
    kept, under_way = ResultStore(folder / "runs"), UnderWay(folder / "under-way")
    with JobProgress(jobs, 0, under_way.read, Console(file=StringIO())) as watch:
        Workshop(kept, None, under_way, backend).do_all(jobs, watch)
        assert watch.share == pytest.approx(1.0)
    return kept


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_all_jobs_are_done_each_with_one_thread(tmp_path: Path, backend: Backend) -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    jobs: list[Job] = [Nap(number) for number in range(3)]
    kept = do(jobs, tmp_path, backend)
    assert all(job in kept for job in jobs)
    assert {int(kept[job]["threads"]) for job in jobs} == {1}
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert {kept[job].record.commit for job in jobs} == {commit_of_source()}
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


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
        ("killed", ConfigError, "'nap 7'.* was ended from outside; run the command again"),
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
    assert finished in ResultStore(tmp_path / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_the_time_left_follows_from_the_work_done(tmp_path: Path) -> None:
    now = [0.0]
    text = StringIO()
    jobs: list[Job] = [Nap(1, seconds=30.0), Nap(2, seconds=10.0)]
    news = {jobs[0].digest: News(1 / 3, "reward 0.5", 17), "of another": News(0.9, "", 18)}
    with JobProgress(jobs, 3, lambda: news, Console(file=text, width=200), lambda: now[0]) as watch:
        now[0] = 20.0
        watch.look()
        now[0] = 60.0
        watch.end(jobs[0])  # what it said last does not count any more
    first, second = text.getvalue().splitlines()
    assert "3/5 runs  25.0%  elapsed 0:00:20  left 0:01:00  [nap 1: 33% reward 0.5]" in first
    assert second.endswith("4/5 runs  75.0%  elapsed 0:01:00  left 0:00:20")


def test_lines_are_printed_while_no_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(watch_module, "SECONDS_BETWEEN_LINES", 0.05)
    text, job = StringIO(), Nap(1)
    with JobProgress([job], 0, lambda: {job.digest: News(0.5, "half way", 17)}, Console(file=text, width=200)):
        awaited(lambda: text.getvalue().count("[nap 1: 50% half way]") >= 2)


def test_a_job_says_how_far_it_is_and_takes_its_temporary_files_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "_SECONDS_BETWEEN_NEWS", PATIENCE)
    under_way, job = UnderWay(tmp_path / "under-way", os.getppid()), Nap(1)
    with under_way.opened():
        with under_way.telling(job) as progress:
            assert under_way.read() == {job.digest: News(0.0, "", os.getpid())}
            progress(0.1, "too soon to be written")
            assert under_way.read()[job.digest].share == 0.0
        monkeypatch.setattr(watch_module, "_SECONDS_BETWEEN_NEWS", 0.0)
        with under_way.telling(job) as progress:
            progress(0.5, "half way")
            assert under_way.read() == {job.digest: News(0.5, "half way", os.getpid())}
            assert Path(mkdtemp()).parent == under_way.folder
        assert under_way.read() == {}
    assert not under_way.folder.exists()


def test_a_worker_that_does_not_see_the_folder_says_nothing(tmp_path: Path) -> None:
    with UnderWay(tmp_path / "elsewhere").telling(Nap(1)) as progress:
        progress(0.5, "half way")
    assert list(tmp_path.iterdir()) == []


def test_a_job_ends_if_its_command_has_gone(tmp_path: Path) -> None:
    nobody = 2**22  # beyond every process id
    with pytest.raises(OrphanedError), UnderWay(tmp_path, nobody).telling(Nap(1)):
        pytest.fail("it began")


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    outcome = do_job(Nap(1), None, UnderWay(tmp_path), "0.0.0")
    assert isinstance(outcome, ConfigError)
    assert f"a worker has hiddenarm {version('hiddenarm')}, this command has 0.0.0" in str(outcome)
