"""`hiddenarm attack` and `hiddenarm audit`: trials with a live display, then a table, JSON and a curve.

An interrupt ends the trials; the result is that of the trials made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from hiddenarm.errors import ConfigError
from hiddenarm.research.attacks.evidence import Curve
from hiddenarm.research.attacks.measure import (
    FALSE_ALARMS,
    PaperScored,
    Plan,
    Scored,
    paper,
    sequence,
)
from hiddenarm.research.attacks.paper import PaperAttack
from hiddenarm.research.attacks.trials import Trials
from hiddenarm.research.data.worlds import LabelWorld
from hiddenarm.research.experiments.figures import STYLES, add_legend, empty_figure
from hiddenarm.research.plots import save_picture
from hiddenarm.research.progress import ProgressDisplay, summary_table, until_interrupted


def attack_sequence(plan: Plan, json_path: Path | None, plot_path: Path | None) -> None:
    """The best attack on all that is released."""
    scored = _scored(plan, "attack on the sequence")
    report = scored.report()
    rows = [*_rate_rows(report), *_proven_rows(report), *_calibration_rows(report)]
    _show(f"Attack on the sequence, {_title(report)}", rows, plan, report, json_path)
    if plot_path is not None:
        draw_curve(plot_path, scored.curve, f"sequence, {plan.target}")


def attack_paper(plan: Plan, held_out: LabelWorld, json_path: Path | None, plot_path: Path | None) -> None:
    """The paper's attack on the finished model."""
    attack = PaperAttack(plan.design, held_out)
    portions = plan.portions(attack.at_a_time)
    with ProgressDisplay(plan.trials, "attack of the paper", unit="trials") as display:
        scored: PaperScored = paper(plan, _watched(portions, display), attack)
    report = scored.report()
    halves = report["advantage_across_halves"], *report["advantage_across_halves_interval"]
    rows = [*_rate_rows(report), ("advantage, estimated on one half, attacking the other", _interval(*halves))]
    _show(f"Attack of the paper, {_title(report)}", rows, plan, report, json_path)
    if plot_path is not None:
        draw_curve(plot_path, scored.curve, "paper")


def audit(plan: Plan, json_path: Path | None) -> None:
    """A lower bound on epsilon beside the proven loss."""
    report = _scored(plan, "audit").audit()
    rows = [
        ("epsilon is at least (95 % confidence)", f"{report['lower_bound']:.3f}"),
        ("proven for one action", _number(report["one_action"])),
        ("at least, from the row's own action alone", f"{report['lower_bound_from_own_action']:.3f}"),
        ("proven for all that is released (ledger)", _number(report["ledger"])),
        *_rate_rows(report),
    ]
    _show(f"Audit, {_title(report)}", rows, plan, report, json_path)


def _scored(plan: Plan, title: str) -> Scored:
    attack = plan.attack
    portions = plan.portions(attack.at_a_time)
    with ProgressDisplay(plan.trials, title, unit="trials") as display:
        return sequence(plan, _watched(portions, display), attack)


def _watched(portions: Iterator[Trials], display: ProgressDisplay) -> Iterator[Trials]:
    for trials in until_interrupted(portions):
        yield trials
        display.update(steps=trials.numbers.stop)


def _title(report: dict[str, Any]) -> str:
    target = f", target {report['target']}" if "target" in report else ""
    return f"{report['data']}, {report['steps']:,} steps, epsilon {report['epsilon']:g}{target}"


def _rate_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (f"true positives at {FALSE_ALARMS:.0%} false ones", _rate(report, "tpr_at_1_percent")),
        ("advantage", _rate(report, "advantage")),
    ]


def _proven_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if "refreshes" in report:
        rows.append(("refreshes within the run", f"{report['refreshes']}"))
    if "largest_advantage" in report:
        rows.append(("true positives of any attack, at most", f"{report['largest_tpr_at_1_percent']:.4f}"))
        rows.append(("advantage of any attack, at most", f"{report['largest_advantage']:.4f}"))
    return rows


def _calibration_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (
            f"calibration, scores within {one['limit']:g}",
            f"{one['found']:.4f} for {one['expected']:.4f} ({one['deviations']:+.1f} standard errors)",
        )
        for one in report["calibration"]
    ]


def _rate(report: dict[str, Any], name: str) -> str:
    return _interval(report[name], *report[f"{name}_interval"])


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.4f}  [{low:.4f}, {high:.4f}]"


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:,.3f}"


def _show(title: str, rows: list[tuple[str, str]], plan: Plan, report: dict[str, Any], path: Path | None) -> None:
    console = Console()
    if report["trials"] < plan.trials:
        console.print(f"Interrupted: the result of {report['trials']:,} of {plan.trials:,} trials.")
    if report.get("refreshes") == 0:
        console.print("No refresh lies within the run: nothing that depends on the row is released. Give more --steps.")
    console.print(summary_table(title, rows))
    if path is not None:
        try:
            path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def draw_curve(path: Path, curve: Curve, label: str) -> None:
    """True against false positives, both logarithmic: what matters are few false alarms."""
    figure, (axes,) = empty_figure()
    colour = STYLES[0][0]
    axes.plot(curve.false_positive, curve.true_positive, color=colour, label=label)
    axes.plot([1e-4, 1], [1e-4, 1], color="0.6", linewidth=1, linestyle=":", label="guessing")
    axes.axvline(FALSE_ALARMS, color="0.8", linewidth=1)
    axes.set(xscale="log", yscale="log", xlim=(1e-4, 1), ylim=(1e-4, 1.1))
    axes.set(xlabel="rate of false positives", ylabel="rate of true positives")
    add_legend(axes, loc="lower right")
    save_picture(figure, path)
