"""A party's installation has no libraries for research: the commands that need them say how to get them."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from commands import hiddenarm_here

from hiddenarm.cli.main import commands
from hiddenarm.cli.operator_commands import SERVICE_COMMANDS
from hiddenarm.cli.research import LIBRARIES, ResearchCommand
from hiddenarm.errors import ConfigError

OF_A_PARTY = {"features"}
"""Groups that a party's installation can run."""
GROUPS = {
    name: group
    for name, group in commands.commands.items()
    if isinstance(group, click.Group) and name not in OF_A_PARTY
}
ALONE = ("demo", "simulate", "sweep", "reproduce", "audit", "evaluate")
RESEARCH = [*((name,) for name in ALONE), *((name, one) for name, group in GROUPS.items() for one in group.commands)]
"""The commands that need the extra."""


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No library of the extra can be imported; an empty working folder."""
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", RESEARCH, ids=" ".join)
def test_the_error_says_what_to_install(
    command: tuple[str, ...], hidden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hiddenarm_here(*command) == ConfigError.exit_code
    printed = capsys.readouterr()
    (message,) = printed.err.splitlines()
    assert message.startswith("error: ")
    assert " ".join(command) in message
    assert "matplotlib and sklearn" in message
    assert "pip install 'hiddenarm[research]'" in message
    assert printed.out == ""
    assert not list(hidden.iterdir())


@pytest.mark.parametrize("missing", LIBRARIES)
def test_one_missing_library_is_enough(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert hiddenarm_here("simulate", "--steps", 1) == ConfigError.exit_code
    assert f"needs {missing}, " in capsys.readouterr().err


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("command", [(), ("bench",), *RESEARCH, *((one.name,) for one in SERVICE_COMMANDS)], ids=str)
def test_help_needs_no_library(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here(*command, "--help") == 0
    assert "Usage:" in capsys.readouterr().out


def test_every_command_is_of_a_role_or_of_research() -> None:
    others = {"explain", "privacy", *OF_A_PARTY, *GROUPS, *(command.name for command in SERVICE_COMMANDS)}
    assert set(ALONE) == set(commands.commands) - others
    for path in RESEARCH:
        group = GROUPS[path[0]] if len(path) == 2 else commands
        assert isinstance(group, click.Group)
        assert isinstance(group.commands[path[-1]], ResearchCommand)
