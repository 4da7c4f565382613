"""A recipe is learned from a table, kept as text, and applied to tables and to single rows alike."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import get_args

import click
import numpy as np
import pytest
from click.testing import CliRunner
from test_features import operations

from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError, FeatureError
from hiddenarm.service.recipes import LIMIT, FitOptions, Recipe, fit
from hiddenarm.service.sources import SourceFile
from hiddenarm.service.tables import read_any, read_csv

ROWS = 40
CITIES = ("Paris", "Rome", 'Saint "X", \\é')


def table_text() -> str:
    """Numbers with gaps, a category with a rare value, a code that is a number, and columns that tell nothing."""
    lines = ["user_id,nights,city,code,empty,same,note"]
    for row in range(ROWS):
        nights = "" if row == 3 else str(row % 7)
        city = "Oslo" if row == 5 else "" if row == 6 else CITIES[row % 3].replace('"', '""')
        lines.append(f'u{row},{nights},"{city}",{row % 2 + 7},,1,n{row}')
    return "\n".join(lines) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    path.write_text(table_text())
    return path


OPTIONS = FitOptions(key="user_id", leave_out=["note"], categories=["code"], norm=0.5, quantile=1.0)


def test_what_is_learned_and_what_is_said(path: Path) -> None:
    fitted = fit(read_csv(path, "user_id"), OPTIONS)
    columns = {column.name: column for column in fitted.recipe.file.column}
    present = [row % 7 for row in range(ROWS) if row != 3]
    assert set(columns) == {"nights", "city", "code"}
    assert columns["nights"].mean == pytest.approx(np.mean(present), rel=1e-8)
    assert columns["nights"].scale == pytest.approx(np.std(present), rel=1e-8)
    assert columns["city"].values == tuple(sorted(CITIES))
    assert columns["code"].values == ("7", "8")
    assert len(fitted.recipe.names) == 1 + 3 + 2 + 1
    assert len(set(fitted.recipe.names)) == len(fitted.recipe.names)
    assert not [name for name in fitted.recipe.names if "," in name or '"' in name]
    said = "\n".join(fitted.notes)
    for words in ("1 missing count as the mean", "1 rarer values have no feature", "empty: left out", "same: left out"):
        assert words in said
    assert "note: left out" in said
    assert "norm 0.5: 0 of 40 rows are beyond it" in said


def test_features_are_what_the_recipe_says(path: Path) -> None:
    table = read_csv(path, "user_id")
    recipe = fit(table, OPTIONS).recipe
    made, factor = recipe.table(table), recipe.file.factor
    column = recipe.file.column[0]
    assert made[4, 0] == pytest.approx((4 - column.mean) / column.scale * factor)
    assert made[3, 0] == pytest.approx(0, abs=1e-9)  # missing
    assert made[:, -1] == pytest.approx(factor)  # the intercept
    one_hots = made[:, 1:4] / factor
    assert [row for row in range(ROWS) if not one_hots[row].any()] == [5, 6]  # a rare value, and none
    assert one_hots.sum() == pytest.approx(ROWS - 2)
    assert np.linalg.norm(made, axis=1).max() == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("cell", [7, 7.0, "7", Decimal(7)], ids=repr)
def test_a_category_is_the_same_from_whatever_source(path: Path, cell: object) -> None:
    recipe = fit(read_csv(path, "user_id"), OPTIONS).recipe
    cells = {"nights": 1, "city": "Rome", "code": cell}
    assert (recipe.row(cells) == recipe.row({**cells, "code": "7"})).all()
    assert (recipe.row(cells) != recipe.row({**cells, "code": "8"})).any()


def test_the_file_gives_the_same_recipe_and_is_the_same_each_time(path: Path, tmp_path: Path) -> None:
    table = read_csv(path, "user_id")
    recipe = fit(table, OPTIONS).recipe
    text = recipe.text("learned")
    assert fit(read_csv(path, "user_id"), OPTIONS).recipe.text("learned") == text
    (tmp_path / "recipe.toml").write_text(text)
    again = Recipe.read(tmp_path / "recipe.toml")
    assert again.file == recipe.file
    assert np.array_equal(again.table(table), recipe.table(table))


def test_a_row_is_made_as_in_a_table_and_takes_the_same_operations(path: Path) -> None:
    table = read_csv(path, "user_id")
    recipe = fit(table, OPTIONS).recipe
    whole = recipe.table(table)
    cells = [{name: column[row] for name, column in table.columns.items()} for row in range(ROWS)]
    as_numbers = {**cells[8], "nights": 1, "code": 7}
    assert np.array_equal(recipe.row(as_numbers), recipe.row({**cells[8], "nights": "1", "code": "7"}))
    assert all(np.array_equal(recipe.row(cells[row]), whole[row]) for row in range(ROWS))
    recipe.row(cells[0])
    done = [operations(lambda row=row: recipe.row(cells[row])) for row in (0, 3, 4, 5, 6)]  # type: ignore[misc]
    assert len(done[0]) > 10
    assert all(one == done[0] for one in done)


@pytest.mark.parametrize(
    ("cells", "words"),
    [({"nights": 1, "code": 7}, "no column 'city'"), ({"nights": "s3cr3t", "city": None, "code": 7}, "is none")],
)
def test_rows_that_do_not_fit_are_refused(path: Path, cells: dict[str, object], words: str) -> None:
    recipe = fit(read_csv(path, "user_id"), OPTIONS).recipe
    with pytest.raises(FeatureError, match=words) as caught:
        recipe.row(cells)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("key,a\n", FitOptions(), "has no rows"),
        ("key,a\nx,1\ny,1\n", FitOptions(), "no column is left"),
        ("key,a\nx,1\ny,2\n", FitOptions(leave_out=["b"]), "has no column 'b'"),
        ("key,a\nx,1\ny,2\n", FitOptions(norm=0), "norm must be a positive"),
        ("key,a\nx,1\ny,2\n", FitOptions(quantile=2), "quantile must lie"),
        ("key,a\nx,1\nx,2\n", FitOptions(), "rows 2 and 3 have the same key"),
        ("id,a\nx,1\n", FitOptions(), "has no column 'key'"),
        ("key,a,a\nx,1,2\n", FitOptions(), "has the column 'a' twice"),
        ("key,a\nx\n", FitOptions(), "row 2: 1 cells where 2 are due"),
        ("", FitOptions(), "has no column 'key'"),
    ],
)
def test_tables_that_teach_nothing(tmp_path: Path, text: str, options: FitOptions, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigError, match=words):
        fit(read_csv(tmp_path / "t.csv"), options)


def test_a_number_that_is_none_later_is_named_by_its_row(path: Path) -> None:
    recipe = fit(read_csv(path, "user_id"), OPTIONS).recipe
    path.write_text(table_text().replace("u4,4,", "u4,s3cr3t,"))
    with pytest.raises(ConfigError, match="row 6, column 'nights': not a number") as caught:
        recipe.table(read_csv(path, "user_id"))
    assert "s3cr3t" not in str(caught.value)


def test_an_outlier_does_not_press_the_other_rows_together(tmp_path: Path) -> None:
    lines = [f"u{row},{row % 10}" for row in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["key,a", *lines, "far,1e6"]) + "\n")
    made = fit(read_csv(tmp_path / "t.csv"), FitOptions(intercept=False)).recipe.file
    assert made.column[0].limit == 3
    assert made.factor >= 1 / 3


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version = 1", "version = 2", "version"),
        ("norm = 0.5", "norm = -1.0", "norm"),
        ("norm = 0.5", "nrom = 0.5", "norm"),
        ("intercept = true", "intercept = false", "names has 7 entries, and 6"),
        ("version = 1", "version =", "not TOML"),
    ],
)
def test_a_damaged_recipe_is_refused(path: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    text = fit(read_csv(path, "user_id"), OPTIONS).recipe.text("learned")
    assert old in text
    (tmp_path / "recipe.toml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        Recipe.read(tmp_path / "recipe.toml")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(commands, ["features", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_commands(path: Path, tmp_path: Path) -> None:
    recipe, made = tmp_path / "recipe.toml", tmp_path / "features.csv"
    printed = run("fit", path, "--key", "user_id", "--leave-out", "note", "--category", "code", "--out", recipe)
    assert "7 features. For this party's entry in the federation file:" in printed
    assert f"features = [{', '.join(repr(name) for name in Recipe.read(recipe).names)}]".replace("'", '"') in printed
    assert recipe.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="is there already"):
        run("fit", path, "--key", "user_id", "--out", recipe)
    assert "40 keys, 7 features" in run("apply", recipe, path, "--out", made)
    assert made.stat().st_mode & 0o777 == 0o600
    table = read_any(made)
    values = np.array(list(table.columns.values()), float).T
    assert values == pytest.approx(Recipe.read(recipe).table(read_csv(path, "user_id")), rel=1e-8)
    assert "f1" in run("fit", path, "--key", "user_id", "--numbered", "--out", tmp_path / "other.toml")


def test_the_documents_have_every_option_and_every_source() -> None:
    docs = Path(__file__).parents[2] / "docs"
    group = commands.commands["features"]
    assert isinstance(group, click.Group)
    section = (docs / "commands.md").read_text().partition("## hiddenarm features")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(--[\w-]+)` \|([^|]*)\|", section, re.MULTILINE)
    options = [option for option in group.commands["fit"].params if isinstance(option, click.Option)]
    shown = {option.opts[0]: str(option.default) if option.show_default else "" for option in options}
    assert {name: default.strip() for name, default in rows} == shown
    page = (docs / "features.md").read_text()
    sources = get_args(SourceFile.model_fields["source"].annotation)
    assert tuple(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)) == sources
    assert all(f"`{name}`" in page or f"{name} = " in page for name in SourceFile.model_fields)
    defaults = SourceFile.model_fields
    assert f"({defaults['workers'].default} unless given)" in page
    assert f"({defaults['seconds'].default:g} unless given, 20 at most)" in page
    assert f"kept within {LIMIT:g} standard deviations" in page
