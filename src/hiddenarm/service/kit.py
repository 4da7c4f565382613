"""A kit: the folder from which one role runs. It holds the role's certificate and key and the public configuration.

kit.json          who this is, the federation, where everybody listens, where the features lie
ca.pem            the federation's authority
certificate.pem   this role's certificate; its URI names role and number
key.pem           its private key (0600)
features.csv      a party's features by key (0600), or features.npz
state/            durable state (0700), where the kit says `durable`
next/             a key and a request whose certificate has not come yet
retired/          keys and certificates that were replaced
epoch.key         only with a dealer whose coins are to be audited on one's own machine (0600);
                      removed when the dealer takes it

Only its owner may read a role's files. A file that others may read is refused by name, with the remedy.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO, S_ISDIR
from typing import Any, Final, Literal, Self

import numpy as np
from cryptography import x509
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hiddenarm.bandit.federation import MAX_INTERACTIONS, Federation
from hiddenarm.bandit.policies import EPSILON_GREEDY, policy_from_table, table_of
from hiddenarm.errors import ConfigError, IdentityError
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.tls import TlsFiles
from hiddenarm.privacy.mechanisms import NO_MECHANISM, privacy_from_table, privacy_table
from hiddenarm.ring.streams import KEY_BYTES
from hiddenarm.ring.words import Floats
from hiddenarm.service.features import FEATURES_FILE, StoredFeatures, find_features
from hiddenarm.service.logs import Organisations

SECRET_FILES: Final = ("key.pem", "features.csv", "features.npz", "epoch.key", "next/key.pem")
"""Besides these, whatever in the folder is secret is inside a folder that only its owner may enter."""


def check_private(folder: Path) -> None:
    """Refuse a kit whose folder, or a secret file in it, is open to others."""
    for path in (folder, *(folder / name for name in SECRET_FILES)):
        refuse_open(path)


def is_open(path: Path) -> bool:
    """Whether a file or folder is open to group or others; one that is not there is not."""
    try:
        return bool(path.stat().st_mode & (S_IRWXG | S_IRWXO))
    except OSError:
        return False


def refuse_open(path: Path) -> None:
    """Refuse a file or folder that is open to group or others."""
    if is_open(path):
        mode = path.stat().st_mode
        what, wanted = ("folder", "700") if S_ISDIR(mode) else ("file", "600")
        raise ConfigError(
            f"the {what} {path} is open to group or others (mode {S_IMODE(mode):o}): chmod {wanted} {path}"
        )


PROTOCOL_VERSION = 5
EPOCH_KEY_FILE = "epoch.key"
AUTHORITY_FILE = "ca.pem"
CERTIFICATE_FILE = "certificate.pem"
KEY_FILE = "key.pem"


MissingKey = Literal["refuse", "zeros"]
"""What a party does with a key of which it has no row: it refuses the decision, or takes zeros for its features."""


OptionTable = dict[str, int | float | str | bool]
"""A policy, or a mechanism of privacy over time, in a file: its name, and its options."""
_MEANINGLESS = {"max_interactions": (0, MAX_INTERACTIONS), "reciprocal_bits": (8,), "repair_every": (10_000,)}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KitFederation(_Strict):
    """The suite of a federation (`fast` or `paper`), its policy and its public numbers, as in `Federation`. `policy` is
    a table with the name and the options of the policy; `epsilon` alone is short for that of epsilon-greedy. `privacy`
    is one with the mechanism of privacy over time and its options. What is left out has the default of the suite."""

    suite: str = "fast"
    arms: int
    features: tuple[int, ...]
    epsilon: float | None = None
    policy: OptionTable | None = None
    privacy: OptionTable | None = None
    ridge: float = 1.0
    norms: tuple[float, ...] = ()
    fraction_bits: int = 20
    max_interactions: int | None = None
    reciprocal_bits: int | None = None
    repair_every: int | None = None
    newton_iterations: int | None = None
    reward_slot: int | None = None
    default_reward: float | None = None
    score_bound: float = Field(default=32.0, exclude=True)
    """Of kits made by earlier versions: it only serves to recognise their state."""

    @model_validator(mode="before")
    @classmethod
    def _drop_what_had_no_meaning(cls, given: Any) -> Any:
        """Earlier versions wrote numbers into kits of the paper's suite that it does not have, always the same."""
        if isinstance(given, dict) and given.get("suite") == "paper":
            return {name: value for name, value in given.items() if value not in _MEANINGLESS.get(name, ())}
        return given

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        if self.epsilon is None and self.policy is None:
            raise ValueError("federation.epsilon, or federation.policy, is required")
        return self

    @classmethod
    def of(cls, federation: Federation) -> KitFederation:
        policy, options = federation.policy, federation.policy.options
        short = policy.name == EPSILON_GREEDY
        left_out = {"policy", "privacy", "max_batch", *options, *federation.privacy.options}
        numbers: dict[str, Any] = {name: value for name, value in federation.terms.items() if name not in left_out}
        if federation.privacy.name != NO_MECHANISM:
            numbers["privacy"] = privacy_table(federation.privacy)
        return cls(**numbers, **(options if short else {"policy": table_of(policy)}))

    def federation(self, max_batch: int) -> Federation:
        """`max_batch` is that of the kit: how many rewards the fast suite learns at once."""
        given = self.model_dump(exclude_none=True)
        if self.suite == "fast":
            given["max_batch"] = max_batch
        if self.policy is not None:
            given["policy"] = policy_from_table(self.policy)
        if self.privacy is not None:
            given["privacy"] = privacy_from_table(self.privacy)
        return Federation(**given)


