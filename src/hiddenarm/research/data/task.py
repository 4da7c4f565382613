"""What a run learns in, as commands and sweeps name it: a world, or a table of one's own; the number of parties, arms
and features; and what is known about the arms.

A world that must be fetched or read from many files is loaded when it is asked for. So a federation can be checked
before, unless its arms have features that the world itself tells (`arm_features`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ConfigError
from hiddenarm.research.data.fetch import Source
from hiddenarm.research.data.load import load_world
from hiddenarm.research.data.tables import TableData, is_table, read_table_data, table_name
from hiddenarm.research.data.worlds import World, features_of_arms, split_features
from hiddenarm.service.arm_tables import read_arm_file

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """`data` is a world of `load_world`, a CSV or Parquet file, or a DataFrame (`data.tables`); a table says itself how
    many parties, arms and features there are. `data_dir` and `fetch` say where MNIST comes from.

    With `arm_features`, arms have so many features of the points that stand for them, one of them constant, and
    contexts have a constant, too. `arm_table` is a file with the features of the arms of a table of one's own."""

    data: str | Path | DataFrame = "digits"
    parties: int = 2
    arms: int = 10
    features: int = 20
    steps: int = 1500
    seed: int = 0
    data_dir: Path | None = None
    fetch: Source | None = None
    arm_features: int | None = None
    arm_table: str | Path | None = None

    def __post_init__(self) -> None:
        own = is_table(self.data)
        if self.parties < 2:
            raise ConfigError(f"a federation needs at least two parties, got {self.parties}")
        if self.fetch is not None and (self.name != "mnist" or self.data_dir is not None):
            raise ConfigError("--fetch gets MNIST into the cache: give --data mnist with it, and no --data-dir")
        if own and self.arm_features is not None:
            raise ConfigError(
                f"--arm-features are those of a world, and {self.name} has none: leave them out, or name a file with "
                "the features of its arms as --arm-table"
            )
        if not own and self.arm_table is not None:
            raise ConfigError(
                f"--arm-table has the arms of a table of your own, and {self.name} has arms already: give --data "
                "FILE.csv with it, or --arm-features"
            )

    @property
    def name(self) -> str:
        """What the data are called in reports."""
        return table_name(self.data)

    @cached_property
    def own(self) -> TableData | None:
        """The table that `data` is, if it is one."""
        if not is_table(self.data):
            return None
        table = read_table_data(self.data)
        return table if self._catalogue is None else table.with_arms(self._catalogue.names, str(self.arm_table))

    @property
    def counts(self) -> dict[str, int]:
        """The number of parties, arms and features."""
        if self.own is None:
            return {"parties": self.parties, "arms": self.arms, "features": self.features}
        return {"parties": len(self.own.parties), "arms": len(self.own.arms), "features": sum(self.own.features)}

    def federation(self, **given: Any) -> Federation:
        """A federation for this, with whatever else is given; max_interactions 0 means as many as fit."""
        if not given.get("max_interactions"):
            given.pop("max_interactions", None)
        federation = Federation(**self._numbers, **given)
        if 0 < federation.max_interactions < self.steps:
            raise ConfigError(
                f"{self.steps:,} steps are more than the {federation.max_interactions:,} interactions that the model "
                f"is to hold; give --max-interactions {self.steps}"
            )
        return federation

    def worlds(self, replicates: int = 1) -> list[World]:
        """A world for each replicate: the same rows and arms in another order."""
        if self.own is not None:
            world: World = self.own.world(self.seed)
        else:
            world = self._loaded if self.arm_features is None else self._loaded.with_constant()
        return [world.reseeded(self.seed + replicate) for replicate in range(replicates)]

    @property
    def _numbers(self) -> dict[str, Any]:
        """Arms and features as a federation takes them."""
        if self.own is not None:
            return {"arms": len(self.own.arms), "features": self.own.features, "arm_features": self._catalogue}
        features = split_features(self.features, self.parties)
        if self.arm_features is None:
            return {"arms": self.arms, "features": tuple(features)}
        features[-1] += 1
        table = ArmTable.of(features_of_arms(self._loaded.arm_points(), self.arm_features))
        return {"arms": self.arms, "features": tuple(features), "arm_features": table}

    @cached_property
    def _loaded(self) -> World:
        return load_world(
            self.name,
            arms=self.arms,
            features=self.features,
            seed=self.seed,
            data_dir=self.data_dir,
            steps=self.steps,
            fetch=self.fetch,
        )

    @cached_property
    def _catalogue(self) -> ArmTable | None:
        return None if self.arm_table is None else read_arm_file(Path(self.arm_table)).table
