"""Centred principal components, the same on every machine up to the last bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError

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
