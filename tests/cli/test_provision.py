"""`provision`, `request`, `approve`, `install`: kits that work, keys that stay on site, nothing overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federation_files import write_federation_file
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError, HiddenArmError, IdentityError
from hiddenarm.net.certificates import Authority, new_request, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.service.kit import Kit

FOLDERS = ["dealer", "hotel", "airline", "actor", "rewarder"]


def run(*arguments: object, stdin: str = "") -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments], input=stdin)


def done(*arguments: object, stdin: str = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*arguments: object, by: type[HiddenArmError] = ConfigError) -> str:
    error = run(*arguments).exception
    assert isinstance(error, by), error
    return str(error)


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    done("provision", write_federation_file(tmp_path), "--out", tmp_path / "kits")
    return tmp_path / "kits"


@pytest.fixture
def empty_kits(tmp_path: Path) -> Path:
    done("provision", write_federation_file(tmp_path), "--out", tmp_path / "kits", "--keys-on-site")
    return tmp_path / "kits"


def fingerprint_in(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("fingerprint:")).partition(":")[2].strip()


def new_identity(kits: Path, folder: str = "hotel") -> str:
    """Request, approve and install; what `install` said."""
    fingerprint = fingerprint_in(done("request", kits / folder))
    request = kits / folder / "next" / "request.pem"
    out = kits.parent / f"{folder}-{len(list(kits.parent.iterdir()))}.pem"
    done("approve", kits / "authority", request, "--fingerprint", fingerprint, "--out", out)
    return done("install", kits / folder, out)


def test_every_kit_can_be_read(kits: Path) -> None:
    assert sorted(path.name for path in kits.iterdir()) == sorted([*FOLDERS, "authority"])
    read = [Kit.read(kits / folder) for folder in FOLDERS]
    assert [str(kit.identity) for kit in read] == ["dealer", "party 0", "party 1", "actor", "rewarder"]
    assert len({str(kit.hello) for kit in read}) == 1


def test_files_are_0600_in_folders_0700(kits: Path) -> None:
    for path in (kits, *kits.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_the_authoritys_key_is_in_its_own_folder_only(kits: Path) -> None:
    key = (kits / "authority" / "key.pem").read_bytes()
    assert sum(key in path.read_bytes() for path in kits.rglob("*") if path.is_file()) == 1


def test_the_sample_is_a_table_that_can_be_used(kits: Path) -> None:
    sample = (kits / "airline" / "features.sample.csv").read_text()
    assert sample.splitlines()[0] == "key,miles,delay"
    write_private(kits / "airline" / "features.csv", sample.encode())
    features = Kit.read(kits / "airline").features()
    assert (len(features), features.unusable) == (2, 0)


@pytest.mark.parametrize("there", ["authority", "airline", "rewarder"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    out = tmp_path / "kits"
    (out / there).mkdir(parents=True)
    (out / there / "mine").write_text("mine")
    message = refused("provision", write_federation_file(tmp_path), "--out", out)
    assert f"{there} is there already and is not overwritten" in message
    assert [path.name for path in out.iterdir()] == [there]


def test_a_bad_federation_file_makes_nothing(tmp_path: Path) -> None:
    path = write_federation_file(tmp_path, "port = 7401", "port = 0")
    assert "line 17: party[1].port" in refused("provision", path, "--out", tmp_path / "kits")
    assert not (tmp_path / "kits").exists()


def test_keys_made_on_site_never_leave_it(empty_kits: Path) -> None:
    assert not list(empty_kits.glob("[!a]*/*key*"))
    said = new_identity(empty_kits)
    assert "party 0 has a certificate until" in said
    assert Kit.read(empty_kits / "hotel").identity == Identity(Role.PARTY, 0)
    assert not (empty_kits / "hotel" / "next").exists()
    for path in empty_kits.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_both_sides_see_the_same_fingerprint(empty_kits: Path) -> None:
    told = done("request", empty_kits / "hotel")
    request = empty_kits / "hotel" / "next" / "request.pem"
    shown = done("approve", empty_kits / "authority", request, stdin="y\n")
    assert fingerprint_in(told) == fingerprint_in(shown)
    assert len(fingerprint_in(told).replace(" ", "")) == 64
    assert (request.parent / "certificate.pem").exists()


def test_who_does_not_confirm_signs_nothing(empty_kits: Path) -> None:
    done("request", empty_kits / "hotel")
    request = empty_kits / "hotel" / "next" / "request.pem"
    error = run("approve", empty_kits / "authority", request, stdin="n\n").exception
    assert isinstance(error, HiddenArmError)
    assert error.exit_code == 1
    assert f"{request} was not approved, and nothing was signed" in str(error)
    message = refused("approve", empty_kits / "authority", request, "--fingerprint", "ab" * 32, by=IdentityError)
    assert "another fingerprint" in message
    assert not (request.parent / "certificate.pem").exists()


def test_a_second_request_does_not_replace_the_first(empty_kits: Path) -> None:
    done("request", empty_kits / "hotel")
    key = (empty_kits / "hotel" / "next" / "key.pem").read_bytes()
    assert "holds a request already" in refused("request", empty_kits / "hotel")
    assert (empty_kits / "hotel" / "next" / "key.pem").read_bytes() == key


def test_a_certificate_is_renewed_and_the_old_one_kept(kits: Path) -> None:
    old = {name: (kits / "hotel" / name).read_bytes() for name in ("certificate.pem", "key.pem")}
    said = new_identity(kits)
    assert "SIGHUP" in said
    (retired,) = (kits / "hotel" / "retired").iterdir()
    for name, content in old.items():
        assert (retired / name).read_bytes() == content
        assert (kits / "hotel" / name).read_bytes() != content
    Kit.read(kits / "hotel")
    new_identity(kits)
    assert len(list((kits / "hotel" / "retired").iterdir())) == 2


def stranger(kits: Path) -> bytes:
    return new_request(Identity(Role.PARTY, 2))[0]


def tampered(kits: Path) -> bytes:
    request = new_request(Identity(Role.PARTY, 0))[0]
    at = len(request) // 2
    return request[:at] + (b"A" if request[at : at + 1] != b"A" else b"B") + request[at + 1 :]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (stranger, "party 2 is no member of the federation 'travel'"),
        (tampered, "request"),
        (lambda kits: b"", "not a request"),
        (lambda kits: (kits / "hotel" / "certificate.pem").read_bytes(), "not a request"),
    ],
)
def test_requests_that_are_not_signed(kits: Path, tmp_path: Path, make: Callable[[Path], bytes], words: str) -> None:
    path = tmp_path / "request.pem"
    path.write_bytes(make(kits))
    result = run("approve", kits / "authority", path, stdin="y\n")
    assert isinstance(result.exception, HiddenArmError)
    assert words in str(result.exception)
    assert not (tmp_path / "certificate.pem").exists()


def own_request(kits: Path) -> Path:
    done("request", kits / "hotel")
    return kits / "hotel" / "next" / "request.pem"


def approved(kits: Path, tmp_path: Path) -> Path:
    done("approve", kits / "authority", own_request(kits), "--out", tmp_path / "new.pem", stdin="y\n")
    return tmp_path / "new.pem"


def issued(kits: Path, tmp_path: Path, identity: Identity, days: int = 1, authority: Authority | None = None) -> Path:
    """A certificate for some other key."""
    folder = kits / "authority"
    home = Authority.load((folder / "ca.pem").read_bytes(), (folder / "key.pem").read_bytes())
    path = tmp_path / "issued.pem"
    path.write_bytes((authority or home).issue(identity, days)[0])
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda kits, tmp: issued(kits, tmp, Identity(Role.PARTY, 1)),
            "hotel is the kit of party 0: install the certificate of party 0",
        ),
        (lambda kits, tmp: issued(kits, tmp, Identity(Role.PARTY, 0)), "belongs to another request"),
        (lambda kits, tmp: issued(kits, tmp, Identity(Role.PARTY, 0), days=-1), "is not valid now"),
        (
            lambda kits, tmp: issued(kits, tmp, Identity(Role.PARTY, 0), authority=Authority.create("travel")),
            "was not signed by an authority",
        ),
        (lambda kits, tmp: kits / "hotel" / "next" / "key.pem", "is not a certificate"),
    ],
)
def test_certificates_that_are_not_installed(
    kits: Path, tmp_path: Path, make: Callable[[Path, Path], Path], words: str
) -> None:
    own_request(kits)
    before = (kits / "hotel" / "certificate.pem").read_bytes()
    assert words in refused("install", kits / "hotel", make(kits, tmp_path))
    assert (kits / "hotel" / "certificate.pem").read_bytes() == before
    assert not (kits / "hotel" / "retired").exists()


def test_an_interrupted_install_can_be_repeated(kits: Path, tmp_path: Path) -> None:
    """After the certificate took its place and before the key did."""
    certificate = approved(kits, tmp_path)
    (kits / "hotel" / "certificate.pem").write_bytes(certificate.read_bytes())
    done("install", kits / "hotel", certificate)
    Kit.read(kits / "hotel")


def test_a_certificate_is_installed_once(kits: Path, tmp_path: Path) -> None:
    certificate = approved(kits, tmp_path)
    done("install", kits / "hotel", certificate)
    message = refused("install", kits / "hotel", certificate)
    assert message == f"{certificate} is installed in {kits / 'hotel'} already: there is nothing left to do"
    message = refused("install", kits / "hotel", issued(kits, tmp_path, Identity(Role.PARTY, 0)))
    assert f"has no request that waits for a certificate: make one with hiddenarm request {kits / 'hotel'}" in message


def test_an_authority_that_others_may_read(kits: Path, tmp_path: Path) -> None:
    request = own_request(kits)
    (kits / "authority" / "key.pem").chmod(0o640)
    result = run("approve", kits / "authority", request, "--out", tmp_path / "new.pem", stdin="y\n")
    assert isinstance(result.exception, ConfigError)
    assert "(mode 640): chmod 600" in str(result.exception)
