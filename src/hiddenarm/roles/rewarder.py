"""The rewarder, as a state machine without I/O: it masks each reward with a word only it and the dealer know."""

from __future__ import annotations

from hiddenarm.bandit.decisions import DecisionIds
from hiddenarm.bandit.features import checked_reward
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import DECIDE
from hiddenarm.errors import AddressError, DecisionIdError, FrameError, PeerError, PeerLost
from hiddenarm.mpc.material import program_stream
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import encode
from hiddenarm.roles.messages import DEALER, read_client_seed, read_refused, reward_frame
from hiddenarm.roles.party import Send


class Rewarder:
    """Sends rewards as numbered lessons; `outcomes` holds, by lesson, None for learned or the error to raise."""

    def __init__(self, federation: Federation, send: Send) -> None:
        self.outcomes: dict[int, DecisionIdError | None] = {}
        self._federation = federation
        self._send = send
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._present: set[Identity] = set()
        self._ids: DecisionIds | None = None
        self._masks: Stream | None = None
        self._next_lesson = 0
        self._waiting: dict[int, set[Identity]] = {}
        self._refusals: dict[int, list[DecisionIdError]] = {}

    @property
    def ready(self) -> bool:
        """Whether all parties are there and the seed has come."""
        return self._masks is not None and all(party in self._present for party in self._parties)

    def teach(self, decision: str, reward: float) -> int:
        """Send the reward of a decision to all parties, masked; return the number of the lesson."""
        if not self.ready:
            raise PeerLost("the rewarder has not met all parties and the dealer")
        value = checked_reward(reward)
        assert self._ids is not None
        number = self._ids.number_of(decision)
        masked = int(encode([value], self._federation.fraction_bits)[0]) + self._mask(decision, number)
        lesson, self._next_lesson = self._next_lesson, self._next_lesson + 1
        self._waiting[lesson] = set(self._parties)
        for party in self._parties:
            self._send(party, reward_frame(lesson, number, masked % 2**64))
        return lesson

    def _mask(self, decision: str, number: int) -> int:
        assert self._masks is not None
        try:
            return int(self._masks.step(number)[0])
        except AddressError:
            raise DecisionIdError(f"decision {decision} was rewarded before") from None

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
            case Role.PARTY, Kind.LEARNED:
                self._settle(identity, frame, None)
            case Role.PARTY, Kind.REFUSED:
                self._settle(identity, frame, DecisionIdError(f"refused by {identity}: {read_refused(frame)}"))
            case _:
                raise FrameError(f"{identity} may not send {frame.kind.name}")

    def _on_seed(self, frame: Frame) -> None:
        if self._masks is not None:
            raise FrameError("the dealer sent a second seed")
        self._ids, seed = read_client_seed(frame)
        self._masks = program_stream(seed, DECIDE, 1, in_order=False)

    def _settle(self, identity: Identity, frame: Frame, refusal: DecisionIdError | None) -> None:
        waiting = self._waiting.get(frame.step, set())
        if identity not in waiting:
            raise FrameError(f"{identity} reported lesson {frame.step}, which does not wait for it")
        waiting.remove(identity)
        refusals = self._refusals.setdefault(frame.step, [])
        if refusal is not None:
            refusals.append(refusal)
        if not waiting:
            del self._waiting[frame.step], self._refusals[frame.step]
            if 0 < len(refusals) < len(self._parties):
                raise PeerError(f"the parties do not agree on lesson {frame.step}: they are not in step")
            self.outcomes[frame.step] = refusals[0] if refusals else None
