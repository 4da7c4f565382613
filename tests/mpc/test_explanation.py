"""An explanation says everything that a program opens and is dealt, and is about the code that is run."""

from __future__ import annotations

import pytest

from hiddenarm.bandit.catalogue import ABOUT, DECIDE_AMONG, ProgramId, program_text
from hiddenarm.bandit.evaluation import PolicyValues
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.evaluation import compile_program
from hiddenarm.mpc.explanation import Array, Explanation, explain
from hiddenarm.mpc.masking import given_share, mask
from hiddenarm.mpc.run import Program, ProgramText, Run
from hiddenarm.mpc.tournament import RANDOM_ORDER
from hiddenarm.mpc.values import Shared
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisySums
from hiddenarm.ring.words import packed_words
from support import FourRoundFederation

SMALL = Federation(arms=3, features=(2, 1), epsilon=0.1)
THREE = Federation(arms=4, features=(1, 2, 2), epsilon=0.1)
LONG = Federation(arms=50, features=(1, 1), epsilon=0.1)
FOUR_ROUNDS = FourRoundFederation(arms=3, features=(2, 1), epsilon=0.1)
EVALUATED = Federation(arms=3, features=(2, 1), epsilon=0.1, evaluation=PolicyValues(0.5, "actor", window=4))
ELSEWHERE = {"refresh", "descend", "value", *DECIDE_AMONG.values()}
"""Programs that not every federation has."""
NOISY = Federation(arms=3, features=(2, 1), epsilon=0.1, privacy=NoisySums(1.0))
GRADIENT = Federation(arms=3, features=(2, 1), epsilon=0.1, privacy=NoisyGradient(1.0))
BATCHED = {"decide": 3, "gather": 3, "solve": 3, "repair": 3}
CASES = [
    *((federation, name, 1) for federation in (SMALL, THREE) for name in ABOUT if name not in ELSEWHERE),
    *((NOISY, name, 1) for name in ("decide", "gather", "refresh")),
    *((GRADIENT, name, 1) for name in ("gather", "descend")),
    *((SMALL, name, count) for name, count in BATCHED.items()),
    (EVALUATED, "value", 4),
    (LONG, "decide", 1),
    (LONG, "decide among 4", 1),
    (LONG, "decide among 48", 2),
    (FOUR_ROUNDS, "decide", 1),
]


def text_of(federation: Federation, name: str, count: int = 1) -> ProgramText:
    return program_text(federation, ProgramId(name, count))


def explained(federation: Federation, name: str, count: int = 1) -> Explanation:
    return explain(text_of(federation, name, count), federation.parties)


@pytest.mark.parametrize(("federation", "name", "count"), CASES)
def test_everything_opened_dealt_and_brought_is_described(federation: Federation, name: str, count: int) -> None:
    explanation = explained(federation, name, count)
    opened = [opened for stage in explanation.stages for opened in stage.opened]
    awaited = [stage.awaited for stage in explanation.stages if stage.awaited is not None]
    assert all(each.meaning and each.why for each in opened)
    assert all(array.name for array in (*explanation.brought, *awaited))
    assert all(explanation.dealt)
    for said in (each.meaning for each in opened):
        assert not said.startswith(("a value", "a difference", "matrices", "inputs")), f"{said}: a label is missing"
    for said in (line for stage in explanation.stages for line in stage.computed):
        assert not said.startswith(("a product", "a sum of", "a function")), f"{said}: a label is missing"


@pytest.mark.parametrize(("federation", "name", "count"), CASES)
def test_the_sums_are_those_of_the_layout(federation: Federation, name: str, count: int) -> None:
    explanation = explained(federation, name, count)
    layout = layout_of(text_of(federation, name, count), federation.parties, 1)
    assert explanation.layout == layout
    assert sum(explanation.dealt.values()) == layout.correction_words
    *_, last = explanation.stages
    assert last.ends_in == "end"
    assert all(bool(stage.opened) == (stage.ends_in == "round") for stage in explanation.stages)
    rounds = [stage for stage in explanation.stages if stage.ends_in == "round"]
    sent = [tuple(map(sum, zip(*(opened.sent_bytes for opened in stage.opened), strict=True))) for stage in rounds]
    assert tuple(sent) == layout.round_bytes


