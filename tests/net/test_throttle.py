"""How often something may happen."""

from __future__ import annotations

import pytest

from hiddenarm.net.throttle import Throttle


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
