"""How all roles come to the same attempt to open an epoch, without a leader.

    1. a role counts attempts; a link that is made or lost moves it to the next one
    2. moving to attempt n, it ends what it was doing and says OPEN n, with what it has to say, to every peer it is
       connected to; a peer that is connected later hears of the attempt that this begins
    3. whoever hears OPEN n with n beyond its own attempt moves to n
    4. an attempt is complete at a role when all its peers are connected and have said OPEN with its number

Numbers only grow, so this ends when links stop changing. Links keep their order: what a peer sends before its OPEN n
was meant for an earlier attempt, and `is_current` says so; what it sends after it, for this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity
from hiddenarm.roles.messages import misuse
from hiddenarm.roles.runs import Send

MAX_ATTEMPTS = 2**62


class Attempts:
    """The attempts of one role. `begin` is called when it has moved on, before it tells its peers; `say` gives what it
    tells each of them."""

    def __init__(
        self, peers: Collection[Identity], send: Send, begin: Callable[[], None], say: Callable[[Identity], bytes]
    ) -> None:
        self.number = 0
        self.present: set[Identity] = set()
        self.said: dict[Identity, bytes] = {}
        self._peers = frozenset(peers)
        self._send = send
        self._begin = begin
        self._say = say

    @property
    def complete(self) -> bool:
        """Whether all peers have said what they have to say in this attempt."""
        return self._peers == self.said.keys()

    @property
    def missing(self) -> list[Identity]:
        """The peers that are not connected."""
        return sorted(self._peers - self.present)

    def is_current(self, peer: Identity) -> bool:
        """Whether what this peer sends now is meant for this attempt."""
        return peer in self.said

    def on_ready(self, peer: Identity) -> None:
        self.present.add(peer)
        self._move_to(self.number + 1)

    def on_lost(self, peer: Identity) -> None:
        self.do_without(peer)
        self._move_to(self.number + 1)

    def do_without(self, peer: Identity) -> None:
        """A peer is gone, and what is under way goes on."""
        self.present.discard(peer)
        self.said.pop(peer, None)

    def on_open(self, peer: Identity, frame: Frame) -> None:
        if not 0 < frame.step < MAX_ATTEMPTS:
            raise misuse(peer, f"{peer} opened attempt {frame.step}, which cannot be")
        if frame.step > self.number:
            self._move_to(frame.step)
        if frame.step == self.number:
            if peer in self.said:
                raise misuse(peer, f"{peer} opened attempt {frame.step} twice")
            self.said[peer] = frame.payload

    def _move_to(self, number: int) -> None:
        self.number = number
        self.said.clear()
        self._begin()
        for peer in sorted(self.present):
            self._send(peer, Frame(Kind.OPEN, step=number, payload=self._say(peer)))
