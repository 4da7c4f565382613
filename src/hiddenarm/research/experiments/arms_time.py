"""Experiment 4: the time of a step against the number of arms, a line for each number of parties."""

from __future__ import annotations

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

_ARMS: Mapping[Scale, Sequence[int]] = {
    "full": (10, 20, 40, 80, 160),
    "quick": (10, 20, 40, 80),
    "tiny": (5, 10),
}
_PARTIES: Mapping[Scale, Sequence[int]] = {"full": (2, 3, 4, 5), "quick": (2, 3), "tiny": (2,)}
_FEW, _MANY = 20, 40
"""Up to where the paper sees overhead, and from where on it sees quadratic growth."""
_FLAT = 0.5
"""An exponent below this: work that grows with the arms is the smaller part."""
_QUADRATIC = (1.7, 2.3)
_PLACE = "Experiments, Efficiency and scale"


class ArmsTime:
    """Lines on logarithmic axes, and their slope from 40 arms on."""

    name = "arms-time"
    title = "Time of a step and the number of arms"
    place = "Figure 4 (fig:scaling_arms)"

    def jobs(self, setting: Setting) -> Sequence[StepTiming]:
        return [job for suite in setting.suites for jobs in _grid(setting, suite).values() for job in jobs]

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        lines = [
            Line(suite, f"N = {parties}", [job.arms for job in jobs], [StepTime.of(job, kept) for job in jobs])
            for suite in setting.suites
            for parties, jobs in _grid(setting, suite).items()
        ]
        points = [point for line in lines for point in line.points]
        return Findings(
            pictures=[_picture(setting, lines)],
            tables=[_exponents(lines), steps_table("arms-time", "The points of the figure", points)],
            claims=[_overhead(lines), *(_quadratic(lines, suite) for suite in setting.suites)],
            remarks=disturbed(points),
        )


def _grid(setting: Setting, suite: Suite) -> dict[int, list[StepTiming]]:
    """The points of each line, by the number of parties."""
    return {
        parties: [step_timing(setting, suite, arms, parties) for arms in setting.sized(_ARMS)]
        for parties in setting.sized(_PARTIES)
    }


def _picture(setting: Setting, lines: Sequence[Line]) -> Picture:
    return draw_scaling(
        setting,
        lines,
        name="arms-time",
        across="number of arms |A|",
        legend="parties",
        caption="Time of a strictly online step between processes with TLS on one machine, against the number of arms. "
        "Medians over blocks of steps; bars: quartiles. Grey: slopes 1 and 2.",
        guides_from=_MANY,
    )


def _exponents(lines: Sequence[Line]) -> Table:
    header = ("suite", "parties", "time, up to 20 arms", "time, from 40 arms", "bytes, from 40 arms")
    rows = [
        (
            SUITE_NAMES[line.suite],
            line.points[0].parties,
            *(
                None if slope is None else round(slope, 2)
                for slope in (_start_slope(line), line.time_slope(_MANY), line.bytes_slope(_MANY))
            ),
        )
        for line in lines
    ]
    return Table("arms-time-exponents", "Exponents with which time and bytes grow with the arms", header, rows)


def _start_slope(line: Line) -> float | None:
    """The exponent of the time between the smallest number of arms and 20."""
    few = [place for place, size in enumerate(line.sizes) if size <= _FEW]
    return Line(line.suite, line.label, line.sizes[: len(few)], line.points[: len(few)]).time_slope(0)


def _overhead(lines: Sequence[Line]) -> Claim:
    two = [line for line in lines if line.points[0].parties == min(one.points[0].parties for one in lines)]
    slopes = [(SUITE_NAMES[line.suite], _start_slope(line)) for line in two]
    steep = [slope for _, slope in slopes if slope is not None and slope >= _FLAT]
    sizes = [size for size in two[0].sizes if size <= _FEW]
    verdict, explanation = judged_times(
        not steep,
        "Here the overhead of a step is smaller: programs are compiled, and Python runs once a round, not once an "
        "operation. So work that grows with the arms is seen earlier.",
        [point.others for line in two for point in line.points],
    )
    return Claim(
        sentence="For small numbers of arms (|A| <= 20), the implementation overhead dominates the computation time.",
        place=_PLACE,
        measured=f"exponent of the time from {sizes[0]} to {sizes[-1]} arms, with {two[0].points[0].parties} parties: "
        f"{spoken(slopes)}; work that grows with the arms alone would have 1 or more",
        verdict=verdict,
        explanation=explanation,
    )


def _quadratic(lines: Sequence[Line], suite: Suite) -> Claim:
    here = [line for line in lines if line.suite == suite]
    fitted = [line.time_slope(_MANY) for line in here]
    sentence = "For larger numbers of arms (|A| >= 40), we observe quadratic scaling."
    if None in fitted:
        return Claim(
            sentence, _PLACE, f"{SUITE_NAMES[suite]}: no two numbers of arms from {_MANY} on", "not checked",
            "This run has no such numbers of arms.",
        )  # fmt: skip
    low, high = _QUADRATIC
    first = here[0]
    time = first.time_slope(_MANY)
    assert time is not None
    others = [point.others for line in here for point in line.points]
    verdict, explanation = judged_times(low <= time <= high, _why_not_quadratic(suite, time), others)
    return Claim(
        sentence,
        _PLACE,
        f"{SUITE_NAMES[suite]}: exponent of the time from {_MANY} to {first.sizes[-1]} arms "
        f"{spoken([(line.label, line.time_slope(_MANY)) for line in here])}; of a party's bytes "
        f"{spoken([(line.label, line.bytes_slope(_MANY)) for line in here])}",
        verdict,
        explanation,
    )


def _why_not_quadratic(suite: Suite, time: float) -> str:
    if suite == "fast":
        return (
            "This is another protocol. Beyond 32 arms it finds the maximum by a tournament: its comparisons, its words "
            "and its time are linear in the number of arms."
        )
    if time > _QUADRATIC[1]:
        return (
            "Steeper than the comparisons, whose number is quadratic: at many arms the words of a step no longer fit "
            "into the processor's caches, and the dealer's work ahead of need is felt."
        )
    return (
        "Only the comparisons, A (A - 1) of them twice, are quadratic. The update of all inverses and weights is "
        "linear in the number of arms, and rounds do not depend on it but for a logarithm; both are still a part of "
        "the time at these sizes, so the exponent is on its way to 2."
    )
