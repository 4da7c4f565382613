"""The federation file: a federation as its members agree on it, in one TOML file from which all kits are made.

    name = "travel"
    arms = ["beach", "city", "mountains"]
    epsilon = 0.1

    [[party]]
    name = "hotel"
    features = ["nights", "stars"]
    host = "192.0.2.1"
    port = 7400

    [[party]] ...

    [dealer]
    host = "192.0.2.3"
    port = 7400

What is wrong in it is told with its line, the field, what it should be and an example.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, ValidationError, model_validator

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.evaluation import values_of_table
from hiddenarm.bandit.policies import policy_from_table
from hiddenarm.errors import ConfigError
from hiddenarm.net.hello import hello_payload
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.monitor import IPV4
from hiddenarm.privacy.mechanisms import NO_MECHANISM, privacy_from_table
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.arm_tables import LABEL, StoredArms, read_arm_file
from hiddenarm.service.kit import Address, KitFederation, KitFile, MissingKey, OptionTable
from hiddenarm.service.web_address import check_web

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_FIRST_MONITOR_PORT: Final = {Role.DEALER: 9410, Role.ACTOR: 9411, Role.REWARDER: 9412, Role.PARTY: 9420}
"""On loopback; parties count up from the last. Different for all, so that several roles may share a machine."""
_EXAMPLES: Final = {
    "name": 'name = "hotel"',
    "arms": 'arms = ["beach", "city"]',
    "arm_table": 'arm_table = "items.csv"',
    "own_models": 'own_models = ["beach"]',
    "version": "version = 2",
    "retired": 'retired = ["beach"]',
    "epsilon": "epsilon = 0.1",
    "policy": '[policy] with name = "epsilon-schedule", initial = 0.5, decay = 1000',
    "privacy": '[privacy] with mechanism = "noisy-sums", total_epsilon = 1.0',
    "evaluation": '[evaluation] with mu = 0.2, opened_to = "rewarder"',
    "ridge": "ridge = 1.0",
    "reward_slot": "reward_slot = 60",
    "default_reward": "default_reward = 0.0",
    "keep_interactions": "keep_interactions = 100000",
    "expires_after": "expires_after = 86400",
    "expired_reward": "expired_reward = 0.0",
    "suite": 'suite = "fast"',
    "party": '[[party]] with name = "hotel", features = ["nights", "stars"], host = "192.0.2.1", port = 7400',
    "features": 'features = ["nights", "stars"]',
    "norm": "norm = 1.0",
    "missing_key": 'missing_key = "zeros"',
    "host": 'host = "192.0.2.1"',
    "port": "port = 7400",
    "dealer": '[dealer] with host = "192.0.2.3", port = 7400',
    "monitor_port": "monitor_port = 9420",
    "monitor_listen": 'monitor_listen = "0.0.0.0"',
    "http": 'http = "127.0.0.1:8411"',
}

Label = Annotated[str, StringConstraints(pattern=LABEL, strip_whitespace=True)]
FolderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:_-]{1,253}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClientEntry(_Strict):
    """What may be said about the actor or the rewarder. Nobody dials them."""

    monitor_port: Port | None = None
    monitor_listen: Annotated[str, StringConstraints(pattern=IPV4)] | None = None
    """The address at which health and metrics are to be had, where it is not loopback."""
    http: str | None = None
    """Where it serves HTTP."""
    http_certificate: str | None = None
    http_key: str | None = None

    @model_validator(mode="after")
    def _check_http(self) -> Self:
        check_web(self.http, self.http_certificate, self.http_key)
        return self


class ServerEntry(ClientEntry):
    """Where a role listens."""

    host: HostName
    port: Port
    listen: HostName | None = None
    """The host at which to listen, where others reach it by another one."""


class PartyEntry(ServerEntry):
    """A party: its features by name, and the largest norm that it lets them have."""

    name: FolderName
    features: list[Label] = Field(min_length=1)
    norm: float = 1.0
    missing_key: MissingKey = "refuse"
    """What becomes of a key of which it has no row."""
    stock: int | None = None
    spin_microseconds: int | None = None


ReadArms = Callable[["FederationFile"], ArmTable]
"""Gives the table of arms of a federation file that names one."""


class FederationFile(_Strict):
    """The file."""

    name: FolderName
    version: int = Field(default=1, ge=1, le=1_000_000)
    """Counted up by one with every change that the members agree on (`hiddenarm change`)."""
    arms: list[Label] = Field(default=[], min_length=2)
    """An arm keeps its place. New ones come last."""
    arm_table: str | None = None
    """In place of `arms`: a CSV or Parquet file with a column `name` and a column for each feature of the arms, which
    then share a model. Its path is relative to this file."""
    own_models: list[Label] = []
    """Arms of the table that have a model of their own on top."""
    retired: list[Label] = []
    """Arms that no decision names any more."""
    epsilon: float | None = None
    policy: OptionTable | None = None
    """How arms are chosen: a table with the policy's name and options. `epsilon` is short for epsilon-greedy."""
    privacy: OptionTable | None = None
    """What is promised over time: a table with the name of a mechanism and its options."""
    evaluation: OptionTable | None = None
    """Which values of policies are opened, to whom and with how much noise; none without it."""
    ridge: float = 1.0
    suite: str = "fast"
    fraction_bits: int | None = None
    max_interactions: int | None = None
    reciprocal_bits: int | None = None
    repair_every: int | None = None
    newton_iterations: int | None = None
    reward_slot: int | None = None
    """Seconds of a slot: rewards are sent at the ends of slots. Without it, when they come."""
    default_reward: float | None = None
    """What is sent for a reward that has not come; 0 unless given."""
    keep_interactions: int | None = None
    """How many of the newest interactions that were learned parties keep, to be unlearned."""
    expires_after: int | None = None
    """Seconds after which a decision without a reward expires; never unless given."""
    expired_reward: float | None = None
    """What is learned for a decision that has expired; it is dropped unless given."""
    max_batch: int | None = None
    durable: bool = True
    """Whether state outlives the processes: without it, one role that ends takes the federation and its model along."""
    checkpoint_every: int | None = None
    party: list[PartyEntry] = Field(min_length=2)
    dealer: ServerEntry
    actor: ClientEntry = ClientEntry()
    rewarder: ClientEntry = ClientEntry()
    _table: ArmTable | None = PrivateAttr(default=None)
    _stored: StoredArms | None = PrivateAttr(default=None)

    @classmethod
    def read(cls, path: Path) -> FederationFile:
        """The federation file in a file, with its table of arms if it names one; whatever is wrong with it is one
        ConfigError."""
        return cls.parse(read_text(path), path, lambda file: read_arm_file(file.path_of_arms(path)).table)

    @classmethod
    def parse(cls, text: str, path: Path, read_arms: ReadArms) -> FederationFile:
        """The same from its text, which came from `path`; `read_arms` gives the table of arms of a file that names
        one."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        try:
            federation_file = cls.model_validate(content)
        except ValidationError as error:
            raise ConfigError(_explained(path, text, error)) from None
        federation_file._take_arms(path, text, read_arms)
        federation_file._check_policy(path, text)
        federation_file._check_privacy(path, text)
        federation_file._check_evaluation(path, text)
        try:
            federation_file._check_names()
            for member in federation_file.members:
                federation_file.kit_file(member).build_federation()
        except (ConfigError, ValidationError) as error:
            problem = error if isinstance(error, ConfigError) else _problem(error)
            raise ConfigError(f"{path}: {problem}") from None
        return federation_file

    def path_of_arms(self, path: Path) -> Path:
        """Where the table of arms is that the federation file at `path` names."""
        assert self.arm_table is not None
        return path.parent / self.arm_table

    @property
    def table(self) -> ArmTable | None:
        """The table of arms, where arms have features."""
        return self._table

    @property
    def stored_table(self) -> StoredArms | None:
        """The same as kits hold it."""
        return self._stored

    @property
    def arm_names(self) -> Sequence[str]:
        """The names of all arms, in their order."""
        return self.arms if self._table is None else self._table.names

    @property
    def members(self) -> list[Identity]:
        """All roles: the dealer, the parties in their order, actor and rewarder."""
        parties = [Identity(Role.PARTY, number) for number in range(len(self.party))]
        return [DEALER, *parties, ACTOR, REWARDER]

    def folder(self, member: Identity) -> str:
        """The name of a role's kit: that of the organisation for a party."""
        return self.party[member.number].name if member.role is Role.PARTY else str(member)

    def kit_file(self, member: Identity) -> KitFile:
        """`kit.json` of a role."""
        own = self.own(member)
        options = {"stock", "spin_microseconds", "listen", "monitor_listen", "http", "http_certificate", "http_key"}
        names = list(own.features) if isinstance(own, PartyEntry) else []
        return KitFile(
            name=self.name,
            version=self.version,
            role=member.role,
            number=member.number,
            federation=self._federation(),
            addresses={str(server): self._address(server) for server in self.members[: 1 + len(self.party)]},
            names=self._names(),
            arm_names=tuple(self.arms) if member == ACTOR else (),  # a table has them
            feature_names=tuple(names),
            missing_keys=tuple(party.missing_key for party in self.party),
            organisations=tuple(party.name for party in self.party),
            monitor_port=own.monitor_port or _FIRST_MONITOR_PORT[member.role] + member.number,
            **own.model_dump(include=options, exclude_none=True),
            **self.model_dump(include={"max_batch", "durable", "checkpoint_every"}, exclude_none=True),
        )

    def own(self, member: Identity) -> ClientEntry:
        if member.role is Role.PARTY:
            return self.party[member.number]
        own: ClientEntry = getattr(self, member.role.value)
        return own

    def _address(self, member: Identity) -> Address:
        own = self.own(member)
        assert isinstance(own, ServerEntry)
        return Address(host=own.host, port=own.port)

    def _federation(self) -> KitFederation:
        numbers = {
            *("epsilon", "policy", "privacy", "fraction_bits", "max_interactions", "reciprocal_bits", "repair_every"),
            *("newton_iterations", "reward_slot", "default_reward", "expires_after", "expired_reward"),
            "keep_interactions",
            "evaluation",
        }
        places = {arm: place for place, arm in enumerate(self.arm_names)}
        return KitFederation(
            suite=self.suite,
            arms=len(self.arm_names),
            features=tuple(len(party.features) for party in self.party),
            ridge=self.ridge,
            norms=tuple(party.norm for party in self.party),
            retired=tuple(sorted(places[arm] for arm in self.retired)),
            arm_table=self._stored,
            **self.model_dump(include=numbers, exclude_none=True),
        )

    def _names(self) -> str:
        """A digest of everything that has a name, in its order: the hello compares it."""
        parties = [text for party in self.party for text in (party.name, *party.features, "")]
        return sha256(hello_payload({"arms": list(self.arm_names), "parties": parties})).hexdigest()[:16]

    def _take_arms(self, path: Path, text: str, read_arms: ReadArms) -> None:
        """Read the table of arms, if there is one; there must be that or a list."""
        if self.arm_table is None:
            if not self.arms:
                raise ConfigError(f"{path}: arms is missing, or an arm_table; for example: {_EXAMPLES['arms']}")
            if self.own_models:
                error = ConfigError("own_models are on top of one model for all arms: give an arm_table, or leave them")
                raise _in_table(path, text, ("own_models", ""), error)
            return
        try:
            if self.arms:
                raise ConfigError("arms and arm_table are both given: the table has the names, leave out arms")
            self._table = self._with_own(read_arms(self))
        except ConfigError as error:
            raise _in_table(path, text, ("arm_table", ""), error) from None
        self._stored = StoredArms.of(self._table)

    def _with_own(self, table: ArmTable) -> ArmTable:
        """The table with the columns of arms that have a model of their own; one that is handed on has them."""
        if not table.own and self.own_models:
            return table.with_own(self.own_models)
        if [table.names[arm] for arm in table.own] != self.own_models:
            raise ConfigError("own_models are not those of the table of arms that goes with this file")
        return table

    def _check_policy(self, path: Path, text: str) -> None:
        if self.policy is None:
            if self.epsilon is None:
                example = _EXAMPLES["epsilon"]
                raise ConfigError(f"{path}: epsilon is missing, or a policy; for example: {example}")
            return
        try:
            policy_from_table(self.policy)
        except ConfigError as error:
            raise _in_table(path, text, ("policy", "name"), error) from None

    def _check_privacy(self, path: Path, text: str) -> None:
        try:
            privacy_from_table(self.privacy or {"mechanism": NO_MECHANISM})
        except ConfigError as error:
            raise _in_table(path, text, ("privacy", "mechanism"), error) from None

    def _check_evaluation(self, path: Path, text: str) -> None:
        try:
            if self.evaluation is not None:
                values_of_table(self.evaluation)
        except ConfigError as error:
            raise _in_table(path, text, ("evaluation", "mu"), error) from None

    def _check_names(self) -> None:
        _refuse_twins("arms", self.arms)
        _refuse_twins("retired", self.retired)
        known = set(self.arm_names)
        for arm in self.retired:
            if arm not in known:
                raise ConfigError(f"retired: there is no arm {arm!r}; a retired arm stays in the list of arms")
        for number, party in enumerate(self.party):
            _refuse_twins(f"the features of party {number} ({party.name})", party.features)
        _refuse_twins("names of roles", [self.folder(member) for member in self.members] + ["authority"])
        servers = self.members[: 1 + len(self.party)]
        _refuse_twins("addresses", [f"{(at := self._address(server)).host}:{at.port}" for server in servers])


