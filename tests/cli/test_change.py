"""`change` and `adopt`: a signed next version of a federation's file, and what a kit makes of it. What cannot change,
or was not signed, is refused by name, and no file has changed then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federation_files import write_federation_file
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError, HelloError, HiddenArmError, IdentityError, StoreError
from hiddenarm.net.hello import compare_hello
from hiddenarm.service.kit import Kit, read_kit_file
from hiddenarm.service.state import State, check_state
from hiddenarm.store.sqlite import SqliteStore

KITS = ("dealer", "hotel", "airline", "actor", "rewarder")


def provision(folder: Path, durable: bool = True) -> Path:
    path = write_federation_file(folder, "durable = false", f"durable = {str(durable).lower()}")
    assert run("provision", path, "--out", folder / "kits").exit_code == 0
    return folder / "kits"


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    return provision(tmp_path)


def run(*words: object) -> Result:
    result = CliRunner().invoke(commands, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, HiddenArmError | SystemExit), result.exception
    return result


def next_version(kits: Path, *changes: tuple[str, str], version: int = 2) -> Path:
    """The next version of the federation's file that the authority has, with some text replaced."""
    text = (kits / "authority" / "federation.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    text = text.replace(f"version = {version - 1}\n", "")
    path = kits.parent / f"version-{version}.toml"
    path.write_text(f"version = {version}\n{text}")
    return path


def signed(kits: Path, *changes: tuple[str, str], version: int = 2) -> Path:
    result = run("change", kits / "authority", next_version(kits, *changes, version=version))
    assert result.exit_code == 0, (result.output, result.exception)
    return kits.parent / f"change-{version}.json"


def bytes_of(kits: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(kits.rglob("*")) if path.is_file()}


def test_every_kit_adopts_what_the_authority_signed(kits: Path) -> None:
    change = signed(
        kits,
        ("epsilon = 0.1", "epsilon = 0.05\nretired = ['city']"),
        ('"cruise"]', '"cruise", "desert"]'),
    )
    for name in KITS:
        result = run("adopt", kits / name, change, "--yes")
        assert result.exit_code == 0, result.output
        for line in (
            "version: 1 -> 2",
            "epsilon: 0.1 -> 0.05",
            "arms: 4 -> 5",
            "retired: none -> city",
            "beach, city, mountains, cruise, desert",
        ):
            assert line in result.output
        assert "has version 2 already" in run("adopt", kits / name, change).output
    hellos = [Kit.read(kits / name).hello for name in KITS]
    assert all(hello == hellos[0] for hello in hellos)
    assert (hellos[0]["version"], hellos[0]["epsilon"], hellos[0]["arms"], hellos[0]["retired"]) == (2, 0.05, 5, (1,))
    assert read_kit_file(kits / "actor").arm_names[-1] == "desert"
    assert (kits / "actor" / "kit.json").stat().st_mode & 0o777 == 0o600


def test_hosts_change_and_what_the_operator_set_stays(kits: Path) -> None:
    path = kits / "hotel" / "kit.json"
    own = json.loads(path.read_text()) | {"stock": 32, "listen": "0.0.0.0"}
    path.write_text(json.dumps(own))
    change = signed(kits, ('host = "127.0.0.1"', 'host = "192.0.2.7"'))
    result = run("adopt", kits / "hotel", change, "--yes")
    assert "addresses.party 0.host: 127.0.0.1 -> 192.0.2.7" in result.output
    file = read_kit_file(kits / "hotel")
    assert (file.stock, file.listen, file.monitor_port) == (32, "0.0.0.0", own["monitor_port"])
    assert file.addresses["dealer"].host == "192.0.2.7"


def test_the_operator_is_asked(kits: Path) -> None:
    change = signed(kits, ("epsilon = 0.1", "epsilon = 0.2"))
    before = bytes_of(kits / "hotel")
    result = CliRunner().invoke(commands, ["adopt", str(kits / "hotel"), str(change)], input="n\n")
    assert isinstance(result.exception, HiddenArmError)
    assert "epsilon: 0.1 -> 0.2" in result.output
    assert bytes_of(kits / "hotel") == before
    assert CliRunner().invoke(commands, ["adopt", str(kits / "hotel"), str(change)], input="y\n").exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"delay"]', '"late"]', "the features of airline cannot change"),
        ('"miles", "delay"', '"miles", "delay", "x"', "the features of airline cannot change"),
        ("norm = 0.5", "norm = 0.6", "norms cannot change"),
        ("epsilon = 0.1", "epsilon = 0.1\nridge = 2.0", "ridge cannot change, from 1.0 to 2.0"),
        ("epsilon = 0.1", "epsilon = 0.1\nfraction_bits = 18", "fraction_bits cannot change"),
        ("epsilon = 0.1", 'epsilon = 0.1\nsuite = "paper"', "suite cannot change"),
        ("epsilon = 0.1", "epsilon = 0.1\nmax_batch = 2", "max_batch cannot fall, from 256 to 2"),
        ('"beach", "city"', '"city", "beach"', "arm 'beach' cannot move, from place 0 to 1"),
        ('"beach", ', "", "arm 'city' cannot move, from place 1 to 0"),
        (', "cruise"', "", "arms cannot fall, from 4 to 3"),
        ("durable = true", "durable = false", "durable cannot change"),
        ('name = "hotel"', 'name = "inn"', "the names of parties cannot change"),
        ('name = "travel"', 'name = "tours"', "name cannot change"),
        ("epsilon = 0.1", "epsilon = 0.1\nmax_interactions = 900000000", "the sums of 900,000,000 interactions"),
        ("epsilon = 0.1", "epsilon = 0.1\nretired = ['hills']", "there is no arm 'hills'"),
    ],
)
def test_what_cannot_change_is_refused_by_name(kits: Path, old: str, new: str, words: str) -> None:
    path = next_version(kits, (old, new))
    before = bytes_of(kits)
    result = run("change", kits / "authority", path)
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)
    assert bytes_of(kits) == before
    assert not (kits.parent / "change-2.json").exists()


