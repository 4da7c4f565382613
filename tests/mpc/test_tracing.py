"""Recorded arrays compute what NumPy's do, and refuse what cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiddenarm.mpc.evaluation import Evaluation, PartyRun, compile_program
from hiddenarm.mpc.run import Opening, Program, Run
from hiddenarm.mpc.tracing import (
    TracedWords,
    Tracer,
    collect_payloads,
    columns,
    combine_chunks,
    look_up_chunks,
    look_up_payloads,
    pick,
    pick_one,
    unit_vectors,
    winning_slots,
)
from support import NOTHING_DEALT, computed, words_from

NUMBERS = [0, 1, 2, 63, 64, 2**32, 2**63 - 1, 2**63, 2**64 - 1]

WITH_WORDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "exclusive or": lambda x, y: x ^ y,
    "and": lambda x, y: x & y,
    "less": lambda x, y: x < y,
    "greater": lambda x, y: x > y,
}
WITH_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, number: x + number,
    "add, reflected": lambda x, number: number + x,
    "multiply": lambda x, number: x * number,
    "multiply, reflected": lambda x, number: number * x,
    "exclusive or": lambda x, number: x ^ number,
    "exclusive or, reflected": lambda x, number: number ^ x,
    "and": lambda x, number: x & number,
    "shift left": lambda x, number: x << number,
    "shift right": lambda x, number: x >> number,
    "negative": lambda x, _: -x,
}
WITH_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, array: x + array,
    "add, reflected": lambda x, array: array + x,
    "subtract": lambda x, array: x - array,
    "subtract, reflected": lambda x, array: array - x,
    "multiply": lambda x, array: x * array,
    "multiply, reflected": lambda x, array: array * x,
    "exclusive or": lambda x, array: x ^ array,
    "exclusive or, reflected": lambda x, array: array ^ x,
    "and": lambda x, array: x & array,
}


def edged(*shape: int) -> np.ndarray:
    """Random words, and the extremes among them."""
    words = words_from(shape, "cells", *shape).copy()
    words.flat[: len(NUMBERS)] = np.array(NUMBERS, np.uint64)[: words.size]
    return words


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == np.uint64 and np.array_equal(one, other.astype(np.uint64))


@pytest.mark.parametrize("operation", WITH_WORDS.values(), ids=WITH_WORDS)
def test_operations_between_recorded_arrays_are_numpys(operation: Callable[[Any, Any], Any]) -> None:
    one, other = edged(3, 5), edged(3, 5)[::-1].copy()
    assert same(computed(operation, one, other), operation(one, other))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("operation", WITH_NUMBERS.values(), ids=WITH_NUMBERS)
def test_operations_with_numbers_are_numpys(operation: Callable[[Any, Any], Any], number: int) -> None:
    words = edged(3, 5)
    result = computed(lambda x: operation(x, np.uint64(number)), words)
    assert same(result, operation(words, np.uint64(number)))


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 4), (1, 4), (4,), (2, 1, 1)])
@pytest.mark.parametrize("operation", WITH_ARRAYS.values(), ids=WITH_ARRAYS)
def test_operations_with_constant_arrays_are_numpys(
    operation: Callable[[Any, Any], Any], shape: tuple[int, ...]
) -> None:
    words, constant = edged(2, 3, 4), edged(*shape)
    assert same(computed(lambda x: operation(x, constant), words), operation(words, constant))


@given(st.data())
@settings(max_examples=60)
def test_gathering_is_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    words = edged(*shape)
    wanted = data.draw(st.lists(st.integers(1, 3), max_size=2))
    index = data.draw(st.lists(st.integers(0, shape[-1] - 1), min_size=9, max_size=9))
    places = np.array(index, np.intp)[: int(np.prod(wanted, dtype=int))].reshape(wanted)
    assert same(computed(lambda x: x.take(places, axis=-1), words), words.take(places, axis=-1))
    first = data.draw(st.integers(0, shape[-1]))
    count = data.draw(st.integers(0, shape[-1] - first))
    assert same(computed(lambda x: columns(x, first, count), words), words[..., first : first + count])
    before, after = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    padding = [(0, 0)] * (len(shape) - 1) + [(before, after)]
    assert same(computed(lambda x: x.padded(before, after), words), np.pad(words, padding))
    flat = shape[0] * int(np.prod(shape[1:], dtype=int))
    assert same(computed(lambda x: x.reshape(flat, 1), words), words.reshape(flat, 1))


@given(st.data())
@settings(max_examples=60)
def test_picking_is_numpys(data: st.DataObject) -> None:
    rows = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    items, picked = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    item = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    words = edged(*rows, items, *item)
    index = words_from((*rows, picked), "index", data.draw(st.integers(0, 99))) % np.uint64(items)
    shape = (*rows, picked, *[1] * len(item))
    expected = np.take_along_axis(words, index.reshape(shape).astype(np.intp), axis=len(rows))
    assert same(computed(pick, words, index), expected)
    assert same(computed(pick_one, words, index[..., 0].copy()), expected[(slice(None),) * len(rows) + (0,)])


def test_sorting_and_unit_vectors_are_numpys() -> None:
    words = words_from((4, 3, 50), "sorted") % np.uint64(20)
    assert same(computed(lambda x: x.argsort(axis=-1, kind="stable"), words), words.argsort(axis=-1, kind="stable"))
    assert same(computed(lambda x: unit_vectors(x, 20), words), np.eye(20)[words.astype(np.intp)])


def recorded(*shape: int) -> TracedWords:
    return Tracer().memory(shape)


LOOKS: dict[str, Callable[[Any], Any]] = {
    "truth": bool,
    "not": lambda x: not x,
    "and": lambda x: x and 1,
    "equality": lambda x: x == x,
    "inequality": lambda x: x != 0,
    "a chained comparison": lambda x: x < x < x,
    "at least": lambda x: x >= x,
    "length": len,
    "iteration": list,
    "unpacking": lambda x: [*x],
    "membership": lambda x: 1 in x,
    "an item": lambda x: x[0],
    "an integer": int,
    "a float": float,
    "an index": lambda x: range(3)[x],
    "a branch of NumPy's": lambda x: np.where(x, 1, 2),
    "a function of NumPy's": np.negative,
    "a hash": hash,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_program_cannot_look_at_its_words(look: Callable[[TracedWords], Any]) -> None:
    with pytest.raises(TypeError):
        look(recorded(3))


def test_a_program_that_branches_is_refused_when_it_is_recorded() -> None:
    def text(run: Run) -> Program:
        (opened,) = yield (Opening((), run.given(()), lambda opened: opened),)
        return run.random(()) if opened else run.random((2,))

    with pytest.raises(TypeError, match="cannot look at its words"):
        compile_program(text, 0, 2)


def test_cells_show_only_their_shape() -> None:
    assert repr(recorded(3, 4)) == str(recorded(3, 4)) == "TracedWords(shape=(3, 4))"


REFUSED: dict[str, Callable[[Any], Any]] = {
    "another shape": lambda x: x + x.recording.memory((3, 2)),
    "a shape of as many words": lambda x: x * x.reshape(6),
    "an array of another shape": lambda x: x + np.zeros((4,), np.uint64),
    "an array with more axes": lambda x: x ^ np.zeros((1, 2, 3), np.uint64),
    "a shape of another size": lambda x: x.reshape(5),
    "an index too large": lambda x: x.take(np.array([0, 3])),
    "an index below zero": lambda x: x.take(np.array([-1])),
    "another axis": lambda x: x.take(np.array([0]), axis=0),
    "columns beyond": lambda x: x.columns(1, 3),
    "columns before": lambda x: x.columns(-1, 1),
    "a negative number of columns": lambda x: x.columns(2, -1),
    "sorting along another axis": lambda x: x.argsort(axis=0),
    "sorting in another way": lambda x: x.argsort(kind="quicksort"),
    "picking with other rows": lambda x: pick(x, x.recording.memory((3, 1))),
    "picking with more rows than there are": lambda x: pick(x, x.recording.memory((4, 2))),
    "picking from no axis": lambda x: pick(x, x.recording.memory((2, 3, 1))),
    "tables of another shape": lambda x: look_up_chunks(x, x.recording.memory((2, 2, 2)), (6, 3), False),
    "tables of wider chunks": lambda x: look_up_chunks(x, x.recording.memory((2, 3, 2)), (6, 7), False),
    "products of another shape": lambda x: combine_chunks(x, x.recording.memory((2, 3)), 2),
    "products for fewer chunks": lambda x: combine_chunks(x, x.recording.memory((2, 3, 1)), 6),
    "nodes for fewer chunks": lambda x: look_up_payloads(x, x, x.recording.memory((2, 3, 6)), 3),
    "top bits of others": lambda x: look_up_payloads(x, x.recording.memory((2, 2)), x.recording.memory((2, 3, 6)), 2),
    "payloads of other pairs": lambda x: collect_payloads(x, x.recording.memory((2, 4))),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_when_it_is_recorded(refused: Callable[[TracedWords], Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        refused(recorded(2, 3))


@pytest.mark.parametrize(
    "missing",
    [
        lambda x: x - np.uint64(1),
        lambda x: x < np.uint64(1),
        lambda x: x << np.ones((2, 3), np.uint64),
        lambda x: x >> x,
    ],
)
def test_what_the_machine_has_no_instruction_for_is_refused(missing: Callable[[TracedWords], Any]) -> None:
    with pytest.raises(TypeError, match="no instruction"):
        missing(recorded(2, 3))


def test_slots_of_other_groups_are_refused_when_they_are_computed() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        computed(lambda less: winning_slots(less, (3, 2)), np.zeros((1, 3), np.uint64))


def test_an_index_that_only_the_run_knows_is_checked_in_the_run() -> None:
    words = edged(1, 3)
    for index in (3, 2**63, 2**64 - 1):
        for compute in (pick, lambda _, at: unit_vectors(at, 3)):
            with pytest.raises(ValueError, match="do not fit"):
                computed(compute, words, np.array([[index]], np.uint64))


def test_equal_constants_are_kept_once() -> None:
    recording = Tracer()
    one, other = (recording.constant(np.arange(4).reshape(shape)) for shape in (4, (2, 2)))  # type: ignore[arg-type]
    third = recording.constant(np.arange(5))  # type: ignore[arg-type]
    assert one.block is other.block
    assert (one.shape, other.shape) == ((4,), (2, 2))
    assert third.block is not one.block
    assert [len(words) for words in recording.constants] == [4, 5]


def opens(opening: Callable[[PartyRun], Opening[Any]]) -> Callable[[Run], Program]:
    def text(run: Run) -> Program:
        assert isinstance(run, PartyRun)
        yield (opening(run),)
        return None

    return text


@pytest.mark.parametrize("sent", [(4,), (2,), (3, 1), ()])
def test_an_opening_that_sends_another_shape_is_refused(sent: tuple[int, ...]) -> None:
    text = opens(lambda run: Opening((3,), run.given(sent), lambda opened: opened))
    with pytest.raises(ValueError, match="declares shape"):
        compile_program(text, 0, 2)


def test_an_opening_of_anothers_segment_is_refused() -> None:
    text = opens(lambda run: Opening((5,), run.given((2,)), lambda opened: opened, owners=(2, 3)))
    compile_program(text, 0, 2)
    with pytest.raises(ValueError, match="declares shape"):
        compile_program(text, 1, 2)


def test_segments_travel_in_whole_words() -> None:
    text = opens(lambda run: Opening((5,), run.given((2,)), lambda opened: opened, bits=8, owners=(2, 3)))
    with pytest.raises(ValueError, match="whole words"):
        compile_program(text, 0, 2)


@pytest.mark.parametrize("brought", [[], [(1, 3)], [(1, 4), (1, 2)], [(1, 3), (1, 2), (1, 1)]])
def test_a_run_must_be_given_what_the_text_takes(brought: list[tuple[int, ...]]) -> None:
    def text(run: Run) -> Program:
        return run.given((3,)), run.given((2,))
        yield ()

    script = compile_program(text, 0, 2)
    Evaluation(script, NOTHING_DEALT, [np.zeros((1, 3), np.uint64), np.zeros((1, 2), np.uint64)])
    with pytest.raises(ValueError, match="takes arrays of"):
        Evaluation(script, NOTHING_DEALT, [np.zeros(shape, np.uint64) for shape in brought])


@pytest.mark.parametrize("dtype", [np.float64, np.int32, object])
def test_a_run_must_be_given_words(dtype: type) -> None:
    def text(run: Run) -> Program:
        return run.given((2,))
        yield ()

    with pytest.raises(ValueError, match="arrays of words"):
        Evaluation(compile_program(text, 0, 2), NOTHING_DEALT, [np.zeros((1, 2), dtype)])
