"""Decisions among some of many arms: "these 40 of the 10,000 may be shown now", at the cost of 40.

Which arms are eligible is public: the actor says it, or arms are retired. So every party can leave out the others by
itself, before any word is dealt for them:

    1. the eligible arms take slots 0 to E - 1 of as many as the next of `SUBSET_SIZES`; slots beyond them are empty
    2. each party brings what belongs to the slots: rows of its shares of the models, or public features of the arms
    3. `decide`, as a federation of so many arms runs it; an empty slot is an arm that is not eligible
    4. the slot that wins is an arm again, and a one-hot of slots one of arms: zero at all that were left out

There is a program for each size, not for each number of arms, so that a few are compiled and kept in stock. Exploration
is uniform over the eligible arms: a chosen arm has a chance between epsilon / E and 1 - epsilon + epsilon / E.

A policy that explores by the position of a decision takes all arms along: positions are counted by program.

Several contexts that are decided together have the slots of all arms that are eligible for any of them.

Security: the program is `decide` for fewer arms, with masks of its own; taking rows of shares by public numbers opens
nothing. The size is public, as the eligible arms are; the dealer, who is told of no request, learns it, and so how many
arms were eligible, rounded up. Up to 48 slots are decided by payloads: then dealer and actor together find the order of
the eligible arms, as they do in a federation of few arms, where in a shuffle they would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.answers import ALL_BITS
from hiddenarm.bandit.catalogue import SUBSET_SIZES, ProgramId, slots_of
from hiddenarm.bandit.interactions import Decided
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words

if TYPE_CHECKING:
    from hiddenarm.bandit.federation import Federation


@dataclass(frozen=True, repr=False, eq=False)
class Subset:
    """The eligible arms of a request, in order, of so many arms; and how many slots its program has."""

    arms: NDArray[np.int64]
    size: int
    of: int

    @classmethod
    def of_rows(cls, rows: NDArray[np.int64], of: int) -> Subset:
        """From the arm of each slot, as `rows` gives them."""
        taken = 1 + int((rows[1:] != rows[0]).sum())
        return cls(rows[:taken], len(rows), of)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The arm of each slot. Empty slots have the first arm once more: any will do, as they cannot win."""
        return np.concatenate([self.arms, np.repeat(self.arms[:1], self.size - len(self.arms))])

    def eligible(self, *lead: int) -> Words:
        """As the program takes it, [*lead, slots]: all bits set, or none in empty slots."""
        words = np.zeros(self.size, np.uint64)
        words[: len(self.arms)] = ALL_BITS
        return np.broadcast_to(words, (*lead, self.size))

    def arms_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The arms in some slots; what is no slot stays as it is."""
        return np.where(slots >= 0, self.rows[np.maximum(slots, 0)], slots)

    def spread(self, words: Words) -> Words:
        """Words of slots [..., slots] as those of arms [..., arms]; zero at the arms that were left out."""
        spread = np.zeros((*words.shape[:-1], self.of), np.uint64)
        spread[..., self.arms] = words[..., : len(self.arms)]
        return spread

    def decided(self, found: Decided, federation: Federation) -> Decided:
        """What a party has of decisions, with one-hots of arms in place of those of slots. Where arms have features, a
        lesson knows the arm by them, not by its slot."""
        if federation.arm_features is not None or found.arm_mask.share is None:
            return found
        mask = found.arm_mask
        spread = Shared((*mask.shape[:-1], self.of), self.spread(found.arm_mask.share))
        masked = None if found.masked_arm is None else self.spread(found.masked_arm)
        return Decided(found.answer, spread, found.reward_mask, masked, found.kept)


def subset_of(federation: Federation, eligible: Words) -> Subset | None:
    """How a decision among some arms [arms], all bits set or none, leaves out the others; None if it takes them along,
    as there are few, or hardly fewer."""
    arms = np.flatnonzero(eligible)
    size = slots_for(federation, len(arms))
    return None if size is None else Subset(arms, size, federation.arms)


def width_of(federation: Federation, program: ProgramId) -> int:
    """The numbers by which a run that decides knows the arm: its features, or a one-hot of all arms or its slots."""
    return federation.arm_width if federation.arm_features is not None else slots_of(program) or federation.arms


def slots_for(federation: Federation, arms: int) -> int | None:
    """Among how many slots is decided where so many arms are eligible; None if all arms are taken along."""
    return next((size for size in subset_sizes(federation) if size >= arms), None)


def subset_sizes(federation: Federation) -> tuple[int, ...]:
    """The numbers of slots among which decisions can be made; none where all arms are always taken along."""
    if federation.decides_by_payloads or not federation.learner.takes_eligible:
        return ()
    if not federation.policy.explores_alike:  # positions are counted by program, and would begin again with each size
        return ()
    return tuple(size for size in SUBSET_SIZES if size < federation.arms)
