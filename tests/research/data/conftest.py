"""A tiny MNIST: four idx files of the right form, whose sizes and md5 sums stand in for the real ones."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.research.data.images import IMAGES, LABELS, IdxFile, Split

ROWS: dict[Split, int] = {"train": 60, "test": 20}


def idx_bytes(values: np.ndarray) -> bytes:
    """`values` as an idx file of unsigned bytes."""
    return struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape) + values.tobytes()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, empty: the user's is neither read nor written."""
    base = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    return base / "hiddenarm"


@pytest.fixture
def tiny_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of 60 training and 20 test images of 8x8 pixels, not gzipped."""
    rng = np.random.default_rng(5)
    for split, rows in ROWS.items():
        images = rng.integers(256, size=(rows, 8, 8), dtype=np.uint8)
        labels = rng.integers(10, size=rows, dtype=np.uint8)
        for table, values in ((IMAGES, images), (LABELS, labels)):
            content = idx_bytes(values)
            (tmp_path / table[split].name).write_bytes(content)
            digest = hashlib.md5(content).hexdigest()
            monkeypatch.setitem(table, split, IdxFile(table[split].name, values.shape, digest))
    return tmp_path


@pytest.fixture
def tiny_contents(tiny_mnist: Path) -> dict[str, bytes]:
    """The four tiny files by name, as a source gives them."""
    return {path.name: path.read_bytes() for path in tiny_mnist.iterdir()}
