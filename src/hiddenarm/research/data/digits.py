"""The handwritten digits that come with scikit-learn: 1,797 of 8x8 pixels.

They have no test set of their own. Where one is needed, a third of every class is held out, the same rows each
time: 1,198 to train on and 599 that a learner never sees. Both parts are drawn from all digits alike, so nothing
but having been learned from tells them apart.

To import scikit-learn takes longer than anything else at the start of a demo. So the digits are kept in the cache when
they were read once, a byte for each pixel and label, and are known there by their checksum.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import DataError
from hiddenarm.research.data.cache import cache_folder, write_whole
from hiddenarm.research.data.mnist import Split

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
