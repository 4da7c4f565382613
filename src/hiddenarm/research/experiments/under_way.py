"""Jobs under way say how far they are, in a file each: `under-way/<digest>.json` in the folder of the reproduction.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments.jobs import Job, Progress

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
