"""Tables of arms: from the members' file through kits and signed versions, the same for all roles, or refused with the
place of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from federation_files import ARMS, TRAVEL
from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError, HelloError, HiddenArmError, IdentityError, StoreError
from hiddenarm.net.frames import DEFAULT_CAPS, LinkKind
from hiddenarm.net.hello import compare_hello, hello_payload
from hiddenarm.service import changes
from hiddenarm.service.arm_tables import StoredArms, changes_of_arms, read_arm_file
from hiddenarm.service.dashboard import MOST_SHOWN, shown_arms
from hiddenarm.service.federation_file import FederationFile
from hiddenarm.service.kit import Kit, KitFederation
from hiddenarm.service.state import State, check_state

KITS = ("dealer", "hotel", "airline", "actor", "rewarder")
ITEMS = """\
name,constant,price,far
beach,0.5,0.25,0.1
city,0.5,-0.75,0.2
lake,0.5,3.0,4.0
"""


def run(*words: object) -> Result:
    result = CliRunner().invoke(commands, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, HiddenArmError | SystemExit), result.exception
    return result


def write_files(folder: Path, items: str = ITEMS, file: str = "") -> Path:
    """A federation's file that names a table, and the table beside it."""
    (folder / "items.csv").write_text(items)
    text = TRAVEL.replace(ARMS, 'arm_table = "items.csv"').replace("durable = false\n", "")
    (folder / "federation.toml").write_text(file + text)
    return folder / "federation.toml"


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    result = run("provision", write_files(tmp_path), "--out", tmp_path / "kits")
    assert result.exit_code == 0, result.output
    assert "items.csv: 3 arms with 3 features each, in every kit; 1 rows were scaled down to norm 1" in result.output
    return tmp_path / "kits"


def change_to(kits: Path, items: str, file: str = "", version: int = 2) -> Result:
    """Sign another version of the table."""
    (kits.parent / "items-next.csv").write_text(items)
    text = (kits.parent / "federation.toml").read_text().replace("items.csv", "items-next.csv")
    path = kits.parent / f"version-{version}.toml"
    path.write_text(f"version = {version}\n{file}{text}")
    return run("change", kits / "authority", path)


def adopt(kits: Path, version: int = 2) -> list[Result]:
    return [run("adopt", kits / name, kits.parent / f"change-{version}.json", "--yes") for name in KITS]


# The members' file


