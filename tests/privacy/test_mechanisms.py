"""What a federation may promise over time: how it is configured, and its numbers."""

from __future__ import annotations

from math import log, sqrt
from pathlib import Path
from typing import Any

import pytest

from hiddenarm import ActionBudget, Federation, LocalFederation, NoisyGradient, NoisySums
from hiddenarm.cli.options import MECHANISMS, PRIVACY_OPTIONS
from hiddenarm.errors import ConfigError, HelloError
from hiddenarm.net.hello import compare_hello
from hiddenarm.privacy.mechanisms import Unbounded, make_privacy, mechanism_names, privacy_from_table, privacy_table
from hiddenarm.service.federation_file import FederationFile
from hiddenarm.service.kit import KitFederation

SIZES: dict[str, Any] = {"arms": 3, "features": (2, 2), "epsilon": 0.1}


def test_noise_and_shift_follow_from_the_total() -> None:
    sums = NoisySums(1)
    assert sums.sigma_gram(1) == pytest.approx(5.975, abs=5e-4)
    assert sums.sigma_moment(1) == pytest.approx(2.987, abs=5e-4)
    assert sums.sigma_gram(sqrt(2)) == pytest.approx(2 * sums.sigma_gram(1))
    assert sums.sigma_moment(2) == pytest.approx(2 * sums.sigma_moment(1))
    excess = sqrt(2 * log(10 * 4 * 5 / 1e-6))
    assert sums.shift(4, 0.5, 1, 20, 10) == pytest.approx(0.5 + 2 * sums.sigma_gram(1) * (sqrt(40) + excess))


def test_the_sensitivity_of_both_sums_is_mu() -> None:
    """For |x| = R, r = 1: x x' in units of the noise has squared length R^4 / sW^2, (r - 1/2) x has R^2 / 4 / sb^2."""
    for norm in (0.5, 1.0, 3.0):
        sums = NoisySums(2.0)
        gram, moment = norm**4 / sums.sigma_gram(norm) ** 2, norm**2 / 4 / sums.sigma_moment(norm) ** 2
        assert gram + moment == pytest.approx(sums.mu**2, rel=1e-12)


def test_what_is_lost_about_other_relations() -> None:
    sums = NoisySums(1.0)
    assert sums.epsilon_replaced() == pytest.approx(1.551, abs=5e-4)
    assert sums.epsilon_with_own_action(10, 0.1) == pytest.approx(5.506, abs=5e-4)
    rows = {(2,): 2.123, (1, 1): 1.455, (10,): 13.51, (1,) * 10: 3.525}
    for rows_by_refresh, epsilon in rows.items():
        assert sums.epsilon_of_user(rows_by_refresh) == pytest.approx(epsilon, abs=5e-3)


def test_refreshes_follow_counts() -> None:
    sums = NoisySums(1.0)
    times = [sums.refresh_at(k) for k in range(1, 20)]
    assert times[:4] == [500, 650, 845, 1098]
    assert times[-2:] == [43187, 56143]
    assert [sums.refreshes_by(lessons) for lessons in (0, 499, 500, 649, 650, 60_000)] == [0, 0, 1, 1, 2, 19]
    slow = NoisySums(1.0, first_refresh=1, refresh_ratio=1.0001)
    assert [slow.refresh_at(k) for k in (1, 2, 3)] == [1, 2, 3]  # never twice at one time


def test_mechanisms_are_made_by_name() -> None:
    assert make_privacy("none", {}) == Unbounded()
    made = make_privacy("action-budget", {"total_epsilon": 5, "when_spent": "explore"})
    assert made == ActionBudget(5.0, 1e-6, "explore")
    assert privacy_from_table(privacy_table(made)) == made
    assert str(made) == "action-budget:total_epsilon=5.0,delta=1e-06,when_spent=explore"
    assert tuple(mechanism_names()) == MECHANISMS
    assert len(PRIVACY_OPTIONS) == 1 + len({**made.options, **NoisySums(1).options, **NoisyGradient(1).options})


