"""Work of others is seen, and our own is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hiddenarm.research.experiments.step_times import OtherLoad, judged_times

BUSY = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"


def test_work_of_a_process_that_was_not_awaited_is_others() -> None:
    """Until it is awaited, a child's time is not ours: so it stands for a stranger here."""
    company = OtherLoad()
    stranger = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert stranger.stdout is not None
    stranger.stdout.read()
    seen = company.cores()
    stranger.wait()
    assert seen > 0
    assert company.cores() < seen


@pytest.mark.parametrize(("condition", "verdict"), [(True, "holds"), (False, "differs")])
def test_times_are_judged_only_on_an_idle_machine(condition: bool, verdict: str) -> None:
    assert judged_times(condition, "why", [0.0, 0.2]) == (verdict, "" if condition else "why")
    found, explanation = judged_times(condition, "why", [0.0, 0.9])
    assert found == "not checked"
    assert "0.9 cores" in explanation
