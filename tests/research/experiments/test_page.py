"""The page stands alone, shows every claim and table, and every number lies beside it."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hiddenarm.research.experiments.experiment import Claim, Findings, Picture, Scale, Setting, Table
from hiddenarm.research.experiments.figures import add_legend, add_line, empty_figure
from hiddenarm.research.experiments.page import Cost, Report, write_report
from hiddenarm.research.experiments.training import Training

VOID = {"meta", "br"}


class Balance(HTMLParser):
    """Notes ids and addresses, and that every element ends where it should."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src", "xlink:href"):
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def findings() -> Findings:
    pictures = []
    for name in ("first", "second"):
        figure, (axes,) = empty_figure()
        add_line(axes, 0, [1, 2], [3, 4], "a line", [0.1, 0.2])
        add_legend(axes, "lines")
        pictures.append(Picture(name, f"The {name} figure", figure))
    return Findings(
        pictures=pictures,
        tables=[
            Table("short", "A <short> table", ("name", "value"), [("x & y", 1234567), ("z", None)]),
            Table("long", "Points", ("value",), [(0.5,)], shown=False),
        ],
        claims=[
            Claim("One is less than two.", "Section 1", "1 < 2", "holds"),
            Claim("Two is less than one.", "Section 2", "2 > 1", "differs", "It is <not>."),
        ],
        remarks=["A remark.", "1 holds, 1 differs, 0 not checked."],
    )


def report(scale: Scale = "full") -> Report:
    setting = Setting(scale, "mnist" if scale == "full" else "digits")
    return Report(
        setting,
        [(Training(), findings())],
        [Cost("training", 8, 90.0)],
        ["abc", "def"],
        "2026-01-01",
        {"Python": "3.11"},
    )


@pytest.fixture
def page(tmp_path: Path) -> Balance:
    write_report(tmp_path, report())
    parser = Balance()
    parser.feed((tmp_path / "index.html").read_text())
    assert not parser.open
    return parser


def test_the_page_needs_nothing_from_outside(page: Balance, tmp_path: Path) -> None:
    for address in page.addresses:
        if address.startswith("#"):
            assert address[1:] in page.ids
        else:
            assert (tmp_path / address).is_file()


def test_names_on_the_page_are_unique(page: Balance) -> None:
    assert len(set(page.ids)) == len(page.ids)


def test_everything_is_said(page: Balance) -> None:
    wanted = [
        "A <short> table",
        "x & y",
        "1,234,567",
        "It is <not>.",
        "differs",
        "abc, def",
        "The runs are of these commits: ",
        "1.5 minutes",
        "A remark.",
    ]
    for words in (*wanted, "The second figure"):
        assert words in page.text
    assert "Points" not in page.text


def test_numbers_lie_beside_the_page(page: Balance, tmp_path: Path) -> None:
    with (tmp_path / "tables" / "short.csv").open() as file:
        assert list(csv.reader(file)) == [["name", "value"], ["x & y", "1234567"], ["z", ""]]
    assert json.loads((tmp_path / "tables" / "long.json").read_text())["rows"] == [{"value": 0.5}]
    with (tmp_path / "tables" / "runs.csv").open() as file:
        assert list(csv.reader(file))[1:] == [["training", "8", "1.5"]]
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["verdict"] for claim in claims] == ["holds", "differs"]
    assert len(list((tmp_path / "figures").iterdir())) == 4


def test_the_page_says_when_it_is_not_the_papers_size(tmp_path: Path) -> None:
    write_report(tmp_path, report("quick"))
    assert "8x8 digits in place of MNIST" in (tmp_path / "index.html").read_text()


def test_equal_figures_are_equal_files(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        write_report(folder, report())
    first, second = ((tmp_path / name / "figures" / "first.svg").read_bytes() for name in "ab")
    assert first == second
    assert re.search(rb"<text[^>]*>a line</text>|a line", first)


def test_a_claim_that_does_not_hold_is_explained() -> None:
    with pytest.raises(ValueError, match="say why"):
        Claim("Two is less than one.", "Section 2", "2 > 1", "differs")
