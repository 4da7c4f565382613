"""`hiddenarm check`: everything that is wrong is found, with what to do about it, and nothing is disturbed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest
from click.testing import CliRunner

from deployment import Deployment, provision
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.check import look_at_privacy
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError, HiddenArmError, PeerLost, StoreError
from hiddenarm.net.certificates import Authority
from hiddenarm.net.hello import hello_payload
from hiddenarm.net.identity import Identity, Role
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.service.kit import Kit
from hiddenarm.service.process import Endpoint
from hiddenarm.service.state import State
from hiddenarm.store.contract import Put
from hiddenarm.store.sqlite import SqliteStore

HOTEL = Identity(Role.PARTY, 0)


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    return provision(tmp_path)


def check(kit: Path, *options: str) -> tuple[int, str]:
    """The exit code and what was printed."""
    result = CliRunner().invoke(commands, ["check", str(kit), "--seconds", "5", *options])
    if isinstance(result.exception, HiddenArmError):
        assert "checks failed" in str(result.exception)
        return result.exception.exit_code, result.output
    return result.exit_code, result.output


def edit(kit: Path, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    content = json.loads((kit / "kit.json").read_text())
    change(content)
    (kit / "kit.json").write_text(json.dumps(content))


def certify(kits: Path, days: int, authority: Authority | None = None, identity: Identity = HOTEL) -> None:
    folder = kits / "authority"
    home = Authority.load((folder / "ca.pem").read_bytes(), (folder / "key.pem").read_bytes())
    certificate, key = (authority or home).issue(identity, days)
    (kits / "hotel" / "certificate.pem").write_bytes(certificate)
    (kits / "hotel" / "key.pem").write_bytes(key)


def test_a_sound_kit(kits: Path) -> None:
    for role in ("dealer", "hotel", "airline", "actor", "rewarder"):
        code, output = check(kits / role, "--offline")
        assert code == 0
        assert "FAIL" not in output
        assert "warn" not in output
        assert f"Next: hiddenarm serve {kits / role}" in output


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda kits: (kits / "hotel").chmod(0o755),
            "{hotel} is open to group or others (mode 755) -> chmod 700",
        ),
        (lambda kits: (kits / "hotel" / "key.pem").chmod(0o640), "key.pem is open to group or others (mode 640)"),
        (lambda kits: (kits / "hotel" / "features.csv").chmod(0o604), "features.csv is open to group or others"),
        (lambda kits: (kits / "hotel" / "kit.json").write_text("{"), "configuration: {hotel}/kit.json is not JSON"),
        (lambda kits: edit(kits / "hotel", lambda c: c["federation"].update(epsilon=2)), "epsilon must lie in [0, 1]"),
        (lambda kits: (kits / "hotel" / "certificate.pem").unlink(), "there is none yet -> hiddenarm request"),
        (lambda kits: (kits / "hotel" / "certificate.pem").write_text("x"), "not a readable certificate"),
        (lambda kits: certify(kits, -1), "certificate: expired on"),
        (lambda kits: certify(kits, 100, Authority.create("travel")), "was not signed by an authority"),
        (lambda kits: certify(kits, 100, identity=Identity(Role.DEALER)), "is that of dealer"),
        (lambda kits: (kits / "hotel" / "features.csv").unlink(), "has no features: put them into"),
        (lambda kits: (kits / "hotel" / "features.csv").write_text("key,a,b,c\n"), "column 2 must be 'nights'"),
        (
            lambda kits: (kits / "hotel" / "features.csv").write_text("key,nights\n"),
            "line 1: the header must be key,nights,stars,spend; found 'key,nights', which has 2 columns",
        ),
        (
            lambda kits: (kits / "hotel" / "features.csv").write_text("user_id,nights,stars,spend\n"),
            "the header must be key,nights,stars,spend; found 'user_id,nights,stars,spend', which has 4 columns",
        ),
        (lambda kits: edit(kits / "hotel", lambda c: c.update(listen="192.0.2.9")), "it must be an address of this"),
    ],
)
def test_what_is_wrong_here_is_a_configuration_error(kits: Path, spoil: Callable[[Path], object], words: str) -> None:
    spoil(kits)
    code, output = check(kits / "hotel", "--offline")
    assert code == ConfigError.exit_code
    assert "FAIL" in output
    assert words.format(hotel=kits / "hotel") in output


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("key,nights,stars,spend\n", "features: there are none"),
        ("key,nights,stars,spend\na,0.1,,0.3\nb,0.1,inf,0.3\nc,1,2,3\n", "features: 2 of 3 keys have features"),
    ],
)
def test_warnings_do_not_fail(kits: Path, table: str, words: str) -> None:
    (kits / "hotel" / "features.csv").write_text(table)
    certify(kits, 10)
    code, output = check(kits / "hotel", "--offline")
    assert code == 0
    assert f"warn  {words}" in output
    assert f"-> hiddenarm request {kits / 'hotel'}" in output


def test_how_many_rows_are_clipped_and_which_features_are_constant(kits: Path) -> None:
    rows = ["a,0.1,1,0.2", "b,9,1,0.2", "c,,1,0.2", "d,0.3,1,0.2"]
    (kits / "hotel" / "features.csv").write_text("\n".join(["key,nights,stars,spend", *rows]) + "\n")
    code, output = check(kits / "hotel", "--offline")
    assert code == 0
    assert "warn  features: 1 of 4 keys have features that are missing or not finite" in output
    assert "warn  norm: 3 of 4 rows are clipped to 1 -> scale the features" in output
    assert "warn  constant: 2 of 3 features are the same in all rows: stars, spend -> one of them is enough" in output
    (kits / "hotel" / "features.csv").write_text("key,nights,stars,spend\na,0.1,0.5,0.2\nb,0.2,0.5,0.1\n")
    code, output = check(kits / "hotel", "--offline")
    assert "ok    norm: 0 of 2 rows are clipped to 1\n" in output
    assert "ok    constant: 1 of 3 features are the same in all rows: stars\n" in output


def test_a_source_that_is_asked_is_tried(kits: Path) -> None:
    hotel = kits / "hotel"
    (hotel / "features.toml").write_text('source = "sqlite"\nfile = "u.db"\nquery = "SELECT 1 WHERE 1 = :key"\n')
    (hotel / "features.toml").chmod(0o600)
    code, output = check(hotel, "--offline")
    assert code == ConfigError.exit_code
    assert "FAIL  features: SQLite did not answer: OperationalError (SQLITE_CANTOPEN) -> correct the file" in output
    (hotel / "u.py").write_text("def features(key): return [0, 0, 0]\n")
    (hotel / "u.py").chmod(0o600)
    (hotel / "features.toml").write_text('source = "python"\nfile = "u.py"\n')
    code, output = check(hotel, "--offline")
    assert code == 0
    assert "ok    features: python can be asked; decisions about others are refused" in output


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,0.1,0.2", "row 2: 3 cells where 4 are due"),
        ("a,0.1,s3cr3t,0.3", "row 2, column 3: not a number"),
        ("s3cr3t,1,1,1\nb,1,1,1\ns3cr3t,1,1,1", "features.csv: rows 2 and 4 have the same key; leave one of them"),
        ('"a,1,1,1', "not a table of comma-separated values"),
    ],
)
def test_a_table_that_is_none_shows_no_value(kits: Path, row: str, words: str) -> None:
    (kits / "hotel" / "features.csv").write_text(f"key,nights,stars,spend\n{row}\n")
    code, output = check(kits / "hotel", "--offline")
    assert code == ConfigError.exit_code
    assert words in output
    assert "s3cr3t" not in output


@pytest.mark.parametrize("line", ["s3cr3t,0.1,0.2,0.3", "key,0.12345,0.2", "s3cr3t,nan,,"])
def test_a_row_in_the_place_of_the_header_is_not_shown(kits: Path, line: str) -> None:
    (kits / "hotel" / "features.csv").write_text(f"{line}\n")
    code, output = check(kits / "hotel", "--offline")
    assert code == ConfigError.exit_code
    columns = len(line.split(","))
    assert f"must be key,nights,stars,spend; found {columns} columns with numbers: put the header above them" in output
    assert "s3cr3t" not in output
    assert "12345" not in output


def test_a_byte_order_mark_is_skipped(kits: Path) -> None:
    (kits / "hotel" / "features.csv").write_text("\ufeffkey,nights,stars,spend\na,0.1,0.2,0.3\n", encoding="utf-8")
    code, output = check(kits / "hotel", "--offline")
    assert code == 0
    assert "features: 1 keys" in output


@pytest.mark.parametrize("options", [("--offline",), ()])
def test_a_key_that_is_open_to_others_needs_another_mode(kits: Path, options: tuple[str, ...]) -> None:
    """The certificate is sound; a new one is needed only if somebody has read the key."""
    key = kits / "hotel" / "key.pem"
    key.chmod(0o644)
    code, output = check(kits / "hotel", *options)
    assert code == ConfigError.exit_code
    failed = [line for line in output.splitlines() if line.startswith("FAIL")]
    assert f"(mode 644) -> chmod 600 {key}; if somebody else may have read it" in failed[0]
    assert failed[1:] == ([] if options else ["FAIL  peers: were not asked -> correct the mode of the key first"])
    assert "ok    certificate: is that of hotel (party 0)" in output


def test_peers_are_asked_and_not_disturbed(kits: Path) -> None:
    """Nobody runs; then dealer and airline do; then another configuration; then all run, and go on."""
    code, output = check(kits / "hotel")
    assert code == PeerLost.exit_code
    assert output.count("not reached: Connection refused -> start it there") == 2
    with Deployment(kits) as deployment:
        deployment.start("dealer", "airline")
        deployment.until("airline", "peer ready")
        code, output = check(kits / "hotel")
        assert (code, output.count("same configuration (welcome)")) == (0, 2)
        edit(kits / "hotel", lambda content: content["federation"].update(epsilon=0.2, ridge=2.0))
        code, output = check(kits / "hotel")
        assert code == PeerLost.exit_code
        assert "field 'epsilon' differs: 0.2 at hotel (party 0), 0.1 at dealer; field 'ridge' differs" in output
        edit(kits / "hotel", lambda content: content["federation"].update(epsilon=0.1, ridge=1.0))
        deployment.start("hotel", "actor", "rewarder")
        deployment.step()
        code, output = check(kits / "hotel")
        assert code == 0
        assert "is in use -> fine if this role runs already" in output
        assert output.count("same configuration (hotel (party 0) is already connected)") == 2
        copy = shutil.copytree(kits / "hotel", kits / "copy")
        edit(copy, lambda content: content["federation"].update(epsilon=0.2))
        code, output = check(copy)
        assert code == PeerLost.exit_code
        assert "same configuration" not in output
        assert output.count("field 'epsilon' differs: 0.2 at hotel (party 0), 0.1 at") == 2
        deployment.step()


def change_epsilon(kits: Path) -> None:
    for kit in kits.glob("*/kit.json"):
        edit(kit.parent, lambda content: content["federation"].update(epsilon=0.2))


@pytest.mark.parametrize("role", ["hotel", "actor", "rewarder"])
def test_state_of_another_configuration_is_found_before_and_by_serve(tmp_path: Path, role: str) -> None:
    kits = provision(tmp_path, durable=True)
    code, output = check(kits / role, "--offline")
    assert (code, "state: there is none yet" in output) == (0, True)
    assert not (kits / role / "state").exists()
    State(Kit.read(kits / role)).close()
    files = sorted(path.name for path in (kits / role / "state").iterdir())
    code, output = check(kits / role, "--offline")
    assert (code, "state: is that of this configuration" in output) == (0, True)
    assert sorted(path.name for path in (kits / role / "state").iterdir()) == files
    change_epsilon(kits)
    words = f"field 'epsilon' differs: 0.1 at {kits / role / 'state'}, 0.2 at {kits / role / 'kit.json'}"
    code, output = check(kits / role, "--offline")
    assert code == ConfigError.exit_code
    assert f"FAIL  state: {words} -> Put kit.json back as it was" in output
    with pytest.raises(StoreError, match=re.escape(words)):
        Endpoint(Kit.read(kits / role))


def test_a_state_in_use_is_compared_and_left_as_it_is(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True)
    state = State(Kit.read(kits / "actor"))
    try:
        before = sorted(path.name for path in (kits / "actor" / "state").iterdir())
        change_epsilon(kits)
        assert "FAIL  state: field 'epsilon' differs" in check(kits / "actor", "--offline")[1]
        assert sorted(path.name for path in (kits / "actor" / "state").iterdir()) == before
    finally:
        state.close()


def test_a_state_of_an_earlier_version_is_migrated(tmp_path: Path) -> None:
    """It kept a digest of the configuration: the same one is taken and replaced, another one is refused."""
    kits = provision(tmp_path, durable=True)
    kit = Kit.read(kits / "actor")
    names = "federation suite arms features epsilon ridge norms fraction_bits score_bound reciprocal_bits repair_every"
    terms = {**kit.terms, "score_bound": 32.0}
    digested = {name: terms[name] for name in names.split()}
    digest = blake2b(hello_payload(digested) + b"actor", digest_size=32).digest()
    SqliteStore(kits / "actor" / "state").close()
    for payload, taken in ((bytes(32), False), (digest, True)):
        store = SqliteStore(kits / "actor" / "state")
        store.commit([Put("me", b"", payload)])
        store.close()
        assert (check(kits / "actor", "--offline")[0] == 0) is taken
    State(kit).close()
    change_epsilon(kits)
    assert "field 'epsilon' differs: 0.1 at" in check(kits / "actor", "--offline")[1]


def test_where_sums_are_noisy_it_says_what_the_declared_norms_cost() -> None:
    shown = [
        look_at_privacy(Federation(arms=3, features=(2, 2), epsilon=0.1, norms=norms, privacy=NoisySums(1.0)))
        for norms in ((1.0, 1.0), (0.9, 0.6))
    ]
    (wide,), (narrow,) = ([finding.found for finding in found] for found in shown)
    assert "norms 1, 1 allow contexts of norm 1.41: the noise of W has a deviation of 11.9, 2.00 times" in wide
    assert "norms 0.9, 0.6 allow contexts of norm 1.08: the noise of W has a deviation of 6.99, 1.17 times" in narrow
    assert not list(look_at_privacy(Federation(arms=3, features=(2, 2), epsilon=0.1)))
