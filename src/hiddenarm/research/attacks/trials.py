"""The trials of an attack: in each, a learner meets T rows, and one of them is the candidate.

World 1 has the candidate. World 0 has, in its place, by the target of the attack:

    drop   the candidate again, but its lesson is not learned (its own decision is the same)
    same   another row of its class, which earns with the same arm
    any    any other row

A trial is made in one of the two worlds. The adversary is told everything but which: all other rows, both that may
stand in the candidate's place, and where that place is. Trial i is made in world i mod 2. Everything of a trial follows
from the key and its number.

Each decision has two uniform words: one says whether it is explored, the other chooses among equally good arms, which
are all arms where it is explored. So arms are distributed as those of the private learner (`bandit.coins`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.coins import exploration_thresholds
from hiddenarm.errors import ConfigError
from hiddenarm.research.data.worlds import LabelWorld, sampled_rows
from hiddenarm.ring.streams import Stream, derive
from hiddenarm.ring.words import Floats, Words

Target = Literal["drop", "same", "any"]
Ints = NDArray[np.int64]

_BYTES_AT_A_TIME = 32e6
_MOST_AT_A_TIME = 512


@dataclass(frozen=True, repr=False)
class Coins:
    """The coins of all decisions of some learners."""

    explore: NDArray[np.bool_]
    """[learners, steps]"""
    picks: Floats
    """[learners, steps] in [0, 1): chooses among equally good arms."""

    @classmethod
    def drawn(cls, key: bytes, numbers: range, steps: int, epsilon: float) -> Coins:
        """Of the learners with these numbers."""
        words = Stream(key, 2 * steps).steps(numbers.start, len(numbers)).reshape(len(numbers), steps, 2)
        explore = (words[..., 0] >> np.uint64(1)) < exploration_thresholds(epsilon)
        return cls(explore, _unit(words[..., 1]))

    def choose(self, steps: int | slice, best: NDArray[np.bool_]) -> Ints:
        """The arms of one step or of several, where these are best: [learners, arms] or [learners, steps, arms]."""
        allowed = best | self.explore[:, steps, None]
        ranks = allowed.cumsum(axis=-1)
        wanted = np.floor(self.picks[:, steps] * ranks[..., -1]).astype(np.int64) + 1
        arms: Ints = (ranks == wanted[..., None]).argmax(axis=-1)
        return arms


@dataclass(frozen=True, repr=False)
class Trials:
    """Some trials; the first axis of all arrays."""

    numbers: range
    rows: Ints
    """[trials, steps], the candidate in its place."""
    other: Ints
    """[trials]: the row in its place in world 0, where it is another."""
    place: Ints
    """[trials]: the candidate's step."""
    coins: Coins

    @property
    def present(self) -> NDArray[np.bool_]:
        """Made in world 1."""
        present: NDArray[np.bool_] = np.asarray(self.numbers) % 2 == 1
        return present


@dataclass(frozen=True)
class Design:
    """How trials are made. `place` None: uniformly among the first `places` steps, or among all."""

    world: LabelWorld
    target: Target
    steps: int
    epsilon: float
    trials: int
    place: int | None = None
    places: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"--epsilon is a probability, got {self.epsilon:g}")
        if self.trials < 8 or self.trials % 4:
            raise ConfigError(f"--trials must be a multiple of 4 and at least 8, got {self.trials}")
        rows = len(self.world.contexts)
        if not 1 <= self.steps < rows:
            raise ConfigError(
                f"--steps must lie in 1..{rows - 1}: no row comes twice, and {self.world.name} has {rows:,}, "
                f"got {self.steps}"
            )
        if self.place is not None and not 0 <= self.place < self.steps:
            raise ConfigError(f"--position must lie in 0..{self.steps - 1}, got {self.place}")

    @property
    def later_actions(self) -> int:
        """How many actions can differ in distribution between the worlds, at most."""
        first = self.place or 0
        return self.steps - first - (self.target == "drop")

    def at_a_time(self, words_of_state: int) -> int:
        """How many trials fit in memory together, and rather in a cache."""
        size = 8 * (4 * self.steps + words_of_state)
        return int(min(max(1, _BYTES_AT_A_TIME // size), _MOST_AT_A_TIME))

    def portions(self, key: bytes, size: int) -> Iterator[Trials]:
        """All trials, so many at a time."""
        for first in range(0, self.trials, size):
            yield self._portion(key, range(first, min(first + size, self.trials)))

    def _portion(self, key: bytes, numbers: range) -> Trials:
        seed = int.from_bytes(derive(key, "rows")[:8], "little")
        rows = sampled_rows(len(self.world.contexts), self.steps + 1, seed, numbers)
        drawn = _unit(Stream(derive(key, "places"), 2).steps(numbers.start, len(numbers)))
        place = np.floor(drawn[:, 0] * (self.places or self.steps)).astype(np.int64)
        if self.place is not None:
            place = np.full(len(numbers), self.place)
        rows, other = rows[:, :-1], rows[:, -1]
        if self.target == "same":
            other = self._of_same_class(rows[np.arange(len(numbers)), place], drawn[:, 1])
        return Trials(
            numbers=numbers,
            rows=rows,
            other=other,
            place=place,
            coins=Coins.drawn(derive(key, "coins"), numbers, self.steps, self.epsilon),
        )

    def _of_same_class(self, rows: Ints, drawn: Floats) -> Ints:
        """For each row another one of its class, uniformly, chosen by a number in [0, 1)."""
        labels = self.world.labels
        order = np.argsort(labels, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        sizes = np.bincount(labels, minlength=self.world.arms)
        starts = np.cumsum(sizes) - sizes
        size, start = sizes[labels[rows]], starts[labels[rows]]
        if size.min() < 2:
            raise ConfigError(f"a class of {self.world.name} has one row only: it has no other of the same class")
        step = 1 + np.floor(drawn * (size - 1)).astype(np.int64)
        return np.asarray(order[start + (rank[rows] - start + step) % size])


def _unit(words: Words) -> Floats:
    """Uniform numbers in [0, 1)."""
    numbers: Floats = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers
