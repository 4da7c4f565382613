"""A kit: the folder from which one role runs. It holds the role's certificate and key and the public configuration.

kit.json          who this is, the federation, where everybody listens, where the features lie
ca.pem            the federation's authority
certificate.pem   this role's certificate; its URI names role and number
key.pem           its private key (0600)
http.token        what a caller of its HTTP server must show (0600); made when that is first started
monitor.token     what a scraper on another machine must show for metrics (0600), if it is there
features.csv      a party's features by key (0600), or features.npz or features.parquet;
                      or features.toml, which says where else they are (`sources`)
state/            durable state (0700), where the kit says `durable` and names no `store`
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
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
from cryptography import x509
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hiddenarm.bandit.evaluation import values_of_table
from hiddenarm.bandit.federation import MAX_INTERACTIONS, Federation
from hiddenarm.bandit.policies import EPSILON_GREEDY, policy_from_table, table_of
from hiddenarm.errors import ConfigError, IdentityError
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.monitor import HOST, IPV4
from hiddenarm.net.tls import TlsFiles
from hiddenarm.privacy.mechanisms import NO_MECHANISM, privacy_from_table, privacy_table
from hiddenarm.ring.streams import KEY_BYTES
from hiddenarm.ring.words import Floats
from hiddenarm.service.arm_tables import StoredArms
from hiddenarm.service.features import StoredFeatures
from hiddenarm.service.logs import Organisations
from hiddenarm.service.modes import refuse_open
from hiddenarm.service.sources import SOURCE_FILE, TABLE_FILES, FeatureSource
from hiddenarm.service.web_address import WebAddress, check_web

SECRET_FILES: Final = ("key.pem", *TABLE_FILES, SOURCE_FILE, "epoch.key", "next/key.pem", "http.token", "monitor.token")
"""Besides these, whatever in the folder is secret is inside a folder that only its owner may enter."""


def check_private(folder: Path) -> None:
    """Refuse a kit whose folder, or a secret file in it, is open to others."""
    for path in (folder, *(folder / name for name in SECRET_FILES)):
        refuse_open(path)


PROTOCOL_VERSION = 8
_LONGEST_LIST_BYTES: Final = 4096
"""Of a list in a hello."""
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
    is one with the mechanism of privacy over time and its options, `evaluation` one with the options of
    `bandit.evaluation.PolicyValues`. `arm_table` has the features of the arms, where they share a model. What is left
    out has the default of the suite."""

    suite: str = "fast"
    arms: int
    features: tuple[int, ...]
    epsilon: float | None = None
    policy: OptionTable | None = None
    privacy: OptionTable | None = None
    evaluation: OptionTable | None = None
    ridge: float = 1.0
    norms: tuple[float, ...] = ()
    fraction_bits: int = 20
    max_interactions: int | None = None
    reciprocal_bits: int | None = None
    repair_every: int | None = None
    newton_iterations: int | None = None
    reward_slot: int | None = None
    default_reward: float | None = None
    keep_interactions: int | None = None
    retired: tuple[int, ...] = ()
    """Arms that no decision names any more, by number."""
    expires_after: int | None = None
    expired_reward: float | None = None
    arm_table: StoredArms | None = Field(default=None, repr=False)
    """Names and public features of the arms."""
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
        left_out = {"policy", "privacy", "evaluation", "max_batch", *options, *federation.privacy.options}
        left_out |= {"arm_features", "arm_columns"}
        numbers: dict[str, Any] = {name: value for name, value in federation.terms.items() if name not in left_out}
        if federation.privacy.name != NO_MECHANISM:
            numbers["privacy"] = privacy_table(federation.privacy)
        if federation.evaluation is not None:
            numbers["evaluation"] = federation.evaluation.options
        if federation.arm_features is not None:
            numbers["arm_table"] = StoredArms.of(federation.arm_features)
        return cls(**numbers, **(options if short else {"policy": table_of(policy)}))

    def federation(self, max_batch: int) -> Federation:
        """`max_batch` is that of the kit: how many rewards the fast suite learns at once."""
        given = self.model_dump(exclude_none=True, exclude={"arm_table"})
        if self.arm_table is not None:
            given["arm_features"] = self.arm_table.table()
        if self.suite == "fast":
            given["max_batch"] = max_batch
        if self.policy is not None:
            given["policy"] = policy_from_table(self.policy)
        if self.privacy is not None:
            given["privacy"] = privacy_from_table(self.privacy)
        if self.evaluation is not None:
            given["evaluation"] = values_of_table(self.evaluation)
        return Federation(**given)


