"""What a reproduction shows while it runs: jobs done, time left, and how the jobs under way are doing.

The time left is judged by the expected time of the jobs, scaled by how fast they went so far.

Jobs under way say how far they are, in a file each: `under-way/<digest>.json` in the folder of the reproduction.

Workers write these files and the command reads them. A worker on a machine that does not see the folder says nothing.
Temporary files of jobs lie there too. The folder goes with the command, so that nothing is left by workers that were
killed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Final, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments.jobs import Job, Progress
from hiddenarm.research.progress import Clock, duration, percent

_SECONDS_BETWEEN_NEWS: Final = 0.5
_SUFFIX: Final = ".json"


class News(NamedTuple):
    """How far a job is: the share that is done, what to say of it, and which process does it."""

    share: float
    say: str
    process: int


class OrphanedError(BaseException):
    """The command that waits for a job has gone. Not an Exception: no job is to handle it."""


@dataclass(frozen=True)
class UnderWay:
    """The folder. `command` is the process whose child does the job; None on a cluster."""

    folder: Path
    command: int | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make it, empty, and remove it at the end."""
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {self.folder}: {error.strerror}") from error
        try:
            yield
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def read(self) -> Mapping[str, News]:
        """The jobs under way, by their digests."""
        found = {}
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            with suppress(OSError, ValueError, TypeError):
                found[path.name.removesuffix(_SUFFIX)] = News(*json.loads(path.read_text()))
        return found

    @contextmanager
    def telling(self, job: Job) -> Iterator[Progress]:
        """At the worker: what a job calls to say how far it is. Its temporary files go into the folder meanwhile."""
        path = self.folder / f"{job.digest}{_SUFFIX}"
        teller = _Teller(path, self.command)
        with self._temporary_files_inside():
            try:
                teller(0.0, "")
                yield teller
            finally:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    @contextmanager
    def _temporary_files_inside(self) -> Iterator[None]:
        """In a process that does nothing but one job of this command."""
        if self.command is None:
            yield
            return
        before, tempfile.tempdir = tempfile.tempdir, str(self.folder)
        try:
            yield
        finally:
            tempfile.tempdir = before


@dataclass
class _Teller:
    """Writes the file of one job, at most twice a second; ends the job if its command has gone."""

    path: Path
    command: int | None
    due: float = 0.0

    def __call__(self, share: float, say: str) -> None:
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + _SECONDS_BETWEEN_NEWS
        if self.command is not None and os.getppid() != self.command:
            raise OrphanedError
        beside = self.path.with_suffix(f".{os.getpid()}.partial")
        with suppress(OSError):  # where the folder cannot be seen, nothing is said
            beside.write_text(json.dumps(News(share, say, os.getpid())))
            beside.replace(self.path)


SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_LOOKS = 1.0
REDRAWS_PER_SECOND = 2


class JobProgress:
    """A context manager around all jobs of a reproduction, those of which `done` were kept from before. `read` gives
    news of jobs under way, by their digests."""

    def __init__(
        self,
        jobs: Sequence[Job],
        done: int,
        read: Callable[[], Mapping[str, News]],
        console: Console | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._jobs = {job.digest: job for job in jobs}
        self._total = len(jobs) + done
        self._done = done
        self._work = sum(job.expected_seconds for job in jobs)
        self._finished = 0.0
        self._read = read
        self._ended = Event()
        self._guard = Lock()
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._live: Live | None = None
        self._start = self._printed = clock()

    def __enter__(self) -> Self:
        if self._console.is_interactive:
            self._live = Live(
                get_renderable=self._drawing, console=self._console, refresh_per_second=REDRAWS_PER_SECOND
            )
            self._live.start()
        else:
            Thread(target=self._look_again_and_again, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()

    def end(self, job: Job) -> None:
        """A job is done and kept."""
        with self._guard:
            del self._jobs[job.digest]
            self._finished += job.expected_seconds
            self._done += 1
        self.look()

    def look(self) -> None:
        """Print a line if it is time for one."""
        now = self._clock()
        with self._guard:
            if self._live is None and now - self._printed >= SECONDS_BETWEEN_LINES:
                self._printed = now
                words = self._words()
                self._console.print("  ".join(words), highlight=False, markup=False, soft_wrap=True)

    @property
    def share(self) -> float:
        """How much of the work is done."""
        return self._share(self._news())

    def _look_again_and_again(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            self.look()

    def _news(self) -> list[tuple[Job, News]]:
        """Of the jobs that are not done."""
        jobs = self._jobs.copy()
        return [(jobs[digest], news) for digest, news in self._read().items() if digest in jobs]

    def _share(self, news: Sequence[tuple[Job, News]]) -> float:
        under_way = sum(job.expected_seconds * one.share for job, one in news)
        return (self._finished + under_way) / self._work if self._work else 1.0

    def _words(self) -> list[str]:
        news = self._news()
        return [self._head(self._share(news)), *_under_way(news)]

    def _head(self, share: float) -> str:
        elapsed = self._clock() - self._start
        left = duration(elapsed / share * (1 - share)) if share > 0 else "unknown"
        return (
            f"reproduce: {self._done}/{self._total} runs  {percent(share, 1)}  elapsed {duration(elapsed)}  left {left}"
        )

    def _drawing(self) -> RenderableType:
        line, *jobs = self._words()
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_row(Text(line, style="bold"), ProgressBar(total=1.0, completed=self.share))
        return Group(head, *(Text(line, style="dim") for line in jobs))


def _under_way(news: Sequence[tuple[Job, News]]) -> list[str]:
    return [f"[{job.title}: {percent(one.share, 0)} {one.say}]" for job, one in news]
