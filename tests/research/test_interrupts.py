"""Interrupts that come at a bad moment."""

from __future__ import annotations

import signal

import pytest

from hiddenarm.research.interrupts import interrupts_put_off, obeying_interrupts


def test_an_interrupt_takes_effect_after_the_block() -> None:
    reached = []
    with obeying_interrupts(), pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupts_put_off():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the block")
        reached.append("what follows")
    assert reached == ["the end of the block"]


def test_without_an_interrupt_the_work_goes_on() -> None:
    with obeying_interrupts():
        before = signal.getsignal(signal.SIGINT)
        with interrupts_put_off():
            pass
        assert signal.getsignal(signal.SIGINT) is before
