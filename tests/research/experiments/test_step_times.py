"""Times of steps: what is kept of a point, that two suites really run, and that a worker leaves no process behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from deployment import PATIENCE
from hiddenarm.paper import rounds
from hiddenarm.research.bench.timing import Spread
from hiddenarm.research.experiments.experiment import Setting, Suite
from hiddenarm.research.experiments.job_progress import JobProgress, UnderWay
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.pool import Workshop
from hiddenarm.research.experiments.step_times import StepTime, StepTiming, disturbed, step_timing, steps_table

TINY = Setting("tiny", "digits")


def point(others: float) -> StepTime:
    private = Spread(10.0, 9.0, 11.0)
    return StepTime("paper", 10, 2, 60, private, Spread(0.02, 0.019, 0.021), 84, 32, 248_740, others)


def test_a_kept_point_is_read_in_milliseconds(tmp_path: Path) -> None:
    job, kept = step_timing(TINY, "fast", 10, 2), ResultStore(tmp_path)
    arrays = {"us": [1900, 2000, 2200], "plain_us": [24, 25, 27], "rounds": 10, "rounds_of_decision": 5}
    arrays |= {"bytes": 23_464, "steps": 60, "others": 0.123}
    kept.keep(job, {name: np.array(value) for name, value in arrays.items()}, 1.0, "abc")
    found = StepTime.of(job, kept)
    assert astuple(found.private)[0] == 2.0
    assert astuple(found.private) == pytest.approx((2.0, 1.9, 2.2))
    assert found.ratio == pytest.approx(80)
    assert found.reach == pytest.approx((0.1, 0.2))
    (row,) = steps_table("name", "title", [found]).rows
    assert row == ("fast suite", 2, 10, 2.0, 1.9, 2.2, 25.0, 24.0, 27.0, 80.0, 10.0, 23_464, 60, 0.12)


def test_company_is_remarked_on() -> None:
    assert disturbed([point(0.0), point(0.2)]) == []
    (remark,) = disturbed([point(0.1), point(1.5)])
    assert remark.startswith("At 1 of 2 points")


def test_blocks_are_short_where_steps_are_slow() -> None:
    blocks = [StepTiming("paper", arms, 2, 20, 4.0).effort.block for arms in (10, 40, 160)]
    assert blocks == [10, 4, 1]
    assert all(StepTiming(suite, 10, 2, 20, 4.0).alone for suite in ("fast", "paper"))


@pytest.mark.processes
@pytest.mark.parametrize(("suite", "of_decision", "of_step"), [("fast", 3, 7), ("paper", None, None)])
def test_a_step_really_runs(suite: Suite, of_decision: int | None, of_step: int | None) -> None:
    result = step_timing(TINY, suite, 4, 2).perform(None, lambda share, say: None)
    decide, learn = rounds.decide(2, 4), rounds.learn(7)
    assert result["rounds_of_decision"] == (of_decision or decide)
    assert result["rounds"] == pytest.approx(of_step or decide + learn, abs=0.2)  # the first takes one more
    assert result["us"][0] <= result["us"][1] <= result["us"][2]
    assert result["us"][1] > result["plain_us"][1] > 0
    assert result["bytes"] > 1000


@pytest.mark.processes
def test_an_interrupt_ends_the_roles_of_a_timed_run_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The job is in the middle of its steps, in a worker, whose roles are processes of their own."""
    job, under_way = StepTiming("fast", 4, 2, 1_000_000, 600.0), UnderWay(tmp_path / "under-way")
    roles: list[int] = []

    def interrupt() -> None:
        worker = awaited(lambda: under_way.read().get(job.digest)).process
        roles.extend(awaited(lambda: len(children(worker)) >= 3 and children(worker)))
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=interrupt)
    thread.start()
    workshop = Workshop(ResultStore(tmp_path / "runs"), None, under_way)
    with pytest.raises(KeyboardInterrupt), JobProgress([job], 0, under_way.read) as watch:
        workshop.do_all([job], watch)
    thread.join()
    assert len(roles) >= 3
    assert awaited(lambda: not any(Path(f"/proc/{role}").exists() for role in roles))
    assert list(tmp_path.iterdir()) == []


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def awaited(condition: Callable[[], Any]) -> Any:
    """What a condition gives once it is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("it never came about")
