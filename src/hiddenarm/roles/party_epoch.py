"""What a party does in an open epoch: it decides and learns. `Party` opens epochs, and hands it the frames.

It holds its own features, its shares of the model and of every decision that waits for a reward. It answers the actor's
DECIDE and the rewarder's REWARD by running programs with the other parties. Runs of several decisions may overlap;
lessons are learned one after another, in the rewarder's order (`updater`).

Features may have to be waited for (`LookUp`): of a database, say. Then the look-up of a request begins when the request
comes, and its decision when the features are there; meanwhile rounds, rewards and other requests are taken as ever.

The actor returns the arms that it has found, under masks (ARMS). Where state lasts it sends them until this party has
said that it keeps them, which is not urgent: some runs are named together, when there is nothing else to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import partial

import numpy as np

from hiddenarm.bandit.answers import eligible_words, without_retired
from hiddenarm.bandit.catalogue import DECIDING, LEARN, LEARN_ONE, STEP_ONE, ProgramId, is_window, slots_of
from hiddenarm.bandit.decisions import decision_name, decision_number, split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided, row_digest
from hiddenarm.bandit.schedule import GATHERED_BEFORE_A_BATCH
from hiddenarm.bandit.subsets import Subset, subset_of, width_of
from hiddenarm.errors import ClientError, FeatureError, FrameError, InputError, UnavailableError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.logs import get_logger
from hiddenarm.ring.words import Words
from hiddenarm.roles.arms import arm_reports
from hiddenarm.roles.health import Health, RunTimes
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.messages import (
    ACTOR,
    CLIENTS,
    DEALER,
    END_OF_ARMS,
    KEPT_AT_ONCE,
    NO_MODEL,
    NO_STOCK,
    REWARDER,
    Eligible,
    Kind,
    arms_kept_frame,
    bitmap_words,
    learned_frame,
    misuse,
    program_and_step,
    read_arms,
    read_decide,
    read_refused,
    read_rewards,
    read_unlearn,
    refused_frame,
    values_frame,
)
from hiddenarm.roles.runs import MAX_WAITING, Exchange, Outcome, RunKey, RunTable, Send
from hiddenarm.roles.slots import OwnSlots
from hiddenarm.roles.supply import CompiledPrograms, Supply
from hiddenarm.roles.updater import LearnedState, Lesson, LessonEnded, Updater
from hiddenarm.roles.values import WindowTotals

NO_FEATURES = "it has no usable features under this key"
"""All that others are told about a party's data; the reason is in its own log."""
NO_SOURCE = "its source of features does not answer; ask again later"
"""All that others are told if features cannot be looked up now; the reason is in its own log."""
LESSON_SECONDS = 5.0
"""How long the first request of the queue waits for a lesson that the rewarder has not sent, when nothing else is under
way."""
LOOKED_UP_AHEAD = 4
"""Requests in the queue whose features are looked up before their turn comes."""
NO_LESSON = "the lesson it needs has not been taught; ask again when its reward was given"


Found = Words | FeatureError | UnavailableError
"""What a look-up gives for a key: features as words; that there are none; or that its source does not answer."""
LookUp = Callable[[Sequence[str], Callable[[list[Found]], None]], None]
"""Begins to look up the features under some keys. What is found is called back, later, by the loop of the party: in the
order of the keys, once, and within bounded time."""


TAKEN = (
    (Role.PARTY, Kind.ROUND),
    (Role.PARTY, Kind.REFUSED),
    (Role.DEALER, Kind.CORRECTIONS),
    (Role.ACTOR, Kind.DECIDE),
    (Role.ACTOR, Kind.ARMS),
    (Role.REWARDER, Kind.REWARD),
    (Role.REWARDER, Kind.UNLEARN),
)
"""What an open epoch takes, and from whom."""


@dataclass(frozen=True, slots=True, repr=False)
class _NoFeatures:
    """Keys without usable features, by their positions in the request; why, for the first of them."""

    positions: list[int]
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class _NoSource:
    """That features cannot be looked up now, and why."""

    why: str


class _Awaited(Enum):
    """That features are being looked up."""

    FEATURES = "features"


