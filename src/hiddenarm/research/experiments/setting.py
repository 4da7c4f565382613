"""What a whole reproduction is made with: size, data and suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

Scale = Literal["full", "quick", "tiny"]
"""full: the paper's sizes. quick: minutes, on digits. tiny: the tests' size, too small to conclude anything."""
Data = Literal["mnist", "digits"]
Suite = Literal["fast", "paper"]

T = TypeVar("T")

SUITE_NAMES: Mapping[Suite, str] = {"fast": "fast suite", "paper": "paper's suite"}
"""What figures and tables call them."""

EPSILONS = (0.01, 0.02, 0.05, 0.1)
"""The four of the learning curves and of the attack. The paper does not print its values."""


@dataclass(frozen=True)
class Setting:
    """The same for all experiments."""

    scale: Scale
    data: Data
    suites: tuple[Suite, ...] = ("fast", "paper")

    def sized(self, sizes: Mapping[Scale, T]) -> T:
        """The entry for this scale."""
        return sizes[self.scale]

    @property
    def sweep(self) -> int:
        """Steps of one sweep through the training set, or as many as the scale allows."""
        if self.scale == "tiny":
            return 60
        return 60_000 if self.data == "mnist" and self.scale == "full" else 1_500
