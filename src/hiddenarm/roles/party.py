"""A party, as a state machine without I/O: frames in, frames out.

It holds its own features, its shares of the model and of every decision that waits for a reward. It answers the actor's
DECIDE and the rewarder's REWARD by running programs with the other parties. Runs of several decisions may overlap;
lessons are learned one after another, in the rewarder's order (`updater`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, LEARN, LEARN_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_name, split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.bandit.schedule import GATHERED_BEFORE_A_BATCH
from hiddenarm.errors import ClientError, FeatureError, FrameError, InputError, PeerLost
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.logs import get_logger
from hiddenarm.ring.words import Words
from hiddenarm.roles.arms import arm_reports
from hiddenarm.roles.features import EncodedFeatures, FeatureSource, words_by_key
from hiddenarm.roles.ledger import Ledger, MemoryLedger
from hiddenarm.roles.messages import (
    ACTOR,
    CLIENTS,
    DEALER,
    NO_STOCK,
    REWARDER,
    learned_frame,
    misuse,
    program_and_step,
    read_decide,
    read_refused,
    read_rewards,
    read_seed,
    refused_frame,
)
from hiddenarm.roles.runs import MAX_WAITING, Exchange, Outcome, RunKey, RunTable, Send, send_to_all
from hiddenarm.roles.supply import Shelf, Supply
from hiddenarm.roles.updater import LearnedState, Lesson, LessonEnded, Updater
from hiddenarm.roles.vitals import RunTimes, Vitals

NO_FEATURES = "it has no usable features under this key"
"""All that others are told about a party's data; the reason is in its own log."""
LESSON_SECONDS = 5.0
"""How long the first request of the queue waits for a lesson that the rewarder has not sent, when nothing else is under
way."""
LOOKED_UP_AHEAD = 4
"""Requests in the queue whose features are looked up before their turn comes."""
NO_LESSON = "the lesson it needs has not been taught; ask again when its reward was given"


@dataclass(frozen=True, slots=True, repr=False)
class _NoFeatures:
    """Keys without usable features, by their positions in the request; why, for the first of them."""

    positions: list[int]
    why: str


@dataclass(slots=True, repr=False)
class _DecideRequest:
    program: ProgramId
    step: int
    version: int
    keys: list[str]
    features: Words | _NoFeatures | None = None
    """None until they are looked up."""
    blocked_since: float | None = None
    """Since when there is nothing to do but to wait for the lesson that it needs."""


