"""From a federation file to a folder with a start kit for every role, and one for the authority.

OUT/authority/     the authority's certificate and key, and the federation file. It stays with whoever answers for names
OUT/dealer/, OUT/actor/, OUT/rewarder/, and a folder for each party, by its name

Nothing that is there is overwritten. A kit has a key, or the role makes its own (`enrolment`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography import x509

from hiddenarm.errors import ConfigError, IdentityError
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.service.features import sample_table
from hiddenarm.service.federation_file import FederationFile
from hiddenarm.service.file_modes import refuse_open
from hiddenarm.service.kit import AUTHORITY_FILE, KEY_FILE, write_empty_kit, write_kit

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
        _write_authority(out / AUTHORITY_FOLDER, authority, path.read_bytes())
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
    return authority, FederationFile.read(folder / FEDERATION_FILE)


def authorities_in(path: Path) -> list[x509.Certificate]:
    """The certificates of all authorities that a kit trusts."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        raise ConfigError(f"{path} does not hold an authority's certificate") from None


def _write_authority(folder: Path, authority: Authority, federation_file: bytes) -> None:
    write_private(folder / AUTHORITY_FILE, authority.certificate_pem)
    write_private(folder / KEY_FILE, authority.key_pem)
    write_private(folder / FEDERATION_FILE, federation_file)


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
