"""Changes of a federation with real processes and real kills: the model is kept, roles of two versions refuse each
other and keep their state, and a kit is of one version or of the other at any moment."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner

from deployment import PATIENCE, ROLES, Deployment, provision
from hiddenarm.cli.main import commands
from hiddenarm.errors import HelloError
from hiddenarm.service.kit import read_kit_file

KILLS = 12


def signed(kits: Path) -> Path:
    """The second version: less exploration, an arm more, one retired."""
    text = (kits / "authority" / "federation.toml").read_text()
    text = text.replace("epsilon = 0.1", 'epsilon = 0.02\nretired = ["city"]').replace(
        '"cruise"]', '"cruise", "desert"]'
    )
    path = kits.parent / "next.toml"
    path.write_text(f"version = 2\n{text}")
    done = CliRunner().invoke(commands, ["change", str(kits / "authority"), str(path)])
    assert done.exit_code == 0, done.output
    return kits.parent / "change-2.json"


def adopt(kits: Path, change: Path, *roles: str) -> None:
    for role in roles:
        done = CliRunner().invoke(commands, ["adopt", str(kits / role), str(change), "--yes"])
        assert done.exit_code == 0, done.output


def kill(deployment: Deployment, *roles: str) -> None:
    for role in roles:
        deployment.processes[role].kill()
        deployment.processes[role].wait()


def version(deployment: Deployment) -> int:
    found = re.search(r"^hiddenarm_model_version (\d+)", deployment.get("hotel", "/metrics")[1], re.MULTILINE)
    return int(found[1]) if found else -1


def test_a_federation_that_is_killed_goes_on_with_the_next_version_and_the_model_it_had(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True, more="checkpoint_every = 2")
    with Deployment(kits) as deployment:
        deployment.start(*ROLES)
        for _ in range(3):
            deployment.step()
        waiting = deployment.ask("actor", key="user 17")
        named = {"key": "user 18", "eligible": [1], "request": "of the version before"}
        retired = deployment.ask("actor", **named)
        assert retired["name"] == "city"
        change = signed(kits)

        adopt(kits, change, "airline")
        kill(deployment, "airline")
        deployment.start("airline")
        assert deployment.ends("airline") == {"airline": HelloError.exit_code}
        words = deployment.log_path("airline").read_text()
        for field in ("arms", "epsilon", "names", "retired"):
            assert f"field '{field}' differs" in words or "more" in words, words
        assert "field 'epsilon' differs" in words

        kill(deployment, *(role for role in ROLES if deployment.processes[role].poll() is None))
        adopt(kits, change, *ROLES)
        deployment.start(*ROLES)
        answer = deployment.ask("actor", key="user 18", eligible=[1, 4])
        assert answer.get("name") == "desert", answer
        assert deployment.ask("actor", **named) == retired, "the same request, whatever was retired since"
        other = deployment.ask("actor", **{**named, "eligible": [2]})
        assert "was made before" in other["error"], other
        assert version(deployment) == 3, "the model is that of before"
        assert "version" in deployment.ask("rewarder", id=waiting["id"], reward=1), "made before, rewarded after"
        assert "version" in deployment.ask("rewarder", id=answer["id"], reward=1)
        assert version(deployment) == 5
        assert (
            "all arms that are named as eligible are retired"
            in deployment.ask("actor", key="user 17", eligible=[1])["error"]
        )

        kill(deployment, "hotel", "actor")
        deployment.start("hotel", "actor")
        names = {deployment.ask("actor", key=key)["name"] for key in ("user 17", "user 18")}
        assert "city" not in names
        assert version(deployment) == 5


def test_a_kit_is_of_one_version_or_of_the_other_whenever_adopt_is_killed(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True)
    change, path = signed(kits), kits / "hotel" / "kit.json"
    before, randomly = path.read_bytes(), random.Random(5)
    command = [sys.executable, "-m", "hiddenarm", "adopt", str(kits / "hotel"), str(change), "--yes"]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    took, after = time.monotonic() - began, path.read_bytes()
    for _ in range(KILLS):
        path.write_bytes(before)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(took * randomly.uniform(0.6, 1.2))
        process.kill()
        process.wait()
        assert path.read_bytes() in (before, after)
        assert read_kit_file(kits / "hotel").version in (1, 2)
    adopt(kits, change, "hotel")
    assert path.read_bytes() == after
