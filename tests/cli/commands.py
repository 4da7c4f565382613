"""Runs the command line as a user does, in a process of its own that cannot outlive the test."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from deployment import PATIENCE
from hiddenarm.cli.main import main

KEYS = {
    "reward",
    "reward_standard_error",
    "plain_reward",
    "plain_reward_standard_error",
    "agreement",
    "rounds_per_decision",
    "rounds_per_step",
    "bytes_per_step_per_party",
    "us_per_step",
    "plain_us_per_step",
    "steps",
    "parties",
    "arms",
    "features",
    "policy",
    "privacy",
    "epsilon",
    "fraction_bits",
    "replicates",
    "data",
    "suite",
    "decisions_counted",
    "delta",
    "epsilon_own_action",
    "epsilon_dropped",
    "epsilon_replaced",
    "epsilon_with_own_action",
    "epsilon_user",
    "epsilon_total",
    "vacuous",
    "configuration",
    "curve",
    "by_replicate",
}
"""The keys of `--json`."""


@dataclass
class Ended:
    code: int
    stdout: str
    stderr: str


def hiddenarm(*arguments: object, folder: Path, stdin: str = "", patience: float = PATIENCE) -> Ended:
    """Run `hiddenarm` to its end, in a folder."""
    command = [sys.executable, "-m", "hiddenarm", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=patience, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def hiddenarm_here(*arguments: object) -> int:
    """Run `hiddenarm` in this process; only for what ends before any work. Its exit code."""
    interrupts = signal.getsignal(signal.SIGINT)
    with patch.object(sys, "argv", ["hiddenarm", *map(str, arguments)]):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            signal.signal(signal.SIGINT, interrupts)  # which are ignored once a command was interrupted
    return 0


def interrupted(*arguments: object, folder: Path, when: str) -> Ended:
    """Run `hiddenarm`, send it SIGINT once its display says `when`, and wait for its end."""
    command = [sys.executable, "-m", "hiddenarm", *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            assert process.stderr is not None
            said = ""
            while when not in said:
                line = process.stderr.readline()
                assert line, f"the command ended before it said {when!r}:\n{said}"
                said += line
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate()
        finally:
            watchdog.cancel()
    return Ended(process.returncode, stdout, said + stderr)


def check_error(ended: Ended, code: int, *words: str) -> None:
    """The command ended with this code and one clear message, and wrote no result."""
    assert ended.code == code, ended.stderr
    assert "Traceback" not in ended.stderr
    message = ended.stderr.strip().splitlines()[-1]
    assert message.lower().startswith("error:"), ended.stderr
    for word in words:
        assert word in message, message
    assert ended.stdout == ""
