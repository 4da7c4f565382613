"""Every bilinear and trilinear form against plain arithmetic modulo 2^64, written as loops over Python integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiddenarm.mpc.forms import folded_form, form, quadratic_form
from hiddenarm.mpc.masking import (
    dealt,
    input_segments,
    mask,
    mask_symmetric,
    share_of,
    triangle_indices,
    triangle_to_square,
)
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.truncation import truncate
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words
from support import PARTIES, run_program, signed, unsigned, words_from

REPLICATES = 2
KINDS = ("masked", "symmetric", "truncated", "dealt")


@dataclass(frozen=True)
class Case:
    """A form: the indices and the kind of each factor, the output's indices, the size of each index."""

    inputs: tuple[str, ...]
    output: str
    kinds: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]

    @property
    def spec(self) -> str:
        return ",".join(self.inputs) + "->" + self.output

    def shape(self, indices: str) -> tuple[int, ...]:
        sizes = dict(self.sizes)
        return tuple(sizes[index] for index in indices)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sizes = {index: draw(st.integers(1, 3), label=f"size {index}") for index in "abij"}
    sizes["j"] = sizes["i"]
    kinds, inputs = [], []
    for _ in range(draw(st.integers(1, 3), label="factors")):
        kind = draw(st.sampled_from(KINDS))
        indices = "".join(draw(st.permutations("abij")))[: draw(st.integers(0, 3))]
        if kind == "symmetric":
            indices = draw(st.sampled_from(["ij", "ji", "aij", "aji", "baij"]))
        kinds.append(kind)
        inputs.append(indices)
    used = sorted(set("".join(inputs)))
    output = "".join(draw(st.permutations(used)))[: draw(st.integers(0, len(used)))]
    return Case(tuple(inputs), output, tuple(kinds), tuple(sizes.items()))


def plain_form(case: Case, factors: Sequence[Words]) -> list[int]:
    """The form of one replicate by the definition: a sum over all values of all indices."""
    sizes = dict(case.sizes)
    used = "".join(sorted(set("".join(case.inputs))))
    totals = dict.fromkeys(product(*(range(sizes[i]) for i in case.output)), 0)
    for values in product(*(range(sizes[i]) for i in used)):
        at = dict(zip(used, values, strict=True))
        term = prod(int(f[tuple(at[i] for i in ix)]) for f, ix in zip(factors, case.inputs, strict=True))
        totals[tuple(at[i] for i in case.output)] += term
    return [total % 2**64 for total in totals.values()]


CUT = 24


def given_values(case: Case, number: int) -> Words:
    """A factor's plain words, uniform in the ring (or below 2^62 where they will be truncated)."""
    kind, indices = case.kinds[number], case.inputs[number]
    words = words_from((REPLICATES, *case.shape(indices)), "factor", number, case.spec, str(case.kinds))
    if kind == "truncated":
        return unsigned(signed(words) >> 2)
    if kind == "symmetric":
        rows, columns = triangle_indices(case.shape(indices)[-1])
        return words[..., rows, columns]
    return words


def _for_all_steps(run: Run, plain: Words) -> Words:
    return np.broadcast_to(plain, (*run.batch, *plain.shape[1:]))


def program(case: Case, values: Sequence[Words], multiply: Callable[..., Any] | None = None) -> Callable[..., Program]:
    """Bring each factor into its kind in one round, then multiply without any."""

    def text(run: Run, *shared: Shared) -> Program:
        openings, fixed = {}, {}
        for number, (kind, value) in enumerate(zip(case.kinds, shared, strict=True)):
            if kind == "masked":
                openings[number] = mask(run, value)
            elif kind == "symmetric":
                openings[number] = mask_symmetric(run, value, case.shape(case.inputs[number])[-1])
            elif kind == "truncated":
                openings[number] = truncate(run, value, CUT)
            else:
                fixed[number] = dealt(run, value.shape, partial(_for_all_steps, run, values[number]))
        results = yield tuple(openings.values())
        factors: dict[int, Masked] = fixed | dict(zip(openings, results, strict=True))
        ordered = [factors[number] for number in range(len(shared))]
        if multiply is not None:
            return multiply(run, *ordered)
        return form(run, case.spec, *ordered), [share_of(run, factor) for factor in ordered]

    return text


