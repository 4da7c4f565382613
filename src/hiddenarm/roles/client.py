"""What actor and rewarder have in common: attempts, and an epoch once all parties are active."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from hiddenarm.bandit.evaluation import OpenedValues
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ConfigError, FrameError, HiddenArmError, InputError, PeerError, PeerLost, UnavailableError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.logs import get_logger
from hiddenarm.roles.epochs.attempts import Attempts, PeerLoss
from hiddenarm.roles.epochs.plan import Plan
from hiddenarm.roles.health import Health
from hiddenarm.roles.messages import DEALER, Kind, read_values
from hiddenarm.roles.runs import Send
from hiddenarm.roles.values import HeardValues

RECONNECT_SECONDS = 1.0
START_SECONDS = 30.0
"""How long a role that is not there may be expected back at any moment: after an epoch, and before the first one."""
RETRY_SECONDS = 5.0
"""When to come back with a request that was answered with "unavailable"."""
MAX_REQUEST_BYTES = 128
"""The longest name of a request."""


class Client(ABC):
    """A role that asks the parties. `max_batch` is the most that it asks for at once; `name_of` says what its errors
    call a party."""

    me: ClassVar[Identity]
    finished = False
    """Whether the federation has ended in peace: a client is told so by an error."""

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        peer_loss: PeerLoss,
        max_batch: int = 256,
        name_of: Callable[[Identity], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_batch(federation, max_batch, self.me)
        self.federation = federation
        self.parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self.log = get_logger("hiddenarm.client")
        self._send = send
        self._max_batch = max_batch
        self._party_name = name_of
        self._attempts = Attempts(self.me, federation.parties, peer_loss, send, self._begin, self._say)
        self._plans: dict[Identity, Plan] = {}
        self._active = self._completed = False
        self._clock = clock
        self._was_active = False
        self._absent_since: float | None = clock()
        self._values = self._heard_values()

    @property
    def active(self) -> bool:
        """Whether an epoch is open."""
        return self._active

    @property
    def lasting(self) -> bool:
        """Whether it opens another epoch when one has ended, and so may be asked before the first one and between."""
        return self._attempts.lasting

    @property
    def missing(self) -> list[Identity]:
        """Who is awaited."""
        return self._attempts.missing

    @property
    def values(self) -> OpenedValues | None:
        """The values of policies that were opened to this role; None if none was, or they are opened to another."""
        return None if self._values is None else self._values.values

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done."""
        return self.health().waiting > 0

    @property
    def absent(self) -> list[Identity]:
        """Who keeps an epoch from being opened: not connected here, or not to a party that has said so. May be asked by
        another thread than that of the loop."""
        if self._active:
            return []
        said = self._attempts.said.copy()
        told = [peer for party in self.parties if party in said for peer in self._missing_at(said[party])]
        return sorted({*self.missing, *told})

    @property
    def gone(self) -> list[Identity]:
        """Who is absent for longer than a connection takes to be made again; or, before the first epoch of this
        process, than it takes all roles to be started. May be asked by any thread, too."""
        since = self._absent_since
        if since is None or self._clock() - since < self._patience:
            return []
        return self.absent

    def doubt_absence(self) -> None:
        """The links were not served for a while: give whoever was gone time for one more connection."""
        if self._absent_since is not None:
            self._absent_since = max(self._absent_since, self._clock() - self._patience + RECONNECT_SECONDS)

    def unanswered(self, what: str) -> HiddenArmError:
        """The error to raise where no answer has come. It ends a client whose state does not last; another one may ask
        again, and hears of who is gone."""
        if not self.lasting:
            return PeerLost(f"no answer to {what}")
        absent = ", ".join(str(peer) for peer in self.absent)
        why = f"{absent} cannot be reached, and no epoch is open without" if absent else "no answer has come in time"
        return UnavailableError(f"not now: {why}; make the same request again", RETRY_SECONDS)

    @abstractmethod
    def health(self) -> Health:
        """How it is doing."""

    def expects(self, identity: Identity) -> bool:
        return self._attempts.expects(identity)

    def on_ready(self, identity: Identity) -> None:
        self._attempts.on_ready(identity)
        self._note_absence()

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        if identity == DEALER and self._active and self.lasting:
            self._attempts.do_without(DEALER)
        else:
            self._attempts.on_lost(identity, reason, graceful)
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
            raise FrameError(f"{identity} may not send {frame.kind.name}, or not before it is active")
        elif frame.kind is Kind.VALUES:
            self._on_values(identity, frame)
        else:
            self._on_epoch_frame(identity, frame)

    def _heard_values(self) -> HeardValues | None:
        values = self.federation.evaluation
        receives = values is not None and values.opened_to == str(self.me)
        return HeardValues(self.federation, self.parties, self._log_values) if receives else None

    def _on_values(self, identity: Identity, frame: Frame) -> None:
        if self._values is None or self.federation.evaluation is None:
            raise FrameError(f"{identity} may not send {frame.kind.name}: values are not opened to {self.me}")
        self._values.hear(identity, frame.step, read_values(frame, self.federation.evaluation.sums))

    def _log_values(self, values: OpenedValues) -> None:
        told = {name: round(value.unbiased, 4) for name, value in values.by_policy.items()}
        self.log.info("values of policies opened", windows=values.windows, decisions=values.decisions, **told)

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

    def _seed(self) -> bytes:
        return self._attempts.said[DEALER]

    def _begin(self) -> None:
        """Another attempt: whatever was under way is over."""
        if self._active and not self.lasting:
            raise PeerLost("another epoch was begun, and this federation has one")
        self._active = self._completed = False
        self._plans = {}
        if self._values is not None:
            self._values.begin()
        self._stop()

    # What an actor and a rewarder do differently

    def _say(self, identity: Identity) -> bytes:
        """What this role tells a peer when an epoch is opened."""
        return b""

    def _complete(self, seed: bytes) -> None:
        """Everybody is there, with the seed: the parties are about to open an epoch."""
        return

    @abstractmethod
    def _missing_at(self, said: bytes) -> Sequence[Identity]:
        """Whom a party is not connected to, from what it told this role."""

    @abstractmethod
    def _start(self, plan: Plan, seed: bytes) -> None:
        """An epoch is open."""

    @abstractmethod
    def _stop(self) -> None:
        """The epoch is over, or was not opened."""

    @abstractmethod
    def _on_epoch_frame(self, identity: Identity, frame: Frame) -> None:
        """A frame of an active party."""


def check_batch(federation: Federation, max_batch: int, role: Identity) -> None:
    """Refuse a role that could ask for more at once than the federation was checked for. The paper's suite has no such
    number."""
    if federation.suite == "fast" and max_batch > federation.max_batch:
        raise ConfigError(
            f"max_batch of {role} is {max_batch}, and that of the federation is {federation.max_batch}: numbers fit, "
            "and frames have room, for so many at once. Give all roles one max_batch"
        )


def check_name(request: str) -> str:
    """Refuse what cannot name a request."""
    if not isinstance(request, str) or not request.isprintable() or not 0 < len(request.encode()) <= MAX_REQUEST_BYTES:
        raise InputError(f"the name of a request must be printable text of 1 to {MAX_REQUEST_BYTES} bytes")
    return request
