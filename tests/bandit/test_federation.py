"""Federations whose numbers do not fit are refused, with the limit named."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.catalogue import DECIDE_ONE, program_text
from hiddenarm.bandit.federation import MAX_THREE_ROUND_WORDS, Federation
from hiddenarm.bandit.fitting import MAX_RECIPROCAL_WORDS, comparison_problem, truncated_values
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.comparison import MAX_BITS
from hiddenarm.mpc.dealing import layout_of
from support import suggested

GOOD: dict[str, Any] = {"arms": 10, "features": (12, 8), "epsilon": 0.1}


def test_defaults_fit() -> None:
    federation = Federation(**GOOD)
    assert federation.norms == (1.0, 1.0)
    # Rounding adds half a unit to each of 12 and 8 features.
    assert 0 < federation.joint_norm - 2**0.5 < 2.0**-21 * (12**0.5 + 8**0.5)
    assert (federation.parties, federation.dimension) == (2, 20)
    assert (federation.comparison_bits, federation.key_fraction_bits) == (32, 16)
    assert federation.decides_in_three_rounds
    assert federation.max_interactions == 1_000_000


def test_21_bits_are_refused_and_the_limit_named() -> None:
    Federation(**GOOD, fraction_bits=20)
    with pytest.raises(ConfigError, match=r"the limit is 62\. What would fit: fraction_bits = 20"):
        Federation(**GOOD, fraction_bits=21)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("arms", value) for value in (1, 0, -3, 2.0, "10", True, None, nan)),
        *(("features", value) for value in ((), (5,), (5, 0), (5, -1), (5, 2.0), (5, "a"), (True, 5), 7, "ab", None)),
        *(("epsilon", value) for value in (-0.1, 1.1, nan, inf, "0.1", None, True)),
        *(("ridge", value) for value in (0, -1.0, nan, inf, -inf, "1", None, 1e-320, 1e300)),
        *(("epsilon", value) for value in (5e-324, 1e-20, 2.0**-63 * 0.999)),
        *(("max_interactions", value) for value in (-1, 0.5, nan, inf, "4", None, True, 10**10)),
        *(("max_batch", value) for value in (0, -1, 4096, 2.0, "4", None, True)),
        *(("fraction_bits", value) for value in (7, 11, 31, 0, -20, 21, 20.0, 20.5, "20", None, nan)),
        *(("reciprocal_bits", value) for value in (3, 13, 8.5, "8", None, nan)),
        *(("norms", value) for value in ((1.0,), (1.0, 1.0, 1.0), (1.0, 0.0), (1.0, -1.0), (nan, 1.0), (inf, 1.0))),
        *(("norms", value) for value in ((None, 1.0), ("1", 1.0), (1e200, 1.0), (1e-200, 1e-200), 1.0, "ab")),
    ],
)
def test_bad_fields_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        Federation(**{**GOOD, field: value})


def test_lists_are_as_good_as_tuples() -> None:
    listed = Federation(arms=3, features=[2, 2], epsilon=0.1, norms=[1.0, 0.5])  # type: ignore[arg-type]
    assert listed == Federation(arms=3, features=(2, 2), epsilon=0.1, norms=(1.0, 0.5))
    assert hash(listed) == hash(Federation(arms=3, features=(2, 2), epsilon=0.1, norms=(1.0, 0.5)))


def test_norms_and_ridge_count_in_the_budget() -> None:
    # M x has 3 x 20 fractional bits and reaches R / ridge: 2 integer bits are left, so R / ridge stays below 4.
    Federation(**GOOD, norms=(2.5, 2.5))
    with pytest.raises(ConfigError, match="M x"):
        Federation(**GOOD, norms=(3.0, 3.0))
    with pytest.raises(ConfigError, match="M x"):
        Federation(**GOOD, ridge=0.3)
    Federation(**GOOD, norms=(3.0, 3.0), ridge=2.0)
    # 2 x 20 fractional bits leave 22 to the sums: two million interactions of norm sqrt(2).
    Federation(**{**GOOD, "arms": 2}, max_interactions=1_300_000)
    with pytest.raises(ConfigError, match="the sums of 2,200,000 interactions"):
        Federation(**{**GOOD, "arms": 2}, max_interactions=2_200_000)


def test_tables_finer_than_the_rounding_are_refused() -> None:
    # Rounding u moves x'u by up to R sqrt(D) 2^-L = 6.3 units of 2^-L; nodes may be 2^-reciprocal_bits apart.
    few = {**GOOD, "max_interactions": 100, "repair_every": 100}
    Federation(**few, fraction_bits=15, reciprocal_bits=12)
    with pytest.raises(ConfigError, match="rounding may move"):
        Federation(**few, fraction_bits=14, reciprocal_bits=12)


def test_endless_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"more than {MAX_RECIPROCAL_WORDS} words"):
        Federation(**GOOD, fraction_bits=14, ridge=1e-4, max_interactions=100)


def test_too_many_arms_leave_no_bits_to_compare() -> None:
    with pytest.raises(ConfigError, match=f"the limit of {MAX_BITS}"):
        Federation(**{**GOOD, "arms": 2**25 + 1})


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 10, 100, 1000])
@pytest.mark.parametrize("bits", [14, 16, 20])
def test_keys_fit_the_comparison(arms: int, bits: int) -> None:
    federation = Federation(
        arms=arms, features=(2, 2), epsilon=0.1, fraction_bits=bits, max_interactions=500, repair_every=500
    )
    assert 2**federation.tag_bits >= arms
    assert federation.comparison_bits <= MAX_BITS
    assert federation.key_fraction_bits <= 2 * bits
    # Keys differ by up to 2 bounds of scores, and their tags and rounding need room beside them.
    assert 2**federation.score_range_bits > 2 * federation.score_bound + 2 * 0.01
    # What shifting shares leaves must reach up to the comparison's width.
    kept = 64 - (2 * bits - federation.key_fraction_bits)
    assert kept + federation.tag_bits >= federation.comparison_bits


@pytest.mark.parametrize("bits", [12, 16, 20])
@pytest.mark.parametrize("arms", [2, 17])
def test_what_rounding_leaves_of_a_key_is_as_wide_as_its_comparison(bits: int, arms: int) -> None:
    """Modulo one bit less, and the signs of large differences are lost: bounds from 2^21 to 2^22 at 20 bits were such.
    Where the bound grows beyond what fits, it is refused."""
    numbers: dict[str, Any] = {"max_interactions": 10, "repair_every": 40}
    accepted = Federation(arms=arms, features=(1, 1), epsilon=0.0, fraction_bits=bits, **numbers)
    largest = 0.0
    for bound in (factor * 2.0**power for power in range(4, 30) for factor in (0.7, 0.99, 1.01)):
        ridge = 10 * (accepted.joint_norm / (2 * bound)) ** 2  # as it is, other numbers are refused much earlier
        federation = accepted._with(ridge=ridge)
        assert federation.score_bound == pytest.approx(bound)
        if comparison_problem(federation) is None:
            kept = 64 - (2 * bits - federation.key_fraction_bits)
            assert kept + federation.tag_bits >= federation.comparison_bits
            assert 2 * bound < 2.0**federation.score_range_bits
            largest = bound
    assert 2**15 < largest < 2**26
    if (bits, arms) == (20, 2):
        assert 2**21 < largest < 2**22


@pytest.mark.parametrize(
    ("numbers", "three"),
    [
        ({"arms": 19}, True),  # 171 pairs of 44 words
        ({"arms": 20}, False),
        ({"arms": 20, "max_interactions": 100_000}, True),  # a bit less, 42 words
        ({"arms": 49}, False),
    ],
)
def test_decisions_take_three_rounds_where_few_words_are_dealt(numbers: dict[str, Any], three: bool) -> None:
    federation = Federation(**{**GOOD, **numbers})
    assert federation.decides_in_three_rounds == three
    layout = layout_of(program_text(federation, DECIDE_ONE), federation.parties, 1)
    assert (layout.rounds == 3) == three
    if three:
        assert layout.correction_words <= MAX_THREE_ROUND_WORDS + 3 * federation.arms + 1


def test_keys_do_not_wrap() -> None:
    """Scores at the opposite bounds, and a little beyond, their tags, what shifting loses; one of them not eligible."""
    for arms, interactions in itertools.product((2, 3, 10, 48, 49, 300), (1, 7, 100, 5_000, 500_000)):
        federation = Federation(**{**GOOD, "arms": arms}, max_interactions=interactions)
        bits = federation.key_fraction_bits
        far = int((federation.score_bound + 0.01) * 2**bits)
        lower = 0 if federation.decides_by_payloads else 1 << (federation.score_range_bits + bits)
        largest = ((2 * far + federation.parties + lower) << federation.tag_bits) + arms - 1
        assert largest < 2 ** (federation.comparison_bits - 1)
        assert lower == 0 or lower > 2 * far + federation.parties  # lower than all that are eligible


@pytest.mark.parametrize("parties", [2, 3, 5, 10])
def test_keys_keep_enough_bits_for_all_parties(parties: int) -> None:
    """Each party loses up to a unit of the last bit."""
    numbers: dict[str, Any] = {"arms": 10, "features": (1,) * parties, "epsilon": 0.1, "max_interactions": 10}
    federation = Federation(**numbers)
    assert parties * 2.0**-federation.least_key_bits <= 0.004
    for ridge in (1e-3, 1e-6, 1e-8):
        changed = federation._with(ridge=ridge)
        refused = comparison_problem(changed) is not None
        assert refused or parties * 2.0**-changed.key_fraction_bits <= 0.004


def test_worst_cases_of_the_docstring() -> None:
    """|u| <= R / ridge, q <= R^2 / ridge, |g u| <= 1 / (2 sqrt(ridge)), over random models and largest contexts."""
    rng = np.random.default_rng(3)
    for ridge in (0.5, 1.0, 4.0):
        federation = Federation(arms=2, features=(3, 3), epsilon=0, ridge=ridge, norms=(1.0, 0.8))
        bounds = {name: bound for name, _, bound in truncated_values(federation)}
        for _ in range(300):
            seen = rng.normal(size=(rng.integers(0, 8), 6))
            inverse = np.linalg.inv(ridge * np.eye(6) + seen.T @ seen)
            halves = rng.normal(size=(2, 3))
            x = np.concatenate([n * h / np.linalg.norm(h) for n, h in zip(federation.norms, halves, strict=True)])
            u = inverse @ x
            q = x @ u
            assert np.linalg.norm(u) <= bounds["M x"] * (1 + 1e-12)
            assert 0 <= q <= federation.largest_quadratic_form * (1 + 1e-12)
            assert np.linalg.norm(u / (1 + q)) <= bounds["g u"] * (1 + 1e-12)


# What would fit


def random_numbers(draw: random.Random) -> dict[str, Any]:
    """Numbers of all kinds, some far from what fits."""
    parties = draw.choice((2, 2, 3))
    numbers: dict[str, Any] = {
        "arms": draw.choice((2, 3, 10, 100)),
        "features": tuple(draw.choice((1, 3, 12)) for _ in range(parties)),
        "epsilon": 0.1,
        "ridge": 10 ** draw.uniform(-3, 2),
        "norms": tuple(10 ** draw.uniform(-2, 1.5) for _ in range(parties)),
        "fraction_bits": draw.randint(14, 24),
    }
    if draw.random() < 0.6:
        numbers["max_interactions"] = draw.choice((10, 300, 5_000, 200_000, 3_000_000, 10**9))
    if draw.random() < 0.4:
        numbers["max_batch"] = draw.choice((1, 16, 1000, 4095))
    if draw.random() < 0.4:
        numbers["repair_every"] = draw.choice((10, 1000, 100_000, 1_000_000))
    if draw.random() < 0.3:
        numbers["reciprocal_bits"] = draw.choice((4, 10, 12))
    return numbers


def check_use(numbers: dict[str, Any], change: dict[str, Any]) -> None:
    """A suggestion is neither what was asked for nor far from it."""
    assert 1 <= len(change) <= 2
    asked: dict[str, Any] = {"max_batch": 256, "repair_every": 10_000, "reciprocal_bits": 8, **numbers}
    for name, value in change.items():
        assert value != asked.get(name)
        match name:
            case "ridge":
                assert asked["ridge"] < value <= 16 * asked["ridge"]
            case "norms":
                assert all(norm > less >= norm / 16 for norm, less in zip(asked["norms"], value, strict=True))
            case "max_interactions":
                most = asked.get("max_interactions", 10_000)
                assert most > value >= most / 10
                assert value >= 1_000 or most <= 1_000
            case "max_batch" | "repair_every":
                assert asked[name] > value >= asked[name] / 16
            case "reciprocal_bits":
                assert 4 <= value < asked[name]
            case _:
                assert name == "fraction_bits"


def test_every_suggestion_is_accepted_when_followed_and_none_is_absurd() -> None:
    draw = random.Random(12)
    kinds: Counter[int] = Counter()
    while kinds.total() < 60:
        numbers = random_numbers(draw)
        refused = refusal(numbers)
        if refused is None:
            continue
        changes = suggested(refused)
        changed = max((len(change) for change in changes), default=0)
        kinds[changed] += 1
        assert len(changes) <= 3
        assert (changed == 0) == ("No useful change was found" in refused)
        assert (changed == 2) == ("No useful change of one number alone" in refused)
        for change in changes:
            check_use(numbers, change)
            assert refusal({**numbers, **change}) is None
    assert set(kinds) == {0, 1, 2}
    assert kinds[1] > kinds[2] > 3


def refusal(numbers: dict[str, Any]) -> str | None:
    try:
        Federation(**numbers)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("numbers", "names"),
    [
        ({"ridge": 0.01, "fraction_bits": 18}, {"ridge", "norms"}),  # once "max_interactions = 9"
        ({"fraction_bits": 21}, {"fraction_bits", "ridge", "norms"}),
        ({"max_interactions": 3_000_000}, {"norms", "max_interactions"}),
        ({"max_interactions": 900, "fraction_bits": 18, "ridge": 0.008}, {"ridge", "norms", "max_interactions"}),
        ({"norms": (100.0, 100.0)}, {"ridge", "norms"}),  # together
        ({"ridge": 1e-6, "norms": (1e3, 1e3)}, set()),
    ],
)
def test_suggestions_are_few(numbers: dict[str, Any], names: set[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        Federation(arms=2, features=(1, 1), epsilon=0.0, **numbers)
    changes = suggested(str(refused.value))
    assert {name for change in changes for name in change} == names
    assert len(changes) == (1 if "norms" in numbers and names else len(names))