def _factor(number: int, result: Any) -> Any:
    return result[1][number]


def check(case: Case, parties: int) -> None:
    values = [given_values(case, number) for number in range(len(case.inputs))]
    ran = run_program(program(case, values), values, parties, "form", parties)
    factors = [ran.opened(partial(_factor, n)) for n in range(len(values))]
    for kind, value, factor in zip(case.kinds, values, factors, strict=True):
        if kind == "truncated":  # rounded down or up; what it became is what is multiplied
            assert set(np.unique(signed(factor) - (signed(value) >> CUT))) <= {0, 1}
        elif kind == "symmetric":
            assert np.array_equal(factor, value[..., triangle_to_square(factor.shape[-1])])
        else:
            assert np.array_equal(factor, value)
    result = ran.opened(lambda result: result[0])
    assert result.shape == (REPLICATES, *case.shape(case.output))
    for replicate in range(REPLICATES):
        expected = plain_form(case, [factor[replicate] for factor in factors])
        assert result[replicate].ravel().tolist() == expected


@pytest.mark.parametrize("parties", PARTIES)
@given(case=cases())
@settings(max_examples=400)
def test_random_forms(parties: int, case: Case) -> None:
    check(case, parties)


# The forms of the learner, with factors of the kinds they have there.
LEARNER = [
    ("ai,i->a", ("masked", "masked")),
    ("sa,a->s", ("dealt", "masked")),
    ("a,aij,j->i", ("masked", "symmetric", "masked")),
    ("a,ai,i->", ("masked", "masked", "masked")),
    ("i,i->", ("truncated", "masked")),
    ("a,i->ai", ("masked", "truncated")),
    (",i->i", ("truncated", "truncated")),
    (",,i->i", ("truncated", "truncated", "truncated")),
    ("at,t->at", ("masked", "truncated")),
    (",,->", ("masked", "masked", "masked")),
    ("ij,ij->", ("symmetric", "symmetric")),
    ("ij,jk->ik", ("symmetric", "masked")),
    ("i,ij,j->", ("truncated", "symmetric", "truncated")),
    ("ij,ij->ij", ("symmetric", "truncated")),
]


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize(("spec", "kinds"), LEARNER)
def test_the_forms_of_the_learner(parties: int, spec: str, kinds: tuple[str, ...]) -> None:
    inputs, output = spec.split("->")
    sizes = {"a": 4, "s": 4, "i": 5, "j": 5, "k": 3, "t": 6}
    check(Case(tuple(inputs.split(",")), output, kinds, tuple(sizes.items())), parties)


@pytest.mark.parametrize("parties", PARTIES)
def test_inputs_of_the_parties_form_one_vector(parties: int) -> None:
    sizes = tuple(range(1, parties + 1))
    plain = words_from((7, sum(sizes)), "inputs")
    starts = np.cumsum((0, *sizes))

    def text(run: Run, _: Shared) -> Program:
        party = None if run.dealing else run.party
        own = None if party is None else plain[:, starts[party] : starts[party + 1]]
        (x,) = yield (input_segments(run, (), own, sizes),)
        return form(run, "i,i->", x, x), share_of(run, x)

    ran = run_program(text, [plain], parties, "inputs", parties)
    assert np.array_equal(ran.opened(lambda result: result[1]), plain)
    assert np.array_equal(ran.opened(lambda result: result[0]), (plain * plain).sum(axis=-1))


def test_bilinear_forms_are_dealt_one_word_an_output() -> None:
    def text(run: Run, matrix: Shared, vector: Shared) -> Program:
        m, v = yield mask(run, matrix), mask(run, vector)
        return form(run, "ai,i->a", m, v)

    ran = run_program(text, [words_from((1, 4, 9), "m"), words_from((1, 9), "v")], 2)
    assert ran.layout.correction_words == 4


