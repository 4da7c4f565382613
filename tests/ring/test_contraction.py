"""Sums of products against NumPy, and the refusal of plans that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.ring._kernels import contract
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
    result = plan.run(batch, tuple(arrays))
    assert np.array_equal(result, np.negative(expected) if negative else expected)


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
