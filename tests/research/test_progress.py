"""The display is quiet, cheap and right about where a run stands."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from hiddenarm.research.progress import (
    RATE_WINDOW_SECONDS,
    ProgressDisplay,
    RecentRate,
    duration,
    percent,
    short,
    summary_table,
)


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def log_console() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=False, width=80), written


def run(total: int, seconds_per_step: float) -> list[str]:
    """The plain lines of a run on a log."""
    console, written = log_console()
    clock = FakeClock()
    with ProgressDisplay(total, "digits", console, clock) as display:
        for step in range(1, total + 1):
            clock.now += seconds_per_step
            display.update(steps=step, reward=0.5, plain_reward=0.25, agreement=0.99999)
    return written.getvalue().splitlines()


def test_a_log_gets_a_line_every_five_seconds_and_the_last() -> None:
    lines = run(total=1536, seconds_per_step=1 / 128)
    assert [line.split()[1] for line in lines] == ["640/1,536", "1,280/1,536", "1,536/1,536"]


def test_a_short_run_gets_one_line_with_everything() -> None:
    assert run(total=10, seconds_per_step=0.125) == [
        "digits: 10/10 steps (100.0%)  8 steps/s  elapsed 0:00:01  left 0:00:00"
        "  reward 0.5000 private  0.2500 plain  agreement 99.99%"
    ]


def test_the_last_line_is_not_printed_twice() -> None:
    assert len(run(total=1, seconds_per_step=6.0)) == 1


def test_unknown_numbers_are_left_out() -> None:
    console, written = log_console()
    with ProgressDisplay(5, "run", console, FakeClock()) as display:
        display.update(steps=2)
    assert written.getvalue() == "run: 2/5 steps (40.0%)  0 steps/s  elapsed 0:00:00  left unknown\n"


def test_a_title_is_not_markup() -> None:
    console, written = log_console()
    with ProgressDisplay(1, "[bold]x[/]", console, FakeClock()):
        pass
    assert written.getvalue().startswith("[bold]x[/]: 0/1")


def test_an_error_passes_through_with_a_last_line() -> None:
    console, written = log_console()
    display = ProgressDisplay(9, "run", console)
    with pytest.raises(ZeroDivisionError), display:
        display.update(steps=4 // 0)
    assert "0/9" in written.getvalue()


def test_a_terminal_gets_a_drawing() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, force_interactive=True, width=90)
    with ProgressDisplay(200, "[x] digits", console) as display:
        display.update(steps=200, reward=0.5, plain_reward=0.25, agreement=1.0)
    last = written.getvalue()
    for words in (
        "[x] digits",
        "200/200 steps (100.0%)",
        "steps/s",
        "0.2500 plain",
        "agreement 100.00%",
        "━",
    ):
        assert words in last


def test_update_is_cheap() -> None:
    """About half a microsecond; the bound leaves room for a busy machine and none for a redraw."""
    console, _ = log_console()
    with ProgressDisplay(100_000, "run", console) as display:
        best = min(_seconds_for_updates(display, 10_000) for _ in range(5))
    assert best / 10_000 < 10e-6


def _seconds_for_updates(display: ProgressDisplay, count: int) -> float:
    start = time.thread_time()
    for step in range(count):
        display.update(steps=step, reward=0.5, plain_reward=0.5, agreement=1.0)
    return time.thread_time() - start


def test_rate_is_recent() -> None:
    rate = RecentRate(0.0)
    assert rate.sample(0.0, 0) == 0.0
    assert rate.sample(1.0, 100) == pytest.approx(100.0)
    for second in range(2, 40):
        recent = rate.sample(float(second), 100 + 10 * (second - 1))
    assert recent == pytest.approx(10.0)
    assert rate.sample(39.0 + 3 * RATE_WINDOW_SECONDS, 480) == pytest.approx(0.0)


def test_numbers_for_people() -> None:
    assert [duration(seconds) for seconds in (0.0, 59.9, 61.0, 36_061.0)] == [
        "0:00:00",
        "0:00:59",
        "0:01:01",
        "10:01:01",
    ]
    assert [percent(share, 2) for share in (1.0, 0.99999, 0.29, 0.0)] == [
        "100.00%",
        "99.99%",
        "29.00%",
        "0.00%",
    ]
    assert [short(rate) for rate in (0.0, 0.1234, 12.34, 12345.6)] == ["0", "0.123", "12.3", "12,346"]


def test_summary_table_shows_every_row() -> None:
    console, written = log_console()
    console.print(summary_table("Run", [("private reward", "0.7677"), ("[rounds]", "12")]))
    lines = written.getvalue().splitlines()
    assert lines[0].strip() == "Run"
    assert lines[1].split() == ["private", "reward", "0.7677"]
    assert lines[2].split() == ["[rounds]", "12"]
