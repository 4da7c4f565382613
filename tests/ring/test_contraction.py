"""Sums of products against NumPy, and the refusal of plans that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.ring._kernels import contract, contract_portably
from hiddenarm.ring.contraction import ContractionPlan, Factor, Term


def words(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 2**64, shape, dtype=np.uint64)


@st.composite
def terms(draw: st.DrawFn) -> tuple[dict[str, int], list[str], str, bool]:
    """Index sizes, the indices of one to four factors, those of the output, and a sign."""
    sizes = {index: draw(st.integers(1, 4)) for index in "abcd"}
    factors = [
        "".join(draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    used = sorted(set("".join(factors)))
    output = "".join(draw(st.lists(st.sampled_from(used), unique=True))) if used else ""
    return sizes, factors, output, draw(st.booleans())


@given(terms(), st.integers(1, 3), st.integers(0, 2**32))
def test_a_term_is_an_einstein_sum(case: tuple[dict[str, int], list[str], str, bool], batch: int, seed: int) -> None:
    sizes, factors, output, negative = case
    rng = np.random.default_rng(seed)
    arrays = [words(rng, batch, *(sizes[index] for index in indices)) for indices in factors]
    length = int(np.prod([sizes[index] for index in output], dtype=int))
    plan = ContractionPlan(
        sizes,
        length,
        [array[0].size for array in arrays],
        [Term(tuple(Factor(place, axes) for place, axes in enumerate(factors)), output, negative=negative)],
    )
    spec = ",".join("..." + indices for indices in factors) + "->..." + output
    expected = np.einsum(spec, *arrays).reshape(batch, length)
    result, portable = plan.run(batch, tuple(arrays)), np.zeros((batch, length), np.uint64)
    contract_portably(plan.words, batch, portable, tuple(arrays))
    assert np.array_equal(result, np.negative(expected) if negative else expected)
    assert np.array_equal(portable, result)


def test_both_kinds_of_loops_add_up_rows_of_any_length() -> None:
    """Vectors of four words and what is left over, sums over more rows than are taken at a time, and each inner loop:
    a vector by a matrix, a column by a row, whole rows, scaled rows, sums along rows, and strides."""
    rng = np.random.default_rng(3)
    for width in (*range(1, 24), 33, 70):
        for count in (1, 3, 64, 65, 130):
            sizes = {"a": 2, "j": count, "k": width}
            for factors, output in (
                (("aj", "ajk"), "ak"),
                (("ajk", "j", "a"), "ak"),
                (("ajk", "ak"), "ak"),
                (("k", "ajk"), "aj"),
                (("a", "k"), "ak"),
                (("ka", "jk"), "aj"),
                (("jk", "ka", "k"), "j"),
                (("aj", "k"), "ajk"),
                (("k", "j", "a"), "ajk"),
                (("k", "ajk"), "ajk"),
            ):
                arrays = tuple(words(rng, 1, *(sizes[index] for index in indices)) for indices in factors)
                length = int(np.prod([sizes[index] for index in output]))
                term = Term(tuple(Factor(place, axes) for place, axes in enumerate(factors)), output, negative=True)
                plan = ContractionPlan(sizes, length, [array.size for array in arrays], [term])
                spec = ",".join("..." + indices for indices in factors) + "->..." + output
                start = words(rng, 1, length)
                expected = start - np.einsum(spec, *arrays).reshape(1, length)
                for kernel in (contract, contract_portably):
                    out = start.copy()
                    kernel(plan.words, 1, out, arrays)
                    assert np.array_equal(out, expected), (kernel.__name__, sizes, factors)


def test_products_of_matrices_keep_their_sums_in_the_inner_loops() -> None:
    """Whichever factor comes first: what is summed over comes last but one, and the rows of the output last."""
    sizes = {"a": 2, "i": 3, "j": 4, "k": 5}
    for left, right in (("aij", "ajk"), ("ajk", "aij")):
        term = Term((Factor(0, left), Factor(1, right)), "aik")
        plan = ContractionPlan(sizes, 30, [24, 40] if left == "aij" else [40, 24], [term])
        assert plan.words[8:12].tolist() == [2, 3, 4, 5]


def test_terms_add_up_at_their_offsets() -> None:
    rng = np.random.default_rng(1)
    x, y = words(rng, 2, 3), words(rng, 2, 5)
    plan = ContractionPlan(
        {"i": 2, "j": 3},
        6,
        [3, 5],
        [
            Term((Factor(0, "j"),), "j", offset=3),
            Term((Factor(1, "i", offset=1), Factor(0, "j")), "i", offset=2, negative=True),
        ],
    )
    expected = np.zeros((2, 6), np.uint64)
    expected[:, 3:] += x
    expected[:, 2:4] -= y[:, 1:3] * x.sum(axis=1, dtype=np.uint64)[:, None]
    assert np.array_equal(plan.run(2, (x, y)), expected)


@pytest.mark.parametrize("position", range(17))
@pytest.mark.parametrize("value", [-1, 7, 2**40])
def test_a_plan_that_does_not_fit_reads_nothing(position: int, value: int) -> None:
    """One word of a good plan is spoilt: it is refused, unless the word is the sign, which reaches nothing."""
    good = ContractionPlan({"i": 3, "j": 2}, 3, [6, 2], [Term((Factor(0, "ij"), Factor(1, "j")), "i")])
    plan = good.words.copy()
    assert len(plan) == 5 + 3 + 2 + 1 + 2 + 2 * 4
    plan[position] = value
    out = np.zeros((1, 3), np.uint64)
    operands = (np.ones((1, 6), np.uint64), np.ones((1, 2), np.uint64))
    if position == 5:  # the sign
        contract(plan, 1, out, operands)
        return
    with pytest.raises(ValueError, match="does not fit"):
        contract(plan, 1, out, operands)
    if position != 4:  # with a wrong number of terms the good one may have been added before the end is found
        assert not out.any()


def test_operands_must_be_contiguous_and_of_the_declared_length() -> None:
    plan = ContractionPlan({"i": 2}, 2, [2], [Term((Factor(0, "i"),), "i")])
    with pytest.raises(ValueError, match="does not fit"):
        plan.run(1, (np.zeros((1, 3), np.uint64),))
    with pytest.raises(ValueError, match="contiguous"):
        plan.run(1, (np.zeros((1, 4), np.uint64)[:, ::2],))
    with pytest.raises(TypeError):
        contract(plan.words, 1, np.zeros((1, 2), np.uint64), [np.zeros((1, 2), np.uint64)])  # type: ignore[arg-type]


def test_a_step_that_is_never_taken_may_have_any_length() -> None:
    x = words(np.random.default_rng(2), 1, 2)
    plan = ContractionPlan({"i": 1, "j": 2}, 3, [2], [Term((Factor(0, "ij"),), "ij", offset=1)]).words.copy()
    in_out, in_factor = 10, 14
    assert plan[[in_out, in_factor]].tolist() == [2, 2]
    for stride in (0, 2**62, 2**63 - 1):
        plan[[in_out, in_factor]] = stride
        out = np.zeros((1, 3), np.uint64)
        contract(plan, 1, out, (x,))
        assert out.tolist() == [[0, *x[0].tolist()]]


@pytest.mark.parametrize("dtype", [np.float64, object, np.uint32, ">u8"])
def test_sums_are_written_to_words_only(dtype: str | type) -> None:
    plan = ContractionPlan({"i": 2}, 2, [2], [Term((Factor(0, "i"),), "i")])
    with pytest.raises(ValueError, match="8 bytes"):
        contract(plan.words, 1, np.zeros((1, 2), dtype), (np.ones((1, 2), np.uint64),))
