"""The actor, as a state machine without I/O: it asks for decisions by key; it alone learns the arms (`arms`).

Requests wait until an epoch is open, and are asked again in the next one if theirs ended before they were answered;
that is another draw for the same key, and only the last one is given. A request that the application has named is
answered once: its decisions are written down before they are given, and given again whenever the request is repeated,
with the refusals of single keys among them. The same name with other content is refused. A request of which every key
was refused has no answer to keep: made again, it is asked anew.

A run in which a party has no features for some keys is refused as a whole, with the positions of these keys. Then the
actor asks again for the others, in another run with its own randomness. A party names all its keys at once, so there
are at most as many runs more as parties that refuse; and each has fewer keys than the one before.

Where the parties do not have the arms, the actor returns them, masked. Two one-hots under one mask would reveal both:

    1. what will be sent is written down, before an arm is given to anybody, and before it is sent
    2. it is sent to all parties, and where state lasts again in every epoch, byte for byte the same
    3. until all parties have said that they keep it

In each epoch, END_OF_ARMS follows all that was found in earlier ones: what has not come by then never comes.

In strictly online use the actor asks for `step`, which goes on to learn when the reward has come: if the model that is
asked for has one lesson more than that of the request before, which was for a single decision, answered or not. A party
that cannot run it refuses, and the actor asks for `decide`. While the request before is under way, one for `step` is
held, and leaves with the arm of that: no party can begin it before. So two messages are one.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from hiddenarm.bandit.answers import TWO_ARMS, eligible_words, masked_one_hots
from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, STEP_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_name, decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import (
    BudgetSpentError,
    FeatureError,
    FrameError,
    HiddenArmError,
    InputError,
    NoArmError,
    PeerError,
    RefusedKeyError,
    UnavailableError,
)
from hiddenarm.mpc.material import program_stream
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import Words
from hiddenarm.roles.arms import Collected, arm_reports
from hiddenarm.roles.client import Client, check_name
from hiddenarm.roles.client_records import ActorRecords, KeyAnswer, MemoryActorRecords
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import Heard, Plan, decode_members
from hiddenarm.roles.health import Health
from hiddenarm.roles.messages import (
    ACTOR,
    END_OF_ARMS,
    MAX_KEY_BYTES,
    MAX_LESSONS,
    NO_MODEL,
    NO_STOCK,
    Kind,
    ReturnedArms,
    arms_frame,
    decide_frame,
    eligible_bitmap,
    program_and_step,
    read_arms_kept,
    read_client_seed,
    read_learned,
    read_refused,
)
from hiddenarm.roles.runs import MAX_WAITING, RunKey, Send

MAX_ASKED = MAX_WAITING // 2
"""Requests that may be under way: a party can be so many runs behind a peer, and keep what is for them."""

EXPANDED_AHEAD = 64
"""Decisions whose masks are expanded from the seed together."""

Ticket = int
"""Names a request that waits, in this process."""

Outcome = list[KeyAnswer] | HiddenArmError
"""What becomes of a request: an answer for each key, or the error to raise for all."""


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """What the application asks: decisions for some keys, by a model that holds at least `after` lessons; and which
    arms may be chosen for each of them, None for all."""

    keys: tuple[str, ...]
    after: int = 0
    eligible: frozenset[int] | None = None

    @property
    def digest(self) -> bytes:
        """The same for the same content. Eligible arms come last, so that without them it is that of earlier
        versions."""
        digest = hashlib.blake2b(self.after.to_bytes(8, "big"), digest_size=32, person=b"hiddenarm ask")
        for key in self.keys:
            encoded = key.encode()
            digest.update(len(encoded).to_bytes(4, "big") + encoded)
        if self.eligible is not None:
            digest.update(b"".join(arm.to_bytes(4, "big") for arm in (2**32 - 1, *sorted(self.eligible))))
        return digest.digest()


@dataclass(slots=True, repr=False)
class _Question:
    """What was asked in one epoch, and what became of each key. It is named by its first run."""

    name: RunKey
    asked: Asked
    answers: dict[int, KeyAnswer] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class _Run:
    """A run under way: which keys of a question it is for, by position; the model they want, the ids of the decisions,
    the masks under which their one-hots are returned, who has told about them, and what."""

    question: _Question
    positions: Sequence[int]
    version: int
    collected: Collected
    ids: list[str] = field(default_factory=list)
    masks: Words | None = None
    told: set[Identity] = field(default_factory=set)


class ActorEpoch:
    """What the actor asks in one epoch, from its seed; `outcomes` holds what came of it: an answer for each key, or the
    error to raise for all. `found` holds the arms that are to be returned before, by the same names. `version` is that
    of the model when the epoch began."""

    def __init__(
        self, federation: Federation, send: Send, seed: bytes, version: int, name_of: Callable[[Identity], str] = str
    ) -> None:
        self.outcomes: dict[RunKey, Outcome] = {}
        self.found: dict[RunKey, ReturnedArms] = {}
        self.out_of_stock = False
        """Whether the last party has refused a single decision, as it has nothing in stock."""
        self._send = send
        self._party_name = name_of
        self._arms = federation.arms
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._ids, self._seed = read_client_seed(seed)
        self.name = int(self._ids.epoch, 16)
        self._reports = arm_reports(federation)
        self._returns = federation.learner.answers.returned
        self._streams: dict[ProgramId, Stream] = {}
        self._next_step: dict[ProgramId, int] = {}
        self._version = version
        self._runs: dict[RunKey, _Run] = {}
        self._has_step = federation.learner.has_step
        self._spent = None if federation.budget is None else federation.budget.refusal
        self._single_version: int | None = None
        """The version that the request before has named, if it was for a single decision."""
        self._last: RunKey | None = None
        """The run that was asked for last."""
        self._held: tuple[Frame, RunKey] | None = None
        """A request that leaves with the arms of the run before."""

    @property
    def full(self) -> bool:
        """Whether nothing more can be asked until answers have come."""
        return len(self._runs) >= MAX_ASKED

    def ask(self, asked: Asked) -> RunKey:
        """Ask all parties to decide."""
        version, count = max(self._version, asked.after), len(asked.keys)
        before, self._single_version = self._single_version, version if count == 1 else None
        online = self._has_step and count == 1 and before is not None and version == before + 1
        program = STEP_ONE if online else ProgramId(DECIDE, count)
        name = program, self._next_step.get(program, 0)
        self._run(program, _Question(name, asked), range(count), version)
        return name

    def _run(self, program: ProgramId, question: _Question, positions: Sequence[int], version: int) -> None:
        """Have the parties decide for some keys of a question."""
        asked, step = question.asked, self._next_step.get(program, 0)
        self._next_step[program] = step + 1
        keys = asked.keys if len(positions) == len(asked.keys) else [asked.keys[position] for position in positions]
        eligible = b"" if asked.eligible is None else eligible_bitmap(self._arms, asked.eligible)
        self._ask_parties(program, decide_frame(program, step, version, keys, eligible))
        self._last = program, step
        run = _Run(question, positions, version, self._reports.collected(program.count, asked.eligible))
        self._runs[program, step] = run
        self._prepare(run, program, step)  # while the parties are at work

    def _ask_parties(self, program: ProgramId, frame: Frame) -> None:
        """Send a request; or hold one for `step` while the run before is under way, if no other is held."""
        before = self._last
        if program == STEP_ONE and self._returns and self._held is None and before is not None and before in self._runs:
            self._held = frame, before
            return
        self._send_to_parties(*self.take_held(), frame)

    def _send_to_parties(self, *requests: Frame) -> None:
        for request in requests:
            for party in self._parties:
                self._send(party, request)

    def take_held(self) -> list[Frame]:
        """The request that is held, if there is one, to be sent now."""
        held, self._held = self._held, None
        return [] if held is None else [held[0]]

    def release(self) -> None:
        """Send a request that is held for a run that has ended without arms."""
        if self._held is not None and self._held[1] not in self._runs:
            self._send_to_parties(*self.take_held())

    def _prepare(self, run: _Run, program: ProgramId, step: int) -> None:
        """Find out what can be known before the answers come."""
        run.ids = [self._ids.id_of(decision_number(program, step, place)) for place in range(program.count)]
        if self._returns:
            run.masks = self._stream(program).step(step).reshape(program.count, self._arms)

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        """A frame of a party."""
        if frame.kind is self._reports.kind:
            self._on_report(identity, frame)
        elif frame.kind is Kind.LEARNED:
            self._version = max(self._version, read_learned(frame) + 1)
        elif frame.kind is Kind.REFUSED:
            self._on_refused(identity, frame)
        else:
            raise FrameError(f"{identity} may not send {frame.kind.name}")

    def _on_report(self, identity: Identity, frame: Frame) -> None:
        name = program_and_step(frame)
        run = self._runs.get(name)
        if run is None or identity in run.told:
            raise FrameError(f"{identity} reported decision {name[1]}, which does not wait for it")
        run.collected.take(frame)
        run.told.add(identity)
        if len(run.told) == len(self._parties):
            del self._runs[name]
            self._version = max(self._version, run.version)
            self._take(run.question, dict(zip(run.positions, self._answers(name, run), strict=True)))

    def _take(self, question: _Question, answers: Mapping[int, KeyAnswer]) -> None:
        """Answers to some keys of a question; it ends with the last of them."""
        question.answers.update(answers)
        count = len(question.asked.keys)
        if len(question.answers) == count:
            self.outcomes[question.name] = [question.answers[position] for position in range(count)]

    def _answers(self, name: RunKey, run: _Run) -> list[KeyAnswer]:
        """Turn what all parties have told into arms, and into what is returned."""
        program, step = name
        arms = run.collected.arms()
        if arms is None:
            raise PeerError(f"the parties do not agree on decision {step}: they are not in step")
        if run.masks is not None:
            masked = masked_one_hots(np.array(arms), run.masks).tobytes()
            self.found[run.question.name] = ReturnedArms(self.name, program, step, masked)
        keys = run.question.asked.keys
        return [
            Decision(identifier, arm) if arm >= 0 else NoArmError(keys[position], ambiguous=arm == TWO_ARMS)
            for identifier, arm, position in zip(run.ids, arms, run.positions, strict=True)
        ]

    def _stream(self, program: ProgramId) -> Stream:
        """This role's words for a program: the masks of one-hots."""
        if program not in self._streams:
            words, ahead = program.count * self._arms, max(1, EXPANDED_AHEAD // program.count)
            self._streams[program] = program_stream(self._seed, program.label, words, ahead=ahead)
        return self._streams[program]

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        program, step = program_and_step(frame)
        refused, why = read_refused(frame)
        run = self._runs.pop((program, step), None)
        if run is None:
            return  # another party has refused it before
        question, version = run.question, max(self._version, run.version)
        if program == STEP_ONE and why in (NO_MODEL, NO_STOCK):
            self._run(DECIDE_ONE, question, run.positions, version)
            return
        if not refused:
            kind = UnavailableError if frame.round else BudgetSpentError if why == self._spent else FeatureError
            self.outcomes[question.name] = kind(f"{self._party_name(identity)} refused the decision: {why}")
            self.out_of_stock |= program.count == 1 and why == NO_STOCK
            return
        positions, named = [run.positions[place] for place in refused], self._party_name(identity)
        keys = question.asked.keys
        self._take(question, {at: RefusedKeyError(keys[at], identity.number, why, named=named) for at in positions})
        if left := [position for position in run.positions if position not in question.answers]:
            self._run(ProgramId(DECIDE, len(left)), question, left, version)


@dataclass(slots=True, repr=False, eq=False)
class _Waiting:
    """A request that was not answered yet: its name, if the application gave one, and what is asked."""

    request: str | None
    digest: bytes
    asked: Asked
    first: Ticket
    tickets: set[Ticket]
    answered: bool = False
    """Whether the answer is only being written down."""


class Actor(Client):
    """Asks the parties; `outcomes` holds what came of it, by ticket: an answer for each key, or the error to raise for
    all."""

    me = ACTOR

    def __init__(
        self,
        federation: Federation,
        send: Send,
        send_later: Send | None = None,
        *,
        records: ActorRecords | MemoryActorRecords,
        peer_loss: PeerLoss,
        max_batch: int = 256,
        name_of: Callable[[Identity], str] = str,
    ) -> None:
        super().__init__(federation, send, peer_loss=peer_loss, max_batch=max_batch, name_of=name_of)
        self._send_later = send_later or send
        self.outcomes: dict[Ticket, Outcome] = {}
        self._records = records
        self._tickets = itertools.count()
        self._waiting: dict[Ticket, _Waiting] = {}  # by the first ticket, in the order of requests
        self._by_ticket: dict[Ticket, _Waiting] = {}
        self._by_name: dict[str, _Waiting] = {}
        self._asked: dict[RunKey, _Waiting] = {}
        self._epoch: ActorEpoch | None = None
        self._reported = arm_reports(federation).kind
        self._unwritten: set[int] = set()
        """Runs whose one-hots are being written down."""
        self._before_end: set[int] | None = None
        """Those of earlier epochs among them, as long as END_OF_ARMS is still to be sent."""

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting

    def health(self) -> Health:
        """How it is doing."""
        return Health(waiting=len(self._waiting), out_of_stock=self._epoch is not None and self._epoch.out_of_stock)

    def ask(
        self, *keys: str, after: int = 0, request: str | None = None, eligible: Iterable[int] | None = None
    ) -> Ticket:
        """Ask for decisions, now or when an epoch is open. `eligible` names the arms that may be chosen for each of the
        keys; all may unless given."""
        check_request(keys, after, self._max_batch)
        asked = Asked(keys, after, self._checked_eligible(eligible))
        ticket = next(self._tickets)
        digest = b""
        if request is not None:
            digest = asked.digest
            if self._answer_again(ticket, check_name(request), digest, keys):
                return ticket
        if len(self._waiting) >= MAX_ASKED or (self._epoch is not None and self._epoch.full):
            raise UnavailableError(f"{MAX_ASKED} requests wait already; make this one again later")
        waiting = _Waiting(request, digest, asked, ticket, {ticket})
        self._waiting[ticket] = self._by_ticket[ticket] = waiting
        if request is not None:
            self._by_name[request] = waiting
            self._records.ask(request, digest, lambda: None)
        if self._epoch is not None:
            self._asked[self._epoch.ask(asked)] = waiting
        return ticket

    def _checked_eligible(self, eligible: Iterable[int] | None) -> frozenset[int] | None:
        """Some arms; None if it is all of them."""
        if eligible is None:
            return None
        if not self.federation.learner.takes_eligible:
            raise InputError(f"suite {self.federation.suite} takes no eligible arms: all may be chosen")
        arms = list(eligible)
        eligible_words(self.federation.arms, arms)  # raises if they are none, repeated or not there
        return None if len(arms) == self.federation.arms else frozenset(int(arm) for arm in arms)

    def expected(self, ticket: Ticket) -> bool:
        """Whether an answer is awaited, or there."""
        return ticket in self.outcomes or ticket in self._by_ticket

    def give_up(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any longer. What has a name is answered all the same, for when it is asked for
        again."""
        self.outcomes.pop(ticket, None)
        waiting = self._by_ticket.pop(ticket, None)
        if waiting is not None:
            waiting.tickets.discard(ticket)
            if not waiting.tickets and waiting.request is None:
                del self._waiting[waiting.first]

    def _answer_again(self, ticket: Ticket, request: str, digest: bytes, keys: Sequence[str]) -> bool:
        """Give the reply that was given under this name, or is awaited; whether it was ever asked for."""
        waiting = self._by_name.get(request)
        for other in (self._records.asked(request), None if waiting is None else waiting.digest):
            if other is not None and other != digest:
                raise InputError(
                    f"request {request!r} was made before, with other keys, other eligible arms or another `after`"
                )
        if (reply := self._records.reply(request, keys, self._party_name)) is not None:
            self.outcomes[ticket] = reply
        elif waiting is not None:
            waiting.tickets.add(ticket)
            self._by_ticket[ticket] = waiting
        return reply is not None or waiting is not None

    def _missing_at(self, said: bytes) -> Sequence[Identity]:
        return decode_members(said)

    def _say(self, identity: Identity) -> bytes:
        heard = self._records.heard.get(identity.number) if identity in self.parties else None
        return b"" if heard is None else heard.encode()

    def _start(self, plan: Plan, seed: bytes) -> None:
        if self.federation.learner.answers.returned:
            self._begin_arms()
        self._epoch = epoch = ActorEpoch(self.federation, self._send, seed, plan.length, self._party_name)
        for waiting in self._waiting.values():
            if not waiting.answered:
                self._asked[epoch.ask(waiting.asked)] = waiting

    def _stop(self) -> None:
        self._epoch = None
        self._before_end = None
        self._asked = {}

    def _on_epoch_frame(self, identity: Identity, frame: Frame) -> None:
        if frame.kind is Kind.ARMS_KEPT:
            self._records.arms_kept(identity.number, read_arms_kept(frame), len(self.parties))
            return
        epoch = self._epoch
        if epoch is None:
            return  # told before all parties are active: a new lesson, or the end of a run nobody asked for
        epoch.on_frame(identity, frame)
        if self.lasting and frame.kind is self._reported:
            self._note_heard(identity, frame)
        while epoch.outcomes:
            self._settle(*epoch.outcomes.popitem())
        epoch.release()

    def _note_heard(self, identity: Identity, frame: Frame) -> None:
        assert self._epoch is not None
        name = decision_name(self._epoch.name, decision_number(*program_and_step(frame)))
        heard = self._records.heard.get(identity.number, Heard(0))
        self._records.heard[identity.number] = heard._replace(decided=name)

    # Returning arms

    def _begin_arms(self) -> None:
        """Send what was found in earlier epochs and is not kept by all parties."""
        for returned in self._records.unkept:
            self._send_arms(returned)
        self._before_end = set(self._unwritten)
        self._end_arms()

    def _arms_last(self, found: ReturnedArms, give: Callable[[], None]) -> None:
        """What was found is written down: send it, and give the arms."""
        self._unwritten.discard(found.name)
        if self.active:
            self._send_arms(found)
            if self._before_end is not None:
                self._before_end.discard(found.name)
                self._end_arms()
        give()

    def _send_arms(self, returned: ReturnedArms) -> None:
        held = [] if self._epoch is None else self._epoch.take_held()
        frame = arms_frame(returned)
        for party in self.parties:
            for request in held:
                self._send_later(party, request)
            self._send(party, frame)

    def _end_arms(self) -> None:
        """Say that all arms of earlier epochs were sent, when they were."""
        if not self._before_end:
            self._before_end = None
            for party in self.parties:
                self._send(party, END_OF_ARMS)

    # Answering

    def _settle(self, name: RunKey, outcome: Outcome) -> None:
        """Give an answer. One that must be the same when the request is repeated lasts before, and so do arms that are
        returned, together with it."""
        assert self._epoch is not None
        waiting, found = self._asked.pop(name), self._epoch.found.pop(name, None)
        waiting.answered = True
        give: Callable[[], None] = partial(self._give, waiting, outcome)
        if found is not None:
            self._unwritten.add(found.name)
            give = partial(self._arms_last, found, give)
        answers = [] if isinstance(outcome, HiddenArmError) else outcome
        if waiting.request is not None and any(isinstance(answer, Decision) for answer in answers):
            self._records.answer(waiting.request, waiting.digest, answers, give, found)
        elif found is not None:
            self._records.keep_arms(found, give)
        else:
            give()

    def _give(self, waiting: _Waiting, outcome: Outcome) -> None:
        self._waiting.pop(waiting.first, None)
        if waiting.request is not None:
            self._by_name.pop(waiting.request, None)
        for ticket in waiting.tickets:
            del self._by_ticket[ticket]
            self.outcomes[ticket] = outcome


def all_decided(answers: Sequence[KeyAnswer]) -> list[Decision]:
    """The decisions for all keys; raises for the first key that has none."""
    decisions = []
    for answer in answers:
        if not isinstance(answer, Decision):
            raise answer
        decisions.append(answer)
    return decisions


def check_request(keys: Sequence[str], after: int, max_batch: int) -> None:
    """Refuse what cannot be asked."""
    if not 1 <= len(keys) <= max_batch:
        raise InputError(f"a request has 1 to {max_batch} keys, got {len(keys)}")
    for key in keys:
        _check_key(key)
    if type(after) is not int or not 0 <= after < MAX_LESSONS:
        raise InputError("`after` must be a version of the model: a whole number, not negative")


def _check_key(key: str) -> None:
    """Refuse what is no key: it must be text that can be sent, not empty and not too long."""
    try:
        fits = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise FeatureError(f"a key must be text of 1 to {MAX_KEY_BYTES} bytes")
