"""The benches run, count what the programs declare and write what they print; the relay delays and keeps the order."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from hiddenarm.bandit.catalogue import ProgramId, program_text, program_texts
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.main import commands
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.paper import rounds
from hiddenarm.research.bench.operations import measure_operations
from hiddenarm.research.bench.relay import Relay
from hiddenarm.research.bench.session import measure_step
from hiddenarm.research.bench.timing import Effort, Spread, alternate, exponent
from hiddenarm.service.kit import Address

STEP_KEYS = {
    "us_per_step",
    "plain_us_per_step",
    "ratio",
    "rounds_per_step",
    "rounds_per_decision",
    "bytes_per_step_per_party",
}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["bench", *arguments], catch_exceptions=False)


def run_quick(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """What a quick bench prints, and what it writes."""
    path = tmp_path / "bench.json"
    result = invoke(*arguments, "--quick", "--json", str(path))
    assert result.exit_code == 0, result.output
    return result.output, json.loads(path.read_text())


def check_step(figures: dict[str, Any]) -> None:
    assert set(figures) >= STEP_KEYS
    assert figures["ratio"] == pytest.approx(figures["us_per_step"] / figures["plain_us_per_step"])
    assert figures["us_per_step"] > figures["plain_us_per_step"] > 0


def test_step_counts_rounds_and_says_where_the_time_goes(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "step")
    check_step(figures)
    assert (figures["rounds_per_decision"], figures["rounds_per_step"]) == (3, pytest.approx(7, abs=0.02))
    assert "peer ready" not in output
    assert "run 1 of" not in output
    assert figures["median_ratio"] == figures["ratio"] == figures["runs"][0]["ratio"]
    for part in ("randomness", "local work", "serialising", "waiting"):
        assert part in output
    parts = figures["breakdown"]
    assert all(value >= 0 for value in parts.values())
    assert sum(parts.values()) == pytest.approx(figures["us_per_step"], rel=1e-6) or parts["waiting_us"] == 0


@pytest.mark.parametrize(("name", "options"), [("step", ["--arms", "4"]), ("batch", ["--batch", "10"])])
def test_of_several_runs_each_is_printed_and_their_median_ratio_written(
    name: str, options: list[str], tmp_path: Path
) -> None:
    output, figures = run_quick(tmp_path, name, *options, "--runs", "3")
    check_step(figures)
    ratios = [run["ratio"] for run in figures["runs"]]
    assert [f"run {number} of 3: private" in output for number in (1, 2, 3)] == [True] * 3
    assert figures["median_ratio"] == figures["ratio"] == sorted(ratios)[1]
    assert f"Median ratio of 3 runs: {figures['median_ratio']:,.1f}" in output
    assert [run["us_per_step"] / run["plain_us_per_step"] for run in figures["runs"]] == pytest.approx(ratios)


def test_arms_are_fitted_and_drawn(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "arms", "--plot", str(tmp_path / "arms.png"))
    assert [point["arms"] for point in figures["points"]] == [10, 40, 80]
    for point in figures["points"]:
        check_step(point)
    assert isinstance(figures["exponent_from_40"], float)
    assert "arms^" in output
    assert (tmp_path / "arms.png").read_bytes().startswith(b"\x89PNG")


def test_one_model_of_all_arms_is_measured_beside_a_model_for_each(tmp_path: Path) -> None:
    """What learning costs does not depend on the arms; eligible ones cost what they cost."""
    output, figures = run_quick(tmp_path, "arms", "--arm-features", "3", "--plot", str(tmp_path / "arms.png"))
    assert [point["arms"] for point in figures["points"]] == [10, 40, 80]
    assert figures["learning_depends_on_arms"] is False
    learning = [point["shared_model"]["learn"] for point in figures["points"]]
    for count in ("rounds", "bytes_per_party", "dealt_words"):
        assert len({part[count] for part in learning}) == 1, count
        alone = [point["model_per_arm"]["learn"][count] for point in figures["points"]]
        assert count == "rounds" or alone == sorted(set(alone)), count
    for point in figures["points"]:
        shared, per_arm = point["shared_model"], point["model_per_arm"]
        for step in (shared, per_arm):
            assert step["us_per_step"] == pytest.approx(step["decide"]["us"] + step["learn"]["us"])
            assert step["rounds_per_step"] == step["decide"]["rounds"] + step["learn"]["rounds"]
        assert point["shared_over_per_arm"] == pytest.approx(shared["us_per_step"] / per_arm["us_per_step"])
    eligible = figures["eligible"]
    assert (eligible["eligible"], eligible["arms"]) == (40, 80)
    assert eligible["decide_of_many"]["rounds"] == eligible["decide_of_few"]["rounds"] == 4
    assert eligible["learn_of_many"]["dealt_words"] == eligible["learn_of_few"]["dealt_words"]
    assert eligible["decide_of_many"]["dealt_words"] < 1.5 * eligible["decide_of_few"]["dealt_words"]
    assert "40 eligible arms of 80" in output
    assert (tmp_path / "arms.png").read_bytes().startswith(b"\x89PNG")


def test_arm_features_belong_to_the_fast_suite() -> None:
    with pytest.raises(ConfigError, match="--arm-features belongs to suite fast"):
        invoke("arms", "--arm-features", "3", "--suite", "paper", "--quick")


def test_bytes_grow_with_the_number_of_other_parties(tmp_path: Path) -> None:
    _, figures = run_quick(tmp_path, "parties", "--plot", str(tmp_path / "parties.svg"))
    assert [point["parties"] for point in figures["points"]] == [2, 3]
    assert figures["bytes_exponent_by_peers"] == pytest.approx(1, abs=0.1)
    assert figures["bytes_exponent"] > figures["bytes_exponent_by_peers"]
    assert (tmp_path / "parties.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.timed
def test_a_decision_takes_five_delays_and_a_step_ten(tmp_path: Path) -> None:
    # What is less than the design cannot be; above it there is local time, of which a busy machine may take a lot.
    _, figures = run_quick(tmp_path, "wan", "--delay-ms", "30")
    check_step(figures)
    assert 5 <= figures["decision_delays"] < 7
    assert 9.9 <= figures["step_delays"] < 13
    assert 11 <= figures["learned_delays"] < 14
    assert figures["decision_delays_less_local"] < figures["decision_delays"]


def test_operations_declare_their_costs(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "ops")
    costs = {cost["name"]: cost for cost in figures["operations"]}
    declared = {name: (cost["rounds"], cost["bytes_to_each_peer"]) for name, cost in costs.items()}
    assert declared["add"] == (0, 0)
    assert declared["mask"] == (1, 8)
    assert declared["multiply"] == (1, 16)
    assert declared["three-factor form"] == (1, 24)
    assert declared["truncate"] == (1, 8)
    assert declared["compare, opened"] == (3, pytest.approx(10.125, abs=0.01))
    assert declared["argmax of 10"][0] == 3
    assert costs["mask"]["ratio"] is None
    assert all(cost["us"] > 0 and cost["name"] in output for cost in costs.values())


def test_operations_of_the_papers_suite(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "ops", "--suite", "paper", "--replicates", "100")
    costs = {cost["name"]: cost for cost in figures["operations"]}
    assert {name: cost["rounds"] for name, cost in costs.items()} == {
        "addition": rounds.ADDITION,
        "multiplication": rounds.MULTIPLICATION,
        "reciprocal": rounds.reciprocal(7),
        "comparison": rounds.comparison(2),
        "argmax of 10": rounds.argmax(2, 10),
        "argmax of 100": rounds.argmax(2, 100),
    }
    assert (costs["addition"]["bytes_to_each_peer"], costs["multiplication"]["bytes_to_each_peer"]) == (0, 24)
    assert all(cost["us"] > 0 and cost["ratio"] > 0 and name in output for name, cost in costs.items())
    assert "paper suite" in output


def test_operations_are_measured_without_a_console(capsys: pytest.CaptureFixture[str]) -> None:
    costs = measure_operations("paper", parties=3, replicates=2, repeats=1, newton_iterations=2)
    assert {cost.name: cost.rounds for cost in costs}["reciprocal"] == rounds.reciprocal(2)
    assert {cost.name: cost.rounds for cost in costs}["argmax of 100"] == rounds.argmax(3, 100)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("suite", "expected"), [("fast", pytest.approx(7, abs=0.05)), ("paper", rounds.decide(2, 4) + rounds.learn(1))]
)
def test_a_step_of_a_suite_is_measured_without_a_console(suite: str, expected: int) -> None:
    iterations = 1 if suite == "paper" else None
    point = measure_step(suite, parties=2, arms=4, features=4, steps=6, seconds=1.0, newton_iterations=iterations)
    figures = point.as_dict()
    check_step(figures)
    assert (figures["suite"], figures["arms"], figures["rounds_per_step"]) == (suite, 4, expected)


def test_a_step_of_the_papers_suite(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "step", "--suite", "paper", "--arms", "4", "--newton-iterations", "2")
    check_step(figures)
    expected = (rounds.decide(2, 4), rounds.decide(2, 4) + rounds.learn(2))
    assert (figures["rounds_per_decision"], figures["rounds_per_step"]) == expected
    assert "paper suite" in output
    assert figures["breakdown"]["randomness_us"] > 0


def test_dealing_in_the_papers_suite(tmp_path: Path) -> None:
    _, figures = run_quick(tmp_path, "dealer", "--suite", "paper", "--arms", "4")
    check_step(figures)
    assert figures["suite"] == "paper"
    assert figures["dealer_us_per_step"] > 0


def test_the_papers_suite_has_no_batches() -> None:
    with pytest.raises(ConfigError, match="--suite paper learns from one reward at a time"):
        invoke("batch", "--suite", "paper")


@pytest.mark.parametrize("name", ["step", "batch", "arms", "parties", "wan", "ops", "dealer"])
def test_newton_iterations_belong_to_the_papers_suite(name: str) -> None:
    with pytest.raises(ConfigError, match="newton_iterations belong to suite paper"):
        invoke(name, "--newton-iterations", "3")


def test_a_dealer_keeps_its_memory(tmp_path: Path) -> None:
    _, figures = run_quick(tmp_path, "dealer")
    check_step(figures)
    assert figures["ratio_to_online"] == pytest.approx(figures["dealer_us_per_step"] / figures["us_per_step"])
    assert [reading["steps"] for reading in figures["memory"]][-1] >= 2000
    # One batch of corrections in flight is 4 MB; nothing else may come and go.
    assert abs(figures["memory_growth_mb"]) < 20
    assert "dealt_bytes_per_interaction" not in figures


def test_what_a_dealer_sends_is_counted(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "dealer", "--batch", "20")
    federation = Federation(arms=10, features=(10, 10), epsilon=0.1)
    step = sum(layout_of(text, 2, 1).correction_words for text in program_texts(federation).values())
    programs = [ProgramId(name, 20) for name in ("decide", "gather", "solve")]
    batch = sum(layout_of(program_text(federation, program), 2, 1).correction_words for program in programs)
    assert figures["dealt_bytes_per_step"] == 8 * step
    assert figures["dealt_bytes_per_interaction"] == 8 * batch / 20
    assert f"{8 * step:,}" in output
    with pytest.raises(ConfigError, match="--suite paper learns from one reward at a time"):
        invoke("dealer", "--suite", "paper", "--batch", "20")


def test_all_benches_are_listed_and_none_works_at_import() -> None:
    benches = commands.commands["bench"]
    assert isinstance(benches, click.Group)
    assert {"step", "arms", "parties", "wan", "ops", "dealer"} <= set(benches.commands)
    code = "import sys, hiddenarm.cli.main; sys.exit('hiddenarm.research.bench.timing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [("arms", "--arms", "ten"), ("step", "--steps", "0"), ("parties", "--parties", "2;3"), ("step", "--runs", "0")],
)
def test_sizes_that_are_none_are_refused(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments).exit_code == 2


def test_a_delay_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="delay"):
        invoke("wan", "--delay-ms", "0")


def test_a_picture_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.gif"):
        invoke("arms", "--plot", str(tmp_path / "arms.gif"))


# Timing


def test_blocks_alternate_and_the_first_is_not_counted() -> None:
    order: list[str] = []

    def work(name: str, steps: int) -> float:
        order.append(name)
        return len(order) * steps * 1e-6

    works = [partial(work, name) for name in "ab"]
    one, other = alternate(Effort(block=5, blocks=3, seconds=60), works)
    assert order == list("abababab")
    assert (one.median, other.median) == pytest.approx((5, 6))


def test_time_ends_the_measuring_but_not_before_two_blocks() -> None:
    calls: list[int] = []

    def work(steps: int) -> float:
        calls.append(steps)
        return 1.0

    alternate(Effort(block=1, blocks=50, seconds=0), [work])
    assert len(calls) == 3


def test_steps_are_spread_over_blocks() -> None:
    assert Effort.of(400, 1.0) == Effort(10, 40, 1.0)
    assert Effort.of(1, 1.0) == Effort(1, 2, 1.0)


def test_quartiles_and_exponents() -> None:
    assert Spread.of([1, 2, 3, 4, 5]) == Spread(3, 2, 4)
    assert exponent([1, 10, 100], [3, 300, 30_000]) == pytest.approx(2)


# The relay


def test_the_relay_delays_both_ways_and_keeps_the_order() -> None:
    delay = 0.05
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(delay)
        address = relay.route(Address(host="127.0.0.1", port=server.getsockname()[1]))
        with relay, socket.create_connection((address.host, address.port)) as near:
            far = server.accept()[0]
            for source, target in ((near, far), (far, near)):
                took = [_seconds_until(source, target) for _ in range(10)]
                assert delay <= min(took) < 3 * delay  # on a busy machine any of them may be later, but not all
            _check_order(near, far)


def _seconds_until(source: socket.socket, target: socket.socket) -> float:
    start = time.perf_counter()
    source.sendall(b"ping")
    assert target.recv(4) == b"ping"
    return time.perf_counter() - start


def _check_order(near: socket.socket, far: socket.socket) -> None:
    """More than the kernel's buffers hold, then the end of the stream."""
    sent = bytes(range(256)) * 40_000

    def talk() -> None:
        near.sendall(sent)
        near.shutdown(socket.SHUT_WR)

    speaker = threading.Thread(target=talk)
    speaker.start()
    received = bytearray()
    while chunk := far.recv(1 << 20):
        received += chunk
    speaker.join()
    assert received == sent


def test_batch_counts_rounds_for_each_interaction(tmp_path: Path) -> None:
    output, figures = run_quick(tmp_path, "batch", "--batch", "20")
    check_step(figures)
    assert figures["batch"] == 20
    assert figures["rounds_per_decision"] == 4 / 20
    assert figures["rounds_per_step"] < 3
    assert "batches of 20" in output
