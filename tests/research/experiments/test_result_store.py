"""Results of jobs are kept whole, found again by what the job is, and refused when damaged."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.learners import LearnerRun

RUN = LearnerRun(data="digits", suite="fast", epsilon=0.1, seeds=(0, 1), steps=10)
OTHER = {
    "data": "mnist",
    "suite": "paper",
    "epsilon": 0.2,
    "seeds": (0, 2),
    "steps": 11,
    "arms": 11,
    "arm_kind": "kmeans",
    "parties": 3,
    "fraction_bits": 21,
    "newton_iterations": 3,
}


def test_a_result_is_found_by_an_equal_job(tmp_path: Path) -> None:
    kept = ResultStore(tmp_path / "runs")
    assert RUN not in kept
    kept.keep(RUN, {"rewards": np.arange(6).reshape(2, 3)}, 1.5, "abc")

    again = ResultStore(tmp_path / "runs")
    assert replace(RUN) in again
    result = again[replace(RUN)]
    np.testing.assert_array_equal(result["rewards"], [[0, 1, 2], [3, 4, 5]])
    assert (result.record.commit, result.record.seconds) == ("abc", 1.5)


@pytest.mark.parametrize("field", [field.name for field in fields(RUN)])
def test_a_job_that_differs_in_any_field_is_another(tmp_path: Path, field: str) -> None:
    kept = ResultStore(tmp_path)
    kept.keep(RUN, {}, 1.0, "abc")
    change: dict[str, Any] = {field: OTHER[field]}
    assert replace(RUN, **change) not in kept


def test_a_damaged_file_is_named_and_not_used(tmp_path: Path) -> None:
    kept = ResultStore(tmp_path)
    kept.keep(RUN, {"rewards": np.zeros(1000)}, 1.0, "abc")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ConfigError, match=f"{path.name} cannot be read: remove it"):
        kept[RUN]


def test_nothing_half_written_lies_about(tmp_path: Path) -> None:
    kept = ResultStore(tmp_path)
    kept.keep(RUN, {"rewards": np.zeros(10)}, 1.0, "abc")
    kept.keep(RUN, {"rewards": np.ones(10)}, 2.0, "def")
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    assert kept[RUN]["rewards"].sum() == 10
