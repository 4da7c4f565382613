"""Contextual bandits that several organisations train together without sharing their data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision, LocalFederation
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.errors import (
    BudgetSpentError,
    ConfigError,
    ConflictError,
    DecisionIdError,
    EventError,
    FeatureError,
    HiddenArmError,
    InputError,
    NoArmError,
    PeerLost,
    ProtocolError,
    RefusedKeyError,
    RefusedRewardError,
    RewardedError,
    RewardError,
    UnavailableError,
)
from hiddenarm.privacy.mechanisms import ActionBudget, NoisyGradient, NoisySums

if TYPE_CHECKING:
    from hiddenarm.service.arm_tables import read_arms
    from hiddenarm.web.clients import Actor, AsyncActor, AsyncRewarder, Ranked, Rewarder

__all__ = [
    "ActionBudget",
    "Actor",
    "ArmTable",
    "AsyncActor",
    "AsyncRewarder",
    "Bonus",
    "BudgetSpentError",
    "ConfigError",
    "ConflictError",
    "Decision",
    "DecisionIdError",
    "EpsilonGreedy",
    "EpsilonSchedule",
    "EventError",
    "FeatureError",
    "Federation",
    "HiddenArmError",
    "InputError",
    "LinUcb",
    "LocalFederation",
    "NoArmError",
    "NoisyGradient",
    "NoisySums",
    "PeerLost",
    "ProtocolError",
    "Ranked",
    "RefusedKeyError",
    "RefusedRewardError",
    "RewardError",
    "RewardedError",
    "Rewarder",
    "Thompson",
    "UnavailableError",
    "read_arms",
]
__version__ = "0.1.0"
_LATER = {
    **dict.fromkeys(("Actor", "AsyncActor", "AsyncRewarder", "Ranked", "Rewarder"), "hiddenarm.web.clients"),
    "read_arms": "hiddenarm.service.arm_tables",
}


def __getattr__(name: str) -> Any:
    """What not everybody needs is imported when it is first named. Clients of HTTP need the extra `http`, which is
    imported when one is made."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