@dataclass(slots=True, repr=False)
class _DecideRequest:
    program: ProgramId
    step: int
    version: int
    keys: list[str]
    bitmaps: Sequence[bytes]
    """The arms that may be chosen: of each key, of all keys, or none where all arms may. Among some arms, of these."""
    subset: Subset | None = None
    """Among which arms is decided; None for all."""
    features: Words | _NoFeatures | _NoSource | _Awaited | None = None
    """None until they are looked up."""
    blocked_since: float | None = None
    """Since when there is nothing to do but to wait for the lesson that it needs."""
    pure: bool = False
    """Whether the arm is to be explored for certain, as the budget is spent."""


@dataclass(frozen=True, slots=True, repr=False)
class Links:
    """How a party reaches its peers. `send` delivers a frame. `exchange` is a quicker way to send a round and get the
    peers' words for it (see `runs`). `send_later` is for notices, which are less urgent than to go on."""

    send: Send
    exchange: Exchange
    send_later: Send


@dataclass(frozen=True, slots=True, repr=False)
class Setup:
    """What is the same in all epochs of a party: its features, as words by key, or how they are looked up where that
    takes a while; how much it keeps in stock and expands
    ahead; the most that is asked for at once; whether state lasts, so that the actor hears of a decision when it is
    kept; after how many lessons a checkpoint is kept, 0 for never; the programs that were recorded, the runs that were
    counted."""

    federation: Federation
    number: int
    own_words: Callable[[str], Words]
    stock: int
    expand_ahead: int
    max_batch: int
    lasting: bool
    checkpoint_every: int
    compiled: CompiledPrograms
    clock: Callable[[], float]
    run_times: dict[str, RunTimes] = field(default_factory=dict)
    look_up: LookUp | None = None


