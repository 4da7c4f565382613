"""Timers run in order, once, and say how long one may sleep; a throttle says how often something may happen."""

from __future__ import annotations

import pytest

from hiddenarm.net.timing import Throttle, Timers


def test_timers_run_in_order_and_once() -> None:
    timers, ran = Timers(), list[str]()
    timers.at(2.0, lambda: ran.append("second"))
    timers.at(1.0, lambda: ran.append("first"))
    timers.at(9.0, lambda: ran.append("later"))
    timers.run(2.0)
    timers.run(2.0)
    assert ran == ["first", "second"]


def test_sleep_ends_with_the_next_timer() -> None:
    timers = Timers()
    assert timers.wait(0.0, None) is None
    assert timers.wait(0.0, 3.0) == 3.0
    timers.at(5.0, lambda: None)
    assert timers.wait(1.0, None) == 4.0
    assert timers.wait(1.0, 3.0) == 3.0
    assert timers.wait(7.0, 3.0) == 0.0


def test_a_burst_then_a_steady_rate() -> None:
    throttle = Throttle(10.0, 3, now=0.0)
    assert [throttle.pause(0.0) for _ in range(4)] == [0.0, 0.0, 0.0, pytest.approx(0.1)]
    assert throttle.pause(0.05) == pytest.approx(0.05)
    assert throttle.pause(0.1) == 0.0
    assert throttle.pause(0.1) > 0


def test_no_more_than_a_burst_is_saved_up() -> None:
    throttle = Throttle(10.0, 3, now=0.0)
    assert [throttle.pause(100.0) == 0.0 for _ in range(4)] == [True, True, True, False]


def test_the_rate_in_the_long_run() -> None:
    throttle, now, passed = Throttle(50.0, 5, now=0.0), 0.0, 0
    while now < 10:
        passed += throttle.pause(now) == 0.0
        now += 0.001
    assert passed == pytest.approx(505, abs=2)
