"""The paper's additive sharing: products, squares and matrices by triples, public division, fixed point, reciprocal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from hiddenarm.mpc.parallel import in_parallel
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.paper import rounds
from hiddenarm.paper.arithmetic import plus, product, product_with_itself, share_segments
from hiddenarm.paper.fixed_point import FixedPoint, divide, exponential, reciprocal, rounded_quotient
from hiddenarm.ring.words import decode, encode
from support import PARTIES, SIGNIFICANCE, computed, run_program, signed, uniformity, unsigned, words_from

BITS = 20
CASES = 2000
FAILING_CASES = 200_000


def reals(shape: tuple[int, ...], low: float, high: float, *labels: str | int) -> np.ndarray:
    """Fixed uniform reals, as fixed-point numbers have them."""
    uniform = (words_from(shape, *labels) >> np.uint64(11)) / 2.0**53
    return decode(encode(low + (high - low) * uniform, BITS), BITS)


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize(
    ("spec", "x_shape", "y_shape"),
    [("a,a->a", (6,), (6,)), ("ij,j->i", (3, 4), (4,)), ("ij,jk->ik", (3, 4), (4, 2)), ("i,j->ij", (3,), (4,))],
)
def test_products_are_exact_in_the_ring(
    parties: int, spec: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...]
) -> None:
    x, y = words_from((50, *x_shape), "x", spec), words_from((50, *y_shape), "y", spec)

    def program(run: Run, x: Shared, y: Shared) -> Program:
        return (yield from product(run, spec, x, y))

    ran = run_program(program, [x, y], parties, "product", spec)
    batched = ",".join("z" + part for part in spec.split("->")[0].split(",")) + "->z" + spec.split("->")[1]
    assert np.array_equal(ran.opened(), np.einsum(batched, x, y))
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.BEAVER


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("spec", ["a,a->a", "a,b->ab"])
def test_a_product_with_itself_opens_the_value_once(parties: int, spec: str) -> None:
    x = words_from((50, 5), "square", spec)

    def program(run: Run, x: Shared) -> Program:
        return (yield from product_with_itself(run, spec, x))

    ran = run_program(program, [x], parties, "square", spec)
    batched = "za,z" + spec.split("->")[0][-1] + "->z" + spec.split("->")[1]
    assert np.array_equal(ran.opened(), np.einsum(batched, x, x))
    assert ran.layout.round_bytes == ((50 * 5 * 8,) * parties,)


@pytest.mark.parametrize("parties", PARTIES)
def test_adding_takes_no_round(parties: int) -> None:
    x, y = words_from((9, 4), "x"), words_from((9, 4), "y")

    def program(run: Run, x: Shared, y: Shared) -> Program:
        return plus(run, x + y, 7)
        yield ()

    ran = run_program(program, [x, y], parties, "sum")
    assert np.array_equal(ran.opened(), x + y + np.uint64(7))
    assert ran.layout.rounds == rounds.ADDITION == 0


@pytest.mark.parametrize("parties", PARTIES)
def test_each_party_shares_its_own_segment_uniformly(parties: int) -> None:
    # `run_program` shares its inputs: each party's share is what it contributes here, and they add up to the input.
    inputs = words_from((4000, 2, 3), "segments")

    def program(run: Run, x: Shared) -> Program:
        (shared,) = yield (share_segments(run, (2,), x.share, (3,) * parties),)
        return shared

    ran = run_program(program, [inputs], parties, "segments")
    total = ran.opened().reshape(4000, 2, parties, 3).sum(axis=2)
    assert np.array_equal(total, inputs)
    for result in ran.results:
        assert uniformity(result.share) > SIGNIFICANCE
    assert ran.layout.rounds == 1


@pytest.mark.parametrize("bits", [1, 8, 20, 40])
def test_a_share_is_rounded_towards_zero(bits: int) -> None:
    edges = [0, 1, -1, 2**bits - 1, 2**bits, -(2**bits), 1 - 2**bits, 2**63 - 1, -(2**63)]
    words = np.concatenate([words_from(500, "rounded", bits), unsigned(edges)])[None]
    got = signed(computed(lambda share: rounded_quotient(share, bits), words))
    expected = [int(abs(value) >> bits) * (1 if value >= 0 else -1) for value in map(int, signed(words)[0])]
    assert got[0].tolist() == expected


def division(parties: int, bits: int) -> Callable[..., Program]:
    def program(run: Run, value: Shared) -> Program:
        return (yield from divide(run, parties, value, bits))

    return program


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("bits", [8, 20, 30])
def test_division_is_off_by_less_than_a_unit_a_party(parties: int, bits: int) -> None:
    magnitudes = (words_from((1, CASES), "size", bits) % np.uint64(44)).astype(np.int64)
    value = signed(words_from((1, CASES), "value", bits)) >> (63 - magnitudes)
    ran = run_program(division(parties, bits), [unsigned(value)], parties, "division", bits)
    error = signed(ran.opened()) - value / 2.0**bits
    assert np.abs(error).max() < parties
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.DIVISION


@pytest.mark.parametrize("parties", PARTIES)
def test_division_has_no_bias(parties: int) -> None:
    value = np.full((1, 100_000), 12_345_678_901, np.int64)
    error = signed(run_program(division(parties, BITS), [unsigned(value)], parties, "bias").opened())
    error = error - value / 2.0**BITS
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(error.size)


def test_zero_stays_zero_between_two_parties() -> None:
    ran = run_program(division(2, BITS), [np.zeros((1, CASES), np.uint64)], 2, "zero")
    assert not ran.opened().any()


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("value", [2**57, -(2**59), 3 * 2**60, -(2**62)])
def test_division_fails_as_often_as_predicted(parties: int, value: int) -> None:
    """Wrong by 2^(64-m), with probability |x| / 2^64 whatever N: the count lies in its confidence interval."""
    inputs = unsigned(np.full((1, FAILING_CASES), value))
    ran = run_program(division(parties, BITS), [inputs], parties, "failures", value)
    error = signed(ran.opened()) - (value >> BITS)
    failed = np.abs(error) > parties
    expected = 2.0**44 if value < 0 else -(2.0**44)
    assert np.abs(error[failed] - expected).max() <= parties
    count = int(failed.sum())
    assert count > 500
    assert stats.binomtest(count, FAILING_CASES, abs(value) / 2.0**64).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("parties", PARTIES)
def test_fixed_point_products_take_two_rounds(parties: int) -> None:
    numbers = FixedPoint(parties, BITS)
    x, y = reals((200, 3, 4), -2, 2, "x"), reals((200, 4), -2, 2, "y")

    def program(run: Run, x: Shared, y: Shared) -> Program:
        return (yield from in_parallel(numbers.product(run, "ij,j->i", x, y), numbers.square(run, y)))

    ran = run_program(program, [encode(x, BITS), encode(y, BITS)], parties, "fixed point")
    unit = 2.0**-BITS
    got = decode(ran.opened(lambda result: result[0]), BITS)
    assert np.abs(got - np.einsum("zij,zj->zi", x, y)).max() < parties * unit
    assert np.abs(decode(ran.opened(lambda result: result[1]), BITS) - y * y).max() < parties * unit
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.MULTIPLICATION == 2


@pytest.mark.parametrize("parties", PARTIES)
def test_the_exponential(parties: int) -> None:
    numbers = FixedPoint(parties, BITS)
    y = reals((20, 50), -9.5, 0, "exponent")

    def program(run: Run, y: Shared) -> Program:
        return (yield from exponential(run, numbers, y))

    ran = run_program(program, [encode(y, BITS)], parties, "exponential")
    # Rounding of each square is doubled by those that follow, unless the power is below one half, as most are.
    assert np.abs(decode(ran.opened(), BITS) - (1 + y / 256) ** 256).max() < 256 * 2 * parties * 2.0**-BITS
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.exponential() == 17


def newton(x: np.ndarray, iterations: int) -> np.ndarray:
    """The plain twin: the same iterations in float64."""
    found = 3 * (1 + (0.5 - x) / 256) ** 256 + 0.003
    for _ in range(iterations):
        found = 2 * found - x * found**2
    return found


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("iterations", [0, 3, 7])
def test_the_reciprocal(parties: int, iterations: int) -> None:
    numbers = FixedPoint(parties, BITS)
    x = reals((20, 50), 1, 9.5, "denominators")
    x[0, :3] = 1.0, 2.0, 9.5

    def program(run: Run, x: Shared) -> Program:
        return (yield from reciprocal(run, numbers, x, iterations))

    ran = run_program(program, [encode(x, BITS)], parties, "reciprocal", iterations)
    got = decode(ran.opened(), BITS)
    assert np.abs(got - newton(x, iterations)).max() < 0.004
    if iterations == 7:
        assert np.abs(got - 1 / x).max() < 0.003
        near = x < 3
        assert np.abs(got - 1 / x)[near].max() < 20 * parties * 2.0**-BITS
    assert ran.layout.rounds == ran.meter.rounds["test"] == rounds.reciprocal(iterations) == 17 + 4 * iterations
