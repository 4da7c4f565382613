"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

SUITES = ("fast", "paper")
"""As in `bandit.federation`, which is not loaded before there is work."""

FILE = click.Path(path_type=Path, dir_okay=False)

SUITE_OPTIONS: tuple[Decorator, ...] = (
    click.option("--suite", type=click.Choice(SUITES), default="fast", show_default=True, help="Protocol suite."),
    click.option("--newton-iterations", type=int, help="Of the paper's reciprocal; 7 unless given."),
)


def with_options(*options: Decorator) -> Decorator:
    """Several options as one, in the order of the help text."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
