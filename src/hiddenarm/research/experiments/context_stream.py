"""What several replicates meet, step by step: contexts and rewards of one world, each in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hiddenarm.research.data.load import ArmKind, load_world
from hiddenarm.research.data.worlds import LabelWorld, World
from hiddenarm.research.experiments.setting import Data
from hiddenarm.ring.words import Floats


class ContextStream:
    """Replicate r lives in the world reseeded with seeds[r]."""

    def __init__(self, world: World, seeds: Sequence[int], steps: int) -> None:
        self.world = world
        self.replicates = len(seeds)
        self._worlds = [world.reseeded(seed) for seed in seeds]
        self.rows = np.stack([one.rows(np.arange(steps)) for one in self._worlds])
        self._labels = world.labels if isinstance(world, LabelWorld) else None

    def contexts(self, step: int) -> Floats:
        """[replicates, features]."""
        contexts: Floats = self.world.contexts[self.rows[:, step]]
        return contexts

    def rewards(self, step: int, arms: NDArray[np.int64]) -> Floats:
        """[replicates]: what each earns with its arm."""
        if self._labels is not None:
            return np.asarray(self._labels[self.rows[:, step]] == arms, np.float64)
        return np.array([one.reward(step, int(arm)) for one, arm in zip(self._worlds, arms, strict=True)])


def load_course(
    data: Data, arms: int, kind: ArmKind, seeds: Sequence[int], steps: int, folder: Path | None
) -> ContextStream:
    """A course through digits or MNIST."""
    world = load_world(data, arms=arms, kind=kind, data_dir=folder if data == "mnist" else None)
    return ContextStream(world, seeds, steps)
