"""Every combination of policy, privacy, reward slots, number of arms and suite either works or is refused by name when
the federation is made. What works decides singly and in batches, among eligible arms, and learns as its twin does.

Between roles: tests/roles/test_noisy_roles.py has every policy with every noisy mechanism, with few arms and many,
among eligible arms, durable and not; beside it test_reward_slots.py, test_policies_between_roles.py,
test_arm_features_between_roles.py and test_values_between_roles.py.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.audit import plain_twin
from hiddenarm.bandit.federation import SUITES, Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.policies import parse_policy, policy_names
from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError
from hiddenarm.privacy.mechanisms import ActionBudget, Mechanism, NoisyGradient, NoisySums, Unbounded, mechanism_names

KEY = bytes(32)
POLICIES = [
    "epsilon-greedy:epsilon=0.2",
    "epsilon-schedule:initial=0.5,final=0.1,decay=5",
    "bonus:alpha=0.5,epsilon=0.1",
    "linucb:alpha=0.25,epsilon=0.1",
    "thompson:alpha=0.1,epsilon=0.1",
]
PRIVACY = [
    Unbounded(),
    ActionBudget(100.0),
    ActionBudget(100.0, when_spent="explore"),
    NoisySums(4.0, first_refresh=6),
    NoisySums(4.0, first_refresh=6, correlated=2),
    NoisyGradient(4.0, refresh_every=3, correlated=2),
]
SLOTS, ARMS = (0, 10), (3, 50)
CELLS = list(product(POLICIES, PRIVACY, SLOTS, ARMS, SUITES))
TOLERANCE = {"fast": 2e-4, "paper": 0.05}
ROUNDED_CLIPS = 11 * 0.02 * 0.5
"""What the clips of a cell can be off by together: in each lesson less than the distance of two nodes, times the first
step and a norm below 1. Noise is several times as much."""


def refused_by(policy: Policy, privacy: Mechanism, slot: int, suite: str) -> list[str]:
    """What a cell is refused for; one of it must be named."""
    reasons = [] if policy.explores_alike or not isinstance(privacy, ActionBudget) else ["action-budget"]
    if privacy.options.get("when_spent") == "explore" and policy.name in ("linucb", "thompson"):
        reasons.append(f"policy {policy.name} in suite {suite} cannot explore purely")
    if isinstance(privacy, NoisyGradient) and not policy.name.startswith("epsilon"):
        reasons.append(f"policy {policy.name} in suite {suite} does not run with privacy noisy-gradient")
    if suite == "paper":
        reasons += [] if suite in policy.suites else [policy.name]
        reasons += [privacy.name] if privacy.name.startswith("noisy") else []
        reasons += ["reward_slot"] if slot else []
    return reasons


def test_the_matrix_has_all_policies_and_mechanisms() -> None:
    assert sorted(parse_policy(text).name for text in POLICIES) == policy_names()
    assert list(dict.fromkeys(one.name for one in PRIVACY)) == mechanism_names()


@pytest.mark.parametrize(("policy", "privacy", "slot", "arms", "suite"), CELLS, ids=str)
def test_a_cell_works_or_is_refused_by_name(policy: str, privacy: Mechanism, slot: int, arms: int, suite: str) -> None:
    chosen = parse_policy(policy)
    options: dict[str, Any] = {"policy": chosen, "privacy": privacy, "suite": suite, "norms": (0.7, 0.7)}
    if slot:
        options["reward_slot"] = slot
    reasons = refused_by(chosen, privacy, slot, suite)
    if reasons:
        with pytest.raises(ConfigError) as refused:
            Federation(arms, (2, 2), **options)
        assert any(reason in str(refused.value) for reason in reasons)
        return
    Cell(Federation(arms, (2, 2), **options)).run()


class Cell:
    """A federation that works, beside the twin that is taught the same."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.lockstep = Lockstep(federation, KEY)
        self.twin: PlainBandit = plain_twin(federation, self._noise)
        self._random = np.random.default_rng(federation.arms)

    def run(self) -> None:
        self.decide_and_learn(4)
        if self.federation.learner.learns_many:
            self.learn_a_batch(5)
        self.decide_and_learn(2)
        weights = self.lockstep.reveal_model()[1][0]
        downhill = isinstance(self.federation.privacy, NoisyGradient)
        tolerance = ROUNDED_CLIPS if downhill else TOLERANCE[self.federation.suite]
        assert weights == pytest.approx(self.twin.weights, abs=tolerance)

    def decide_and_learn(self, steps: int) -> None:
        waiting = []
        for _ in range(steps):
            rows, eligible = self._rows(1), self._eligible()
            step, arms = self.lockstep.decide([row[:, 0] for row in rows], eligible)
            arm, reward = int(arms[0]), float(self._random.random() < 0.5)
            assert eligible is None or arm in eligible
            self.twin.learn(np.concatenate([row[0, 0] for row in rows]), arm, reward)
            if self.federation.reward_slot:
                waiting.append((step, reward))
            else:
                self.lockstep.learn(step, [reward])
                self.twin.end_lesson()
        if waiting:
            self.lockstep.learn_each([step for step, _ in waiting], [[reward for _, reward in waiting]])
            self.twin.end_lesson()

    def learn_a_batch(self, count: int) -> None:
        rows, eligible = self._rows(count), self._eligible()
        numbers, arms = self.lockstep.decide_each(rows, eligible)
        rewards = (self._random.random(count) < 0.5).astype(float)
        for place, arm in enumerate(arms[0].tolist()):
            assert eligible is None or arm in eligible
            self.twin.learn(np.concatenate([row[0, place] for row in rows]), arm, float(rewards[place]))
        self.lockstep.learn_each(numbers, [rewards])
        self.twin.end_lesson()

    def _rows(self, count: int) -> list[np.ndarray]:
        return [self._random.uniform(-0.4, 0.4, (1, count, 2)) for _ in range(2)]

    def _eligible(self) -> list[int] | None:
        return [0, self.federation.arms - 1] if self.federation.learner.takes_eligible else None

    def _noise(self, refresh: int) -> tuple[np.ndarray, np.ndarray]:
        grams, moments = self.lockstep.noise(refresh)
        return grams[0], moments[0]
