"""Identities, and the certificates that carry them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from stations import PARTY0, Office

from hiddenarm.errors import IdentityError
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import client_context, server_context


def test_names() -> None:
    assert str(Identity(Role.PARTY, 0)) == "party 0"
    assert str(Identity(Role.DEALER)) == "dealer"
    assert str(Identity(Role.ACTOR, 2)) == "actor 2"
    assert Identity(Role.PARTY, 3).uri == "hiddenarm:party/3"


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("number", [0, 7, 999_999])
def test_an_identity_survives_its_uri(role: Role, number: int) -> None:
    identity = Identity(role, number)
    assert Identity.parse(identity.uri) == identity
    assert hash(Identity.parse(identity.uri)) == hash(identity)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "hiddenarm:party",
        "hiddenarm:party/",
        "hiddenarm:party/00",
        "hiddenarm:party/-1",
        "hiddenarm:party/+1",
        "hiddenarm:party/1 ",
        "hiddenarm:party/1\n",
        "hiddenarm:party/1\0",
        "hiddenarm:party/\u0661",
        "hiddenarm:party/1000000",
        "hiddenarm:Party/1",
        "hiddenarm:admin/0",
        "HIDDENARM:party/0",
        "xhiddenarm:party/0",
    ],
)
def test_any_other_spelling_is_refused(uri: str) -> None:
    with pytest.raises(IdentityError):
        Identity.parse(uri)


def test_a_negative_number_is_nobody() -> None:
    with pytest.raises(IdentityError, match="party -1"):
        Identity(Role.PARTY, -1)


def test_a_certificate_has_what_strict_verification_wants() -> None:
    authority = Authority.create("clinic")
    certificate = x509.load_pem_x509_certificate(authority.issue(PARTY0)[0])
    certificate.verify_directly_issued_by(authority.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["hiddenarm:party/0"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_an_authority_can_be_written_down_and_read_back() -> None:
    authority = Authority.create("clinic")
    again = Authority.load(authority.certificate_pem, authority.key_pem)
    certificate = x509.load_pem_x509_certificate(again.issue(PARTY0)[0])
    certificate.verify_directly_issued_by(authority.certificate)


def test_an_authority_shows_no_key() -> None:
    authority = Authority.create("clinic")
    assert authority.key_pem.decode() not in repr(authority)
    assert repr(authority).startswith("<")


def test_private_files_are_private_even_with_a_generous_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "new" / "folder" / "key.pem", b"key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "folder" / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new" / "folder").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_private_files_are_never_overwritten(tmp_path: Path) -> None:
    write_private(tmp_path / "key.pem", b"key")
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key.pem", b"other")
    assert (tmp_path / "key.pem").read_bytes() == b"key"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused(office: Office, mode: int) -> None:
    files = office.files(PARTY0)
    files.key.chmod(mode)
    for make in (server_context, client_context):
        with pytest.raises(IdentityError, match="open to group or others"):
            make(files)


def test_missing_or_mixed_up_files_are_named(office: Office) -> None:
    files = office.files(PARTY0)
    files.certificate.write_bytes(office.files(PARTY0).certificate.read_bytes())
    with pytest.raises(IdentityError, match=r"cannot load .*certificate\.pem"):
        client_context(files)
    files.key.unlink()
    with pytest.raises(IdentityError, match="cannot read the key file"):
        client_context(files)
