"""Counts what goes over the links, so that the declared rounds and bytes can be compared with the real ones.

Bytes are those of frames, header included; what TLS and TCP add to them is not counted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum

from hiddenarm.net.frames import HEADER_BYTES, Frame
from hiddenarm.net.identity import Identity

Counts = defaultdict[tuple[IntEnum, int], list[int]]  # (kind, program) -> [frames, bytes]


def _no_counts() -> Counts:
    return defaultdict(lambda: [0, 0])


@dataclass(slots=True)
class LinkMeter:
    """What was sent to and received from one peer."""

    sent: Counts = field(default_factory=_no_counts)
    received: Counts = field(default_factory=_no_counts)

    def count_sent(self, frame: Frame) -> None:
        """One more frame left."""
        entry = self.sent[frame[:2]]
        entry[0] += 1
        entry[1] += HEADER_BYTES + len(frame[4])

    def count_received(self, frame: Frame) -> None:
        """One more frame arrived whole."""
        entry = self.received[frame[:2]]
        entry[0] += 1
        entry[1] += HEADER_BYTES + len(frame[4])

    @property
    def frames_received(self) -> int:
        """All frames that arrived."""
        return sum(frames for frames, _ in self.received.values())


class Meter:
    """The links of one role, one meter each. A peer that comes back goes on counting where it was."""

    def __init__(self) -> None:
        self._links: dict[Identity, LinkMeter] = {}

    def link(self, peer: Identity) -> LinkMeter:
        """The meter on the link to `peer`."""
        return self._links.setdefault(peer, LinkMeter())

    def most_frames_sent(self, kind: IntEnum, program: int) -> int:
        """Frames of a kind and a program to the peer that was sent most of them."""
        return max((self.frames_sent(peer, kind, program) for peer in self._links), default=0)

    def frames_sent(self, peer: Identity | None = None, kind: IntEnum | None = None, program: int | None = None) -> int:
        """Frames sent; None stands for all."""
        return self._total("sent", 0, peer, kind, program)

    def frames_received(
        self, peer: Identity | None = None, kind: IntEnum | None = None, program: int | None = None
    ) -> int:
        """Frames received; None stands for all."""
        return self._total("received", 0, peer, kind, program)

    def bytes_sent(self, peer: Identity | None = None, kind: IntEnum | None = None, program: int | None = None) -> int:
        """Bytes sent; None stands for all."""
        return self._total("sent", 1, peer, kind, program)

    def bytes_received(
        self, peer: Identity | None = None, kind: IntEnum | None = None, program: int | None = None
    ) -> int:
        """Bytes received; None stands for all."""
        return self._total("received", 1, peer, kind, program)

    def as_dict(self) -> dict[str, list[dict[str, str | int]]]:
        """Everything counted, ready for JSON: per direction a list of rows."""
        return {"sent": self._rows("sent"), "received": self._rows("received")}

    def _total(
        self, direction: str, what: int, peer: Identity | None, kind: IntEnum | None, program: int | None
    ) -> int:
        return sum(
            counts[what]
            for link_peer, link in self._links.items()
            if peer is None or link_peer == peer
            for (row_kind, row_program), counts in _counts(link, direction).items()
            if (kind is None or row_kind == kind) and (program is None or row_program == program)
        )

    def _rows(self, direction: str) -> list[dict[str, str | int]]:
        return [
            {"peer": str(peer), "kind": kind.name, "program": program, "frames": frames, "bytes": size}
            for peer, link in sorted(self._links.items())
            for (kind, program), (frames, size) in sorted(_counts(link, direction).items())
        ]


def _counts(link: LinkMeter, direction: str) -> Counts:
    return link.sent if direction == "sent" else link.received
