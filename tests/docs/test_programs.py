"""docs/programs.md has the words that `hiddenarm explain` prints, and the table of instructions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from hiddenarm.bandit.catalogue import ABOUT
from hiddenarm.cli.main import commands
from hiddenarm.ring.instructions import Operation

PAGE = (Path(__file__).parents[2] / "docs" / "programs.md").read_text()
SHOWN = re.findall(r"^```console\n\$ hiddenarm (explain (\w+)[^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_deciding_and_learning_are_shown_and_both_as_one() -> None:
    assert [name for _, name, _ in SHOWN] == ["decide", "decide", "decide", "learn", "step"]


@pytest.mark.parametrize(("command", "name", "text"), SHOWN, ids=[command for command, _, _ in SHOWN])
def test_the_page_has_what_the_command_prints(command: str, name: str, text: str) -> None:
    result = CliRunner().invoke(commands, shlex.split(command), catch_exceptions=False)
    assert result.output == text


def test_the_page_names_every_program() -> None:
    for name in ABOUT:
        assert re.search(rf"`(hiddenarm explain )?{name}`", PAGE), name


def test_the_page_has_the_table_of_instructions() -> None:
    rows = [row.strip("| ").split(" | ") for row in PAGE.splitlines() if row.startswith("| `")]
    assert rows == [[f"`{each.label}`", f"`{_arguments(each)}`", each.meaning] for each in Operation]


def _arguments(operation: Operation) -> str:
    repeated = f" ({' '.join(operation.repeated)})..." if operation.repeated else ""
    return " ".join(operation.arguments) + repeated
