"""The rewarder, as a state machine without I/O: it masks each reward with a word only it and the dealer know."""

from __future__ import annotations

from collections.abc import Callable

from hiddenarm.bandit.decisions import split_number
from hiddenarm.bandit.features import checked_reward
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import DecisionIdError, FrameError, InputError, PeerError, PeerLost
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.client import Client
from hiddenarm.roles.messages import read_refused, reward_frame
from hiddenarm.roles.runs import Send
from hiddenarm.roles.vitals import Vitals


class Rewarder(Client):
    """Sends rewards as numbered lessons; `outcomes` holds, by lesson, None for learned or the error to raise."""

    def __init__(
        self, federation: Federation, send: Send, *, max_batch: int = 256, name_of: Callable[[Identity], str] = str
    ) -> None:
        super().__init__(federation, send, max_batch=max_batch, name_of=name_of)
        self._learns_many = federation.learner.learns_many
        self.outcomes: dict[int, DecisionIdError | None] = {}
        self._masks: dict[int, Stream] = {}
        self._next_lesson = 0
        self._waiting: dict[int, set[Identity]] = {}
        self._refusals: dict[int, list[DecisionIdError]] = {}

    def teach(self, *rewards: tuple[str, float]) -> int:
        """Send the rewards of some decisions to all parties, masked, as one lesson; return its number."""
        if not self.ready:
            raise PeerLost("the rewarder has not met all parties and the dealer")
        if not 1 <= len(rewards) <= self._max_batch:
            raise InputError(f"a lesson has 1 to {self._max_batch} rewards, got {len(rewards)}")
        if len(rewards) > 1 and not self._learns_many:
            raise InputError(f"the paper's suite learns from one reward at a time, got {len(rewards)}")
        numbers = self._checked_numbers([decision for decision, _ in rewards])
        unit = 2**self._federation.fraction_bits
        values = [round(checked_reward(reward) * unit) for _, reward in rewards]
        masked = [(value + self._mask(number)) % 2**64 for value, number in zip(values, numbers, strict=True)]
        lesson, self._next_lesson = self._next_lesson, self._next_lesson + 1
        self._waiting[lesson] = set(self._parties)
        frame = reward_frame(lesson, *zip(numbers, masked, strict=True))
        for party in self._parties:
            self._send(party, frame)
        return lesson

    def lasts(self, lesson: int) -> bool:
        """Whether all is done for a lesson to last that will be: nothing, in memory."""
        return True

    def has_ended(self, lesson: int) -> bool:
        """Whether all parties have said what became of a lesson."""
        return lesson in self.outcomes

    def check_learned(self, lesson: int) -> None:
        """Raise if a lesson that has ended was refused. To be called once."""
        if (error := self.outcomes.pop(lesson)) is not None:
            raise error

    def _checked_numbers(self, decisions: list[str]) -> list[int]:
        """The decisions' numbers, if each is ours and none was rewarded before."""
        assert self._ids is not None
        numbers: dict[int, None] = {}
        for decision in decisions:
            number = self._ids.number_of(decision)
            count, step, position = split_number(number)
            if number in numbers or self._stream(count).spent(step, position):
                raise DecisionIdError(f"decision {decision} was rewarded before")
            numbers[number] = None
        return list(numbers)

    def _mask(self, number: int) -> int:
        count, step, position = split_number(number)
        return self._stream(count).word(step, position)

    def _stream(self, count: int) -> Stream:
        """Masks of the rewards of decisions that were made `count` at once."""
        if count not in self._masks:
            self._masks[count] = self._decision_stream(count, count, ahead=max(1, 64 // count), in_order=False)
        return self._masks[count]

    def vitals(self) -> Vitals:
        """How it is doing."""
        return Vitals(waiting=len(self._waiting))

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        match identity.role, frame.kind:
            case Role.PARTY, Kind.LEARNED:
                self._settle(identity, frame, None)
            case Role.PARTY, Kind.REFUSED:
                why = f"refused by {self._party_name(identity)}: {read_refused(frame)[1]}"
                self._settle(identity, frame, DecisionIdError(why))
            case Role.DEALER, Kind.SEED:
                self._on_seed(frame)
            case _:
                raise FrameError(f"{identity} may not send {frame.kind.name}")

    def _settle(self, identity: Identity, frame: Frame, refusal: DecisionIdError | None) -> None:
        lesson = frame.step
        waiting = self._waiting.get(lesson)
        if waiting is None or identity not in waiting:
            raise FrameError(f"{identity} reported lesson {lesson}, which does not wait for it")
        waiting.remove(identity)
        if refusal is not None:
            self._refusals.setdefault(lesson, []).append(refusal)
        if not waiting:
            del self._waiting[lesson]
            refusals = self._refusals.pop(lesson, None)
            if refusals and len(refusals) < len(self._parties):
                raise PeerError(f"the parties do not agree on lesson {lesson}: they are not in step")
            self.outcomes[lesson] = refusals[0] if refusals else None
