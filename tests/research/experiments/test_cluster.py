"""A sweep on a real Dask cluster: a scheduler and two workers, processes of their own, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from deployment import PATIENCE
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments import pool, privacy
from hiddenarm.research.experiments.job_progress import News, UnderWay
from hiddenarm.research.experiments.jobs import Arrays, Job, ResultStore

JOBS = 40
KILLED_AFTER = 5
"""Jobs that are kept before a worker is killed."""

T = TypeVar("T")


def awaited(condition: Callable[[], T | None], what: str) -> T:
    """What a condition gives once it is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} never came about")


class Cluster:
    """A scheduler and workers without a nanny, so that one that is killed stays away."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.address = awaited(lambda: self._address(), "the scheduler")

    def _address(self) -> str | None:
        log = (self._folder / "scheduler.log").read_text()
        found = [word for line in log.splitlines() if "Scheduler at:" in line for word in line.split()]
        return found[-1] if found else None

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name, "--host", "127.0.0.1")
        return self._start("worker", self.address, *options, "--local-directory", self._folder, log=name)

    def _start(self, kind: str, *arguments: object, log: str | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", kind, *map(str, arguments)]
        with (self._folder / f"{log or kind}.log").open("wb") as output:
            process = subprocess.Popen(command, cwd=self._folder, stdout=output, stderr=subprocess.STDOUT)
        self._stack.callback(self._end, process)
        return process

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(PATIENCE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with ExitStack() as stack:
        yield Cluster(folder, stack)


def reproduce(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["reproduce", *map(str, arguments)])


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """An experiment of 40 small jobs."""
    epsilons = tuple(round(0.025 * number, 3) for number in range(JOBS))
    monkeypatch.setattr(privacy, "_EPSILONS", {"tiny": epsilons})
    return ("privacy", "--scale", "tiny")


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the result of each job was written."""
    counts: Counter[str] = Counter()
    keep = ResultStore.keep

    def counted(self: ResultStore, job: Job, arrays: Arrays, seconds: float, commit: str) -> None:
        counts[job.digest] += 1
        keep(self, job, arrays, seconds, commit)

    monkeypatch.setattr(ResultStore, "keep", counted)
    return counts


@contextmanager
def beside(action: Callable[[], None]) -> Iterator[None]:
    """Have something done in a thread meanwhile."""
    thread = Thread(target=action)
    thread.start()
    yield
    thread.join()


def test_one_of_two_nodes_is_killed_and_all_results_are_there_none_twice(
    tmp_path: Path, cluster: Cluster, sweep: tuple[str, ...], writes: Counter[str]
) -> None:
    workers = [cluster.worker("one"), cluster.worker("two")]
    under_way, again = UnderWay(tmp_path / "out" / "under-way"), list[str]()

    def kill_one() -> None:
        awaited(lambda: len(writes) >= KILLED_AFTER, "the first results")
        job = awaited(lambda: killed_in_the_middle_of(workers[0], under_way), "a job at the first worker")
        awaited(lambda: under_way.read().get(job, News(0, "", 0)).process == workers[1].pid, "the job at the second")
        again.append(job)

    with beside(kill_one):
        ended = reproduce(*sweep, "--backend", "dask", "--cluster", cluster.address, "--out", tmp_path / "out")
    assert ended.exit_code == 0, ended.output
    assert workers[0].wait() == -signal.SIGKILL
    assert len(list((tmp_path / "out" / "runs").iterdir())) == len(writes) == JOBS
    assert set(writes.values()) == {1}
    assert again[0] in writes
    assert not under_way.folder.exists()


def killed_in_the_middle_of(worker: subprocess.Popen[bytes], under_way: UnderWay) -> str | None:
    """Kill a worker if it is in the middle of a job: the job. It is stopped before, so that it cannot end the job."""
    worker.send_signal(signal.SIGSTOP)
    for job, news in under_way.read().items():
        if news.process == worker.pid:
            worker.send_signal(signal.SIGKILL)
            return job
    worker.send_signal(signal.SIGCONT)
    return None


def test_an_interrupt_on_a_cluster_says_what_is_kept(
    tmp_path: Path, cluster: Cluster, sweep: tuple[str, ...], writes: Counter[str]
) -> None:
    cluster.worker("one")

    def interrupt() -> None:
        awaited(lambda: len(writes) >= 2, "the first results")
        os.kill(os.getpid(), signal.SIGINT)

    with beside(interrupt):
        ended = reproduce(*sweep, "--backend", "dask", "--cluster", cluster.address, "--out", tmp_path / "out")
    kept = len(list((tmp_path / "out" / "runs").iterdir()))
    assert 2 <= kept < JOBS
    assert f"{kept} of {JOBS} runs are kept in {tmp_path / 'out'}; the same command goes on" in ended.output
    assert "Traceback" not in ended.output


def test_a_cluster_that_ends_ends_the_command(
    tmp_path: Path, cluster: Cluster, sweep: tuple[str, ...], writes: Counter[str]
) -> None:
    cluster.worker("one")

    def end() -> None:
        awaited(lambda: len(writes) >= 2, "the first results")
        cluster.scheduler.kill()

    with beside(end):
        ended = reproduce(*sweep, "--backend", "dask", "--cluster", cluster.address, "--out", tmp_path / "out")
    assert isinstance(ended.exception, ConfigError)
    assert "could not be done on the cluster" in str(ended.exception)
    assert "run the command again" in str(ended.exception)


def test_a_cluster_without_workers_is_refused(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_CONNECT_SECONDS", 1.0)
    ended = reproduce("newton", "--scale", "tiny", "--backend", "dask", "--cluster", cluster.address, "--out", tmp_path)
    assert f"the Dask cluster at {cluster.address} has no workers" in str(ended.exception)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere://x", "x"])
def test_a_scheduler_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(pool, "_CONNECT_SECONDS", 1.0)
    ended = reproduce("newton", "--scale", "tiny", "--backend", "dask", "--cluster", address, "--out", tmp_path)
    assert isinstance(ended.exception, ConfigError)
    assert f"no Dask scheduler answers at {address}" in str(ended.exception)


def test_a_cluster_without_its_backend_is_refused(tmp_path: Path) -> None:
    ended = reproduce("newton", "--cluster", "tcp://127.0.0.1:9", "--out", tmp_path / "out")
    assert isinstance(ended.exception, ConfigError)
    assert "give --backend dask too" in str(ended.exception)
    assert not (tmp_path / "out").exists()


def test_without_dask_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    ended = reproduce("newton", "--scale", "tiny", "--backend", "dask", "--out", tmp_path)
    assert isinstance(ended.exception, ConfigError)
    assert "pip install 'hiddenarm[cluster]'" in str(ended.exception)
