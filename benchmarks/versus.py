"""This source tree against an older commit: `hiddenarm bench` of both in turns, so that both see the same machine.

    python -m benchmarks.versus COMMIT --json FILE

The older commit is checked out into a temporary worktree and compiled there; both run in this Python, each with its own
source first in the path. In every turn each tree runs each bench once, and the tree that goes first alternates. The
figure of a bench, `new_over_old`, is the median over the turns of the private time of this tree over that of the older
one in the same turn: whatever slows the machine for some minutes slows both sides of a ratio. At the end, and when it
is interrupted, the worktree and all processes are gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from rich.console import Console

from hiddenarm.errors import ConfigError, HiddenArmError
from hiddenarm.research.bench.report import micros, open_console, print_table, write_result

ROOT = Path(__file__).parents[1]
BENCHES: Mapping[str, tuple[str, ...]] = {"step": ("step",), "batch": ("batch", "--batch", "100")}
"""What is run, as arguments of `hiddenarm bench`, by the name that it has in the result."""
PRIVATE_TIME = "us_per_step"
"""Of what a bench writes: the median time of a private step, or interaction."""
_END_SECONDS = 5.0
_COMMIT_LETTERS = 12


@dataclass(frozen=True)
class Tree:
    """A source tree to measure."""

    name: str
    folder: Path
    commit: str

    @property
    def environment(self) -> dict[str, str]:
        """That of a process that imports hiddenarm from this tree; the roles that it starts inherit it."""
        return {**os.environ, "PYTHONPATH": str(self.folder / "src")}


Turn = Mapping[str, float]
"""The private times of one turn, in microseconds, by the name of the tree."""
Bench = Callable[[Tree, str], float]
"""Runs a bench of a tree by its name; returns the private time."""


@contextmanager
def checked_out(root: Path, commit: str) -> Iterator[Tree]:
    """An older commit of the repository in a temporary worktree, which is removed in any case."""
    found = _commit(root, commit)
    with tempfile.TemporaryDirectory(prefix="hiddenarm-versus-") as folder:
        place = Path(folder) / "old"
        try:
            _git(root, "worktree", "add", "--detach", "--quiet", str(place), found)
            yield Tree("old", place, found[:_COMMIT_LETTERS])
        finally:
            subprocess.run(
                ["git", "-C", str(root), "worktree", "remove", "--force", str(place)], capture_output=True, check=False
            )


def this_tree(root: Path) -> Tree:
    """The source as it lies here; `+` marks changes that are not committed."""
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src", "setup.py")
    return Tree("new", root, _commit(root, "HEAD")[:_COMMIT_LETTERS] + ("+" if changed else ""))


def build(tree: Tree) -> None:
    """Compile the extensions of a tree in place, and make sure that they are the ones that will be imported."""
    with tempfile.TemporaryDirectory(prefix="hiddenarm-build-") as objects:
        command = ["setup.py", "--quiet", "build_ext", "--inplace", "--build-temp", objects]
        _run(tree, [sys.executable, *command], f"cannot compile {tree.commit}")
    where = _run(
        tree, [sys.executable, "-c", "import hiddenarm; print(hiddenarm.__file__)"], f"{tree.commit} is broken"
    )
    if not Path(where.strip()).resolve().is_relative_to(tree.folder.resolve()):
        raise ConfigError(f"hiddenarm is imported from {where.strip()} in place of {tree.folder}: use a plain install")


def run_bench(tree: Tree, name: str, *, quick: bool = False) -> float:
    """The private time of one run of a bench."""
    with tempfile.TemporaryDirectory(prefix="hiddenarm-bench-") as folder:
        path = Path(folder) / "result.json"
        options = ["--json", str(path), *(["--quick"] if quick else [])]
        command = [sys.executable, "-m", "hiddenarm", "bench", *BENCHES[name], *options]
        _run(tree, command, f"hiddenarm bench {name} of {tree.commit} failed")
        return private_time(path, name, tree.commit)


def private_time(path: Path, name: str, commit: str) -> float:
    """The time in what a bench wrote."""
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ConfigError(f"hiddenarm bench {name} of {commit} wrote no JSON: compare with a later commit") from None
    time = result.get(PRIVATE_TIME) if isinstance(result, dict) else None
    if not isinstance(time, int | float) or isinstance(time, bool) or time <= 0:
        raise ConfigError(
            f"hiddenarm bench {name} of {commit} wrote no time {PRIVATE_TIME!r}: compare with a later commit"
        )
    return float(time)


def take_turns(old: Tree, new: Tree, runs: int, bench: Bench, tell: Callable[[str], None]) -> dict[str, list[Turn]]:
    """Run every bench of both trees so many times; the order of the trees alternates."""
    turns: dict[str, list[Turn]] = {name: [] for name in BENCHES}
    for number in range(runs):
        order = (old, new) if number % 2 == 0 else (new, old)
        for name, made in turns.items():
            times = {tree.name: bench(tree, name) for tree in order}
            made.append(times)
            told = ", ".join(f"{tree.name} {micros(times[tree.name])}" for tree in (old, new))
            tell(f"turn {number + 1} of {runs}, {name}: {told}")
    return turns


def summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """The ratio of a bench, and the figures that it comes from."""
    ratios = [turn["new"] / turn["old"] for turn in turns]
    return {
        "new_over_old": median(ratios),
        "ratios": ratios,
        "old_us_per_step": [turn["old"] for turn in turns],
        "new_us_per_step": [turn["new"] for turn in turns],
    }


def compare(root: Path, commit: str, runs: int, bench: Bench, tell: Callable[[str], None]) -> dict[str, Any]:
    """What `--json` writes."""
    with checked_out(root, commit) as old:
        new = this_tree(root)
        for tree in (old, new):
            tell(f"compiling {tree.name} ({tree.commit})")
            build(tree)
        turns = take_turns(old, new, runs, bench, tell)
    return {
        "old": old.commit,
        "new": new.commit,
        "runs": runs,
        **{name: summary(made) for name, made in turns.items()},
    }


def print_result(console: Console, result: Mapping[str, Any]) -> None:
    """A line for each bench."""
    rows = [
        (
            name,
            micros(median(result[name]["old_us_per_step"])),
            micros(median(result[name]["new_us_per_step"])),
            f"{result[name]['new_over_old']:.3f}",
            f"{min(result[name]['ratios']):.3f}-{max(result[name]['ratios']):.3f}",
        )
        for name in BENCHES
    ]
    title = f"Private time of {result['new']} (new) and {result['old']} (old); medians of {result['runs']} turns"
    print_table(console, title, ("bench", "old", "new", "new over old", "over all turns"), rows)


def _run(tree: Tree, command: Sequence[str], failure: str) -> str:
    """Run a command in a tree, in a session of its own, so that whatever it has started ends with it; its output."""
    with subprocess.Popen(
        command,
        cwd=tree.folder,
        env=tree.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            _end_session(process)
            raise
    if process.returncode:
        told = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        raise ConfigError(f"{failure}: {told[-1]}")
    return output


def _end_session(process: subprocess.Popen[str]) -> None:
    """Ask all processes of a session to end, and then make them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_END_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _commit(root: Path, name: str) -> str:
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except ConfigError:
        raise ConfigError(f"{root} has no commit {name!r}") from None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus", description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--runs", type=int, default=5, help="turns to take (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="run the quick benches: rough figures")
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error(f"--runs must be at least 1, got {given.runs}")
    before = signal.signal(signal.SIGTERM, _interrupt)
    console = open_console()
    try:
        result = compare(
            root,
            given.commit,
            given.runs,
            lambda tree, name: run_bench(tree, name, quick=given.quick),
            lambda text: print(text, file=sys.stderr, flush=True),
        )
        if given.json is not None:
            write_result(given.json, result)
    except HiddenArmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the temporary worktree was removed", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    print_result(console, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
