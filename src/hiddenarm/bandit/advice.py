"""What to change in a federation whose numbers do not fit: few suggestions, each of which fits and is of use.

A suggestion changes one number: fewer or more fraction_bits, a larger ridge or smaller norms by at most a factor of 16,
a batch or a distance of repairs that is smaller by at most as much, a coarser table; or fewer interactions, but not
below a tenth of what was asked for, nor below 1,000 unless that few were asked for. Of those that fit, the three that
change least are given. Where there is none, two of fraction_bits, ridge and norms are changed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, floor, log2, log10
from typing import Any, Protocol

MOST_SUGGESTIONS = 3
MOST_FACTOR = 16
"""By which ridge, norms, max_batch or repair_every may be changed."""
MOST_FEWER_INTERACTIONS = 10
LEAST_INTERACTIONS = 1_000
_FACTOR_STEPS = 16
"""Factors that are tried for each doubling; for pairs of numbers, a quarter of them."""
FRACTION_BITS = range(12, 31)
_BIT = 0.5
"""How large a change of one fractional bit is, where a doubling of another number is 1."""


class Numbers(Protocol):
    """The numbers of a federation that may be changed."""

    @property
    def fraction_bits(self) -> int: ...
    @property
    def ridge(self) -> float: ...
    @property
    def norms(self) -> tuple[float, ...]: ...
    @property
    def max_interactions(self) -> int: ...
    @property
    def max_batch(self) -> int: ...
    @property
    def repair_every(self) -> int: ...
    @property
    def reciprocal_bits(self) -> int: ...


Fits = Callable[..., bool]
"""Whether the federation with some numbers changed would be accepted."""


@dataclass(frozen=True, slots=True)
class _Suggestion:
    """A change, how large it is in doublings, and its text."""

    size: float
    text: str


def what_would_fit(numbers: Numbers, fits: Fits) -> str:
    """Which one number could be changed, and to what; or which two."""
    found = [*_other_bits(numbers, fits), *_other_reals(numbers, fits), *_smaller_numbers(numbers, fits)]
    if found:
        least = sorted(found, key=lambda suggestion: suggestion.size)[:MOST_SUGGESTIONS]
        return f"What would fit: {', or '.join(one.text for one in found if one in least)}"
    pairs = list(_pairs(numbers, fits))
    if pairs:
        return f"No useful change of one number alone would fit. What would fit: {', or '.join(pairs)}"
    return (
        "No useful change was found that would fit, neither of one number nor of two of fraction_bits, ridge and norms "
        f"(these by a factor of {MOST_FACTOR} at most)"
    )


def _other_bits(numbers: Numbers, fits: Fits) -> Iterator[_Suggestion]:
    for bits in _nearest_bits(numbers):
        if fits(fraction_bits=bits):
            yield _Suggestion(abs(bits - numbers.fraction_bits) * _BIT, f"fraction_bits = {bits}")
            return


def _nearest_bits(numbers: Numbers) -> list[int]:
    """All other numbers of fractional bits, the nearest first."""
    others = (bits for bits in FRACTION_BITS if bits != numbers.fraction_bits)
    return sorted(others, key=lambda bits: abs(bits - numbers.fraction_bits))


def _other_reals(numbers: Numbers, fits: Fits) -> Iterator[_Suggestion]:
    """A larger ridge, smaller norms."""
    for change in (_larger_ridge, _smaller_norms):
        for factor in _factors(_FACTOR_STEPS):
            changed, text = change(numbers, factor)
            if fits(**changed):
                yield _Suggestion(log2(factor), text)
                break


def _smaller_numbers(numbers: Numbers, fits: Fits) -> Iterator[_Suggestion]:
    """Fewer interactions, smaller batches, more frequent repairs, a coarser table."""
    asked = numbers.max_interactions
    least_interactions = LEAST_INTERACTIONS if asked > LEAST_INTERACTIONS else 1
    least = {
        "max_interactions": max(asked / MOST_FEWER_INTERACTIONS, least_interactions),
        "max_batch": numbers.max_batch / MOST_FACTOR,
        "repair_every": numbers.repair_every / MOST_FACTOR,
        "reciprocal_bits": 1,
    }
    for name, bound in least.items():
        given: int = getattr(numbers, name)
        smaller = sorted({two_digits(given * 2 ** (-step / 4)) for step in range(1, 20)})
        value = largest(
            lambda value, name=name: fits(**{name: value}),  # type: ignore[misc]
            (value for value in smaller if bound <= value < given),
        )
        if value:
            yield _Suggestion(log2(given / value), f"{name} = {value}")


def _pairs(numbers: Numbers, fits: Fits) -> Iterator[str]:
    """Ridge or norms, changed as little as possible, with the nearest fraction_bits with which they fit; and both of
    them, changed by the same factor."""
    for change in (_larger_ridge, _smaller_norms):
        tried = (
            (f"fraction_bits = {bits} together with {text}", {**changed, "fraction_bits": bits})
            for changed, text in (change(numbers, factor) for factor in _factors(_FACTOR_STEPS // 4))
            for bits in _nearest_bits(numbers)
        )
        text = next((text for text, changed in tried if fits(**changed)), None)
        if text:
            yield text
    for factor in _factors(_FACTOR_STEPS // 4):
        (ridge, ridge_text), (norms, norms_text) = _larger_ridge(numbers, factor), _smaller_norms(numbers, factor)
        if fits(**ridge, **norms):
            yield f"{ridge_text} together with {norms_text}"
            return


def _factors(steps: int) -> list[float]:
    """Factors below the largest, so many for each doubling."""
    return [2 ** (step / steps) for step in range(1, round(log2(MOST_FACTOR)) * steps)]


def _larger_ridge(numbers: Numbers, factor: float) -> tuple[dict[str, Any], str]:
    ridge = _rounded(numbers.ridge * factor, up=True)
    return {"ridge": ridge}, f"ridge = {ridge:g}"


def _smaller_norms(numbers: Numbers, factor: float) -> tuple[dict[str, Any], str]:
    norms = tuple(_rounded(norm / factor, up=False) for norm in numbers.norms)
    return {"norms": norms}, f"norms = {list(norms)}"


def largest(fits: Callable[[int], bool], ascending: Iterable[int]) -> int | None:
    """The last of ascending candidates that fits, where all before it do."""
    candidates, found = [value for value in ascending if value >= 1], None
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if fits(candidates[middle]):
            found, low = candidates[middle], middle + 1
        else:
            high = middle
    return found


def two_digits(value: float) -> int:
    """A whole number of two significant digits, rounded down."""
    unit: int = 10 ** max(0, floor(log10(max(value, 1)) + 1e-9) - 1)
    return int(value / unit + 1e-9) * unit


def _rounded(value: float, up: bool) -> float:
    """A number of three significant digits."""
    unit = 10.0 ** (floor(log10(value)) - 2)
    return float(f"{(ceil(value / unit) if up else floor(value / unit)) * unit:.6g}")
