"""Do jobs side by side, on this machine or on a cluster, and keep every result as soon as it is there.

An executor does the jobs: loky's, which joblib brings along, or that of Dask. Only this process writes results. So a
job that Dask does again, because its worker died, still has one result, and the workers need no folder in common.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from math import inf
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Final, Literal

from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

from hiddenarm.errors import ConfigError, HiddenArmError
from hiddenarm.research.experiments.job_progress import JobProgress, OrphanedError, UnderWay
from hiddenarm.research.experiments.jobs import Arrays, Job, ResultStore, commit_of_source
from hiddenarm.research.progress import interrupts_put_off
from hiddenarm.service.logs import configure_logs
from hiddenarm.service.process import keep_freed_memory

Backend = Literal["loky", "dask"]

_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Workers are as many as cores: none of them starts threads of its own for linear algebra. Dask sees to it itself."""
_IDLE_SECONDS: Final = 60.0
"""After which a worker without jobs ends: also one whose command was killed."""
_CONNECT_SECONDS: Final = 10.0
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Done:
    """What a worker gives for a job: the result, how long it took, and the commit of its source."""

    arrays: Arrays
    seconds: float
    commit: str


_Outcome = Done | HiddenArmError | str
"""A result, an error on purpose, or the trace of any other."""


@dataclass(frozen=True)
class _Workers:
    """An executor, and how many jobs it is given at a time. `command` is the process whose children the workers are, if
    they are."""

    executor: Executor
    most: float
    command: int | None

    def submit(self, function: Callable[..., _Outcome], *arguments: object) -> Future[_Outcome]:
        """Have a job done. When this returns, loky has handed it on: an executor that is shut down before leaves a
        traceback of its own thread."""
        future = self.executor.submit(function, *arguments)
        while self.command is not None and not (future.running() or future.done()):
            time.sleep(0.001)
        return future


@dataclass(frozen=True)
class Workshop:
    """What jobs are done with: where results are kept, where the data is, and who does the work.

    `cluster` is the address of a Dask scheduler; without one, `dask` is a cluster of this machine's cores.
    """

    kept: ResultStore
    data_dir: Path | None
    under_way: UnderWay
    backend: Backend = "loky"
    cluster: str | None = None

    def do_all(self, jobs: Sequence[Job], watch: JobProgress) -> None:
        """Side by side what may be, the longest first; then one by one, on this machine, what is timed.

        Whatever ends this, an error or an interrupt, ends the workers before. What was kept stays kept.
        """
        together = sorted((job for job in jobs if not job.alone), key=lambda job: -job.expected_seconds)
        alone = [job for job in jobs if job.alone]
        resource_tracker.ensure_running()  # when it starts, it lets interrupts through that are put off
        with self.under_way.opened():
            if together:
                with self._workers() as workers:
                    self._do(together, workers, watch)
            if alone:
                with _local_workers(1) as workers:
                    self._do(alone, workers, watch)

    def _workers(self) -> AbstractContextManager[_Workers]:
        if self.backend == "dask":
            return _dask_workers(self.cluster, self.under_way.folder)
        return _local_workers(_cores())

    def _do(self, jobs: Sequence[Job], workers: _Workers, watch: JobProgress) -> None:
        """Keep results in the order in which they come."""
        given = (self.data_dir, UnderWay(self.under_way.folder, workers.command), version("hiddenarm"))
        waiting, begun = deque(jobs), dict[Future[_Outcome], Job]()
        while waiting or begun:
            with interrupts_put_off():  # a worker that is told only half of what it needs says so in a traceback
                while waiting and len(begun) < workers.most:
                    job = waiting.popleft()
                    begun[workers.submit(do_job, job, *given)] = job
            for future in wait(begun, return_when=FIRST_COMPLETED).done:
                with interrupts_put_off():
                    self._keep(begun[future], self._outcome(future, begun))
                    watch.end(begun.pop(future))

    def _outcome(self, future: Future[_Outcome], begun: Mapping[Future[_Outcome], Job]) -> _Outcome:
        """Jobs return their own errors. What is raised is of whoever runs them."""
        try:
            return future.result()
        except BrokenExecutor:
            raise self._ended_from_outside(list(begun.values())) from None
        except Exception as error:
            why = f"{type(error).__name__}: {error}".strip(": ").partition(". ")[0]
            title = begun[future].title
            raise ConfigError(
                f"the run {title!r} could not be done on the cluster ({why}); run the command again"
            ) from None

    def _keep(self, job: Job, outcome: _Outcome) -> None:
        if isinstance(outcome, HiddenArmError):
            raise outcome
        if isinstance(outcome, str):
            raise RuntimeError(f"the run {job.title!r} failed:\n{outcome}")
        self.kept.keep(job, outcome.arrays, outcome.seconds, outcome.commit)

    def _ended_from_outside(self, jobs: Sequence[Job]) -> ConfigError:
        """When a worker dies, loky ends all of them: the one that died had one of the jobs under way."""
        begun = self.under_way.read()
        titles = [repr(job.title) for job in jobs if job.digest in begun] or [repr(jobs[0].title)]
        return ConfigError(f"the run {' or '.join(titles)} was ended from outside; run the command again")


