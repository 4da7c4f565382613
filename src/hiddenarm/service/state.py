"""The state of a role: in memory; or durable, in the folder `state` of its kit or in PostgreSQL: its store, the journal
that writes it, whose it is.

`Owner` is whose state a store holds: which role of which federation, with which numbers. With others, its shares would
mean something else. The whole public configuration is kept, as canonical JSON, so that a difference can be named.
Earlier versions kept only a digest of it (`_DIGESTED`): where that is the digest of this kit, it is replaced. A field
that this version has and the state has not is taken to have its default.

A kit of a later version of the federation (`service.changes`) may use the state if the change is one that a model can
go on with. A party's state is that of the earlier version until it activates an epoch under the later one, which writes
both in one stroke: before that, nothing in it depends on the change, and another version may follow.

`recover`, `export` and `restore` are what an operator does with the lasting state of a role.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Final

from hiddenarm.bandit.changes import refused_changes
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies import EPSILON_GREEDY
from hiddenarm.errors import ConfigError, DamagedStoreError, HelloError, InputError, StoreError
from hiddenarm.net.hello import Value, differences, hello_payload, parse_hello
from hiddenarm.net.identity import Role
from hiddenarm.privacy.mechanisms import NO_MECHANISM
from hiddenarm.roles.client_records import ActorRecords, MemoryActorRecords, MemoryRewarderRecords, RewarderRecords
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.party_areas import PRIVACY, read_ledger
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.service.kit import Kit
from hiddenarm.service.logs import with_digests_explained
from hiddenarm.store.contract import Change, Place, Put, Store
from hiddenarm.store.copies import Folder, schema_at
from hiddenarm.store.journal import DirectJournal, GroupJournal, Journal, Then

OWNER_AREA: Final = "me"
OWNER_KEY: Final = b""
_DIGEST_BYTES: Final = 32
_DIGESTED: Final = (
    *("federation", "suite", "arms", "features", "epsilon", "ridge", "norms", "fraction_bits", "score_bound"),
    *("reciprocal_bits", "repair_every"),
)
"""The fields under the digest that earlier versions kept. The bound of scores was declared then; now it follows from
`max_interactions`."""
_PAPER_SUITE: Final = "paper, newton_iterations "
_OF_PAPER: Final[dict[str, Value]] = {"reciprocal_bits": 8, "repair_every": 10_000}
"""What earlier versions wrote for the paper's suite, besides `max_interactions`."""
_WITHOUT_DEFAULT: Final = frozenset(
    ("arms", "features", "policy", "privacy", "evaluation", "suite", "arm_features", "arm_columns")
)


@dataclass(frozen=True, slots=True)
class Owner:
    """A role as its kit describes it. `defaults` are those of the fields that have one."""

    role: str
    terms: Mapping[str, Value]
    defaults: Mapping[str, Value]
    earlier: Mapping[str, Value]
    """The fields of a kit that only earlier versions used."""
    kit_file: Path
    state: str
    """Where it is."""
    version: int = 1
    """Of the federation's file."""

    def claim(self, store: Store) -> list[Change]:
        """Take a new store, or one that is ours already; refuse any other, naming what differs. What is returned is to
        be written with the first epoch of a later version."""
        kept = store.get(OWNER_AREA, OWNER_KEY)
        later = False
        if kept is not None:
            self.check(kept)
            later = len(kept) != _DIGEST_BYTES and _version_in(_parsed(kept)) < self.version
        if kept == self._record:
            return []
        ours: list[Change] = [Put(OWNER_AREA, OWNER_KEY, self._record)]
        if later and self.role.startswith(Role.PARTY.value):
            return ours
        store.commit(ours)
        return []

    def check(self, kept: bytes) -> None:
        """Raise StoreError unless this record of a store names this role and configuration."""
        found = self._fields_of_digest(kept) if len(kept) == _DIGEST_BYTES else _parsed(kept)
        ours = {"role": self.role, **self.terms}
        found = _as_now(found)
        version = _version_in(found)
        found = {name: value for name, value in found.items() if name != "version"}
        assumed = {name: value for name, value in self.defaults.items() if name in ours and name not in found}
        if version > self.version:
            raise StoreError(
                f"{self.state} was used with version {version} of the federation, {self.kit_file} has version "
                f"{self.version}. Adopt the newest version: hiddenarm adopt {self.kit_file.parent} CHANGE"
            )
        if version < self.version:
            self._check_change({**assumed, **found}, ours)
            return
        if differing := differences(found | assumed, ours, self.state, str(self.kit_file)):
            raise StoreError(f"{with_digests_explained('; '.join(differing))}. {self._advice}")

    def _check_change(self, found: Mapping[str, Value], ours: Mapping[str, Value]) -> None:
        """Raise StoreError unless the state of an earlier version can be gone on with."""
        if refused := refused_changes(found, ours):
            raise StoreError(
                f"{self.state} cannot be used with version {self.version} of the federation: {'; '.join(refused)}. "
                "Have the authority sign a later version without that, and adopt it in all kits"
            )

    @property
    def _record(self) -> bytes:
        later = {"version": self.version} if self.version > 1 else {}
        return hello_payload({"role": self.role, **self.terms, **later})

    def _fields_of_digest(self, kept: bytes) -> dict[str, Value]:
        """What a store of an earlier version was made for, if its digest is that of this kit."""
        terms = {**self.terms, **self.earlier}
        digested: dict[str, Value] = {name: terms[name] for name in _DIGESTED if name in terms}
        if blake2b(hello_payload(digested) + self.role.encode(), digest_size=_DIGEST_BYTES).digest() != kept:
            raise StoreError(
                f"{self.state} was written by an earlier version for another role or configuration than that of "
                f"{self.kit_file}; one of these fields differs: role, {', '.join(_DIGESTED)}. {self._advice}"
            )
        return {"role": self.role, **{name: self.terms[name] for name in digested if name in self.terms}}

    @property
    def _advice(self) -> str:
        return (
            f"Put {self.kit_file.name} back as it was; or, if all members agreed on the change and to begin anew, move "
            f"{self.state} away at every one of them: model and decisions are then lost"
        )


