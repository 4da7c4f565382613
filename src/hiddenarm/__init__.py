"""Contextual bandits that several organisations train together without showing each other anything."""

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision, LocalFederation
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import HiddenArmError

__all__ = ["Decision", "EpsilonGreedy", "EpsilonSchedule", "Federation", "HiddenArmError", "LocalFederation"]
__version__ = "0.1.0"
