"""`hiddenarm explain`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hiddenarm.bandit.catalogue import ABOUT, DECIDE_AMONG
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError

SMALL = ("--arms", "3", "--features", "2,1")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(commands, ["explain", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", [name for name in ABOUT if name not in DECIDE_AMONG.values()])
def test_every_program_can_be_explained(name: str) -> None:
    text = printed(*name.split(), *SMALL)
    assert text.startswith(f"{name}: {ABOUT[name]}\n3 arms; features of each party: 2, 1\n")
    assert "In all: " in text
    assert "instructions" not in text


@pytest.mark.parametrize("slots", [4, 48, 96])
def test_a_decision_among_some_of_many_arms_is_that_of_its_slots(slots: int) -> None:
    among, whole = (
        printed(*name.split(), "--arms", str(arms), "--features", "2,1").splitlines()
        for name, arms in ((f"decide among {slots}", 200), ("decide", slots))
    )
    assert among[0] == f"decide among {slots}: choose one of up to {slots} eligible arms for a context"
    assert among[2:] == whole[2:]


def test_bytes_of_parties_that_send_different_numbers_are_told_apart() -> None:
    text = printed("decide", *SMALL)
    assert "context x + mask, each party its own: [1, 3] of 64 bits, 16 bytes from party 0 and 8 bytes from" in text
    assert "to each other party" in text


def test_a_listing_is_printed_on_request() -> None:
    lines = printed("step", *SMALL, "--listing").splitlines()
    assert lines.count("  instructions of party 0") == 9
    assert any(line.startswith("    contract ") and "=one-hot o of the arm + mask[0]" in line for line in lines)


def test_a_step_shows_its_pause_and_what_it_waits_for() -> None:
    lines = printed("step", *SMALL).splitlines()
    titles = [line for line in lines if line.startswith(("Round", "Pause", "After"))]
    rounds = [f"Round {number}" for number in range(1, 8)]
    assert titles == [*rounds[:3], "Pause after round 3", *rounds[3:], "After the last round"]
    known, paused = lines.index("  The result for the actor is known."), lines.index("Pause after round 3")
    assert paused < known < lines.index("Round 4")
    assert lines[lines.index("Round 4") + 1] == (
        "  waits for  one-hot o of the arm + mask [1, 3], told to all parties from outside"
    )
    assert lines[lines.index("Round 6") + 1] == "  waits for  reward r + mask [1], told to all parties from outside"
    assert any(line.startswith("In all: 7 rounds; ") for line in lines)


def test_the_same_is_written_as_json(tmp_path: Path) -> None:
    path = tmp_path / "gather.json"
    text = printed("gather", *SMALL, "--count", "5", "--json", str(path))
    report = json.loads(path.read_text())
    assert (report["program"], report["arms"], report["features"], report["count"]) == ("gather", 3, [2, 1], 5)
    assert [stage["opened"] != [] for stage in report["stages"]] == [True, True, False]
    assert report["stages"][1]["opened"][0]["shape"] == [5, 3, 3]
    assert f"{report['dealt']['products of masks']:,}  products of masks" in text
    assert report["stages"][0]["instructions"]


def test_features_may_be_the_same_for_so_many_parties() -> None:
    assert "features of each party: 4, 4, 4\n" in printed("decide", "--features", "4", "--parties", "3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("forget",), "there is no program 'forget'; the programs are: decide, step, learn, "),
        (("decide", "--features", "a,2"), "--features takes whole numbers, one for each party"),
        (("decide", "--features", "2,2", "--parties", "3"), "--features names 2 parties and --parties 3"),
        (("decide", "--features", "4"), "at least two parties, got 1"),
        (("decide", "--arms", "1"), "at least two arms"),
        (("step", "--arms", "100"), "'step' is for decisions that are not shuffled: for at most 48 arms"),
        (("decide", "among", "4"), "'decide among 4' is for more arms: give --arms 49, or more"),
        (("learn", "--count", "2"), "'learn' treats one interaction at a time: leave --count at 1"),
        (("gather", "--count", "0"), "--count must lie in 1..256, got 0"),
        (("decide", "--json", "no/such/folder/x.json"), "cannot write no/such/folder/x.json: No such file"),
    ],
)
def test_what_cannot_be_explained_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(commands, ["explain", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert result.output == ""
