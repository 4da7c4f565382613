"""`hiddenarm demo`: all roles as processes, beside the plain twin; what it reports and what it refuses."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from commands import KEYS, check_error, hiddenarm, interrupted

from hiddenarm.bandit.catalogue import DECIDE_ONE, LEARN_ONE, STEP_ONE, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.frames import HEADER
from hiddenarm.net.transport import Limits
from hiddenarm.paper import rounds
from hiddenarm.privacy.actions import epsilon_total
from hiddenarm.privacy.ledger import NOTHING_RELEASED
from hiddenarm.research.data.worlds import split_features

SMALL_TALK_BYTES = 4200
"""Hellos, goodbyes and orders of material: once a run, or once in many steps."""


def declared_bytes(parties: int, steps: int) -> int:
    """What the party that sends most sends: openings; at every step an answer, a word of 32 bits for each arm, and two
    notices that a lesson was learned. The first step is not known to be one of strictly online use."""
    federation = Federation(arms=10, features=tuple(split_features(20, parties)), epsilon=0.1)
    first, others = (DECIDE_ONE, LEARN_ONE), (STEP_ONE,)
    told = (HEADER.size + 4 * federation.arms) + 2 * HEADER.size
    return _opened(federation, first) + (steps - 1) * _opened(federation, others) + steps * told


def _opened(federation: Federation, programs: tuple[ProgramId, ...]) -> int:
    parties = federation.parties
    layouts = [layout_of(program_text(federation, program), parties, 1) for program in programs]
    payload = max(sum(layout.bytes_to_each_peer(party) for layout in layouts) for party in range(parties))
    return (payload + sum(layout.rounds for layout in layouts) * HEADER.size) * (parties - 1)


@pytest.mark.parametrize(("parties", "steps"), [(2, 300), (3, 25)])
def test_a_demo_reports_what_it_measured(tmp_path: Path, parties: int, steps: int) -> None:
    options = ("--parties", parties, "--steps", steps, "--seed", 1, "--json", "result.json", "--plot", "curves.svg")
    began = time.monotonic()
    ended = hiddenarm("demo", *options, folder=tmp_path)
    seconds = time.monotonic() - began
    assert ended.code == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result.keys() == KEYS
    assert (result["parties"], result["steps"], result["replicates"]) == (parties, steps, 1)
    assert (result["arms"], result["features"], result["data"], result["suite"]) == (10, 20, "digits", "fast")
    assert result["agreement"] >= 0.995
    if parties == 2:  # of three, rounding decides ties, and a twin on its own way parts from the private run
        assert result["reward"] == pytest.approx(result["plain_reward"], abs=0.005)
    assert 0 <= result["reward"] <= 1
    if steps >= 300:  # long enough to have learned; in a few steps all may earn nothing, by bad luck
        assert result["reward"] > 0.1  # more than chance: one of ten arms earns
    assert result["rounds_per_decision"] == 3
    assert result["rounds_per_step"] == (7 * steps + 1) / steps
    assert result["us_per_step"] > result["plain_us_per_step"] > 0
    assert result["decisions_counted"] == steps  # as the parties counted them
    assert result["epsilon_total"] == pytest.approx(epsilon_total(10, {0.1: steps}, 1e-6))
    assert result["vacuous"] is True
    extra = result["bytes_per_step_per_party"] * steps - declared_bytes(parties, steps)
    attempts = parties + 3  # to open an epoch: one for each role that joins. Each peer is told the ledger
    ledgers = attempts * (parties - 1) * len(NOTHING_RELEASED.encode())
    heartbeats = (parties + 2) * 2 * HEADER.size * seconds / Limits().beat_seconds  # PING and PONG, at every peer
    assert 0 < extra < SMALL_TALK_BYTES + ledgers + heartbeats
    if parties == 2:
        assert result["bytes_per_step_per_party"] <= 40_000
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert "Interrupted" not in ended.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "curves.svg"}


def test_an_interrupt_ends_a_demo_after_the_step_with_what_it_has(tmp_path: Path) -> None:
    ended = interrupted("demo", "--steps", 100_000, "--json", "result.json", folder=tmp_path, when="/100,000 steps")
    assert ended.code == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert 0 < result["steps"] < 100_000
    assert f"Interrupted: the result of {result['steps']} of 100000 steps" in ended.stdout
    assert result["rounds_per_decision"] == 3
    assert result["rounds_per_step"] == (7 * result["steps"] + 1) / result["steps"]
    assert (tmp_path / "hiddenarm-demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("parties", "iterations"), [(2, 7), (3, 3)])
def test_a_demo_in_the_papers_suite(tmp_path: Path, parties: int, iterations: int) -> None:
    options = ["--suite", "paper"] if iterations == 7 else ["--suite", "paper", "--newton-iterations", iterations]
    ended = hiddenarm(
        "demo", "--parties", parties, "--steps", 15, "--seed", 1, "--json", "result.json", *options, folder=tmp_path
    )
    assert ended.code == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result.keys() == KEYS
    assert (result["suite"], result["parties"], result["steps"]) == ("paper", parties, 15)
    assert result["rounds_per_decision"] == rounds.decide(parties, 10)
    assert result["rounds_per_step"] == rounds.decide(parties, 10) + rounds.learn(iterations)
    assert result["agreement"] >= 0.9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--parties", 1], ["two parties"]),
        (["--suite", "slow"], ["slow", "fast", "paper"]),
        (["--newton-iterations", 7], ["newton_iterations", "suite paper"]),
        (["--suite", "paper", "--newton-iterations", 21], ["newton_iterations", "0..20"]),
        (["--json", "nowhere/result.json"], ["nowhere"]),
        (["--fraction-bits", 21], ["62"]),
        (["--data", "mnist"], ["--data"]),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(tmp_path: Path, arguments: list[object], words: list[str]) -> None:
    check_error(hiddenarm("demo", *arguments, folder=tmp_path), 2, *words)
    assert os.listdir(tmp_path) == []


def test_help_and_version(tmp_path: Path) -> None:
    shown = hiddenarm("--help", folder=tmp_path)
    assert shown.code == 0
    assert all(command in shown.stdout for command in ("demo", "simulate", "serve"))
    for command in ("demo", "simulate", "serve"):
        assert hiddenarm(command, "-h", folder=tmp_path).stdout.startswith("Usage: ")
    version = hiddenarm("--version", folder=tmp_path)
    assert version.code == 0
    assert version.stdout.split()[-1][0].isdigit()
    check_error(hiddenarm("dance", folder=tmp_path), 2, "dance")


def test_a_demo_with_a_budget_that_explores_when_it_is_spent(tmp_path: Path) -> None:
    """The twins, which know from which decision on the tags alone choose, agree."""
    options = ("--privacy", "action-budget", "--total-epsilon", 100, "--when-spent", "explore", "--json", "result.json")
    ended = hiddenarm("demo", "--steps", 40, "--seed", 1, *options, folder=tmp_path)
    assert ended.code == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["steps"], result["decisions_counted"]) == (40, 40)
    assert result["agreement"] == 1
    assert 95 < result["epsilon_total"] <= 100


def test_a_demo_ends_when_its_budget_is_spent(tmp_path: Path) -> None:
    options = ("--privacy", "action-budget", "--total-epsilon", 100, "--json", "result.json")
    ended = hiddenarm("demo", "--steps", 40, *options, folder=tmp_path)
    assert ended.code == 0, ended.stderr
    assert "the privacy budget is spent: 22 decisions" in " ".join(ended.stdout.split())
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["steps"], result["decisions_counted"]) == (22, 22)


def test_a_demo_with_noisy_sums(tmp_path: Path) -> None:
    """Its twins have the same noise, and agree in every decision; rounds are those of decide and gather, but for two
    refreshes."""
    options = ("--privacy", "noisy-sums", "--total-epsilon", 8, "--first-refresh", 40, "--refresh-ratio", 1.5)
    ended = hiddenarm("demo", "--steps", 80, *options, "--seed", 1, "--json", "result.json", folder=tmp_path)
    assert ended.code == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["agreement"] == 1
    assert result["reward"] == result["plain_reward"]
    assert result["epsilon_dropped"] == pytest.approx(8)
    assert result["rounds_per_decision"] == 3
    assert 5 < result["rounds_per_step"] < 8
