"""The programs that a party has under way with its peers, and the rounds that travel between them.

Links are ordered, but not among each other: a peer may be a round ahead, or have begun a run that was not asked for
here yet. What comes early waits in an inbox; a round is finished when all peers' words for it are here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.errors import FrameError, ScoreRangeError
from hiddenarm.mpc.evaluation import Evaluation
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import run_frame
from hiddenarm.roles.vitals import RunTimes

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
    announce: Callable[[Words], None] | None = None
    out_of_range: Callable[[str], None] | None = None


@dataclass(slots=True, repr=False)
class _ActiveRun:
    evaluation: Evaluation
    outcome: Outcome
    began: float
    inbox: Inbox = field(default_factory=dict)
    announced: bool = False


class RunTable:
    """All runs of one party, by program and step. `times` has those that came to their end, by program."""

    def __init__(
        self,
        parties: int,
        peers: list[Identity],
        send: Send,
        exchange: Exchange,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.times: dict[str, RunTimes] = {}
        self._clock = clock
        self._parties = range(parties)
        self._peers = peers
        self._send = send
        self._exchange = exchange
        self._runs: dict[RunKey, _ActiveRun] = {}
        self._early: dict[RunKey, Inbox] = {}

    def __contains__(self, key: RunKey) -> bool:
        return key in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def launch(self, key: RunKey, evaluation: Evaluation, outcome: Outcome) -> None:
        """Begin a run: send its first round, and go on as far as the peers' words allow."""
        active = _ActiveRun(evaluation, outcome, self._clock(), self._early.pop(key, {}))
        self._runs[key] = active
        self._send_round(key, active)
        self._advance(key, active)

    def resume(self, key: RunKey) -> None:
        """Go on with a run that was told what it awaits. Its time counts from here."""
        active = self._runs[key]
        active.began = self._clock()
        self._advance(key, active)

    def drop(self, key: RunKey) -> bool:
        """Forget a run that will not be finished, and all that came for it; whether it was under way."""
        self._early.pop(key, None)
        return self._runs.pop(key, None) is not None

    def on_round(self, identity: Identity, key: RunKey, frame: Frame) -> bool:
        """A peer's words for one round of a run that is under way; whether the run has ended."""
        active = self._runs[key]
        current = active.evaluation.round
        if frame.round < current:
            raise FrameError(f"{identity} sent round {frame.round} of {key[0].name} {key[1]} twice")
        self._keep(active.inbox, identity, key, frame, active.evaluation.rounds)
        return frame.round == current and self._advance(key, active)

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

    def _send_round(self, key: RunKey, active: _ActiveRun) -> None:
        """Send this party's words for the current round; the peers' may come back at once."""
        evaluation = active.evaluation
        assert evaluation.payload is not None
        frame = run_frame(Kind.ROUND, *key, round=evaluation.round, payload=evaluation.payload)
        if evaluation.round in active.inbox:  # then the answers are not all still to come
            send_to_all(self._send, self._peers, frame)
            return
        answers = self._exchange(self._peers, frame)
        if answers is not None:
            numbers = [peer.number for peer in self._peers]
            active.inbox[evaluation.round] = dict(zip(numbers, answers, strict=True))

    def _advance(self, key: RunKey, active: _ActiveRun) -> bool:
        """Finish every round for which all peers' words are here, until one waits for words from outside; whether the
        run has ended."""
        evaluation, outcome = active.evaluation, active.outcome
        while not evaluation.ended:
            messages = active.inbox.get(evaluation.round)
            if messages is None or len(messages) < len(self._peers) or evaluation.waits:
                return False
            del active.inbox[evaluation.round]
            try:
                evaluation.advance(tuple([messages.get(party) for party in self._parties]))
            except ScoreRangeError as error:
                if outcome.out_of_range is None:
                    raise
                del self._runs[key]
                outcome.out_of_range(str(error))
                return True
            if evaluation.announced is not None and not active.announced and outcome.announce is not None:
                active.announced = True
                outcome.announce(evaluation.announced)
            if not evaluation.ended:
                self._send_round(key, active)
        if self._runs.pop(key, None) is not None:
            self._note_time(key[0], active)
            outcome.finish()
        return True

    def _note_time(self, program: ProgramId, active: _ActiveRun) -> None:
        if program.name not in self.times:
            self.times[program.name] = RunTimes()
        self.times[program.name].observe(program.count, self._clock() - active.began)


def send_to_all(send: Send, peers: Sequence[Identity], frame: Frame) -> None:
    """Send a round; the answers come as frames."""
    for peer in peers:
        send(peer, frame)
