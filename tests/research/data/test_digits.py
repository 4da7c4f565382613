"""The digits have a held-out part that looks like the rest and never changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hiddenarm.research.data import images
from hiddenarm.research.data.images import read_digits


def rows_of(pixels: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in pixels}


def test_without_a_split_all_are_there() -> None:
    pixels, labels = read_digits()
    assert np.array_equal(pixels, load_digits().data)
    assert np.array_equal(labels, load_digits().target)


def test_the_parts_share_no_row_and_make_up_the_whole() -> None:
    """No two of the 1,797 images are equal, so images stand for their rows."""
    train, test, everything = (rows_of(read_digits(split)[0]) for split in ("train", "test", None))
    assert (len(train), len(test), len(everything)) == (1198, 599, 1797)
    assert train | test == everything


def test_labels_stay_with_their_images() -> None:
    truth = {row.tobytes(): label for row, label in zip(*load_digits(return_X_y=True), strict=True)}
    for split in ("train", "test"):
        pixels, labels = read_digits(split)
        assert [truth[row.tobytes()] for row in pixels] == labels.tolist()


def test_every_class_gives_a_third() -> None:
    held_out, everything = (np.bincount(read_digits(split)[1]) for split in ("test", None))
    assert (np.abs(held_out - everything / 3) < 1).all()


def test_the_parts_are_shuffled() -> None:
    """The held-out rows come from everywhere: the file lists its writers one after another."""
    held_out = rows_of(read_digits("test")[0])
    places = [place for place, row in enumerate(load_digits().data) if row.tobytes() in held_out]
    np.testing.assert_allclose(np.histogram(places, bins=9)[0], 599 / 9, atol=5 * np.sqrt(599 / 9))


def test_the_split_is_fixed() -> None:
    assert np.array_equal(read_digits("test")[0], read_digits("test")[0])


class TestTheCache:
    def test_the_second_time_scikit_learn_is_not_needed(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = read_digits()
        assert hashlib.sha256((cache / "digits.u1").read_bytes()).hexdigest() == images._SHA256
        monkeypatch.setattr(images, "_installed_digits", None)
        for found, expected in zip(read_digits(), first, strict=True):
            assert np.array_equal(found, expected)
            assert found.dtype == expected.dtype

    @pytest.mark.parametrize("damage", [b"", b"\0" * 1797 * 65])
    def test_a_damaged_file_is_made_again(self, cache: Path, damage: bytes) -> None:
        first = read_digits()
        (cache / "digits.u1").write_bytes(damage)
        assert np.array_equal(read_digits()[0], first[0])
        assert hashlib.sha256((cache / "digits.u1").read_bytes()).hexdigest() == images._SHA256

    def test_without_a_cache_the_digits_are_read_all_the_same(self, cache: Path) -> None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text("no folder")
        assert len(read_digits()[0]) == 1797
