"""Real processes of all roles: a federation to start, roles to kill, and what they leave behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from deployment import PATIENCE
from hiddenarm.bandit.catalogue import DECIDE_ONE, LEARN, LEARN_ONE, STEP_ONE, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.frames import HEADER
from hiddenarm.net.hello import hello_payload
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.roles.epochs.plan import plan_bytes
from hiddenarm.roles.messages import ACTOR, DEALER, PROGRAM_NUMBERS, REWARDER
from hiddenarm.service.kit import Kit

EPOCH_KEY = bytes(range(100, 132))
KEYS = [f"user {number}" for number in range(30)]


def federation_of(parties: int) -> Federation:
    return Federation(arms=4, features=(3,) * parties, epsilon=0.2)


def paper_federation_of(parties: int, newton_iterations: int | None = None) -> Federation:
    return Federation(suite="paper", arms=4, features=(3,) * parties, epsilon=0.2, newton_iterations=newton_iterations)


def members(federation: Federation) -> list[Identity]:
    return [*(Identity(Role.PARTY, number) for number in range(federation.parties)), DEALER, ACTOR, REWARDER]


def contexts_of(federation: Federation) -> np.ndarray:
    rows = np.random.default_rng(1).standard_normal((len(KEYS), federation.dimension))
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def local_roles(folder: Path, federation: Federation, keys: list[str] = KEYS) -> LocalRoles:
    return LocalRoles(folder / "kits", federation, keys, contexts_of(federation), EPOCH_KEY)


def kit_of(folder: Path, identity: Identity) -> Path:
    return folder / "kits" / str(identity).replace(" ", "-")


def log_of(folder: Path, identity: Identity) -> str:
    return (kit_of(folder, identity) / "log.txt").read_text()


def ends(roles: LocalRoles, identities: Iterable[Identity]) -> dict[Identity, int]:
    """The exit codes of roles that must end by themselves, all within the same patience."""
    deadline = time.monotonic() + PATIENCE
    codes = {}
    for identity in identities:
        try:
            codes[identity] = roles.process(identity).wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{identity} hangs") from None
    return codes


@dataclass
class Ended:
    code: int
    stdout: str
    stderr: str


def serve(kit: Path, *options: str, stdin: str = "", patience: float = PATIENCE) -> Ended:
    """Run `hiddenarm serve` to its end."""
    command = [sys.executable, "-m", "hiddenarm", "serve", str(kit), *options]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=patience, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def check_message(text: str, *parts: str) -> None:
    """One line that says what is wrong, and no traceback."""
    lines = [line for line in text.splitlines() if line.startswith("error:")]
    assert "Traceback" not in text, text
    assert len(lines) == 1, text
    for part in parts:
        assert part in lines[0], text


class MeterRow(TypedDict):
    """Frames of one kind that a role sent to a peer, as its meter writes them down."""

    peer: str
    kind: str
    program: int
    frames: int
    bytes: int


def check_meter(kit: Kit, rows: list[MeterRow], steps: int) -> None:
    """Every frame a party sent, by kind: exactly what the layouts declare, and the small talk around it."""
    federation, number = kit.federation, kit.identity.number
    header = HEADER.size
    expected: dict[tuple[str, str, int], tuple[int, int]] = {}
    first = 1 if federation.learner.has_step else steps  # decisions before the first that is asked for as a `step`
    runs = {DECIDE_ONE: first, LEARN_ONE: first, STEP_ONE: steps - first}
    for program in federation.learner.single_programs:
        layout = layout_of(program_text(federation, program), federation.parties, 1)
        size = layout.bytes_to_each_peer(number) + layout.rounds * header
        for peer in range(federation.parties):
            if peer != number:
                row = (f"party {peer}", "ROUND", PROGRAM_NUMBERS[program.name])
                expected[row] = (runs[program] * layout.rounds, runs[program] * size)
        if number == federation.parties - 1:
            orders = 4 + runs[program] // (kit.file.stock // 4)
            expected["dealer", "WANT", PROGRAM_NUMBERS[program.name]] = (orders, orders * (header + 4))
        if program != LEARN_ONE:
            told, size = ("ONE_HOT", 8) if federation.suite == "paper" else ("PAYLOADS", 4)
            answered = (runs[program], runs[program] * (header + size * federation.arms))
            expected["actor", told, PROGRAM_NUMBERS[program.name]] = answered
    for client in ("actor", "rewarder") if number == 0 else ("rewarder",):
        expected[client, "LEARNED", PROGRAM_NUMBERS[LEARN]] = (steps, steps * header)
    for member in members(federation):
        if member in (ACTOR, REWARDER):
            expected[str(member), "ACTIVE", 0] = (1, header + plan_bytes())
        if member != kit.identity:
            expected[str(member), "HELLO", 0] = (1, header + len(hello_payload(kit.hello)))
    counted = {(row["peer"], row["kind"], row["program"]): (row["frames"], row["bytes"]) for row in rows}
    goodbyes = {row: counted.pop(row) for row in list(counted) if row[1] == "BYE"}
    for row in [row for row in counted if row[1] in ("PING", "PONG")]:  # they depend on how quick this machine is
        del counted[row]
    openings = [counted.pop(row) for row in list(counted) if row[1] in ("OPEN", "PREPARED")]
    links = federation.parties * (federation.parties + 1) // 2  # which may be made in any order
    assert all(1 <= frames <= 2 * links for frames, _ in openings)
    assert counted == expected
    assert all(frames == 1 and size <= header + 100 for frames, size in goodbyes.values())