@pytest.mark.parametrize("version", [1, 3])
def test_versions_are_counted_up_by_one(kits: Path, version: int) -> None:
    path = next_version(kits, ("epsilon = 0.1", "epsilon = 0.2"))
    path.write_text(path.read_text().replace("version = 2", f"version = {version}"))
    result = run("change", kits / "authority", path)
    assert "set version = 2" in str(result.exception)


def test_nothing_new_is_not_signed(kits: Path) -> None:
    result = run("change", kits / "authority", kits / "authority" / "federation.toml")
    assert "nothing has changed" in str(result.exception)


def test_a_change_that_was_interrupted_at_the_authority_is_made_again(kits: Path) -> None:
    path = next_version(kits, ("epsilon = 0.1", "epsilon = 0.2"))
    earlier = (kits / "authority" / "federation.toml").read_bytes()
    assert run("change", kits / "authority", path).exit_code == 0
    (kits / "authority" / "federation.toml").write_bytes(earlier)  # the last thing that is written
    assert run("change", kits / "authority", path).exit_code == 0
    assert (kits / "authority" / "federation.toml").read_text() == path.read_text()
    assert run("adopt", kits / "hotel", kits.parent / "change-2.json", "--yes").exit_code == 0


def test_only_what_the_authority_signed_is_adopted(kits: Path, tmp_path: Path) -> None:
    change = signed(kits, ("epsilon = 0.1", "epsilon = 0.2"))
    other = tmp_path / "other"
    other.mkdir()
    foreign = signed(provision(other), ("epsilon = 0.1", "epsilon = 0.2"))
    forged = json.loads(change.read_text())
    forged["file"] = forged["file"].replace("epsilon = 0.2", "epsilon = 0.9")
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    before = bytes_of(kits)
    for path in (foreign, tmp_path / "forged.json"):
        result = run("adopt", kits / "hotel", path, "--yes")
        assert isinstance(result.exception, IdentityError), result.exception
        assert "was not signed by an authority" in str(result.exception)
    for content in ("", "[]", "{}", '{"file": 3, "signature": ""}', '{"file": "x", "signature": "?"}', "[" * 99_999):
        (tmp_path / "no.json").write_text(content)
        result = run("adopt", kits / "hotel", tmp_path / "no.json", "--yes")
        assert "is not a signed version" in str(result.exception), content[:9]
    assert bytes_of(kits) == before


