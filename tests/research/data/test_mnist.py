"""MNIST is read whole or refused, and the message says which file and what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.errors import DataError
from hiddenarm.research.data.images import read_mnist

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "mnist"
IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"


def test_reads_both_splits(tiny_mnist: Path) -> None:
    pixels, labels = read_mnist(tiny_mnist, "train")
    assert pixels.shape == (60, 64)
    assert labels.shape == (60,)
    assert pixels.tobytes() == (tiny_mnist / IMAGES).read_bytes()[16:]
    assert labels.tolist() == list((tiny_mnist / LABELS).read_bytes()[8:])
    assert read_mnist(tiny_mnist, "test")[0].shape == (20, 64)


def test_real_files_or_the_tiny_ones(tiny_mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if REAL.is_dir():
        monkeypatch.undo()
        pixels, labels = read_mnist(REAL, "train")
        assert pixels.shape == (60_000, 784)
        assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    else:
        assert len(read_mnist(tiny_mnist, "train")[0]) == 60


@pytest.mark.parametrize("name", [f"{IMAGES}.gz", "train-images.idx3-ubyte", "train-images.idx3-ubyte.gz"])
def test_other_names_and_gzip_give_the_same(tiny_mnist: Path, name: str) -> None:
    pixels, _ = read_mnist(tiny_mnist, "train")
    content = (tiny_mnist / IMAGES).read_bytes()
    (tiny_mnist / IMAGES).unlink()
    (tiny_mnist / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert np.array_equal(read_mnist(tiny_mnist, "train")[0], pixels)


def test_no_folder_named(cache: Path) -> None:
    with pytest.raises(DataError, match=f"not in its cache, the folder {cache}/mnist. Name a folder"):
        read_mnist(None, "train")


def test_the_cache_is_read_where_no_folder_is_named(tiny_mnist: Path, cache: Path) -> None:
    cache.mkdir()
    tiny_mnist.rename(cache / "mnist")
    assert read_mnist(None, "test")[0].shape == (20, 64)
    (cache / "mnist" / LABELS).write_bytes(b"")
    with pytest.raises(DataError, match=f"{cache}/mnist/{LABELS} is damaged"):
        read_mnist(None, "train")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        read_mnist(tmp_path / "nowhere", "train")


def test_missing_file(tiny_mnist: Path) -> None:
    (tiny_mnist / LABELS).unlink()
    with pytest.raises(DataError, match=f"neither {LABELS} nor {LABELS}.gz"):
        read_mnist(tiny_mnist, "train")


@pytest.mark.parametrize("damage", ["flipped", "short", "long", "empty"])
def test_damaged_file_is_named(tiny_mnist: Path, damage: str) -> None:
    path = tiny_mnist / LABELS
    good = path.read_bytes()
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    path.write_bytes({"flipped": flipped, "short": good[:-1], "long": good + b"\0", "empty": b""}[damage])
    with pytest.raises(DataError, match=f"{LABELS} is damaged"):
        read_mnist(tiny_mnist, "train")


@pytest.mark.parametrize("keep", [slice(0, -20), slice(0, 5)])
def test_damaged_gzip_is_named(tiny_mnist: Path, keep: slice) -> None:
    content = (tiny_mnist / IMAGES).read_bytes()
    (tiny_mnist / IMAGES).unlink()
    (tiny_mnist / f"{IMAGES}.gz").write_bytes(gzip.compress(content)[keep])
    with pytest.raises(DataError, match=f"{IMAGES}.gz is damaged.*cannot be unpacked"):
        read_mnist(tiny_mnist, "train")


def test_a_bomb_is_not_unpacked_to_its_end(tiny_mnist: Path) -> None:
    (tiny_mnist / LABELS).write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="md5"):
        read_mnist(tiny_mnist, "train")
