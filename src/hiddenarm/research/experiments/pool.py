"""Do jobs on all cores, a process for each, and keep every result as soon as it is there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import perf_counter
from types import FrameType

from hiddenarm.errors import ConfigError, HiddenArmError
from hiddenarm.research.experiments.jobs import Job, Progress
from hiddenarm.research.experiments.kept import Kept
from hiddenarm.research.experiments.watch import Watch
from hiddenarm.research.interrupts import interrupts_put_off
from hiddenarm.roles.logs import configure_logs
from hiddenarm.roles.memory import keep_freed_memory

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Workshop:
    """What every job is done with: where results are kept, where the data is, and which commit this is."""

    kept: Kept
    data_dir: Path | None
    commit: str

    def do_all(self, jobs: Sequence[Job], watch: Watch) -> None:
        """Side by side what may be, the longest first; then one by one what is timed."""
        together = sorted((job for job in jobs if not job.alone), key=lambda job: -job.expected_seconds)
        with _one_thread_each():
            self._side_by_side(together, _cores(), watch)
            self._side_by_side([job for job in jobs if job.alone], 1, watch)

    def do(self, job: Job, progress: Progress) -> None:
        """Do one job and keep its result."""
        start = perf_counter()
        arrays = job.perform(self.data_dir, progress)
        self.kept.keep(job, arrays, perf_counter() - start, self.commit)

    def _side_by_side(self, jobs: Sequence[Job], most: int, watch: Watch) -> None:
        """Whatever ends this, an error or an interrupt, ends the workers before. What was kept stays kept."""
        waiting, workers = list(reversed(jobs)), dict[Connection, _Worker]()
        try:
            while waiting or workers:
                while waiting and len(workers) < most:
                    worker = _Worker.start(self, waiting.pop())
                    workers[worker.connection] = worker
                    watch.begin(worker.job)
                for connection in wait(list(workers)):
                    assert isinstance(connection, Connection)
                    if workers[connection].listen(watch):
                        watch.end(workers.pop(connection).job)
        finally:
            for worker in workers.values():
                worker.process.terminate()
            for worker in workers.values():
                worker.process.join()


@dataclass(frozen=True)
class _Worker:
    """A process that does one job, and tells by its connection how far it is."""

    job: Job
    process: SpawnProcess
    connection: Connection

    @classmethod
    def start(cls, workshop: Workshop, job: Job) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(workshop, job, there))
        with interrupts_put_off():  # a worker that is told only half of its job would say so in a traceback
            process.start()
        there.close()
        return cls(job, process, here)

    def listen(self, watch: Watch) -> bool:
        """Take a message; whether the job is done. The end of messages without a result is an error."""
        try:
            message = self.connection.recv()
        except EOFError:
            raise ConfigError(f"the run {self.job.title!r} was ended from outside; run the command again") from None
        if isinstance(message, HiddenArmError):
            raise message
        if isinstance(message, str):
            raise RuntimeError(f"the run {self.job.title!r} failed:\n{message}")
        if message is None:
            self.process.join()
            return True
        watch.news(self.job, *message)
        return False


def _work(workshop: Workshop, job: Job, connection: Connection) -> None:
    """In the worker: messages are news (share, words), and at the end None, an error on purpose, or a trace.

    If nobody listens any more, the work ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    configure_logs("warning", "text", "reproduce")
    keep_freed_memory()
    with suppress(BrokenPipeError):
        connection.send(_outcome(workshop, job, connection))


def _outcome(workshop: Workshop, job: Job, connection: Connection) -> HiddenArmError | str | None:
    try:
        workshop.do(job, partial(_tell, connection))
    except BrokenPipeError:
        raise
    except HiddenArmError as error:
        return error
    except Exception:
        return traceback.format_exc()
    return None


def _leave(number: int, frame: FrameType | None) -> None:
    """End in good order: what a job has started ends with it."""
    raise SystemExit(128 + number)


def _tell(connection: Connection, share: float, say: str) -> None:
    connection.send((share, say))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers are as many as cores, so none of them starts threads of its own for linear algebra."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
