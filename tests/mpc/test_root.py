"""The square root of a masked number, from tables at several scales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hiddenarm.mpc.root import MOST_SCALES, RootShape, look_up_root, root_shape, root_tables
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Floats, Words
from support import PARTIES, run_program, signed, uniformity

POWER_BITS, RESULT_BITS = 20, 40
SHAPES = [
    RootShape(2.5, scales=1, index_bits=6, degree=3),
    RootShape(2.5, scales=2, index_bits=4, degree=2),
    RootShape(0.01, scales=3, index_bits=5, degree=4),
    RootShape(900.0, scales=4, index_bits=5, degree=3),
]


def program(shape: RootShape, factor: float, factors: Floats | None = None) -> Callable[..., Program]:
    tables = root_tables(shape, factor, POWER_BITS, RESULT_BITS)

    def text(run: Run, number: Shared) -> Program:
        made = None if factors is None else lambda: np.broadcast_to(factors, (*run.batch, *number.shape))
        return (yield from look_up_root(run, tables, number, factors=made))

    return text


def words_of(shape: RootShape, numbers: Floats) -> Words:
    return np.array([round(number / shape.range * 2**64) % 2**64 for number in numbers.tolist()], np.uint64)


def numbers_of(shape: RootShape) -> Floats:
    """Over the whole range, at all scales, and at both ends."""
    below = shape.largest * 10 ** np.linspace(-12, 0, 3000)
    seams = [(n + part) * shape.spacing(scale) for scale in range(shape.scales) for n in range(-1, 4) for part in SEAMS]
    return np.concatenate(
        [[0.0], below, np.linspace(0, shape.largest, 2000), [s for s in seams if 0 <= s <= shape.largest]]
    )


SEAMS = (0.0, 0.5, 0.7499999, 0.75, 0.7500001)


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_roots_are_within_their_bound_everywhere(parties: int, shape: RootShape) -> None:
    numbers, factor = numbers_of(shape), 0.7
    ran = run_program(program(shape, factor), [words_of(shape, numbers)[:, None]], parties, "root", parties, str(shape))
    error = np.abs(signed(ran.opened())[:, 0] / 2.0**RESULT_BITS - factor * np.sqrt(numbers))
    rounding = 1e-5 * (1 + shape.largest**0.5)
    assert error.max() <= factor * shape.error + rounding
    assert error.max() > factor * shape.error / 4  # the bound is of use
    assert ran.layout.rounds == (1 if shape.scales == 1 else 2)
    products = (0, 1, 5, 16)[shape.scales - 1]
    assert ran.layout.correction_words == len(numbers) * (shape.words + products)


def test_the_dealer_multiplies_roots_by_secret_factors() -> None:
    shape, factors = SHAPES[1], np.array([-3.0, 0.0, 0.25])
    numbers = np.repeat(np.linspace(0, 2.5, 500)[:, None], 3, axis=1)
    words = words_of(shape, numbers.ravel()).reshape(numbers.shape)
    ran = run_program(program(shape, 1.0, factors), [words], 3, "factors", keep=True)
    found = signed(ran.opened()) / 2.0**RESULT_BITS
    error = np.abs(found - factors * np.sqrt(numbers))
    assert (error.max(axis=0) <= np.abs(factors) * shape.error + 1e-4).all()
    for _, by_opening in ran.observed:  # all that is opened is uniform
        for sent in by_opening:
            assert uniformity(np.add.reduce(sent)) > 1e-4


def test_a_number_just_below_zero_has_almost_no_root() -> None:
    """Rounding errors of a quadratic form may make it negative."""
    for shape in SHAPES:
        least = shape.spacing(shape.scales - 1)
        numbers = np.array([-1e-15, -0.01 * least, -0.2 * least])
        ran = run_program(
            program(shape, 1.0), [words_of(shape, np.repeat(numbers, 200))[:, None]], 2, "below", str(shape)
        )
        assert np.abs(signed(ran.opened()) / 2.0**RESULT_BITS).max() < least**0.5


@pytest.mark.parametrize("largest", [1e-5, 0.3, 2.5, 40.0, 1e4])
@pytest.mark.parametrize("error", [0.1, 0.01, 0.001])
def test_shapes_have_the_error_that_is_asked_for(largest: float, error: float) -> None:
    shape = root_shape(largest, error)
    if shape is None:
        assert largest == 1e4
        return
    assert shape.error <= error
    assert shape.scales <= MOST_SCALES
    assert shape.largest == largest < shape.range
    assert shape.shift(shape.scales - 1) >= 2


def test_a_root_near_zero_takes_few_words() -> None:
    """Lines at equal distances would take over 30,000 for this error."""
    shape = root_shape(2.0, 0.002)
    assert shape is not None
    assert shape.words <= 608
