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
    assert tuple(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == PARTS
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
