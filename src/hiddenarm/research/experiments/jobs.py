"""Jobs, and the results that are kept of them.

A job is a piece of work, described completely by its fields, whose result is arrays. The results of finished jobs are
kept in one file each: `runs/<kind>-<digest>.npz`. A file holds the arrays of the result and a record: the job's
description, the program's version and commit, when and for how long it ran. It is written beside its place and then
moved there, so a file that is there is whole.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError

Arrays = Mapping[str, NDArray[Any]]
Progress = Callable[[float, str], None]
"""(share of the job that is done, what to say of it)."""


@dataclass(frozen=True)
class Job(ABC):
    """Equal fields mean an equal result; where the data lies is not a field, because it changes nothing."""

    kind: ClassVar[str]
    alone: ClassVar[bool] = False
    """Whether it measures time, and so must not run beside others."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What to call it while it runs."""

    @property
    @abstractmethod
    def expected_seconds(self) -> float:
        """About how long it takes on one core: for the time left, not for any result."""

    @abstractmethod
    def perform(self, data_dir: Path | None, progress: Progress) -> Arrays:
        """Do it."""

    @property
    def description(self) -> dict[str, Any]:
        """All fields, and the kind."""
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}

    @property
    def digest(self) -> str:
        """Names the job: a hash of its description."""
        text = json.dumps(self.description, sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]


_RECORD = "record"


@dataclass(frozen=True)
class Record:
    """How a result came about."""

    version: str
    commit: str
    finished: str
    seconds: float


@dataclass(frozen=True)
class Result:
    """The arrays of a finished job, and how they came about."""

    arrays: Mapping[str, NDArray[Any]]
    record: Record

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]


class ResultStore:
    """The folder of results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, job: Job) -> bool:
        return self._path(job).exists()

    def __getitem__(self, job: Job) -> Result:
        path = self._path(job)
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            return Result(arrays, Record(**json.loads(str(arrays.pop(_RECORD)))["record"]))
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise ConfigError(f"{path} cannot be read: remove it, and its run is made again") from error

    def keep(self, job: Job, arrays: Arrays, seconds: float, commit: str) -> None:
        """Write a result; it is there as a whole or not at all."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"version": version("hiddenarm"), "commit": commit, "finished": finished, "seconds": round(seconds, 3)}
        text = json.dumps({"job": job.description, "record": record}, sort_keys=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(job)
        beside = path.with_suffix(f".{os.getpid()}.partial")
        with beside.open("wb") as file:
            np.savez_compressed(file, **{_RECORD: np.array(text)}, **arrays)  # type: ignore[arg-type]
        beside.replace(path)

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.kind}-{job.digest}.npz"


UNKNOWN = "unknown"


@cache
def commit_of_source() -> str:
    """The commit of the source tree this runs from, with `+` if files differ from it; unknown where there is none.

    Asked for once: what is changed later is not what this process runs.
    """
    folder = Path(__file__).parent
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return UNKNOWN
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":/src")
    return f"{head}+" if changed else head


def surroundings() -> dict[str, str]:
    """What the page says about machine and versions."""
    packages = {name: version(name) for name in ("hiddenarm", "numpy", "scikit-learn", "cryptography", "matplotlib")}
    return {
        **packages,
        "Python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "--no-optional-locks", "-C", str(folder), *arguments), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