class Address(_Strict):
    host: str
    port: int = Field(ge=1, le=65535)


class KitFile(_Strict):
    """`kit.json`."""

    name: str
    role: Role
    number: int = 0
    federation: KitFederation
    addresses: dict[str, Address]
    """Where parties and dealer listen, by name: "party 0", ..., "dealer"."""
    stock: int = Field(default=256, ge=4, le=4096)
    """Steps of dealt corrections that the last party keeps in stock."""
    max_batch: int = Field(default=256, ge=1, le=4095)
    """Most decisions, and most rewards, in one request."""
    spin_microseconds: int = Field(default=500, ge=0, le=10_000)
    """How long a party polls before it sleeps; 0 where it has no core to itself."""
    durable: bool = False
    """Whether state lasts: the folder `state` of a party, the actor and the rewarder; the same in all kits."""
    checkpoint_every: int = Field(default=256, ge=1, le=100_000)
    """Lessons between two checkpoints of the model; the same in all kits."""
    listen: str | None = None
    """The host at which to listen, where it is not that of the own address."""
    monitor_port: int | None = Field(default=None, ge=1, le=65535)
    """Where health and metrics are to be had, on loopback only; nowhere unless given."""
    names: str = ""
    """A digest of the names of parties, features and arms."""
    arm_names: tuple[str, ...] = ()
    """For the actor: what the arms are called."""
    feature_names: tuple[str, ...] = ()
    """For a party: what its features are called, in their order."""
    missing_keys: tuple[MissingKey, ...] = ()
    """For each party, what it does with a key of which it has no row; all refuse unless given. The same in all kits."""
    organisations: tuple[str, ...] = ()
    """For each party, what its organisation is called; they are only numbered unless given."""

    @model_validator(mode="after")
    def _check_entries(self) -> Self:
        parties = len(self.federation.features)
        for name, entries in (("missing_keys", self.missing_keys), ("organisations", self.organisations)):
            if entries and len(entries) != parties:
                raise ValueError(f"{name} must have an entry for each of {parties} parties, got {len(entries)}")
        return self

    def build_federation(self) -> Federation:
        """The federation that the file describes; whatever does not fit is a `ConfigError`."""
        return self.federation.federation(self.max_batch)


