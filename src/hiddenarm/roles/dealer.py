"""The dealer, as a state machine without I/O: seeds to everybody, corrections to the last party on demand."""

from __future__ import annotations

import numpy as np

from hiddenarm.bandit.catalogue import program_texts
from hiddenarm.bandit.coins import exploration_thresholds
from hiddenarm.bandit.decisions import new_epoch
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FrameError, PeerLost
from hiddenarm.mpc.dealing import ProgramDealer, trace
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.messages import ACTOR, PROGRAM_NUMBERS, REWARDER, read_want, seed_frame
from hiddenarm.roles.party import Send
from hiddenarm.roles.stock import BATCHES_IN_STOCK, batch_steps

MAX_BATCH = 1024
"""Most steps dealt at one request."""


class Dealer:
    """Deals one epoch. Every start is a new epoch: a dealer keeps nothing that could be dealt twice."""

    def __init__(self, federation: Federation, epoch_key: bytes, send: Send) -> None:
        self.finished = False
        self._send = send
        self._epoch = new_epoch()
        self._seeds = Seeds(epoch_key)
        self._seeded: set[Identity] = set()
        self._parties = {Identity(Role.PARTY, number) for number in range(federation.parties)}
        self._last = Identity(Role.PARTY, federation.parties - 1)
        texts = program_texts(federation, exploration_thresholds(federation.epsilon))
        layouts = {name: trace(text, federation.parties, 1) for name, text in texts.items()}
        self._limits = {name: batch_steps(layout, MAX_BATCH * BATCHES_IN_STOCK) for name, layout in layouts.items()}
        self._dealers = {
            name: ProgramDealer(name, texts[name], layout, self._seeds, 1) for name, layout in layouts.items()
        }

    def expects(self, identity: Identity) -> bool:
        return identity in self._parties or identity in (ACTOR, REWARDER)

    def on_ready(self, identity: Identity) -> None:
        """Every role gets its own seed, once an epoch."""
        if identity in self._seeded:
            raise PeerLost(f"{identity} came back and would need a second seed: start a new epoch")
        self._seeded.add(identity)
        self._send(identity, seed_frame(self._epoch, *self._keys_of(identity)))

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        if not graceful:
            raise PeerLost(f"{identity} is gone: {reason}")
        if identity in self._parties:
            self.finished = True

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is not Kind.WANT or identity != self._last:
            raise FrameError(f"{identity} may not send {frame.kind.name}")
        name, first, count = read_want(frame)
        limit = self._limits[name]
        if not 1 <= count <= limit:
            raise FrameError(f"{identity} asked for {count} steps at once; the limit is {limit}")
        rows = self._dealers[name].deal(first, count)
        payload = np.ascontiguousarray(rows, "<u8").tobytes()
        self._send(identity, Frame(Kind.CORRECTIONS, PROGRAM_NUMBERS[name], 0, first, payload))

    def _keys_of(self, identity: Identity) -> tuple[bytes, ...]:
        match identity.role:
            case Role.ACTOR:
                return self._seeds.actor(), self._seeds.decision_ids()
            case Role.REWARDER:
                return self._seeds.rewarder(), self._seeds.decision_ids()
            case _:
                return (self._seeds.party(identity.number),)
