"""The steps of docs/upgrading.md, with real processes: stop, copy, start again with what was there; and back, to the
copies, by consent of all. A role of another version of the protocol is refused by name, and loses nothing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.error
from pathlib import Path

from deployment import PATIENCE, ROLES, Deployment, provision
from hiddenarm.errors import HelloError
from hiddenarm.service.kit import PROTOCOL_VERSION

WITH_STATE = ("hotel", "airline", "actor", "rewarder")
PAGE = Path(__file__).parents[2] / "docs" / "upgrading.md"
OTHER_VERSION = """
import sys
import hiddenarm.service.kit
hiddenarm.service.kit.PROTOCOL_VERSION -= 1
from hiddenarm.cli.main import main
sys.argv = ["hiddenarm", "serve", sys.argv[1]]
main()
"""


def command(*words: object) -> str:
    line = [sys.executable, "-m", "hiddenarm", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def stop(deployment: Deployment) -> None:
    for role in ROLES:
        deployment.processes[role].send_signal(signal.SIGTERM)
    deployment.ends(*ROLES)


def metrics(deployment: Deployment) -> str:
    """Those of a party, once it listens and is ready."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if deployment.ready("hotel")["ready"]:
                return deployment.get("hotel", "/metrics")[1]
        except urllib.error.URLError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def counted(deployment: Deployment, name: str) -> int:
    """A metric, over all labels."""
    return sum(int(float(count)) for count in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics(deployment), re.M))


def await_version(deployment: Deployment, expected: int) -> None:
    """Until a party has learned as many lessons: those after its last checkpoint it learns again when it is ready."""
    deadline = time.monotonic() + PATIENCE
    while (version := counted(deployment, "hiddenarm_model_version")) != expected:
        assert version < expected, "a lesson too many"
        assert time.monotonic() < deadline, f"version {version}, not {expected}"
        time.sleep(0.1)


def released(deployment: Deployment) -> int:
    return counted(deployment, "hiddenarm_privacy_decisions_total")


def test_the_commands_are_those_of_the_page() -> None:
    text = PAGE.read_text()
    for words in ("export", "check", "status", "import", "recover"):
        assert f"hiddenarm {words} /var/lib/hiddenarm/hotel" in text


def test_an_upgrade_loses_nothing_and_can_be_taken_back(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True, more="checkpoint_every = 2")
    with Deployment(kits) as deployment:
        deployment.start(*ROLES)
        for _ in range(3):
            deployment.step()
        waiting = deployment.ask("actor", key="user 17", request="before")
        assert "hiddenarm_info{" in metrics(deployment)
        stop(deployment)
        for role in WITH_STATE:
            command("export", kits / role, tmp_path / f"{role}-before-upgrade.store")
        for role in ROLES:
            command("check", kits / role, "--offline")

        deployment.start(*ROLES)
        await_version(deployment, 3)
        command("status", kits / "hotel")
        assert deployment.ask("actor", key="user 17", request="before") == waiting, "answered the same"
        assert "version" in deployment.ask("rewarder", id=waiting["id"], reward=1), "kept for its reward"
        deployment.step()
        await_version(deployment, 5)
        before = released(deployment)
        assert before == 5
        stop(deployment)

        for role in WITH_STATE:
            command("import", kits / role, tmp_path / f"{role}-before-upgrade.store")
        for role in ("hotel", "airline", "rewarder"):
            command("recover", kits / role)
        deployment.start(*ROLES)
        deployment.step()
        await_version(deployment, 4)  # three lessons of the copies, and one more
        assert released(deployment) >= before + 1, "what was released stays counted"


def test_a_role_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True)
    with Deployment(kits) as deployment:
        deployment.start(*(role for role in ROLES if role != "airline"))
        line = [sys.executable, "-c", OTHER_VERSION, str(kits / "airline")]
        old = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert old.returncode == HelloError.exit_code, old.stderr
        assert "protocol_version' differs" in old.stderr
        assert str(PROTOCOL_VERSION) in old.stderr
        for role in ROLES:
            if role != "airline" and deployment.processes[role].poll() is not None:
                deployment.start(role)
        deployment.start("airline")
        deployment.step()
