"""`benchmarks.versus` without its timing: which commit is measured, in which order, what is made of the figures, and
that nothing is left behind. The trees are tiny repositories whose `hiddenarm bench` writes fixed figures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import versus

from deployment import PATIENCE
from hiddenarm.errors import ConfigError

ROOT = Path(__file__).parents[1]
SETUP = "from setuptools import setup\nsetup(name='fake')\n"
MAIN = """
import json, sys
path = sys.argv[sys.argv.index("--json") + 1]
json.dump({{"{key}": {time} * (2 if "batch" in sys.argv else 1)}}, open(path, "w"))
"""
SLOW = """
import subprocess, time
subprocess.Popen(["sleep", "987.25"])
open({mark!r}, "w").close()
time.sleep(900)
"""
INTERRUPTED = """
import pathlib, sys
from benchmarks import versus
sys.exit(versus.main(["old"], pathlib.Path({folder!r})))
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(folder: Path, main: str) -> None:
    package = folder / "src" / "hiddenarm"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(main)
    (folder / "setup.py").write_text(SETUP)


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes a repository with an older commit, `old`, and a newer one."""

    def make(old: str, new: str) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        git(folder, "init", "--quiet")
        for main in (old, new):
            write(folder, main)
            git(folder, "add", ".")
            git(folder, "commit", "--quiet", "--message", "commit")
        git(folder, "tag", "old", "HEAD~1")
        return folder

    return make


def left_behind(folder: Path) -> list[str]:
    """Worktrees besides the repository itself."""
    return git(folder, "worktree", "list").splitlines()[1:]


def test_the_ratio_is_the_median_over_turns() -> None:
    """One turn in which the machine was busy does not count, nor does a machine that gets slower for both."""
    turns = [{"old": 100.0, "new": 110.0}, {"old": 100.0, "new": 900.0}, {"old": 300.0, "new": 315.0}]
    result = versus.summary(turns)
    assert result["new_over_old"] == pytest.approx(1.1)
    assert result["old_us_per_step"] == [100.0, 100.0, 300.0]
    assert result["new_us_per_step"] == [110.0, 900.0, 315.0]


def test_the_trees_take_turns_and_who_is_first_alternates() -> None:
    old, new = (versus.Tree(name, Path(name), name) for name in ("old", "new"))
    run: list[tuple[str, str]] = []
    told: list[str] = []

    def bench(tree: versus.Tree, name: str) -> float:
        run.append((name, tree.name))
        return float(len(run))

    turns = versus.take_turns(old, new, 2, bench, told.append)
    first = [("step", "old"), ("step", "new"), ("batch", "old"), ("batch", "new")]
    second = [("step", "new"), ("step", "old"), ("batch", "new"), ("batch", "old")]
    assert run == [*first, *second]
    assert turns["step"] == [{"old": 1.0, "new": 2.0}, {"new": 5.0, "old": 6.0}]
    assert told[0] == "turn 1 of 2, step: old 1.0 µs, new 2.0 µs"
    assert len(told) == 4


def test_both_commits_are_measured_and_nothing_is_left(
    repository: Callable[[str, str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = repository(MAIN.format(key="us_per_step", time=100), MAIN.format(key="us_per_step", time=90))
    path = tmp_path / "result.json"
    assert versus.main(["old", "--runs", "2", "--json", str(path)], folder) == 0
    result = json.loads(path.read_text())
    assert (result["old"], result["new"]) == (
        git(folder, "rev-parse", "old")[:12],
        git(folder, "rev-parse", "HEAD")[:12],
    )
    for name, factor in (("step", 1), ("batch", 2)):
        assert result[name]["new_over_old"] == pytest.approx(0.9)
        assert result[name]["old_us_per_step"] == [100.0 * factor] * 2
        assert result[name]["new_us_per_step"] == [90.0 * factor] * 2
    written = capfd.readouterr()
    assert "turn 2 of 2, batch: old 200 µs, new 180 µs" in written.err
    assert "0.900" in written.out
    assert left_behind(folder) == []


def test_changes_that_are_not_committed_are_measured_and_marked(repository: Callable[[str, str], Path]) -> None:
    folder = repository(MAIN.format(key="us_per_step", time=100), MAIN.format(key="us_per_step", time=90))
    write(folder, MAIN.format(key="us_per_step", time=50))
    result = versus.compare(folder, "old", 1, versus.run_bench, lambda _: None)
    assert result["new"] == git(folder, "rev-parse", "HEAD")[:12] + "+"
    assert result["step"]["new_over_old"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (MAIN.format(key="microseconds", time=100), "wrote no time 'us_per_step': compare with a later commit"),
        (MAIN.format(key="us_per_step", time=0), "wrote no time 'us_per_step'"),
        ("", "wrote no JSON: compare with a later commit"),
        ("raise SystemExit('No such command bench')", "failed: No such command bench"),
    ],
)
def test_an_older_commit_that_cannot_be_compared(repository: Callable[[str, str], Path], main: str, words: str) -> None:
    folder = repository(main, MAIN.format(key="us_per_step", time=90))
    commit = git(folder, "rev-parse", "old")[:12]
    with pytest.raises(ConfigError, match=f"hiddenarm bench step of {commit} {words}"):
        versus.compare(folder, "old", 1, versus.run_bench, lambda _: None)
    assert left_behind(folder) == []


@pytest.mark.parametrize("name", ["no-such-commit", "--help", ""])
def test_a_commit_that_is_not_there(repository: Callable[[str, str], Path], name: str) -> None:
    folder = repository("", "1")
    with pytest.raises(ConfigError, match=f"has no commit '{name}'"):
        versus.compare(folder, name, 1, versus.run_bench, lambda _: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_worktree_and_no_process(
    repository: Callable[[str, str], Path], tmp_path: Path, number: signal.Signals
) -> None:
    mark = tmp_path / "started"
    folder = repository(SLOW.format(mark=str(mark)), "")
    code = INTERRUPTED.format(folder=str(folder))
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the temporary worktree was removed"
    assert left_behind(folder) == []
    assert not sleeping()


def sleeping() -> list[str]:
    """Processes that a bench of this test has started."""
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [command.decode() for command in commands if b"987.25" in command]
