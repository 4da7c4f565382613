"""From a federation file to a folder with a start kit for every role, and one for the authority.

OUT/authority/     the authority's certificate and key, and the federation file. It stays with whoever answers for names
OUT/dealer/, OUT/actor/, OUT/rewarder/, and a folder for each party, by its name

Nothing that is there is overwritten. A kit has a key, or the role makes its own.

So a role gets a certificate for a key that never leaves its machine, for the first time or in place of an old one:

1. at the role        request    a new key and a request for it lie in KIT/next
2. at the authority   approve    two people compare the fingerprint of the key; a certificate is written
3. at the role        install    key and certificate take their places; older ones go to KIT/retired

Until step 3 the role runs with what it has. After it, a role that runs shows the new certificate to whoever connects
once it is told to (SIGHUP). The old one stays valid until its date, so links that stand go on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.errors import ConfigError, IdentityError
from hiddenarm.net.certificates import Authority, fingerprint, new_request, read_request, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.service.arm_tables import StoredArms
from hiddenarm.service.features import sample_table
from hiddenarm.service.federation_file import FederationFile, read_text
from hiddenarm.service.kit import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    certified_identity,
    read_kit_file,
    write_empty_kit,
    write_kit,
)
from hiddenarm.service.modes import refuse_open

AUTHORITY_FOLDER: Final = "authority"
FEDERATION_FILE: Final = "federation.toml"
SAMPLE_FILE: Final = "features.sample.csv"


def provision(path: Path, out: Path, *, keys_on_site: bool, valid_days: int) -> dict[Identity, Path]:
    """Make the kits of the federation file at `path`; return where each lies."""
    federation_file = FederationFile.read(path)
    folders = {member: out / federation_file.folder(member) for member in federation_file.members}
    for folder in (out / AUTHORITY_FOLDER, *folders.values()):
        if folder.exists():
            raise ConfigError(f"{folder} is there already and is not overwritten: give another --out, or move it away")
    authority = Authority.create(federation_file.name)
    try:
        _write_authority(out / AUTHORITY_FOLDER, authority, path.read_bytes(), federation_file)
        for member, folder in folders.items():
            _write_member(folder, federation_file, member, authority, keys_on_site, valid_days)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or out}: {error.strerror}") from None
    return folders


def read_authority(folder: Path) -> tuple[Authority, FederationFile]:
    """The authority in a folder, and the federation file whose members it certifies."""
    refuse_open(folder)
    refuse_open(folder / KEY_FILE)
    try:
        authority = Authority.load((folder / AUTHORITY_FILE).read_bytes(), (folder / KEY_FILE).read_bytes())
    except OSError as error:
        raise ConfigError(f"{folder} is no authority: {error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise IdentityError(f"{folder} is no authority: its certificate or key is damaged") from None
    path = folder / FEDERATION_FILE
    return authority, FederationFile.parse(read_text(path), path, lambda file: _kept_arms(folder, file.version))


def arms_file(version: int) -> str:
    """Where the authority keeps the table of arms of a version. That of another version is another file, so that the
    federation's file, which is replaced last, says which one holds."""
    return f"arms-{version}.json"


def _kept_arms(folder: Path, version: int) -> ArmTable:
    path = folder / arms_file(version)
    return StoredArms.parse(_bytes(path).decode("utf-8", "replace"), str(path)).table()


