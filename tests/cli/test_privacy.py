"""`hiddenarm privacy`: the figures, the words, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError


def run(*arguments: str) -> str:
    done = CliRunner().invoke(commands, ["privacy", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return " ".join(done.output.split())


@pytest.mark.parametrize(("epsilon", "total"), [("0.1", 4263.385), ("0.9", 132.437)])
def test_the_exact_total_of_a_thousand_actions(epsilon: str, total: float, tmp_path: Path) -> None:
    path = tmp_path / "privacy.json"
    asked = ("--arms", "10", "--epsilon", epsilon, "--steps", "1000", "--delta", "1e-6")
    shown = run(*asked, "--json", str(path))
    report = json.loads(path.read_text())
    assert report["epsilon_total"] == pytest.approx(total, abs=1e-3)
    assert report["exact"] is True
    assert report["vacuous"] is True
    assert "vacuous" in shown
    assert f"{total:,.6g}" in shown


def test_noisy_sums_are_not_vacuous(tmp_path: Path) -> None:
    path = tmp_path / "privacy.json"
    asked = ("--epsilon", "0.1", "--steps", "60000", "--privacy", "noisy-sums", "--total-epsilon", "1")
    shown = run(*asked, "--json", str(path))
    report = json.loads(path.read_text())
    assert report["epsilon_total"] == report["epsilon_dropped"] == pytest.approx(1.0)
    assert report["epsilon_replaced"] == pytest.approx(1.551, abs=5e-4)
    assert report["epsilon_with_own_action"] == pytest.approx(5.506, abs=5e-4)
    assert report["epsilon_user"] == pytest.approx(5.0638, abs=5e-4)  # a row in each of 19 refreshes
    assert report["exact"] is False, "a bound of noise is none that some learner attains"
    assert "vacuous" not in shown
    assert "for any number of decisions" in shown


def test_a_budget_says_when_it_is_spent() -> None:
    shown = run("--epsilon", "0.9", "--privacy", "action-budget", "--total-epsilon", "100")
    assert "The budget holds 695 decisions; the other 305 are refused." in shown
    shown = run("--epsilon", "0.9", "--privacy", "action-budget", "--total-epsilon", "100", "--when-spent", "explore")
    assert "the other 305 are explored purely" in shown
    assert "The budget holds" not in run("--epsilon", "0.9", "--privacy", "action-budget", "--total-epsilon", "200")


def test_a_schedule() -> None:
    shown = run("--policy", "epsilon-schedule:initial=1,final=0.5,decay=10", "--steps", "50")
    assert "50 decisions among 10 arms, epsilon-schedule" in shown


@pytest.mark.parametrize("arms", ["10", "60"])
def test_the_actor_together_with_parties_is_covered_with_any_number_of_arms(arms: str) -> None:
    """No order of arms is opened in any mode: docs/threat-model.md."""
    shown = run("--steps", "50", "--arms", arms)
    assert "Not covered by any line above: the dealer together with the actor or a party." in shown
    assert "order of scores" not in shown
    assert "actor together with a party" not in shown


def test_no_exploration_is_infinite() -> None:
    assert "infinite (vacuous)" in run("--epsilon", "0", "--steps", "5")


def test_the_loss_is_drawn_against_the_number_of_decisions(tmp_path: Path) -> None:
    path = tmp_path / "loss.svg"
    run("--steps", "200", "--plot", str(path))
    assert "vacuous from here on" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--steps", "0"), "--steps must lie in"),
        (("--arms", "1"), "at least two arms"),
        (("--delta", "1"), "delta must lie between 0 and 1"),
        (("--total-epsilon", "1"), "--total-epsilon is an option of a mechanism"),
        (("--privacy", "action-budget", "--total-epsilon", "1"), "does not pay for a single decision"),
        (("--plot", "picture.txt"), "cannot tell the picture's format"),
        (("--epsilon", "2"), r"must lie in \[0, 1\]"),
    ],
)
def test_what_is_wrong_is_told(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CliRunner().invoke(commands, ["privacy", *arguments], catch_exceptions=False, standalone_mode=False)


def test_only_the_picture_needs_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hiddenarm.cli.research.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "vacuous" in run("--steps", "10")
    with pytest.raises(ConfigError, match=r"`--plot` needs .*matplotlib"):
        CliRunner().invoke(commands, ["privacy", "--plot", str(tmp_path / "p.png")], catch_exceptions=False)
