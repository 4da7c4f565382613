"""The handwritten digits that come with scikit-learn: 1,797 of 8x8 pixels.

They have no test set of their own. Where one is needed, a third of every class is held out, the same rows each
time: 1,198 to train on and 599 that a learner never sees. Both parts are drawn from all digits alike, so nothing
but having been learned from tells them apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hiddenarm.data.mnist import Split

_SPLIT_SEED = 1797


def read_digits(split: Split | None = None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels [n, 64] from 0 to 16 and labels [n] from 0 to 9, of one part or, without a split, of all."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    rows = np.arange(len(labels)) if split is None else _part(labels, split)
    return np.asarray(pixels[rows], dtype=np.float64), np.asarray(labels[rows], dtype=np.int64)


def _part(labels: NDArray[np.int64], split: Split) -> NDArray[np.int64]:
    """The rows of one part in their usual order: within shuffled classes, every third row is held out."""
    shuffled = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[by_class[::3]] = True
    return np.flatnonzero(held_out if split == "test" else ~held_out)
