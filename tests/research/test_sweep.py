"""A sweep over policies: results as files and frames, and nothing that has ended is run again."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from pandas import read_csv

from hiddenarm.cli.main import commands
from hiddenarm.cli.options import POLICY_FLAGS
from hiddenarm.errors import ConfigError, DataError
from hiddenarm.privacy.mechanisms import ActionBudget, NoisySums
from hiddenarm.research import simulate
from hiddenarm.research.data.tables import read_table_data
from hiddenarm.research.data.task import Task
from hiddenarm.research.results import CURVE_COLUMNS, REPLICATE_COLUMNS
from hiddenarm.research.sweep import Sweep, curves_frame, replicates_frame, results_frame

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
    assert data.earned is not None
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
    assert list(curves.columns) == ["policy", *CURVE_COLUMNS]
    assert len(curves) == 3 * 60
    for run, last in zip(json.loads((out / "results.json").read_text()), frame["reward"], strict=True):
        assert run["curve"]["reward"][-1] == pytest.approx(last)
        assert run["configuration"]["steps"] == 60
        assert run["configuration"]["features"] == [2, 1]


def test_the_spread_over_replicates_as_files_and_frames(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = Sweep(policies=POLICIES[1:], data=table, steps=40, replicates=5).run(out)
    replicates = replicates_frame(out)
    assert list(replicates.columns) == ["policy", *REPLICATE_COLUMNS]
    assert replicates["replicate"].tolist() == [0, 1, 2, 3, 4] * 2
    for name in ("reward", "plain_reward"):
        spread = replicates.groupby("policy", sort=False)[name]
        assert frame[name].tolist() == pytest.approx(spread.mean().tolist())
        assert frame[f"{name}_standard_error"].tolist() == pytest.approx((spread.std(ddof=1) / 5**0.5).tolist())
        last = curves_frame(out).groupby("policy", sort=False)[f"{name}_standard_error"].last()
        assert frame[f"{name}_standard_error"].tolist() == pytest.approx(last.tolist())
    assert frame["reward_standard_error"].min() > 0
    for name, told in (("results", frame), ("replicates", replicates), ("curves", curves_frame(out))):
        with (out / f"{name}.csv").open() as file:
            assert [float(row["reward"]) for row in csv.DictReader(file)] == told["reward"].tolist()
    (alone,) = Sweep(policies=POLICIES[:1], data=table, steps=3).run_missing(tmp_path / "alone")
    assert alone["report"]["reward_standard_error"] is None


def test_a_dataframe_and_a_parquet_file_give_what_the_csv_file_gives(table: Path, tmp_path: Path) -> None:
    frame = read_csv(table)
    frame.to_parquet(tmp_path / "users.parquet")
    found = [
        Sweep(policies=POLICIES[1:2], data=data, steps=40).run(tmp_path / f"out {number}")
        for number, data in enumerate((table, frame, tmp_path / "users.parquet"))
    ]
    assert [one["reward"][0] for one in found] == [found[0]["reward"][0]] * 3
    assert [one["data"][0] for one in found] == [str(table), "DataFrame", str(tmp_path / "users.parquet")]
    frame.loc[3, "label"] = None
    with pytest.raises(DataError, match="DataFrame, row 4: the label is missing"):
        read_table_data(frame)
    frame["hotel.a"] = frame["hotel.a"].astype(object)
    frame.loc[2, "hotel.a"] = None
    with pytest.raises(DataError, match=r"DataFrame, row 3, column 'hotel\.a': not a number"):
        read_table_data(frame)


@pytest.mark.parametrize("content", [None, b"PAR1 and no more"])
def test_what_is_no_parquet_file(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} (cannot be read|is not a Parquet file)"):
        read_table_data(path)


class TestACatalogueOfOnesOwn:
    @pytest.fixture
    def items(self, tmp_path: Path) -> Path:
        """In another order than the arms of the table, and with one that no label names."""
        path = tmp_path / "items.csv"
        path.write_text("name,price,constant\nsea,0.9,0.3\ndesert,0.1,0.3\nbeach,0.4,0.3\ncity,-0.7,0.3\n")
        return path

    def test_its_order_is_that_of_the_arms(self, table: Path, items: Path) -> None:
        task = Task(data=table, arm_table=items)
        plain, (world,) = Task(data=table).worlds()[0], task.worlds()
        assert task.counts == {"parties": 2, "arms": 4, "features": 3}
        names = ("sea", "desert", "beach", "city")
        for step in range(20):
            for arm, name in enumerate(ARMS):
                assert world.reward(step, names.index(name)) == plain.reward(step, arm)
            assert world.reward(step, 1) == 0
        features = task.federation(epsilon=0.1).arm_features
        assert features is not None
        assert features.names == names
        assert features.columns == ("price", "constant")

    def test_a_sweep_learns_one_model_of_it(self, table: Path, items: Path, tmp_path: Path) -> None:
        frame = Sweep(policies=POLICIES[:2], data=table, arm_table=items, steps=40).run(tmp_path / "out")
        assert frame["agreement"].tolist() == [1, 1]
        assert frame["arms"].tolist() == [4, 4]
        assert json.loads((tmp_path / "out" / "results.json").read_text())[0]["configuration"]["arm_columns"] == [
            "price",
            "constant",
        ]

    def test_rewards_of_all_arms(self, items: Path, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        columns = ("beach", "city", "desert", "sea")
        header = ",".join(f"reward.{name}" for name in columns)
        path.write_text(f"p.x,q.y,{header}\n0.5,1,0,0.25,0.5,0.75\n")
        (world,) = Task(data=path, arm_table=items).worlds()
        assert [world.reward(0, arm) for arm in range(4)] == [0.75, 0.5, 0, 0.25]
        path.write_text("p.x,q.y,reward.beach,reward.city\n0.5,1,0,0.25\n")
        with pytest.raises(
            DataError, match=r"t\.csv does not say what 'sea', 'desert' of .*items\.csv would have earned"
        ):
            Task(data=path, arm_table=items).worlds()

    def test_arms_that_it_lacks(self, table: Path, items: Path) -> None:
        items.write_text("name,price\nsea,0.9\ncity,-0.7\n")
        with pytest.raises(DataError, match=r"items\.csv has no row for 'beach', which users\.csv names as arms"):
            Task(data=table, arm_table=items).worlds()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"data": "digits"}, "digits has arms already: give --data FILE.csv with it, or --arm-features"),
            ({"data": "users.csv", "arm_features": 3}, "--arm-features are those of a world"),
        ],
    )
    def test_what_it_does_not_go_with(self, items: Path, options: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            Task(arm_table=items, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"arm_features": 4}, {"arm_columns": 4, "features": [10, 11]}),
        ({"privacy": NoisySums(4.0, first_refresh=10)}, {"total_epsilon": 4.0, "first_refresh": 10}),
        ({"suite": "paper", "fraction_bits": 22, "newton_iterations": 6}, {"suite": "paper", "newton_iterations": 6}),
        ({"fraction_bits": 18, "max_interactions": 5000}, {"fraction_bits": 18, "max_interactions": 5000}),
    ],
)
def test_a_sweep_has_the_options_of_a_simulation(
    options: dict[str, Any], told: dict[str, object], tmp_path: Path
) -> None:
    (run,) = Sweep(policies=POLICIES[1:2], steps=20, **options).run_missing(tmp_path / "out")
    assert {name: run["configuration"][name] for name in told} == told
    assert run["report"]["steps"] == 20


def test_runs_that_spend_their_budget_are_kept(tmp_path: Path) -> None:
    """Each decision costs ln 91, so that the budget is spent after two."""
    budget = ActionBudget(total_epsilon=10)
    (run,) = Sweep(policies=["epsilon-greedy:epsilon=0.1"], steps=20, privacy=budget).run_missing(tmp_path / "out")
    assert run["report"]["steps"] == 2
    assert run["curve"]["step"] == [1, 2]
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1


def test_a_run_of_another_version_is_named(table: Path, tmp_path: Path) -> None:
    sweep = Sweep(policies=POLICIES[:1], data=table, steps=3)
    sweep.run_missing(tmp_path / "out")
    (kept,) = (tmp_path / "out" / "runs").iterdir()
    run = json.loads(kept.read_text())
    del run["by_replicate"]
    kept.write_text(json.dumps(run))
    with pytest.raises(DataError, match=f"{kept} is damaged, or of another version: remove it"):
        sweep.run_missing(tmp_path / "out")


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
        ({"policies": ["linucb:alpha=1"], "parties": 1}, "two parties"),
        ({"policies": ["linucb:alpha=1"], "data": "digits", "fetch": "any"}, "--fetch gets MNIST into the cache"),
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
    for command in ("simulate", "sweep --epsilon 0.1"):
        with pytest.raises(ConfigError, match="has 3 arms: leave out --arms 4"):
            run(*command.split(), "--data", table, "--arms", 4)
    items = tmp_path / "items.csv"
    items.write_text("name,price\nsea,0.9\nbeach,0.4\ncity,-0.7\n")
    run("simulate", "--data", table, "--arm-table", items, "--steps", 10, "--json", tmp_path / "result.json")
    configuration = json.loads((tmp_path / "result.json").read_text())["configuration"]
    assert (configuration["arm_columns"], configuration["world"]) == (["price"], read_table_data(table).name)
    noisy = ("--privacy", "noisy-sums", "--total-epsilon", 4, "--fraction-bits", 18, "--arm-table", items)
    run("sweep", "--out", tmp_path / "noisy", "--data", table, "--epsilon", 0.1, "--steps", 10, *noisy)
    (noise,) = results_frame(tmp_path / "noisy")["privacy"]
    assert noise.startswith("noisy-sums:total_epsilon=4.0")


@pytest.mark.parametrize("command", ["simulate", "sweep"])
def test_mnist_comes_from_where_the_options_say(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    out = ["--out", str(tmp_path / "out"), "--epsilon", "0.1"] if command == "sweep" else []
    for options, words in (([], "not in its cache"), (["--data-dir", str(tmp_path)], f"{tmp_path} has neither")):
        result = CliRunner().invoke(commands, [command, *out, "--data", "mnist", *options])
        assert isinstance(result.exception, DataError)
        assert words in str(result.exception)


def test_a_sweep_has_every_option_of_a_simulation_that_says_what_is_run() -> None:
    """Apart from those of one policy, which a sweep names in a text, and those of how a run is made."""
    own = {option.name for option in commands.commands["sweep"].params}
    shared = {option.name for option in commands.commands["simulate"].params} - own
    assert shared == {*POLICY_FLAGS, "policy", "json_path", "plot_path", "batch", "reward_slot", "state"}
