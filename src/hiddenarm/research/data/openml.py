"""MNIST by scikit-learn's downloader, `fetch_openml`.

It gives the 70,000 images as numbers, in the order of the original files. The idx files are written anew from
them, so that the same md5 sums tell whether every pixel arrived and in its place.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from http.client import HTTPException
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import DataError
from hiddenarm.research.data.mnist import IMAGES, LABELS, IdxFile

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
        return {**_idx_contents(pixels, list(IMAGES.values())), **_idx_contents(labels, list(LABELS.values()))}
    except (OSError, HTTPException, EOFError, zlib.error) as error:
        raise DataError(f"scikit-learn could not download mnist_784 (is this machine offline?): {error}") from error
    except (ValueError, KeyError) as error:
        raise DataError(f"scikit-learn downloaded something else than mnist_784: {error}") from error


def _idx_contents(values: NDArray[Any], files: list[IdxFile]) -> dict[str, bytes]:
    """The rows of `values`, dealt to `files` one after another as each has room."""
    parts = np.split(_as_bytes(values), np.cumsum([wanted.shape[0] for wanted in files])[:-1])
    return {wanted.name: wanted.header + part.tobytes() for wanted, part in zip(files, parts, strict=True)}


def _as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    numbers = np.asarray(values).astype(np.float64)
    if not ((numbers >= 0.0) & (numbers <= 255.0)).all():
        raise ValueError("there are numbers outside 0 to 255")
    return numbers.astype(np.uint8)
