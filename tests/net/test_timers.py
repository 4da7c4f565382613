"""Timers run in order, once, and say how long one may sleep."""

from __future__ import annotations

from hiddenarm.net.timers import Timers


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
