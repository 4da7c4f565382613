"""A program that awaits words from outside: the rounds before do not need them, and none goes on without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import given_share, mask
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Masked, MaskPart
from hiddenarm.ring.words import Words
from support import fixed_key

PARTIES = 2
SEEDS = Seeds(fixed_key("awaited"))


def decide(run: Run) -> Program:
    """Deal the rewarder's mask to the parties."""
    share = run.deal((), lambda: run.rewarder_words(()))
    (opened,) = yield (mask(run, given_share(run)),)
    return share, opened


def learn(run: Run) -> Program:
    """x squared times r, of which r + mu is told after the second round."""
    x, mu = given_share(run), run.given(())
    reward_mask = MaskPart(run.rewarder_words(()) if mu is None else mu)
    (first,) = yield (mask(run, x),)
    (square,) = yield (mask(run, form(run, ",->", first, first)),)
    reward = Masked((), run.awaited(()), (reward_mask,))
    (product,) = yield (mask(run, form(run, ",->", square, reward)),)
    return form(run, ",->", product, first)


def evaluations(name: str, step: int, given: list[list[Words]]) -> list[Evaluation]:
    text = {"decide": decide, "learn": learn}[name]
    layout = layout_of(text, PARTIES, 1)
    corrections = ProgramDealer(name, text, layout, SEEDS, 1, rewarded="decide").deal(step, 1)
    found = []
    for party in range(PARTIES):
        material = ProgramMaterial(party, PARTIES, name, layout, SEEDS.party(party), ahead=1)
        material.skip_to(step)
        if party == PARTIES - 1:
            material.add_corrections(step, corrections)
        found.append(Evaluation(compile_program(text, party, PARTIES), material.take(step), given[party]))
    return found


def word(value: int) -> Words:
    return np.array([value % 2**64], np.uint64)


def shares(value: int, label: str) -> list[Words]:
    first = program_stream(fixed_key("awaited", label), "share", 1).step(0)
    return [first, word(value) - first]


def learners(step: int = 7) -> tuple[list[Evaluation], Words]:
    """Both parties' evaluations with x = 3, and r + mu for r = 5."""
    decided = run_lockstep(evaluations("decide", step, [[s] for s in shares(0, "decide")]))
    given = [[x, result[0]] for x, result in zip(shares(3, "learn"), decided, strict=True)]
    mu = program_stream(SEEDS.rewarder(), "decide", 1).step(step)
    return evaluations("learn", step, given), word(5) + mu


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
    (other, _) = evaluations("decide", 9, [[s] for s in shares(0, "decide")])
    with pytest.raises(ProtocolError, match="does not await"):
        other.tell(masked)


def test_words_cannot_be_awaited_before_the_first_round_or_twice() -> None:
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

    for text, why in ((too_early, "once, after"), (twice, "once, after"), (brought_after, "before what it awaits")):
        with pytest.raises(ValueError, match=why):
            compile_program(text, 0, PARTIES)
