"""How the members of a federation agree on a change, and how a role adopts it.

1. the members write the next version of the federation's file: `version` counted up by one
2. at the authority   change   what may not change is refused by name; the file is signed, with the authority's key
3. at every role      adopt    the operator looks at the difference; `kit.json` is replaced in one stroke
4. the roles are started anew. A role of another version is refused at the hello, with the fields that differ; when all
   have the same, the next epoch opens with the model that there was

A signed file is JSON: the text of the federation's file, its table of arms if it names one, and the signature of both.
Every kit can be made from it, so that all roles get the same file. A role goes on with the version it has until it is
started anew, and a kit is of one version or of the other: a crash leaves either. What a party has written down is that
of the earlier version until an epoch of the later one is activated (`service.state`).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.changes import check_change, refused_changes
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ConfigError, IdentityError
from hiddenarm.files import replacing
from hiddenarm.net.identity import Identity
from hiddenarm.service.arm_tables import StoredArms, changes_of_arms
from hiddenarm.service.federation_file import FederationFile, read_text
from hiddenarm.service.kit import AUTHORITY_FILE, CERTIFICATE_FILE, Kit, KitFile, read_kit_file
from hiddenarm.service.provision import FEDERATION_FILE, arms_file, authorities_in, read_authority
from hiddenarm.service.state import check_state, keeps_state

_CONTEXT: Final = b"hiddenarm: a version of a federation's file\0"
"""Begins what is signed, so that the signature can be taken for nothing else."""
_CONTEXT_WITH_ARMS: Final = b"hiddenarm: a version of a federation's file, with its table of arms\0"
_MAX_BYTES: Final = 256 * 1024 * 1024
_OWN: Final = (
    "stock",
    "spin_microseconds",
    "listen",
    "monitor_port",
    "monitor_listen",
    "http",
    "http_certificate",
    "http_key",
    "store",
)
"""What an operator may have set in a kit: it stays, unless the federation's file says otherwise."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """A later version as a kit would have it, with what differs."""

    kit: Path
    file: KitFile
    differences: list[str]

    def write(self) -> None:
        """Put it in place of `kit.json`, whole or not at all."""
        with replacing(self.kit / "kit.json") as file:
            file.write((self.file.model_dump_json(indent=2, exclude_none=True) + "\n").encode())


def change(authority_folder: Path, path: Path, out: Path) -> list[str]:
    """Sign the next version of the federation's file, and keep it with the authority; what differs. May be repeated if
    it was interrupted."""
    authority, before = read_authority(authority_folder)
    text, after = read_text(path), FederationFile.read(path)
    _check_version(before, after, path)
    _check_files(before, after)
    arms = None if after.stored_table is None else after.stored_table.text
    signature = authority.key.sign(_signed_bytes(text, arms), ec.ECDSA(hashes.SHA256()))
    table = {} if arms is None else {"arm_table": arms}
    signed = json.dumps({"file": text, **table, "signature": b64encode(signature).decode()}, indent=2) + "\n"
    if len(signed) > _MAX_BYTES:
        raise ConfigError(
            f"{path} with its table of arms would be signed as more than {_MAX_BYTES:,} bytes: shorten it"
        )
    kept = [] if arms is None else [(authority_folder / arms_file(after.version), arms)]
    try:
        for target, content in ((out, signed), *kept, (authority_folder / FEDERATION_FILE, text)):
            with replacing(target) as file:
                file.write(content.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or out}: {error.strerror}") from None
    return [*_between(before.model_dump(), after.model_dump()), *changes_of_arms(before.table, after.table)]


def _signed_bytes(text: str, arms: str | None) -> bytes:
    """What is signed: the text of the federation's file and, if it names one, the table of arms."""
    if arms is None:
        return _CONTEXT + text.encode()
    return _CONTEXT_WITH_ARMS + len(text.encode()).to_bytes(8, "big") + text.encode() + arms.encode()


def read_adoption(kit_folder: Path, path: Path) -> Adoption:
    """What a signed version would make of a kit; nothing is written. One that the kit has already has no differences.
    IdentityError if no authority of the kit has signed it, ConfigError if the kit cannot follow."""
    old = read_kit_file(kit_folder)
    after = _verified(kit_folder, path)
    member = Identity(old.role, old.number)
    if after.name != old.name or member not in after.members:
        raise ConfigError(f"{path} is about the federation {after.name!r}, in which {kit_folder} has no part")
    new = _with_own(old, after, member)
    differing = list(_between(_shown(old, after), _shown(new, after)))
    differing += changes_of_arms(_table(old), _table(new))
    if after.version < old.version or (after.version == old.version and differing):
        raise ConfigError(
            f"{path} is version {after.version}, and {kit_folder} has version {old.version}: ask whoever keeps the "
            "authority for the newest one"
        )
    _check_kits(kit_folder, old, new)
    return Adoption(kit_folder, new, differing)


def _check_version(before: FederationFile, after: FederationFile, path: Path) -> None:
    if after == before:
        raise ConfigError(f"{path} is the version {before.version} that the authority has signed: nothing has changed")
    if after.version != before.version + 1:
        raise ConfigError(
            f"{path} has version {after.version}, and the authority has version {before.version}: set "
            f"version = {before.version + 1}"
        )


