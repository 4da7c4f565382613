"""Experiment 5: the time of a step against the number of parties, a line for each number of arms."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hiddenarm.research.experiments.experiment import (
    SUITE_NAMES,
    Claim,
    Findings,
    Picture,
    Scale,
    Setting,
    Suite,
    Table,
    judged,
)
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.step_times import (
    Line,
    StepTime,
    StepTiming,
    disturbed,
    draw_scaling,
    judged_times,
    spoken,
    step_timing,
    steps_table,
)

_PARTIES: Mapping[Scale, Sequence[int]] = {"full": (2, 3, 4, 5, 6, 8), "quick": (2, 3, 4), "tiny": (2, 3)}
_ARMS: Mapping[Scale, Sequence[int]] = {"full": (10, 20, 40), "quick": (10,), "tiny": (10,)}
_SHARING = 3
"""From so many parties on, all of them share two cores and none of them polls."""
_QUADRATIC = (1.5, 2.5)
_PROPORTIONAL = 0.1
_PLACE = "Experiments, Efficiency and scale"


class PartiesTime:
    """Lines on logarithmic axes, and their slope."""

    name = "parties-time"
    title = "Time of a step and the number of parties"
    place = "Figure 5 (fig:scaling_parties)"

    def jobs(self, setting: Setting) -> Sequence[StepTiming]:
        return [job for suite in setting.suites for jobs in _grid(setting, suite).values() for job in jobs]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        lines = [
            Line(suite, f"|A| = {arms}", [job.parties for job in jobs], [StepTime.of(job, kept) for job in jobs])
            for suite in setting.suites
            for arms, jobs in _grid(setting, suite).items()
        ]
        points = [point for line in lines for point in line.points]
        return Findings(
            pictures=[_picture(setting, lines)],
            tables=[_exponents(lines), steps_table("parties-time", "The points of the figure", points)],
            claims=[*(_quadratic(lines, suite) for suite in setting.suites), _everybody_to_everybody(lines)],
            remarks=[_shared_cores(), *disturbed(points)],
        )


def _grid(setting: Setting, suite: Suite) -> dict[int, list[StepTiming]]:
    """The points of each line, by the number of arms."""
    return {
        arms: [step_timing(setting, suite, arms, parties) for parties in setting.sized(_PARTIES)]
        for arms in setting.sized(_ARMS)
    }


def _picture(setting: Setting, lines: Sequence[Line]) -> Picture:
    return draw_scaling(
        setting,
        lines,
        name="parties-time",
        across="number of parties N",
        legend="arms",
        caption=f"Time of a strictly online step against the number of parties, which share {os.cpu_count()} cores. "
        "Medians over blocks of steps; bars: quartiles. Grey: slopes 1 and 2.",
        guides_from=_SHARING,
    )


def _bytes_by_peers(line: Line) -> float | None:
    """The exponent with which a party's bytes grow with the number of its peers."""
    by_peers = Line(line.suite, line.label, [size - 1 for size in line.sizes], line.points)
    return by_peers.bytes_slope(0)


def _exponents(lines: Sequence[Line]) -> Table:
    header = (
        "suite", "arms", "time, over N", f"time, over N from {_SHARING} on", "bytes of a party, over N - 1",
        "bytes of all parties, over N",
    )  # fmt: skip
    rows = [
        (
            SUITE_NAMES[line.suite],
            line.points[0].arms,
            *(
                None if slope is None else round(slope, 2)
                for slope in (
                    line.time_slope(0),
                    line.time_slope(_SHARING),
                    _bytes_by_peers(line),
                    line.slope(lambda point: point.parties * point.bytes_sent, start=0),
                )
            ),
        )
        for line in lines
    ]
    return Table("parties-time-exponents", "Exponents with which time and bytes grow with the parties", header, rows)


def _judged_slope(line: Line) -> float | None:
    """From three parties on if these are enough points: two have a core each, and poll."""
    enough = sum(size >= _SHARING for size in line.sizes) >= 2
    return line.time_slope(_SHARING if enough else 0)


def _quadratic(lines: Sequence[Line], suite: Suite) -> Claim:
    here = [line for line in lines if line.suite == suite]
    slopes = [(line.label, _judged_slope(line)) for line in here]
    known = [slope for _, slope in slopes if slope is not None]
    low, high = _QUADRATIC
    quadratic = all(low <= slope <= high for slope in known)
    reason = (
        "Every party sends to every other, N (N - 1) messages a round, and all parties share the cores of one machine, "
        "so that the time is that of all messages and of all parties' work together."
    )
    if not quadratic and max(known) > high:
        reason += " Steeper than that: with more processes than cores, each message also waits for its receiver."
    elif not quadratic:
        reason += " Flatter than that: work that each party does alone grows with N only, and is the larger part."
    verdict, explanation = judged_times(quadratic, reason, [point.others for line in here for point in line.points])
    return Claim(
        "The run-time of our algorithm is O(|P|^2) ... which leads to the quadratic scaling observed.",
        _PLACE,
        f"{SUITE_NAMES[suite]}: exponent of the time over N, {spoken(slopes)} (N from "
        f"{_SHARING if here[0].sizes[-2] >= _SHARING else here[0].sizes[0]} to {here[0].sizes[-1]}); over all N, "
        f"{spoken([(line.label, line.time_slope(0)) for line in here])}",
        verdict,
        explanation or reason,
    )


def _everybody_to_everybody(lines: Sequence[Line]) -> Claim:
    slopes = [(f"{SUITE_NAMES[line.suite]}, {line.label}", _bytes_by_peers(line)) for line in lines]
    proportional = all(slope is None or slope > 1 - _PROPORTIONAL for _, slope in slopes)
    rounds = "; ".join(
        f"{SUITE_NAMES[line.suite]} {line.points[0].rounds:g} to {line.points[-1].rounds:g}"
        for line in lines
        if line.points[0].arms == lines[0].points[0].arms
    )
    return Claim(
        "All parties communicate with each other in every communication round.",
        _PLACE,
        f"exponent of a party's bytes over its N - 1 peers, {spoken(slopes)}; rounds from {lines[0].sizes[0]} to "
        f"{lines[0].sizes[-1]} parties: {rounds}",
        judged(proportional),
        ""
        if not proportional
        else "A party sends the same words to each peer. Above 1 is what a peer gets more as parties join: in the "
        "paper's suite the shares of all parties are added up in binary, three summands to two at a time.",
    )


def _shared_cores() -> str:
    return (
        f"All parties run on this machine's {os.cpu_count()} cores. Two parties have a core each and poll for each "
        "other's words; from three on they share, nobody polls, and the work itself takes N / 2 times as long. Among "
        "organisations with a machine each, a step would grow with the N - 1 messages of a party, not with N (N - 1)."
    )
