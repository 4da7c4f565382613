"""Features are clipped to the declared norm, by the same operations whatever their values are."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.features import checked_features, checked_row, clipped_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FeatureError
from hiddenarm.ring.words import decode, encode
from hiddenarm.service.features import StoredFeatures, words_by_key

FEDERATION = Federation(arms=2, features=(3, 3), epsilon=0.1, norms=(0.5, 1.0))
ROWS = {
    "zeros": [0.0, 0.0, 0.0],
    "tiny": [1e-200, 0.0, -1e-300],
    "within": [0.1, -0.2, 0.3],
    "on the norm": [0.0, 0.5, 0.0],
    "beyond": [0.4, 0.4, -0.4],
    "far beyond": [3e5, -7.0, 1e150],
}
"""Legal features of party 0."""


def operations(act: Callable[[], object]) -> list[tuple[Any, ...]]:
    """Every instruction of Python that runs, and every call of a function that is not written in Python."""
    done: list[tuple[Any, ...]] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            done.append((frame.f_code.co_qualname, frame.f_lasti))
        return trace

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            done.append((frame.f_code.co_qualname, called.__qualname__))

    tracing, profiling = sys.gettrace(), sys.getprofile()
    gc.collect()
    gc.disable()  # what others left behind is not to be cleared away in between
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(profiling)
        sys.settrace(tracing)
        gc.enable()
    return [step for step in done if step[0] != operations.__qualname__]


class Source:
    """Features that are made when they are asked for."""

    def lookup(self, key: str) -> np.ndarray:
        return np.array(ROWS[key])


def stored() -> StoredFeatures:
    return StoredFeatures({key: row for row, key in enumerate(ROWS)}, np.array(list(ROWS.values())))


PATHS: dict[str, Callable[[str], object]] = {
    "a row": lambda key: checked_row(np.array(ROWS[key]), FEDERATION, 0),
    "a list": lambda key: checked_row(ROWS[key], FEDERATION, 0),
    "replicates": lambda key: checked_features(np.array([ROWS[key], ROWS["within"]]), FEDERATION, 0),
    "a source": words_by_key(Source(), FEDERATION, 0),
    "a table": stored().encoded(FEDERATION, 0).words,
}


@pytest.mark.parametrize("path", PATHS)
def test_all_rows_take_the_same_operations(path: str) -> None:
    act = PATHS[path]
    act("within")  # nothing is imported or cached below
    done = {key: operations(lambda key=key: act(key)) for key in ROWS}  # type: ignore[misc]
    assert len(done["within"]) > 10
    for key in ROWS:
        assert done[key] == done["within"], key


def test_operations_tell_a_row_that_takes_more_of_them() -> None:
    def clip_if_needed(row: np.ndarray) -> np.ndarray:
        norm = np.sqrt(row @ row)
        return row if norm <= 0.5 else row / norm

    within, beyond = np.array(ROWS["within"]), np.array(ROWS["beyond"])
    assert operations(lambda: clip_if_needed(within)) != operations(lambda: clip_if_needed(beyond))


@pytest.mark.parametrize("key", ROWS)
def test_a_row_is_scaled_down_to_its_norm_and_otherwise_kept(key: str) -> None:
    row = np.array(ROWS[key])
    clipped = clipped_features(row, FEDERATION, 0)
    if np.linalg.norm(row) <= 0.5:
        assert np.array_equal(clipped, row)
    else:
        assert np.linalg.norm(clipped) == pytest.approx(0.5, rel=1e-12)
        assert clipped == pytest.approx(row / np.linalg.norm(row) * 0.5, rel=1e-12)
    words = encode(clipped, FEDERATION.fraction_bits)
    for path in ("a row", "a list", "a source", "a table"):
        assert np.abs(decode(PATHS[path](key) - words, 0)).max() <= 1, path  # type: ignore[operator]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([0.1, np.nan, 0.0], "feature 1 of party 0 is not a finite number"),
        ([0.1, 0.0, -np.inf], "feature 2 of party 0 is not a finite number"),
        ([1e200, 0.0, 0.0], "the features of party 0 are too large"),
        ([0.1, 0.2], "party 0 declared 3 features"),
    ],
)
def test_what_has_no_finite_norm_is_refused_by_name(row: list[float], why: str) -> None:
    for check in (checked_row, checked_features):
        with pytest.raises(FeatureError, match=why):
            check(row, FEDERATION, 0)


def test_rows_of_a_table_that_cannot_be_used_are_refused_and_the_others_kept() -> None:
    values = np.array([[0.1, 0.2, 0.3], [np.nan, 0.0, 0.0], [1e200, 0.0, 0.0], [0.4, 0.4, 0.4]])
    table = StoredFeatures({key: row for row, key in enumerate("abcd")}, values)
    encoded = table.encoded(FEDERATION, 0)
    assert table.unusable == 2
    for key, row in ("a", 0), ("d", 3):
        assert np.array_equal(encoded.words(key), checked_features(values[row], FEDERATION, 0))
    for key, why in ("b", "feature 0 of party 0 is not a finite number"), ("c", "too large"):
        with pytest.raises(FeatureError, match=why):
            encoded.words(key)
    with pytest.raises(FeatureError, match="no features are stored"):
        encoded.words("e")
