"""What the decisions of a policy lose, and how many a budget holds.

A budget is spent by decisions, whatever became of them, so all roles know alike when it is. When it is, decisions are
refused; or every party brings zeros in place of the model, so that all scores are equal and the tags alone, which are
uniform, choose the arm. Such an action tells nothing about any row, whatever the coin says; it is counted as one that
was certain to be explored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.actions import epsilon_total, most_actions
from hiddenarm.privacy.ledger import COIN_UNITS, PrivacyLedger
from hiddenarm.privacy.mechanisms import EXPLORE, ActionBudget, Mechanism
from hiddenarm.ring.words import Words

if TYPE_CHECKING:
    from hiddenarm.bandit.policy import Policy

_CHUNK = 1 << 16
_HEAD, _EARLIER_HEAD = 6, 3
"""Words before the pairs; so one is even and one odd, as all lengths are."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many decisions may be charged in all, and whether further ones are purely explored, not refused."""

    decisions: int
    explores: bool

    @property
    def refusal(self) -> str:
        """What the actor is told."""
        return (
            f"the privacy budget is spent: {self.decisions:,} decisions lose all that this federation agreed to lose "
            "(total_epsilon); nothing was consumed"
        )


def check_budget(arms: int, policy: Policy, privacy: Mechanism) -> None:
    """Raise ConfigError for a budget that a policy cannot have."""
    if not isinstance(privacy, ActionBudget):
        return
    if not policy.explores_alike:
        raise ConfigError(
            f"privacy {privacy.name} needs the same chance to explore at all decisions: choose another policy than "
            f"{policy.name}"
        )
    one = epsilon_total(arms, {policy.guarantee(arms).epsilon: 1}, privacy.delta)
    if one > privacy.total_epsilon:
        raise ConfigError(
            f"total_epsilon {privacy.total_epsilon:g} does not pay for a single decision, which loses {one:.4g}: "
            "explore more, or choose a larger one"
        )


def budget_of(arms: int, policy: Policy, privacy: Mechanism) -> Budget | None:
    """The budget, where privacy over time is one."""
    if not isinstance(privacy, ActionBudget):
        return None
    chance = policy.guarantee(arms).epsilon
    most = most_actions(arms, chance, privacy.total_epsilon, privacy.delta)
    return Budget(most, privacy.when_spent == EXPLORE)


def ledger_words(ledger: PrivacyLedger) -> Words:
    """A ledger as words, for a file of arrays: refreshes, openings, repetitions, and pairs of a level and its
    count. Before the pairs, where anything was opened: openings of one row, all of them, those without noise. Scores
    that leave their range are no part of it: they end a simulation."""
    opened, row_opened = np.array([ledger.opened, ledger.row_opened]).view(np.uint64).tolist()
    pairs = [number for pair in sorted(ledger.decisions.items()) for number in pair]
    later = [row_opened, ledger.openings, ledger.bare] if ledger.openings else []
    return np.array([ledger.refreshes, opened, ledger.repeated, *later, *pairs], np.uint64)


def ledger_of_words(words: Words) -> PrivacyLedger:
    """The ledger of such words; ValueError if they are none."""
    head = _EARLIER_HEAD if len(words) % 2 else _HEAD
    if words.ndim != 1 or len(words) < head:
        raise ValueError("a ledger has a head and pairs")
    pairs = words[head:].reshape(-1, 2).tolist()
    opened, decisions = float(words[1:2].view(np.float64)[0]), {str(level): count for level, count in pairs}
    others = {"refreshes": int(words[0]), "opened": opened, "repeated": int(words[2])}
    if head == _HEAD:
        row_opened = float(words[3:4].view(np.float64)[0])
        others |= {"row_opened": row_opened, "openings": int(words[4]), "bare": int(words[5])}
    return PrivacyLedger.from_dict({"decisions": decisions, **others})


def planned_ledger(policy: Policy, steps: int, budget: Budget | None = None) -> PrivacyLedger:
    """The ledger after so many decisions, if none is made twice."""
    counted = steps if budget is None else min(steps, budget.decisions)
    levels: dict[int, int] = {}
    for first in range(0, counted, _CHUNK):
        chunk = policy.levels(first, min(_CHUNK, counted - first))
        found, counts = np.unique(np.array(chunk, np.uint64), return_counts=True)
        for level, count in zip(found.tolist(), counts.tolist(), strict=True):
            levels[level] = levels.get(level, 0) + count
    if budget is not None and budget.explores and steps > counted:
        levels[COIN_UNITS] = levels.get(COIN_UNITS, 0) + steps - counted
    return PrivacyLedger(levels)
