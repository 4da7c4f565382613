"""`hiddenarm evaluate`: what it reports, and what it refuses before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import hiddenarm_here


def test_values_are_reported_beside_the_true_ones(tmp_path: Path) -> None:
    arguments = ["--steps", 400, "--epsilon", 0.3, "--replicates", 20, "--seed", 2, "--json", tmp_path / "values.json"]
    assert hiddenarm_here("evaluate", *arguments) == 0
    result = json.loads((tmp_path / "values.json").read_text())
    assert result["decisions"] == 400
    assert result["epsilon_openings"] is None
    for name in ("greedy", "uniform", "model"):
        found = result[name]
        assert abs(found["value"] - found["true"]) <= 4 * found["standard_error"], name
    assert result["model"]["true"] > 0.8
    assert abs(result["greedy"]["ratio"] - result["greedy"]["true"]) < 0.02


def test_the_estimator_of_low_variance_is_told_beside_the_other(tmp_path: Path) -> None:
    """Without bias by four standard errors of a seeded run, and with much less deviation, as pi is near the learner."""
    arguments = ["--steps", 300, "--epsilon", 0.3, "--replicates", 20, "--seed", 3, "--json", tmp_path / "values.json"]
    assert hiddenarm_here("evaluate", *arguments, "--estimator", "both") == 0
    result = json.loads((tmp_path / "values.json").read_text())
    usual, low = result["model"], result["model_low_variance"]
    assert low["true"] == usual["true"]
    assert abs(low["value"] - low["true"]) <= 4 * low["standard_error"]
    assert low["standard_error"] < 0.8 * usual["standard_error"]


def test_openings_with_noise_are_added_up(tmp_path: Path) -> None:
    arguments = ["--steps", 250, "--epsilon", 0.3, "--opening-epsilon", 1, "--json", tmp_path / "values.json"]
    assert hiddenarm_here("evaluate", *arguments) == 0
    result = json.loads((tmp_path / "values.json").read_text())
    assert result["decisions"] == 200  # whole windows
    assert 2.0 < result["epsilon_openings"] < 2.5  # four openings of epsilon 1: mu is doubled


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--epsilon", 0], "need an epsilon above 0"),
        (["--policy", "epsilon-schedule"], "need an epsilon above 0"),
        (["--steps", 50], "--steps must be at least --window"),
        (["--window", 1000], "a window has 1 to 256 decisions"),
        (["--opening-epsilon", -1], "--opening-epsilon must lie above 0"),
        (["--json", "no/such/folder.json"], "there is no folder"),
    ],
)
def test_what_cannot_be_evaluated(options: list[object], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("evaluate", *options) == 2
    assert why in capsys.readouterr().err
