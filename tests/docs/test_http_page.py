"""docs/http.md: its commands run as they are written, and its tables are what the server does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from deployment import PATIENCE, free_ports, require
from hiddenarm.roles.messages import MAX_KEY_BYTES
from hiddenarm.service.request_queue import MAX_QUEUED, MAX_UNDER_WAY
from hiddenarm.web.api import LEAST_BODY_BYTES, RankBody, RewardBody, UnlearnBody, most_body_bytes
from hiddenarm.web.problems import CODES
from hiddenarm.web.server import MAX_CONNECTIONS, SILENT_SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORTS = ("7400", "7401", "7402", "8411", "8412")


def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    require("curl")
    ports = [str(port) for port in free_ports(10)]
    page = PAGE
    for old, new in zip(PORTS, ports, strict=False):
        page = page.replace(old, new)
    toml, *scripts = BLOCK.findall(page)
    assert toml[0] == "toml"
    monitored = iter(ports[5:])
    text = re.sub(
        r"^(port = .*|\[actor\]|\[rewarder\])$",
        lambda at: f"{at[0]}\nmonitor_port = {next(monitored)}",
        toml[1],
        flags=re.M,
    )
    (tmp_path / "federation.toml").write_text(text)
    try:
        for language, block in scripts:
            if language == "python":
                (tmp_path / "block.py").write_text(block)
            lines = [line[2:] for line in block.splitlines() if line.startswith("$ ") and "make" not in line]
            _run("python block.py" if language == "python" else "\n".join(lines), tmp_path)
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    ranked = json.loads((tmp_path / "ranked.json").read_text())
    assert ranked.keys() == {"eventId", "rewardActionId", "decisionId"}
    assert json.loads((tmp_path / "rewarded.json").read_text()) == {"eventId": "visit-1", "version": 1}
    assert json.loads((tmp_path / "unlearned.json").read_text()) == {"eventId": "visit-1", "version": 2}


def _run(script: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=(folder / "out.txt").open("w"),
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=False,
    )
    logs = "\n".join(log.read_text() for log in folder.glob("*.log"))
    assert done.returncode == 0, f"{script}\n{(folder / 'out.txt').read_text()}\n{logs}"


def test_the_table_of_errors_has_all_codes() -> None:
    stated = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+) \|$", PAGE, re.MULTILINE)
    assert stated == [(code.name, str(code.status), code.title) for code in CODES]


def test_the_tables_of_fields_have_all_of_them() -> None:
    tables = PAGE.split("| field | unless given | what it is |\n|---|---|---|\n")[1:]
    stated = [re.findall(r"^\| `(\w+)` \|", table.split("\n\n")[0], re.MULTILINE) for table in tables]
    bodies = (RankBody, RewardBody, UnlearnBody)
    assert [set(fields) for fields in stated] == [set(body.model_fields) for body in bodies]


def test_the_limits_are_those_of_the_server() -> None:
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", PAGE.split("## Limits")[1].split("\n## ")[0], re.MULTILINE))
    numbers = {
        what: [int(one.replace(",", "")) for one in re.findall(r"[\d,]*\d", most)] for what, most in rows.items()
    }
    one, two = most_body_bytes(["a"]), most_body_bytes(["a", "bb"])
    per_letter = most_body_bytes(["aa"]) - one
    assert numbers["body of a request"] == [LEAST_BODY_BYTES, one - LEAST_BODY_BYTES - per_letter, per_letter]
    assert two - one == one - LEAST_BODY_BYTES + per_letter
    assert numbers["`key`"] == [MAX_KEY_BYTES]
    assert numbers["connections"] == [MAX_CONNECTIONS, int(SILENT_SECONDS)]
    assert numbers["requests under way"] == [MAX_UNDER_WAY, MAX_QUEUED]
    schema = json.dumps(RankBody.model_json_schema())
    for what in ("id of an action", "`eventId`"):
        assert f'"maxLength": {numbers[what][0]}' in schema
    assert f'"maximum": {numbers["`timeout`"][0]}' in schema
