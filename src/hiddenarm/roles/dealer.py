"""The dealer, as a state machine without I/O: seeds to everybody, corrections to the last party on demand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiddenarm.bandit.catalogue import ProgramId, program_text
from hiddenarm.bandit.decisions import new_epoch
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FrameError, PeerLost
from hiddenarm.mpc.dealing import ProgramDealer, trace
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.messages import ACTOR, REWARDER, misuse, read_want, run_frame, seed_frame
from hiddenarm.roles.runs import Send
from hiddenarm.roles.stock import BATCHES_IN_STOCK, batch_steps
from hiddenarm.roles.vitals import Vitals

MAX_BATCH = 1024
"""Most steps dealt at one request."""


@dataclass(frozen=True, slots=True, repr=False)
class _Bench:
    """Where one program is dealt, and how many steps of it at a time."""

    dealer: ProgramDealer
    limit: int


class Dealer:
    """Deals one epoch. Every start is a new epoch: a dealer keeps nothing that could be dealt twice. `decided_before`
    is how many decisions the epochs before made: a policy may explore by the position of a decision among all."""

    def __init__(
        self,
        federation: Federation,
        epoch_key: bytes,
        send: Send,
        *,
        max_batch: int = 256,
        name: str | None = None,
        decided_before: int = 0,
    ) -> None:
        self.finished = False
        self._send = send
        self._epoch = name or new_epoch()
        self._seeds = Seeds(epoch_key)
        self._seeded: set[Identity] = set()
        self._parties = {Identity(Role.PARTY, number) for number in range(federation.parties)}
        self._last = Identity(Role.PARTY, federation.parties - 1)
        self._federation = federation
        self._exploration = federation.policy.exploration(decided_before)
        self._max_batch = max_batch
        self._dealers: dict[ProgramId, _Bench] = {}

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done: it deals at once."""
        return False

    def vitals(self) -> Vitals:
        """How it is doing."""
        return Vitals()

    def expects(self, identity: Identity) -> bool:
        return identity in self._parties or identity in (ACTOR, REWARDER)

    def on_ready(self, identity: Identity) -> None:
        """Every role gets its own seed, once an epoch."""
        if identity in self._seeded:
            raise PeerLost(f"{identity} came back and would need a second seed: start a new epoch")
        self._seeded.add(identity)
        self._send(identity, self.seed_of(identity))

    def seed_of(self, identity: Identity) -> Frame:
        """A role's seed, with the epoch's name."""
        return seed_frame(self._epoch, *self._keys_of(identity))

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        if not graceful and identity in self._parties:
            raise PeerLost(f"{identity} is gone: {reason}")
        if graceful and identity in self._parties:
            self.finished = True

    def on_idle(self) -> None:
        return

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is not Kind.WANT or identity != self._last:
            raise misuse(identity, f"{identity} may not send {frame.kind.name}")
        program, first, count = read_want(frame)
        bench = self._bench(program)
        if not 1 <= count <= bench.limit:
            raise FrameError(f"{identity} asked for {count} steps at once; the limit is {bench.limit}")
        payload = np.ascontiguousarray(bench.dealer.deal(first, count), "<u8").tobytes()
        self._send(identity, run_frame(Kind.CORRECTIONS, program, first, payload=payload))

    def _bench(self, program: ProgramId) -> _Bench:
        """The dealer of a program; set up when it is first asked for."""
        if program.count > self._max_batch:
            raise FrameError(f"a program for {program.count} at once was asked for; the limit is {self._max_batch}")
        if program not in self._dealers:
            text = program_text(self._federation, program, self._exploration)
            layout = trace(text, self._federation.parties, 1)
            dealer = ProgramDealer(program.label, text, layout, self._seeds, 1, rewarded=program.rewarded_label)
            self._dealers[program] = _Bench(dealer, batch_steps(layout, MAX_BATCH * BATCHES_IN_STOCK))
        return self._dealers[program]

    def _keys_of(self, identity: Identity) -> tuple[bytes, ...]:
        match identity.role:
            case Role.ACTOR:
                return self._seeds.actor(), self._seeds.decision_ids()
            case Role.REWARDER:
                return self._seeds.rewarder(), self._seeds.decision_ids()
            case _:
                return (self._seeds.party(identity.number),)
