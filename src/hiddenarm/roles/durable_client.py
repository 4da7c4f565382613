"""What a lasting actor and a lasting rewarder have in common: attempts, and an epoch once all parties are active."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FrameError, PeerError
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.logs import get_logger
from hiddenarm.roles.attempts import Attempts
from hiddenarm.roles.messages import DEALER
from hiddenarm.roles.openings import Plan
from hiddenarm.roles.runs import Send
from hiddenarm.roles.vitals import Vitals

RECONNECT_SECONDS = 1.0
START_SECONDS = 30.0
"""How long a role that is not there may be expected back at any moment: after an epoch, and before the first one."""
MAX_REQUEST_BYTES = 128
"""The longest name of a request."""


class DurableClient(ABC):
    """A role that asks the parties, over all epochs. `name_of` says what its errors call a party."""

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        max_batch: int = 256,
        name_of: Callable[[Identity], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.federation = federation
        self.parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self.log = get_logger("hiddenarm.client")
        self._send = send
        self._max_batch = max_batch
        self._party_name = name_of
        self._attempts = Attempts((*self.parties, DEALER), send, self._begin, self._say)
        self._plans: dict[Identity, Plan] = {}
        self._active = self._completed = False
        self._clock = clock
        self._was_active = False
        self._absent_since: float | None = clock()

    @property
    def ready(self) -> bool:
        """Whether an epoch is open."""
        return self._active

    @property
    def missing(self) -> list[Identity]:
        """Who is awaited."""
        return self._attempts.missing

    @property
    def absent(self) -> list[Identity]:
        """Who keeps an epoch from being opened: not connected here, or not to a party that has said so."""
        if self._active:
            return []
        said = self._attempts.said
        told = [peer for party in self.parties if party in said for peer in self._missing_at(said[party])]
        return sorted({*self.missing, *told})

    @property
    def gone(self) -> list[Identity]:
        """Who is absent for longer than a connection takes to be made again; or, before the first epoch of this
        process, than it takes all roles to be started."""
        if self._absent_since is None or self._clock() - self._absent_since < self._patience:
            return []
        return self.absent

    def doubt_absence(self) -> None:
        """The links were not served for a while: give whoever was gone time for one more connection."""
        if self._absent_since is not None:
            self._absent_since = max(self._absent_since, self._clock() - self._patience + RECONNECT_SECONDS)

    def vitals(self) -> Vitals:
        """How it is doing."""
        return Vitals()

    def expects(self, identity: Identity) -> bool:
        return identity == DEALER or identity in self.parties

    def on_ready(self, identity: Identity) -> None:
        self._attempts.on_ready(identity)
        self._note_absence()

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        if identity == DEALER and self._active:
            self._attempts.do_without(DEALER)
        else:
            self._attempts.on_lost(identity)
            self._note_absence()

    def on_idle(self) -> None:
        return

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is Kind.OPEN:
            self._attempts.on_open(identity, frame)
            self._go_on()
            self._note_absence()
        elif not self._attempts.is_current(identity):
            return
        elif frame.kind is Kind.ACTIVE and identity.role is Role.PARTY:
            self._on_active(identity, Plan.decode(frame.payload))
        elif identity not in self._plans:
            raise FrameError(f"{identity} may not send {frame.kind.name} before it is active")
        else:
            self._on_epoch_frame(identity, frame)

    def _on_active(self, identity: Identity, plan: Plan) -> None:
        if identity in self._plans:
            raise FrameError(f"{identity} is active twice")
        self._plans[identity] = plan
        self._go_on()

    def _go_on(self) -> None:
        """Begin, once all parties are active in the same epoch and the seed is there."""
        if not self._attempts.complete or self._active:
            return
        if not self._completed:
            self._completed = True
            self._complete(self._seed())
        if len(self._plans) < len(self.parties):
            return
        plan, *others = self._plans.values()
        if any(other != plan for other in others):
            raise PeerError("the parties have not opened the same epoch: they are not in step")
        self._active = self._was_active = True
        self._start(plan, self._seed())

    @property
    def _patience(self) -> float:
        return RECONNECT_SECONDS if self._was_active else START_SECONDS

    def _note_absence(self) -> None:
        if not self.absent:
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = self._clock()

    def _seed(self) -> Frame:
        return Frame(Kind.SEED, payload=self._attempts.said[DEALER])

    def _begin(self) -> None:
        """Another attempt: whatever was under way is over."""
        self._active = self._completed = False
        self._plans = {}
        self._stop()

    # What an actor and a rewarder do differently

    def _say(self, identity: Identity) -> bytes:
        """What this role tells a peer when an epoch is opened."""
        return b""

    def _complete(self, seed: Frame) -> None:
        """Everybody is there, with the seed: the parties are about to open an epoch."""
        return

    @abstractmethod
    def _missing_at(self, said: bytes) -> Sequence[Identity]:
        """Whom a party is not connected to, from what it told this role."""

    @abstractmethod
    def _start(self, plan: Plan, seed: Frame) -> None:
        """An epoch is open."""

    @abstractmethod
    def _stop(self) -> None:
        """The epoch is over, or was not opened."""

    @abstractmethod
    def _on_epoch_frame(self, identity: Identity, frame: Frame) -> None:
        """A frame of an active party."""
