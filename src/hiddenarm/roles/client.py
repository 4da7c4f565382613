"""What actor and rewarder have in common: they know all parties and the dealer, and end when one of them does."""

from __future__ import annotations

from collections.abc import Callable

from hiddenarm.bandit.catalogue import DECIDE, ProgramId
from hiddenarm.bandit.decisions import DecisionIds
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FrameError, PeerLost
from hiddenarm.mpc.material import program_stream
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.messages import DEALER, read_client_seed
from hiddenarm.roles.runs import Send


class Client:
    """A role that asks the parties. `max_batch` is the most that it asks for at once; `name_of` says what its errors
    call a party."""

    def __init__(
        self, federation: Federation, send: Send, *, max_batch: int = 256, name_of: Callable[[Identity], str] = str
    ) -> None:
        self._federation = federation
        self._send = send
        self._max_batch = max_batch
        self._party_name = name_of
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._missing = set(self._parties)
        self._ids: DecisionIds | None = None
        self._seed: bytes | None = None

    @property
    def ready(self) -> bool:
        """Whether all parties are there and the seed has come."""
        return self._seed is not None and not self._missing

    @property
    def missing(self) -> list[Identity]:
        """Who was not met yet; the dealer until it has given the seed."""
        return [*sorted(self._missing), *([DEALER] if self._seed is None else [])]

    def expects(self, identity: Identity) -> bool:
        return identity == DEALER or identity in self._parties

    def on_ready(self, identity: Identity) -> None:
        self._missing.discard(identity)

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        raise PeerLost(f"{identity} {'has left' if graceful else 'is gone'}: {reason}")

    def on_idle(self) -> None:
        return

    def _on_seed(self, frame: Frame) -> None:
        if self._seed is not None:
            raise FrameError("the dealer sent a second seed")
        self._ids, self._seed = read_client_seed(frame)

    def _decision_stream(self, count: int, words: int, *, ahead: int = 1, in_order: bool = True) -> Stream:
        """This role's words for decisions that are made `count` at once."""
        assert self._seed is not None
        return program_stream(self._seed, ProgramId(DECIDE, count).label, words, ahead=ahead, in_order=in_order)
