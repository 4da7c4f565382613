"""What is computed from images before they become a world: principal components, and centres for arms.

Centred principal components, the same on every machine up to the last bits.

K-means centres, the arms of the paper's experiments with many arms.

Lloyd's algorithm on all rows, from one k-means++ start, until it stands still. For the 60,000 contexts of MNIST
that takes seconds with hundreds of arms, so the centres are kept in the cache. MiniBatchKMeans would be several times
as fast for slightly worse centres; with the cache there is no need for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError, DataError
from hiddenarm.research.data.cache import cache_folder, write_whole

_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Projection:
    """x ↦ (x - mean) · components: how a data set, or its test set, becomes contexts."""

    mean: NDArray[np.float64]
    components: NDArray[np.float64]

    def apply(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """The coordinates [n, features] of `points` [n, dims]."""
        chunks = [np.asarray(chunk, np.float64) @ self.components for chunk in _chunks(points)]
        return np.concatenate(chunks) - self.mean @ self.components


def fit_pca(points: NDArray[Any], features: int) -> Projection:
    """The first `features` principal components; each one's entry of largest magnitude is positive.

    The covariance is taken from the sums of x and x x^T, which are exact for pixels: small whole numbers.
    """
    count, dims = points.shape
    if not 1 <= features <= dims:
        raise ConfigError(f"this data set has 1 to {dims} features, not {features}")
    total = np.zeros(dims)
    products = np.zeros((dims, dims))
    for chunk in _chunks(points):
        block = np.asarray(chunk, np.float64)
        total += block.sum(axis=0)
        products += block.T @ block
    mean = total / count
    _, vectors = np.linalg.eigh(products / count - np.outer(mean, mean))
    return Projection(mean, _fix_signs(vectors[:, ::-1][:, :features]))


def _fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0.0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * signs)


def _chunks(points: NDArray[Any]) -> list[NDArray[Any]]:
    """Views of a few thousand rows each, so that 47 MB of pixels never become 376 MB of floats."""
    return [points[start : start + _CHUNK] for start in range(0, len(points), _CHUNK)]


Centres = NDArray[np.float64]

_ITERATIONS = 300
_RECIPE = "centred principal components, unit norm, Lloyd, 1"
"""How the points and their centres are computed. Another number at its end makes every cached file a stranger."""
_DIGEST = 32


def find_centres(points: NDArray[np.float64], arms: int, seed: int) -> Centres:
    """`arms` centres [arms, D] of `points` [n, D]."""
    from sklearn.cluster import KMeans

    if arms > len(points):
        raise ConfigError(f"{len(points)} rows have at most as many K-means arms, not {arms}")
    found = KMeans(n_clusters=arms, n_init=1, max_iter=_ITERATIONS, random_state=seed % 2**32).fit(points)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def kept_centres(data: str, shape: tuple[int, int], seed: int, find: Callable[[], Centres]) -> Centres:
    """What `find` gives, from the cache if it was found before.

    `data` names the points for good, by a checksum of what they are made of. The file is a SHA-256 sum and the
    numbers; one that is damaged is found again. Without a cache that can be written to, nothing is kept.
    """
    try:
        path = _path(data, shape, seed)
    except DataError:
        return find()
    kept = _read(path, shape)
    if kept is not None:
        return kept
    centres = find()
    with suppress(DataError):
        _write(path, centres)
    return centres


def _path(data: str, shape: tuple[int, int], seed: int) -> Path:
    from sklearn import __version__

    made_of = hashlib.sha256("\n".join((_RECIPE, __version__, data)).encode()).hexdigest()
    return cache_folder() / "centres" / f"{shape[0]}x{shape[1]}-seed{seed}-{made_of[:16]}.f8"


def _write(path: Path, centres: Centres) -> None:
    numbers = centres.astype("<f8").tobytes()
    write_whole(path, hashlib.sha256(numbers).digest() + numbers)


def _read(path: Path, shape: tuple[int, int]) -> Centres | None:
    """The centres in `path`, or None if there are none or the file is not as it was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, numbers = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(numbers).digest() != digest or len(numbers) != 8 * shape[0] * shape[1]:
        return None
    return np.frombuffer(numbers, dtype="<f8").astype(np.float64).reshape(shape)