def owner_of(kit: Kit, state: str) -> Owner:
    """The role of a kit, as the owner of the state in a place."""
    earlier: dict[str, Value] = {"score_bound": kit.file.federation.score_bound}
    if kit.federation.suite == "paper":
        earlier |= {"suite": f"paper, newton_iterations {kit.federation.newton_iterations}", **_OF_PAPER}
    defaults = _defaults(kit.federation)
    return Owner(str(kit.identity), kit.terms, defaults, earlier, kit.folder / "kit.json", state, kit.file.version)


def _defaults(federation: Federation) -> dict[str, Value]:
    """The fields that have a default, with the value that it has in this federation: some follow from other fields."""
    defaults: dict[str, Value] = {"policy": EPSILON_GREEDY, "privacy": NO_MECHANISM}
    given = {"suite": federation.suite, "policy": federation.policy, "privacy": federation.privacy}
    options = federation.policy.options.keys() | federation.privacy.options.keys()
    for name in federation.terms.keys() - options - _WITHOUT_DEFAULT:
        others = {field.name: getattr(federation, field.name) for field in fields(Federation) if field.name != name}
        try:
            defaults[name] = getattr(Federation(**{**others, **given}), name)
        except ConfigError:  # it does not go with the other numbers, so it cannot have been meant
            continue
    return defaults


def _as_now(found: Mapping[str, Value]) -> dict[str, Value]:
    """A record as this version would have written it: earlier ones named an option of the paper's suite in its name,
    and wrote numbers that it does not have."""
    suite = str(found.get("suite", ""))
    if not suite.startswith(_PAPER_SUITE):
        return dict(found)
    kept = {name: value for name, value in found.items() if name not in {*_OF_PAPER, "max_interactions"}}
    return {**kept, "suite": "paper", "newton_iterations": int(suite.removeprefix(_PAPER_SUITE))}


def _version_in(found: Mapping[str, Value]) -> int:
    """The version of the federation's file in a record; the first one is not written."""
    version = found.get("version", 1)
    return version if isinstance(version, int) else 1


def _parsed(kept: bytes) -> dict[str, Value]:
    try:
        return parse_hello(kept)
    except HelloError:
        raise DamagedStoreError("the record of whose state this is cannot be read") from None


STATE_FOLDER = "state"


class State:
    """The store of a role, opened and locked until `close`. With `call`, which has a function called from the role's
    loop, it is written by a thread, in groups; without, at once."""

    def __init__(self, kit: Kit, call: Callable[[Then], None] | None = None) -> None:
        self._kit = kit
        self._store, self._with_activation = _owned_store(kit)
        self._group = None if call is None else GroupJournal(self._store, call)
        self._journal: Journal = self._group or DirectJournal(self._store)

    def party(self) -> PartyRecords:
        kit = self._kit
        return PartyRecords(
            self._store, self._journal, kit.federation, kit.identity.number, with_activation=self._with_activation
        )

    def actor(self) -> ActorRecords:
        return ActorRecords(self._store, self._journal)

    def rewarder(self) -> RewarderRecords:
        return RewarderRecords(self._store, self._journal)

    def close(self) -> None:
        """Write what was handed over, and let go."""
        if self._group is not None:
            self._group.close()
        self._store.close()