class Address(_Strict):
    host: str
    port: int = Field(ge=1, le=65535)


class KitFile(_Strict):
    """`kit.json`."""

    name: str
    version: int = Field(default=1, ge=1, le=1_000_000)
    """Of the federation's file: it is counted up with every change. The same in all kits."""
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
    store: str | None = Field(default=None, repr=False)
    """Where lasting state is kept, if not in the folder `state`: the URL of a PostgreSQL database. It may hold a
    password."""
    checkpoint_every: int = Field(default=256, ge=1, le=100_000)
    """Lessons between two checkpoints of the model; the same in all kits."""
    listen: str | None = None
    """The host at which to listen, where it is not that of the own address."""
    monitor_port: int | None = Field(default=None, ge=1, le=65535)
    """Where health and metrics are to be had; nowhere unless given."""
    monitor_listen: str = Field(default=HOST, pattern=IPV4)
    """The address at which they are: loopback, unless whoever else reaches it may read them."""
    http: str | None = None
    """Where HTTP is served: 127.0.0.1:8411 or unix:http.sock, or another address with TLS; nowhere unless given."""
    http_certificate: str | None = None
    """The file of the certificate chain for HTTP with TLS, in the kit's folder or elsewhere."""
    http_key: str | None = None
    """The file of its private key."""
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
        check_web(self.http, self.http_certificate, self.http_key)
        return self

    @model_validator(mode="after")
    def _check_store(self) -> Self:
        """The message must not show the URL, which may hold a password."""
        if self.store is not None and not self.store.startswith(("postgresql://", "postgres://")):
            raise ValueError("store must be a URL such as postgresql://hiddenarm@db.example/hiddenarm")
        if self.store is not None and not self.durable:
            raise ValueError("store is where lasting state is kept, but durable is false: remove one of them")
        return self

    @property
    def names_of_arms(self) -> tuple[str, ...]:
        """What the arms are called, where this kit knows it: that of the actor, and all that hold a table of arms."""
        table = self.federation.arm_table
        return self.arm_names if table is None else table.names

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
        if file.store is not None:
            refuse_open(folder / "kit.json")  # the URL may hold a password
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
        """What every pair of roles must agree on before anything else is said. A table of arms is compared by its
        digest, and so are the names of its columns and arms that are retired, where these are long lists."""
        return {
            "protocol_version": PROTOCOL_VERSION,
            "version": self.file.version,
            **{name: _shortened(value) for name, value in self.terms.items()},
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

    @property
    def http(self) -> WebAddress | None:
        """Where HTTP is served, if it is."""
        if self.file.http is None:
            return None
        try:
            return WebAddress.parse(self.file.http).inside(self.folder)
        except ValueError as error:
            raise ConfigError(f"{self.folder / 'kit.json'}: {error}") from None

    @property
    def http_tls(self) -> tuple[Path, Path] | None:
        """The files of certificate and key, if HTTP is served by TLS."""
        certificate, key = self.file.http_certificate, self.file.http_key
        return None if certificate is None or key is None else (self.folder / certificate, self.folder / key)

    def address(self, identity: Identity) -> Address:
        try:
            return self.file.addresses[str(identity)]
        except KeyError:
            raise ConfigError(f"{self.folder / 'kit.json'} has no address for {identity}") from None

    def feature_source(self) -> FeatureSource:
        """Where a party's features come from."""
        count = self.federation.features[self.identity.number]
        return FeatureSource.find(self.folder, count, self.file.feature_names)

    def features(self) -> StoredFeatures:
        """The features of a party that has them in a table."""
        return self.with_missing(self.feature_source().load())

    def with_missing(self, features: StoredFeatures) -> StoredFeatures:
        """Features of a table, and what keys without a row have."""
        return features.with_zeros() if self.missing_keys[self.identity.number] == "zeros" else features

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
    path = folder / "features.npz"
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


def _shortened(value: Any) -> Any:
    """A value for the hello, which has a largest size: a digest in the place of a list that is long."""
    if not isinstance(value, tuple | list):
        return value
    text = json.dumps(value)
    if len(text) <= _LONGEST_LIST_BYTES:
        return value
    return f"{len(value)} entries, digest {sha256(text.encode()).hexdigest()[:32]}"


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
