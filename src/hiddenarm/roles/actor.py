"""The actor, as a state machine without I/O: it asks for decisions by key; it alone turns a slot into an arm."""

from __future__ import annotations

from dataclasses import dataclass, field

from hiddenarm.bandit.decisions import DecisionIds
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.programs import DECIDE
from hiddenarm.errors import FeatureError, FrameError, HiddenArmError, InputError, PeerError, PeerLost
from hiddenarm.mpc.material import program_stream
from hiddenarm.mpc.shuffle import permutation_of
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.messages import (
    DEALER,
    MAX_KEY_BYTES,
    MAX_LESSONS,
    decide_frame,
    read_client_seed,
    read_learned,
    read_refused,
    read_slot,
)
from hiddenarm.roles.party import Send


@dataclass(slots=True)
class _Asked:
    """A decision under way: the model it wants, and which parties have reported which slot."""

    version: int
    slots: dict[Identity, int] = field(default_factory=dict)


class Actor:
    """Asks the parties; `outcomes` holds what came of it, by number: a `Decision`, or the error to raise."""

    def __init__(self, federation: Federation, send: Send) -> None:
        self.outcomes: dict[int, Decision | HiddenArmError] = {}
        self._federation = federation
        self._send = send
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._present: set[Identity] = set()
        self._ids: DecisionIds | None = None
        self._permutations: Stream | None = None
        self._next_number = 0
        self._version = 0
        self._asked: dict[int, _Asked] = {}

    @property
    def ready(self) -> bool:
        """Whether all parties are there and the seed has come."""
        return self._permutations is not None and all(party in self._present for party in self._parties)

    def ask(self, key: str, after: int = 0) -> int:
        """Ask all parties to decide for a key, with a model that holds at least `after` lessons; return the number."""
        _check_key(key)
        if type(after) is not int or not 0 <= after < MAX_LESSONS:
            raise InputError("`after` must be a version of the model: a whole number, not negative")
        if not self.ready:
            raise PeerLost("the actor has not met all parties and the dealer")
        version = max(self._version, after)
        number, self._next_number = self._next_number, self._next_number + 1
        self._asked[number] = _Asked(version)
        for party in self._parties:
            self._send(party, decide_frame(number, version, key))
        return number

    def expects(self, identity: Identity) -> bool:
        return identity == DEALER or identity in self._parties

    def on_ready(self, identity: Identity) -> None:
        self._present.add(identity)

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        raise PeerLost(f"{identity} {'has left' if graceful else 'is gone'}: {reason}")

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        match identity.role, frame.kind:
            case Role.DEALER, Kind.SEED:
                self._on_seed(frame)
            case Role.PARTY, Kind.SLOT:
                self._on_slot(identity, frame)
            case Role.PARTY, Kind.LEARNED:
                self._version = max(self._version, read_learned(frame) + 1)
            case Role.PARTY, Kind.REFUSED:
                self._on_refused(identity, frame)
            case _:
                raise FrameError(f"{identity} may not send {frame.kind.name}")

    def _on_seed(self, frame: Frame) -> None:
        if self._permutations is not None:
            raise FrameError("the dealer sent a second seed")
        self._ids, seed = read_client_seed(frame)
        self._permutations = program_stream(seed, DECIDE, self._federation.arms, ahead=64)

    def _on_slot(self, identity: Identity, frame: Frame) -> None:
        asked = self._asked.get(frame.step)
        if asked is None or identity in asked.slots:
            raise FrameError(f"{identity} reported decision {frame.step}, which does not wait for it")
        asked.slots[identity] = read_slot(frame)
        if len(asked.slots) == len(self._parties):
            del self._asked[frame.step]
            self._version = max(self._version, asked.version)
            self.outcomes[frame.step] = self._decision(frame.step, set(asked.slots.values()))

    def _decision(self, number: int, slots: set[int]) -> Decision:
        if len(slots) != 1 or not max(slots) < self._federation.arms:
            raise PeerError(f"the parties do not agree on decision {number}: they are not in step")
        assert self._permutations is not None
        assert self._ids is not None
        permutation = permutation_of(self._permutations.step(number))
        return Decision(self._ids.id_of(number), int(permutation[slots.pop()]))

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        if self._asked.pop(frame.step, None) is not None:
            self.outcomes[frame.step] = FeatureError(f"{identity} refused the decision: {read_refused(frame)}")


def _check_key(key: str) -> None:
    """Refuse what is no key: it must be text that can be sent, not empty and not too long."""
    try:
        fits = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FeatureError(f"a key must be text of 1 to {MAX_KEY_BYTES} bytes")