class MemoryState:
    """The state of a role that ends with it, or of the dealer, which keeps nothing."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def party(self) -> MemoryPartyRecords:
        return MemoryPartyRecords(self._kit.federation, self._kit.identity.number)

    def actor(self) -> MemoryActorRecords:
        return MemoryActorRecords()

    def rewarder(self) -> MemoryRewarderRecords:
        return MemoryRewarderRecords()

    def close(self) -> None:
        return


def open_state(kit: Kit, call: Callable[[Then], None]) -> State | MemoryState:
    """The state that a kit asks for."""
    return State(kit, call) if keeps_state(kit) else MemoryState(kit)


def keeps_state(kit: Kit) -> bool:
    """Whether the state of a role lasts. The dealer has none."""
    return kit.file.durable and kit.identity.role is not Role.DEALER


def state_place(kit: Kit) -> Place:
    """Where the lasting state of a kit is: in its own folder, or in the schema of its role at the server that it
    names."""
    folder = kit.folder / STATE_FOLDER
    if kit.file.store is None:
        return Folder(folder)
    return schema_at(kit.file.store, schema_name(kit), folder.with_name(f"{STATE_FOLDER}.import"))


def schema_name(kit: Kit) -> str:
    """The schema of a role: different for all roles of all federations, as far as these have different names."""
    name, role = kit.file.name, str(kit.identity).replace(" ", "_")
    plain = re.fullmatch("[a-z0-9-]{1,32}", name) is not None
    short = name.replace("-", "_") if plain else blake2b(name.encode(), digest_size=16).hexdigest()
    return f"hiddenarm_{short}_{role}"


def check_state(kit: Kit) -> bool:
    """Raise StoreError if there is state that is not that of this kit, which may be in use; whether there is any."""
    place = state_place(kit)
    kept = place.read_record(OWNER_AREA, OWNER_KEY)
    if kept is not None:
        owner_of(kit, str(place)).check(kept)
    return kept is not None


def _owned_store(kit: Kit) -> tuple[Store, list[Change]]:
    """The store of a role, and what is to be written with its next epoch."""
    place = state_place(kit)
    store = place.open()
    try:
        return store, owner_of(kit, str(place)).claim(store)
    except BaseException:
        store.close()
        raise


_REWARDER_AGREES: Final = """\
The rewarder agrees to go on behind the lessons that the parties hold, when it is next started.
Rewards of all earlier decisions are refused from then on."""
_PARTY_AGREES: Final = """\
{party} agrees to go back to what all parties have in common, when it is next started. It holds {lessons} lessons.
The epoch opens when all parties agree. The rewarder teaches again what is lost; where a party has lost the decision
itself, its reward is refused."""


def recover(folder: Path) -> str:
    """Consent to going on after a loss of state. The role must be stopped; returns what was agreed."""
    kit = _durable(folder)
    state = State(kit)
    try:
        match kit.identity.role:
            case Role.PARTY:
                records = state.party()
                records.consent()
                return _PARTY_AGREES.format(party=kit.organisations.of(kit.identity), lessons=records.committed.lessons)
            case Role.REWARDER:
                state.rewarder().consent()
                return _REWARDER_AGREES
            case _:
                raise InputError(f"the {kit.identity} need not agree: others do not rely on what it keeps")
    finally:
        state.close()


def export(folder: Path, path: Path) -> None:
    """Write a copy of a role's state; it may be running."""
    state_place(_durable(folder)).export(path)


def restore(folder: Path, path: Path) -> None:
    """Put a copy of a role's state in place; it must be stopped. What a party has counted as released is not taken
    back: the larger counts of both stay."""
    kit = _durable(folder)
    state_place(kit).restore(path, _with_ledger_of if kit.identity.role is Role.PARTY else None)


def _with_ledger_of(former: Store, copy: Store) -> None:
    """Have a copy of a party's state count at least what the state before it did."""
    ledger = read_ledger(former).merged(read_ledger(copy))
    if ledger.count or ledger.refreshes or ledger.opened:
        copy.commit([Put(PRIVACY, b"", ledger.encode())])


def _durable(folder: Path) -> Kit:
    kit = Kit.read(folder)
    if not keeps_state(kit):
        raise InputError(f"the {kit.identity} of this kit keeps no state")
    return kit
