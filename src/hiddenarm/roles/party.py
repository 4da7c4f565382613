"""A party, as a state machine without I/O: frames in, frames out.

It holds its own features, its shares of the model and of every decision that waits for a reward. It answers the actor's
DECIDE and the rewarder's REWARD by running the programs `decide` and `learn` with the other parties. Runs of several
decisions may overlap; lessons are learned one after another, in the rewarder's order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import ArrayLike

from hiddenarm.bandit.catalogue import program_texts
from hiddenarm.bandit.coins import exploration_thresholds
from hiddenarm.bandit.features import checked_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import (
    DECIDE,
    LEARN,
    Decided,
    Interaction,
    Model,
    decide,
    initial_model,
    interactions,
    learn,
    reward_share,
)
from hiddenarm.errors import FeatureError, FrameError, InputError, PeerLost, ScoreRangeError
from hiddenarm.mpc.codec import decode_openings, encode_openings
from hiddenarm.mpc.dealing import trace
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, combine_words
from hiddenarm.mpc.material import Layout
from hiddenarm.mpc.values import Index, Shared
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import (
    ACTOR,
    DEALER,
    PROGRAM_NUMBERS,
    REWARDER,
    learned_frame,
    program_of,
    read_decide,
    read_refused,
    read_reward,
    read_seed,
    refused_frame,
    slot_frame,
    want_frame,
)
from hiddenarm.roles.stock import WORD_BYTES, batch_steps, expanded_steps, stock_steps

Send = Callable[[Identity, Frame], None]
RunKey = tuple[str, int]

KEPT_VERSIONS = 64
"""How many past versions of the weights a decision may still ask for."""
MAX_PENDING = 100_000
"""Decisions back for which a reward is still taken; all parties forget older ones alike."""
NO_FEATURES = "it has no usable features under this key"
"""All that others are told about a party's data; the reason is in its own log."""
MAX_WAITING = 1024
"""Requests a client may have waiting, and runs a peer may be ahead, before it is cut off."""


class FeatureSource(Protocol):
    """Where a party finds its own features."""

    def lookup(self, key: str) -> ArrayLike:
        """The features under a key; raises `FeatureError` if there are none."""


@dataclass(slots=True, repr=False)
class _ActiveRun:
    """A program under way: where it stands, and what each peer has sent for rounds to come."""

    evaluation: Evaluation
    finish: Callable[[], None]
    announce: Callable[[Index], None] | None
    inbox: dict[tuple[int, int], bytes] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class _DecideRequest:
    number: int
    version: int
    key: str


@dataclass(slots=True, repr=False)
class _Lesson:
    number: int
    decision: int
    masked_reward: int


