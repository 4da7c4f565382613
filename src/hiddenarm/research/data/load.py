"""From a name to a world.

    digits    1,797 handwritten digits of 8x8 pixels, part of scikit-learn
    mnist     60,000 handwritten digits of 28x28 pixels, from a folder the caller names, the cache or a source
    clusters  a synthetic mixture: one cluster for each arm on the unit sphere

Digits become contexts by centred principal components, then unit norm. Their arms are the ten classes, or any
number of K-means centres with the paper's kernel for rewards. A held-out set is seen through the components and
the centres of the training set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hiddenarm.errors import ConfigError
from hiddenarm.research.data.fetch import Source, fetch_mnist, in_cache
from hiddenarm.research.data.images import IMAGES, Split, read_digits, read_mnist
from hiddenarm.research.data.preparation import Projection, find_centres, fit_pca, kept_centres
from hiddenarm.research.data.worlds import (
    FloatArray,
    IntArray,
    KernelWorld,
    LabelWorld,
    World,
    check_seed,
    unit_rows,
)

WORLDS = ("digits", "mnist", "clusters")
CLASSES = 10

ArmKind = Literal["classes", "kmeans"]
_Images = tuple[NDArray[Any], IntArray]
"""Pixels [n, dims] and labels [n]."""


def load_world(
    name: str,
    *,
    arms: int | None = None,
    features: int = 20,
    seed: int = 0,
    data_dir: Path | None = None,
    steps: int = 10_000,
    split: Split | None = None,
    kind: ArmKind | None = None,
    fetch: Source | None = None,
) -> World:
    """The world called `name`.

    `arms` None means the classes of the data set, 10. `seed` decides order, coins, K-means and clusters.
    `data_dir` is where MNIST lies; without it, MNIST is read from the cache, filled from `fetch` if that is given.
    `steps` is the length of the run to come: `clusters` draws that many rows, so that none returns; the others
    have the rows they have and start over. `split` "test" gives held-out digits and "train" the others; None gives
    all of the digits, or the training set of MNIST. `kind` says what the arms are; None means classes for 10 arms
    and K-means centres for any other number.
    """
    arms = CLASSES if arms is None else arms
    _check(name, arms, features, seed, steps)
    if name == "clusters":
        _check_clusters(split, kind)
        return cluster_world(arms=arms, features=features, seed=seed, rows=steps)
    recipe = _Recipe(name, arms, features, seed, _kind(kind, arms))
    folder = _folder(name, data_dir, fetch)
    training = _read(name, folder, split and "train")
    return recipe.view(training).world(_read(name, folder, "test") if split == "test" else training)


def load_pair(
    name: str,
    *,
    arms: int | None = None,
    features: int = 20,
    seed: int = 0,
    data_dir: Path | None = None,
    kind: ArmKind | None = None,
    fetch: Source | None = None,
) -> tuple[World, World]:
    """The training set and the held-out set of digits or MNIST, as `load_world` gives them with its two splits."""
    arms = CLASSES if arms is None else arms
    _check(name, arms, features, seed, steps=1)
    if name == "clusters":
        _check_clusters("test", kind)
    recipe = _Recipe(name, arms, features, seed, _kind(kind, arms))
    folder = _folder(name, data_dir, fetch)
    training, held_out = _read(name, folder, "train"), _read(name, folder, "test")
    view = recipe.view(training)
    return view.world(training), view.world(held_out)


def default_world(data_dir: Path | None = None) -> Literal["mnist", "digits"]:
    """MNIST where it is at hand, in a folder that was named or in the cache; otherwise the digits."""
    return "mnist" if data_dir is not None or in_cache() else "digits"


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


@dataclass(frozen=True)
class _Recipe:
    """What is asked of a data set of images, checked."""

    name: str
    arms: int
    features: int
    seed: int
    kind: ArmKind

    def view(self, training: _Images) -> _View:
        """Components and, for K-means arms, centres of the training set."""
        projection = fit_pca(training[0], self.features)
        if self.kind == "classes":
            return _View(self, projection, None)
        find = partial(_find_centres, projection, training[0], self.arms, self.seed)
        if self.name == "digits":
            return _View(self, projection, find())
        made_of = f"mnist {IMAGES['train'].md5}"
        return _View(self, projection, kept_centres(made_of, (self.arms, self.features), self.seed, find))


@dataclass(frozen=True, eq=False)
class _View:
    """How images become a world: what was found in a training set and serves any other set as well."""

    recipe: _Recipe
    projection: Projection
    centres: FloatArray | None

    def world(self, images: _Images) -> World:
        pixels, labels = images
        contexts = _contexts(self.projection, pixels)
        name, arms, seed = self.recipe.name, self.recipe.arms, self.recipe.seed
        if self.centres is None:
            return LabelWorld(name=name, arms=arms, seed=seed, contexts=contexts, labels=labels)
        return KernelWorld(name=name, arms=arms, seed=seed, contexts=contexts, centres=self.centres)


def _read(name: str, folder: Path | None, split: Split | None) -> _Images:
    """One part of a data set; without a split, what a learner has where nothing is held out."""
    return read_digits(split) if name == "digits" else read_mnist(folder, split or "train")


def _find_centres(projection: Projection, pixels: NDArray[Any], arms: int, seed: int) -> FloatArray:
    return find_centres(_contexts(projection, pixels), arms, seed)


def _contexts(projection: Projection, pixels: NDArray[Any]) -> FloatArray:
    return unit_rows(projection.apply(pixels))


def _folder(name: str, data_dir: Path | None, fetch: Source | None) -> Path | None:
    if name != "mnist" or data_dir is not None or fetch is None:
        return data_dir
    return fetch_mnist(fetch)


def _kind(kind: ArmKind | None, arms: int) -> ArmKind:
    if kind == "classes" and arms != CLASSES:
        raise ConfigError(f"there are {CLASSES} classes, so {arms} arms must be K-means centres")
    return kind or ("classes" if arms == CLASSES else "kmeans")


def _check(name: str, arms: int, features: int, seed: int, steps: int) -> None:
    if name not in WORLDS:
        raise ConfigError(f"there is no world called {name!r}: choose one of {', '.join(WORLDS)}")
    check_seed(seed)
    if arms < 2:
        raise ConfigError(f"a bandit needs at least 2 arms, not {arms}")
    if features < 1:
        raise ConfigError(f"a context has at least 1 feature, not {features}")
    if steps < 1:
        raise ConfigError(f"a run has at least 1 step, not {steps}")


def _check_clusters(split: Split | None, kind: ArmKind | None) -> None:
    if split is not None:
        raise ConfigError("the world clusters has no test set; digits and mnist have")
    if kind == "kmeans":
        raise ConfigError("the world clusters has its own arms, not K-means centres")
