"""The state of a role: in memory; or durable, in the folder `state` of its kit: its store, the journal that writes it,
whose it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hiddenarm.net.identity import Role
from hiddenarm.roles.client_records import (
    ActorRecords,
    MemoryActorRecords,
    MemoryRewarderRecords,
    RewarderRecords,
)
from hiddenarm.roles.kit import Kit
from hiddenarm.roles.owner import OWNER_AREA, OWNER_KEY, owner_of
from hiddenarm.roles.party_records import MemoryPartyRecords, PartyRecords
from hiddenarm.store.journal import DirectJournal, GroupJournal, Journal, Then
from hiddenarm.store.sqlite import SqliteStore, read_record

STATE_FOLDER = "state"


class State:
    """The store of a role, opened and locked until `close`. With `call`, which has a function called from the role's
    loop, it is written by a thread, in groups; without, at once."""

    def __init__(self, kit: Kit, call: Callable[[Then], None] | None = None) -> None:
        self._kit = kit
        self._store = _owned_store(kit)
        self._group = None if call is None else GroupJournal(self._store, call)
        self._journal: Journal = self._group or DirectJournal(self._store)

    def party(self) -> PartyRecords:
        kit = self._kit
        return PartyRecords(self._store, self._journal, kit.federation, kit.identity.number)

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
    keeps = kit.file.durable and kit.identity.role is not Role.DEALER
    return State(kit, call) if keeps else MemoryState(kit)


def state_folder(kit: Kit) -> Path:
    return kit.folder / STATE_FOLDER


def check_state(kit: Kit) -> bool:
    """Raise StoreError if there is state that is not that of this kit, which may be in use; whether there is any."""
    folder = state_folder(kit)
    kept = read_record(folder, OWNER_AREA, OWNER_KEY)
    if kept is not None:
        owner_of(kit, folder).check(kept)
    return kept is not None


def _owned_store(kit: Kit) -> SqliteStore:
    folder = state_folder(kit)
    store = SqliteStore(folder)
    try:
        owner_of(kit, folder).claim(store)
    except BaseException:
        store.close()
        raise
    return store
