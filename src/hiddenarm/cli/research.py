"""Commands that need the libraries of the extra `research`, which a party does without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

import click

from hiddenarm.errors import ConfigError

LIBRARIES: Final = ("joblib", "matplotlib", "sklearn")
"""As they are imported; `research` in pyproject.toml has the packages that bring them."""


class ResearchCommand(click.Command):
    """Before it does anything, it checks that the extra is installed. Its help needs nothing."""

    def invoke(self, ctx: click.Context) -> Any:
        missing = [name for name in LIBRARIES if find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"`{ctx.command_path}` needs {' and '.join(missing)}, which a party's installation leaves out: "
                "pip install 'hiddenarm[research]'"
            )
        return super().invoke(ctx)


class ResearchGroup(click.Group):
    """A group of such commands."""

    command_class = ResearchCommand
