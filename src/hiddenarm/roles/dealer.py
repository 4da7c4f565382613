"""The dealer, as a state machine without I/O: seeds to everybody, corrections to the last party on demand.

It keeps nothing, so nothing can be dealt twice: each attempt to open an epoch has a key of its own, and a role gets one
seed in it. Where the loss of a peer ends the federation, one attempt at most becomes an epoch, and a role that comes
back is refused: so there the key may be a fixed one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hiddenarm.bandit.catalogue import ProgramId, is_window, program_text
from hiddenarm.bandit.decisions import new_epoch
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FrameError, PeerLost
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.epochs.attempts import Attempts, PeerLoss
from hiddenarm.roles.health import Health
from hiddenarm.roles.messages import CLIENTS, DEALER, Kind, misuse, read_decided, read_want, run_frame, seed_payload
from hiddenarm.roles.runs import Send
from hiddenarm.roles.stock import BATCHES_IN_STOCK, batch_steps

MAX_BATCH = 1024
"""Most steps dealt at one request."""


@dataclass(frozen=True, slots=True, repr=False)
class _Bench:
    """Where one program is dealt, and how many steps of it at a time."""

    dealer: ProgramDealer
    limit: int


class DealerEpoch:
    """What is dealt from one key: seeds, and corrections for the last party. `decided_before` is how many decisions the
    epochs before made: a policy may explore by the position of a decision among all."""

    def __init__(self, federation: Federation, key: bytes, name: str, send: Send, max_batch: int = 256) -> None:
        self.decided_before = 0
        self._federation = federation
        self._send = send
        self._name = name
        self._seeds = Seeds(key)
        self._last = Identity(Role.PARTY, federation.parties - 1)
        self._max_batch = max_batch
        self._dealers: dict[ProgramId, _Bench] = {}

    def seed_of(self, identity: Identity) -> bytes:
        """A role's seed, with the epoch's name."""
        return seed_payload(self._name, *self._keys_of(identity))

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
        if program.count > self._max_batch and not is_window(self._federation, program):
            raise FrameError(f"a program for {program.count} at once was asked for; the limit is {self._max_batch}")
        if program not in self._dealers:
            exploration = self._federation.policy.exploration(self.decided_before)
            text = program_text(self._federation, program, exploration)
            layout = layout_of(text, self._federation.parties, 1)
            dealer = ProgramDealer(program.label, text, layout, self._seeds, 1)
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


class Dealer:
    """Deals for as many epochs as the federation has. `make_key` gives the key of an attempt, `make_name` its name."""

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        peer_loss: PeerLoss,
        max_batch: int = 256,
        make_key: Callable[[], bytes] = fresh_key,
        make_name: Callable[[], str] = new_epoch,
    ) -> None:
        self.finished = False
        self._federation = federation
        self._send = send
        self._max_batch = max_batch
        self._make_key = make_key
        self._make_name = make_name
        self._attempts = Attempts(DEALER, federation.parties, peer_loss, send, self._begin, self._say)
        self._met: set[Identity] = set()
        self._epoch: DealerEpoch | None = None

    @property
    def active(self) -> bool:
        """Whether everybody has the seeds of one attempt."""
        return self._attempts.complete

    @property
    def absent(self) -> list[Identity]:
        """Who is awaited."""
        return self._attempts.missing

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done: it deals at once."""
        return False

    def health(self) -> Health:
        """How it is doing."""
        return Health()

    def expects(self, identity: Identity) -> bool:
        return self._attempts.expects(identity)

    def on_ready(self, identity: Identity) -> None:
        if identity in self._met and not self._attempts.lasting:
            raise PeerLost(f"{identity} came back and would need a second seed: start a new epoch")
        self._met.add(identity)
        self._attempts.on_ready(identity)

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        """A party that says goodbye ends a federation in peace."""
        if graceful and not self._attempts.lasting and identity not in CLIENTS:
            self._attempts.do_without(identity)
            self.finished = True
        else:
            self._attempts.on_lost(identity, reason)

    def on_idle(self) -> None:
        return

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is Kind.OPEN:
            self._attempts.on_open(identity, frame)
            self._note_decisions(identity, frame)
        elif self._epoch is not None and self._attempts.is_current(identity):
            self._epoch.on_frame(identity, frame)

    def _begin(self) -> None:
        key, name = self._make_key(), self._make_name()
        self._epoch = DealerEpoch(self._federation, key, name, self._send, self._max_batch)

    def _note_decisions(self, identity: Identity, frame: Frame) -> None:
        """The last party, which orders, says before it does how many decisions it holds."""
        if identity == Identity(Role.PARTY, self._federation.parties - 1) and self._attempts.is_current(identity):
            assert self._epoch is not None
            self._epoch.decided_before = read_decided(frame.payload)

    def _say(self, identity: Identity) -> bytes:
        assert self._epoch is not None
        return self._epoch.seed_of(identity)
