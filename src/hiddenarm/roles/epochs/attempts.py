"""How all roles come to the same attempt to open an epoch, without a leader.

    1. a role counts attempts; a link that is made or lost moves it to the next one
    2. moving to attempt n, it ends what it was doing and says OPEN n, with what it has to say, to every peer it is
       connected to; a peer that is connected later hears of the attempt that this begins
    3. whoever hears OPEN n with n beyond its own attempt moves to n
    4. an attempt is complete at a role when all its members are connected and have said OPEN with its number

Numbers only grow, so this ends when links stop changing. Links keep their order: what a peer sends before its OPEN n
was meant for an earlier attempt, and `is_current` says so; what it sends after it, for this one.

Who is a member follows from what the loss of a peer ends (`PeerLoss`). Where that is the epoch, all roles are. Where it
is the federation, parties and dealer are, and there is one epoch. Then clients are guests: they hear of attempts, also
of the one that is under way when they come, say nothing, and begin when all parties are active.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from hiddenarm.errors import PeerLost
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.messages import CLIENTS, DEALER, Kind, misuse
from hiddenarm.roles.runs import Send

MAX_ATTEMPTS = 2**62
MOST_AHEAD = 2**32
"""By how many attempts a client may be ahead: others follow it and count on, and must not come to where they cannot."""


class PeerLoss(Enum):
    """What ends when a peer is lost. It is the same at all roles, and follows from `durable` in their kits."""

    ENDS_FEDERATION = "federation"
    """With a party or the dealer; a client that is lost ends nothing, and cannot come back. State is in memory."""
    ENDS_EPOCH = "epoch"
    """With any role, though an open epoch goes on without the dealer; then the next epoch is opened. State lasts."""

    @classmethod
    def of(cls, durable: bool) -> PeerLoss:
        return cls.ENDS_EPOCH if durable else cls.ENDS_FEDERATION


class Attempts:
    """The attempts of the role `me`. `begin` is called when it has moved on, before it tells its peers; `say` gives
    what it tells each of them."""

    def __init__(
        self,
        me: Identity,
        parties: int,
        peer_loss: PeerLoss,
        send: Send,
        begin: Callable[[], None],
        say: Callable[[Identity], bytes],
    ) -> None:
        self.number = 0
        self.present: set[Identity] = set()
        self.said: dict[Identity, bytes] = {}
        self.lasting = peer_loss is PeerLoss.ENDS_EPOCH
        """Whether there are more epochs than one."""
        servers = {DEALER, *(Identity(Role.PARTY, number) for number in range(parties))} - {me}
        clients = frozenset() if me in CLIENTS else frozenset(CLIENTS)
        self._guests = frozenset() if self.lasting else clients
        self._members = frozenset(servers | clients) - self._guests
        self._follows = me in CLIENTS and not self.lasting
        self._send = send
        self._begin = begin
        self._say = say

    @property
    def complete(self) -> bool:
        """Whether all members have said what they have to say in this attempt."""
        return self._members == self.said.keys()

    @property
    def missing(self) -> list[Identity]:
        """The members that are not connected."""
        return sorted(self._members - self.present)

    def expects(self, peer: Identity) -> bool:
        return peer in self._members or peer in self._guests

    def is_current(self, peer: Identity) -> bool:
        """Whether what this peer sends now is meant for this attempt; of a guest, everything is."""
        return peer in self.said or peer in self._guests

    def on_ready(self, peer: Identity) -> None:
        self.present.add(peer)
        if peer in self._guests:
            if self.number:
                self._tell(peer)
        elif not self._follows:
            self._move_to(self.number + 1)

    def on_lost(self, peer: Identity, reason: str, graceful: bool = False) -> None:
        """A peer is gone, and what is under way with it; nothing is without a guest."""
        self.do_without(peer)
        if peer in self._guests:
            return
        if not self.lasting:
            raise PeerLost(f"{peer} {'has left' if graceful else 'is gone'}: {reason}")
        self._move_to(self.number + 1)

    def do_without(self, peer: Identity) -> None:
        """A peer is gone, and what is under way goes on."""
        self.present.discard(peer)
        self.said.pop(peer, None)

    def on_open(self, peer: Identity, frame: Frame) -> None:
        if peer in self._guests:
            raise misuse(peer, f"{peer} may not send {frame.kind.name}")
        too_far = peer in CLIENTS and frame.step > self.number + MOST_AHEAD
        if too_far or not 0 < frame.step < MAX_ATTEMPTS:
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
        for peer in () if self._follows else sorted(self.present):
            self._tell(peer)

    def _tell(self, peer: Identity) -> None:
        self._send(peer, Frame(Kind.OPEN, step=self.number, payload=self._say(peer)))
