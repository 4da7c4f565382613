"""`hiddenarm privacy`: what so many decisions tell about one person's data, and whom, before anything runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hiddenarm.bandit.accounting import Budget, budget_of, check_budget, planned_ledger
from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.actions import MOST_ACTIONS, exploration_for, is_exact
from hiddenarm.privacy.ledger import Bound, PrivacyLedger, Statement, statement
from hiddenarm.privacy.mechanisms import Mechanism, NoisyMechanism

_RELATIONS = {
    "own_action": ("a person's features", "who sees that person's action alone"),
    "dropped": ("that a row was learned", "who sees all other actions"),
    "replaced": ("which of two rows it was", "who sees all other actions"),
    "with_own_action": ("that a row was learned", "the actor, who sees all actions"),
    "user": ("all rows of a person", "who sees all other actions"),
}
"""What each bound is about, and who the adversary is."""
SUGGESTED_TOTAL = 1.0


@dataclass(frozen=True)
class Plan:
    """How decisions are to be made, and what is promised about them."""

    arms: int
    policy: Policy
    privacy: Mechanism
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.arms < 2:
            raise ConfigError(f"a bandit needs at least two arms, got {self.arms}")
        check_budget(self.arms, self.policy, self.privacy)

    @cached_property
    def budget(self) -> Budget | None:
        return budget_of(self.arms, self.policy, self.privacy)

    def ledger(self, steps: int) -> PrivacyLedger:
        """What so many decisions release."""
        ledger = planned_ledger(self.policy, steps, self.budget)
        made = self.privacy.refreshes_by(steps) if isinstance(self.privacy, NoisyMechanism) else 0
        return PrivacyLedger(ledger.decisions, made)

    def statement(self, steps: int) -> Statement:
        """What that means."""
        if not 1 <= steps <= MOST_ACTIONS:
            raise ConfigError(f"--steps must lie in 1..{MOST_ACTIONS:,}, got {steps:,}")
        return statement(self.ledger(steps), self.arms, self.privacy, self.delta)


def print_statement(console: Console, plan: Plan, steps: int, found: Statement) -> None:
    """The table by relation, who is not covered, and what follows."""
    title = f"{steps:,} decisions among {plan.arms} arms, {plan.policy}, privacy {plan.privacy}"
    table = Table(title=title, title_justify="left")
    for heading in ("what is to stay hidden", "from whom", "epsilon", "attacks find"):
        table.add_column(heading)
    for bound in found.bounds:
        table.add_row(*_RELATIONS[bound.relation], shown_epsilon(bound), f"{100 * bound.true_positives:.3g} %")
    console.print(table)
    console.print(f"Epsilon at delta {found.delta:g}; what any attack finds at 1 % false alarms, at most.")
    for line in _not_covered(plan):
        console.print(line, soft_wrap=True)
    for line in _advice(plan, steps, found):
        console.print(line, soft_wrap=True)


def shown_epsilon(bound: Bound) -> str:
    """An epsilon in a table, with the word `vacuous` where it promises nothing."""
    shown = "infinite" if bound.epsilon == inf else f"{bound.epsilon:,.6g}"
    return f"{shown} (vacuous)" if bound.vacuous else shown


def write_statement(path: Path, plan: Plan, steps: int, found: Statement) -> None:
    report: dict[str, Any] = {
        **found.to_dict(),
        "arms": plan.arms,
        "steps": steps,
        "policy": str(plan.policy),
        "options": plan.privacy.options,
        "exact": not isinstance(plan.privacy, NoisyMechanism) and is_exact(plan.ledger(steps).levels),
    }
    try:
        path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _not_covered(plan: Plan) -> list[str]:
    lines = ["Not covered by any line above: the dealer together with the actor or a party."]
    if isinstance(plan.privacy, NoisyMechanism):
        lines.append("What the rewarder itself knows of a person's reward is outside, too.")
    else:
        lines.append(
            "Nor the actor together with the rewarder, where a person's reward differs: the rewarder holds it."
        )
    return lines


def _advice(plan: Plan, steps: int, found: Statement) -> list[str]:
    """What a buyer should conclude."""
    if plan.budget is not None and steps > plan.budget.decisions:
        then = "explored purely, which tells nothing" if plan.budget.explores else "refused"
        made = plan.budget.decisions
        return [f"The budget holds {made:,} decisions; the other {steps - made:,} are {then}."]
    if isinstance(plan.privacy, NoisyMechanism):
        return ["This bound holds for any number of decisions: it does not grow with time."]
    if not found.headline.vacuous:
        return []
    needed = exploration_for(plan.arms, steps, SUGGESTED_TOTAL, found.delta)
    return [
        "Over time this is vacuous: whoever sees all actions may find out whether one person's data were learned.",
        f"By exploration alone a total of {SUGGESTED_TOTAL:g} would take epsilon = {needed:.6f}, which learns nothing. "
        f"--privacy noisy-sums --total-epsilon {SUGGESTED_TOTAL:g} bounds the loss for any number of decisions.",
    ]
