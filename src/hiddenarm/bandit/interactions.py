"""What a party keeps of decisions until their rewards come, and what it brings of them into a lesson."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words

if TYPE_CHECKING:
    from hiddenarm.bandit.subsets import Subset

_MINUS_ONE = 2**64 - 1


@dataclass(slots=True, repr=False)
class Decided:
    """What a party has of some decisions: the words of its answer to the actor, and its shares of the masks of the
    one-hots [count, arms] and of the rewards [count]. `masked_arm` is None where the actor must return the one-hots
    under these masks; else the parties have them already."""

    answer: Words | None
    arm_mask: Shared
    reward_mask: Shared
    masked_arm: Words | None = None
    kept: Shared | None = None
    """Where values are evaluated: 1 where the policy's own arm was chosen, 0 where it was explored, [count]."""

    @classmethod
    def of_one_hots(cls, answer: Words | None, arm: Shared, reward_mask: Shared, kept: Shared | None = None) -> Decided:
        """Decisions of which the parties have shares s of the one-hots: masks -s, which hide zero."""
        return cls(answer, arm.times(_MINUS_ONE), reward_mask, np.zeros((1, *arm.shape), np.uint64), kept)


@dataclass(slots=True, repr=False)
class Interaction:
    """What a party keeps of one decision until its reward comes: its own features, its share of the mask mu of the
    one-hot o of the arm, what the actor returned, o + mu, the same at all parties, and its share of the reward's mask.
    `masked_arm` is None until the actor has returned it. `row_of` says whose row it is, where rows are counted
    (`row_digest`); `kept` is the party's share of whether the policy's own arm was chosen, where values are evaluated.
    Of a decision among some arms, the words of the one-hot may be those of its `slots`. Leading axis: replicates."""

    features: Words
    arm_mask: Words
    masked_arm: Words | None
    reward_mask: Words
    row_of: int = 0
    kept: Words | None = None
    slots: Subset | None = None

    def arm_share(self, adds_constants: bool) -> Words:
        """The party's share of the one-hot."""
        assert self.masked_arm is not None, "the actor has not returned the one-hot"
        share = unmasked_share(self.masked_arm, self.arm_mask, adds_constants)
        return share if self.slots is None else self.slots.spread(share)

    def without_arm(self) -> Interaction:
        """The same with zeros for the one-hot: it has its place in a lesson, and adds nothing to any sum."""
        nothing = np.zeros_like(self.arm_mask)
        return Interaction(self.features, nothing, nothing, self.reward_mask, self.row_of, self.kept, self.slots)


@dataclass(slots=True, repr=False)
class Rewarded:
    """Interactions of one party with their rewards as the rewarder sent them, masked: [replicates, count]."""

    kept: list[Interaction]
    masked: Words

    def rewards(self, adds_constants: bool) -> Words:
        """The party's shares of the rewards."""
        if len(self.kept) == 1:
            return unmasked_share(self.masked, self.kept[0].reward_mask[:, None], adds_constants)
        masks = np.stack([interaction.reward_mask for interaction in self.kept], axis=1)
        return unmasked_share(self.masked, masks, adds_constants)


def interactions(
    features: Words, decided: Decided, rows_of: Sequence[int] = (), slots: Subset | None = None
) -> list[Interaction]:
    """Take decisions made together apart. Copies, so that no spent randomness is kept alive beside them."""
    arm_mask, reward_mask = own_words(decided.arm_mask, decided.reward_mask)
    returned, kept = decided.masked_arm, None if decided.kept is None else decided.kept.share
    if returned is not None:
        returned = np.broadcast_to(returned, arm_mask.shape)
    return [
        Interaction(
            features[:, b],
            arm_mask[:, b].copy(),
            None if returned is None else returned[:, b].copy(),
            reward_mask[:, b].copy(),
            rows_of[b] if rows_of else 0,
            None if kept is None else kept[:, b].copy(),
            slots,
        )
        for b in range(features.shape[1])
    ]


def row_digest(key: str) -> int:
    """Whose row an interaction is: 64 bits of a digest of its key. Two keys that had the same would count as one."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")


def joined(rewarded: Sequence[Rewarded]) -> Rewarded:
    """Interactions of several lessons together."""
    kept = [interaction for one in rewarded for interaction in one.kept]
    return Rewarded(kept, np.concatenate([one.masked for one in rewarded], axis=1))


def stacked(kept: Sequence[Interaction], adds_constants: bool) -> tuple[Words, Words]:
    """Put interactions together: features [count, own features], shares of the one-hots [count, arms]."""
    features = np.stack([interaction.features for interaction in kept], axis=1)
    return features, np.stack([interaction.arm_share(adds_constants) for interaction in kept], axis=1)


def unmasked_share(masked: Words, mask: Words, adds_constants: bool) -> Words:
    """A share of what a client sent to all under a mask, from a share of the mask."""
    return masked - mask if adds_constants else np.negative(mask)


def own_words(*shares: Shared) -> list[Words]:
    """A party's words of some sharings."""
    return [shared.share for shared in shares if shared.share is not None]


def opened(shares: Sequence[Shared]) -> Words:
    """What the shares of all parties add up to. Only for who holds them all."""
    total: Words = np.add.reduce(own_words(*shares))
    return total
