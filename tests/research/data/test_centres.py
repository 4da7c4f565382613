"""K-means centres are a function of points and seed, and are found once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hiddenarm.errors import ConfigError
from hiddenarm.research.data import preparation
from hiddenarm.research.data.preparation import find_centres, kept_centres

POINTS = np.random.default_rng(0).standard_normal((300, 4))
FOUND = np.random.default_rng(1).standard_normal((3, 4))


def keep(data: str = "data", shape: tuple[int, int] = (3, 4), seed: int = 0) -> bool:
    """Ask for centres; whether they had to be found."""
    calls = []
    found = np.resize(FOUND, shape)
    given_back = kept_centres(data, shape, seed, lambda: calls.append(1) or found)  # type: ignore[func-returns-value]
    assert np.array_equal(given_back, found)
    return bool(calls)


def only_file(cache: Path) -> Path:
    (path,) = (cache / "centres").iterdir()
    return path


@pytest.mark.parametrize("arms", [2, 10, 37, 300])
def test_every_centre_is_the_mean_of_its_points(arms: int) -> None:
    centres = find_centres(POINTS, arms, seed=5)
    nearest = np.linalg.norm(POINTS[:, None] - centres, axis=2).argmin(axis=1)
    means = np.stack([POINTS[nearest == arm].mean(axis=0) for arm in range(arms)])
    np.testing.assert_allclose(centres, means, atol=0.02)


def test_the_seed_decides() -> None:
    one, same, other = (find_centres(POINTS, 20, seed) for seed in (1, 1, 2))
    np.testing.assert_allclose(one, same, atol=1e-12)
    assert not np.allclose(one, other)


def test_seeds_beyond_32_bits() -> None:
    assert find_centres(POINTS, 2, 2**63 - 1).shape == (2, 4)


def test_more_arms_than_points() -> None:
    with pytest.raises(ConfigError, match="300 rows have at most"):
        find_centres(POINTS, 301, 0)


def test_found_once() -> None:
    assert [keep(), keep(), keep()] == [True, False, False]


@pytest.mark.parametrize("other", [{"data": "other"}, {"shape": (4, 3)}, {"shape": (3, 5)}, {"seed": 1}])
def test_other_centres_are_other_files(other: dict[str, object]) -> None:
    keep()
    assert keep(**other)  # type: ignore[arg-type]
    assert not keep()
    assert not keep(**other)  # type: ignore[arg-type]


@pytest.mark.parametrize("changed", ["_RECIPE", "sklearn"])
def test_another_way_of_computing_is_another_file(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    if changed == "sklearn":
        monkeypatch.setattr("sklearn.__version__", "0.0")
    else:
        monkeypatch.setattr(preparation, changed, "another recipe")
    assert keep()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(place=st.integers(0, 32 + 8 * 12 - 1), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_file_is_found_again(cache: Path, place: int, bit: int, cut: bool) -> None:
    keep()
    content = bytearray(only_file(cache).read_bytes())
    content[place] ^= 1 << bit
    only_file(cache).write_bytes(content[:place] if cut else content)
    assert keep()
    assert not keep()


def test_without_a_cache_nothing_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_bytes(b"a file where the folder should be")
    assert [keep(), keep()] == [True, True]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert keep()
