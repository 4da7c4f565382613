"""An explanation says everything that a program opens and is dealt, and is about the code that is run."""

from __future__ import annotations

import pytest

from hiddenarm.bandit.catalogue import ABOUT, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.evaluation import compile_program
from hiddenarm.mpc.explanation import Array, Explanation, explain
from hiddenarm.mpc.masking import given_share, mask
from hiddenarm.mpc.run import Program, ProgramText, Run
from hiddenarm.mpc.tournament import RANDOM_ORDER
from hiddenarm.ring.words import packed_words
from support import RoundingFederation

SMALL = Federation(arms=3, features=(2, 1), epsilon=0.1)
THREE = Federation(arms=4, features=(1, 2, 2), epsilon=0.1)
LONG = Federation(arms=34, features=(1, 1), epsilon=0.1)
ROUNDED = RoundingFederation(arms=3, features=(2, 1), epsilon=0.1)
BATCHED = {"decide": 3, "gather": 3, "solve": 3, "repair": 3}
CASES = [
    *((federation, name, 1) for federation in (SMALL, THREE) for name in ABOUT),
    *((SMALL, name, count) for name, count in BATCHED.items()),
    (LONG, "decide", 1),
    (ROUNDED, "decide", 1),
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
    *rounds, last = explanation.stages
    assert last.opened == ()
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


@pytest.mark.parametrize("federation", [SMALL, THREE, LONG, ROUNDED])
def test_only_comparisons_in_a_random_order_are_opened_without_a_mask(federation: Federation) -> None:
    for name in ABOUT:
        for stage in explained(federation, name).stages:
            for opened in stage.opened:
                assert (opened.bits == 1) == (opened.why == RANDOM_ORDER)
                assert opened.why == RANDOM_ORDER or opened.why.startswith("masked by uniform words")


def test_a_lesson_ahead_of_its_reward_waits_for_it_after_three_rounds() -> None:
    stages = explained(SMALL, "learn ahead").stages
    assert [stage.awaited for stage in stages] == [None, None, None, Array("reward r + mask", ()), None, None]
    assert all(stage.awaited is None for stage in explained(SMALL, "learn").stages)


def test_only_a_decision_is_announced() -> None:
    announced = {name: explained(SMALL, name).announced_after for name in ABOUT}
    assert announced.pop("decide") == 4
    assert set(announced.values()) == {None}
    long = explained(LONG, "decide")
    assert long.announced_after == len(long.stages) - 1 - LONG.parties  # the turns back are taken later


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
