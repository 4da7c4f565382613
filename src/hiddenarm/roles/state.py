"""The durable state of a role, in the folder `state` of its kit: its store, the journal that writes it, whose it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hiddenarm.roles.client_records import ActorRecords, RewarderRecords
from hiddenarm.roles.kit import Kit
from hiddenarm.roles.owner import OWNER_AREA, OWNER_KEY, owner_of
from hiddenarm.roles.party_records import PartyRecords
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
