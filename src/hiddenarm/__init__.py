"""Contextual bandits that several organisations train together without showing each other anything."""

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision, LocalFederation
from hiddenarm.errors import HiddenArmError

__all__ = ["Decision", "Federation", "HiddenArmError", "LocalFederation"]
__version__ = "0.1.0"