def authorities_in(path: Path) -> list[x509.Certificate]:
    """The certificates of all authorities that a kit trusts."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        raise ConfigError(f"{path} does not hold an authority's certificate") from None


def _write_authority(folder: Path, authority: Authority, text: bytes, federation_file: FederationFile) -> None:
    write_private(folder / AUTHORITY_FILE, authority.certificate_pem)
    write_private(folder / KEY_FILE, authority.key_pem)
    if federation_file.stored_table is not None:
        write_private(folder / arms_file(federation_file.version), federation_file.stored_table.text.encode())
    write_private(folder / FEDERATION_FILE, text)


def _write_member(
    folder: Path,
    federation_file: FederationFile,
    member: Identity,
    authority: Authority,
    keys_on_site: bool,
    valid_days: int,
) -> None:
    file = federation_file.kit_file(member)
    if keys_on_site:
        write_empty_kit(folder, file, authority.certificate_pem)
    else:
        write_kit(folder, file, authority, valid_days)
    if member.role is Role.PARTY:
        write_private(folder / SAMPLE_FILE, sample_table(file.feature_names).encode())


NEXT_FOLDER: Final = "next"
RETIRED_FOLDER: Final = "retired"
REQUEST_FILE: Final = "request.pem"


@dataclass(frozen=True, slots=True)
class Requested:
    """A request that lies at `path`."""

    identity: Identity
    fingerprint: str
    path: Path


@dataclass(frozen=True, slots=True)
class Installed:
    """A certificate that took its place; `retired` is where the one before went, if there was one."""

    identity: Identity
    expires: datetime
    retired: Path | None


def make_request(kit: Path) -> Requested:
    """Make a key and a request for it in a kit."""
    file = read_kit_file(kit)
    identity, folder = Identity(file.role, file.number), kit / NEXT_FOLDER
    if folder.exists():
        raise ConfigError(
            f"{folder} holds a request already: have {folder / REQUEST_FILE} approved, or remove {folder} to begin anew"
        )
    request, key = new_request(identity)
    write_private(folder / KEY_FILE, key)
    write_private(folder / REQUEST_FILE, request)
    return Requested(identity, fingerprint(read_request(request)[1]), folder / REQUEST_FILE)


def read_requested(path: Path) -> Requested:
    """A request as it reached the authority."""
    identity, key = read_request(_bytes(path))
    return Requested(identity, fingerprint(key), path)


def approve(authority_folder: Path, request: Requested, out: Path, valid_days: int) -> None:
    """Certify a request whose fingerprint was compared."""
    authority, federation_file = read_authority(authority_folder)
    if request.identity not in federation_file.members:
        raise IdentityError(f"{request.identity} is no member of the federation {federation_file.name!r}")
    identity, key = read_request(_bytes(request.path))
    if (identity, fingerprint(key)) != (request.identity, request.fingerprint):
        raise IdentityError(f"{request.path} has changed since its fingerprint was shown")
    if out.exists():
        raise ConfigError(f"{out} is there already and is not overwritten: give another --out")
    write_private(out, authority.certify(identity, key, valid_days))


def install(kit: Path, certificate_path: Path) -> Installed:
    """Put an approved certificate, and the key it is for, in place. May be repeated if it was interrupted."""
    file, waiting = read_kit_file(kit), kit / NEXT_FOLDER
    own = Identity(file.role, file.number)
    certificate = _certificate(certificate_path)
    identity = certified_identity(certificate_path)
    if identity != own:
        raise ConfigError(
            f"{certificate_path} is that of {identity}, but {kit} is the kit of {own}: install the certificate of {own}"
        )
    check_issuer(certificate, certificate_path, kit / AUTHORITY_FILE)
    _check_dates(certificate, certificate_path)
    if not (waiting / KEY_FILE).exists():
        raise ConfigError(_nothing_waits(kit, certificate, certificate_path))
    _check_key(certificate, certificate_path, waiting / KEY_FILE)
    retired = _retire(kit)
    _replace(kit / CERTIFICATE_FILE, certificate_path.read_bytes())
    _replace(kit / KEY_FILE, (waiting / KEY_FILE).read_bytes())
    for name in (REQUEST_FILE, KEY_FILE):  # the key last: without it the install cannot be repeated
        (waiting / name).unlink(missing_ok=True)
    waiting.rmdir()
    return Installed(identity, certificate.not_valid_after_utc, retired)


def _nothing_waits(kit: Path, certificate: x509.Certificate, path: Path) -> str:
    """Why there is no key to install a certificate with."""
    in_use = kit / CERTIFICATE_FILE
    if in_use.exists() and _certificate(in_use) == certificate:
        return f"{path} is installed in {kit} already: there is nothing left to do"
    return f"{kit} has no request that waits for a certificate: make one with hiddenarm request {kit}"


def _certificate(path: Path) -> x509.Certificate:
    content = _bytes(path)
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise ConfigError(f"{path} is not a certificate") from None


def check_issuer(certificate: x509.Certificate, path: Path, trusted: Path) -> None:
    """Refuse a certificate that no authority in `trusted` has signed."""
    for authority in authorities_in(trusted):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return
    raise ConfigError(f"{path} was not signed by an authority that {trusted} names")


def _check_dates(certificate: x509.Certificate, path: Path) -> None:
    if not certificate.not_valid_before_utc <= datetime.now(UTC) < certificate.not_valid_after_utc:
        raise ConfigError(f"{path} is not valid now: compare its dates with this machine's clock")


def _check_key(certificate: x509.Certificate, path: Path, key_path: Path) -> None:
    content = _bytes(key_path)
    try:
        key = load_pem_private_key(content, password=None)
    except ValueError:
        raise ConfigError(f"{key_path} is not a key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{path} is not for the key in {key_path}: it belongs to another request")


def _retire(kit: Path) -> Path | None:
    """Keep copies of the pair in use under the certificate's number, unless there is none."""
    if not (kit / CERTIFICATE_FILE).exists():
        return None
    folder = kit / RETIRED_FOLDER / f"{_certificate(kit / CERTIFICATE_FILE).serial_number:x}"
    for name in (CERTIFICATE_FILE, KEY_FILE):
        if (kit / name).exists() and not (folder / name).exists():
            write_private(folder / name, (kit / name).read_bytes())
    return folder


def _replace(path: Path, content: bytes) -> None:
    """Put a file in another's place, whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    write_private(beside, content)
    os.replace(beside, path)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