def read_text(path: Path) -> str:
    """The text of a federation's file, before it is understood."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes")
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not TOML: it is not UTF-8 text") from None


def _in_table(path: Path, text: str, place: tuple[str, str], error: ConfigError) -> ConfigError:
    """What is wrong with a table of options: file, line, the problem, and an example."""
    line = _line_of(text, place)
    where = f"{path}, line {line}" if line else str(path)
    return ConfigError(f"{where}: {error}; for example: {_EXAMPLES[place[0]]}")


def _refuse_twins(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{what}: {name!r} stands there twice; give each its own")
        seen.add(name)


def _explained(path: Path, text: str, error: ValidationError) -> str:
    """The first problem: file, line, field, what is wrong, and an example."""
    place = error.errors()[0]["loc"]
    line = _line_of(text, place)
    where = f"{path}, line {line}" if line else str(path)
    field = next((str(part) for part in reversed(place) if isinstance(part, str)), "")
    example = f"; for example: {_EXAMPLES[field]}" if field in _EXAMPLES else ""
    return f"{where}: {_problem(error)}{example}"


def _problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = problem["loc"]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    match problem["type"]:
        case "missing":
            return f"{field} is missing"
        case "value_error":
            return f"{field}: {problem['ctx']['error']}"
        case "extra_forbidden":
            return f"{field} is not a known key{_nearest(str(place[-1]), place)}"
        case "string_pattern_mismatch":
            return f"{field}: {_PATTERNS.get(str(problem['ctx']['pattern']), 'has letters that are not allowed')}"
        case _:
            return f"{field}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


_PATTERNS: Final = {
    r"^[a-z0-9][a-z0-9-]{0,31}$": "must be 1 to 32 small letters, digits and hyphens: it names a folder",
    LABEL: "must be 1 to 64 letters, without commas, quotes and control characters",
    r"^[A-Za-z0-9.:_-]{1,253}$": "must be the name or the address of a host",
}


def _nearest(key: str, place: tuple[int | str, ...]) -> str:
    tables: dict[str, type[BaseModel]] = {"party": PartyEntry, "dealer": ServerEntry}
    model = tables.get(str(place[0]), ClientEntry) if len(place) > 1 else FederationFile
    known = list(model.model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _line_of(text: str, place: tuple[Any, ...]) -> int | None:
    """The line on which a field stands, or on which its table begins."""
    lines = text.splitlines()
    start, rest = 0, list(place)
    if place and place[0] in ("party", "dealer", "actor", "rewarder", "policy", "privacy", "evaluation"):
        nth = place[1] if len(place) > 1 and isinstance(place[1], int) else 0
        header = re.compile(rf"\s*\[\[?\s*{place[0]}\s*\]\]?")
        headers = [number for number, line in enumerate(lines) if header.match(line)]
        if nth < len(headers):
            start, rest = headers[nth], [part for part in place[1:] if isinstance(part, str)]
        elif len(place) > 1:
            return None
    keys = [part for part in rest if isinstance(part, str)]
    for number in range(start, len(lines)):
        if number > start and lines[number].lstrip().startswith("["):
            break
        if keys and re.match(rf"\s*\"?{re.escape(keys[0])}\"?\s*=", lines[number]):
            return number + 1
    return start + 1 if start else None