def do_job(job: Job, data_dir: Path | None, under_way: UnderWay, wanted_version: str) -> _Outcome:
    """At a worker: the result of a job, an error on purpose, or the trace of any other."""
    here = version("hiddenarm")
    if here != wanted_version:
        return ConfigError(f"a worker has hiddenarm {here}, this command has {wanted_version}: install the same")
    configure_logs("warning", "text", "reproduce")
    keep_freed_memory()
    start = time.perf_counter()
    try:
        with under_way.telling(job) as progress:
            arrays = job.perform(data_dir, progress)
        return Done(arrays, time.perf_counter() - start, commit_of_source())
    except HiddenArmError as error:
        return error
    except OrphanedError:
        os._exit(1)
    except Exception:
        return traceback.format_exc()


@contextmanager
def _local_workers(count: int) -> Iterator[_Workers]:
    """So many processes of this machine. They are ended at once unless all goes well."""
    finished = False
    executor = ProcessPoolExecutor(count, timeout=_IDLE_SECONDS, env=_ONE_THREAD, initializer=_begin_worker)
    with warnings.catch_warnings():
        # It starts a new worker in place of one that holds much memory, or had nothing to do for a while, and says so.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        try:
            yield _Workers(executor, count, os.getpid())
            finished = True
        finally:
            with interrupts_put_off():
                executor.shutdown(wait=True, kill_workers=not finished)


def _begin_worker() -> None:
    """At a worker of this machine. Processes that a job starts know nothing of loky's way to start them."""
    multiprocessing.set_start_method("spawn", force=True)


@contextmanager
def _dask_workers(address: str | None, scratch: Path) -> Iterator[_Workers]:
    """The workers of a Dask cluster. What is not finished at the end is cancelled; what a worker of another machine is
    in the middle of comes to its end there, and is dropped."""
    if find_spec("distributed") is None:
        raise ConfigError("--backend dask needs Dask: pip install 'hiddenarm[cluster]'")
    import distributed

    with ExitStack() as stack:
        stack.callback(_restore_environment, dict(os.environ))  # Dask sets variables here for its workers
        with interrupts_put_off():
            client = stack.enter_context(_client(distributed, stack, address, scratch))
        executor = client.get_executor(pure=False)
        try:
            yield _Workers(executor, inf, None)
        finally:
            with interrupts_put_off():
                executor.shutdown(wait=False)
                stack.close()


def _client(distributed: Any, stack: ExitStack, address: str | None, scratch: Path) -> Any:
    """Connected to a cluster that has workers. One of this machine is listening on loopback only."""
    target = address or stack.enter_context(
        distributed.LocalCluster(
            n_workers=_cores(),
            threads_per_worker=1,
            host=_LOOPBACK,
            dashboard_address=f"{_LOOPBACK}:0",
            local_directory=str(scratch),
            silence_logs=logging.CRITICAL,
        )
    )
    try:
        client = distributed.Client(target, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no Dask scheduler answers at {address}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
    except TimeoutError:
        client.close()
        raise ConfigError(f"the Dask cluster at {address} has no workers") from None
    return client


def _restore_environment(before: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(before)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
