"""The actor, as a state machine without I/O: it asks for decisions by key; it alone turns a slot into an arm."""

from __future__ import annotations

from dataclasses import dataclass, field

from hiddenarm.bandit.decisions import decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import FeatureError, FrameError, HiddenArmError, InputError, PeerError, PeerLost
from hiddenarm.mpc.shuffle import permutation_of
from hiddenarm.mpc.values import Index
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.client import Client
from hiddenarm.roles.messages import (
    MAX_KEY_BYTES,
    MAX_LESSONS,
    decide_frame,
    program_and_step,
    read_learned,
    read_refused,
    read_slots,
)
from hiddenarm.roles.runs import Send

RunName = tuple[int, int]
"""How many decisions are made at once, and the step."""


@dataclass(slots=True, repr=False)
class _Asked:
    """Decisions under way: the model they want, their ids, the arm in each slot, and which slots the parties have
    reported."""

    version: int
    ids: list[str] = field(default_factory=list)
    arms: Index | None = None
    slots: dict[Identity, list[int]] = field(default_factory=dict)


class Actor(Client):
    """Asks the parties; `outcomes` holds what came of it: decisions, or the error to raise."""

    def __init__(self, federation: Federation, send: Send, *, max_batch: int = 256) -> None:
        super().__init__(federation, send, max_batch=max_batch)
        self.outcomes: dict[RunName, list[Decision] | HiddenArmError] = {}
        self._permutations: dict[int, Stream] = {}
        self._next_step: dict[int, int] = {}
        self._version = 0
        self._asked: dict[RunName, _Asked] = {}

    def ask(self, *keys: str, after: int = 0) -> RunName:
        """Ask all parties to decide for some keys at once, with a model that holds at least `after` lessons."""
        if not 1 <= len(keys) <= self._max_batch:
            raise InputError(f"a request has 1 to {self._max_batch} keys, got {len(keys)}")
        for key in keys:
            _check_key(key)
        if type(after) is not int or not 0 <= after < MAX_LESSONS:
            raise InputError("`after` must be a version of the model: a whole number, not negative")
        if not self.ready:
            raise PeerLost("the actor has not met all parties and the dealer")
        version = max(self._version, after)
        step = self._next_step.get(len(keys), 0)
        self._next_step[len(keys)] = step + 1
        asked = self._asked[len(keys), step] = _Asked(version)
        frame = decide_frame(step, version, *keys)
        for party in self._parties:
            self._send(party, frame)
        self._prepare(asked, len(keys), step)  # while the parties are at work
        return len(keys), step

    def _prepare(self, asked: _Asked, count: int, step: int) -> None:
        """Find out what each slot will mean."""
        assert self._ids is not None
        asked.ids = [self._ids.id_of(decision_number(count, step, position)) for position in range(count)]
        asked.arms = permutation_of(self._stream(count).step(step).reshape(count, self._federation.arms))

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

    def _on_slot(self, identity: Identity, frame: Frame) -> None:
        slots = read_slots(frame)
        program, step = program_and_step(frame)
        name = (program.count, step)
        asked = self._asked.get(name)
        if asked is None or identity in asked.slots:
            raise FrameError(f"{identity} reported decision {step}, which does not wait for it")
        asked.slots[identity] = slots
        if len(asked.slots) == len(self._parties):
            del self._asked[name]
            self._version = max(self._version, asked.version)
            self.outcomes[name] = self._decisions(step, asked)

    def _decisions(self, step: int, asked: _Asked) -> list[Decision]:
        """Turn the slots, on which all parties must agree, into arms."""
        slots, *others = asked.slots.values()
        if any(report != slots for report in others) or not max(slots) < self._federation.arms:
            raise PeerError(f"the parties do not agree on decision {step}: they are not in step")
        assert asked.arms is not None
        arms = asked.arms[range(len(slots)), slots].tolist()
        return [Decision(identifier, arm) for identifier, arm in zip(asked.ids, arms, strict=True)]

    def _stream(self, count: int) -> Stream:
        """Permutations of decisions that are made `count` at once."""
        if count not in self._permutations:
            words, ahead = count * self._federation.arms, max(1, 64 // count)
            self._permutations[count] = self._decision_stream(count, words, ahead=ahead)
        return self._permutations[count]

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        program, step = program_and_step(frame)
        if self._asked.pop((program.count, step), None) is not None:
            error = FeatureError(f"{identity} refused the decision: {read_refused(frame)}")
            self.outcomes[program.count, step] = error


def _check_key(key: str) -> None:
    """Refuse what is no key: it must be text that can be sent, not empty and not too long."""
    try:
        fits = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FeatureError(f"a key must be text of 1 to {MAX_KEY_BYTES} bytes")
