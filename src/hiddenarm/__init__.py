"""Contextual bandits that several organisations train together without showing each other anything."""

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision, LocalFederation
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.errors import HiddenArmError
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums

__all__ = [
    "ActionBudget",
    "Bonus",
    "Decision",
    "EpsilonGreedy",
    "EpsilonSchedule",
    "Federation",
    "HiddenArmError",
    "LinUcb",
    "LocalFederation",
    "NoisySums",
    "Thompson",
]
__version__ = "0.1.0"
