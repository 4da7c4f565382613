"""The durable state of a role, in the folder `state` of its kit: its store, the journal that writes it, whose it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from hiddenarm.net.hello import hello_payload
from hiddenarm.roles.client_records import ActorRecords, RewarderRecords
from hiddenarm.roles.kit import Kit
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.store.journal import DirectJournal, GroupJournal, Journal, Then
from hiddenarm.store.sqlite import SqliteStore

STATE_FOLDER = "state"


class State:
    """The store of a role, opened and locked until `close`. With `call`, which has a function called from the role's
    loop, it is written by a thread, in groups; without, at once."""

    def __init__(self, kit: Kit, call: Callable[[Then], None] | None = None) -> None:
        self._kit = kit
        self._store = SqliteStore(state_folder(kit))
        self._group = None if call is None else GroupJournal(self._store, call)
        self._journal: Journal = self._group or DirectJournal(self._store)

    def party(self) -> PartyRecords:
        kit = self._kit
        return PartyRecords(self._store, self._journal, kit.federation, kit.identity.number, owner_digest(kit))

    def actor(self) -> ActorRecords:
        return ActorRecords(self._store, self._journal, owner_digest(self._kit))

    def rewarder(self) -> RewarderRecords:
        return RewarderRecords(self._store, self._journal, owner_digest(self._kit))

    def close(self) -> None:
        """Write what was handed over, and let go."""
        if self._group is not None:
            self._group.close()
        self._store.close()


def state_folder(kit: Kit) -> Path:
    return kit.folder / STATE_FOLDER


def owner_digest(kit: Kit) -> bytes:
    """Names a role of a federation with its numbers: with others, its shares would mean something else."""
    return hashlib.blake2b(hello_payload(kit.terms) + str(kit.identity).encode(), digest_size=32).digest()
