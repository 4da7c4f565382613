"""Interrupts that come at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Event, Thread

import pytest

from hiddenarm.research.progress import interrupts_put_off, obeying_interrupts


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


def test_a_process_that_is_started_meanwhile_never_gets_one() -> None:
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('alive')"
    with interrupts_put_off():
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


def test_an_interrupt_that_another_thread_is_given_is_put_off_too() -> None:
    ended = Event()
    other = Thread(target=ended.wait)
    other.start()
    with obeying_interrupts(), pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupts_put_off():
            os.kill(os.getpid(), signal.SIGINT)
            ended.set()
            other.join()
        pytest.fail("it was lost")
