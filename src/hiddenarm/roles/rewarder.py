"""The rewarder, as a state machine without I/O: every reward is masked once, written down, and sent until all parties
keep it. The mask is a word that only it and the dealer know.

    1. a reward is masked with the word of its decision, from the seed of the decision's epoch, which is kept
    2. the lesson, with its number and its masked rewards, is written down; only then is it sent
    3. it is sent again in every epoch, byte for byte the same, from the length of the parties' common log on
    4. it has ended when all parties have said how, and they must say the same

A lesson has a name: that of the application's request, or else one made of its decisions. The same request again gets
the same answer; with other rewards it is refused. In memory, only the application gives names, and the newest are kept
(`MemoryRewarderRecords`).

With reward slots (`slots`) a reward is only masked and written down when it comes. When a slot ends, the rewards of the
one before are made lessons, in the order of the decisions, with the default for those that have not come; the sizes of
lessons follow from the number of decisions. What comes later is refused: its mask was used.

Where decisions expire, slots are those of expiry: rewards are sent when they come, and a decision that has none by the
end of the slot after its own is learned with a reward that was agreed, or dropped.

No lesson is made before an epoch has opened in this process. Only then do the parties know that this state is not an
old backup: one that made lessons before would seem to have all that it lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.decisions import decision_name, parts_of, split_name, split_number
from hiddenarm.bandit.features import checked_reward
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.slots import Slots, in_lessons
from hiddenarm.errors import (
    ConflictError,
    DecisionIdError,
    FrameError,
    InputError,
    PeerError,
    RefusedRewardError,
    RewardedError,
    StaleStateError,
    UnavailableError,
)
from hiddenarm.mpc.material import program_stream
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.ring.streams import Stream
from hiddenarm.roles.client import Client, check_name
from hiddenarm.roles.client_records import KnownEpoch, MadeLesson, MemoryRewarderRecords, RewarderRecords
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import Plan, RewarderStatement, Standing
from hiddenarm.roles.health import Health, RewardSums
from hiddenarm.roles.messages import (
    NEVER_LEARNED,
    REWARDER,
    Kind,
    Unlearning,
    read_client_seed,
    read_learned,
    read_refused,
    read_slot,
    reward_frame,
    unlearn_frame,
)
from hiddenarm.roles.runs import MAX_WAITING, Send
from hiddenarm.roles.slots import HeardSlots

ADVICE = (
    "Bring back the newest state; or give up the rewards of all earlier decisions: stop the rewarder, run "
    "`hiddenarm recover KIT`, start it"
)
NOT_CHECKED = "no epoch has opened since the rewarder was started; make the same request again"
"""Until then this may be an old backup, which knows neither all epochs nor all lessons."""
_Streams = dict[tuple[int, ProgramId], Stream]
"""Masks of rewards, by the epoch of the decisions and the program that made them."""


class Rewarder(Client):
    """Sends rewards as numbered lessons; `ending` says how a lesson ended."""

    me = REWARDER

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        records: RewarderRecords | MemoryRewarderRecords,
        peer_loss: PeerLoss,
        max_batch: int = 256,
        name_of: Callable[[Identity], str] = str,
    ) -> None:
        super().__init__(federation, send, peer_loss=peer_loss, max_batch=max_batch, name_of=name_of)
        self._learns_many = federation.learner.learns_many
        self._no_unlearning = federation.learner.schedule().no_unlearning
        self.checked = False
        """Whether an epoch has opened in this process: this state is known to be the newest."""
        self._records = records
        self._written = records.made
        """How many lessons are written down."""
        self._sent = 0
        self._told: dict[int, dict[Identity, str]] = {}
        self._endings: dict[int, str] = {}
        self._unwritten: dict[str, int] = {}
        self._streams: _Streams = {}
        self.has_slots = federation.reward_slot > 0
        self.ends_slots = federation.naming_seconds > 0
        """Whether something is to be done when a slot ends: rewards are sent, or decisions have expired."""
        self._heard = HeardSlots(self.parties)
        self._slots = Slots(records.awaited)
        self._receipts = self._receipts_written = 0
        self._sums = RewardSums()
        self._unwritten_given: dict[str, tuple[int, list[tuple[int, int]]]] = {}

    # What the application asks

    def teach(self, *rewards: tuple[str, float], request: str | None = None) -> int:
        """Have some rewards learned as one lesson; return its number."""
        if self.has_slots:
            raise InputError("rewards are sent in slots here: they are given, and learned with their slots")
        names, values, request = self._checked(rewards, request)
        known = self._lesson_of(request)
        if known is None:
            self._check_can_make()
            self._check_unspent(names, [decision for decision, _ in rewards])
            number = self._make(MadeLesson(request, self._masked(names, values, self._streams)))
            self._sums.observe(reward for _, reward in rewards)
            return number
        self._check_same(known, request, self._masked(names, values, {}))
        return known

    def _check_same(self, known: int, request: str, masked: list[tuple[int, int]]) -> None:
        """Raise unless these are the rewards with which a request has made a lesson."""
        if self._made_under(known, request) != masked:
            raise ConflictError(f"request {request!r} was made before, with other decisions or other rewards")

    def _made_under(self, number: int, request: str) -> list[tuple[int, int]]:
        """What a request has brought to a lesson."""
        return self._records.lesson(number).rewards

    def unlearn(self, decision: str) -> int:
        """Have a decision unlearned: taken out of the model if it was learned, dropped if it has no reward. The number
        of the lesson that does it. It is done once: asked for again, it is the same one."""
        if self._no_unlearning:
            raise InputError(self._no_unlearning)
        name = self._name_of(decision)
        known = self._records.unlearned_by(name)
        if known is None:
            self._check_can_make()
            known = self._make(MadeLesson("", [], Unlearning(name, self._learned_in(name, decision))))
        return known

    def _learned_in(self, name: int, decision: str) -> int:
        """The lesson that has the reward of a decision."""
        if not self._records.is_spent(name):
            if self.has_slots:
                raise UnavailableError(
                    f"the reward of decision {decision} is still to be sent, with its slot; ask again after that "
                    f"(reward_slot is {self.federation.reward_slot} s)",
                    float(self.federation.reward_slot),
                )
            return NEVER_LEARNED
        lesson = self._records.learned_in(name)
        if lesson is None:
            raise DecisionIdError(f"decision {decision} is no longer kept: it cannot be unlearned")
        if refused := self.ending(lesson):
            raise DecisionIdError(f"decision {decision} was not learned: {refused}")
        return lesson

    def give(self, *rewards: tuple[str, float], request: str | None = None) -> int:
        """With reward slots: keep some rewards until the slots of their decisions are sent. The number of a receipt
        (see `is_given`)."""
        if not self.has_slots:
            raise InputError("rewards are not sent in slots here: they are learned when they come")
        names, values, request = self._checked(rewards, request)
        receipt, known = self._unwritten_given.get(request, (-1, self._records.given_under(request)))
        if known is not None:
            if known != self._masked(names, values, {}):
                raise ConflictError(f"request {request!r} was made before, with other decisions or other rewards")
            return receipt
        if not self.checked:
            raise UnavailableError(NOT_CHECKED)
        for name, (decision, _) in zip(names, rewards, strict=True):
            self._check_in_time(name, decision)
        receipt = self._give(request, self._masked(names, values, self._streams))
        self._sums.observe(reward for _, reward in rewards)
        return receipt

    def is_given(self, receipt: int) -> bool:
        """Whether rewards that were given are written down."""
        return receipt < self._receipts_written

    def _give(self, request: str, masked: list[tuple[int, int]]) -> int:
        receipt, self._receipts = self._receipts, self._receipts + 1
        if request:
            self._unwritten_given[request] = receipt, masked

        def lasts() -> None:
            self._unwritten_given.pop(request, None)
            self._receipts_written += 1

        self._records.give(request, masked, lasts)
        return receipt

    def _check_in_time(self, name: int, decision: str) -> None:
        if self._records.was_given(name):
            raise RewardedError(f"decision {decision} was rewarded before")
        if self._records.is_spent(name):
            raise RewardedError(
                f"the reward of decision {decision} comes too late: its slot was sent without it, with "
                f"{self.federation.default_reward:g} in its place (reward_slot is {self.federation.reward_slot} s)"
            )

    def _checked(self, rewards: Sequence[tuple[str, float]], request: str | None) -> tuple[list[int], list[int], str]:
        """Names of decisions, rewards in fixed point, and the name of the request."""
        if not 1 <= len(rewards) <= self._max_batch:
            raise InputError(f"a lesson has 1 to {self._max_batch} rewards, got {len(rewards)}")
        if len(rewards) > 1 and not self._learns_many:
            raise InputError(f"the paper's suite learns from one reward at a time, got {len(rewards)}")
        names = [self._name_of(decision) for decision, _ in rewards]
        for name, (decision, _) in zip(names, rewards, strict=True):
            if self._records.unlearned_by(name) is not None:
                raise DecisionIdError(f"decision {decision} was unlearned{self._or_expired}")
        if len(names) > 1:
            _check_distinct(names)
        values = [self._fixed_point(checked_reward(reward)) for _, reward in rewards]
        return names, values, check_name(request) if request else self._records.name_of(names)

    def _fixed_point(self, reward: float) -> int:
        return round(reward * 2.0**self.federation.fraction_bits)

    def health(self) -> Health:
        """How it is doing."""
        waiting = self._records.made - self._records.kept
        return Health(waiting=waiting, rewards=replace(self._sums), values=self.values)

    def ending(self, number: int) -> str | None:
        """Why a lesson was refused, empty if it was learned; None while that is not known."""
        return self._endings[number] if number in self._endings else self._records.ending(number)

    def has_ended(self, number: int) -> bool:
        """Whether all parties have said what became of a lesson."""
        return self.ending(number) is not None

    def check_learned(self, number: int) -> None:
        """Raise if a lesson that has ended was refused."""
        if refused := self.ending(number):
            raise RefusedRewardError(refused)

    def lasts(self, number: int) -> bool:
        """Whether a lesson is written down."""
        return number < self._written

    def _name_of(self, decision: str) -> int:
        """The decision with this id, if it is of a known epoch."""
        parts = parts_of(decision)
        named = int(parts[0], 16)
        epoch = self._records.epochs.get(named)
        if epoch is None and not self.checked:
            raise UnavailableError(NOT_CHECKED)
        if epoch is None:
            raise DecisionIdError(f"decision {decision} belongs to an epoch that is not known here")
        return decision_name(named, epoch.ids.number_in(decision, parts))

    def _masked(self, names: Sequence[int], values: Sequence[int], streams: _Streams) -> list[tuple[int, int]]:
        """Hide rewards. `streams` hand out a word once; other streams only to compare with what was hidden before."""
        return [(name, (value + self._mask(name, streams)) % 2**64) for name, value in zip(names, values, strict=True)]

    def _mask(self, name: int, streams: _Streams) -> int:
        named, number = split_name(name)
        program, step, position = split_number(number)
        if (named, program) not in streams:
            seed, count = self._records.epochs[named].seed, program.count
            streams[named, program] = program_stream(
                seed, program.label, count, ahead=max(1, 64 // count), in_order=False
            )
        return streams[named, program].word(step, position)

    def _lesson_of(self, request: str) -> int | None:
        """The number of the lesson that was made under this name."""
        if not request:
            return None
        return self._unwritten[request] if request in self._unwritten else self._records.lesson_of(request)

    def _check_can_make(self) -> None:
        """Before a mask is taken: the same request must find it unused."""
        if not self.checked:
            raise UnavailableError(NOT_CHECKED)
        if self._records.made - self._records.kept >= MAX_WAITING:
            raise UnavailableError(f"{MAX_WAITING} lessons wait to be learned; make the same request again later")

    @property
    def _or_expired(self) -> str:
        """What else may have become of a decision."""
        seconds = self.federation.expires_after
        return f", or has expired (expires_after is {seconds} s)" if seconds else ""

    def _check_unspent(self, names: Sequence[int], decisions: Sequence[str]) -> None:
        for name, decision in zip(names, decisions, strict=True):
            if self._records.is_spent(name):
                raise RewardedError(f"decision {decision} was rewarded before{self._or_expired}")

    def _make(self, lesson: MadeLesson) -> int:
        number = self._records.make(lesson, lambda: self._lesson_lasts(lesson))
        if number >= self._written and lesson.unlearning is None:
            self._unwritten[lesson.request] = number
        return number

    # Teaching

    def _say(self, identity: Identity) -> bytes:
        if identity not in self.parties:
            return b""
        return RewarderStatement(self._records.made, self._records.kept, self._records.consents).encode()

    def _complete(self, seed: bytes) -> None:
        """Keep the seed. No decision of this epoch is made before: its reward could not be masked after a crash."""
        standings = [Standing.decode(self._attempts.said[party]) for party in self.parties]
        self._check_state(standings)
        self._go_back_if_agreed(standings)
        ids, own = read_client_seed(seed)
        if int(ids.epoch, 16) in self._records.epochs:
            raise FrameError("the dealer gave an epoch the name of an earlier one")
        attempt = self._attempts.number

        def lasts() -> None:
            if attempt == self._attempts.number and self.lasting:
                for party in self.parties:
                    self._send(party, Frame(Kind.PREPARED))

        self._records.learn_epoch(KnownEpoch(own, ids), lasts)

    def _check_state(self, standings: Sequence[Standing]) -> None:
        """No party can hold a lesson that was not made here, nor have opened an epoch whose seed was not kept here; a
        party that consents to go back may name an epoch that was given up."""
        held = max(standing.lessons for standing in standings)
        if self._records.consents:
            return
        if held > self._records.made:
            why = f"it has made {self._records.made} lessons, and a party holds {held}"
            raise StaleStateError(f"the rewarder has lost state: {why}. {ADVICE}")
        opened = {standing.epoch for standing in standings if standing.epoch and not standing.consents}
        if not opened <= self._records.epochs.keys():
            why = "it does not know the last epoch that a party has opened"
            raise StaleStateError(f"the rewarder has lost state: {why}. {ADVICE}")

    def _go_back_if_agreed(self, standings: Sequence[Standing]) -> None:
        """All parties consent to a shorter log than they were known to keep. This lasts here before any of them cuts
        its log, as its consent ends with that: otherwise all would seem to have lost state after a crash in between."""
        length = min(standing.lessons for standing in standings)
        if length < self._records.kept and all(standing.consents for standing in standings):
            self._records.go_back(length, lambda: None)
            self._endings = {}

    def _missing_at(self, said: bytes) -> Sequence[Identity]:
        return Standing.decode(said).missing

    def _start(self, plan: Plan, seed: bytes) -> None:
        self._check_plan(plan, read_client_seed(seed)[0].epoch)
        self._records.use_consent()
        self.checked = True
        self._sent = plan.length
        self._send_lessons()

    def _check_plan(self, plan: Plan, epoch: str) -> None:
        if plan.name.hex() != epoch:
            raise PeerError("the parties have another epoch than the dealer: they are not in step")
        if self._records.consents:
            self._records.start_behind(plan.length, plan.named, lambda: None)
            self._written = self._records.made
        if plan.length < self._records.kept:
            raise StaleStateError(f"the parties hold {plan.length} lessons and had {self._records.kept}")

    def _stop(self) -> None:
        self._told = {}
        self._heard = HeardSlots(self.parties)

    def _lesson_lasts(self, lesson: MadeLesson) -> None:
        self._unwritten.pop(lesson.request, None)
        self._written += 1
        if self.active:
            self._send_lessons()

    def _send_lessons(self) -> None:
        """Send lessons that last and were not sent in this epoch, in order, as many as may wait at the parties. The
        rest follows as lessons end."""
        while self._sent < min(self._written, self._records.kept + MAX_WAITING):
            lesson = self._records.lesson(self._sent)
            if lesson.unlearning is None:
                frame = reward_frame(self._sent, *lesson.rewards)
            else:
                frame = unlearn_frame(self._sent, lesson.unlearning)
            for party in self.parties:
                self._send(party, frame)
            self._sent += 1

    def _on_epoch_frame(self, identity: Identity, frame: Frame) -> None:
        match frame.kind:
            case Kind.LEARNED:
                self._on_ending(identity, read_learned(frame), "")
            case Kind.SLOT if self.ends_slots:
                names, more = read_slot(frame)
                for slot in self._heard.hear(identity, frame.step, names, more):
                    self._end_slot(slot)
            case Kind.REFUSED:
                why = read_refused(frame)[1] or "no reason given"
                self._on_ending(identity, frame.step & (2**48 - 1), f"refused by {self._party_name(identity)}: {why}")
            case _:
                raise FrameError(f"{identity} may not send {frame.kind.name}")

    # Reward slots

    def _end_slot(self, names: Sequence[int]) -> None:
        """A slot has ended: send the rewards of the one before, await those of its own decisions."""
        awaited = set(self._slots.awaited)
        self._slots.add(name for name in names if name not in awaited and self._can_send(name))
        due = [name for name in self._slots.end() if self._can_send(name)]
        lessons = self._lessons_of_slot(due) if self.has_slots else self._lessons_of_expired(due)

        def last() -> None:
            for lesson in lessons:
                self._lesson_lasts(lesson)

        if lessons or self._slots.awaited or self._records.awaited:
            self._records.end_slot(lessons, list(self._slots.awaited), last)

    def _lessons_of_slot(self, due: Sequence[int]) -> list[MadeLesson]:
        """The rewards of the decisions of a slot."""
        return [
            MadeLesson(self._records.name_of(part), [(name, self._word_for(name)) for name in part])
            for part in in_lessons(due, self._max_batch)
        ]

    def _lessons_of_expired(self, due: Sequence[int]) -> list[MadeLesson]:
        """What becomes of decisions that have expired: they are learned with the reward that was agreed for them, under
        masks that nothing else was hidden by; or dropped, each by all parties alike."""
        reward = self.federation.expired_reward
        if reward is None:
            return [MadeLesson("", [], Unlearning(name)) for name in due]
        value, lessons = self._fixed_point(reward), list[MadeLesson]()
        for part in in_lessons(due, self._max_batch if self._learns_many else 1):
            named = self._records.name_of(part)
            masked = self._masked(part, [value] * len(part), self._streams)
            lessons.append(MadeLesson(f"expired {named}" if named else "", masked))
        return lessons

    def _can_send(self, name: int) -> bool:
        """Not of an epoch that was given up, nor what was sent."""
        return split_name(name)[0] in self._records.epochs and not self._records.is_spent(name)

    def _word_for(self, name: int) -> int:
        """The masked reward that has come, or the default under the same mask, which nothing else was hidden by."""
        given = self._records.given(name)
        if given is not None:
            return given
        return (self._fixed_point(self.federation.default_reward) + self._mask(name, self._streams)) % 2**64

    def _on_ending(self, identity: Identity, number: int, refused: str) -> None:
        if number < self._records.kept:
            return
        told = self._told.setdefault(number, {})
        if number >= self._written and self._records.consents:
            return
        if identity in told or number >= self._written:
            raise FrameError(f"{identity} reported lesson {number}, which does not wait for it")
        told[identity] = refused
        if len(told) < len(self.parties):
            return
        while len(self._told.get(self._records.kept, ())) == len(self.parties):
            self._end(self._records.kept)
        if self.active and self._sent < self._written:
            self._send_lessons()

    def _end(self, number: int) -> None:
        told = self._told.pop(number)
        refusals = [refused for refused in told.values() if refused]
        if 0 < len(refusals) < len(self.parties):
            raise PeerError(f"the parties do not agree on lesson {number}: they are not in step")
        if refusals:
            self._lesson_refused(number)
        self._endings[number] = refusals[0] if refusals else ""

        def lasts() -> None:
            self._endings.pop(number, None)

        self._records.end(number, self._endings[number], lasts)

    def _lesson_refused(self, number: int) -> None:
        """All parties have refused a lesson, which is about to be written down."""


def _check_distinct(names: Sequence[int]) -> None:
    if len(set(names)) < len(names):
        raise DecisionIdError("a decision is listed twice, and is rewarded once")
