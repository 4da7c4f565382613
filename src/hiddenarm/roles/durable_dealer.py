"""A dealer for many epochs: a fresh key for every attempt to open one. It keeps nothing."""

from __future__ import annotations

from collections.abc import Callable

from hiddenarm.bandit.decisions import new_epoch
from hiddenarm.bandit.federation import Federation
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.attempts import Attempts
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.messages import ACTOR, REWARDER
from hiddenarm.roles.runs import Send
from hiddenarm.roles.vitals import Vitals


class DurableDealer:
    """Every role gets one seed in every attempt: a role that comes back begins another attempt, with another key."""

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
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
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._attempts = Attempts((*self._parties, ACTOR, REWARDER), send, self._begin, self._say)
        self._dealer: Dealer | None = None

    @property
    def active(self) -> bool:
        """Whether everybody has the seeds of one attempt."""
        return self._attempts.complete

    @property
    def missing(self) -> list[Identity]:
        """Who is awaited."""
        return self._attempts.missing

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
        self._attempts.on_ready(identity)

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        self._attempts.on_lost(identity)

    def on_idle(self) -> None:
        return

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is Kind.OPEN:
            self._attempts.on_open(identity, frame)
        elif self._dealer is not None and self._attempts.is_current(identity):
            self._dealer.on_frame(identity, frame)

    def _begin(self) -> None:
        key, name = self._make_key(), self._make_name()
        self._dealer = Dealer(self._federation, key, self._send, max_batch=self._max_batch, name=name)

    def _say(self, identity: Identity) -> bytes:
        assert self._dealer is not None
        return self._dealer.seed_of(identity).payload
