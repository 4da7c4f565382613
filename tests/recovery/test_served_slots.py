"""Reward slots with real processes, real clocks and real kills."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from deployment import PATIENCE, ROLES, Deployment, provision
from hiddenarm.errors import DecisionIdError
from hiddenarm.service.application import RewarderClient
from hiddenarm.service.kit import Kit

SLOT = 4
"""Seconds. A decision is rewarded at once: on a busy machine that must not take a whole slot."""


def version(deployment: Deployment, role: str = "hotel") -> int:
    found = re.search(r"^hiddenarm_model_version (\d+)", deployment.get(role, "/metrics")[1], re.MULTILINE)
    return int(found[1]) if found else 0


def until_learned(deployment: Deployment, lessons: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while version(deployment) < lessons:
        assert time.monotonic() < deadline, f"{version(deployment)} lessons of {lessons} were learned"
        time.sleep(0.1)


def test_a_reward_that_was_kept_is_learned_with_its_slot_though_the_rewarder_is_killed(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path, durable=True, more=f"reward_slot = {SLOT}")) as deployment:
        deployment.start(*ROLES)
        decision = deployment.ask("actor", key="user 17")
        given = {"id": decision["id"], "reward": 1, "request": "first"}
        assert deployment.ask("rewarder", **given) == {"id": decision["id"], "kept": True}
        deployment.processes["rewarder"].kill()
        deployment.processes["rewarder"].wait()
        deployment.start("rewarder")
        assert deployment.ask("rewarder", **given) == {"id": decision["id"], "kept": True}
        until_learned(deployment, 1)
        assert "was rewarded before" in deployment.ask("rewarder", id=decision["id"], reward=0)["error"]
        late = deployment.ask("actor", key="user 18")
        until_learned(deployment, 2)
        assert "comes too late" in deployment.ask("rewarder", id=late["id"], reward=1)["error"]


def test_slots_are_sent_while_the_application_does_nothing(tmp_path: Path) -> None:
    kits = provision(tmp_path, more=f"reward_slot = {SLOT}\ndefault_reward = 0.5")
    with Deployment(kits) as deployment:
        deployment.start("dealer", "hotel", "airline", "actor")
        with RewarderClient(Kit.read(kits / "rewarder")) as rewarder:
            decisions = [deployment.ask("actor", key=key)["id"] for key in ("user 17", "user 18")]
            assert rewarder.reward(decisions[0], 1.0) == 0
            until_learned(deployment, 1)
            with pytest.raises(DecisionIdError, match=r"comes too late: .* with 0.5 in its place"):
                rewarder.submit(decisions[1], 1.0)
            rewarder.settle()
