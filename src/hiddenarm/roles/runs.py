"""The programs that a party has under way with its peers, and the rounds that travel between them.

Links are ordered, but not among each other: a peer may be a round ahead, or have begun a run that was not asked for
here yet. What comes early waits in an inbox; a round is finished when all peers' words for it are here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.errors import FrameError, ScoreRangeError
from hiddenarm.mpc.evaluation import Evaluation
from hiddenarm.net.frames import Frame, quick_frame
from hiddenarm.net.identity import Identity
from hiddenarm.roles.health import LastRun, RunTimes
from hiddenarm.roles.messages import Kind, run_frame

Send = Callable[[Identity, Frame], None]
Exchange = Callable[[Sequence[Identity], Frame], list[bytes] | None]
"""Sends a round to all peers; gives their payloads for the same round if they come at once, in the order of peers.
Otherwise they come as frames."""
RunKey = tuple[ProgramId, int]
Inbox = dict[int, dict[int, bytes]]
"""round -> party -> what the party sent."""

MAX_WAITING = 1024
"""Requests a client may have waiting, and runs a peer may be ahead, before it is cut off."""


@dataclass(slots=True, repr=False)
class Outcome:
    """What to do with a run: when it ends, when it announces a result before, and when scores leave their range."""

    finish: Callable[[], None]
    announce: Callable[[Any], None] | None = None
    out_of_range: Callable[[str], None] | None = None


@dataclass(slots=True, repr=False)
class _ActiveRun:
    key: RunKey
    frame: Frame
    """What is the same in the frames of all its rounds."""
    evaluation: Evaluation
    outcome: Outcome
    began: float
    inbox: Inbox = field(default_factory=dict)
    patient: bool = False
    """Whether it runs beside others, and nobody waits for its rounds."""
    received: tuple[bytes | None, ...] | None = None
    """What all parties sent in the current round, once it is complete; None for our own."""
    announced: bool = False
    waits_since: float | None = None
    """When only words from outside were missing."""
    sent: list[tuple[float, int]] = field(default_factory=list)
    """When each round left, and its bytes."""


class RunTable:
    """All runs of one party, by program and step. `times` counts those that came to their end, by program; in those of
    earlier epochs, if they are given."""

    def __init__(
        self,
        parties: int,
        peers: list[Identity],
        send: Send,
        exchange: Exchange,
        clock: Callable[[], float] = time.perf_counter,
        times: dict[str, RunTimes] | None = None,
    ) -> None:
        self.times: dict[str, RunTimes] = {} if times is None else times
        self._last: dict[str, tuple[int, list[tuple[float, int]], float]] = {}
        """Of the last run of each program: its count, when each round left and its bytes, when it ended."""
        self._clock = clock
        self._parties = range(parties)
        self._peers = peers
        (self._own_number,) = set(self._parties) - {peer.number for peer in peers}
        self._send = send
        self._exchange = exchange
        self._runs: dict[RunKey, _ActiveRun] = {}
        self._early: dict[RunKey, Inbox] = {}

    def __contains__(self, key: RunKey) -> bool:
        return key in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def last(self) -> dict[str, LastRun]:
        """The rounds of the last run of each program that came to its end."""
        return {name: _last_run(*last) for name, last in self._last.items()}

    def launch(self, key: RunKey, evaluation: Evaluation, outcome: Outcome, *, patient: bool = False) -> None:
        """Begin a run: send its first round, and go on as far as the peers' words allow. A patient one gives way to
        all others after every round."""
        frame, inbox = run_frame(Kind.ROUND, *key), self._early.pop(key, {})
        active = _ActiveRun(key, frame, evaluation, outcome, self._clock(), inbox, patient)
        self._runs[key] = active
        self._computed(active)
        self._advance(active)

    def resume(self, key: RunKey) -> None:
        """Go on with a run that was told what it awaits. The time that it waited does not count."""
        active = self._runs[key]
        if active.waits_since is not None:
            active.began += self._clock() - active.waits_since
            active.waits_since = None
        self._advance(active)

    def drop(self, key: RunKey) -> bool:
        """Forget a run that will not be finished, and all that came for it; whether it was under way."""
        self._early.pop(key, None)
        return self._runs.pop(key, None) is not None

    def on_round(self, identity: Identity, key: RunKey, frame: Frame) -> bool | None:
        """A peer's words for one round of a run; whether the run has ended, None if it is not under way."""
        active = self._runs.get(key)
        if active is None:
            return None
        number, evaluation = frame.round, active.evaluation
        current = evaluation.round
        if number < current + (active.received is not None):
            raise FrameError(f"{identity} sent round {number} of {key[0].name} {key[1]} twice")
        self._keep(active.inbox, identity, key, frame, evaluation.rounds)
        return number == current and self._advance(active)

    def on_early_round(self, identity: Identity, key: RunKey, frame: Frame, rounds: int) -> None:
        """A peer's words for a run that has not begun here."""
        if key not in self._early and len(self._early) >= MAX_WAITING:
            raise FrameError(f"{identity} is more than {MAX_WAITING} runs ahead")
        self._keep(self._early.setdefault(key, {}), identity, key, frame, rounds)

    def _keep(self, inbox: Inbox, identity: Identity, key: RunKey, frame: Frame, rounds: int) -> None:
        if frame.round >= rounds:
            raise FrameError(f"{identity} sent round {frame.round} of {key[0].name}, which has none")
        messages = inbox.setdefault(frame.round, {})
        if identity.number in messages:
            raise FrameError(f"{identity} sent round {frame.round} of {key[0].name} {key[1]} twice")
        messages[identity.number] = frame.payload

    def _computed(self, active: _ActiveRun) -> None:
        """Announce what became known, and send the current round, if there is one; the peers' words for it may come
        back at once."""
        evaluation = active.evaluation
        if evaluation.announced is not None and not active.announced:
            self._announce(active)
        payload = evaluation.payload
        if payload is None:
            return
        kind, program, _, step, _ = active.frame
        number = evaluation.round
        frame = quick_frame((kind, program, number, step, payload))
        active.sent.append((self._clock(), len(payload)))
        if active.patient or number in active.inbox:  # in the latter case not all answers are still to come
            send_to_all(self._send, self._peers, frame)
            return
        answers = self._exchange(self._peers, frame)
        if answers is not None:
            own = self._own_number
            active.received = (*answers[:own], None, *answers[own:])

    def _advance(self, active: _ActiveRun) -> bool:
        """Finish every round for which all peers' words are here, and every pause, until words from outside are
        missing; whether the run has ended."""
        evaluation = active.evaluation
        while not evaluation.ended:
            received = () if evaluation.payload is None else active.received or self._collected(active)
            if received is None:
                return False
            if evaluation.waits:
                active.waits_since = active.waits_since or self._clock()
                return False
            active.received = None
            try:
                evaluation.advance(received)
            except ScoreRangeError as error:
                if active.outcome.out_of_range is None:
                    raise
                del self._runs[active.key]
                active.outcome.out_of_range(str(error))
                return True
            self._computed(active)
        if self._runs.pop(active.key, None) is not None:
            self._note_time(active.key[0], active)
            active.outcome.finish()
        return True

    def _collected(self, active: _ActiveRun) -> tuple[bytes | None, ...] | None:
        """What all parties sent in the current round, if it has come in frames."""
        number = active.evaluation.round
        messages = active.inbox.get(number)
        if messages is None or len(messages) < len(self._peers):
            return None
        del active.inbox[number]
        active.received = tuple(map(messages.get, self._parties))
        return active.received

    def _announce(self, active: _ActiveRun) -> None:
        active.announced = True
        if active.outcome.announce is not None:
            active.outcome.announce(active.evaluation.announced)

    def _note_time(self, program: ProgramId, active: _ActiveRun) -> None:
        if program.name not in self.times:
            self.times[program.name] = RunTimes()
        now = self._clock()
        self.times[program.name].observe(program.count, now - active.began)
        self._last[program.name] = program.count, active.sent, now


def _last_run(count: int, rounds: Sequence[tuple[float, int]], ended: float) -> LastRun:
    first = rounds[0][0] if rounds else ended
    sent = tuple(when - first for when, _ in rounds)
    return LastRun(count, sent, tuple(size for _, size in rounds), ended - first)


def send_to_all(send: Send, peers: Sequence[Identity], frame: Frame) -> None:
    """Send a round; the answers come as frames."""
    for peer in peers:
        send(peer, frame)
