"""A program that awaits words from outside: the rounds before do not need them, and none goes on without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import DealtWords, Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lockstep import LockstepMeter, advance_lockstep, run_lockstep
from hiddenarm.mpc.masking import given_share, mask, returned_mask
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.run import Opening, Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words
from support import fixed_key

PARTIES = 2
NAME = "learn"
SEEDS = Seeds(fixed_key("awaited"))


def learn(run: Run) -> Program:
    """x squared times r, of which r + mu is told after the second round; the rewarder knows mu."""
    x, mu = given_share(run), returned_mask(run, (), lambda: run.rewarder_words(()))
    (first,) = yield (mask(run, x),)
    (square,) = yield (mask(run, form(run, ",->", first, first)),)
    (product,) = yield (mask(run, form(run, ",->", square, mu.awaited(run, "r + mu"))),)
    return form(run, ",->", product, first)


def evaluations(step: int, given: list[list[Words]]) -> list[Evaluation]:
    layout = layout_of(learn, PARTIES, 1)
    corrections = ProgramDealer(NAME, learn, layout, SEEDS, 1).deal(step, 1)
    found = []
    for party in range(PARTIES):
        material = ProgramMaterial(party, PARTIES, NAME, layout, SEEDS.party(party), ahead=1)
        material.skip_to(step)
        if party == PARTIES - 1:
            material.add_corrections(step, corrections)
        found.append(Evaluation(compile_program(learn, party, PARTIES), material.take(step), given[party]))
    return found


def silent(run: Run) -> Program:
    """Awaits nothing."""
    yield (mask(run, given_share(run)),)
    return None


def word(value: int) -> Words:
    return np.array([value % 2**64], np.uint64)


def shares(value: int, label: str) -> list[Words]:
    first = program_stream(fixed_key("awaited", label), "share", 1).step(0)
    return [first, word(value) - first]


def learners(step: int = 7) -> tuple[list[Evaluation], Words]:
    """Both parties' evaluations with x = 3, and r + mu for r = 5."""
    mu = program_stream(SEEDS.rewarder(), NAME, 1).step(step)
    return evaluations(step, [[x] for x in shares(3, "learn")]), word(5) + mu


@pytest.mark.parametrize("told_in", [0, 1])
def test_words_may_be_told_at_any_time_until_they_are_needed(told_in: int) -> None:
    found, masked = learners()
    for round_ in range(3):
        assert [evaluation.waits for evaluation in found] == [round_ == told_in == 1] * 2
        if round_ == told_in:
            for evaluation in found:
                evaluation.tell(masked)
        assert not any(evaluation.waits for evaluation in found)
        sent = [evaluation.payload for evaluation in found]
        found[0].advance((None, sent[1]))
        found[1].advance((sent[0], None))
    results: list[Any] = [evaluation.result for evaluation in found]
    total = results[0].share + results[1].share
    assert int(total.reshape(-1)[0]) == 3 * 3 * 5 * 3


def test_a_program_does_not_go_on_without_the_words_it_awaits() -> None:
    found, _ = learners()
    sent = [evaluation.payload for evaluation in found]
    found[0].advance((None, sent[1]))
    assert found[0].waits
    with pytest.raises(ProtocolError, match="before it was told"):
        found[0].advance((None, sent[1]))


def test_words_are_told_once_and_only_to_who_awaits_them() -> None:
    found, masked = learners()
    found[0].tell(masked)
    with pytest.raises(ProtocolError, match="does not await"):
        found[0].tell(masked)
    other = Evaluation(compile_program(silent, 0, PARTIES), DealtWords(word(1), np.empty(0, np.uint64)), [word(2)])
    with pytest.raises(ProtocolError, match="does not await"):
        other.tell(masked)


def test_a_program_is_not_run_to_its_end_without_the_words_it_awaits() -> None:
    found, masked = learners()
    advance_lockstep(found)
    assert [evaluation.waits for evaluation in found] == [True, True]
    with pytest.raises(ProtocolError, match="to its end"):
        run_lockstep(found)
    for evaluation in found:
        evaluation.tell(masked)
    results: list[Any] = run_lockstep(found)
    assert int((results[0].share + results[1].share)[0]) == 3 * 3 * 5 * 3


def test_words_are_awaited_after_a_round_or_pause_and_once_after_each() -> None:
    def too_early(run: Run) -> Program:
        run.awaited(())
        yield (mask(run, given_share(run)),)
        return None

    def twice(run: Run) -> Program:
        yield (mask(run, given_share(run)),)
        run.awaited(())
        return run.awaited(())

    def brought_after(run: Run) -> Program:
        yield (mask(run, given_share(run)),)
        run.awaited(())
        return run.given(())

    for text, why in ((too_early, "once after"), (twice, "once after"), (brought_after, "before what it awaits")):
        with pytest.raises(ValueError, match=why):
            compile_program(text, 0, PARTIES)


