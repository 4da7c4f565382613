"""Catalogues made up for experiments: many items that have features, and users who like some of them.

An item has a constant and features in a few groups, as items of one kind are alike. A user's taste for the features is
a linear map of the user's own features. The reward of an item is 1 with a chance that grows with how it suits the user.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hiddenarm.research.data.worlds import FloatArray, IntArray, World, unit_rows

_GROUPS = 40
_SPREAD = 0.35
"""How far items lie from the middle of their group."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CatalogueWorld(World):
    """Items [arms, width] with a constant first, and contexts with a constant last, both of norm 1."""

    items: FloatArray = field(repr=False)
    taste: FloatArray = field(repr=False)
    """A map [features, width] by which users like features of items."""

    def chances(self, rows: IntArray | int, arms: IntArray | int) -> FloatArray:
        liked = ((self.contexts[rows] @ self.taste) * self.items[arms]).sum(axis=-1)
        return np.clip(0.3 + 0.7 * np.asarray(liked), 0.0, 1.0)


def made_up_catalogue(arms: int, width: int, features: int, rows: int, seed: int = 1) -> CatalogueWorld:
    """A catalogue and its users; the same for the same numbers."""
    rng = np.random.default_rng([seed, arms, width, features])
    middles = rng.standard_normal((_GROUPS, width - 1))
    own = middles[rng.integers(0, _GROUPS, arms)] + _SPREAD * rng.standard_normal((arms, width - 1))
    items = np.column_stack([np.ones(arms), unit_rows(own)]) / np.sqrt(2)
    contexts = np.column_stack([unit_rows(rng.standard_normal((rows, features - 1))), np.ones(rows)]) / np.sqrt(2)
    taste = rng.standard_normal((features, width))
    taste *= 2 / np.linalg.norm(taste, 2)
    return CatalogueWorld(name="catalogue", arms=arms, seed=seed, contexts=contexts, items=items, taste=taste)


def some_of(arms: int, count: int, seed: int = 1) -> list[int]:
    """So many arms, drawn without replacement."""
    drawn: list[int] = np.random.default_rng([seed, arms, count]).permutation(arms)[:count].tolist()
    return drawn
