"""Contextual bandits that several organisations train together without showing each other anything."""

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision, LocalFederation
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import HiddenArmError
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums

__all__ = [
    "ActionBudget",
    "Decision",
    "EpsilonGreedy",
    "EpsilonSchedule",
    "Federation",
    "HiddenArmError",
    "LocalFederation",
    "NoisySums",
]
__version__ = "0.1.0"
