"""A whole federation in one process, behind the names users of bandit libraries expect.

fed = LocalFederation(arms=10, features=[12, 8], epsilon=0.1)
decision = fed.decide([x_hotel, x_airline])
fed.reward(decision.id, 1.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from hiddenarm.bandit.decisions import DecisionIds, new_epoch
from hiddenarm.bandit.features import as_floats, checked_reward
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import DecisionIdError, FeatureError
from hiddenarm.ring.streams import fresh_key


@dataclass(frozen=True, slots=True)
class Decision:
    """What the actor learns: the decision's id and the arm to pull."""

    id: str
    arm: int


class LocalFederation:
    """Dealer, parties, actor and rewarder of one federation, all in this process.

    `features` has the number of features of each party; further keywords are those of `Federation` (ridge, norms,
    fraction_bits, ...). Rewards may come late, in any order, or never.
    """

    def __init__(self, arms: int, features: Sequence[int], epsilon: float, **options: Any) -> None:
        self.federation = Federation(arms=arms, features=tuple(features), epsilon=epsilon, **options)
        self._lockstep = Lockstep(self.federation, fresh_key())
        self._ids = DecisionIds(new_epoch(), fresh_key())

    def decide(self, contexts: Sequence[ArrayLike]) -> Decision:
        """Choose an arm for a context of which each party holds its own features."""
        if len(contexts) != self.federation.parties:
            raise FeatureError(f"{self.federation.parties} parties but features of {len(contexts)} were given")
        step, arms = self._lockstep.decide([_one_replicate(values, p) for p, values in enumerate(contexts)])
        return Decision(self._ids.id_of(step), int(arms[0]))

    def reward(self, id: str, reward: float) -> None:
        """Learn from the reward of an earlier decision."""
        value = checked_reward(reward)
        step = self._ids.number_of(id)
        if step not in self._lockstep.pending:
            known = step < self._lockstep.decisions
            raise DecisionIdError(f"decision {id} was {'rewarded before' if known else 'never made'}")
        self._lockstep.learn(step, [value])


def _one_replicate(values: ArrayLike, party: int) -> ArrayLike:
    features = as_floats(values, party)
    if features.ndim != 1:
        raise FeatureError(f"the features of party {party} must be a list of numbers, got shape {features.shape}")
    return features[None]