class Kit:
    """A kit that was read and checked."""

    def __init__(self, folder: Path, file: KitFile) -> None:
        self.folder = folder
        self.file = file
        self.identity = Identity(file.role, file.number)
        self.federation = file.build_federation()
        self._check_identity()

    @classmethod
    def read(cls, folder: Path) -> Kit:
        file = read_kit_file(folder)
        check_private(folder)
        return cls(folder, file)

    def _check_identity(self) -> None:
        """The certificate must be that of the member this kit is for, and there must be such a member."""
        count = self.federation.parties if self.identity.role is Role.PARTY else 1
        if self.identity.number >= count:
            raise ConfigError(f"{self.folder / 'kit.json'} is for {self.identity}, but the federation has {count}")
        named = certified_identity(self.tls.certificate)
        if named != self.identity:
            raise ConfigError(f"{self.tls.certificate} is that of {named}, but kit.json is for {self.identity}")

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.folder / AUTHORITY_FILE, self.folder / CERTIFICATE_FILE, self.folder / KEY_FILE)

    @property
    def hello(self) -> dict[str, Any]:
        """What every pair of roles must agree on before anything else is said."""
        return {
            "protocol_version": PROTOCOL_VERSION,
            **self.terms,
            "max_batch": self.file.max_batch,
            "names": self.file.names,
            "durable": self.file.durable,
            "checkpoint_every": self.file.checkpoint_every,
            "missing_keys": self.missing_keys,
        }

    @property
    def terms(self) -> dict[str, Any]:
        """What a federation is: its name, its suite, its policy and its numbers."""
        return {
            "federation": self.file.name,
            **{name: value for name, value in self.federation.terms.items() if name != "max_batch"},
        }

    @property
    def missing_keys(self) -> tuple[MissingKey, ...]:
        """What each party does with a key of which it has no row."""
        refuse: MissingKey = "refuse"
        return self.file.missing_keys or (refuse,) * self.federation.parties

    @property
    def organisations(self) -> Organisations:
        """What the parties' organisations are called."""
        return Organisations(self.file.organisations)

    def address(self, identity: Identity) -> Address:
        try:
            return self.file.addresses[str(identity)]
        except KeyError:
            raise ConfigError(f"{self.folder / 'kit.json'} has no address for {identity}") from None

    def features(self) -> StoredFeatures:
        number = self.identity.number
        features = find_features(self.folder, self.federation.features[number], self.file.feature_names)
        return features.with_zeros() if self.missing_keys[number] == "zeros" else features

    def take_epoch_key(self) -> bytes | None:
        """The dealer's key, if the kit fixes one for an audit. It is removed: a second epoch must not use it again."""
        path = self.folder / EPOCH_KEY_FILE
        if not path.exists():
            return None
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise ConfigError(f"{path} must hold {KEY_BYTES} bytes")
        path.unlink()
        _sync_folder(self.folder)
        return key


def read_kit_file(folder: Path) -> KitFile:
    """`kit.json` of a folder, which need not hold a certificate yet."""
    path = folder / "kit.json"
    try:
        return KitFile.model_validate(json.loads(path.read_text(), parse_constant=_refuse_constant))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {_explained(error)}") from None


def write_kit(folder: Path, file: KitFile, authority: Authority, valid_days: int = 365) -> None:
    """Make a role's folder: configuration, certificate and key."""
    certificate, key = authority.issue(Identity(file.role, file.number), valid_days)
    write_empty_kit(folder, file, authority.certificate_pem)
    write_private(folder / CERTIFICATE_FILE, certificate)
    write_private(folder / KEY_FILE, key)


def write_empty_kit(folder: Path, file: KitFile, authority_pem: bytes) -> None:
    """Make a role's folder without a key: the role is to make its own."""
    write_private(folder / "kit.json", (file.model_dump_json(indent=2, exclude_none=True) + "\n").encode())
    write_private(folder / AUTHORITY_FILE, authority_pem)


def write_features(folder: Path, keys: list[str], values: Floats) -> None:
    """Store a party's features in its kit."""
    path = folder / FEATURES_FILE
    path.touch(mode=0o600)
    np.savez(path, keys=np.array(keys), values=values)


def certified_identity(path: Path) -> Identity:
    """The identity in a certificate file."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        raise ConfigError(f"{path} is not a readable certificate with a name") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise ConfigError(f"{path} has {len(uris)} names, it must have one")
    try:
        return Identity.parse(uris[0])
    except IdentityError as error:
        raise ConfigError(f"{path}: {error}") from None


def _sync_folder(folder: Path) -> None:
    """Make a change of a folder's entries last through a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_constant(name: str) -> float:
    raise ConfigError(f"{name} is not a number that a configuration may hold")


def _explained(error: ValidationError) -> str:
    """The first problem, with the nearest known name where a key is unknown."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] != "extra_forbidden":
        return f"{where}: {problem['msg']}"
    known = [*KitFile.model_fields, *KitFederation.model_fields, *Address.model_fields]
    near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
    return f"{where} is not a known key" + (f"; did you mean {near[0]}?" if near else "")
