"""Results of finished jobs, one file each: `runs/<kind>-<digest>.npz`.

A file holds the arrays of the result and a record: the job's description, the program's version and commit, when and
for how long it ran. It is written beside its place and then moved there, so a file that is there is whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments.jobs import Arrays, Job

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
