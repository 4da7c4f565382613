"""`hiddenarm attack` and `hiddenarm audit`: what they write and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import hiddenarm, hiddenarm_here

RATES = {"tpr_at_1_percent", "tpr_at_1_percent_interval", "advantage", "advantage_interval"}


def result_of(folder: Path, *arguments: object) -> dict[str, Any]:
    ended = hiddenarm(*arguments, "--json", "result.json", folder=folder)
    assert ended.code == 0, ended.stderr
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert result.keys() > RATES
    for name in ("tpr_at_1_percent", "advantage"):
        low, high = result[f"{name}_interval"]
        assert low <= result[name] <= high
    return result


def test_the_sequence_is_attacked(tmp_path: Path) -> None:
    command = ("attack", "sequence", "--steps", 100, "--trials", 800, "--seed", 1, "--plot", "curve.png")
    result = result_of(tmp_path, *command)
    assert result["tpr_at_1_percent"] > 0.2
    assert [one["limit"] for one in result["calibration"]] == [3, 5, 7]
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert result_of(tmp_path, *command) == result


def test_the_papers_attack_stands_beside_it(tmp_path: Path) -> None:
    result = result_of(tmp_path, "attack", "paper", "--steps", 100, "--trials", 80, "--seed", 1)
    assert result["tpr_at_1_percent"] < 0.1
    assert "advantage_across_halves" in result


def test_noisy_sums_are_attacked(tmp_path: Path) -> None:
    ended = hiddenarm(
        *("attack", "sequence", "--steps", 150, "--trials", 800, "--privacy", "noisy-sums", "--total-epsilon", 1),
        *("--first-refresh", 100, "--seed", 1),
        folder=tmp_path,
    )
    assert ended.code == 0, ended.stderr
    assert "true positives of any attack, at most" in ended.stdout
    assert "0.0183" in ended.stdout


def test_a_run_without_a_refresh_says_so(tmp_path: Path) -> None:
    ended = hiddenarm(
        "attack", "sequence", "--trials", 40, "--privacy", "noisy-sums", "--total-epsilon", 1, folder=tmp_path
    )
    assert ended.code == 0
    assert "No refresh lies within the run" in ended.stdout


def test_an_audit_stands_beside_the_ledger(tmp_path: Path) -> None:
    arguments = ("audit", "--steps", 100, "--trials", 4000, "--target", "any", "--epsilon", 0.5, "--seed", 1)
    result = result_of(tmp_path, *arguments)
    assert result["position"] == 10
    assert result["one_action"] == pytest.approx(2.3979, abs=1e-4)
    assert result["one_action"] < result["lower_bound"] < result["ledger"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("attack", "sequence", "--arms", 7), "leave --arms at 10"),
        (("attack", "sequence", "--trials", 10), "--trials must be a multiple of 4"),
        (("attack", "sequence", "--steps", 100_000), "--steps must lie in 1..1796"),
        (("attack", "sequence", "--json", "nowhere/result.json"), "there is no folder nowhere"),
        (("attack", "sequence", "--plot", "curve.txt"), "cannot tell the picture's format"),
        (("attack", "paper", "--data", "clusters"), "clusters have no held-out set"),
        (("audit", "--position", 200), "--position must lie in 0..199"),
        (("audit", "--total-epsilon", 1), "--privacy noisy-sums"),
        (("audit", "--privacy", "action-budget", "--total-epsilon", 1), "does not change what it tells"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    arguments: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = hiddenarm_here(*arguments)
    assert code == 2
    assert message in capsys.readouterr().err
