"""docs/journey.md tells what runs: one decision and one lesson in memory enter the functions it names, in its order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
from memory_network import MemoryNetwork, small_federation

import hiddenarm

PACKAGE = Path(hiddenarm.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "journey.md").read_text()
PARTS = ("Before the first decision", "A decision", "A lesson")


class Stop(NamedTuple):
    """A function that is entered: its file, and its name with that of its class."""

    file: str
    function: str


def stops_of(part: str) -> list[Stop]:
    """What the page names in one part."""
    text = PAGE.split(f"\n## {part}\n")[1].split("\n## ")[0]
    rows = [row.strip("|").split("|") for row in text.splitlines() if row.startswith("| `")]
    return [Stop(row[0].strip(" `"), row[1].strip(" `")) for row in rows]


def entered(act: Callable[[], object]) -> list[Stop]:
    """Every function of the package that is entered while something is done."""
    found: list[Stop] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found.append(Stop(path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


def check_order(stops: Sequence[Stop], calls: Sequence[Stop]) -> None:
    """Each stop comes after the one before; one that is named for the first time, when it is first entered."""
    at = -1
    for place, stop in enumerate(stops):
        assert stop in calls, f"{stop} is not entered"
        if stop in stops[:place]:
            assert stop in calls[at + 1 :], f"{stop} is not entered again after {stops[place - 1]}"
            at = calls.index(stop, at + 1)
        else:
            assert calls.index(stop) > at, f"{stop} is entered before {stops[place - 1]}"
            at = calls.index(stop)


@pytest.mark.parametrize("seed", range(3))
def test_a_decision_and_a_lesson_enter_what_the_page_names_in_its_order(seed: int) -> None:
    network = MemoryNetwork(small_federation(2), seed, lasting=True)
    check_order(stops_of(PARTS[0]), entered(network.start))
    check_order(stops_of(PARTS[1]), entered(lambda: network.decide("user 1")))
    (decision,) = network.decisions.values()
    check_order(stops_of(PARTS[2]), entered(lambda: network.reward(decision.id, 1.0)))
    network.check_against_references()


def test_an_order_that_is_wrong_is_found() -> None:
    one, two, three = Stop("a.py", "f"), Stop("b.py", "g"), Stop("a.py", "h")
    check_order([one, two, one], [one, three, two, one])
    for wrong in ([two, one], [one, two, two], [one, Stop("a.py", "g")]):
        with pytest.raises(AssertionError, match=r"is (not )?entered"):
            check_order(wrong, [one, three, two, one])


def test_the_page_has_every_part_and_no_other() -> None:
    assert tuple(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == (*PARTS, "Before and after the redesign")
    assert all(len(stops_of(part)) > 5 for part in PARTS)


def test_every_class_and_function_named_besides_is_in_the_file_beside_it() -> None:
    named = re.findall(r"`(\w+)(?:\.(\w+))?`\s+\(`([\w/]+\.py)`\)", PAGE)
    assert len(named) == 3
    for owner, function, file in named:
        text = (PACKAGE / file).read_text()
        assert f"class {owner}" in text
        assert not function or f"def {function}(" in text


def test_how_often_the_life_of_a_lesson_changes_file() -> None:
    stops = stops_of(PARTS[2])
    functions = [stop.function for stop in stops]
    at_a_party = stops[functions.index("Party.on_frame") : functions.index("PartyEpoch._tell") + 1]
    changes = sum(one.file != other.file for one, other in pairwise(at_a_party))
    files = len({stop.file for stop in at_a_party})
    assert f"changes file {changes} times, between {files} files" in " ".join(PAGE.split())
    assert today("changes of file in the life of a lesson at a party") == changes


def today(row: str) -> int:
    """The last number of a row of the table of the redesign."""
    found = re.search(rf"^\| {re.escape(row)} \|.* ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_the_table_of_the_redesign_has_the_sizes_of_today() -> None:
    """Roughly: each change of the package need not change the page."""
    files = list(PACKAGE.rglob("*.py"))
    lines = sum(
        len(path.read_text().splitlines()) for suffix in ("*.py", "*.c", "*.h") for path in PACKAGE.rglob(suffix)
    )
    assert today("Python files in `src/hiddenarm`") == pytest.approx(len(files), rel=0.03)
    assert today("lines in `src/hiddenarm`, with those in C") == pytest.approx(lines, rel=0.03)
    assert today("files in `roles/`") == pytest.approx(len(list((PACKAGE / "roles").rglob("*.py"))), abs=1)


def test_one_file_of_the_package_names_the_second_policy() -> None:
    naming = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"\bEpsilonSchedule\b", path.read_text())]
    exported = ["__init__.py"]  # what users import
    assert sorted(naming) == sorted([*exported, "epsilon_schedule.py"])
    assert today("files of the package to touch for a second policy") == len(naming) - len(exported)
