"""All parties of a program in one process, without sockets: the whole protocol in one readable loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hiddenarm.mpc.codec import payload_bytes
from hiddenarm.mpc.evaluation import Evaluation, combine_words
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
    if meter is not None:
        meter.count_run(program)
    while (openings := evaluations[0].openings) is not None:
        # Each party sends its words of every opening to all others ...
        by_party = [_outgoing(evaluation) for evaluation in evaluations]
        by_opening = list(zip(*by_party, strict=True))
        if meter is not None:
            meter.count_round(program, payload_bytes(openings, 0, evaluations[0].replicates))
        if observer is not None:
            observer(openings, by_opening)
        # ... which add up to the same opened words at all of them.
        opened = [combine_words(opening, words) for opening, words in zip(openings, by_opening, strict=True)]
        for evaluation in evaluations:
            evaluation.advance(opened)
    return [evaluation.result for evaluation in evaluations]


def _outgoing(evaluation: Evaluation) -> list[Words]:
    assert evaluation.openings is not None
    words = [opening.outgoing for opening in evaluation.openings]
    return [word for word in words if word is not None]
