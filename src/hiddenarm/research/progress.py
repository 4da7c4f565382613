"""What a long run shows while it lasts, and the table it ends with.

On a terminal, three lines redrawn ten times a second by a thread of their own; elsewhere (a log, CI) a plain
line every few seconds. `update` only notes the numbers, so it may be called at every step.

Ctrl-C ends a long run, also one that was started in the background, where a shell has interrupts ignored. A run of
steps ends after the step under way, with the result of the steps made; a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NamedTuple, Self, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REDRAWS_PER_SECOND = 10
SECONDS_BETWEEN_LINES = 5.0
RATE_WINDOW_SECONDS = 10.0

Clock = Callable[[], float]


class Standing(NamedTuple):
    """Where a run stands: steps done, mean rewards so far and the share of steps with equal arms."""

    steps: int = 0
    reward: float | None = None
    plain_reward: float | None = None
    agreement: float | None = None


class RecentRate:
    """Steps per second over the last seconds."""

    def __init__(self, start: float) -> None:
        self._samples = deque([(start, 0)])

    def sample(self, now: float, steps: int) -> float:
        """Note that `steps` are done at `now`; the rate since the oldest sample in the window."""
        self._samples.append((now, steps))
        while len(self._samples) > 2 and self._samples[1][0] <= now - RATE_WINDOW_SECONDS:
            self._samples.popleft()
        then, before = self._samples[0]
        return (steps - before) / (now - then) if now > then else 0.0


class ProgressDisplay:
    """A context manager around a run of `total` steps, told where it stands by `update`."""

    def __init__(
        self,
        total: int,
        title: str,
        console: Console | None = None,
        clock: Clock = time.monotonic,
        unit: str = "steps",
    ) -> None:
        self._total = total
        self._title = title
        self._unit = unit
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._standing = Standing()
        self._start = self._next_line = 0.0
        self._printed: Standing | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._start = self._clock()
        self._rate = RecentRate(self._start)
        if self._console.is_interactive:
            self._next_line = math.inf
            self._live = Live(
                get_renderable=self._drawing, console=self._console, refresh_per_second=REDRAWS_PER_SECOND
            )
            self._live.start()
        else:
            self._next_line = self._start + SECONDS_BETWEEN_LINES
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._printed != self._standing:
            self._print_line(self._clock())

    def say(self, text: str) -> None:
        """Print a line beside the display."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(
        self,
        *,
        steps: int,
        reward: float | None = None,
        plain_reward: float | None = None,
        agreement: float | None = None,
    ) -> None:
        """Note where the run stands: steps done, means over the run so far, agreement from 0 to 1."""
        self._standing = Standing(steps, reward, plain_reward, agreement)
        if (now := self._clock()) >= self._next_line:
            self._print_line(now)

    def _print_line(self, now: float) -> None:
        self._next_line = now + SECONDS_BETWEEN_LINES
        self._printed = self._standing
        words = [f"{self._title}: {self._count()}", *self._pace(now), *self._results()]
        self._console.print("  ".join(words), highlight=False, markup=False, soft_wrap=True)

    def _drawing(self) -> RenderableType:
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_column(no_wrap=True, justify="right")
        bar = ProgressBar(total=max(self._total, 1), completed=self._standing.steps)
        head.add_row(Text(self._title, style="bold"), bar, Text(self._count()))
        pace = Text("  ".join(self._pace(self._clock())), style="dim")
        return Group(head, pace, Text("  ".join(self._results()), style="cyan"))

    def _count(self) -> str:
        share = self._standing.steps / self._total if self._total else 1.0
        return f"{self._standing.steps:,}/{self._total:,} {self._unit} ({percent(share, 1)})"

    def _pace(self, now: float) -> list[str]:
        steps = self._standing.steps
        rate = self._rate.sample(now, steps)
        left = duration((self._total - steps) / rate) if rate > 0 else "unknown"
        return [f"{short(rate)} {self._unit}/s", f"elapsed {duration(now - self._start)}", f"left {left}"]

    def _results(self) -> list[str]:
        now, words = self._standing, []
        if now.reward is not None:
            words.append(f"reward {now.reward:.4f} private")
        if now.plain_reward is not None:
            words.append(f"{now.plain_reward:.4f} plain")
        if now.agreement is not None:
            words.append(f"agreement {percent(now.agreement, 2)}")
        return words


def summary_table(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """The end of a run: what was measured on the left, the number on the right."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False, box=None)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def percent(share: float, digits: int) -> str:
    """A share of 1 in percent, rounded down: only a whole reads 100."""
    scale = 10**digits
    return f"{math.floor(share * 100 * scale + 1e-9) / scale:.{digits}f}%"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as h:mm:ss."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}"


def short(rate: float) -> str:
    """A rate with about three digits."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


T = TypeVar("T")


class Interrupt:
    """Whether the user has interrupted."""

    came = False


@contextmanager
def interrupts_noted() -> Iterator[Interrupt]:
    """Have the first interrupt be noted meanwhile; another one raises KeyboardInterrupt."""
    interrupt = Interrupt()

    def note(_: int, __: FrameType | None) -> None:
        if interrupt.came:
            raise KeyboardInterrupt
        interrupt.came = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)


def until_interrupted(items: Iterable[T]) -> Iterator[T]:
    """Yield items until the user interrupts."""
    with interrupts_noted() as interrupt:
        for item in items:
            if interrupt.came:
                return
            yield item


@contextmanager
def obeying_interrupts() -> Iterator[None]:
    """Have an interrupt raise KeyboardInterrupt meanwhile."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def interrupts_put_off() -> Iterator[None]:
    """Have an interrupt take effect at the end of the block. Processes and threads that are started in it never get
    one: Ctrl-C, which a terminal sends to all processes of a command, is for the command to obey."""
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    previous = signal.signal(signal.SIGINT, note)  # also for threads that were there before
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, previous)
    if came:
        signal.raise_signal(signal.SIGINT)
