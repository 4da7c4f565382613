"""What of a federation may change while its model lives, and why the rest may not.

A change is a later version of the same federation. Everything that was kept under an earlier one must mean the same
under the later one, in whatever order a role reads it after a crash:

    policy, its options   decisions to come explore and score in another way; lessons are learned as before
    arms                  an added arm comes last and begins at the prior. A one-hot of before is zero there, so lessons
                          leave the arm alone: the model grows to the same whether a lesson is learned before or after
    retired               a retired arm keeps its number and learns what is pending; no decision names it. It stays so,
                          unless arms have features: then it may come back, as what was learned is of no arm
    arm_features          another table, of the same features, with a row for each arm of before and for those that were
                          added: the model is of products with features, and holds no arm. What is pending keeps the
                          features that it was decided with. Which arms have a model of their own stays as it is
    max_batch             may grow. Lessons that wait, and those that are learned again, may be as large as it was
    max_interactions      may grow: the model may hold as many as were agreed
    keep_interactions     decides from now on how many interactions are kept; what was pruned does not come back
    expires_after         may change, with the reward of what has expired; decisions of before expire, too

Terms are those of `Federation.terms`, which roles write down. All else is refused by name. The ledger counts decisions
by their chance to explore, so it goes on over a change; with more arms it charges the earlier decisions as if they had
been made among all of today's, which is never less than they lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies import policy_class
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.mechanisms import ActionBudget, NoisyGradient, NoisySums

Terms = Mapping[str, Any]

_OF_FAST: Final = ("max_interactions", "max_batch", "reciprocal_bits", "repair_every")
"""Zero where the suite has them not."""
_FREE: Final = ("retired", "keep_interactions", "expires_after", "expired_reward")
"""What has a rule of its own, or none."""
_GROWING: Final = ("arms", "max_batch", "max_interactions")
_ANEW: Final = "to change it, begin another federation under another name"
_WHY: Final = {
    "federation": "it is another federation",
    "features": "the model has an entry for each feature",
    "arm_columns": "the model has a weight for each product with a feature of an arm and cannot go on with others",
    "own_models": "the model has weights for each of these arms",
    "arm_features": "a model for each arm and one for all of them are kept in other forms",
    "norms": "what was learned had the norms that were agreed before",
    "fraction_bits": "shares that are kept have these bits",
    "ridge": "it is the start of every sum that was learned",
    "suite": "its model is kept in another form",
    "privacy": "what was promised over time is promised for all decisions, those before included",
    "evaluation": "decisions that wait are kept with what was agreed to be evaluated",
    "reward_slot": "decisions wait for the slots in which they were made",
    "default_reward": "decisions wait for the slots in which they were made",
}


def refused_changes(before: Terms, after: Terms) -> list[str]:
    """What of a change cannot be, each by the name of the field with what to do; nothing if all of it can."""
    policies = {"policy", *_policy_options(before), *_policy_options(after)}
    tables = {"arm_features"} & before.keys() & after.keys()
    fixed = sorted((before.keys() | after.keys()) - policies - {*_GROWING, *_FREE} - tables)
    refused = [
        f"{name} cannot change, from {_shown(before, name)} to {_shown(after, name)}"
        f"{': ' + _WHY[name] if name in _WHY else ''}; {_ANEW}"
        for name in fixed
        if not _same(before, after, name)
    ]
    if "evaluation" in before and not _same(before, after, "epsilon"):
        refused.append(
            f"epsilon cannot change, from {_shown(before, 'epsilon')} to {_shown(after, 'epsilon')}, where values of "
            f"policies are evaluated: one epsilon for all windows is what makes them unbiased; {_ANEW}"
        )
    return [*refused, *_shrinking(before, after), *_of_arms(before, after), *_of_policy(before, after, policies)]


def changed_federation(before: Federation, **changes: Any) -> Federation:
    """A federation with other numbers, if it can go on as that. Interactions are as many as before, unless given."""
    kept = {field.name: getattr(before, field.name) for field in fields(before)}
    absent = {name for name, value in kept.items() if value is None or (value == 0 and name in _OF_FAST)}
    after = Federation(**{**{name: value for name, value in kept.items() if name not in absent}, **changes})
    check_change(before, after)
    return after


def check_change(before: Federation, after: Federation) -> None:
    """Raise ConfigError unless a federation can go on as another one with the model it has."""
    if refused := refused_changes(before.terms, after.terms):
        raise ConfigError("; ".join(refused))
    old, new = before.learner.arrays, after.learner.arrays
    kept = [(array.name, array.shape[1:], array.fraction_bits) for array in old]
    if kept != [(array.name, array.shape[1:], array.fraction_bits) for array in new]:
        raise ConfigError(
            f"policy {after.policy.name} keeps other arrays than policy {before.policy.name}: the model cannot go on; "
            f"{_ANEW}"
        )


def _policy_options(terms: Terms) -> set[str]:
    return set(policy_class(str(terms["policy"])).__dataclass_fields__) if "policy" in terms else {"epsilon"}


def _same(before: Terms, after: Terms, name: str) -> bool:
    return bool(_listed(before.get(name)) == _listed(after.get(name)))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def _shown(terms: Terms, name: str) -> str:
    return str(_listed(terms[name])) if name in terms else "none"


def _shrinking(before: Terms, after: Terms) -> Iterator[str]:
    why = {
        "arms": "what was learned of an arm would be lost; list it under `retired` instead",
        "max_batch": "lessons as large as that may wait; leave it as it was",
        "max_interactions": "the model may hold as many; declare as many, or leave arms and policy as they were",
    }
    if "arm_features" in after:
        why["arms"] = "leave the row of an arm that is to go, and list it under `retired`"
    for name in _GROWING:
        if name in before and name in after and after[name] < before[name]:
            yield f"{name} cannot fall, from {before[name]:,} to {after[name]:,}: {why[name]}"


def _of_arms(before: Terms, after: Terms) -> Iterator[str]:
    gone = sorted(set(before.get("retired", ())) - set(after.get("retired", ())))
    if gone and "arm_features" not in after:
        yield f"retired cannot lose arm {gone[0]}: an arm that was retired stays so; add a new arm instead"
    own_sums = "arm_features" not in after
    if own_sums and after["arms"] > before["arms"] and before.get("privacy") in (NoisySums.name, NoisyGradient.name):
        yield (
            f"arms cannot grow, from {before['arms']} to {after['arms']}, with privacy {before['privacy']}: the noise "
            "of a new arm's sums would not be that of the refreshes before; leave them, or begin another federation"
        )


def _of_policy(before: Terms, after: Terms, policies: set[str]) -> Iterator[str]:
    changed = sorted(name for name in policies if not _same(before, after, name))
    if changed and before.get("privacy") == ActionBudget.name:
        yield (
            f"{changed[0]} cannot change, from {_shown(before, changed[0])} to {_shown(after, changed[0])}, with "
            f"privacy {ActionBudget.name}: its budget counts decisions that all explore alike; leave the policy as it "
            "is, or begin another federation"
        )
