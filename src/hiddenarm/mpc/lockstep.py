"""All parties of a program in one process, without sockets: the whole protocol in one readable loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.codec import decode_openings
from hiddenarm.mpc.evaluation import Evaluation
from hiddenarm.mpc.run import Openings
from hiddenarm.ring.words import Words

Observer = Callable[[Openings, Sequence[Sequence[Words]]], None]
"""Sees a round: its openings, and for each opening what each party sent."""


@dataclass
class LockstepMeter:
    """What crossed between the parties, by program: runs, rounds, payload bytes sent by party 0 to each other party."""

    runs: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    bytes_to_each_peer: dict[str, int] = field(default_factory=dict)

    def count_run(self, program: str) -> None:
        self.runs[program] = self.runs.get(program, 0) + 1

    def count_round(self, program: str, size: int) -> None:
        self.rounds[program] = self.rounds.get(program, 0) + 1
        self.bytes_to_each_peer[program] = self.bytes_to_each_peer.get(program, 0) + size


def run_lockstep(
    evaluations: Sequence[Evaluation],
    *,
    program: str = "",
    meter: LockstepMeter | None = None,
    observer: Observer | None = None,
) -> list[Any]:
    """Run one program at all parties to its end; return each party's result."""
    advance_lockstep(evaluations, program=program, meter=meter, observer=observer)
    if not evaluations[0].ended:
        raise ProtocolError("a program was to be run to its end before it was told the words it awaits")
    return [evaluation.result for evaluation in evaluations]


def advance_lockstep(
    evaluations: Sequence[Evaluation],
    *,
    program: str = "",
    meter: LockstepMeter | None = None,
    observer: Observer | None = None,
) -> None:
    """Run one program at all parties to its end, or until it waits for words from outside."""
    first = evaluations[0]
    if meter is not None and first.at_start:
        meter.count_run(program)
    while not first.ended and not first.waits:
        # Each party sends the same bytes to all others ...
        openings, sent = first.openings, [evaluation.payload for evaluation in evaluations]
        if meter is not None and openings:
            meter.count_round(program, len(sent[0] or b""))
        if observer is not None and openings:
            observer(openings, _words_sent(openings, sent, first.replicates))
        # ... and goes on with what it received.
        for party, evaluation in enumerate(evaluations):
            evaluation.advance(tuple([None if sender == party else message for sender, message in enumerate(sent)]))


def _words_sent(openings: Openings, sent: Sequence[bytes | None], replicates: int) -> list[tuple[Words, ...]]:
    """For each opening, what each party sent."""
    by_party = [decode_openings(openings, message or b"", party, replicates) for party, message in enumerate(sent)]
    return list(zip(*by_party, strict=True))
