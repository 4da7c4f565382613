"""`hiddenarm features`: prepare a party's features from its own table. Nothing is sent anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hiddenarm.cli.options import FILE

_EXISTING = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def features() -> None:
    """Prepare a party's features from its own table."""


@features.command()
@click.argument("table", type=_EXISTING)
@click.option("--out", type=FILE, default=Path("recipe.toml"), show_default=True, help="The recipe; never overwritten.")
@click.option("--key", default="key", show_default=True, help="The column with the keys.")
@click.option("--leave-out", multiple=True, metavar="COLUMN", help="A column to leave out; may be given several times.")
@click.option("--category", multiple=True, metavar="COLUMN", help="Numbers that are only names, such as a postcode.")
@click.option("--norm", default=1.0, show_default=True, help="The norm that the party declares.")
@click.option("--quantile", default=0.99, show_default=True, help="Share of rows within the norm.")
@click.option(
    "--min-count", default=10, show_default=True, help="Rows that a value of a category needs to get a feature."
)
@click.option("--max-values", default=20, show_default=True, help="Most values of a category that get a feature.")
@click.option("--no-intercept", is_flag=True, help="Leave the intercept to another party: one is enough.")
@click.option("--numbered", is_flag=True, help="Name features f1, f2, ...: all members see their names.")
def fit(table: Path, out: Path, **options: Any) -> None:
    """Learn a recipe for features from a TABLE. It is scaling, one-hot encoding, imputation and an intercept, learned
    from a .csv or .parquet file and written in a form that people can read. It stays with the party, which applies it
    when features are looked up."""
    from hiddenarm.errors import ConfigError
    from hiddenarm.net.certificates import write_private
    from hiddenarm.service.recipes import FitOptions, fit
    from hiddenarm.service.tables import read_any

    read = read_any(table, options["key"])
    fitted = fit(
        read,
        FitOptions(
            key=options["key"],
            leave_out=options["leave_out"],
            categories=options["category"],
            norm=options["norm"],
            quantile=options["quantile"],
            intercept=not options["no_intercept"],
            min_count=options["min_count"],
            max_values=options["max_values"],
            numbered=options["numbered"],
        ),
    )
    try:
        write_private(out, fitted.recipe.text(f"Learned from {table.name}, {len(read)} rows.").encode())
    except FileExistsError:
        raise ConfigError(f"{out} is there already: remove it, or give another --out") from None
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from None
    for note in fitted.notes:
        click.echo(note)
    names = fitted.recipe.names
    click.echo(f"{len(names)} features. For this party's entry in the federation file:")
    click.echo(f"norm = {fitted.recipe.file.norm:g}")
    click.echo(f"features = [{', '.join(_quoted(name) for name in names)}]")


@features.command()
@click.argument("recipe", type=_EXISTING)
@click.argument("table", type=_EXISTING)
@click.option("--out", type=FILE, required=True, help="The features, as a .csv file; never overwritten.")
def apply(recipe: Path, table: Path, out: Path) -> None:
    """Apply a RECIPE to a TABLE and write the features. The .csv file is for looking at, or for a kit."""
    from hiddenarm.errors import ConfigError
    from hiddenarm.net.certificates import write_private
    from hiddenarm.service.recipes import Recipe
    from hiddenarm.service.tables import read_any

    read_recipe = Recipe.read(recipe)
    read = read_any(table, read_recipe.key)
    try:
        write_private(out, read_recipe.csv(read).encode())
    except FileExistsError:
        raise ConfigError(f"{out} is there already: remove it, or give another --out") from None
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from None
    click.echo(f"{out}: {len(read)} keys, {len(read_recipe.names)} features")


def _quoted(name: str) -> str:
    import json

    return json.dumps(name, ensure_ascii=False)
