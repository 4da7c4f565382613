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

from hiddenarm.bandit.decisions import MAX_PENDING, DecisionIds, new_epoch
from hiddenarm.bandit.features import as_floats, checked_reward
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ConfigError, DecisionIdError, FeatureError
from hiddenarm.privacy.ledger import PrivacyLedger, Statement, statement
from hiddenarm.ring.streams import SpentSteps, fresh_key


@dataclass(frozen=True, slots=True)
class Decision:
    """What the actor learns: the decision's id and the arm to pull."""

    id: str
    arm: int


class LocalFederation:
    """Dealer, parties, actor and rewarder of one federation, all in this process.

    `features` has the number of features of each party; further keywords are those of `Federation` (policy, suite,
    ridge, norms, fraction_bits, ...). `epsilon=0.1` is short for `policy=EpsilonGreedy(0.1)`. Rewards may come late, in
    any order, or never: the newest `max_pending` decisions without a reward are kept, older ones are forgotten.
    """

    def __init__(
        self,
        arms: int,
        features: Sequence[int],
        epsilon: float | None = None,
        *,
        max_pending: int = MAX_PENDING,
        **options: Any,
    ) -> None:
        self.federation = Federation(arms=arms, features=_per_party(features), epsilon=epsilon, **options)
        self._lockstep = Lockstep(self.federation, fresh_key(), max_pending=max_pending)
        self._ids = DecisionIds(new_epoch(), fresh_key())
        self._max_pending = max_pending
        self._rewarded = SpentSteps(in_order=False)

    def decide(self, contexts: Sequence[ArrayLike]) -> Decision:
        """Choose an arm for a context of which each party holds its own features."""
        if len(contexts) != self.federation.parties:
            raise FeatureError(f"{self.federation.parties} parties but features of {len(contexts)} were given")
        rows = [_one_replicate(values, self.federation, party) for party, values in enumerate(contexts)]
        step, arms = self._lockstep.decide(rows)
        return Decision(self._ids.id_of(step), int(arms[0]))

    @property
    def ledger(self) -> PrivacyLedger:
        """What was released so far."""
        return self._lockstep.ledger

    def privacy(self) -> Statement:
        """What that tells about one row of data, by relation."""
        return statement(self.ledger, self.federation.arms, self.federation.privacy)

    def reward(self, id: str, reward: float) -> None:
        """Learn from the reward of an earlier decision."""
        value = checked_reward(reward)
        step = self._ids.number_of(id)
        if not self._lockstep.is_pending(step):
            raise DecisionIdError(f"decision {id} {self._why_not_pending(step)}")
        self._rewarded.spend(step)
        self._lockstep.learn(step, [value])

    def _why_not_pending(self, step: int) -> str:
        if step >= self._lockstep.decisions:
            return "was never made"
        if step in self._rewarded:
            return "was rewarded before"
        return f"is forgotten: only the newest {self._max_pending:,} decisions without a reward are kept (max_pending)"


def _per_party(features: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(features)
    except TypeError:
        raise ConfigError(
            f"features must have the number of features of each party, such as [3, 2], got {features!r}"
        ) from None


def _one_replicate(values: ArrayLike, federation: Federation, party: int) -> ArrayLike:
    features, declared = as_floats(values, party), federation.features[party]
    if features.ndim != 1:
        raise FeatureError(f"the features of party {party} must be a list of numbers, got shape {features.shape}")
    if len(features) != declared:
        raise FeatureError(f"party {party} declared {declared} features but gave {len(features)}")
    return features[None]
