"""The same bandit step in other frameworks for computing on secrets, in one run with ours.

    python -m benchmarks.peers --json peers.json

Two organisations with 10 features each, 10 arms: linear scores, the best arm or with probability 0.1 a uniform one, and
the Sherman-Morrison update of the arm that was pulled, whose one-hot stays secret. MPyC and SecretFlow SPU run it, each
in an environment of its own that is made in `build/peers` with pinned packages. In every turn ours and each peer run
once, all parties as processes on this machine; a peer's ratio is the median over the turns of its time over ours in the
same turn. Every result of a peer is compared with plain NumPy; one that is wrong is told, and the exit code is then 1.
What cannot be run here is told with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.running import PEERS, Peer, environment, run_peer
from benchmarks.peers.task import Comparison, Outcome, Task, compare
from rich.console import Console

from hiddenarm.errors import ConfigError, HiddenArmError
from hiddenarm.research.bench.report import micros, open_console, print_table, write_result
from hiddenarm.research.bench.session import make_federation, measure_step
from hiddenarm.service.logs import configure_logs

ROOT = Path(__file__).parents[2]
PARTIES, ARMS, FEATURES = 2, 10, 20
_OUR_STEPS, _OUR_SECONDS = 400, 10.0

Tell = Callable[[str], None]


@dataclass
class Standing:
    """What a peer came to, turn by turn; `why_not` if it could not be run."""

    peer: Peer
    times: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    bytes_per_step: float | None = None
    worst: Comparison | None = None
    why_not: str | None = None

    def note(self, outcome: Outcome, compared: Comparison, ours: float) -> None:
        self.times.append(outcome.us_per_step)
        self.ratios.append(outcome.us_per_step / ours)
        self.bytes_per_step = outcome.bytes_per_step
        self.worst = compared if self.worst is None else max(self.worst, compared, key=lambda one: one.distance)

    def as_dict(self) -> dict[str, Any]:
        """The keys of `--json`; those of what was not measured are null."""
        return {
            "name": self.peer.name,
            "framework": self.peer.framework,
            "version": self.peer.version,
            "parties": self.peer.parties,
            "hides_from": self.peer.hides,
            "lacks": self.peer.lacks,
            "us_per_step": median(self.times) if self.times else None,
            "ratio_to_ours": median(self.ratios) if self.ratios else None,
            "ratios": self.ratios,
            "bytes_per_step_sent_by_party_0": self.bytes_per_step,
            "right": None if self.worst is None else self.worst.right,
            "compared": None if self.worst is None else asdict(self.worst),
            "why_not": self.why_not,
        }


def our_time() -> float:
    """Microseconds of a strictly online step, as `hiddenarm bench step` times it."""
    measured = measure_step(
        "fast", parties=PARTIES, arms=ARMS, features=FEATURES, steps=_OUR_STEPS, seconds=_OUR_SECONDS
    )
    return measured.private.median


def take_turns(
    standings: Sequence[Standing],
    turns: int,
    task: Task,
    ours: Callable[[], float],
    run: Callable[[Peer], Outcome],
    tell: Tell,
) -> list[float]:
    """Run ours and every peer so many times; our times. A peer that fails once is left out from there on."""
    times = []
    for turn in range(1, turns + 1):
        times.append(ours())
        tell(f"turn {turn} of {turns}, hiddenarm: {micros(times[-1])}")
        for standing in standings:
            if standing.why_not is not None:
                continue
            try:
                outcome = run(standing.peer)
                compared = compare(task, outcome)
            except ConfigError as error:
                standing.why_not = str(error)
                tell(f"turn {turn} of {turns}, {standing.peer.name}: not measured: {error}")
                continue
            standing.note(outcome, compared, times[-1])
            wrong = "" if compared.right else ", and the result is wrong"
            tell(f"turn {turn} of {turns}, {standing.peer.name}: {micros(outcome.us_per_step)}{wrong}")
    return times


def prepare(peers: Sequence[Peer], folder: Path, tell: Tell) -> tuple[list[Standing], dict[str, Path]]:
    """An environment for each framework; peers of one that cannot be installed are told and left out."""
    pythons: dict[str, Path] = {}
    failures: dict[str, str] = {}
    for peer in peers:
        if peer.framework in pythons or peer.framework in failures:
            continue
        tell(f"preparing {peer.framework} {peer.version} in {folder / peer.framework}")
        try:
            pythons[peer.framework] = environment(peer, folder)
        except ConfigError as error:
            failures[peer.framework] = str(error)
            tell(f"{peer.framework} is not measured: {error}")
    return [Standing(peer, why_not=failures.get(peer.framework)) for peer in peers], pythons


def result_of(ours: Sequence[float], standings: Sequence[Standing], task: Task) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "parties": PARTIES,
        "arms": ARMS,
        "features": FEATURES,
        "fraction_bits": task.fraction_bits,
        "turns": len(ours),
        "steps_of_a_peer": len(task.labels),
        "our_us_per_step": median(ours),
        "our_times": list(ours),
        "peers": [standing.as_dict() for standing in standings],
    }


def print_result(console: Console, result: Mapping[str, Any]) -> None:
    """A line for each, and below what a time does not say."""
    rows = [("hiddenarm, 2 parties and dealer", micros(result["our_us_per_step"]), "1", "")]
    for one in result["peers"]:
        if one["ratio_to_ours"] is None:
            rows.append((one["name"], "not measured", "", ""))
        else:
            verdict = "equal" if one["right"] else "wrong"
            rows.append((one["name"], micros(one["us_per_step"]), f"{one['ratio_to_ours']:,.0f}", verdict))
    title = f"A step: {ARMS} arms, {FEATURES} features, {result['fraction_bits']} fractional bits"
    print_table(console, title, ("", "time", "over ours", "beside NumPy"), rows)
    for one in result["peers"]:
        console.print(f"{one['name']} ({one['framework']} {one['version']})", style="bold")
        console.print(f"  hides from: {one['hides_from']}\n  lacks: {one['lacks']}")
        if one["why_not"] is not None:
            console.print(f"  not measured: {one['why_not']}", markup=False)
    console.print(
        "\nNeither framework has a bandit. What a federation needs beside the step would have to be built on it: an "
        "actor and a rewarder apart from the parties, coins that no party knows, state that survives a crash."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--turns", type=int, default=3, help="how often each runs (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="steps of a peer in a turn (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=300.0, help="longest run of a peer (default: %(default)s)")
    parser.add_argument("--framework", choices=sorted({peer.framework for peer in PEERS}), help="only this one")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "peers", help="where to install them")
    given = parser.parse_args(arguments)
    if given.turns < 1 or given.steps < 4:
        parser.error("there must be at least one turn of four steps")
    configure_logs("warning", "text", "peers")
    task = Task.of(make_federation(PARTIES, ARMS, FEATURES), given.steps)
    peers = [peer for peer in PEERS if given.framework in (None, peer.framework)]

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        standings, pythons = prepare(peers, given.environments, tell)
        ours = take_turns(
            standings,
            given.turns,
            task,
            our_time,
            lambda peer: run_peer(peer, pythons[peer.framework], task, given.seconds),
            tell,
        )
        result = result_of(ours, standings, task)
        if given.json is not None:
            write_result(given.json, result)
    except HiddenArmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; all parties were ended", file=sys.stderr)
        return 130
    print_result(open_console(), result)
    return 1 if any(one["right"] is False for one in result["peers"]) else 0


if __name__ == "__main__":
    sys.exit(main())
