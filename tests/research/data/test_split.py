"""Features go to the parties in nearly equal slices."""

from __future__ import annotations

import pytest

from hiddenarm.errors import ConfigError
from hiddenarm.research.data.worlds import split_features


@pytest.mark.parametrize(
    ("features", "parties", "sizes"),
    [(20, 2, [10, 10]), (20, 3, [7, 7, 6]), (5, 5, [1] * 5), (7, 1, [7]), (11, 4, [3, 3, 3, 2])],
)
def test_sizes(features: int, parties: int, sizes: list[int]) -> None:
    assert split_features(features, parties) == sizes


@pytest.mark.parametrize(("features", "parties"), [(2, 3), (0, 1), (4, 0), (4, -1)])
def test_too_few(features: int, parties: int) -> None:
    with pytest.raises(ConfigError):
        split_features(features, parties)
