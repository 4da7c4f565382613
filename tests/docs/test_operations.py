"""The page on operations is complete: every metric, event and exit code that there is, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hiddenarm
from hiddenarm import errors
from hiddenarm.net.transport import Limits
from hiddenarm.service.metrics import FAMILIES
from hiddenarm.service.process import DRAIN_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
LEVELS = ("debug", "info", "warning", "error", "critical", "exception")


def table(*heads: str) -> list[list[str]]:
    """The rows of the table with these heads."""
    lines = PAGE.splitlines()
    start = lines.index(f"| {' | '.join(heads)} |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def logged() -> Iterator[tuple[str, str]]:
    """Event and level of every call of a logger in the package."""
    for path in Path(hiddenarm.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and re.search(r"\b_?log$", ast.unparse(node.func.value))
            ):
                event = node.args[0]
                assert isinstance(event, ast.Constant), f"{path}: an event must be a fixed text"
                yield str(event.value), node.func.attr


def test_every_metric_with_its_type_and_meaning() -> None:
    rows = table("metric", "type", "what it is", "what to do")
    documented = {name.strip("`"): (kind, what) for name, kind, what, _ in rows}
    assert list(documented) == [family.name for family in FAMILIES]
    for family in FAMILIES:
        kind, what = documented[family.name]
        assert kind == family.kind
        assert what.startswith(family.help[0].lower() + family.help[1:].partition(";")[0].removesuffix("expires"))


def test_every_event_with_its_level() -> None:
    rows = table("event", "level", "what happened", "what to do")
    documented = [(event.strip("`"), level) for event, level, _, _ in rows]
    assert len(set(documented)) == len(documented)
    assert set(documented) == set(logged())


def test_every_exit_code_with_its_error() -> None:
    rows = {int(code): error.strip("`") for code, error, _ in table("code", "error", "what to do")}
    raised = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    kinds = [each for each in raised if issubclass(each, errors.HiddenArmError)]
    assert kinds == raised
    first: dict[int, str] = {}
    for kind in kinds:  # in the order of the file: the first of a code is the topmost
        first.setdefault(kind.exit_code, kind.__name__)
    assert rows == {0: "", **first, 130: ""}


def test_the_limits() -> None:
    limits = Limits()
    for _, shown, name in table("limit", "value", "where"):
        value = getattr(limits, name.strip("`"))
        value = value // 2**20 if "MB" in shown else value
        assert shown.split()[0] == f"{value:g}"
    assert f"{limits.silence_seconds - 2 * limits.beat_seconds:g} seconds" in PAGE
    assert f"within {DRAIN_SECONDS:g} seconds" in PAGE


def test_the_search_finds_events() -> None:
    assert ("refused", "warning") in set(logged())
    assert len(set(logged())) > 10
