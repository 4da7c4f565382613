"""`hiddenarm evaluate`: what it reports, and what it refuses before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import hiddenarm_here

from hiddenarm.privacy.gaussian import epsilon_for, mu_for, own_action_epsilon


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
    released = result["privacy"]
    assert (released["epsilon_total"], released["epsilon_dropped"]) == (None, None)
    assert released["vacuous"], "with exploration alone there is no bound once sums are opened"


def test_what_is_opened_adds_to_the_bound_of_noisy_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, however many windows there are: two openings for each, of the policies and of the model. Values are right,
    also after a refresh: the twins have the same noise."""
    arguments = ["--steps", 200, "--epsilon", 0.3, "--replicates", 20, "--seed", 4, "--json", tmp_path / "values.json"]
    noisy = ["--privacy", "noisy-sums", "--total-epsilon", 4, "--first-refresh", 60, "--opening-epsilon", 1]
    assert hiddenarm_here("evaluate", *arguments, *noisy, "--window", 50, "--at-epsilon", 0.05) == 0
    assert "privacy over time" in capsys.readouterr().out
    result = json.loads((tmp_path / "values.json").read_text())
    released, mu = result["privacy"], (mu_for(4.0, 1e-6) ** 2 + 2 * mu_for(1.0, 1e-6) ** 2) ** 0.5
    assert released["epsilon_total"] == released["epsilon_dropped"] == pytest.approx(epsilon_for(mu, 1e-6))
    assert not released["vacuous"]
    with_coin = (mu_for(4.0, 1e-6) ** 2 + 4 * mu_for(1.0, 1e-6) ** 2) ** 0.5
    own = own_action_epsilon(with_coin, 10, 0.3, 1e-6)
    assert released["epsilon_with_own_action"] == pytest.approx(own)
    for name in ("greedy", "uniform", "at_epsilon"):
        found = result[name]
        assert abs(found["value"] - found["true"]) <= 4 * found["standard_error"], name
    mixed = 0.95 * result["greedy"]["value"] + 0.05 * result["uniform"]["value"]
    assert result["at_epsilon"]["value"] == pytest.approx(mixed)
    assert result["at_epsilon"]["true"] == pytest.approx(0.95 * result["greedy"]["true"] + 0.05 * 0.1)


def test_without_noise_there_is_no_bound_and_the_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = ["--privacy", "noisy-sums", "--total-epsilon", 4]
    for chosen in ([], noisy):
        assert hiddenarm_here("evaluate", "--steps", 20, "--window", 20, "--epsilon", 0.3, *chosen) == 0
        assert "no bound (vacuous)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--epsilon", 0], "need an epsilon above 0"),
        (["--policy", "epsilon-schedule"], "need an epsilon above 0"),
        (["--steps", 50], "--steps must be at least --window"),
        (["--window", 1000], "a window has 1 to 256 decisions"),
        (["--opening-epsilon", -1], "--opening-epsilon must lie above 0"),
        (["--at-epsilon", 1.5], "--at-epsilon must lie in [0, 1]"),
        (["--privacy", "action-budget", "--total-epsilon", 100], "action-budget does not go with evaluate"),
        (["--json", "no/such/folder.json"], "there is no folder"),
    ],
)
def test_what_cannot_be_evaluated(options: list[object], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("evaluate", *options) == 2
    assert why in capsys.readouterr().err
