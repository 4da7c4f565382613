"""The table of operations: they compute what NumPy computes, between processes too; verdicts follow from numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.material import Seeds
from hiddenarm.paper import rounds
from hiddenarm.research.bench.operations import BITS
from hiddenarm.research.experiments.experiment import Claim, Findings, Setting, Suite
from hiddenarm.research.experiments.jobs import ResultStore
from hiddenarm.research.experiments.linked import measure_linked, program_of
from hiddenarm.research.experiments.operation_times import NAMES, OperationTiming, table_operation, table_operations
from hiddenarm.research.experiments.operations import Operations, argmax_rounds
from hiddenarm.research.experiments.step_times import StepTiming
from hiddenarm.ring.words import decode, encode

FULL = Setting("full", "digits")
SUITES: tuple[Suite, ...] = ("fast", "paper")
ROUNDS: dict[Suite, list[int]] = {"fast": [0, 2, 2, 3], "paper": [0, 2, 45, 33]}
SLOWDOWNS = {"addition": 11, "multiplication": 380, "reciprocal": 6_000, "argmax": 34_000}
EPOCH_KEY = bytes(range(32))


def opened(suite: Suite, name: str, parties: int, inputs: list[np.ndarray]) -> Any:
    """What all parties together find, run in lockstep."""
    text = program_of(table_operation(suite, name, parties, len(inputs[0])))
    seeds, layout = Seeds(EPOCH_KEY), layout_of(text, parties, 1)
    materials = [ProgramMaterial(party, parties, name, layout, seeds.party(party), ahead=1) for party in range(parties)]
    materials[-1].add_corrections(0, ProgramDealer(name, text, layout, seeds, 1).deal(0, 1))
    given = [encode(value[None], BITS) for value in inputs]
    zeros = [np.zeros_like(value) for value in given]
    evaluations = [
        Evaluation(compile_program(text, party, parties), material.take(0), zeros if party else given)
        for party, material in enumerate(materials)
    ]
    return run_lockstep(evaluations)


def summed(results: list[Any]) -> np.ndarray:
    """Shares added up."""
    return np.asarray(np.sum([result.share[0] for result in results], axis=0, dtype=np.uint64))


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("suite", SUITES)
def test_sums_and_argmax_are_those_of_numpy(suite: Suite, parties: int) -> None:
    x, y = np.linspace(1, 1.9, 12)[::-1].copy(), np.linspace(1.05, 1.6, 12)
    total = decode(summed(opened(suite, "addition", parties, [x, y])), BITS)
    assert np.allclose(total, x + y, atol=1e-5)
    if suite == "paper":
        one_hot = summed(opened(suite, "argmax", parties, [x]))
        assert one_hot.tolist() == [1] + [0] * 11


@pytest.mark.parametrize("parties", [2, 3])
def test_the_papers_products_and_reciprocals_are_those_of_numpy(parties: int) -> None:
    x, y = np.linspace(1, 1.9, 12), np.linspace(1.05, 1.6, 12)
    product = decode(summed(opened("paper", "multiplication", parties, [x, y])), BITS)
    assert np.allclose(product, x * y, atol=1e-5)
    inverse = decode(summed(opened("paper", "reciprocal", parties, [x])), BITS)
    assert np.allclose(inverse, 1 / x, atol=1e-3)


def unmasked(results: list[Any]) -> np.ndarray:
    """What is masked, from the masks of all parties."""
    first = results[0]
    value = first.delta.copy()
    for place, part in enumerate(first.parts):
        mask = np.sum([result.parts[place].mask for result in results], axis=0, dtype=np.uint64)
        value -= mask if part.sign is None else mask * part.sign
    return np.asarray(value[0])


@pytest.mark.parametrize("parties", [2, 3])
def test_the_fast_products_and_reciprocals_are_those_of_numpy(parties: int) -> None:
    x, y = np.linspace(1, 1.9, 12), np.linspace(1.05, 1.6, 12)
    product = decode(unmasked(opened("fast", "multiplication", parties, [x, y])), BITS)
    assert np.allclose(product, x * y, atol=1e-5)
    inverse = decode(unmasked(opened("fast", "reciprocal", parties, [x])), BITS)
    assert np.allclose(inverse, 1 / x, atol=2**-15)


@pytest.mark.processes
@pytest.mark.parametrize("suite", SUITES)
def test_operations_really_run_between_processes(suite: Suite) -> None:
    costs = measure_linked(partial(table_operations, suite, 2, 100), 2, 2)
    assert [cost.name for cost in costs] == list(NAMES)
    assert [cost.rounds for cost in costs] == ROUNDS[suite]
    for cost in costs:
        assert cost.private.median > cost.plain.median > 0
        assert (cost.bytes_to_each_peer > 0) == (cost.rounds > 0)


@pytest.mark.processes
def test_three_parties_take_a_round_more_to_compare() -> None:
    costs = measure_linked(partial(table_operations, "paper", 3, 6), 3, 1)
    assert costs[-1].rounds == rounds.argmax(3, 6) == rounds.argmax(2, 6) + 2


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("arms", [10, 100])
def test_argmax_takes_the_rounds_it_declares(parties: int, arms: int) -> None:
    assert argmax_rounds("paper", parties, arms) == rounds.argmax(parties, arms)


def concluded(
    folder: Path,
    *,
    factor: float = 1.0,
    learner: float = 480.0,
    others: float = 0.0,
    fast_rounds: int = 7,
    suites: tuple[Suite, ...] = SUITES,
) -> Findings:
    """What follows if slowdowns are the paper's times a factor, and a step's is `learner`."""
    setting, kept = Setting("full", "digits", suites), ResultStore(folder)
    for job in Operations().jobs(setting):
        if isinstance(job, OperationTiming):
            arrays = operations_made_up(job, factor, others)
        else:
            arrays = step_made_up(job, learner, others, fast_rounds)
        kept.keep(job, {name: np.array(value) for name, value in arrays.items()}, 1.0, "abc")
    return Operations().conclude(setting, kept)


def operations_made_up(job: OperationTiming, factor: float, others: float) -> dict[str, Any]:
    return {
        "names": NAMES,
        "rounds": ROUNDS[job.suite],
        "bytes": [0, 2400, 41600, 4289676],
        "us": [[0.9 * factor * slow / 2, factor * slow / 2, factor * slow] for slow in SLOWDOWNS.values()],
        "others": others,
        "plain_us": [[0.4, 0.5, 0.6]] * 4,
        "many_names": ["addition", "mask"],
        "many_rounds": [0, 1],
        "many_us": [0.02, 0.1],
        "many_plain_us": [0.002, np.nan],
    }


def step_made_up(job: Any, ratio: float, others: float, fast_rounds: int) -> dict[str, Any]:
    assert isinstance(job, StepTiming)
    return {
        "us": [24 * ratio, 25 * ratio, 26 * ratio],
        "plain_us": [24, 25, 26],
        "rounds": 84 if job.suite == "paper" else fast_rounds,
        "rounds_of_decision": 32,
        "bytes": 1,
        "steps": 60,
        "others": others,
    }


def claim(findings: Findings, start: str) -> Claim:
    return next(one for one in findings.claims if one.sentence.startswith(start))


def test_the_table_stands_beside_the_papers(tmp_path: Path) -> None:
    found = concluded(tmp_path)
    table = found.tables[0]
    assert table.header[2:4] == ("rounds: fast suite", "rounds: paper's suite")
    assert table.rows[2] == ("reciprocal", 30, 2, 45, 6_000, 6_000, 6_000)
    assert table.rows[3][:4] == ("argmax", "O(|P| + log2 |A|)", 3, 33)
    assert found.tables[3].rows[1] == ("fast suite", "mask", 1, 0.1, None, None)
    assert ("paper's suite", 100, 33, 35, 37, 39, 41) in found.tables[4].rows


def test_equal_slowdowns_hold_and_rounds_are_what_they_are(tmp_path: Path) -> None:
    found = concluded(tmp_path)
    assert claim(found, "Addition: 0").verdict == claim(found, "Multiplication: 2 comm").verdict == "holds"
    reciprocal = claim(found, "Reciprocal: 30")
    assert reciprocal.verdict == "differs"
    assert "17 rounds" in reciprocal.explanation
    assert "it is 29 here" in reciprocal.explanation
    assert claim(found, "Argmax: O(").verdict == "holds"
    assert all(claim(found, f"{name.capitalize()}: slowdown").verdict == "holds" for name in NAMES)
    assert all(one.verdict == "holds" for one in found.claims if "nearly 500x" in one.sentence)
    assert any("17 + 4 T, which is 45" in remark for remark in found.remarks)
    assert any("33 for N = 2 and A = 100" in remark for remark in found.remarks)


@pytest.mark.parametrize(("factor", "words"), [(5.0, "5.0 times the paper's"), (0.1, "10.0 times less")])
def test_other_slowdowns_differ_with_a_reason(tmp_path: Path, factor: float, words: str) -> None:
    found = concluded(tmp_path, factor=factor, learner=500 * factor)
    for name in NAMES:
        slowdown = claim(found, f"{name.capitalize()}: slowdown")
        assert slowdown.verdict == "differs"
        assert slowdown.explanation.startswith(words)
    fast, paper = (one for one in found.claims if "nearly 500x" in one.sentence)
    assert (fast.verdict, paper.verdict) == ("differs", "differs")
    assert ("in place of the paper's suite's 84" in fast.explanation) == (factor < 1)


def test_a_slowdown_that_holds_by_far_is_explained(tmp_path: Path) -> None:
    found = concluded(tmp_path, factor=0.5, learner=291.0)
    _, paper = (one for one in found.claims if "nearly 500x" in one.sentence)
    assert paper.verdict == "holds"
    assert paper.explanation.startswith(
        "0.58 times the paper's; within a factor of 2 this counts as the same. Less than"
    )
    slowdown = claim(found, "Multiplication: slowdown")
    assert slowdown.verdict == "holds"
    assert slowdown.explanation.startswith("0.50 times the paper's; within a factor of 3 this counts as the same. Two")
    assert all(one.explanation == "" for one in concluded(tmp_path / "equal").claims if "nearly 500x" in one.sentence)


def test_steps_of_an_earlier_protocol_are_marked(tmp_path: Path) -> None:
    marked = "These steps of the fast suite took 10 rounds. They are of an earlier protocol; now a step takes 7 rounds."
    assert not [remark for remark in concluded(tmp_path / "now").remarks if "earlier protocol" in remark]
    found = concluded(tmp_path / "earlier", fast_rounds=10)
    assert [remark for remark in found.remarks if remark.startswith(marked)]


def test_without_the_papers_suite_its_numbers_are_not_checked(tmp_path: Path) -> None:
    found = concluded(tmp_path, suites=("fast",))
    assert claim(found, "Multiplication: 2 comm").verdict == "not checked"
    assert claim(found, "Argmax: slowdown").verdict == "not checked"
    assert claim(found, "Argmax: O(").verdict == "holds"
    assert len(concluded(tmp_path / "paper", suites=("paper",)).claims) == 9


def test_a_busy_machine_leaves_rounds_alone(tmp_path: Path) -> None:
    found = concluded(tmp_path, others=0.6)
    assert claim(found, "Multiplication: 2 comm").verdict == "holds"
    assert claim(found, "Multiplication: slowdown").verdict == "not checked"
    assert {one.verdict for one in found.claims if "nearly 500x" in one.sentence} == {"not checked"}