class PartyEpoch:
    """One epoch of a party: `resume`, `start`, then frames. `named` is the epoch's name as a number, `present` who is
    connected now. `ledger` keeps decisions."""

    def __init__(
        self, setup: Setup, links: Links, ledger: Ledger, *, named: int, present: Collection[Identity]
    ) -> None:
        federation, number = setup.federation, setup.number
        self.federation = federation
        self.number = number
        self._own_words = setup.own_words
        self._look_up = setup.look_up
        self._ended = False
        self._max_batch = setup.max_batch
        self._lasting = setup.lasting
        self._log = get_logger("hiddenarm.party")
        self._send = links.send
        self._send_later = links.send_later
        self._clock = setup.clock
        self._peers = [Identity(Role.PARTY, p) for p in range(federation.parties) if p != number]
        self._present = present
        self._supply = Supply(federation, number, links.send, setup.stock, setup.expand_ahead, setup.compiled)
        self._runs = RunTable(federation.parties, self._peers, links.send, links.exchange, times=setup.run_times)
        self._reports = arm_reports(federation)
        self._requests: deque[_DecideRequest] = deque()
        self._refused_by_peer: set[RunKey] = set()
        self._arms_kept: list[int] = []
        """Runs whose returned one-hots last here, and of which the actor was not told."""
        self._takes_eligible = federation.learner.takes_eligible
        self._counts_rows = federation.noisy is not None
        self._all_eligible: Words | None = None
        """Of all arms, once it was needed."""
        self._interactions = ledger
        self._budget = federation.budget
        self._charged_before, self._asked = ledger.charged, 0
        """Before this epoch, and what was asked for in it: the same at all parties."""
        self._deciding: set[RunKey] = set()
        """Runs that are not charged yet; kept where there is a budget."""
        self._epoch = named
        self._slots = OwnSlots(federation.naming_seconds, setup.clock) if federation.naming_seconds else None
        self._totals: WindowTotals | None = None
        """Of the windows of values that last here."""
        self._out_of_stock = False
        handlers = (
            self._on_round,
            self._on_refused,
            self._on_corrections,
            self._on_decide,
            self._on_arms,
            self._on_reward,
            self._on_unlearn,
        )
        self._handlers: dict[tuple[Role, IntEnum], Callable[[Identity, Frame], None]] = dict(
            zip(TAKEN, handlers, strict=True)
        )
        self._updater = Updater(
            federation, number, self._supply, self._runs, ledger, self._still_deciding, setup.checkpoint_every
        )

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done."""
        return self._is_at_work or any(request.version <= self._updater.taught for request in self._requests)

    def health(self) -> Health:
        """How it is doing."""
        return Health(
            waiting=len(self._requests) + self._runs_under_way,
            pending=self._interactions.pending,
            version=self._updater.version,
            stock=self._supply.in_stock,
            out_of_stock=self._out_of_stock,
            runs=self._runs.times,
            last_runs=self._runs.last,
            ledger=self._interactions.released,
        )

    def resume(
        self,
        state: LearnedState,
        ungathered: Sequence[Lesson],
        again: Sequence[Lesson],
        since_refresh: Sequence[Lesson] = (),
    ) -> None:
        """Go on from what was learned in earlier epochs (see `Updater.resume`)."""
        self._updater.resume(state, ungathered, again, since_refresh)

    def resume_windows(self, totals: WindowTotals | None, since: Sequence[Lesson]) -> None:
        """Go on with the windows of values from what lasts (see `Updater.resume_windows`)."""
        self._updater.resume_windows(totals, since)
        self._totals = totals

    def start(self, seed: bytes) -> None:
        """Begin, with the seed of this epoch."""
        self._supply.set_seed(seed, self.federation.learner.single_programs)
        if self._slots is not None:
            self._slots.add(self._interactions.complete_before())
        self.tell_values(*CLIENTS)
        self._start_what_can_start()

    def end(self) -> None:
        """Nothing may begin any more: what is found for a request of this epoch comes too late."""
        self._ended = True

    def on_dealer_away(self) -> None:
        """Go on with what is in stock."""
        self._start_what_can_start()

    def on_idle(self) -> None:
        self._start_what_can_start()  # a request may have waited long enough
        self._end_slot_if_due()
        self._tell_arms_kept()
        if DEALER in self._present:
            self._supply.stock_up()

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        handler = self._handlers.get((identity.role, frame.kind))
        if handler is None:
            raise misuse(identity, f"{identity} may not send {frame.kind.name}")
        handler(identity, frame)

    def _on_corrections(self, _: Identity, frame: Frame) -> None:
        self._supply.on_corrections(frame)
        self._start_what_can_start()

    def _on_round(self, identity: Identity, frame: Frame) -> None:
        key = program, step = program_and_step(frame)
        ended = self._runs.on_round(identity, key, frame)
        if ended is not None:
            if ended:
                self._start_what_can_start()
            return
        if not is_window(self.federation, program):
            self._check_batch(identity, program.count)
        is_over = step < self._supply.next_step(program) or self._updater.is_over(key)
        if not is_over:  # otherwise it is of a run that was refused
            self._runs.on_early_round(identity, key, frame, self._supply.layout(program).rounds)

    def _on_decide(self, identity: Identity, frame: Frame) -> None:
        try:
            request = self._read_request(identity, frame)
        except FrameError as error:
            raise ClientError(str(error)) from None
        request.pure = self._is_pure(request.program.count)
        if self._look_up is not None:
            request.features = _Awaited.FEATURES
            self._look_up(request.keys, partial(self._on_found, request))
        elif len(self._requests) < LOOKED_UP_AHEAD:
            request.features = self._own_features(request.keys)
        self._requests.append(request)
        self._start_what_can_start()

    def _on_found(self, request: _DecideRequest, found: list[Found]) -> None:
        """The features of a request were looked up."""
        request.features = _joined(found)
        if not self._ended:
            self._start_what_can_start()

    def _read_request(self, identity: Identity, frame: Frame) -> _DecideRequest:
        version, keys, eligible = read_decide(frame, self.federation.arms)
        program, step = program_and_step(frame)
        if program == STEP_ONE and not self.federation.learner.has_step:
            raise FrameError("the actor asked for a `step`, which this policy does not have")
        subset = None if slots_of(program) is None else self._subset(program, eligible)
        self._check_batch(identity, program.count)
        due = self._supply.next_step(program) + sum(request.program == program for request in self._requests)
        if step != due:
            raise FrameError(f"the actor asked for decision {step} where {due} was due")
        if len(self._requests) >= MAX_WAITING:
            raise FrameError(f"the actor has more than {MAX_WAITING} requests waiting")
        if eligible.bitmaps and not self._takes_eligible:
            raise FrameError("the actor named eligible arms, which this suite does not take")
        if subset is None:
            for bitmap in dict.fromkeys(eligible.bitmaps):
                self._eligible_words(bitmap)  # raises if no arm can be chosen
        return _DecideRequest(program, step, version, keys, eligible.bitmaps, subset)

    def _subset(self, program: ProgramId, eligible: Eligible) -> Subset:
        """The arms among which the actor asks to decide: as many as go with the program, and none that is retired."""
        federation = self.federation
        try:
            words = eligible_words(federation.arms, eligible.arms, federation.retired)
        except InputError as error:
            raise FrameError(f"the actor asked for no arm that can be chosen: {error}") from None
        subset = subset_of(federation, words)
        if subset is None or subset.size != slots_of(program):
            raise FrameError(f"the actor asked to {program.name} for arms that take another program")
        if eligible.arms is not None and len(subset.arms) != len(eligible.arms):
            raise FrameError("the actor asked to decide among arms one of which is retired")
        return subset

    def _eligible(self, request: _DecideRequest) -> Words:
        """The eligible arms of a request as a program takes them, [1, count, arms]. With many arms these are many
        words: they are there for requests that run, not for those that wait."""
        count, bitmaps, subset = request.program.count, request.bitmaps, request.subset
        if subset is not None:
            return _eligible_slots(subset, bitmaps, count)
        if not bitmaps:
            if self._all_eligible is None:
                self._all_eligible = self._eligible_words()
            return _repeated(self._all_eligible, count)
        known = {bitmap: self._eligible_words(bitmap) for bitmap in dict.fromkeys(bitmaps)}
        each = [known[bitmap] for bitmap in bitmaps]
        return _repeated(each[0], count) if len(each) == 1 else np.array(each)[None]

    def _eligible_words(self, bitmap: bytes | None = None) -> Words:
        """No party lets a retired arm win, whatever the actor asks."""
        arms, retired = self.federation.arms, self.federation.retired
        try:
            if bitmap is None:
                return eligible_words(arms, None, retired)
            return without_retired(bitmap_words(bitmap, arms), retired)
        except InputError as error:
            raise FrameError(f"the actor asked for no arm that can be chosen: {error}") from None

    def _on_arms(self, identity: Identity, frame: Frame) -> None:
        """The actor has returned the arms of a run, or all of earlier epochs."""
        if frame == END_OF_ARMS:
            self._interactions.end_arms()
        else:
            try:
                returned = read_arms(frame, width_of(self.federation, program_and_step(frame)[0]), self._epoch)
                self._check_batch(identity, returned.program.count)
            except FrameError as error:
                raise ClientError(str(error)) from None
            self._interactions.take_arms(returned, partial(self._note_arms_kept, returned.name))
            self._can_be_rewarded(returned.name, returned.program.count)
            if returned.program == STEP_ONE and returned.epoch == self._epoch:
                self._updater.arm_returned(returned.step, returned.words)
        self._start_what_can_start()

    def _can_be_rewarded(self, first: int, count: int) -> None:
        """With reward slots, some decisions belong to the slot under way if their arms are known here."""
        if self._slots is not None:
            self._slots.add([name for name in range(first, first + count) if name in self._interactions])
            self._end_slot_if_due()

    def _end_slot_if_due(self) -> None:
        if self._slots is not None and REWARDER in self._present:
            for frame in self._slots.end_if_due():
                self._tell(self._send, [REWARDER], frame)

    def _note_arms_kept(self, name: int) -> None:
        self._arms_kept.append(name)
        if len(self._arms_kept) >= KEPT_AT_ONCE:
            self._tell_arms_kept()

    def _tell_arms_kept(self) -> None:
        if self._arms_kept:
            self._tell(self._send_later, [ACTOR], arms_kept_frame(self._arms_kept))
            self._arms_kept = []

    def _on_reward(self, identity: Identity, frame: Frame) -> None:
        try:
            rewards = read_rewards(frame)
            self._check_batch(identity, len(rewards))
            self._updater.receive(Lesson(frame.step, rewards))
        except FrameError as error:
            raise ClientError(str(error)) from None
        self._start_what_can_start()

    def _on_unlearn(self, identity: Identity, frame: Frame) -> None:
        try:
            self._updater.receive(Lesson(frame.step, [], unlearning=read_unlearn(frame)))
        except FrameError as error:
            raise ClientError(str(error)) from None
        self._start_what_can_start()

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        """A peer cannot take part in a decision or a lesson: end it here too. Its randomness is never used again."""
        program, step = program_and_step(frame)
        if program.name in DECIDING and program.count == 1 and read_refused(frame)[1] == NO_STOCK:
            self._out_of_stock = True
        if program.name == LEARN:
            self._updater.refused_by_peer(identity, step, read_refused(frame)[1])
        elif program.name not in DECIDING:
            raise FrameError(f"{identity} refused {program.name}")
        elif not self._runs.drop((program, step)) and step >= self._supply.next_step(program):
            if len(self._refused_by_peer) >= MAX_WAITING:
                raise FrameError(f"{identity} is more than {MAX_WAITING} refusals ahead")
            self._refused_by_peer.add((program, step))
        self._start_what_can_start()

    def _check_batch(self, identity: Identity, count: int) -> None:
        if count > max(self._max_batch, GATHERED_BEFORE_A_BATCH):
            raise FrameError(f"{identity} asked for {count} at once; the limit is {self._max_batch}")

    # Deciding

    def _start_what_can_start(self) -> None:
        self._learn()
        while self._requests and self._can_decide(self._requests[0]):
            self._start_decision(self._requests.popleft())
            self._learn()

    def _can_decide(self, request: _DecideRequest) -> bool:
        """Whether the request can be run now, or refused."""
        version = request.version
        if version > self._updater.version or self._refused_by_peer:
            if self._is_hopeless(request):
                return True
            if version > self._updater.version:
                return False
        if not self._updater.may_decide(version):
            return False
        if request.features is _Awaited.FEATURES:
            return False
        return self._supply.ready(request.program, request.step) or self._is_out_of_stock()

    def _is_hopeless(self, request: _DecideRequest) -> bool:
        """Whether a peer has refused the request, or it needs a lesson that is not to be expected. For one that is
        still to come from the rewarder it waits a while: that is another link, and may be slower."""
        if (request.program, request.step) in self._refused_by_peer:
            return True
        ahead = request.version - self._updater.taught
        if not 0 < ahead <= MAX_WAITING:
            return ahead > 0
        if self._is_at_work:
            request.blocked_since = None
            return False
        now = self._clock()
        if request.blocked_since is None:
            request.blocked_since = now
        return now - request.blocked_since > LESSON_SECONDS

    @property
    def _is_at_work(self) -> bool:
        """Whether a decision or a lesson is under way; not a `step` that has decided, and waits for its reward."""
        return self._runs_under_way > 0 or self._updater.taught > self._updater.version

    @property
    def _runs_under_way(self) -> int:
        return len(self._runs) - self._updater.runs_beside

    def _is_out_of_stock(self) -> bool:
        """Whether nobody is there who could deal what is missing."""
        return self._supply.corrected and DEALER not in self._present

    def _start_decision(self, request: _DecideRequest) -> None:
        key = (request.program, request.step)
        ahead = request.version - self._updater.taught
        out_of_stock = ahead <= 0 and not self._supply.ready(*key)
        self._supply.begin(*key)
        if key in self._refused_by_peer:
            self._refused_by_peer.discard(key)
            self._runs.drop(key)
            return
        if self._budget is not None and self._exceeds_budget(request.program.count):
            self._refuse_decision(key, self._budget.refusal)
            return
        if out_of_stock:
            self._refuse_decision(key, NO_STOCK, retry=True)
            return
        if 0 < ahead <= MAX_WAITING:
            self._refuse_decision(key, NO_LESSON, retry=True)
            return
        try:
            model = self._brought(request)
        except InputError as error:
            self._refuse_decision(key, str(error), retry=request.version < self._updater.version)
            return
        if model is None:
            self._refuse_decision(key, NO_MODEL, retry=True)
            return
        features = self._own_features(request.keys) if request.features is None else request.features
        assert not isinstance(features, _Awaited), "a request begins when its features are there"
        if isinstance(features, _NoSource):
            self._log.error("features not found", number=request.step, reason=features.why)
            self._refuse_decision(key, NO_SOURCE, retry=True)
            return
        if isinstance(features, _NoFeatures):
            refused = len(features.positions)
            self._log.warning("refused a decision", number=request.step, refused=refused, reason=features.why)
            self._refuse_decision(key, NO_FEATURES, positions=features.positions)
            return
        self._launch_decision(request, model, features)

    def _brought(self, request: _DecideRequest) -> list[Words] | None:
        """What of the model this party brings; None if a `step` cannot have it. To explore purely it brings zeros, as
        all parties do: then all scores are equal, and the tags choose. A `step` would learn from them."""
        if request.program == STEP_ONE:
            return None if request.pure else self._updater.brought_to_step(request.version)
        brought = self._updater.brought_at(request.version)
        if request.subset is not None:
            brought = [self.federation.learner.rows(words, request.subset) for words in brought]
        return [np.zeros_like(words) for words in brought] if request.pure else brought

    # The budget

    def _is_pure(self, count: int) -> bool:
        """Whether decisions that are asked for now are to be explored purely. All parties must agree, so it follows
        from what was asked for in this epoch, in the actor's order, whatever became of it."""
        if self._budget is None or not self._budget.explores:
            return False
        self._asked += count
        return self._charged_before + self._asked > self._budget.decisions

    def _exceeds_budget(self, count: int) -> bool:
        """Whether so many decisions more are to be refused. One party that refuses is enough: each counts for itself,
        what is charged and what may be."""
        assert self._budget is not None
        if self._budget.explores:
            return False
        self._deciding = {key for key in self._deciding if key in self._runs}
        under_way = sum(program.count for program, _ in self._deciding)
        return self._interactions.charged + under_way + count > self._budget.decisions

    def _launch_decision(self, request: _DecideRequest, model: list[Words], features: Words) -> None:
        program, step = key = request.program, request.step
        given = [*model, features]
        if self._takes_eligible:
            given += self.federation.learner.public_inputs(self._eligible(request), request.subset)
        slots = request.subset if self.federation.arm_features is None else None
        evaluation = self._supply.evaluate(program, step, given)

        def out_of_range(why: str) -> None:  # seen by all parties alike: the decision ends, the federation goes on
            tell = partial(self._tell, self._send, [ACTOR], refused_frame(program, step, why))
            self._interactions.left_range(program.count, tell)

        def decided(found: Decided) -> None:
            assert found.answer is not None
            self._interactions.charge(program, step, pure=request.pure)
            self._deciding.discard(key)
            report = self._reports.of(program).frame(program, step, found.answer[0])
            tell = partial(self._tell, self._send, [ACTOR], report)
            if not self._lasting:
                tell()

            def kept() -> None:
                if self._lasting:
                    tell()
                self._can_be_rewarded(decision_name(self._epoch, decision_number(program, step)), program.count)

            self._interactions.keep(
                program,
                step,
                features,
                found,
                kept,
                version=request.version,
                rows_of=self._rows_of(request.keys),
                slots=slots,
            )

        def step_decided(found: Decided) -> None:
            decided(found)
            if not self._updater.step_decided(request.version, self._name(step), evaluation):
                self._runs.drop(key)

        if program == STEP_ONE:
            outcome = Outcome(partial(self._updater.step_ended, step), step_decided, out_of_range)
        else:
            outcome = Outcome(lambda: decided(evaluation.result), None, out_of_range)  # type: ignore[arg-type]
        if self._budget is not None:
            self._deciding.add(key)
        self._runs.launch(key, evaluation, outcome)

    def _rows_of(self, keys: list[str]) -> list[int]:
        """Whose rows these are, where rows of one key are counted."""
        return [row_digest(key) for key in keys] if self._counts_rows else []

    def _own_features(self, keys: list[str]) -> Words | _NoFeatures | _NoSource:
        """This party's features under some keys, [1, keys, features], or which of them have none."""
        found: list[Found] = []
        for key in keys:
            try:
                found.append(self._own_words(key))
            except FeatureError as error:
                found.append(error)
        return _joined(found)

    def _refuse_decision(self, key: RunKey, why: str, positions: Sequence[int] = (), retry: bool = False) -> None:
        """End a decision everywhere. Only the actor is told which keys it is for: it asks again for the others."""
        self._runs.drop(key)
        self._tell(self._send, self._peers, refused_frame(*key, why, retry=retry))
        self._tell(self._send, [ACTOR], refused_frame(*key, why, positions=positions, retry=retry))

    def _name(self, step: int) -> int:
        """The name of a decision by `step`."""
        return decision_name(self._epoch, decision_number(STEP_ONE, step))

    def _still_deciding(self, name: int) -> bool:
        epoch, number = split_name(name)
        program, step, _ = split_number(number)
        if epoch != self._epoch or (program, step) not in self._runs:
            return False
        return program != STEP_ONE or not self._updater.has_decided(step)

    # Learning

    def _learn(self) -> None:
        """Let lessons go on as far as they can. What follows from the end of one is done before the next begins."""
        while self._updater.go_on():
            for ended in self._updater.take_effects():
                self._lesson_ended(ended)

    def _lesson_ended(self, ended: LessonEnded) -> None:
        """Tell who must know that a lesson was learned, or why not: peers at once, clients when it is noted and nothing
        more urgent is to be done. The next decision may be: it needs the lesson, not the notice."""
        number, refused = ended.lesson.number, ended.refused
        frame = learned_frame(number) if refused is None else refused_frame(LEARN_ONE, number, refused)
        told = [REWARDER, ACTOR] if refused is None and self.number == 0 else [REWARDER]
        if ended.tells_peers:
            self._tell(self._send, self._peers, frame)
        self._interactions.lesson_ended(ended, partial(self._lesson_kept, ended, told, frame))

    def _lesson_kept(self, ended: LessonEnded, told: list[Identity], frame: Frame) -> None:
        """The end of a lesson lasts. Decisions that wait for a refresh go on with the next frame, or on idle."""
        if ended.refreshed:
            self._updater.refresh_kept(ended.lesson.number + 1)
        if ended.values is not None:
            self._totals = ended.values
            self.tell_values(*CLIENTS)
        if not ended.lesson.logged:  # else they were told when the epoch was opened
            self._tell(self._send_later, told, frame)

    def tell_values(self, *clients: Identity) -> None:
        """Tell whoever of these receives them what lasts here of the values of policies; in every epoch from its start
        on, as the receiver keeps nothing."""
        values, totals = self.federation.evaluation, self._totals
        if values is None:
            return
        shares = np.zeros(values.sums, np.uint64) if totals is None else totals.shares
        frame = values_frame(0 if totals is None else totals.windows, shares)
        self._tell(self._send_later, [client for client in clients if str(client) == values.opened_to], frame)

    def _tell(self, send: Send, identities: list[Identity], frame: Frame) -> None:
        for identity in identities:
            if identity in self._present:
                send(identity, frame)


def _joined(found: Sequence[Found]) -> Words | _NoFeatures | _NoSource:
    """The features of a request, [1, keys, features], if all of its keys have some."""
    for one in found:
        if isinstance(one, UnavailableError):
            return _NoSource(str(one))
    refused = [(position, one) for position, one in enumerate(found) if isinstance(one, FeatureError)]
    if refused:
        return _NoFeatures([position for position, _ in refused], str(refused[0][1]))
    return np.array(found)[None]


def _eligible_slots(subset: Subset, bitmaps: Sequence[bytes], count: int) -> Words:
    """The slots that may win for each key, [1, count, slots]: those of bitmaps of the arms, or all that are not empty.
    A program that runs reads them as they lie."""
    words = np.array(subset.eligible(1, count))
    for place, bitmap in enumerate(bitmaps):
        words[0, place, : len(subset.arms)] = bitmap_words(bitmap, len(subset.arms))
    return words


def _repeated(words: Words, count: int) -> Words:
    """The same words for each of some decisions: [1, count, *words]."""
    return words[None, None] if count == 1 else np.ascontiguousarray(np.broadcast_to(words, (1, count, len(words))))
