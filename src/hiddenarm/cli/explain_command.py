"""The command `explain`: options only; `cli.explain` is loaded when it runs."""

from __future__ import annotations

from pathlib import Path

import click

from hiddenarm.cli.options import FILE


@click.command()
@click.argument("program", nargs=-1, required=True)
@click.option("--arms", default=10, show_default=True, help="Arms of the bandit.")
@click.option("--features", default="10,10", show_default=True, help="Features of each party, or one number for all.")
@click.option("--parties", type=int, help="How many parties, if --features is one number.")
@click.option("--count", default=1, show_default=True, help="Interactions at once.")
@click.option("--listing", is_flag=True, help="Also print every instruction that party 0 runs.")
@click.option("--json", "json_path", type=FILE, help="Write the explanation.")
def explain(
    program: tuple[str, ...],
    arms: int,
    features: str,
    parties: int | None,
    count: int,
    listing: bool,
    json_path: Path | None,
) -> None:
    """Explain a PROGRAM of the learner, such as decide or learn: its rounds, what each opens and why that is safe, and
    what is dealt."""
    from hiddenarm.cli.explain import explain_program

    explain_program(" ".join(program), arms, features, parties, count, listing, json_path)
