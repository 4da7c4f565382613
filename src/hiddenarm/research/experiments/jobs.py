"""A job: a piece of work, described completely by its fields, whose result is arrays."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

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
