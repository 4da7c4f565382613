"""Unlearning with real processes, commands and kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from deployment import ROLES, Deployment, provision


def test_an_unlearning_survives_kills_and_is_done_once(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path, durable=True)) as deployment:
        deployment.start(*ROLES)
        ids = [deployment.ask("actor", key=key)["id"] for key in ("user 17", "user 18", "user 17")]
        for number, decision in enumerate(ids[:2]):
            assert deployment.ask("rewarder", id=decision, reward=1)["version"] == number + 1
        first = deployment.ask("rewarder", unlearn=ids[0])
        assert first == {"id": ids[0], "unlearned": True, "version": 3}
        for role in ("hotel", "rewarder"):
            deployment.processes[role].kill()
            deployment.processes[role].wait()
            deployment.start(role)
            assert deployment.ask("rewarder", unlearn=ids[0]) == first
        assert deployment.ask("rewarder", unlearn=ids[2])["version"] == 4  # it has no reward
        assert "was unlearned" in deployment.ask("rewarder", id=ids[2], reward=1)["error"]
        deployment.processes["rewarder"].kill()
        deployment.processes["rewarder"].wait()
        assert unlearn(deployment, "rewarder", ids[1]) == (0, {"id": ids[1], "unlearned": True, "version": 5})
        assert unlearn(deployment, "rewarder", ids[1])[1]["version"] == 5
        assert unlearn(deployment, "actor", ids[1])[0] != 0
        deployment.start("rewarder")
        deployment.step()


def unlearn(deployment: Deployment, role: str, decision: str) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "hiddenarm", "unlearn", str(deployment.kits / role), decision]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.returncode, json.loads(found.stdout) if found.stdout else {}