@pytest.mark.parametrize(("federation", "name", "count"), CASES)
def test_the_listing_is_that_of_the_code_that_is_run(federation: Federation, name: str, count: int) -> None:
    explanation = explained(federation, name, count)
    names = [array.name for array in explanation.brought]
    names += [stage.awaited.name for stage in explanation.stages if stage.awaited is not None]
    script = compile_program(text_of(federation, name, count), 0, federation.parties)
    assert [list(stage.instructions) for stage in explanation.stages] == script.listing(names)


def test_a_listing_has_every_instruction_with_its_places() -> None:
    def text(run: Run) -> Program:
        (opened,) = yield (mask(run, given_share(run, 3, label="x"), "x"),)
        return opened

    first, second = compile_program(text, 0, 2).listing(["x"])
    assert first == [
        "add             out=memory[0] x=x[0] y=own words[0] count=3",
        "send_words      x=memory[0] bits=64 count=3",
    ]
    assert second == ["open_sum        out=memory[8] own=memory[0] bits=64 count=3 xor=0 party=0 from=0 from=0"]
    assert (
        compile_program(text, 0, 2).listing()[0][0]
        == "add             out=memory[0] x=given 0[0] y=own words[0] count=3"
    )


@pytest.mark.parametrize("federation", [SMALL, THREE, LONG, FOUR_ROUNDS])
def test_only_comparisons_in_a_random_order_are_opened_without_a_mask(federation: Federation) -> None:
    for name in set(ABOUT) - ELSEWHERE:
        if name == "step" and not federation.learner.has_step:
            continue
        for stage in explained(federation, name).stages:
            for opened in stage.opened:
                shuffled = federation is LONG and opened.bits == 1
                assert (opened.why == RANDOM_ORDER) == shuffled
                assert shuffled or opened.why.startswith("masked by uniform words")


def test_a_step_waits_for_the_arm_after_three_rounds_and_for_the_reward_after_five() -> None:
    stages = explained(SMALL, "step").stages
    assert [stage.ends_in for stage in stages] == [*["round"] * 3, "pause", *["round"] * 4, "end"]
    awaited = {number: stage.awaited for number, stage in enumerate(stages) if stage.awaited is not None}
    assert awaited == {4: Array("one-hot o of the arm + mask", (1, 3)), 6: Array("reward r + mask", (1,))}
    assert announced_in(explained(SMALL, "step")) == [3]
    assert all(stage.awaited is None for name in ("decide", "learn") for stage in explained(SMALL, name).stages)


def test_only_decisions_are_announced() -> None:
    announced = {name: announced_in(explained(SMALL, name)) for name in set(ABOUT) - ELSEWHERE}
    assert announced.pop("decide") == announced.pop("step") == [3]
    assert not any(announced.values())
    long = explained(LONG, "decide")
    assert announced_in(long) == [len(long.stages) - 1]


def announced_in(explanation: Explanation) -> list[int]:
    return [number for number, stage in enumerate(explanation.stages) if stage.announced]


def test_a_pause_is_a_stage_and_no_round() -> None:
    def text(run: Run) -> Program:
        (x,) = yield (mask(run, given_share(run, label="x"), "x"),)
        run.announce(x.delta)
        yield ()
        told = run.awaited((), "told")
        (opened,) = yield (mask(run, Shared((), told), "y"),)
        return opened

    explanation = explain(text, 2)
    assert [stage.ends_in for stage in explanation.stages] == ["round", "pause", "round", "end"]
    assert [stage.awaited for stage in explanation.stages] == [None, None, Array("told", ()), None]
    assert announced_in(explanation) == [1]
    assert explanation.layout.rounds == 2


def test_what_is_dealt_is_counted_by_purpose() -> None:
    dealt = explained(SMALL, "learn").dealt
    assert set(dealt) == {
        "products of masks",
        "shifted masks of what is rounded",
        "tables of polynomials, rotated by the mask",
    }
    rounded = SMALL.dimension * 5 + 2  # u twice, u (r - score), v, v (r - score); the score and g
    # Overflow bits have 40 and 41 bits in u, 20 in the score and what follows, 24 in g.
    overflows = 2 * SMALL.dimension + 2 + 3 * packed_words(SMALL.dimension, 20)
    assert dealt["shifted masks of what is rounded"] == rounded + overflows