@dataclass
class First:
    """What `asking` announces."""

    sum: Words
    nothing: None
    parts: tuple[Words, ...]


def asking(run: Run) -> Program:
    """Open x + y; announce it; then, told a and b one after the other, open x + a, and give that, b and their sum."""
    x: Any = run.given(())
    y: Any = run.random(())
    (total,) = yield (Opening((), x + y, lambda opened: opened),)
    run.announce(First(total, None, (x, y)))
    yield ()
    told: Any = run.awaited(())
    (opened,) = yield (Opening((), x + told, lambda opened: opened),)
    yield ()
    yield ()
    other: Any = run.awaited(())
    return opened, other, opened + other


class Asked:
    """Both parties' evaluations of `asking`."""

    def __init__(self) -> None:
        self.x, self.y = [word(3), word(4)], [word(50), word(60)]
        nothing = np.empty(0, np.uint64)
        self.both = [
            Evaluation(compile_program(asking, party, PARTIES), DealtWords(self.y[party], nothing), [self.x[party]])
            for party in range(PARTIES)
        ]

    def exchange(self) -> None:
        sent = [evaluation.payload for evaluation in self.both]
        self.both[0].advance((None, sent[1]))
        self.both[1].advance((sent[0], None))

    def tell(self, value: int) -> None:
        for evaluation in self.both:
            evaluation.tell(word(value))


def test_a_pause_sends_nothing_and_is_no_round() -> None:
    asked = Asked()
    first = asked.both[0]
    assert (first.round, first.rounds, first.waits, first.announced) == (0, 2, False, None)
    asked.exchange()
    assert (first.round, first.payload, first.openings, first.waits, first.ended) == (1, None, (), True, False)
    with pytest.raises(ProtocolError, match="before it was told"):
        first.advance()
    asked.tell(100)
    assert not first.waits
    for evaluation in asked.both:
        evaluation.advance()
    assert (first.round, len(first.payload or b"")) == (1, 8)
    asked.exchange()
    state: tuple[object, ...] = (first.round, first.payload, first.waits)
    assert state == (2, None, False)
    first.advance()
    assert first.waits
    asked.tell(1000)
    first.advance()
    result: Any = first.result
    assert [int(words[0]) for words in result] == [207, 1000, 1207]
    with pytest.raises(IndexError):
        first.advance()


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_awaited_is_told_in_order_early_or_late(at_once: bool) -> None:
    asked, meter = Asked(), LockstepMeter()
    if at_once:
        asked.tell(100)
        asked.tell(1000)
    else:
        for value in (100, 1000):
            advance_lockstep(asked.both, meter=meter)
            assert asked.both[0].waits
            asked.tell(value)
    results: Any = run_lockstep(asked.both, meter=meter)
    for result in results:
        assert [int(words[0]) for words in result] == [207, 1000, 1207]
    assert (meter.runs, meter.rounds) == ({"": 1}, {"": 2})
    with pytest.raises(ProtocolError, match="does not await"):
        asked.both[0].tell(word(1))


def test_any_structure_of_words_is_announced_and_stays() -> None:
    asked = Asked()
    asked.exchange()
    for party, evaluation in enumerate(asked.both):
        announced = evaluation.announced
        assert isinstance(announced, First)
        assert announced.nothing is None
        assert int(announced.sum[0]) == 117
        assert [int(words[0]) for words in announced.parts] == [int(asked.x[party][0]), int(asked.y[party][0])]
    kept: Any = asked.both[0].announced
    asked.tell(100)
    asked.tell(1000)
    run_lockstep(asked.both)
    assert asked.both[0].announced is kept
    assert isinstance(kept, First)
    assert int(kept.parts[0][0]) == 3


def test_one_result_is_announced() -> None:
    def twice(run: Run) -> Program:
        x = run.given(())
        run.announce(x)
        yield ()
        run.announce(x)
        return x

    with pytest.raises(ValueError, match="one result"):
        compile_program(twice, 0, PARTIES)


def test_the_dealer_counts_rounds_without_pauses() -> None:
    def text(run: Run) -> Program:
        yield ()
        (opened,) = yield (mask(run, given_share(run, 3)),)
        run.announce(opened)
        yield ()
        yield (mask(run, Shared((), run.awaited(()))),)
        yield ()
        return None

    layout = layout_of(text, PARTIES, 1)
    assert layout.round_bytes == ((24, 24), (8, 8))
    assert layout.party_words == (4, 4)
    assert layout.round_bytes == compile_program(text, 0, PARTIES).expected.round_bytes