def _check_files(before: FederationFile, after: FederationFile) -> None:
    """Refuse what cannot change, by name."""
    if not before.durable:
        raise ConfigError(
            "this federation keeps no state (durable = false): nothing is lost if it is provisioned anew, from the new "
            "file"
        )
    fixed = [
        ("name", before.name, after.name),
        ("durable", before.durable, after.durable),
        ("the names of parties", [party.name for party in before.party], [party.name for party in after.party]),
    ]
    fixed += [
        (f"the features of {old.name}", old.features, new.features)
        for old, new in zip(before.party, after.party, strict=False)
    ]
    for what, old, new in fixed:
        if old != new:
            raise ConfigError(f"{what} cannot change, from {old} to {new}: provision another federation for that")
    _check_places(before.arm_names, after.arm_names)
    _check_rows(before.table, after.table)
    check_change(_federation(before), _federation(after))


def _federation(file: FederationFile) -> Federation:
    return file.kit_file(file.members[0]).build_federation()


def _check_places(before: Sequence[str], after: Sequence[str]) -> None:
    """An arm is what was learned of it, and its number is what requests call it: its name may change, its place may
    not."""
    places = {arm: place for place, arm in enumerate(after)}
    for place, arm in enumerate(before):
        if places.get(arm, place) != place:
            raise ConfigError(
                f"arm {arm!r} cannot move, from place {place} to {places[arm]}: one arm would be taken for another; "
                "leave arms where they are, add new ones at the end, and list under `retired` those that are to be "
                "chosen no more"
            )


def _check_rows(before: ArmTable | None, after: ArmTable | None) -> None:
    """A row of a table keeps its name. A request that is repeated gets the number of the arm that it got: by another
    name that would be another item."""
    if before is None or after is None:
        return
    for old, new in zip(before.names, after.names, strict=False):
        if old != new:
            raise ConfigError(
                f"the row of arm {old!r} cannot become that of {new!r}: add {new!r} as the last row, and list {old!r} "
                "under `retired`"
            )


def _verified(kit_folder: Path, path: Path) -> FederationFile:
    """The federation's file in a signed one, if an authority that the kit trusts has signed it."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path} has more than {_MAX_BYTES:,} bytes")
        signed = json.loads(path.read_text("utf-8"))
        text, arms = signed["file"], signed.get("arm_table")
        signature, content = b64decode(signed["signature"], validate=True), _signed_bytes(text, arms)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{path} is not a signed version: it is what `hiddenarm change` writes") from None
    for authority in authorities_in(kit_folder / AUTHORITY_FILE):
        key = authority.public_key()
        try:
            if isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
                return FederationFile.parse(text, path, lambda _: _signed_arms(arms, path))
        except InvalidSignature:
            continue
    raise IdentityError(f"{path} was not signed by an authority that {kit_folder / AUTHORITY_FILE} names")


def _signed_arms(arms: str | None, path: Path) -> ArmTable:
    if arms is None:
        raise ConfigError(f"{path} holds no table of arms")
    return StoredArms.parse(arms, str(path)).table()


def _table(file: KitFile) -> ArmTable | None:
    stored = file.federation.arm_table
    return None if stored is None else stored.table()


def _with_own(old: KitFile, after: FederationFile, member: Identity) -> KitFile:
    """The kit file of a later version, with what the operator has set in the kit."""
    given = after.own(member).model_dump(exclude_none=True)
    kept = {name: getattr(old, name) for name in _OWN if name not in given}
    return after.kit_file(member).model_copy(update=kept)


def _check_kits(folder: Path, old: KitFile, new: KitFile) -> None:
    """Refuse what this role cannot follow, by name: nothing is replaced then."""
    fixed = [
        ("durable", old.durable, new.durable),
        ("feature_names", old.feature_names, new.feature_names),
        ("organisations", old.organisations, new.organisations),
    ]
    for what, before, after in fixed:
        if before != after:
            raise ConfigError(f"{what} cannot change, from {before} to {after}")
    _check_places(old.names_of_arms, new.names_of_arms)
    _check_rows(_table(old), _table(new))
    if refused := refused_changes(old.build_federation().terms, new.build_federation().terms):
        raise ConfigError("; ".join(refused))
    if (folder / CERTIFICATE_FILE).exists() and keeps_state(kit := Kit(folder, new)):
        check_state(kit)


def _shown(file: KitFile, after: FederationFile) -> dict[str, Any]:
    """A kit file as a table, with names of arms: most kits have only a digest of them. Tables of arms are compared
    apart."""
    shown = file.model_dump(exclude_none=True)
    federation = shown.pop("federation")
    names = file.names_of_arms or after.arm_names
    federation["retired"] = [names[arm] for arm in file.federation.retired if arm < len(names)]
    if federation.pop("arm_table", None) is not None:
        del shown["names"]
        return {**federation, **shown}
    known = file.names == after.kit_file(after.members[0]).names
    return {**federation, **shown, "names": after.arms if known else "of the version before"}


def _between(before: Any, after: Any, name: str = "") -> Iterator[str]:
    """What differs between two tables, a line for each entry."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys(), key=lambda key: (key != "version", key)):
            yield from _between(before.get(key), after.get(key), f"{name}.{key}" if name else str(key))
    elif isinstance(before, list) and isinstance(after, list) and any(isinstance(part, dict) for part in before):
        for place, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _between(old, new, f"{name}[{place}]")
    elif before != after:
        yield f"{name}: {_text(before)} -> {_text(after)}"


def _text(value: Any) -> str:
    if value is None:
        return "not given"
    return ", ".join(str(part) for part in value) or "none" if isinstance(value, list | tuple) else str(value)