WRONG = [
    ("noisy-sum", {}, "no privacy mechanism 'noisy-sum'; did you mean noisy-sums"),
    ("noisy-sums", {}, "privacy noisy-sums needs total_epsilon"),
    ("none", {"total_epsilon": 1}, "privacy none has no option 'total_epsilon'; it has no options"),
    ("noisy-sums", {"total_epsilom": 1}, "no option 'total_epsilom'; did you mean total_epsilon"),
    ("noisy-sums", {"total_epsilon": 0}, "total_epsilon must be a positive number"),
    ("noisy-sums", {"total_epsilon": float("inf")}, "total_epsilon must be a positive number"),
    ("noisy-sums", {"total_epsilon": True}, "total_epsilon must be a number"),
    ("noisy-sums", {"total_epsilon": 1, "delta": 1.0}, "delta must lie between"),
    ("noisy-sums", {"total_epsilon": 1, "first_refresh": 0}, "first_refresh must lie in"),
    ("noisy-sums", {"total_epsilon": 1, "first_refresh": 1.5}, "first_refresh must be a whole number"),
    ("noisy-sums", {"total_epsilon": 1, "refresh_ratio": 1}, "refresh_ratio must be above 1"),
    ("noisy-sums", {"total_epsilon": 1, "rows_per_key": 0}, "rows_per_key must lie in"),
    ("action-budget", {"total_epsilon": 1, "when_spent": "stop"}, 'when_spent must be "refuse" or "explore"'),
]


@pytest.mark.parametrize(("name", "options", "problem"), WRONG)
def test_what_is_wrong_is_told(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_privacy(name, options)


# In a federation


def test_all_roles_agree_on_the_mechanism_and_its_options() -> None:
    plain, budget = Federation(**SIZES), Federation(**SIZES, privacy=ActionBudget(50.0))
    assert plain.terms["privacy"] == "none"
    assert budget.terms["privacy"] == "action-budget"
    assert budget.terms["total_epsilon"] == 50.0
    assert budget.terms["when_spent"] == "refuse"
    other = Federation(**SIZES, privacy=ActionBudget(60.0))
    with pytest.raises(HelloError, match=r"'total_epsilon' differs: 50\.0 at party 0, 60\.0 at"):
        compare_hello(budget.terms, other.terms, "party 0", "party 1")
    with pytest.raises(HelloError, match="'privacy' differs"):
        compare_hello(budget.terms, plain.terms, "party 0", "party 1")


def test_a_kit_keeps_it() -> None:
    for federation in (Federation(**SIZES), Federation(**SIZES, privacy=ActionBudget(50.0, 1e-5, "explore"))):
        kit = KitFederation.model_validate_json(KitFederation.of(federation).model_dump_json(exclude_none=True))
        assert kit.federation(federation.max_batch) == federation


def test_what_is_no_mechanism_is_refused() -> None:
    wrong: Any = "noisy-sums"
    with pytest.raises(ConfigError, match=r"privacy must be a mechanism such as NoisySums\(1\.0\), got 'noisy-sums'"):
        Federation(**SIZES, privacy=wrong)


def test_a_local_federation_takes_it() -> None:
    assert LocalFederation(3, [2, 2], 0.1, privacy=ActionBudget(50.0)).federation.privacy == ActionBudget(50.0)


FILE = """
name = "travel"
arms = ["beach", "city"]
epsilon = 0.1
[[party]]
name = "hotel"
features = ["nights"]
host = "192.0.2.1"
port = 7400
[[party]]
name = "airline"
features = ["miles"]
host = "192.0.2.2"
port = 7400
[dealer]
host = "192.0.2.3"
port = 7400
"""


def test_a_federation_file_has_a_table_for_it(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(FILE + '[privacy]\nmechanism = "action-budget"\ntotal_epsilon = 40\n')
    read = FederationFile.read(path)
    for member in read.members:
        assert read.kit_file(member).build_federation().privacy == ActionBudget(40.0)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('mechanism = "noisy-sum"', "line 19: there is no privacy mechanism 'noisy-sum'; did you mean noisy-sums"),
        ("total_epsilon = 1.0", "the name of the privacy mechanism is missing"),
        ('mechanism = "noisy-sums"', "line 19: privacy noisy-sums needs total_epsilon; for example: "),
        ('mechanism = "action-budget"\ntotal_epsilon = "1"', "total_epsilon must be a number, got '1'"),
    ],
)
def test_what_is_wrong_in_the_table_is_told_with_its_line(table: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(FILE + f"[privacy]\n{table}\n")
    with pytest.raises(ConfigError, match=problem):
        FederationFile.read(path)


def test_a_mechanism_that_a_learner_does_not_run_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="suite paper does not run with privacy noisy-sums"):
        Federation(**SIZES, suite="paper", privacy=NoisySums(1.0))
