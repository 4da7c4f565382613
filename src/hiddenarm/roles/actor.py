"""The actor, as a state machine without I/O: it asks for decisions by key; it alone learns the arms (`arms`).

Requests wait until an epoch is open, and are asked again in the next one if theirs ended before they were answered;
that is another draw for the same key, and only the last one is given. A request that the application has named is
answered once: its decisions are written down before they are given, and given again whenever the request is repeated,
with the refusals of single keys among them. The same name with other content is refused. A request of which every key
was refused has no answer to keep: made again, it is asked anew.

A decision may be deferred: the application has it, and is to say whether it used it. Its id, without which nobody can
reward it, is for the actor to keep back until it is activated (`activate`). That, too, lasts before it is told.

A run in which a party has no features for some keys is refused as a whole, with the positions of these keys. Then the
actor asks again for the others, in another run with its own randomness. A party names all its keys at once, so there
are at most as many runs more as parties that refuse; and each has fewer keys than the one before.

Where the parties do not have the arms, the actor returns them, masked. Two one-hots under one mask would reveal both:

    1. what will be sent is written down, before an arm is given to anybody, and before it is sent
    2. it is sent to all parties, and where state lasts again in every epoch, byte for byte the same
    3. until all parties have said that they keep it

In each epoch, END_OF_ARMS follows all that was found in earlier ones: what has not come by then never comes.

Where few of many arms are eligible, the run is one among these only (`bandit.subsets`): all parties find the same slots
from the arms that it names, which are those of all its keys together, without the retired ones.

Requests for single keys may share a run (`together`): while as many runs as are worth it are under way, those that come
wait, and are then decided in the rounds of one, each among its own eligible arms. None of them makes it larger than it
would be for the first alone: they have as many slots, and so have all of their arms together. They are told apart again
in what comes of it: a key that a party refuses is the matter of its own request, and the others are asked again, among
themselves. A run that is refused as a whole, as there is nothing in stock for so many, say, is asked again one by one.
So a request has no more runs than it would have alone, but for one for each party, and one. A run has no more keys than
fit into what is dealt at once. Requests share none where exploration depends on how many are asked for at once.

In strictly online use the actor asks for `step`, which goes on to learn when the reward has come: if the model that is
asked for has one lesson more than that of the request before, which was for a single decision, answered or not. A party
that cannot run it refuses, and the actor asks for `decide`. While the request before is under way, one for `step` is
held, and leaves with the arm of that: no party can begin it before. So two messages are one.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from hiddenarm.bandit.answers import TWO_ARMS, eligible_words, masked_arms
from hiddenarm.bandit.catalogue import STEP_ONE, ProgramId, deciding, program_text
from hiddenarm.bandit.decisions import decision_name, decision_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.subsets import Subset, subset_sizes, width_of
from hiddenarm.errors import (
    BudgetSpentError,
    ConflictError,
    EventError,
    FeatureError,
    FrameError,
    HiddenArmError,
    InputError,
    NoArmError,
    PeerError,
    RefusedKeyError,
    UnavailableError,
)
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import program_stream
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import Words
from hiddenarm.roles.arms import Collected, arm_reports
from hiddenarm.roles.client import Client, check_name
from hiddenarm.roles.client_records import ActorRecords, Deferral, KeyAnswer, MemoryActorRecords, Reply
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.epochs.plan import Heard, Plan, decode_members
from hiddenarm.roles.health import Health
from hiddenarm.roles.messages import (
    ACTOR,
    ALL_ELIGIBLE,
    END_OF_ARMS,
    MAX_KEY_BYTES,
    MAX_LESSONS,
    NO_MODEL,
    NO_STOCK,
    Eligible,
    Kind,
    ReturnedArms,
    arms_frame,
    decide_among_frame,
    decide_frame,
    eligible_bitmap,
    program_and_step,
    read_arms_kept,
    read_client_seed,
    read_learned,
    read_refused,
)
from hiddenarm.roles.runs import MAX_WAITING, RunKey, Send
from hiddenarm.roles.stock import BATCH_BYTES, step_bytes

MAX_ASKED = MAX_WAITING // 2
"""Requests that may be under way: a party can be so many runs behind a peer, and keep what is for them."""

RUNS_AT_ONCE = 2
"""Runs under way from which on requests wait to be decided together: the parties are at work on one of them while the
words of the other travel."""

EXPANDED_AHEAD = 64
"""Decisions whose masks are expanded from the seed together."""

Ticket = int
"""Names a request that waits, in this process."""

Outcome = list[KeyAnswer] | HiddenArmError
"""What becomes of a request: an answer for each key, or the error to raise for all."""

_NO_ARMS: frozenset[int] = frozenset()

_ELIGIBLE, _EXCLUDED = 2**32 - 1, 2**32 - 2
"""Before the arms of a digest: what they are."""

RunOutcome = list[KeyAnswer | None] | HiddenArmError
"""What becomes of requests that were asked together: None for a key that is to be asked for again."""


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """What the application asks, as it says it: decisions for some keys, by a model that holds at least `after`
    lessons; which arms may be chosen for each of them, None for all, and which of these may not."""

    keys: tuple[str, ...]
    after: int = 0
    eligible: frozenset[int] | None = None
    excluded: frozenset[int] = frozenset()

    @property
    def digest(self) -> bytes:
        """The same for the same content, also after arms were added or retired. Arms come last, so that without them it
        is that of earlier versions."""
        digest = hashlib.blake2b(self.after.to_bytes(8, "big"), digest_size=32, person=b"hiddenarm ask")
        for key in self.keys:
            encoded = key.encode()
            digest.update(len(encoded).to_bytes(4, "big") + encoded)
        if self.eligible is not None:
            digest.update(_digested(_ELIGIBLE, self.eligible))
        if self.excluded:
            digest.update(_digested(_EXCLUDED, self.excluded))
        return digest.digest()

    def allowed(self, arms: int) -> frozenset[int] | None:
        """The arms that may be chosen, of so many; None for all."""
        if self.eligible is None and not self.excluded:
            return None
        allowed = (frozenset(range(arms)) if self.eligible is None else self.eligible) - self.excluded
        return None if len(allowed) == arms else allowed


def _digested(what: int, arms: Iterable[int]) -> bytes:
    return b"".join(arm.to_bytes(4, "big") for arm in (what, *sorted(arms)))


@dataclass(slots=True, repr=False)
class _Question:
    """What was asked in one epoch, and what became of each key. It is named by its first run. `eligible` has the arms
    that may be chosen for each key, None for all. It is `shared` if it is several requests, for a key each."""

    name: RunKey
    keys: tuple[str, ...]
    eligible: Sequence[frozenset[int] | None]
    shared: bool
    answers: dict[int, KeyAnswer] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class _Run:
    """A run under way: which keys of a question it is for, by position; the model they want, among which arms they are
    decided, the ids of the decisions, the masks under which their one-hots are returned, who has told about them, and
    what."""

    question: _Question
    positions: Sequence[int]
    version: int
    collected: Collected
    subset: Subset | None = None
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
        self.outcomes: dict[RunKey, RunOutcome] = {}
        self.found: dict[RunKey, ReturnedArms] = {}
        self.out_of_stock = False
        """Whether the last party has refused a single decision, as it has nothing in stock."""
        self._send = send
        self._party_name = name_of
        self._arms = federation.arms
        self._in_use = in_use(federation)
        self._federation, self._arm_features = federation, federation.arm_features
        self._subset_sizes = subset_sizes(federation)
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._ids, self._seed = read_client_seed(seed)
        self.name = int(self._ids.epoch, 16)
        self._reports = arm_reports(federation)
        self._streams: dict[ProgramId, Stream] = {}
        self._next_step: dict[ProgramId, int] = {}
        self.version = version
        """The newest version of the model that is known of."""
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

    def ask(self, *requests: Asked) -> RunKey:
        """Ask all parties to decide: for a request, or in one run for several with a key each."""
        if len(requests) == 1:
            (asked,) = requests
            keys, after = asked.keys, asked.after
            eligible = [asked.allowed(self._arms)] * len(keys)
        else:
            keys = tuple(key for asked in requests for key in asked.keys)
            after = max(asked.after for asked in requests)
            eligible = [asked.allowed(self._arms) for asked in requests for _ in asked.keys]
        version, count = max(self.version, after), len(keys)
        before, self._single_version = self._single_version, version if count == 1 else None
        online = self._has_step and count == 1 and before is not None and version == before + 1
        subset = self._subset(eligible)
        program = STEP_ONE if online else deciding(count, None if subset is None else subset.size)
        name = program, self._next_step.get(program, 0)
        self._run(program, _Question(name, keys, eligible, len(requests) > 1), range(count), version, subset)
        return name

    def _subset(self, eligible: Sequence[frozenset[int] | None]) -> Subset | None:
        """Among which arms is decided for some keys; None if all arms are taken along."""
        if not self._subset_sizes:
            return None
        arms = self._in_use & union_of(eligible, self._in_use)
        size = next((size for size in self._subset_sizes if size >= len(arms)), None)
        return None if size is None else Subset(np.array(sorted(arms)), size, self._arms)

    def _run_again(self, question: _Question, positions: Sequence[int], version: int) -> None:
        """Have the parties decide for keys of a question for which they did not."""
        subset = self._subset([question.eligible[position] for position in positions])
        program = deciding(len(positions), None if subset is None else subset.size)
        self._run(program, question, positions, version, subset)

    def _run(
        self, program: ProgramId, question: _Question, positions: Sequence[int], version: int, subset: Subset | None
    ) -> None:
        """Have the parties decide for some keys of a question."""
        step = self._next_step.get(program, 0)
        self._next_step[program] = step + 1
        keys, eligible = question.keys, question.eligible
        if len(positions) < len(keys):
            keys = tuple(keys[position] for position in positions)
            eligible = [eligible[position] for position in positions]
        may_win = [self._in_use if arms is None else self._in_use & arms for arms in eligible]
        if subset is None:
            request = decide_frame(program, step, version, keys, *self._bitmaps(eligible))
        else:
            may_win = _slots_of(subset, may_win)
            named = self._named_arms(subset, eligible, may_win)
            request = decide_among_frame(program, step, version, keys, named)
        self._ask_parties(program, request)
        self._last = program, step
        run = _Run(question, positions, version, self._reports.of(program).collected(may_win), subset)
        self._runs[program, step] = run
        self._prepare(run, program, step)  # while the parties are at work

    def _named_arms(
        self, subset: Subset, eligible: Sequence[frozenset[int] | None], slots: Sequence[frozenset[int]]
    ) -> Eligible:
        """As the parties are told among which arms is decided, and which of them may win for each key."""
        if set(eligible) == {None}:
            return ALL_ELIGIBLE
        arms = tuple(subset.arms.tolist())
        if all(len(own) == len(arms) for own in slots):
            return Eligible((), arms)
        return Eligible([eligible_bitmap(len(arms), own) for own in slots], arms)

    def _bitmaps(self, eligible: Sequence[frozenset[int] | None]) -> list[bytes]:
        """As the parties are told: nothing where all arms may be chosen for all keys, one where it is the same."""
        different = set(eligible)
        if different == {None}:
            return []
        told = {arms: eligible_bitmap(self._arms, range(self._arms) if arms is None else arms) for arms in different}
        return [told[arms] for arms in (eligible[:1] if len(different) == 1 else eligible)]

    def _ask_parties(self, program: ProgramId, frame: Frame) -> None:
        """Send a request; or hold one for `step` while the run before is under way, if no other is held."""
        before = self._last
        held = program == STEP_ONE and self._held is None
        if held and self._reports.returned(program) and before is not None and before in self._runs:
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
        if self._reports.returned(program):
            run.masks = self._stream(program).step(step).reshape(program.count, width_of(self._federation, program))

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        """A frame of a party."""
        if frame.kind in self._reports.kinds:
            self._on_report(identity, frame)
        elif frame.kind is Kind.LEARNED:
            self.version = max(self.version, read_learned(frame) + 1)
        elif frame.kind is Kind.REFUSED:
            self._on_refused(identity, frame)
        else:
            raise FrameError(f"{identity} may not send {frame.kind.name}")

    def _on_report(self, identity: Identity, frame: Frame) -> None:
        name = program_and_step(frame)
        run = self._runs.get(name)
        if run is None or identity in run.told or frame.kind is not self._reports.of(name[0]).kind:
            raise FrameError(f"{identity} reported decision {name[1]}, which does not wait for it")
        run.collected.take(frame)
        run.told.add(identity)
        if len(run.told) == len(self._parties):
            del self._runs[name]
            self.version = max(self.version, run.version)
            self._take(run.question, dict(zip(run.positions, self._answers(name, run), strict=True)))

    def _take(self, question: _Question, answers: Mapping[int, KeyAnswer]) -> None:
        """Answers to some keys of a question; it ends with the last of them."""
        question.answers.update(answers)
        count = len(question.keys)
        if len(question.answers) == count:
            self.outcomes[question.name] = [question.answers[position] for position in range(count)]

    def _answers(self, name: RunKey, run: _Run) -> list[KeyAnswer]:
        """Turn what all parties have told into arms, and into what is returned."""
        program, step = name
        arms = run.collected.arms()
        if arms is None:
            raise PeerError(f"the parties do not agree on decision {step}: they are not in step")
        found = np.array(arms)
        if run.subset is not None:
            arms = run.subset.arms_of(found).tolist()
        if run.masks is not None:
            table = self._arm_features
            masked = masked_arms(found if table is None else np.array(arms), run.masks, table).tobytes()
            self.found[run.question.name] = ReturnedArms(self.name, program, step, masked)
        keys = run.question.keys
        return [
            Decision(identifier, arm) if arm >= 0 else NoArmError(keys[position], ambiguous=arm == TWO_ARMS)
            for identifier, arm, position in zip(run.ids, arms, run.positions, strict=True)
        ]

    def _stream(self, program: ProgramId) -> Stream:
        """This role's words for a program: the masks of one-hots."""
        if program not in self._streams:
            words = program.count * width_of(self._federation, program)
            ahead = max(1, EXPANDED_AHEAD // program.count)
            self._streams[program] = program_stream(self._seed, program.label, words, ahead=ahead)
        return self._streams[program]

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        program, step = program_and_step(frame)
        refused, why = read_refused(frame)
        run = self._runs.pop((program, step), None)
        if run is None:
            return  # another party has refused it before
        question, version = run.question, max(self.version, run.version)
        if program == STEP_ONE and why in (NO_MODEL, NO_STOCK):
            self._run_again(question, run.positions, version)
            return
        if not refused:
            kind = UnavailableError if frame.round else BudgetSpentError if why == self._spent else FeatureError
            self.outcomes[question.name] = kind(f"{self._party_name(identity)} refused the decision: {why}")
            self.out_of_stock |= program.count == 1 and why == NO_STOCK
            return
        positions, named = [run.positions[place] for place in refused], self._party_name(identity)
        keys = question.keys
        self._take(question, {at: RefusedKeyError(keys[at], identity.number, why, named=named) for at in positions})
        if question.shared:
            self.outcomes[question.name] = [question.answers.get(at) for at in range(len(keys))]
        elif left := [position for position in run.positions if position not in question.answers]:
            self._run_again(question, left, version)


@dataclass(slots=True, repr=False, eq=False)
class _Waiting:
    """A request that was not answered yet: its name, if the application gave one, and what is asked."""

    request: str | None
    digest: bytes
    asked: Asked
    first: Ticket
    tickets: set[Ticket]
    together: bool = False
    """Whether it may wait to be asked together with others."""
    answered: bool = False
    """Whether the answer is only being written down."""

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for it, or may ask for it again."""
        return bool(self.tickets) or self.request is not None


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
        self._asked: dict[RunKey, list[_Waiting]] = {}
        self._joining: dict[Ticket, _Waiting] = {}
        """Requests that wait to be asked together, by the first ticket."""
        self._in_use, self._subset_sizes = in_use(federation), subset_sizes(federation)
        self._most: dict[int | None, int] = {}
        """How many requests may share a run, by its slots."""
        self._joint: set[RunKey] = set()
        """The runs under way that were asked for such requests. Others do not count: they would hold these up."""
        budget = federation.budget
        self._joins = federation.policy.explores_alike and not (budget is not None and budget.explores)
        """Whether requests may share runs. A schedule of exploration counts batches of each size apart, and a budget
        that ends in exploration counts what was asked for: then a request must not depend on who else asks."""
        self._epoch: ActorEpoch | None = None
        self._reports = arm_reports(federation)
        self._unwritten: set[int] = set()
        """Runs whose one-hots are being written down."""
        self._before_end: set[int] | None = None
        """Those of earlier epochs among them, as long as END_OF_ARMS is still to be sent."""
        self._chosen: Counter[int] = Counter()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting

    def health(self) -> Health:
        """How it is doing."""
        return Health(
            waiting=len(self._waiting),
            out_of_stock=self._epoch is not None and self._epoch.out_of_stock,
            arms=dict(self._chosen),
            values=self.values,
        )

    def ask(
        self,
        *keys: str,
        after: int = 0,
        request: str | None = None,
        eligible: Iterable[int] | None = None,
        excluded: Iterable[int] = (),
        deferred: bool = False,
        together: bool = False,
    ) -> Ticket:
        """Ask for decisions, now or when an epoch is open. `eligible` names the arms that may be chosen for each of the
        keys; all may unless given, but not those that are `excluded`. A decision that is `deferred` is to be activated
        before it is rewarded. With `together`, a request for one key may wait for runs that are under way, and share
        one with others."""
        check_request(keys, after, self._max_batch)
        if deferred and (request is None or len(keys) != 1):
            raise InputError("only a single decision whose request has a name can be deferred")
        asked = Asked(keys, after, self._named(eligible), self._named(list(excluded) or None) or _NO_ARMS)
        ticket = next(self._tickets)
        digest = b""
        if request is not None:
            digest = asked.digest
            if self._answer_again(ticket, check_name(request), digest, keys, deferred):
                return ticket
        self._check_allowed(asked)
        if len(self._waiting) >= MAX_ASKED or (self._epoch is not None and self._epoch.full):
            raise UnavailableError(f"{MAX_ASKED} requests wait already; make this one again later")
        waiting = _Waiting(request, digest, asked, ticket, {ticket}, together and len(keys) == 1 and self._joins)
        self._waiting[ticket] = self._by_ticket[ticket] = waiting
        if request is not None:
            self._by_name[request] = waiting
            self._records.ask(request, digest, lambda: None, deferred=deferred)
        if self._epoch is not None:
            self._ask_or_join(self._epoch, waiting)
            if self._joining:
                self._ask_joined(self._epoch)
        return ticket

    # Asking the parties

    def _ask_or_join(self, epoch: ActorEpoch, waiting: _Waiting) -> None:
        """Ask, or have a request wait for others. One that needs a lesson which is still to come would hold them up."""
        if waiting.together and waiting.asked.after <= epoch.version:
            self._joining[waiting.first] = waiting
        else:
            self._ask_now(epoch, [waiting])

    def _ask_joined(self, epoch: ActorEpoch) -> None:
        """Ask for what waits, unless enough is under way."""
        while self._joining and len(self._joint) < RUNS_AT_ONCE:
            alike = self._joinable()
            for waiting in alike:
                del self._joining[waiting.first]
            self._joint.add(self._ask_now(epoch, alike))

    def _joinable(self) -> list[_Waiting]:
        """The first request that waits, and others that may share its run: those of as many slots, as long as that is
        also enough for all of their arms together."""
        joining = iter(self._joining.values())
        first = next(joining)
        slots = self._slots(first.asked)
        most, alike = self._most_joined(slots), [first]
        if slots is None:
            alike += itertools.islice((one for one in joining if self._slots(one.asked) is None), most - 1)
        else:
            arms = self._allowed_in_use(first.asked)
            for one in joining:
                if len(alike) == most:
                    break
                if self._slots(one.asked) == slots and len(arms | self._allowed_in_use(one.asked)) <= slots:
                    arms |= self._allowed_in_use(one.asked)
                    alike.append(one)
        return alike[: batch_size(len(alike), most)]

    def _slots(self, asked: Asked) -> int | None:
        """Among how many slots is decided for a request; None if among all arms."""
        if not self._subset_sizes:
            return None
        arms = len(self._allowed_in_use(asked))
        return next((size for size in self._subset_sizes if size >= arms), None)

    def _allowed_in_use(self, asked: Asked) -> frozenset[int]:
        """The arms that may be chosen for a request."""
        allowed = asked.allowed(self.federation.arms)
        return self._in_use if allowed is None else allowed & self._in_use

    def _ask_now(self, epoch: ActorEpoch, batch: list[_Waiting]) -> RunKey:
        name = epoch.ask(*(waiting.asked for waiting in batch))
        self._asked[name] = batch
        return name

    def _most_joined(self, slots: int | None) -> int:
        """How many requests may share a run: no more than fit into what is dealt at once, however many arms there
        are."""
        if slots not in self._most:
            layout = layout_of(program_text(self.federation, deciding(1, slots)), self.federation.parties, 1)
            self._most[slots] = max(1, min(self._max_batch, BATCH_BYTES // max(1, step_bytes(layout))))
        return self._most[slots]

    def _ask_again(self, epoch: ActorEpoch, batch: Sequence[_Waiting], most: int) -> None:
        """What was asked together and has no answer is asked again, at most so many at once, and with no others: or
        these might keep it from an answer for ever."""
        left = [waiting for waiting in batch if waiting.wanted]
        while left:
            count = batch_size(len(left), most)
            self._joint.add(self._ask_now(epoch, left[:count]))
            left = left[count:]

    def _named(self, arms: Iterable[int] | None) -> frozenset[int] | None:
        """Arms of this federation that a request names."""
        if arms is None:
            return None
        if not self.federation.learner.takes_eligible:
            raise InputError(f"suite {self.federation.suite} takes no eligible arms: all may be chosen")
        named = list(arms)
        eligible_words(self.federation.arms, named)  # raises if there is none, or one that is not there
        return frozenset(int(arm) for arm in named)

    def _check_allowed(self, asked: Asked) -> None:
        """Refuse a new request that leaves nothing to choose. One that was answered is known before: arms may have been
        retired since."""
        allowed = asked.allowed(self.federation.arms)
        if allowed is not None:
            eligible_words(self.federation.arms, sorted(allowed), self.federation.retired)

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
            if not waiting.wanted:
                del self._waiting[waiting.first]
                self._joining.pop(waiting.first, None)

    # Deferred decisions

    def decided_under(self, request: str) -> str:
        """The id of the decision that a request got, if it may be rewarded."""
        identifier = self._decided_under(request)
        if self._records.deferral(request) is Deferral.WAITING:
            raise EventError(f"the decision of request {request!r} is not activated", inactive=True)
        return identifier

    def activate(self, request: str, then: Callable[[], None]) -> str:
        """Let the decision of a request be rewarded; it has lasted when `then` is called. The id of the decision."""
        identifier = self._decided_under(request)
        if self._records.deferral(request) is Deferral.WAITING:
            self._records.activate(request, then)
        else:
            then()
        return identifier

    def _decided_under(self, request: str) -> str:
        """The id of the only decision under a name, also of one that waits to be activated."""
        ids = self._records.decided(check_name(request))
        if ids is None:
            raise EventError(f"no decision was made under the name {request!r}")
        if len(ids) != 1:
            raise EventError(f"request {request!r} has the decisions of {len(ids)} keys: use their ids")
        return ids[0]

    def _answer_again(self, ticket: Ticket, request: str, digest: bytes, keys: Sequence[str], deferred: bool) -> bool:
        """Give the reply that was given under this name, or is awaited; whether it was ever asked for."""
        waiting = self._by_name.get(request)
        for other in (self._records.asked(request), None if waiting is None else waiting.digest):
            if other is not None and other != digest:
                raise ConflictError(
                    f"request {request!r} was made before, with other keys, other eligible arms or another `after`"
                )
        known = waiting is not None or self._records.asked(request) is not None
        if known and deferred is not (self._records.deferral(request) is not Deferral.NONE):
            raise ConflictError(f"request {request!r} was made before, {'not ' if deferred else ''}deferred")
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
        if self.lasting or self._reports.may_return:  # else arms may be returned of earlier epochs only
            self._begin_arms()
        self._epoch = epoch = ActorEpoch(self.federation, self._send, seed, plan.length, self._party_name)
        for waiting in self._waiting.values():
            if not waiting.answered:
                self._ask_or_join(epoch, waiting)
        self._ask_joined(epoch)

    def _stop(self) -> None:
        self._epoch = None
        self._joining = {}
        self._joint = set()
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
        if self.lasting and frame.kind in self._reports.kinds:
            self._note_heard(identity, frame)
        if epoch.outcomes:
            while epoch.outcomes:
                self._settle(epoch, *epoch.outcomes.popitem())
            self._ask_joined(epoch)
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

    def _settle(self, epoch: ActorEpoch, name: RunKey, outcome: RunOutcome) -> None:
        """Give answers, and ask again for what has none. One that must be the same when the request is repeated lasts
        before, and so do arms that are returned, all of them together."""
        batch, found = self._asked.pop(name), epoch.found.pop(name, None)
        self._joint.discard(name)
        if len(batch) == 1:
            answered = [(batch[0], _whole(outcome))]
        elif isinstance(outcome, HiddenArmError):
            self._ask_again(epoch, batch, most=1)
            return
        else:
            pairs = list(zip(batch, outcome, strict=True))
            answered = [(waiting, [answer]) for waiting, answer in pairs if answer is not None]
            self._ask_again(epoch, [waiting for waiting, answer in pairs if answer is None], len(batch))
        for waiting, _ in answered:
            waiting.answered = True
        give: Callable[[], None] = partial(self._give_all, answered)
        if found is not None:
            self._unwritten.add(found.name)
            give = partial(self._arms_last, found, give)
        if replies := [reply for each in answered if (reply := _reply(*each)) is not None]:
            self._records.answer(replies, give, found)
        elif found is not None:
            self._records.keep_arms(found, give)
        else:
            give()

    def _give_all(self, answered: Sequence[tuple[_Waiting, Outcome]]) -> None:
        for waiting, outcome in answered:
            self._give(waiting, outcome)

    def _give(self, waiting: _Waiting, outcome: Outcome) -> None:
        self._waiting.pop(waiting.first, None)
        if not isinstance(outcome, HiddenArmError):
            for answer in outcome:
                if isinstance(answer, Decision):
                    self._chosen[answer.arm] += 1
        if waiting.request is not None:
            self._by_name.pop(waiting.request, None)
        for ticket in waiting.tickets:
            del self._by_ticket[ticket]
            self.outcomes[ticket] = outcome


def in_use(federation: Federation) -> frozenset[int]:
    """The arms that are not retired."""
    return frozenset(range(federation.arms)) - frozenset(federation.retired)


def union_of(eligible: Sequence[frozenset[int] | None], whole: frozenset[int]) -> frozenset[int]:
    """The arms that are eligible for any of some keys."""
    return whole if None in eligible else frozenset().union(*(arms for arms in eligible if arms is not None))


def _slots_of(subset: Subset, may_win: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """The slots of the arms that may win, for each key."""
    slots = {arm: slot for slot, arm in enumerate(subset.arms.tolist())}
    return [frozenset(slots[arm] for arm in arms) for arms in may_win]


def _whole(outcome: RunOutcome) -> Outcome:
    """What became of a request that was asked alone: no key of it is left to be asked for again."""
    if isinstance(outcome, HiddenArmError):
        return outcome
    return [answer for answer in outcome if answer is not None]


def _reply(waiting: _Waiting, outcome: Outcome) -> Reply | None:
    """What is kept of an answer, for when the request is repeated: nothing where it has no name, or no decision."""
    if waiting.request is None or isinstance(outcome, HiddenArmError):
        return None
    if not any(isinstance(answer, Decision) for answer in outcome):
        return None
    return Reply(waiting.request, waiting.digest, outcome)


def all_decided(answers: Sequence[KeyAnswer]) -> list[Decision]:
    """The decisions for all keys; raises for the first key that has none."""
    decisions = []
    for answer in answers:
        if not isinstance(answer, Decision):
            raise answer
        decisions.append(answer)
    return decisions


def batch_size(waiting: int, most: int) -> int:
    """How many of those that wait are decided together: a power of two, so that there are few programs, each of which
    is compiled once and soon kept in stock."""
    return 1 << (min(waiting, most).bit_length() - 1)


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
