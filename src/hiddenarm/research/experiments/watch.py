"""What a reproduction shows while it runs: jobs done, time left, and how the jobs under way are doing.

The time left is judged by the expected time of the jobs, scaled by how fast they went so far.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hiddenarm.research.experiments.jobs import Job
from hiddenarm.research.progress import Clock, duration, percent

SECONDS_BETWEEN_LINES = 10.0
REDRAWS_PER_SECOND = 2


class Watch:
    """A context manager around all jobs of a reproduction, those of which `done` were kept from before."""

    def __init__(
        self, jobs: Sequence[Job], done: int, console: Console | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._jobs = {job.digest: job for job in jobs}
        self._total = len(jobs) + done
        self._done = done
        self._work = sum(job.expected_seconds for job in jobs)
        self._finished = 0.0
        self._shares: dict[str, tuple[float, str]] = {}
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, job: Job) -> None:
        """A job has begun."""
        self._shares[job.digest] = (0.0, "")
        self._line()

    def news(self, job: Job, share: float, say: str) -> None:
        """How far a job is."""
        self._shares[job.digest] = (share, say)
        self._line()

    def end(self, job: Job) -> None:
        """A job is done and kept."""
        self._shares.pop(job.digest, None)
        self._finished += job.expected_seconds
        self._done += 1
        self._line()

    @property
    def share(self) -> float:
        """How much of the work is done."""
        under_way = sum(self._jobs[digest].expected_seconds * share for digest, (share, _) in self._shares.items())
        return (self._finished + under_way) / self._work if self._work else 1.0

    def _line(self) -> None:
        now = self._clock()
        if self._live is None and now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            words = [self._head(), *self._under_way()]
            self._console.print("  ".join(words), highlight=False, markup=False, soft_wrap=True)

    def _head(self) -> str:
        elapsed, share = self._clock() - self._start, self.share
        left = duration(elapsed / share * (1 - share)) if share > 0 else "unknown"
        return (
            f"reproduce: {self._done}/{self._total} runs  {percent(share, 1)}  elapsed {duration(elapsed)}  left {left}"
        )

    def _under_way(self) -> list[str]:
        return [
            f"[{self._jobs[digest].title}: {percent(share, 0)} {say}]" for digest, (share, say) in self._shares.items()
        ]

    def _drawing(self) -> RenderableType:
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_row(Text(self._head(), style="bold"), ProgressBar(total=1.0, completed=self.share))
        return Group(head, *(Text(line, style="dim") for line in self._under_way()))