class Party:
    """Party `number` of a federation, in one epoch. `send` delivers a frame; frames arrive through the `on_` methods.
    `exchange`, if there is one, is a quicker way to send a round and get the peers' words for it (see `runs`).
    `send_later`, if there is one, is for notices, which are less urgent than to go on. `ledger` keeps decisions;
    `epoch` is the epoch's number where there are several; `shelf` has the programs that earlier epochs have
    recorded, `run_times` what they have counted."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        features: FeatureSource | EncodedFeatures,
        send: Send,
        exchange: Exchange | None = None,
        send_later: Send | None = None,
        *,
        stock: int = 256,
        expand_ahead: int = 16,
        max_batch: int = 256,
        ledger: Ledger | None = None,
        epoch: int = 0,
        shelf: Shelf | None = None,
        run_times: dict[str, RunTimes] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.federation = federation
        self.number = number
        self.finished = False
        self._own_words = words_by_key(features, federation, number)
        self._max_batch = max_batch
        self._log = get_logger("hiddenarm.party")
        self._send = send
        self._send_later = send_later or send
        self._clock = clock
        self._peers = [Identity(Role.PARTY, p) for p in range(federation.parties) if p != number]
        self._present: set[Identity] = set()
        self._supply = Supply(federation, number, send, stock, expand_ahead, shelf)
        self._runs = RunTable(
            federation.parties, self._peers, send, exchange or partial(send_to_all, send), times=run_times
        )
        self._reports = arm_reports(federation)
        self._requests: deque[_DecideRequest] = deque()
        self._refused_by_peer: set[RunKey] = set()
        self._interactions: Ledger = MemoryLedger() if ledger is None else ledger
        self._epoch = epoch
        self._stranded = False
        self._handlers: dict[tuple[Role, Kind], Callable[[Identity, Frame], None]] = {
            (Role.PARTY, Kind.ROUND): self._on_round,
            (Role.PARTY, Kind.REFUSED): self._on_refused,
            (Role.DEALER, Kind.SEED): self._on_seed,
            (Role.DEALER, Kind.CORRECTIONS): self._on_corrections,
            (Role.ACTOR, Kind.DECIDE): self._on_decide,
            (Role.REWARDER, Kind.REWARD): self._on_reward,
        }
        self._school = Updater(
            federation,
            number,
            self._supply,
            self._runs,
            self._interactions,
            self._still_deciding,
            self._interactions.checkpoint_every,
        )

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done."""
        return self._is_at_work or any(request.version <= self._school.taught for request in self._requests)

    def vitals(self) -> Vitals:
        """How it is doing."""
        return Vitals(
            waiting=len(self._requests) + self._runs_under_way,
            pending=self._interactions.pending,
            version=self._school.version,
            stock=self._supply.in_stock,
            stranded=self._stranded,
            runs=self._runs.times,
        )

    # What the switchboard tells us

    def expects(self, identity: Identity) -> bool:
        return identity in (DEALER, ACTOR, REWARDER) or identity in self._peers

    def on_ready(self, identity: Identity) -> None:
        self._present.add(identity)
        self._start_what_can_start()

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        """The federation ends with another party or the dealer, and when the actor says goodbye. A client that is lost
        or was cut off ends nothing: what was asked for is done, and the other client may go on."""
        self._present.discard(identity)
        if not graceful and identity not in CLIENTS:
            raise PeerLost(f"{identity} is gone: {reason}")
        if graceful and identity != REWARDER:
            self.finished = True

    def on_dealer_away(self) -> None:
        """Go on with what is in stock."""
        self._present.discard(DEALER)
        self._start_what_can_start()

    def resume(self, state: LearnedState, ungathered: Sequence[Lesson], again: Sequence[Lesson]) -> None:
        """Go on from what was learned in earlier epochs; before anything else happens (see `Updater.resume`)."""
        self._school.resume(state, ungathered, again)

    def on_idle(self) -> None:
        self._start_what_can_start()  # a request may have waited long enough
        if DEALER in self._present:
            self._supply.stock_up()

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        handler = self._handlers.get((identity.role, frame.kind))
        if handler is None:
            raise misuse(identity, f"{identity} may not send {frame.kind.name}")
        handler(identity, frame)

    def _on_seed(self, _: Identity, frame: Frame) -> None:
        _epoch, seed = read_seed(frame)
        self._supply.plant(seed, (DECIDE_ONE, *self.federation.learner.single_lessons))
        self._start_what_can_start()

    def _on_corrections(self, _: Identity, frame: Frame) -> None:
        self._supply.on_corrections(frame)
        self._start_what_can_start()

    def _on_round(self, identity: Identity, frame: Frame) -> None:
        key = program, step = program_and_step(frame)
        if key in self._runs:
            if self._runs.on_round(identity, key, frame):
                self._start_what_can_start()
            return
        self._check_batch(identity, program.count)
        is_over = step < self._supply.next_step(program) or self._school.is_over(key)
        if not is_over:  # otherwise it is of a run that was refused
            self._runs.on_early_round(identity, key, frame, self._supply.layout(program).rounds)

    def _on_decide(self, identity: Identity, frame: Frame) -> None:
        try:
            request = self._read_request(identity, frame)
        except FrameError as error:
            raise ClientError(str(error)) from None
        name = self._name(request.step) if request.program == DECIDE_ONE else None
        self._school.note_request(request.version, name)
        if len(self._requests) < LOOKED_UP_AHEAD:
            request.features = self._own_features(request.keys)
        self._requests.append(request)
        self._start_what_can_start()

    def _read_request(self, identity: Identity, frame: Frame) -> _DecideRequest:
        version, keys = read_decide(frame)
        program, step = program_and_step(frame)
        self._check_batch(identity, program.count)
        due = self._supply.next_step(program) + sum(request.program == program for request in self._requests)
        if step != due:
            raise FrameError(f"the actor asked for decision {step} where {due} was due")
        if len(self._requests) >= MAX_WAITING:
            raise FrameError(f"the actor has more than {MAX_WAITING} requests waiting")
        return _DecideRequest(program, step, version, keys)

    def _on_reward(self, identity: Identity, frame: Frame) -> None:
        try:
            rewards = read_rewards(frame)
            self._check_batch(identity, len(rewards))
            self._school.receive(Lesson(frame.step, rewards))
        except FrameError as error:
            raise ClientError(str(error)) from None
        self._start_what_can_start()

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        """A peer cannot take part in a decision or a lesson: end it here too. Its randomness is never used again."""
        program, step = program_and_step(frame)
        if program == DECIDE_ONE and read_refused(frame)[1] == NO_STOCK:
            self._stranded = True
        if program.name == LEARN:
            self._school.refused_by_peer(identity, step, read_refused(frame)[1])
        elif program.name != DECIDE:
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
        if not self._supply.seeded or not self._present.issuperset(self._peers):
            return
        self._learn()
        while self._requests and self._can_decide(self._requests[0]):
            self._start_decision(self._requests.popleft())
            self._learn()
        self._school.look_ahead()

    def _can_decide(self, request: _DecideRequest) -> bool:
        """Whether the request can be run now, or refused."""
        if self._is_hopeless(request):
            return True
        if request.version > self._school.version:
            return False
        return self._supply.ready(request.program, request.step) or self._is_stranded()

    def _is_hopeless(self, request: _DecideRequest) -> bool:
        """Whether a peer has refused the request, or it needs a lesson that is not to be expected. For one that is
        still to come from the rewarder it waits a while: that is another link, and may be slower."""
        if (request.program, request.step) in self._refused_by_peer:
            return True
        ahead = request.version - self._school.taught
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
        """Whether a decision or a lesson is under way; not one that was begun before its reward is there."""
        return self._runs_under_way > 0 or self._school.taught > self._school.version

    @property
    def _runs_under_way(self) -> int:
        return len(self._runs) - self._school.runs_beside

    def _is_stranded(self) -> bool:
        """Whether nobody is there who could deal what is missing."""
        return self._supply.corrected and DEALER not in self._present

    def _start_decision(self, request: _DecideRequest) -> None:
        key = (request.program, request.step)
        ahead = request.version - self._school.taught
        stranded = ahead <= 0 and not self._supply.ready(*key)
        self._supply.begin(*key)
        if key in self._refused_by_peer:
            self._refused_by_peer.discard(key)
            self._runs.drop(key)
            return
        if stranded:
            self._refuse_decision(key, NO_STOCK, retry=True)
            return
        if 0 < ahead <= MAX_WAITING:
            self._refuse_decision(key, NO_LESSON, retry=True)
            return
        try:
            model = self._school.brought_at(request.version)
        except InputError as error:
            self._refuse_decision(key, str(error))
            return
        features = self._own_features(request.keys) if request.features is None else request.features
        if isinstance(features, _NoFeatures):
            refused = len(features.positions)
            self._log.warning("refused a decision", number=request.step, refused=refused, reason=features.why)
            self._refuse_decision(key, NO_FEATURES, positions=features.positions)
            return
        self._launch_decision(request, model, features)

    def _launch_decision(self, request: _DecideRequest, model: list[Words], features: Words) -> None:
        program, step = key = request.program, request.step
        evaluation = self._supply.evaluate(program, step, [*model, features])
        report: list[Frame] = []

        def announce(words: Words) -> None:
            report.append(self._reports.frame(step, words))
            if self._interactions.tells_early:
                self._tell(self._send, [ACTOR], report.pop())

        def tell() -> None:
            for frame in report:
                self._tell(self._send, [ACTOR], frame)

        def out_of_range(why: str) -> None:  # seen by all parties alike: the decision ends, the federation goes on
            self._tell(self._send, [ACTOR], refused_frame(program, step, why))

        def finish() -> None:
            decided = evaluation.result
            assert isinstance(decided, Decided)
            self._interactions.keep(program, step, features, decided, tell)
            self._school.note_decision(request.version, self._name(step))

        self._runs.launch(key, evaluation, Outcome(finish, announce, out_of_range))

    def _own_features(self, keys: list[str]) -> Words | _NoFeatures:
        """This party's features under some keys, [1, keys, features], or which of them have none."""
        rows, refused = [], []
        for position, key in enumerate(keys):
            try:
                rows.append(self._own_words(key))
            except FeatureError as error:
                refused.append((position, str(error)))
        if refused:
            return _NoFeatures([position for position, _ in refused], refused[0][1])
        return np.array(rows)[None]

    def _refuse_decision(self, key: RunKey, why: str, positions: Sequence[int] = (), retry: bool = False) -> None:
        """End a decision everywhere. Only the actor is told which keys it is for: it asks again for the others."""
        self._runs.drop(key)
        self._tell(self._send, self._peers, refused_frame(*key, why, retry=retry))
        self._tell(self._send, [ACTOR], refused_frame(*key, why, positions=positions, retry=retry))

    def _name(self, step: int) -> int:
        """The name of a single decision."""
        return decision_name(self._epoch, step)

    def _still_deciding(self, name: int) -> bool:
        epoch, number = split_name(name)
        count, step, _ = split_number(number)
        return epoch == self._epoch and (ProgramId(DECIDE, count), step) in self._runs

    # Learning

    def _learn(self) -> None:
        """Let lessons go on as far as they can. What follows from the end of one is done before the next begins."""
        while self._school.go_on():
            for ended in self._school.take_effects():
                self._lesson_ended(ended)

    def _lesson_ended(self, ended: LessonEnded) -> None:
        """Tell who must know that a lesson was learned, or why not: peers at once, clients when it is noted and nothing
        more urgent is to be done. The next decision may be: it needs the lesson, not the notice."""
        number, refused = ended.lesson.number, ended.refused
        frame = learned_frame(number) if refused is None else refused_frame(LEARN_ONE, number, refused)
        told = [REWARDER, ACTOR] if refused is None and self.number == 0 else [REWARDER]
        if ended.tells_peers:
            self._tell(self._send, self._peers, frame)
        self._interactions.lesson_ended(ended, partial(self._tell, self._send_later, told, frame))

    def _tell(self, send: Send, identities: list[Identity], frame: Frame) -> None:
        for identity in identities:
            if identity in self._present:
                send(identity, frame)
