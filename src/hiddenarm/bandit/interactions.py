"""What a party keeps of decisions until their rewards come, and what it brings of them into a lesson."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words


@dataclass(slots=True, repr=False)
class Decided:
    """What a party keeps of some decisions: public slots [count], shared one-hots of the arms [count, arms], and its
    shares of the masks of the rewards [count]."""

    slot: Words | None
    arm: Shared
    reward_mask: Shared


@dataclass(slots=True, repr=False)
class Interaction:
    """What a party keeps of one decision until its reward comes: its own features, and its shares of the one-hot of the
    arm and of the reward's mask. Leading axis: replicates."""

    features: Words
    arm: Words
    reward_mask: Words


@dataclass(slots=True, repr=False)
class Rewarded:
    """Interactions of one party with their rewards as the rewarder sent them, masked: [replicates, count]."""

    kept: list[Interaction]
    masked: Words

    def rewards(self, adds_constants: bool) -> Words:
        """The party's shares of the rewards."""
        if len(self.kept) == 1:
            return reward_share(self.masked, self.kept[0].reward_mask[:, None], adds_constants)
        masks = np.stack([interaction.reward_mask for interaction in self.kept], axis=1)
        return reward_share(self.masked, masks, adds_constants)


def interactions(features: Words, decided: Decided) -> list[Interaction]:
    """Take decisions made together apart. Copies, so that no spent randomness is kept alive beside them."""
    assert decided.arm.share is not None
    assert decided.reward_mask.share is not None
    count = features.shape[1]
    return [
        Interaction(features[:, b], decided.arm.share[:, b].copy(), decided.reward_mask.share[:, b].copy())
        for b in range(count)
    ]


def joined(rewarded: Sequence[Rewarded]) -> Rewarded:
    """Interactions of several lessons together."""
    kept = [interaction for one in rewarded for interaction in one.kept]
    return Rewarded(kept, np.concatenate([one.masked for one in rewarded], axis=1))


def stacked(kept: Sequence[Interaction]) -> tuple[Words, Words]:
    """Put interactions together: features [count, own features], arms [count, arms]."""
    features = np.stack([interaction.features for interaction in kept], axis=1)
    return features, np.stack([interaction.arm for interaction in kept], axis=1)


def reward_share(masked_reward: Words, reward_mask: Words, adds_constants: bool) -> Words:
    """A share of the reward, or of rewards, from the masked form that the rewarder sent to all."""
    return masked_reward - reward_mask if adds_constants else np.negative(reward_mask)


def own_words(*shares: Shared) -> list[Words]:
    """A party's words of some sharings."""
    return [shared.share for shared in shares if shared.share is not None]


def opened(shares: Sequence[Shared]) -> Words:
    """What the shares of all parties add up to. Only for who holds them all."""
    total: Words = np.add.reduce(own_words(*shares))
    return total