class Party:
    """Party `number` of a federation. `send` delivers a frame; frames arrive through the `on_` methods."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        features: FeatureSource,
        send: Send,
        *,
        stock: int = 256,
        expand_ahead: int = 16,
    ) -> None:
        self.federation = federation
        self.number = number
        self.finished = False
        self._features = features
        self._log = structlog.get_logger("hiddenarm.party")
        self._send = send
        self._stock = stock
        self._expand_ahead = expand_ahead
        self._peers = [Identity(Role.PARTY, p) for p in range(federation.parties) if p != number]
        self._present: set[Identity] = set()
        self._thresholds = exploration_thresholds(federation.epsilon)
        self._layouts: dict[str, Layout] = {
            name: trace(text, federation.parties, 1)
            for name, text in program_texts(federation, self._thresholds).items()
        }
        self._materials: dict[str, ProgramMaterial] = {}
        self._wanted_until = dict.fromkeys(self._layouts, 0)
        self._model: Model = initial_model(federation, number)
        self._version = 0
        self._weights: dict[int, Shared] = {0: self._model.weights}
        self._requests: deque[_DecideRequest] = deque()
        self._lessons: deque[_Lesson] = deque()
        self._next_number = {DECIDE: 0, LEARN: 0}
        self._runs: dict[RunKey, _ActiveRun] = {}
        self._early: dict[RunKey, dict[tuple[int, int], bytes]] = {}
        self._refused_by_peer: set[int] = set()
        self._refused_lessons: dict[int, str] = {}
        self._interactions: dict[int, Interaction] = {}

    # What the switchboard tells us

    def expects(self, identity: Identity) -> bool:
        return identity in (DEALER, ACTOR, REWARDER) or identity in self._peers

    def on_ready(self, identity: Identity) -> None:
        self._present.add(identity)
        self._start_what_can_start()

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        """The federation ends with the actor, with a peer, or with the dealer; the rewarder may leave before."""
        self._present.discard(identity)
        if not graceful:
            raise PeerLost(f"{identity} is gone: {reason}")
        if identity != REWARDER:
            self.finished = True

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        handlers = self._handlers(identity)
        handler = handlers.get(frame.kind)
        if handler is None:
            raise FrameError(f"{identity} may not send {frame.kind.name}")
        handler(identity, frame)

    def _handlers(self, identity: Identity) -> dict[Kind, Callable[[Identity, Frame], None]]:
        match identity.role:
            case Role.PARTY:
                return {Kind.ROUND: self._on_round, Kind.REFUSED: self._on_refused}
            case Role.DEALER:
                return {Kind.SEED: self._on_seed, Kind.CORRECTIONS: self._on_corrections}
            case Role.ACTOR:
                return {Kind.DECIDE: self._on_decide}
            case Role.REWARDER:
                return {Kind.REWARD: self._on_reward}

    # Material

    def _on_seed(self, _: Identity, frame: Frame) -> None:
        if self._materials:
            raise FrameError("the dealer sent a second seed")
        _epoch, seed = read_seed(frame)
        self._materials = {
            name: ProgramMaterial(
                self.number,
                self.federation.parties,
                name,
                layout,
                seed,
                replicates=1,
                ahead=expanded_steps(layout.party_words[self.number], self._expand_ahead),
            )
            for name, layout in self._layouts.items()
        }
        self._start_what_can_start()

    def _on_corrections(self, _: Identity, frame: Frame) -> None:
        name = program_of(frame)
        columns = self._layouts[name].correction_words
        count, rest = divmod(len(frame.payload), columns * WORD_BYTES)
        due = self._materials[name].stocked_until if self._corrected and self._materials else None
        if frame.step != due or not count or rest or frame.step + count > self._wanted_until[name]:
            raise FrameError("the dealer sent corrections that were not asked for")
        words = np.frombuffer(frame.payload, "<u8")
        self._materials[name].add_corrections(frame.step, words.reshape(-1, columns))
        self._start_what_can_start()

    @property
    def _corrected(self) -> bool:
        return self.number == self.federation.parties - 1

    def _order_material(self) -> None:
        """The last party keeps a bounded stock of corrections, ordered ahead of use, one batch at a time."""
        if not self._corrected or not self._materials or DEALER not in self._present:
            return
        for name, used in self._next_number.items():
            batch, stock = (size(self._layouts[name], self._stock) for size in (batch_steps, stock_steps))
            arrived = self._wanted_until[name] == self._materials[name].stocked_until
            if arrived and self._wanted_until[name] + batch <= used + stock:
                self._send(DEALER, want_frame(name, self._wanted_until[name], batch))
                self._wanted_until[name] += batch

    # Requests

    def _on_decide(self, _: Identity, frame: Frame) -> None:
        version, key = read_decide(frame)
        due = self._next_number[DECIDE] + len(self._requests)
        if frame.step != due:
            raise FrameError(f"the actor asked for decision {frame.step} where {due} was due")
        if len(self._requests) >= MAX_WAITING:
            raise FrameError(f"the actor has more than {MAX_WAITING} requests waiting")
        self._requests.append(_DecideRequest(frame.step, version, key))
        self._start_what_can_start()

    def _on_reward(self, _: Identity, frame: Frame) -> None:
        decision, masked_reward = read_reward(frame)
        due = self._next_number[LEARN] + len(self._lessons)
        if frame.step != due:
            raise FrameError(f"the rewarder sent lesson {frame.step} where {due} was due")
        if len(self._lessons) >= MAX_WAITING:
            raise FrameError(f"the rewarder has more than {MAX_WAITING} lessons waiting")
        self._lessons.append(_Lesson(frame.step, decision, masked_reward))
        self._start_what_can_start()

    def _start_what_can_start(self) -> None:
        self._order_material()
        if not self._materials or not all(peer in self._present for peer in self._peers):
            return
        while self._lessons and self._can_learn(self._lessons[0]):
            self._start_lesson(self._lessons.popleft())
        while self._requests and self._can_decide(self._requests[0]):
            self._start_decision(self._requests.popleft())

    def _can_decide(self, request: _DecideRequest) -> bool:
        """Whether the request can be run now, or refused."""
        if request.version > self._taught:
            return True
        return request.version <= self._version and self._materials[DECIDE].ready(request.number)

    @property
    def _taught(self) -> int:
        """The version that holds all lessons received so far."""
        return self._next_number[LEARN] + len(self._lessons)

    def _can_learn(self, lesson: _Lesson) -> bool:
        """A reward may come while the decision is still being finished here: the slot is announced before the end."""
        finished = (DECIDE, lesson.decision) not in self._runs
        return finished and lesson.number == self._version and self._materials[LEARN].ready(lesson.number)

    # Deciding

    def _start_decision(self, request: _DecideRequest) -> None:
        self._next_number[DECIDE] = request.number + 1
        self._order_material()
        if request.number in self._refused_by_peer:
            self._refused_by_peer.discard(request.number)
            self._early.pop((DECIDE, request.number), None)
            return
        try:
            weights = self._weights_at(request.version)
            features = self._own_features(request.key)[None, None]
        except FeatureError as error:
            self._log.warning("refused a decision", number=request.number, reason=str(error))
            self._refuse_decision(request.number, NO_FEATURES)
            return
        except InputError as error:
            self._refuse_decision(request.number, str(error))
            return
        run = self._materials[DECIDE].run(request.number)
        program = decide(run, self.federation, self._thresholds, weights, features, self.number)
        evaluation = Evaluation(run, program)
        self._launch(
            (DECIDE, request.number),
            evaluation,
            lambda: self._decided(request.number, features, evaluation.result),
            lambda slot: self._send(ACTOR, slot_frame(request.number, int(slot[0, 0]))),
        )

    def _weights_at(self, version: int) -> Shared:
        if version not in self._weights:
            why = "is no longer kept" if version < self._version else "was not taught"
            raise InputError(f"model version {version} {why}; the newest is {self._version}")
        return self._weights[version]

    def _own_features(self, key: str) -> Words:
        features = checked_features(self._features.lookup(key), self.federation, self.number)
        if features.ndim != 1:
            raise FeatureError(f"the features of party {self.number} must be a list of numbers, got {features.shape}")
        return features

    def _refuse_decision(self, number: int, why: str) -> None:
        self._early.pop((DECIDE, number), None)
        for identity in (*self._peers, ACTOR):
            self._send(identity, refused_frame(DECIDE, number, why))

    def _decided(self, number: int, features: Words, decided: Decided) -> None:
        (self._interactions[number],) = interactions(features, decided)
        self._interactions.pop(number - MAX_PENDING, None)
        self._start_what_can_start()

    # Learning

    def _start_lesson(self, lesson: _Lesson) -> None:
        """A lesson about an unknown decision changes nothing, but has its number, so that all parties count alike.

        A reward may overtake a decision that is still being made. Then it is unknown to some parties only: they tell
        the others, and nobody learns it.
        """
        self._next_number[LEARN] = lesson.number + 1
        self._order_material()
        if lesson.number in self._refused_lessons:
            self._refuse_lesson(lesson.number, self._refused_lessons.pop(lesson.number))
            return
        interaction = self._interactions.get(lesson.decision)
        if interaction is None:
            known = lesson.decision < self._next_number[DECIDE] and (DECIDE, lesson.decision) not in self._runs
            why = f"decision {lesson.decision} was {'rewarded before, refused or forgotten' if known else 'never made'}"
            for peer in self._peers:
                self._send(peer, refused_frame(LEARN, lesson.number, why))
            self._refuse_lesson(lesson.number, why)
            return
        run = self._materials[LEARN].run(lesson.number)
        masked = np.array([lesson.masked_reward], np.uint64)
        reward = reward_share(masked, interaction.reward_mask, run.adds_constants)
        arm = Shared((self.federation.arms,), interaction.arm)
        program = learn(run, self.federation, self._model, interaction.features, self.number, arm, reward)
        evaluation = Evaluation(run, program)
        self._launch((LEARN, lesson.number), evaluation, lambda: self._learned(lesson, evaluation.result))

    def _refuse_lesson(self, number: int, why: str) -> None:
        self._early.pop((LEARN, number), None)
        if REWARDER in self._present:
            self._send(REWARDER, refused_frame(LEARN, number, why))
        self._new_version(self._model)

    def _learned(self, lesson: _Lesson, model: Model) -> None:
        self._interactions.pop(lesson.decision, None)
        self._new_version(model)
        for client in (REWARDER, ACTOR):
            if client in self._present:
                self._send(client, learned_frame(lesson.number))
        self._start_what_can_start()

    def _new_version(self, model: Model) -> None:
        self._model = model
        self._version += 1
        self._weights[self._version] = model.weights
        self._weights.pop(self._version - KEPT_VERSIONS, None)

    # Rounds

    def _launch(
        self,
        key: RunKey,
        evaluation: Evaluation,
        finish: Callable[[], None],
        announce: Callable[[Index], None] | None = None,
    ) -> None:
        active = _ActiveRun(evaluation, finish, announce, self._early.pop(key, {}))
        self._runs[key] = active
        self._send_round(key, evaluation)
        self._advance(key, active)

    def _send_round(self, key: RunKey, evaluation: Evaluation) -> None:
        assert evaluation.openings is not None
        name, step = key
        frame = Frame(Kind.ROUND, PROGRAM_NUMBERS[name], evaluation.round, step, encode_openings(evaluation.openings))
        for peer in self._peers:
            self._send(peer, frame)

    def _on_round(self, identity: Identity, frame: Frame) -> None:
        key = (program_of(frame), frame.step)
        if frame.round >= self._layouts[key[0]].rounds:
            raise FrameError(f"{identity} sent round {frame.round} of {key[0]}, which has none")
        active = self._runs.get(key)
        inbox = active.inbox if active is not None else self._early_inbox(key, identity)
        slot = (frame.round, identity.number)
        if slot in inbox or (active is not None and frame.round < active.evaluation.round):
            raise FrameError(f"{identity} sent round {frame.round} of {key[0]} {key[1]} twice")
        inbox[slot] = frame.payload
        if active is not None:
            self._advance(key, active)

    def _early_inbox(self, key: RunKey, identity: Identity) -> dict[tuple[int, int], bytes]:
        """Frames of a run that has not begun here; those of a run that was refused are dropped."""
        if key[1] < self._next_number[key[0]]:
            return {}
        if key not in self._early and len(self._early) >= MAX_WAITING:
            raise FrameError(f"{identity} is more than {MAX_WAITING} runs ahead")
        return self._early.setdefault(key, {})

    def _advance(self, key: RunKey, active: _ActiveRun) -> None:
        """Finish every round for which all peers' words are here."""
        evaluation = active.evaluation
        while evaluation.openings is not None and self._round_complete(active):
            try:
                evaluation.advance(self._opened_words(active))
            except ScoreRangeError as error:  # seen by all parties alike: the decision ends, the federation goes on
                del self._runs[key]
                self._send(ACTOR, refused_frame(key[0], key[1], str(error)))
                return
            if active.announce is not None and evaluation.announced is not None:
                active.announce(evaluation.announced)
                active.announce = None
            if evaluation.openings is not None:
                self._send_round(key, evaluation)
        if evaluation.openings is None and self._runs.pop(key, None) is not None:
            active.finish()

    def _round_complete(self, active: _ActiveRun) -> bool:
        return all((active.evaluation.round, peer.number) in active.inbox for peer in self._peers)

    def _opened_words(self, active: _ActiveRun) -> list[Words]:
        openings = active.evaluation.openings
        assert openings is not None
        by_party = []
        for party in range(self.federation.parties):
            if party == self.number:
                by_party.append([words for opening in openings if (words := opening.outgoing) is not None])
            else:
                payload = active.inbox.pop((active.evaluation.round, party))
                by_party.append(decode_openings(openings, payload, party))
        return [
            combine_words(opening, words) for opening, words in zip(openings, zip(*by_party, strict=True), strict=True)
        ]

    def _on_refused(self, identity: Identity, frame: Frame) -> None:
        """A peer cannot take part in a run: end it here too. Its randomness is never used again."""
        name, step = key = program_of(frame), frame.step
        self._early.pop(key, None)
        if step >= self._next_number[name]:
            self._note_refusal(identity, name, step, read_refused(frame))
        elif self._runs.pop(key, None) is not None:
            if name == LEARN:
                self._refuse_lesson(step, read_refused(frame))
            self._start_what_can_start()

    def _note_refusal(self, identity: Identity, name: str, step: int, why: str) -> None:
        """Remember a refusal of a run that has not begun here."""
        if len(self._refused_by_peer) + len(self._refused_lessons) >= MAX_WAITING:
            raise FrameError(f"{identity} is more than {MAX_WAITING} refusals ahead")
        if name == DECIDE:
            self._refused_by_peer.add(step)
        else:
            self._refused_lessons[step] = why