FOLDED = [
    ("ai,j->aij", ("masked", "truncated"), 3 * 15 + -(-75 // 2)),
    ("aij,ajk->aik", ("symmetric", "masked"), 3 * 15),
    ("aij,ajk->aik", ("masked", "truncated"), 3 * 15 + -(-375 // 2)),
    ("a,i,j->aij", ("masked", "masked", "masked"), 3 * 15 + 2 * 15 + 25),
]


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize(("spec", "kinds", "words"), FOLDED)
def test_a_folded_form_is_the_sum_with_the_transpose(
    parties: int, spec: str, kinds: tuple[str, ...], words: int
) -> None:
    """And deals a triangle of what is dealt an output, of which there are 3 times 15, and all products with an overflow
    bit, two in a word."""
    inputs, output = spec.split("->")
    case = Case(tuple(inputs.split(",")), output, kinds, tuple({"a": 3, "i": 5, "j": 5, "k": 5}.items()))
    values = [given_values(case, number) for number in range(len(case.inputs))]

    def both(run: Run, *factors: Masked) -> tuple[Shared, Shared]:
        return form(run, spec, *factors), folded_form(run, spec, *factors)

    ran = run_program(program(case, values, both), values, parties, "folded", parties)
    square = ran.opened(lambda result: result[0])
    rows, columns = triangle_indices(5)
    both_triangles = square[..., rows, columns] + square[..., columns, rows]
    assert np.array_equal(ran.opened(lambda result: result[1]), both_triangles)
    alone = run_program(program(case, values, lambda run, *factors: folded_form(run, spec, *factors)), values, 2, "one")
    none = run_program(program(case, values, lambda run, *factors: share_of(run, factors[0])), values, 2, "none")
    assert alone.layout.correction_words - none.layout.correction_words == REPLICATES * words


def test_a_difference_of_masked_values_is_one() -> None:
    """r - s of a masked r and a truncated s, times a truncated u."""

    def text(run: Run, u: Shared, r: Shared, s: Shared) -> Program:
        u_, r_, s_ = yield truncate(run, u, CUT), mask(run, r), truncate(run, s, CUT)
        together = form(run, "i,->i", u_, r_ - s_)
        return together - (form(run, "i,->i", u_, r_) - form(run, "i,->i", u_, s_)), share_of(run, s_ - r_)

    values = [words_from((50, 6), "u") >> np.uint64(3), words_from((50,), "r"), words_from((50,), "s") >> np.uint64(3)]
    ran = run_program(text, values, 3, "difference")
    assert not ran.opened(lambda result: result[0]).any()
    off = signed(ran.opened(lambda result: result[1]) + values[1]) - signed(values[2] >> np.uint64(CUT))
    assert set(np.unique(off)) == {0, 1}


def test_only_values_of_one_shape_are_subtracted() -> None:
    def text(run: Run, one: Shared, other: Shared) -> Program:
        x, y = yield mask(run, one), mask(run, other)
        return share_of(run, x - y)

    with pytest.raises(ValueError, match="shapes differ"):
        run_program(text, [words_from((1, 3), "x"), words_from((1, 4), "y")], 2)


def test_factors_that_do_not_fit_are_refused() -> None:
    def text(run: Run, one: Shared, other: Shared) -> Program:
        x, y = yield mask(run, one), mask(run, other)
        return form(run, "i,i->", x, y)

    with pytest.raises(ValueError, match="index i has sizes 3 and 4"):
        run_program(text, [words_from((1, 3), "x"), words_from((1, 4), "y")], 2)


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize(("count", "many", "size"), [(1, 1, 1), (1, 3, 4), (3, 2, 5)])
def test_quadratic_forms_are_exact(parties: int, count: int, many: int, size: int) -> None:
    """Of uniform words, so that every carry is seen."""
    rows, _ = triangle_indices(size)
    triangles = words_from((REPLICATES, many, len(rows)), "matrices", count, size)
    vectors = words_from((REPLICATES, count, size), "vectors", count, size)

    def text(run: Run, given: Shared, vector: Shared) -> Program:
        matrices, x = yield mask_symmetric(run, given, size), mask(run, vector)
        return quadratic_form(run, matrices, x)

    ran = run_program(text, [triangles, vectors], parties, "quadratic", parties)
    square = triangles[..., triangle_to_square(size)]
    with np.errstate(over="ignore"):
        expected = np.einsum("raij,rbi,rbj->rba", square, vectors, vectors)
    assert np.array_equal(ran.opened(), expected)
    assert ran.layout.rounds == 1
    per_vector = many * size + size * (size + 1) // 2 + many
    assert ran.layout.correction_words == REPLICATES * count * per_vector
