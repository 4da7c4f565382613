"""From a name to a world.

    digits    1,797 handwritten digits of 8x8 pixels, part of scikit-learn
    mnist     60,000 handwritten digits of 28x28 pixels, from a folder the caller names
    clusters  a synthetic mixture: one cluster for each arm on the unit sphere

Digits become contexts by centred principal components, then unit norm. Their arms are the ten classes; with
another number of arms, they are that many K-means centres and the rewards are the paper's kernel.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hiddenarm.data.mnist import Split, read_mnist
from hiddenarm.data.pca import fit_pca
from hiddenarm.data.worlds import (
    FloatArray,
    IntArray,
    KernelWorld,
    LabelWorld,
    World,
    check_seed,
    unit_rows,
)
from hiddenarm.errors import ConfigError

WORLDS = ("digits", "mnist", "clusters")
CLASSES = 10


def load_world(
    name: str,
    *,
    arms: int | None = None,
    features: int = 20,
    seed: int = 0,
    data_dir: Path | None = None,
    steps: int = 10_000,
    split: Split = "train",
) -> World:
    """The world called `name`.

    `arms` None means the classes of the data set, 10. `seed` decides order, coins, K-means and clusters.
    `data_dir` is where MNIST lies. `steps` is the length of the run to come: `clusters` draws that many rows,
    so that none returns; the others have the rows they have and start over. `split` "test" gives the held-out
    digits of MNIST, seen through the components and the centres of the training set.
    """
    if name not in WORLDS:
        raise ConfigError(f"there is no world called {name!r}: choose one of {', '.join(WORLDS)}")
    arms = CLASSES if arms is None else arms
    _check(arms, features, seed, steps)
    if split == "test" and name != "mnist":
        raise ConfigError(f"the world {name} has no test set; mnist has")
    if name == "clusters":
        return cluster_world(arms=arms, features=features, seed=seed, rows=steps)
    if name == "digits":
        contexts, labels = _digits(features)
        return _world(name, arms, seed, contexts, labels, reference=contexts)
    contexts, labels, training = _mnist(data_dir, features, split)
    return _world(name, arms, seed, contexts, labels, reference=training)


def cluster_world(*, arms: int, features: int, seed: int, rows: int, spread: float = 0.5) -> LabelWorld:
    """`rows` points around `arms` random centres on the unit sphere; the arm of its own cluster earns 1.

    A point is its centre plus noise of length about `spread`, brought back to the sphere. As with the digits,
    one arm is right and all others are wrong, so the best mean reward is near 1 and chance is 1 / arms.
    """
    rng = np.random.default_rng([seed, arms, features])
    centres = unit_rows(rng.standard_normal((arms, features)))
    labels = rng.integers(arms, size=rows)
    noise = rng.standard_normal((rows, features)) * (spread / np.sqrt(features))
    contexts = unit_rows(centres[labels] + noise)
    return LabelWorld(name="clusters", arms=arms, seed=seed, contexts=contexts, labels=labels)


def _world(name: str, arms: int, seed: int, contexts: FloatArray, labels: IntArray, *, reference: FloatArray) -> World:
    """Class arms for ten arms, otherwise K-means arms found in `reference`."""
    if arms == CLASSES:
        return LabelWorld(name=name, arms=arms, seed=seed, contexts=contexts, labels=labels)
    centres = _kmeans(reference, arms, seed)
    return KernelWorld(name=name, arms=arms, seed=seed, contexts=contexts, centres=centres)


def _digits(features: int) -> tuple[FloatArray, IntArray]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return unit_rows(fit_pca(pixels, features).apply(pixels)), np.asarray(labels, dtype=np.int64)


def _mnist(folder: Path | None, features: int, split: Split) -> tuple[FloatArray, IntArray, FloatArray]:
    """Contexts and labels of either set, and the contexts of the training set, which gives the components."""
    pixels, labels = read_mnist(folder, "train")
    projection = fit_pca(pixels, features)
    training = unit_rows(projection.apply(pixels))
    if split == "train":
        return training, labels, training
    pixels, labels = read_mnist(folder, "test")
    return unit_rows(projection.apply(pixels)), labels, training


def _kmeans(points: FloatArray, arms: int, seed: int) -> FloatArray:
    from sklearn.cluster import KMeans

    if arms > len(points):
        raise ConfigError(f"{len(points)} rows have at most as many K-means arms, not {arms}")
    found = KMeans(n_clusters=arms, n_init=1, max_iter=100, random_state=seed % 2**32).fit(points)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def _check(arms: int, features: int, seed: int, steps: int) -> None:
    check_seed(seed)
    if arms < 2:
        raise ConfigError(f"a bandit needs at least 2 arms, not {arms}")
    if features < 1:
        raise ConfigError(f"a context has at least 1 feature, not {features}")
    if steps < 1:
        raise ConfigError(f"a run has at least 1 step, not {steps}")
