"""What a role may ask of its store: sealed records by area and key, changed all or none, lasting once committed.

A record is a payload under an area (a name) and a key (bytes, in whose order records are read). Changes are made in
groups. A group that was committed is there after any crash; one that was not is not there at all. Every record carries
a seal, a BLAKE2b digest of area, key and payload: a record that does not match its seal is refused by name and never
returned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

SEAL_BYTES: Final = 16


class Put(NamedTuple):
    """Write a record, in the place of the one that has this key."""

    area: str
    key: bytes
    payload: bytes

    def __repr__(self) -> str:
        return f"Put({self.area}, {self.key.hex()}, {len(self.payload)} bytes)"


class Delete(NamedTuple):
    """Remove a record, if it is there."""

    area: str
    key: bytes


class DeleteFrom(NamedTuple):
    """Remove the record with this key and all of its area behind it."""

    area: str
    key: bytes


Change = Put | Delete | DeleteFrom


class Store(Protocol):
    """Records of one role. One writer; what is read is what was committed."""

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all of these changes, in this order, or none. They last once this returns. Raises `StoreError`."""

    def get(self, area: str, key: bytes) -> bytes | None:
        """The payload of a record, None if there is none."""

    def items(self, area: str, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys and payloads of an area in the order of their keys, from `first` on."""

    def close(self) -> None:
        """Let go of the store. What was committed stays."""


Carry = Callable[[Store, Store], None]
"""(the records, the copy that takes their place)."""


class Place(Protocol):
    """Where the records of one role lie, opened or not. Its text names it, without a password."""

    def open(self) -> Store:
        """The store, for one writer. Raises `StoreError` if another instance has it."""

    def read_record(self, area: str, key: bytes) -> bytes | None:
        """The payload of one record, None if there is none or no store. The store may be in use."""

    def export(self, path: Path) -> None:
        """Write a consistent copy of all records to a new file (0600), the same for all places. The store may be in
        use."""

    def restore(self, path: Path, carry: Carry | None = None) -> None:
        """Put a copy in the place of the records, which are kept beside it. The store must not be in use. `carry` takes
        over into the copy what must not be lost of the records."""


def seal(area: str, key: bytes, payload: bytes) -> bytes:
    """The digest that a record carries. Lengths are part of it, so that no byte can move from one field to another."""
    name = area.encode()
    head = len(name).to_bytes(4, "big") + name + len(key).to_bytes(4, "big") + key
    return hashlib.blake2b(head + payload, digest_size=SEAL_BYTES, person=b"hiddenarm record").digest()