def test_a_table_is_read_from_csv_and_from_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "items.csv").write_text(ITEMS)
    columns = {
        "constant": [0.5, 0.5, 0.5],
        "price": [0.25, -0.75, 3.0],
        "name": ["beach", "city", "lake"],
        "far": [0.1, 0.2, 4.0],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "items.parquet")
    table, scaled = read_arm_file(tmp_path / "items.csv")
    assert read_arm_file(tmp_path / "items.parquet") == (table, scaled)
    assert (table.names, table.columns, scaled) == (("beach", "city", "lake"), ("constant", "price", "far"), 1)
    assert np.linalg.norm(table.features[2]) <= 1
    np.testing.assert_array_equal(table.features[0], [0.5, 0.25, 25 / 256])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name,", "item,", "has no column 'name'"),
        ("-0.75", "cheap", "row 3, column 'price': a feature of an arm must be a number"),
        ("-0.75", "", "row 3, column 'price': a feature of an arm must be a number"),
        ("-0.75", "nan", "row 3, column 'price': a feature of an arm must be a finite number"),
        ("lake", "beach", "rows 2 and 4 are both arm 'beach'"),
        ("lake", '"a, b"', "row 4, column 'name': a name must be 1 to 64 letters, without commas"),
        ("lake", "", "row 4, column 'name': a name must be 1 to 64 letters"),
        ("city,0.5,-0.75,0.2\nlake,0.5,3.0,4.0\n", "", "a table must have 2 to 100,000 arms, got 1"),
        (",0.2\n", "\n", "row 3: 3 cells where 4 are due"),
        ("price", "constant", "has the column 'constant' twice"),
    ],
)
def test_each_mistake_in_a_table_is_told_with_its_place(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in ITEMS
    path = write_files(tmp_path, ITEMS.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        FederationFile.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2: {tmp_path / 'items.csv'}"), message
    assert words in message
    assert message.endswith('for example: arm_table = "items.csv"')


def test_a_table_without_features_is_refused(tmp_path: Path) -> None:
    path = write_files(tmp_path, "name\nbeach\ncity\n")
    with pytest.raises(ConfigError, match="features of arms must have a row for each arm"):
        FederationFile.read(path)


def test_a_file_names_a_list_of_arms_or_a_table(tmp_path: Path) -> None:
    path = write_files(tmp_path, file=f"{ARMS}\n")
    with pytest.raises(ConfigError, match="line 3: arms and arm_table are both given"):
        FederationFile.read(path)
    path.write_text(path.read_text().replace(f"{ARMS}\n", "").replace('arm_table = "items.csv"', ""))
    with pytest.raises(ConfigError, match="arms is missing, or an arm_table"):
        FederationFile.read(path)
    path = write_files(tmp_path)
    (tmp_path / "items.csv").unlink()
    with pytest.raises(ConfigError, match=r"line 2: .*items\.csv cannot be read: No such file"):
        FederationFile.read(path)


def test_what_does_not_run_with_a_table_is_refused(tmp_path: Path) -> None:
    path = write_files(tmp_path, file='suite = "paper"\n')
    with pytest.raises(ConfigError, match="suite paper does not run with arm_features"):
        FederationFile.read(path)
    path = write_files(tmp_path, file='retired = ["river"]\n')
    with pytest.raises(ConfigError, match="retired: there is no arm 'river'"):
        FederationFile.read(path)


# Kits


def test_every_kit_holds_the_same_table_and_the_hello_compares_its_digest(kits: Path, tmp_path: Path) -> None:
    table = read_arm_file(tmp_path / "items.csv").table
    read = [Kit.read(kits / name) for name in KITS]
    assert [kit.federation.arm_features for kit in read] == [table] * 5
    assert {kit.file.names_of_arms for kit in read} == {("beach", "city", "lake")}
    hello = read[0].hello
    assert (hello["arm_features"], hello["arm_columns"]) == (table.digest, ("constant", "price", "far"))
    assert all(kit.hello == hello for kit in read)
    path = kits / "hotel" / "kit.json"
    path.write_text(path.read_text().replace("0.5 0.25", "0.5 0.375"))
    with pytest.raises(HelloError, match="field 'arm_features' differs"):
        compare_hello(hello, json.loads(json.dumps(Kit.read(kits / "hotel").hello)), "dealer", "hotel")


def test_a_kit_whose_table_is_damaged_is_refused(kits: Path) -> None:
    path = kits / "hotel" / "kit.json"
    whole = path.read_text()
    for old, new, words in (
        ("0.5 0.25", "0.5 x", "the rows of a table of arms must be numbers"),
        ('"lake"', '"lake", "river"', "needs as many names"),
        ("0.5 0.25 ", "0.5 ", "a row of the same length for each arm"),
    ):
        assert old in whole
        path.write_text(whole.replace(old, new))
        with pytest.raises(ConfigError, match=words):
            Kit.read(kits / "hotel")


@given(st.integers(2, 6), st.integers(1, 5), st.floats(0.01, 100), st.booleans(), st.integers(0, 1000))
def test_a_stored_table_is_the_table(arms: int, width: int, scale: float, named: bool, seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(arms, width)) * scale
    names, columns = ([f"arm {arm}" for arm in range(arms)], [f"f{n}" for n in range(width)]) if named else ([], [])
    table = ArmTable.of(features, names, columns)
    assert StoredArms.parse(StoredArms.of(table).text, "here").table() == table
    federation = Federation(arms, (2, 2), epsilon=0.1, arm_features=table)
    assert KitFederation.of(federation).federation(federation.max_batch) == federation


def test_check_tells_of_the_arms_and_of_features_that_are_too_small(tmp_path: Path) -> None:
    path = write_files(
        tmp_path, ITEMS.replace("0.1\n", "0.001\n").replace("0.2\n", "0.003\n").replace("3.0,4.0", "1,0")
    )
    assert run("provision", path, "--out", tmp_path / "kits").exit_code == 0
    said = run("check", tmp_path / "kits" / "actor", "--offline").output
    assert "warn  arms: 3 with 3 features each, 0 of them retired; 1 features are zero for all of them: far" in said


# Another version


def test_a_later_table_adds_changes_and_retires_arms(kits: Path) -> None:
    later = ITEMS.replace("-0.75", "-0.5") + "river,0.5,0.1,0.1\n"
    result = change_to(kits, later, 'retired = ["city"]\n')
    assert result.exit_code == 0, (result.output, result.exception)
    for line in ("arm_table: 1 added: river", "arm_table: 1 with other features: city", "retired: none -> city"):
        assert line in result.output
    for adopted in adopt(kits):
        assert adopted.exit_code == 0, (adopted.output, adopted.exception)
        for line in ("arms: 3 -> 4", "arm_table: 1 added: river", "retired: none -> city"):
            assert line in adopted.output
    read = [Kit.read(kits / name) for name in KITS]
    assert all(kit.hello == read[0].hello for kit in read)
    assert read[0].federation.arm_features == read_arm_file(kits.parent / "items-next.csv").table
    assert (read[0].file.version, read[0].federation.retired) == (2, (1,))
    assert "there is nothing to do" in adopt(kits)[0].output
    again = change_to(kits, later + "sea,0.5,0.1,0.3\n", 'retired = ["city"]\n', version=3)
    assert again.exit_code == 0, "the authority keeps the table of the version before"
    assert "arm_table: 1 added: sea" in again.output


def test_a_retired_arm_comes_back(kits: Path) -> None:
    """What was learned is of no arm."""
    assert "retired: none -> lake" in change_to(kits, ITEMS, 'retired = ["lake"]\n').output
    assert {result.exit_code for result in adopt(kits)} == {0}
    assert Kit.read(kits / "hotel").federation.retired == (2,)
    assert "retired: lake -> none" in change_to(kits, ITEMS, version=3).output
    assert {result.exit_code for result in adopt(kits, version=3)} == {0}
    assert Kit.read(kits / "hotel").federation.retired == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("city,", "river,", "the row of arm 'city' cannot become that of 'river': add 'river' as the last row"),
        ("price,far", "far,price", "arm_columns cannot change, from ['constant', 'price', 'far'] to"),
        ("lake,0.5,3.0,4.0\n", "", "arms cannot fall, from 3 to 2: leave the row of an arm that is to go"),
        ("beach,0.5,0.25,0.1\ncity,0.5,-0.75,0.2", "city,0.5,-0.75,0.2\nbeach,0.5,0.25,0.1", "'beach' cannot move"),
    ],
)
def test_what_cannot_change_in_a_table_is_refused_by_name(kits: Path, old: str, new: str, words: str) -> None:
    before = {path: path.read_bytes() for path in sorted((kits / "authority").iterdir())}
    result = change_to(kits, ITEMS.replace(old, new))
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)
    assert {path: path.read_bytes() for path in sorted((kits / "authority").iterdir())} == before


