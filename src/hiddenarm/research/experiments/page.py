"""The page of a reproduction, `index.html`: one file with everything in it, and beside it every number as CSV and JSON.

index.html   claims.csv   claims.json
figures/     an SVG and a PNG of every figure
tables/      a CSV and a JSON of every table
runs/        results of the jobs, kept to go on from
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import get_args

from hiddenarm.research.experiments.experiment import Cell, Claim, Experiment, Findings, Setting, Table, Verdict
from hiddenarm.research.experiments.figures import save

_CLAIM_HEADER = ("place", "sentence", "measured", "verdict", "explanation")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1.5rem; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; } figcaption, .place { color: #555; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } caption { text-align: left; font-weight: 600; }
.holds { color: #00694d; font-weight: 600; } .differs { color: #a33f00; font-weight: 600; } .not { color: #555; }
.notice { background: #fff6dd; padding: 0.6rem 1rem; border-left: 4px solid #e69f00; }
"""


@dataclass(frozen=True)
class Cost:
    """How many runs an experiment needs, and how long those of them took that no experiment before it had made."""

    experiment: str
    runs: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """Everything there is to say: the experiments with their findings, and how they were obtained."""

    setting: Setting
    sections: Sequence[tuple[Experiment, Findings]]
    costs: Sequence[Cost]
    commits: Sequence[str]
    finished: str
    surroundings: Mapping[str, str]

    @property
    def seconds_of_runs(self) -> float:
        """Of all runs, on one core."""
        return sum(cost.seconds for cost in self.costs)

    @property
    def claims(self) -> list[Claim]:
        return [claim for _, findings in self.sections for claim in findings.claims]


def write_report(folder: Path, report: Report) -> None:
    """Write the page, the figures and every number."""
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for _, findings in report.sections:
        for picture in findings.pictures:
            save(picture.figure, folder / "figures", picture.name)
        for table in findings.tables:
            _write_table(folder / "tables", table)
    _write_table(folder / "tables", _costs(report))
    _write_claims(folder, report.claims)
    (folder / "index.html").write_text(_page(folder, report), encoding="utf-8")


def _write_table(folder: Path, table: Table) -> None:
    _write_csv(folder / f"{table.name}.csv", table.header, table.rows)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    text = json.dumps({"title": table.title, "rows": rows}, indent=1)
    (folder / f"{table.name}.json").write_text(text + "\n", encoding="utf-8")


def _write_claims(folder: Path, claims: Sequence[Claim]) -> None:
    rows = [asdict(claim) for claim in claims]
    _write_csv(folder / "claims.csv", _CLAIM_HEADER, [[row[name] for name in _CLAIM_HEADER] for row in rows])
    (folder / "claims.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _page(folder: Path, report: Report) -> str:
    title = "Privacy-Preserving Multi-Party Contextual Bandits, reproduced"
    body = [
        f"<h1>{title}</h1>",
        _notice(report.setting),
        _protocol(report),
        _contents(report),
        "<h2 id='claims'>What the paper says, and what was measured</h2>",
        _counted(report.claims),
        _claims(report.claims),
        *(_section(folder, experiment, findings) for experiment, findings in report.sections),
        "<h2 id='how'>How this was obtained</h2>",
        _table(Table("how", "Versions, seeds and time", ("what", "value"), list(_how(report).items()))),
        _table(_costs(report)),
    ]
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{title}</title>"
    return f"<!doctype html>\n<html lang='en'><head>{head}<style>{_STYLE}</style></head><body>\n" + "\n".join(
        [*body, "</body></html>\n"]
    )


def _notice(setting: Setting) -> str:
    if setting.data == "mnist" and setting.scale == "full":
        return "<p>MNIST, at the paper's sizes.</p>"
    what = "MNIST" if setting.data == "mnist" else "8x8 digits in place of MNIST"
    return (
        f"<p class='notice'>Scale <b>{setting.scale}</b>, on {what}: shorter runs than the paper's, so numbers differ "
        "from it more than those of the full run. Give <code>--data-dir</code> and leave out <code>--quick</code> for "
        "the paper's own sizes.</p>"
    )


def _protocol(report: Report) -> str:
    commits = ", ".join(f"<code>{escape(commit)}</code>" for commit in report.commits)
    return (
        f"<p>The runs are of these commits: {commits}. Rounds, bytes and times are those of the protocol at these "
        "commits; later ones may differ.</p>"
    )


def _contents(report: Report) -> str:
    links = [("claims", "Claims"), *((one.name, one.title) for one, _ in report.sections), ("how", "How")]
    return "<p>" + " · ".join(f"<a href='#{name}'>{escape(title)}</a>" for name, title in links) + "</p>"


def _how(report: Report) -> dict[str, str]:
    return {
        "data": "MNIST" if report.setting.data == "mnist" else "digits of scikit-learn",
        "scale": report.setting.scale,
        "suites": ", ".join(report.setting.suites),
        "commits of the runs": ", ".join(report.commits),
        "seeds": "0, 1, 2, ... for the replicates of every run",
        "time of all runs on one core": f"{report.seconds_of_runs / 60:.1f} minutes",
        "page written": report.finished,
        **report.surroundings,
    }


def _costs(report: Report) -> Table:
    rows = [(cost.experiment, cost.runs, round(cost.seconds / 60, 1)) for cost in report.costs]
    title = "Runs of each experiment, and their time where no experiment above had made them"
    return Table("runs", title, ("experiment", "runs", "minutes on one core"), rows)


def _section(folder: Path, experiment: Experiment, findings: Findings) -> str:
    parts = [
        f"<h2 id='{experiment.name}'>{escape(experiment.title)}</h2>",
        f"<p class='place'>{escape(experiment.place)}; <code>hiddenarm reproduce {experiment.name}</code></p>",
        *(f"<p>{escape(remark)}</p>" for remark in findings.remarks),
    ]
    for picture in findings.pictures:
        drawing = _inline_svg(folder / "figures" / f"{picture.name}.svg", picture.name)
        parts.append(f"<figure>{drawing}<figcaption>{escape(picture.caption)}</figcaption></figure>")
    parts.extend(_table(table) for table in findings.tables if table.shown)
    files = [f"figures/{picture.name}.{kind}" for picture in findings.pictures for kind in ("svg", "png")]
    files += [f"tables/{table.name}.{kind}" for table in findings.tables for kind in ("csv", "json")]
    parts.append("<p>" + " · ".join(f"<a href='{file}'>{file}</a>" for file in files) + "</p>")
    return "\n".join(parts)


def _inline_svg(path: Path, name: str) -> str:
    """The drawing without its XML head, and with names of its own, so that several can share a page."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    return re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)


def _counted(claims: Sequence[Claim]) -> str:
    """How many hold; each verdict counted."""
    counts = Counter(claim.verdict for claim in claims)
    return "<p>" + ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict)) + ".</p>"


def _claims(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f"<tr><td>{escape(claim.sentence)}<br><span class='place'>{escape(claim.place)}</span></td>"
        f"<td>{escape(claim.measured)}</td><td class='{claim.verdict.split()[0]}'>{claim.verdict}</td>"
        f"<td>{escape(claim.explanation)}</td></tr>"
        for claim in claims
    )
    head = "<tr><th>the paper</th><th>measured</th><th>verdict</th><th>explanation</th></tr>"
    return f"<div class='scroll'><table>{head}{rows}</table></div>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f"<div class='scroll'><table>{caption}<tr>{head}</tr>{rows}</table></div>"


def _cell(value: Cell) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f"<td class='number'>{value:,}</td>"