def test_an_earlier_version_is_not_adopted_after_a_later_one(kits: Path) -> None:
    second = signed(kits, ("epsilon = 0.1", "epsilon = 0.2"))
    third = signed(kits, ("epsilon = 0.2", "epsilon = 0.3"), version=3)
    assert run("adopt", kits / "hotel", third, "--yes").exit_code == 0
    result = run("adopt", kits / "hotel", second, "--yes")
    assert "is version 2, and" in str(result.exception)
    assert "ask whoever keeps the authority for the newest one" in str(result.exception)


def test_a_state_is_that_of_the_version_with_which_an_epoch_was_opened(kits: Path) -> None:
    """A party that has adopted a version and opened no epoch with it may be given another one; after that it may not go
    back."""
    State(Kit.read(kits / "hotel")).close()
    before = bytes_of(kits / "hotel")[kits / "hotel" / "kit.json"]
    change = signed(kits, ('"cruise"]', '"cruise", "desert"]'))
    assert run("adopt", kits / "hotel", change, "--yes").exit_code == 0
    kit = Kit.read(kits / "hotel")
    state = State(kit)
    assert len(state._with_activation) == 1
    state.close()
    (kits / "hotel" / "kit.json").write_bytes(before)
    assert check_state(Kit.read(kits / "hotel")), "nothing was written under the later version"
    store = SqliteStore(kit.folder / "state")
    store.commit(state._with_activation)
    store.close()
    with pytest.raises(StoreError, match=r"was used with version 2 of the federation, .* has version 1\. Adopt the"):
        State(Kit.read(kits / "hotel"))
    assert run("adopt", kits / "hotel", change, "--yes").exit_code == 0
    State(Kit.read(kits / "hotel")).close()


def test_a_kit_that_was_edited_without_a_version_is_refused_as_before(kits: Path) -> None:
    State(Kit.read(kits / "hotel")).close()
    path = kits / "hotel" / "kit.json"
    path.write_text(path.read_text().replace('"epsilon": 0.1', '"epsilon": 0.2'))
    with pytest.raises(StoreError, match="field 'epsilon' differs"):
        State(Kit.read(kits / "hotel"))


def test_a_state_that_cannot_follow_is_refused_by_name(kits: Path) -> None:
    State(Kit.read(kits / "hotel")).close()
    path = kits / "hotel" / "kit.json"
    path.write_text(path.read_text().replace('"ridge": 1.0', '"ridge": 2.0').replace('"version": 1', '"version": 2'))
    with pytest.raises(StoreError, match="cannot be used with version 2 of the federation: ridge cannot change"):
        State(Kit.read(kits / "hotel"))


def test_a_federation_in_memory_is_provisioned_anew(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=False)
    result = run("change", kits / "authority", next_version(kits, ("epsilon = 0.1", "epsilon = 0.2")))
    assert "keeps no state" in str(result.exception)


@pytest.mark.parametrize("digest", ["", "0123456789abcdef"], ids=["none", "another"])
def test_a_kit_of_an_earlier_version_with_another_digest_of_names_is_brought_up_to_date(
    kits: Path, digest: str
) -> None:
    """The message says what the digest is of; a change that only counts the version up writes it anew everywhere."""
    path = kits / "hotel" / "kit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "names": digest}))
    hotel, actor = (Kit.read(kits / name) for name in ("hotel", "actor"))
    with pytest.raises(HelloError) as refused:
        compare_hello(hotel.hello, actor.hello, "party 0", "actor")
    hotel.organisations.put_into(refused.value)
    assert f"field 'names' differs: \"{digest}\" at hotel (party 0)" in str(refused.value)
    assert "names is a digest of the names of arms, parties and features, in their order" in str(refused.value)
    page = (Path(__file__).parents[2] / "docs" / "upgrading.md").read_text()
    assert "docs/upgrading.md" in str(refused.value)
    assert "| `names` | the names of arms, parties and features, in their order |" in page
    change = signed(kits)
    for name in KITS:
        assert run("adopt", kits / name, change, "--yes").exit_code == 0
    hellos = [Kit.read(kits / name).hello for name in KITS]
    assert all(hello == hellos[0] for hello in hellos)
    assert hellos[0]["names"] == actor.hello["names"]
