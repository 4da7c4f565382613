"""A provisioned federation on this machine: every role a process that was started as an organisation starts it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from federation_files import ARMS, TRAVEL
from hiddenarm.cli.main import commands
from hiddenarm.service.kit import read_kit_file

PATIENCE = 300.0
"""Seconds after which something is called hung. What goes well is not measured by it: a busy machine may be slow."""
PORTS_IN_A_BLOCK = 100
ROLES = ("dealer", "hotel", "airline", "actor", "rewarder")
SERVERS = ROLES[:3]


def require(*programs: str) -> None:
    """Skip a test that needs programs which are not installed. With HIDDENARM_CI, which .ci/run sets where it has them
    all, it fails instead: then nothing is left out unseen."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and os.environ.get("HIDDENARM_CI"):
        pytest.fail(f"{' and '.join(missing)} must be installed, as HIDDENARM_CI is set")
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


def free_ports(count: int) -> list[int]:
    """Ports that no other test is given, in this process or another, until this process ends: a role that is started
    later, or again, finds its port free."""
    return list(islice(_ports_of_this_process(), count))


def neighbouring_ports(count: int) -> list[int]:
    """The same, one after the other."""
    ports = free_ports(count)
    while ports[-1] - ports[0] != count - 1:
        ports = [*ports[1:], *free_ports(1)]
    return ports


@cache
def _ports_of_this_process() -> Iterator[int]:
    return _reserved_ports()


def _reserved_ports() -> Iterator[int]:
    """Free ports, block by block. The first of a block is bound for as long as this process lives, and the rest belong
    to whoever holds it. All are below those that the system gives to whoever asks for any: other tests do."""
    blocks, held = list(range(10_000, 32_000, PORTS_IN_A_BLOCK)), []
    secrets.SystemRandom().shuffle(blocks)
    for first in blocks:
        try:
            held.append(socket.create_server(("127.0.0.1", first)))
        except OSError:
            continue
        yield from filter(_is_free, range(first + 1, first + PORTS_IN_A_BLOCK))
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def provision(
    folder: Path, durable: bool = False, airline: str = "", more: str = "", http: bool = False, arm_table: str = ""
) -> Path:
    """Kits of the travel federation, at free ports, with the sample features; `airline` has more of its fields, `more`
    more of the federation's. With `http`, actor, rewarder and airline serve it at free ports. With `arm_table`, a file
    in the folder, its arms have features."""
    ports = free_ports(11)
    web = [f'http = "127.0.0.1:{port}"\n' if http else "" for port in ports[8:]]
    airline += f"\n{web[2]}"
    text = TRAVEL.replace("durable = false", f"durable = {str(durable).lower()}")
    text = text.replace("epsilon = 0.1", f"epsilon = 0.1\n{more}")
    text = text.replace(ARMS, f'arm_table = "{arm_table}"') if arm_table else text
    text = text.replace("norm = 0.5", f"norm = 0.5\n{airline}")
    for index, old in enumerate((7400, 7401, 7402)):
        text = text.replace(f"port = {old}", f"port = {ports[index]}\nmonitor_port = {ports[3 + index]}")
    text += f"[actor]\nmonitor_port = {ports[6]}\n{web[0]}[rewarder]\nmonitor_port = {ports[7]}\n{web[1]}"
    (folder / "federation.toml").write_text(text)
    done = CliRunner().invoke(commands, ["provision", str(folder / "federation.toml"), "--out", str(folder / "kits")])
    assert done.exit_code == 0, done.output
    kits = folder / "kits"
    for party in ("hotel", "airline"):
        (kits / party / "features.sample.csv").rename(kits / party / "features.csv")
    return kits


class Deployment:
    """The processes of all roles, run by `python`; those that are still there at the end are killed. Roles of one
    process have the same."""

    def __init__(self, kits: Path, python: Path | str = sys.executable) -> None:
        self.kits = kits
        self._python = str(python)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._logs: dict[str, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, *roles: str, options: tuple[str, ...] = ("--log-format", "json")) -> None:
        """Start roles, a process each."""
        for role in roles:
            self.start_together(role, options=options)

    def start_together(self, *roles: str, options: tuple[str, ...] = ("--log-format", "json")) -> None:
        """Start roles in one process, whose log is that of the first."""
        for role in roles:
            self._logs[role] = self.kits.parent / f"{roles[0]}.log"
        with self.log_path(roles[0]).open("a") as log:
            process = subprocess.Popen(
                [self._python, "-m", "hiddenarm", "serve", *(str(self.kits / role) for role in roles), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self.processes.update(dict.fromkeys(roles, process))

    def log_path(self, role: str) -> Path:
        return self._logs[role]

    def log(self, role: str) -> list[dict[str, Any]]:
        """What a role logged, line by line."""
        lines = self.log_path(role).read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def ask(self, role: str, **request: Any) -> dict[str, Any]:
        """Make a request as an application would: again, when that is the answer."""
        deadline = time.monotonic() + PATIENCE
        while "retry_after" in (answer := self.ask_once(role, **request)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return answer

    def ask_once(self, role: str, **request: Any) -> dict[str, Any]:
        process = self.processes[role]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, self.log_path(role).read_text()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def step(self) -> None:
        decision = self.ask("actor", key="user 17")
        assert decision["name"] in ("beach", "city", "mountains", "cruise")
        assert "version" in self.ask("rewarder", id=decision["id"], reward=1)

    def get(self, role: str, path: str) -> tuple[int, str]:
        """A page of a role's monitor."""
        port = read_kit_file(self.kits / role).monitor_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ready(self, role: str) -> dict[str, Any]:
        """What a role says of whether decisions can be served; the status of the page says the same."""
        status, body = self.get(role, "/readyz")
        found: dict[str, Any] = json.loads(body)
        assert status == (200 if found["ready"] else 503)
        return found

    def until_ready(self, role: str, ready: bool = True) -> dict[str, Any]:
        """Wait until a role says that it is ready, or that it is not."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.ready(role))["ready"] is not ready:
            assert time.monotonic() < deadline, f"{role}: {found}"
            time.sleep(0.05)
        return found

    def until_not_ready(self, role: str, *reasons: str) -> dict[str, Any]:
        """Wait until a role says that it is not ready for exactly these reasons. Before roles have heard of each other
        they may name others, such as that an epoch is being opened."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.ready(role))["reasons"] != list(reasons):
            assert time.monotonic() < deadline, f"{role}: {found} where {reasons} are due"
            time.sleep(0.05)
        return found

    def until_noted(self, role: str, note: str) -> None:
        """Wait until a role notes something while it is ready."""
        deadline = time.monotonic() + PATIENCE
        while not any(one.startswith(note) for one in self.ready(role)["notes"]):
            assert time.monotonic() < deadline, f"{role} notes no {note!r}"
            time.sleep(0.05)

    def ends(self, *roles: str) -> dict[str, int]:
        return {role: self.processes[role].wait(PATIENCE) for role in roles}

    def until(self, role: str, event: str) -> dict[str, Any]:
        """Wait for a line in a role's log."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = [line for line in self.log(role) if line["event"] == event]
            if found:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError(f"{role} logged no {event!r}: {self.log_path(role).read_text()}")


@contextmanager
def running(folder: Path, durable: bool = False) -> Iterator[Deployment]:
    """All roles up, and one step made."""
    with Deployment(provision(folder, durable)) as deployment:
        deployment.start(*ROLES)
        deployment.step()
        yield deployment