def test_a_federation_does_not_go_from_a_list_to_a_table(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(TRAVEL.replace("durable = false\n", ""))
    assert run("provision", tmp_path / "federation.toml", "--out", tmp_path / "kits").exit_code == 0
    text = write_files(tmp_path, "name,f\n" + "".join(f"{arm},1\n" for arm in ("beach", "city", "mountains", "cruise")))
    text.write_text(f"version = 2\n{text.read_text()}")
    result = run("change", tmp_path / "kits" / "authority", text)
    assert isinstance(result.exception, ConfigError)
    assert "arm_features cannot change" in str(result.exception)


@pytest.mark.parametrize("damage", ["table", "file", "moved", "without"])
def test_a_table_that_was_not_signed_is_refused(kits: Path, damage: str) -> None:
    change_to(kits, ITEMS + "river,0.5,0.1,0.1\n")
    path = kits.parent / "change-2.json"
    signed = json.loads(path.read_text())
    match damage:
        case "table":
            signed["arm_table"] = signed["arm_table"].replace("river", "ocean")
        case "file":
            signed["file"] = signed["file"].replace("0.1", "0.2")
        case "moved":
            signed["file"], signed["arm_table"] = signed["file"] + signed["arm_table"][:1], signed["arm_table"][1:]
        case "without":
            del signed["arm_table"]
    path.write_text(json.dumps(signed))
    before = (kits / "hotel" / "kit.json").read_bytes()
    result = run("adopt", kits / "hotel", path, "--yes")
    assert isinstance(result.exception, IdentityError), result.exception
    assert (kits / "hotel" / "kit.json").read_bytes() == before


def test_state_goes_on_with_a_later_table_and_not_with_other_features(kits: Path) -> None:
    State(Kit.read(kits / "hotel")).close()
    change_to(kits, ITEMS + "river,0.5,0.1,0.1\n")
    adopt(kits)
    kit = Kit.read(kits / "hotel")
    assert check_state(kit)
    path = kits / "hotel" / "kit.json"
    path.write_text(path.read_text().replace('"far"', '"near"'))
    with pytest.raises(StoreError, match="arm_columns cannot change"):
        check_state(Kit.read(kits / "hotel"))


def test_long_names_of_features_fit_a_hello(tmp_path: Path) -> None:
    columns = [f"{'é' * 60}{number}" for number in range(256)]
    cells = ",".join("0.01" for _ in columns)
    items = f"name,{','.join(columns)}\nbeach,{cells}\ncity,{cells}\n"
    path = write_files(tmp_path, items, "max_interactions = 1000\n")
    result = run("provision", path, "--out", tmp_path / "kits")
    assert result.exit_code == 0, result.exception
    one = Kit.read(tmp_path / "kits" / "hotel").hello
    assert len(hello_payload(one)) < DEFAULT_CAPS[LinkKind.HELLO]
    assert str(one["arm_columns"]).startswith("256 entries, digest ")
    write_files(tmp_path, items.replace(f"{columns[255]}\n", "other\n"), "max_interactions = 1000\n")
    assert run("provision", path, "--out", tmp_path / "others").exit_code == 0
    assert Kit.read(tmp_path / "others" / "hotel").hello["arm_columns"] != one["arm_columns"]


def test_many_retired_arms_are_compared_by_a_digest(tmp_path: Path) -> None:
    items = "name,f\n" + "".join(f"item {number},0.5\n" for number in range(2000))
    retired = ", ".join(f'"item {number}"' for number in range(1500))
    path = write_files(tmp_path, items, f"retired = [{retired}]\n")
    assert run("provision", path, "--out", tmp_path / "kits").exit_code == 0
    kit = Kit.read(tmp_path / "kits" / "hotel")
    assert str(kit.hello["retired"]).startswith("1500 entries, digest ")
    assert len(kit.terms["retired"]) == 1500
    write_files(tmp_path, items, f"retired = [{retired}]\n".replace('"item 1"', '"item 1999"'))
    assert run("provision", path, "--out", tmp_path / "others").exit_code == 0
    other = Kit.read(tmp_path / "others" / "hotel").hello
    assert {name for name in other if other[name] != kit.hello[name]} == {"retired"}


def test_a_version_that_no_kit_would_read_is_not_signed(kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_MAX_BYTES", 500)
    before = {path: path.read_bytes() for path in sorted((kits / "authority").iterdir())}
    result = change_to(kits, ITEMS + "river,0.5,0.1,0.1\n")
    assert isinstance(result.exception, ConfigError)
    assert "would be signed as more than 500 bytes" in str(result.exception)
    assert {path: path.read_bytes() for path in sorted((kits / "authority").iterdir())} == before


def test_tables_without_names_are_compared_by_number() -> None:
    before, after = ArmTable.of([[0.5], [0.25]]), ArmTable.of([[0.5], [0.75], [0.1]])
    assert list(changes_of_arms(before, after)) == ["arm_table: 1 added: 2", "arm_table: 1 with other features: 1"]


# On the page


def test_the_page_of_an_actor_with_many_arms_counts_those_that_were_chosen_most() -> None:
    few = {3: 5, 1: 2}
    assert shown_arms(5, few) == [0, 2, 0, 5, 0]
    many = {arm: arm % 50 for arm in range(0, 90_000, 7)}
    shown = shown_arms(100_000, many)
    assert isinstance(shown, dict)
    assert len(shown) == MOST_SHOWN
    assert set(shown.values()) == {49}
