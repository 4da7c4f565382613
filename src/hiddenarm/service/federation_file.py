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
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from hiddenarm.bandit.policies import policy_from_table
from hiddenarm.errors import ConfigError
from hiddenarm.net.hello import hello_payload
from hiddenarm.net.identity import Identity, Role
from hiddenarm.privacy.mechanisms import NO_MECHANISM, privacy_from_table
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.kit import Address, KitFederation, KitFile, MissingKey, OptionTable

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_FIRST_MONITOR_PORT: Final = {Role.DEALER: 9410, Role.ACTOR: 9411, Role.REWARDER: 9412, Role.PARTY: 9420}
"""On loopback; parties count up from the last. Different for all, so that several roles may share a machine."""
_EXAMPLES: Final = {
    "name": 'name = "hotel"',
    "arms": 'arms = ["beach", "city"]',
    "epsilon": "epsilon = 0.1",
    "policy": '[policy] with name = "epsilon-schedule", initial = 0.5, decay = 1000',
    "privacy": '[privacy] with mechanism = "noisy-sums", total_epsilon = 1.0',
    "ridge": "ridge = 1.0",
    "reward_slot": "reward_slot = 60",
    "default_reward": "default_reward = 0.0",
    "suite": 'suite = "fast"',
    "party": '[[party]] with name = "hotel", features = ["nights", "stars"], host = "192.0.2.1", port = 7400',
    "features": 'features = ["nights", "stars"]',
    "norm": "norm = 1.0",
    "missing_key": 'missing_key = "zeros"',
    "host": 'host = "192.0.2.1"',
    "port": "port = 7400",
    "dealer": '[dealer] with host = "192.0.2.3", port = 7400',
    "monitor_port": "monitor_port = 9420",
}

Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f,\"]{1,64}$", strip_whitespace=True)]
"""What arms and features are called: text without commas, quotes and control characters."""
FolderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:_-]{1,253}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClientEntry(_Strict):
    """What may be said about the actor or the rewarder. Nobody dials them."""

    monitor_port: Port | None = None


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


class FederationFile(_Strict):
    """The file."""

    name: FolderName
    arms: list[Label] = Field(min_length=2)
    epsilon: float | None = None
    policy: OptionTable | None = None
    """How arms are chosen: a table with the policy's name and options. `epsilon` is short for epsilon-greedy."""
    privacy: OptionTable | None = None
    """What is promised over time: a table with the name of a mechanism and its options."""
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
    max_batch: int | None = None
    durable: bool = True
    """Whether state outlives the processes: without it, one role that ends takes the federation and its model along."""
    checkpoint_every: int | None = None
    party: list[PartyEntry] = Field(min_length=2)
    dealer: ServerEntry
    actor: ClientEntry = ClientEntry()
    rewarder: ClientEntry = ClientEntry()

    @classmethod
    def read(cls, path: Path) -> FederationFile:
        """The federation file in a file; whatever is wrong with it is one ConfigError."""
        text = _text(path)
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        try:
            federation_file = cls.model_validate(content)
        except ValidationError as error:
            raise ConfigError(_explained(path, text, error)) from None
        federation_file._check_policy(path, text)
        federation_file._check_privacy(path, text)
        try:
            federation_file._check_names()
            for member in federation_file.members:
                federation_file.kit_file(member).build_federation()
        except (ConfigError, ValidationError) as error:
            problem = error if isinstance(error, ConfigError) else _problem(error)
            raise ConfigError(f"{path}: {problem}") from None
        return federation_file

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
        own = self._own(member)
        options = {"stock", "spin_microseconds", "listen"}
        names = list(own.features) if isinstance(own, PartyEntry) else []
        return KitFile(
            name=self.name,
            role=member.role,
            number=member.number,
            federation=self._federation(),
            addresses={str(server): self._address(server) for server in self.members[: 1 + len(self.party)]},
            names=self._names(),
            arm_names=tuple(self.arms) if member == ACTOR else (),
            feature_names=tuple(names),
            missing_keys=tuple(party.missing_key for party in self.party),
            organisations=tuple(party.name for party in self.party),
            monitor_port=own.monitor_port or _FIRST_MONITOR_PORT[member.role] + member.number,
            **own.model_dump(include=options, exclude_none=True),
            **self.model_dump(include={"max_batch", "durable", "checkpoint_every"}, exclude_none=True),
        )

    def _own(self, member: Identity) -> ClientEntry:
        if member.role is Role.PARTY:
            return self.party[member.number]
        own: ClientEntry = getattr(self, member.role.value)
        return own

    def _address(self, member: Identity) -> Address:
        own = self._own(member)
        assert isinstance(own, ServerEntry)
        return Address(host=own.host, port=own.port)

    def _federation(self) -> KitFederation:
        numbers = {
            *("epsilon", "policy", "privacy", "fraction_bits", "max_interactions", "reciprocal_bits", "repair_every"),
            *("newton_iterations", "reward_slot", "default_reward"),
        }
        return KitFederation(
            suite=self.suite,
            arms=len(self.arms),
            features=tuple(len(party.features) for party in self.party),
            ridge=self.ridge,
            norms=tuple(party.norm for party in self.party),
            **self.model_dump(include=numbers, exclude_none=True),
        )

    def _names(self) -> str:
        """A digest of everything that has a name, in its order: the hello compares it."""
        parties = [text for party in self.party for text in (party.name, *party.features, "")]
        return sha256(hello_payload({"arms": self.arms, "parties": parties})).hexdigest()[:16]

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

    def _check_names(self) -> None:
        _refuse_twins("arms", self.arms)
        for number, party in enumerate(self.party):
            _refuse_twins(f"the features of party {number} ({party.name})", party.features)
        _refuse_twins("names of roles", [self.folder(member) for member in self.members] + ["authority"])
        servers = self.members[: 1 + len(self.party)]
        _refuse_twins("addresses", [f"{(at := self._address(server)).host}:{at.port}" for server in servers])


def _text(path: Path) -> str:
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
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{what}: {name!r} stands there twice; give each its own")


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
        case "extra_forbidden":
            return f"{field} is not a known key{_nearest(str(place[-1]), place)}"
        case "string_pattern_mismatch":
            return f"{field}: {_PATTERNS.get(str(problem['ctx']['pattern']), 'has letters that are not allowed')}"
        case _:
            return f"{field}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


_PATTERNS: Final = {
    r"^[a-z0-9][a-z0-9-]{0,31}$": "must be 1 to 32 small letters, digits and hyphens: it names a folder",
    r"^[^\x00-\x1f,\"]{1,64}$": "must be 1 to 64 letters, without commas, quotes and control characters",
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
    if len(place) > 1 and place[0] in ("party", "dealer", "actor", "rewarder", "policy", "privacy"):
        nth = place[1] if isinstance(place[1], int) else 0
        header = re.compile(rf"\s*\[\[?\s*{place[0]}\s*\]\]?")
        headers = [number for number, line in enumerate(lines) if header.match(line)]
        if nth >= len(headers):
            return None
        start, rest = headers[nth], list(place[1 + isinstance(place[1], int) :])
    keys = [part for part in rest if isinstance(part, str)]
    for number in range(start, len(lines)):
        if number > start and lines[number].lstrip().startswith("["):
            break
        if keys and re.match(rf"\s*\"?{re.escape(keys[0])}\"?\s*=", lines[number]):
            return number + 1
    return start + 1 if start else None
