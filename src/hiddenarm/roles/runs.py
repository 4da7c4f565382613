"""The programs that a party has under way with its peers, and the rounds that travel between them.

Links are ordered, but not among each other: a peer may be a round ahead, or have begun a run that was not asked for
here yet. What comes early waits in an inbox; a round is finished when all peers' words for it are here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.errors import FrameError, ScoreRangeError
from hiddenarm.mpc.evaluation import Evaluation
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import run_frame

Send = Callable[[Identity, Frame], None]
RunKey = tuple[ProgramId, int]
Inbox = dict[tuple[int, int], bytes]
"""(round, party) -> what the party sent."""

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
    inbox: Inbox = field(default_factory=dict)
    announced: bool = False


class RunTable:
    """All runs of one party, by program and step."""

    def __init__(self, number: int, parties: int, peers: list[Identity], send: Send) -> None:
        self._number = number
        self._parties = parties
        self._peers = peers
        self._send = send
        self._runs: dict[RunKey, _ActiveRun] = {}
        self._early: dict[RunKey, Inbox] = {}

    def __contains__(self, key: RunKey) -> bool:
        return key in self._runs

    def launch(self, key: RunKey, evaluation: Evaluation, outcome: Outcome) -> None:
        """Begin a run: send its first round, and go on as far as the peers' words allow."""
        active = _ActiveRun(evaluation, outcome, self._early.pop(key, {}))
        self._runs[key] = active
        self._send_round(key, evaluation)
        self._advance(key, active)

    def drop(self, key: RunKey) -> bool:
        """Forget a run that will not be finished, and all that came for it; whether it was under way."""
        self._early.pop(key, None)
        return self._runs.pop(key, None) is not None

    def on_round(self, identity: Identity, key: RunKey, frame: Frame, *, past: bool, rounds: int) -> None:
        """A peer's words for one round. `past` says that the run was begun here before."""
        if frame.round >= rounds:
            raise FrameError(f"{identity} sent round {frame.round} of {key[0].name}, which has none")
        active = self._runs.get(key)
        if active is None and past:
            return  # of a run that was refused
        inbox = active.inbox if active is not None else self._early_inbox(key, identity)
        slot = (frame.round, identity.number)
        if slot in inbox or (active is not None and frame.round < active.evaluation.round):
            raise FrameError(f"{identity} sent round {frame.round} of {key[0].name} {key[1]} twice")
        inbox[slot] = frame.payload
        if active is not None:
            self._advance(key, active)

    def _early_inbox(self, key: RunKey, identity: Identity) -> Inbox:
        if key not in self._early and len(self._early) >= MAX_WAITING:
            raise FrameError(f"{identity} is more than {MAX_WAITING} runs ahead")
        return self._early.setdefault(key, {})

    def _send_round(self, key: RunKey, evaluation: Evaluation) -> None:
        assert evaluation.payload is not None
        frame = run_frame(Kind.ROUND, *key, round=evaluation.round, payload=evaluation.payload)
        for peer in self._peers:
            self._send(peer, frame)

    def _advance(self, key: RunKey, active: _ActiveRun) -> None:
        """Finish every round for which all peers' words are here."""
        evaluation, outcome = active.evaluation, active.outcome
        while evaluation.payload is not None and self._round_complete(active):
            try:
                evaluation.advance(self._received(active))
            except ScoreRangeError as error:
                if outcome.out_of_range is None:
                    raise
                del self._runs[key]
                outcome.out_of_range(str(error))
                return
            if not active.announced and outcome.announce is not None and evaluation.announced is not None:
                active.announced = True
                outcome.announce(evaluation.announced)
            if evaluation.payload is not None:
                self._send_round(key, evaluation)
        if evaluation.payload is None and self._runs.pop(key, None) is not None:
            outcome.finish()

    def _round_complete(self, active: _ActiveRun) -> bool:
        return all((active.evaluation.round, peer.number) in active.inbox for peer in self._peers)

    def _received(self, active: _ActiveRun) -> tuple[bytes | None, ...]:
        """What each party sent in the current round; None for our own."""
        round_ = active.evaluation.round
        return tuple(
            [None if party == self._number else active.inbox.pop((round_, party)) for party in range(self._parties)]
        )
