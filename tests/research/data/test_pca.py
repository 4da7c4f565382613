"""Principal components agree with scikit-learn's and have fixed signs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from hiddenarm.errors import ConfigError
from hiddenarm.research.data.preparation import fit_pca


def test_agrees_with_sklearn_up_to_sign() -> None:
    pixels = load_digits().data
    ours = fit_pca(pixels, 20).apply(pixels)
    theirs = PCA(20, svd_solver="full").fit_transform(pixels)
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours, theirs * signs, atol=1e-8)


def test_largest_loading_is_positive() -> None:
    components = fit_pca(load_digits().data, 30).components
    assert (np.take_along_axis(components, np.abs(components).argmax(axis=0)[None], axis=0) > 0).all()
    np.testing.assert_allclose(components.T @ components, np.eye(30), atol=1e-12)


def test_bytes_and_floats_give_the_same_over_many_chunks() -> None:
    pixels = np.random.default_rng(1).integers(256, size=(20_000, 12), dtype=np.uint8)
    projection = fit_pca(pixels, 12)
    np.testing.assert_allclose(projection.apply(pixels), (pixels - pixels.mean(0)) @ projection.components, atol=1e-9)
    assert np.array_equal(projection.components, fit_pca(pixels.astype(np.float64), 12).components)


@pytest.mark.parametrize("features", [0, 65])
def test_the_limit_is_named(features: int) -> None:
    with pytest.raises(ConfigError, match=f"1 to 64 features, not {features}"):
        fit_pca(load_digits().data, features)
