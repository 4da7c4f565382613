"""MNIST by scikit-learn's downloader: what it gives is turned back into the original files, bit by bit."""

from __future__ import annotations

from http.client import IncompleteRead
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets

from hiddenarm.errors import DataError
from hiddenarm.research.data.fetch import mnist_from_openml

Tables = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def tables(tiny_contents: dict[str, bytes]) -> Tables:
    """The tiny data set as scikit-learn gives it: training set first, pixels as floats, labels as text."""
    parts = {
        name: np.frombuffer(content, np.uint8)[16 if "images" in name else 8 :]
        for name, content in tiny_contents.items()
    }
    pixels = np.concatenate([parts["train-images-idx3-ubyte"], parts["t10k-images-idx3-ubyte"]])
    labels = np.concatenate([parts["train-labels-idx1-ubyte"], parts["t10k-labels-idx1-ubyte"]])
    return pixels.reshape(-1, 64).astype(np.float64), labels.astype(str).astype(object)


def test_the_files_are_made_again(tables: Tables, tiny_contents: dict[str, bytes]) -> None:
    assert mnist_from_openml(lambda: tables) == tiny_contents


def test_another_order_is_another_file(tables: Tables, tiny_contents: dict[str, bytes]) -> None:
    pixels, labels = tables
    made = mnist_from_openml(lambda: (pixels[::-1], labels))
    assert {name for name in made if made[name] != tiny_contents[name]} == {
        "train-images-idx3-ubyte",
        "t10k-images-idx3-ubyte",
    }


@pytest.mark.parametrize("error", [URLError("no route"), TimeoutError("timed out"), IncompleteRead(b""), EOFError()])
def test_offline(error: Exception) -> None:
    def fetch() -> Tables:
        raise error

    with pytest.raises(DataError, match=r"could not download mnist_784.*offline"):
        mnist_from_openml(fetch)


@pytest.mark.parametrize("pixel", [-1.0, 256.0, np.nan, np.inf])
def test_what_is_no_pixel_is_refused(tables: Tables, pixel: float) -> None:
    tables[0][3, 4] = pixel
    with pytest.raises(DataError, match=r"something else.*outside 0 to 255"):
        mnist_from_openml(lambda: tables)


def test_labels_that_are_words_are_refused(tables: Tables) -> None:
    tables[1][0] = "seven"
    with pytest.raises(DataError, match="something else"):
        mnist_from_openml(lambda: tables)


def test_scikit_learn_is_asked_for_the_right_thing(
    tables: Tables, tiny_contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def fetch_openml(name: str, **settings: Any) -> Any:
        asked.update(settings, name=name)
        return sklearn.utils.Bunch(data=tables[0], target=tables[1])

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    assert mnist_from_openml() == tiny_contents
    assert (asked["name"], asked["version"], asked["as_frame"]) == ("mnist_784", 1, False)
