"""The state of a simulation in a file, so that a long one can be interrupted and resumed.

It holds every party's shares and the plain twins: all that a simulation knows, and therefore secrets (mode 0600). A
resumed run opens an epoch of its own, so that no mask is used for two values. With a seed the epoch's key follows from
the seed and the steps made: runs that share a seed share masks, one more reason why a seeded run is not private.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.cli.results import Scoreboard
from hiddenarm.cli.twins import PlainTwins
from hiddenarm.data.worlds import World
from hiddenarm.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file, and what the simulation in it must be about."""

    path: Path
    about: dict[str, Any]

    @classmethod
    def of(cls, path: Path, federation: Federation, worlds: list[World], batch: int) -> Checkpoint:
        world = [f"{world.name} {world.seed} {len(world.contexts)}" for world in worlds]
        return cls(path, json.loads(json.dumps({**asdict(federation), "worlds": world, "batch": batch})))

    def load(self) -> dict[str, Any] | None:
        """What was saved, or None if nothing was; refused if it belongs to another simulation."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(str(arrays.pop("about")))
        except (OSError, ValueError, KeyError, EOFError):
            raise ConfigError(f"{self.path} is not the state of a simulation; remove it or name another file") from None
        for name, value in self.about.items():
            if about.get(name) != value:
                raise ConfigError(f"{self.path} is the state of another simulation: {name} differs")
        return arrays

    def save(self, lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> None:
        """Replace the file by the present state, in one stroke."""
        arrays: dict[str, Any] = {
            **lockstep.snapshot(),
            "rewards": board.rewards[:, : board.steps],
            "plain rewards": board.plain_rewards[:, : board.steps],
            "counts": np.array([board.same, board.private_seconds, twins.seconds]),
            "plain inverses": np.stack([bandit.inverses for bandit in twins.bandits]),
            "plain weights": np.stack([bandit.weights for bandit in twins.bandits]),
        }
        partial = self.path.with_suffix(".partial")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez(file, about=np.array(json.dumps(self.about)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)


def resume(arrays: dict[str, Any], lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> None:
    """Put a saved state in place."""
    lockstep.restore(arrays)
    for bandit, inverses, weights in zip(twins.bandits, arrays["plain inverses"], arrays["plain weights"], strict=True):
        bandit.inverses, bandit.weights = inverses.copy(), weights.copy()
    same, private_seconds, twins.seconds = arrays["counts"].tolist()
    board.resume(arrays["rewards"], arrays["plain rewards"], int(same))
    board.private_seconds, board.plain_seconds = private_seconds, twins.seconds
