"""A sweep over policies: results as files and frames, and nothing that has ended is run again."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner

from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError, DataError
from hiddenarm.research import simulate
from hiddenarm.research.data.tables import read_table_data
from hiddenarm.research.sweep import Sweep, curves_frame, results_frame

ARMS = ("beach", "city", "sea")
POLICIES = ("epsilon-greedy:epsilon=0", "epsilon-greedy:epsilon=1", "linucb:alpha=0.5")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Each party tells a part of which arm is right."""
    rng, lines = np.random.default_rng(0), ["hotel.a,hotel.b,label,airline.c"]
    for _ in range(120):
        right = int(rng.integers(3))
        a, b, c = 0.8 * np.eye(3)[right] + rng.uniform(-0.05, 0.05, 3)
        lines.append(f"{a:.4f},{b:.4f},{ARMS[right]},{c:.4f}")
    path = tmp_path / "users.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_is_a_world(table: Path) -> None:
    data = read_table_data(table)
    assert (data.parties, data.features, data.arms) == (("hotel", "airline"), (2, 1), ARMS)
    world = data.world(seed=3)
    for step in range(5):
        row = world.row(step)
        right = int(np.argmax(data.contexts[row]))
        assert [world.reward(step, arm) for arm in range(3)] == [float(arm == right) for arm in range(3)]
    assert np.array_equal(world.rewards([0, 1], [1, 2]), [world.reward(0, 1), world.reward(1, 2)])


def test_rewards_of_all_arms_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("p.x,reward.b,q.y,reward.a\n0.5,0.25,1,1\n-0.5,0,0,0.75\n")
    data = read_table_data(tmp_path / "t.csv")
    assert data.arms == ("b", "a")
    assert np.array_equal(data.earned, [[0.25, 1], [0, 0.75]])
    assert np.array_equal(data.contexts, [[0.5, 1], [-0.5, 0]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p.x,q.y,label\n", "has no rows"),
        ("p.x,q.y,label\n1,2\n", "row 2: 2 cells where 3 are due"),
        ("p.x,q.y,label\n1,z,a\n", r"row 2, column 'q\.y': not a number"),
        ("p.x,q.y,label\n1,nan,a\n", "not a finite number"),
        ("p.x,p.y,label\n1,2,a\n", "features of 1 parties"),
        ("p.x,q.y,label\n1,2,a\n", "has 1 arms"),
        ("p.x,q.y,label\n1,2,\n", "row 2: the label is missing"),
        ("p.x,q.y\n1,2\n", "either a column 'label' or columns reward.ARM"),
        ("p.x,q.y,reward.a,label\n1,2,1,a\n", "either a column 'label'"),
        ("p.x,q.y,reward.a,reward.b\n1,2,1,2\n", r"row 2, column 'reward\.b': a reward lies in"),
        ("p.x,p.x,label\n1,2,a\n", "stands there twice"),
        ("x,q.y,label\n1,2,a\n", "'x' is no PARTY.FEATURE"),
    ],
)
def test_tables_that_are_no_worlds(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        read_table_data(tmp_path / "t.csv")


def test_results_of_all_policies_as_files_and_frames(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = Sweep(policies=POLICIES, data=str(table), steps=60, replicates=2).run(out)
    assert len(frame) == 3
    assert frame["agreement"].min() >= 0.99
    assert frame["reward"][2] > frame["reward"][1] + 0.2  # it learns, and pure exploring does not
    with (out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["reward"]) for row in rows] == frame["reward"].tolist()
    curves = curves_frame(out)
    assert list(curves.columns) == ["policy", "step", "reward", "plain_reward"]
    assert len(curves) == 3 * 60
    for run, last in zip(json.loads((out / "results.json").read_text()), frame["reward"], strict=True):
        assert run["curve"]["reward"][-1] == pytest.approx(last)
        assert run["configuration"]["steps"] == 60
        assert run["configuration"]["features"] == [2, 1]


class Interrupted:
    """Interrupts a simulation after some runs."""

    def __init__(self, runs: int) -> None:
        self.left = runs

    def __call__(self, steps: range) -> Iterator[int]:
        self.left -= 1
        return iter(steps if self.left >= 0 else ())


def test_an_interrupted_sweep_goes_on_and_gives_the_same(table: Path, tmp_path: Path) -> None:
    sweep = Sweep(policies=POLICIES, data=str(table), steps=20)
    whole = sweep.run(tmp_path / "whole")
    with patch.object(simulate, "until_interrupted", Interrupted(2)), pytest.raises(KeyboardInterrupt):
        sweep.run(tmp_path / "part")
    kept = {path: path.stat().st_ino for path in (tmp_path / "part" / "runs").iterdir()}
    assert len(kept) == 2
    resumed = sweep.run(tmp_path / "part")
    assert {path: path.stat().st_ino for path in kept} == kept
    columns = [name for name in whole.columns if not name.endswith("us_per_step")]
    assert resumed[columns].equals(whole[columns])
    table.write_text(table.read_text() + "0.1,0.1,city,0.1\n")
    Sweep(policies=POLICIES[:1], data=str(table), steps=20).run(tmp_path / "part")
    assert len(list((tmp_path / "part" / "runs").iterdir())) == 4  # other data, another run
    assert len(results_frame(tmp_path / "part")) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policies": []}, "at least one policy"),
        ({"policies": ["linucb", "linucb"]}, "is there twice"),
        ({"policies": ["nothing"]}, "nothing"),
        ({"policies": ["linucb:alpha=1"], "steps": 0}, "steps must be at least 1"),
    ],
)
def test_sweeps_that_cannot_be(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Sweep(**options)  # type: ignore[arg-type]


def test_the_commands(table: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(commands, [str(argument) for argument in arguments])
        if result.exception is not None:
            raise result.exception
        return result.output

    run("sweep", "--out", tmp_path / "out", "--data", table, "--epsilon", 0.1, "--epsilon", 0.3, "--steps", 10)
    assert [row["policy"] for _, row in results_frame(tmp_path / "out").iterrows()] == [
        "epsilon-greedy:epsilon=0.1",
        "epsilon-greedy:epsilon=0.3",
    ]
    run("simulate", "--data", table, "--steps", 10, "--json", tmp_path / "result.json")
    report = json.loads((tmp_path / "result.json").read_text())
    assert (report["parties"], report["arms"], report["features"], report["data"]) == (2, 3, 3, str(table))
    with pytest.raises(ConfigError, match="has 3 arms: leave out --arms 4"):
        run("simulate", "--data", table, "--arms", 4)
