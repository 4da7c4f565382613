"""A run that pauses for words from outside sends nothing there, whichever party is told first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.catalogue import LEARN_ONE
from hiddenarm.errors import FrameError
from hiddenarm.mpc.evaluation import DealtWords, Evaluation, compile_program
from hiddenarm.mpc.run import Opening, Program, Run
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import Words
from hiddenarm.roles.runs import Outcome, RunKey, RunTable

KEY: RunKey = (LEARN_ONE, 0)
NOTHING = np.empty(0, np.uint64)


def word(value: int) -> Words:
    return np.array([[value]], np.uint64)


def pausing(run: Run) -> Program:
    """Open x; announce it; told a, open x + a."""
    x: Any = run.given((1,))
    (total,) = yield (Opening((1,), x, lambda opened: opened),)
    run.announce(total)
    yield ()
    told: Any = run.awaited((1,))
    (opened,) = yield (Opening((1,), x + told, lambda opened: opened),)
    return opened


@dataclass
class Side:
    """One party with its run, and what it has sent."""

    number: int
    time: float = 0.0
    sent: list[Frame] = field(default_factory=list)
    announced: list[int] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self.peer = Identity(Role.PARTY, 1 - self.number)
        self.table = RunTable(2, [self.peer], self._send, self._exchange, lambda: self.time)
        self.evaluation = Evaluation(
            compile_program(pausing, self.number, 2), DealtWords(NOTHING, NOTHING), [word(10 + self.number)]
        )

    def _send(self, _: Identity, frame: Frame) -> None:
        self.sent.append(frame)

    def _exchange(self, _: object, frame: Frame) -> None:
        self.sent.append(frame)

    def launch(self) -> None:
        self.table.launch(KEY, self.evaluation, Outcome(self._finish, self._announce))

    def _finish(self) -> None:
        self.ended = True

    def _announce(self, announced: Words) -> None:
        self.announced.append(int(announced[0, 0]))

    def receive(self, frame: Frame) -> None:
        self.table.on_round(self.peer, KEY, frame)

    def tell(self, value: int) -> None:
        self.evaluation.tell(word(value))
        self.table.resume(KEY)


def paused() -> tuple[Side, Side]:
    """Both parties in the pause."""
    first, second = Side(0), Side(1)
    for side in (first, second):
        side.launch()
    first.receive(second.sent[0])
    second.receive(first.sent[0])
    return first, second


def test_in_a_pause_nothing_is_sent_and_what_was_announced_is_known() -> None:
    for side in paused():
        assert [frame.round for frame in side.sent] == [0]
        assert side.announced == [21]
        assert not side.ended


def test_a_peer_that_was_told_before_may_be_a_round_ahead() -> None:
    first, second = paused()
    second.tell(5)
    assert [frame.round for frame in second.sent] == [0, 1]
    first.receive(second.sent[1])
    assert len(first.sent) == 1
    first.tell(5)
    assert [frame.round for frame in first.sent] == [0, 1]
    assert first.ended
    second.receive(first.sent[1])
    assert second.ended
    assert [int(np.ravel(side.evaluation.result)[0]) for side in (first, second)] == [31, 31]  # type: ignore[call-overload]
    assert first.announced == second.announced == [21]


def test_words_that_are_told_before_the_pause_are_not_waited_for() -> None:
    first, second = Side(0), Side(1)
    first.launch()
    second.launch()
    for side in (first, second):
        side.tell(5)
        assert len(side.sent) == 1
    first.receive(second.sent[0])
    assert [frame.round for frame in first.sent] == [0, 1]
    assert first.announced == [21]


def test_what_a_peer_sends_twice_is_refused_in_a_pause() -> None:
    first, second = paused()
    with pytest.raises(FrameError, match="twice"):
        first.receive(second.sent[0])
    second.tell(5)
    first.receive(second.sent[1])
    with pytest.raises(FrameError, match="twice"):
        first.receive(second.sent[1])
    with pytest.raises(FrameError, match="has none"):
        first.receive(Frame(second.sent[1].kind, second.sent[1].program, 2, second.sent[1].step, bytes(8)))


def test_a_run_that_is_dropped_in_a_pause_is_forgotten() -> None:
    first, _ = paused()
    assert first.table.drop(KEY)
    assert KEY not in first.table
    assert not first.table.drop(KEY)


def test_time_in_which_only_words_from_outside_are_missing_does_not_count() -> None:
    first, second = paused()
    for side, waited in ((first, 100.0), (second, 7.0)):
        side.time += waited
        side.tell(5)
        side.time += 0.25
    first.receive(second.sent[1])
    assert first.table.times["learn"].seconds == pytest.approx(0.25)
