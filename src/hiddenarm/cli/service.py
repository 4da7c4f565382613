"""The commands of whoever runs a role: thin, like `main`. Each calls the module that does its work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from hiddenarm.cli.options import FILE

_KIT: Final = click.Path(path_type=Path, exists=True, file_okay=False)
_STDIN: Final = 0
_LEVELS: Final = ("debug", "info", "warning", "error")
_FORMATS: Final = ("text", "json")


@click.command()
@click.argument("kit", type=_KIT)
@click.option("--listen-fd", type=int, help="A listening socket that was handed over.")
@click.option("--report", type=FILE, help="Write what the link's meter counted.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(_FORMATS), default="text", show_default=True)
def serve(kit: Path, listen_fd: int | None, report: Path | None, log_level: str, log_format: str) -> None:
    """Run one role from its kit, until the federation ends."""
    from hiddenarm.cli.serve import serve_kit

    serve_kit(kit, listen_fd, report, _STDIN, sys.stdout, log_level, log_format)


SERVICE_COMMANDS: Final = (serve,)
