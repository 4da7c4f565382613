"""A store in memory: the contract without a disk, for tests and simulations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hiddenarm.store.contract import Change, Delete, DeleteFrom, Put


class MemoryStore:
    """Records in dictionaries. They last as long as the object."""

    def __init__(self) -> None:
        self._areas: dict[str, dict[bytes, bytes]] = {}

    def commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            records = self._areas.setdefault(change.area, {})
            match change:
                case Put(_, key, payload):
                    records[key] = bytes(payload)
                case Delete(_, key):
                    records.pop(key, None)
                case DeleteFrom(_, first):
                    for key in [key for key in records if key >= first]:
                        del records[key]

    def get(self, area: str, key: bytes) -> bytes | None:
        return self._areas.get(area, {}).get(key)

    def items(self, area: str, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        records = self._areas.get(area, {})
        yield from sorted((key, payload) for key, payload in records.items() if key >= first)

    def close(self) -> None:
        return

    def copy(self) -> MemoryStore:
        """The same records, apart from now on: a backup, or a clone."""
        other = MemoryStore()
        other._areas = {area: dict(records) for area, records in self._areas.items()}
        return other
