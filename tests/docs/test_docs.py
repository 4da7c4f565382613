"""The documents say what is true: their examples run, their links lead somewhere, their tables are recomputed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from inspect import isgeneratorfunction
from math import exp, log, log2, sqrt
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import click
import numpy as np
import pytest

import hiddenarm.bandit.federation
from deployment import PATIENCE, neighbouring_ports
from hiddenarm.bandit import programs
from hiddenarm.bandit.batches import FULL
from hiddenarm.bandit.catalogue import (
    DECIDE,
    DECIDE_ONE,
    GATHER,
    INVERT,
    INVERT_BOOSTED,
    INVERT_LAST,
    LEARN,
    LEARN_ONE,
    REPAIR,
    SOLVE,
    STEP,
    STEP_ONE,
    UNLEARN,
    ProgramId,
    program_text,
    program_texts,
)
from hiddenarm.bandit.decisions import MAX_PENDING, DecisionIds, decision_number
from hiddenarm.bandit.federation import DEFAULT_INTERACTIONS, MAX_THREE_ROUND_WORDS, PAYLOAD_ARMS, Federation
from hiddenarm.bandit.fitting import MAX_RECIPROCAL_WORDS, truncated_values
from hiddenarm.bandit.planning import TOLERANCE, batch_plan, boosted_repair, largest_entry, last_repair, repair_plan
from hiddenarm.bandit.policies import parse_policy, policy_names
from hiddenarm.bandit.schedule import GATHERED_AT_ONCE, LEARNED_AGAIN, REPAIR_LAG, RidgeSchedule
from hiddenarm.cli.main import commands
from hiddenarm.cli.request_lines import MAX_LINE_BYTES, max_line_bytes
from hiddenarm.errors import ConfigError, DecisionIdError
from hiddenarm.mpc import payloads
from hiddenarm.mpc.comparison import MAX_BITS
from hiddenarm.mpc.compiled import CompiledProgram
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.evaluation import compile_program
from hiddenarm.mpc.lookup import reciprocal_shape
from hiddenarm.mpc.material import Layout
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.net import answers, transport
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.transport import Limits
from hiddenarm.research import local_roles
from hiddenarm.research.bench import operations, session
from hiddenarm.research.data.fetch import SOURCES
from hiddenarm.ring._kernels import OPERATIONS
from hiddenarm.roles import messages
from hiddenarm.roles.epochs.plan import INITIAL, UNSPENT, Plan
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import MAX_KEY_BYTES, Kind
from hiddenarm.roles.party_epoch import LESSON_SECONDS, NO_FEATURES, Links, PartyEpoch, Setup
from hiddenarm.roles.runs import MAX_WAITING
from hiddenarm.roles.stock import BATCHES_IN_STOCK, stock_steps
from hiddenarm.roles.supply import CompiledPrograms
from hiddenarm.roles.updater import KEPT_VERSIONS, Lesson, LessonEnded
from hiddenarm.service import process
from hiddenarm.service.application import ANSWER_SECONDS
from hiddenarm.service.kit import KitFile
from support import FourRoundFederation

ROOT = Path(__file__).parents[2]
DEPLOYING = ROOT / "docs" / "deploying.md"
"""Needs a network of its own: `test_deploying` runs it."""
HTTP = ROOT / "docs" / "http.md"
"""Starts roles at ports of its own: `test_http_page` runs it."""
RUN = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").glob("*.md")) if path not in (DEPLOYING, HTTP))]
ALL = [*RUN, DEPLOYING, HTTP, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
PROTOCOLS = (ROOT / "docs" / "protocols.md").read_text()
THREATS = (ROOT / "docs" / "threat-model.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
PYTHON = (ROOT / "docs" / "python.md").read_text()
REPRODUCING = (ROOT / "docs" / "reproducing.md").read_text()
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text()

SMALL_COMMANDS = (
    "provision",
    "request",
    "approve",
    "install",
    "change",
    "adopt",
    "check",
    "status",
    "export",
    "import",
    "recover",
)
"""They share a table."""
EXAMPLE_PORT = 7400
SHELLS = ("console", "bash")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE = re.compile(r"make (\w+)")


# Examples


@pytest.mark.processes
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.name)
def test_every_example_runs(path: Path, tmp_path: Path) -> None:
    """The blocks of a document are run in order, in one folder, so that later ones may use what earlier ones made."""
    port = str(neighbouring_ports(3)[0])
    for language, block in BLOCK.findall(path.read_text()):
        block = block.replace(str(EXAMPLE_PORT), port)
        if language == "python":
            _run([sys.executable, "-c", block], tmp_path)
        elif language in SHELLS and (script := _script(block)):
            _run(["bash", "-e", "-c", script], tmp_path)
    if path.name == "commands.md":
        _check_what_the_demo_counted(json.loads((tmp_path / "demo.json").read_text()))


def _check_what_the_demo_counted(report: dict[str, Any]) -> None:
    stated = re.search(r"about ([\d,]+)\s+bytes\s+per\s+step", README)
    assert stated is not None
    assert report["bytes_per_step_per_party"] == pytest.approx(int(stated[1].replace(",", "")), rel=0.002)
    assert (report["rounds_per_decision"], report["rounds_per_step"]) == (3, pytest.approx(7, abs=0.01))


@pytest.mark.processes
def test_the_readme_states_what_simulate_prints(tmp_path: Path) -> None:
    """As many steps as it says: some of them add what was learned to the sums."""
    stated = re.search(r"`hiddenarm simulate --steps (\d+)`\s+prints", README)
    assert stated is not None
    _run(["hiddenarm", "simulate", "--steps", stated[1], "--json", "simulated.json"], tmp_path)
    report = json.loads((tmp_path / "simulated.json").read_text())
    for row, key in (
        ("rounds per decision", "rounds_per_decision"),
        ("rounds per step (decide and learn)", "rounds_per_step"),
    ):
        assert f"| {row} | {report[key]:,.6g} |" in README


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_make_target_in_an_example_exists(path: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [
        target
        for language, block in BLOCK.findall(path.read_text())
        if language in SHELLS
        for target in MAKE.findall(block)
    ]
    assert set(named) <= targets


def test_the_readme_begins_with_one_paragraph_and_the_two_commands() -> None:
    title, paragraph, *rest = README.split("\n\n")
    assert title == "# hiddenarm"
    assert not paragraph.startswith(("#", "```", "|", "-"))
    assert rest[0] == "```console\n$ make demo\n$ make test\n```"


def test_the_costs_on_the_first_screen_are_those_of_the_figures() -> None:
    rows = _table(README, "one step by", *[None] * 5)
    plain, ours, batch, paper, mpyc, spu = (row[2:5] for row in rows)
    figures = dict(row[1:] for row in _table(PERFORMANCE.split("## Figures")[1], "command", "what", "value"))
    rounds, sent = figures["rounds per decision, rounds per step"].split(", ")[1], "bytes per step sent by a party"
    assert ours[:2] == [rounds, figures[sent]]
    assert f"median {ours[2].removesuffix(' x plain')}" in figures["ratio, over five runs"]
    assert plain[2] in figures["private step, plain step, in the run with the median ratio"]
    in_all = figures["rounds per interaction to decide, in all (batches of 100)"].split(", ")[1]
    assert batch == [in_all, figures["bytes per interaction sent by a party"], f"{figures['ratio']} x plain"]
    columns = "parties", "arms", "rounds to decide", "rounds to learn", sent
    two_parties = _table(PERFORMANCE.split("### The paper's suite")[1], *columns)[0]
    assert paper[:2] == [str(int(two_parties[2]) + int(two_parties[3])), two_parties[4]]
    slower = re.search(r"Its own protocol takes (\d+) times a plain step .* takes (\d+) times\.", _flat(REPRODUCING))
    assert slower is not None
    assert paper[2] == f"{slower[1]} x plain"
    assert rows[3][5].endswith(f"in which hiddenarm took {slower[2]} x")
    peers = {row[0]: row[1:] for row in _table(PERFORMANCE, "", "time of a step", "over ours")}
    for row, stated in zip(rows[4:], (mpyc, spu), strict=True):
        assert stated[2] == f"{peers[row[0]][1].split()[0]} x hiddenarm"
    took = re.search(r"when a step of ours took (\w+) rounds: median", _flat(PERFORMANCE))
    assert took is not None
    ours_then = peers["hiddenarm, 2 parties and dealer"][0]
    assert rows[4][5].startswith(f"when a step of ours took {took[1]} rounds, {ours_then};")


def test_the_readme_has_one_number_of_bytes_for_a_step(layouts: dict[str, Layout]) -> None:
    """Of whole frames: that of the payload, which `simulate` prints, is less and not on the page."""
    figures = dict(row[1:] for row in _table(PERFORMANCE.split("## Figures")[1], "command", "what", "value"))
    sent, payload = figures["bytes per step sent by a party"], layouts[STEP].bytes_to_each_peer(0)
    assert f"about {sent} bytes per step" in _flat(README)
    assert f"{payload:,}" not in README
    assert payload < int(sent.replace(",", "")) < 1.02 * payload


def _script(block: str) -> str:
    """The commands of a block, without prompts, output and calls of make."""
    lines = block.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return "\n".join(line for line in lines if not MAKE.match(line))


def _run(command: list[str], folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


# Links


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(path.read_text())):
        assert "://" not in link, f"{link}: the documents link to each other only"
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.is_file(), link
        assert not anchor or anchor in _anchors(target.read_text()), link


def test_the_readme_lists_every_document_once() -> None:
    listed = re.findall(r"\]\((docs/[\w-]+\.md)\)", README.split("## Documents")[1])
    assert sorted(listed) == sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))


def test_the_pages_on_policies_have_all_of_them_with_options_that_commands_take() -> None:
    page = _table((ROOT / "docs" / "adding-a-policy.md").read_text(), "name", "options", "chooses")
    assert sorted(row[0].strip("`") for row in page) == policy_names()
    options = _table((ROOT / "docs" / "policies.md").read_text(), "`--policy`", "chooses")
    assert sorted(parse_policy(row[0].strip("`")).name for row in options) == policy_names()


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_running_text_is_wrapped(path: Path) -> None:
    if path.name != "CHANGELOG.md":
        lines = BLOCK.sub("", path.read_text()).splitlines()
        assert not [line for line in lines if len(line) > 120 and not line.startswith(("|", "    "))]


def test_every_source_cited_is_listed() -> None:
    body, sources = PROTOCOLS.split("## Sources")
    listed = set(re.findall(r"^- \[([\w-]+)\]", sources, re.MULTILINE))
    assert set(re.findall(r"\[([A-Z][\w-]*\d\d)\]", body)) | {"HKSM", "RFC5869", "SP800-38A"} == listed


def test_every_file_named_exists() -> None:
    package = ROOT / "src" / "hiddenarm"
    for path in ALL:
        for name in re.findall(r"`(\w+(?:/\w+)+\.(?:py|c)|errors\.py)`", path.read_text()):
            folder = ROOT if name.startswith(("tests/", "benchmarks/")) else package
            assert (folder / name).is_file(), f"{path.name}: {name}"
        for name in re.findall(r"\bpython (\w+/\w+\.py)", path.read_text()):
            assert (ROOT / name).is_file(), f"{path.name}: {name}"
        for name in re.findall(r"\bpython -m ([\w.]+)", path.read_text()):
            module = ROOT / name.replace(".", "/")
            assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), f"{path.name}: {name}"


def test_every_small_benchmark_is_listed() -> None:
    listed = {re.sub(r".*benchmarks[./](\w+?)(\.py| COMMIT)?`", r"\1", row[0]) for row in _smaller_benchmarks()}
    folders = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    assert listed == folders | {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")}


def _smaller_benchmarks() -> list[list[str]]:
    return _table(PERFORMANCE, "command", "what it compares")


def test_the_layers_are_the_folders_and_import_what_the_table_says() -> None:
    rows = _table(ARCHITECTURE, "folder", "what it is", "imports")
    folders = {path.parent.name for path in (ROOT / "src" / "hiddenarm").glob("*/__init__.py")}
    assert {row[0].strip("`/") for row in rows} == folders
    for folder, _, imports in rows:
        name = folder.strip("`/")
        allowed = folders if imports == "all of the above" else {name, *re.findall(r"`(\w+)`", imports)}
        assert _imports(name) <= allowed | {"errors", "options", "files"}


def _imports(folder: str) -> set[str]:
    texts = [path.read_text() for path in (ROOT / "src" / "hiddenarm" / folder).rglob("*.py")]
    return {name for text in texts for name in re.findall(r"^\s*(?:from|import) hiddenarm\.(\w+)", text, re.MULTILINE)}


def _prose(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", BLOCK.sub("", text))


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# The command line


BENCHES = cast(click.Group, commands.commands["bench"])
assert isinstance(BENCHES, click.Group)


def _section(name: str) -> str:
    section = re.search(rf"^## hiddenarm {name}.*?(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    assert section is not None
    return section[0]


@pytest.mark.parametrize("name", sorted({*commands.commands} - {"bench", *SMALL_COMMANDS}))
def test_documented_options_are_those_of_the_command(name: str) -> None:
    section = _section(name)
    rows = _table(section, "option", "default", "") if "| option |" in section else []
    documented = {row[0].strip("`"): row[1] for row in rows}
    parameters = commands.commands[name].params
    options = [option for option in parameters if isinstance(option, click.Option) and not option.hidden]
    shown = commands.commands[name].get_help(click.Context(commands.commands[name]))
    assert {*documented, "--help"} == set(re.findall(r"^ +(?:-h, )?(--[\w-]+)", shown, re.MULTILINE))
    assert documented == {option.opts[0]: _default(option) for option in options}


def test_documented_options_of_the_small_commands() -> None:
    rows = {row[0].strip("`").split()[0]: row[1] for row in _table(COMMANDS, "command", "what it does")}
    assert tuple(rows) == SMALL_COMMANDS
    for name, what in rows.items():
        options = {option.opts[0] for option in commands.commands[name].params if isinstance(option, click.Option)}
        assert set(re.findall(r"`(--[\w-]+)`", what)) == options, name


def test_documented_sources_of_mnist_are_those_there_are() -> None:
    (row,) = [row for row in _table(_section("simulate"), "option", "default", "") if row[0] == "`--fetch`"]
    assert set(SOURCES) == set(re.findall(r"`(\w+)`", row[2].partition("`--data mnist`:")[2]))


def test_documented_benches_are_those_of_the_command() -> None:
    short = _table(_section("bench"), "bench", "what it measures")
    assert [row[0].strip("`") for row in short] == list(BENCHES.commands)
    whole = _table(PERFORMANCE, "command", "what it measures", None)
    assert [row[0].strip("`") for row in whole] == [f"hiddenarm bench {name}" for name in BENCHES.commands]
    options = {name: {opt for p in bench.params for opt in p.opts} for name, bench in BENCHES.commands.items()}
    assert all({"--json", "--quick"} <= given for given in options.values())
    assert {name for name, given in options.items() if "--plot" in given} == {"arms", "parties"}
    for row in whole:
        assert set(re.findall(r"`(--[\w-]+)", row[1])) <= options[row[0].split()[-1].strip("`")]


def _default(option: click.Option) -> str:
    return str(option.default) if option.show_default else ""


# Costs


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(arms=10, features=(10, 10), epsilon=0.1)


@pytest.fixture(scope="module")
def layouts(federation: Federation) -> dict[str, Layout]:
    return {name: _layout(federation, name, 1) for name in (DECIDE, LEARN, STEP)}


def _layout(federation: Federation, name: str, count: int) -> Layout:
    return layout_of(program_text(federation, ProgramId(name, count)), federation.parties, 1)


@pytest.mark.parametrize(
    ("name", "count"), [(DECIDE, 1), (LEARN, 1), (STEP, 1), (GATHER, 100), (SOLVE, 100), (UNLEARN, 1)]
)
def test_rounds_and_bytes_of_a_program(name: str, count: int, federation: Federation) -> None:
    _check_table_of_rounds(_layout(federation, name, count), PROTOCOLS.split(f"\n### {name}\n")[1], "round")


def _check_table_of_rounds(layout: Layout, text: str, column: str) -> None:
    *rows, total = _table(text, column, "opened", "bytes")
    sent = [sizes[0] for sizes in layout.round_bytes]
    done = 0
    for rounds, _, size in rows:
        first, _, last = rounds.partition(" to ")
        assert int(first) == done + 1
        done = int(last or first)
        assert int(size) == sum(sent[int(first) - 1 : done])
    assert done == layout.rounds
    assert total[0] == "all"
    assert int(total[2]) == sum(sent) == layout.bytes_to_each_peer(0)


def test_a_decision_of_four_rounds(federation: Federation) -> None:
    other = FourRoundFederation(**{field.name: getattr(federation, field.name) for field in fields(federation)})
    four = _layout(other, DECIDE, 1)
    _check_table_of_rounds(four, PROTOCOLS, "round, when four")
    three, words = _layout(federation, DECIDE, 1).correction_words, four.correction_words
    protocols, performance = _flat(PROTOCOLS), _flat(PERFORMANCE)
    assert f"A decision of four rounds deals {words} words in place of {three}" in protocols
    assert f"for {three:,} words dealt in place of {words:,}" in performance


def test_where_a_decision_takes_more_rounds(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    protocols, readme = _flat(PROTOCOLS), _flat(README)
    assert f"at most {MAX_THREE_ROUND_WORDS} words, 64 KiB: up to 19 arms" in protocols
    assert f"Up to {PAYLOAD_ARMS} arms the winner is found by" in protocols
    assert f"from 20 arms on a decision takes 4, with more than {PAYLOAD_ARMS} arms more" in readme
    arms = (19, 20, PAYLOAD_ARMS, PAYLOAD_ARMS + 1)
    found = [replace(federation, arms=number) for number in arms]
    assert [other.decides_in_three_rounds for other in found] == [True, False, False, False]
    assert [other.decides_by_payloads for other in found] == [True, True, True, False]
    columns = "arms", "rounds", "words dealt", "rounds in a shuffle", "words dealt in a shuffle"
    rows = _table(PROTOCOLS, *columns)
    here = [_layout(replace(federation, arms=int(row[0])), DECIDE, 1) for row in rows]
    monkeypatch.setattr(hiddenarm.bandit.federation, "PAYLOAD_ARMS", 1)
    shuffled = [_layout(replace(federation, arms=int(row[0])), DECIDE, 1) for row in rows]
    for (_, *stated), taken, other in zip(rows, here, shuffled, strict=True):
        costs = [str(taken.rounds), str(taken.correction_words)] if taken != other else ["-", "-"]
        assert stated == [*costs, str(other.rounds), str(other.correction_words)]


def test_the_costs_of_a_batch(federation: Federation, layouts: dict[str, Layout]) -> None:
    rows = _table(PROTOCOLS, "program", "interactions", "rounds", "bytes", "words dealt")
    for name, count, *costs in rows:
        layout = _layout(federation, name, int(count))
        assert [int(cost) for cost in costs] == [layout.rounds, layout.bytes_to_each_peer(0), layout.correction_words]
    batch = [_layout(federation, name, 100) for name in (DECIDE, GATHER, SOLVE)]
    rounds, sent = sum(layout.rounds for layout in batch), sum(layout.bytes_to_each_peer(0) for layout in batch)
    singly = [100 * layouts[STEP].rounds, 100 * layouts[STEP].bytes_to_each_peer(0)]
    protocols, readme = _flat(PROTOCOLS), _flat(README)
    assert f"A batch of 100 takes {rounds} rounds and {sent} bytes to decide and learn" in protocols
    assert f"100 single steps take {singly[0]} rounds and {singly[1]} bytes" in protocols
    decide_rounds, learn_rounds = batch[0].rounds, batch[1].rounds + batch[2].rounds
    assert f"deciding takes {decide_rounds} rounds and learning {learn_rounds} for the whole batch" in readme
    assert f"and {sent / 100:,.0f} bytes per interaction" in readme
    figure = f"rounds per interaction to decide, in all (batches of 100) | {decide_rounds / 100:g}, {rounds / 100:g} |"
    assert figure in PERFORMANCE


def test_the_steps_of_newton_schulz(federation: Federation) -> None:
    for count, start, boosts, steps, rounds in _table(PROTOCOLS, "B", "c", "boosts above 1", "steps", None):
        plan = batch_plan(federation.numbers, int(count))
        low = plan.start_units / 2.0**plan.start_bits
        assert start == f"{low:.5f}"
        assert plan.start_units.bit_length() in (8, 9)
        spread = int(count) * federation.largest_quadratic_form
        wanted = 2 / (2 + 1.01 * spread)
        assert 0 <= wanted - low <= wanted * 2.0**-8
        assert low * (1 + spread) < 2
        assert (int(boosts), int(steps)) == (sum(boost > 1 for boost in plan.boosts), len(plan.boosts))
        learned = [_layout(federation, name, int(count)) for name in (GATHER, SOLVE)]
        assert int(rounds) == sum(layout.rounds for layout in learned) == 2 + 2 + 4 * len(plan.boosts) + 1
        for boost in plan.boosts:
            low *= (2 - low) * boost
        assert 0 <= 1 - low < 2.0**-federation.fraction_bits


def test_the_runs_of_a_repair(federation: Federation) -> None:
    rows = _table(PROTOCOLS, "n", "runs boosted", "runs plain", "last", "rounds")
    rounds = [_layout(federation, name, 1).rounds for name in (INVERT_BOOSTED, INVERT, INVERT_LAST)]
    for gathered, *runs, stated in rows:
        count = int(gathered.replace(",", ""))
        plan = repair_plan(federation.numbers, count)
        assert [int(number) for number in runs] == [plan.boosted_runs, plan.plain_runs, 1]
        assert int(stated) == sum(int(number) * each for number, each in zip(runs, rounds, strict=True))
        largest = federation.ridge + count * federation.joint_norm**2
        assert plan.start == pytest.approx(2 / (federation.ridge + 1.01 * largest))
    assert count == federation.max_interactions
    protocols = _flat(PROTOCOLS)
    assert f"From the {REPAIR_LAG}th lesson after its start on" in protocols
    assert f"{LEARNED_AGAIN} of the lessons that the sums did not hold" in protocols


def test_how_large_the_entries_of_a_product_become_in_solve(federation: Federation) -> None:
    rows = _table(re.sub(r"^ +\|", "|", PROTOCOLS, flags=re.MULTILINE), "B", "bound on the entries of W M")
    bounds = {int(count): _bound_of_entries(federation, int(count)) for count, _ in rows}
    assert [bound for _, bound in rows] == [f"{bound:.2f}" for bound in bounds.values()]
    assert "the entries must stay below 2^(62-3L): 4 at L = 20" in _flat(PROTOCOLS)
    assert "entries of a batch of 100 do exceed 4" in _flat(PROTOCOLS)
    assert 4 < _lopsided_entry(federation, 100) < bounds[100]
    assert "So W has one bit less for B = 100, two for 256, four for 4095" in _flat(PROTOCOLS)
    gram_bits = {count: batch_plan(federation.numbers, count).gram_bits for count in bounds}
    assert [20 - gram_bits[count] for count in (10, 25, 100, 256, 4095)] == [0, 0, 1, 2, 4]
    for count, bound in bounds.items():
        assert bound < 2.0 ** (62 - 2 * 20 - gram_bits[count])
        start, boosts = _start_and_boosts(federation, count)
        assert largest_entry(start, boosts, count * federation.largest_quadratic_form) == pytest.approx(bound, rel=1e-3)


def _start_and_boosts(federation: Federation, count: int) -> tuple[float, tuple[float, ...]]:
    plan = batch_plan(federation.numbers, count)
    return plan.start_units / 2.0**plan.start_bits, plan.boosts


def _bound_of_entries(federation: Federation, count: int) -> float:
    """p(1) + sqrt(s) max |p(1 + y) - p(1)| / sqrt(y), at the worst step."""
    (start, boosts), spread = _start_and_boosts(federation, count), count * federation.largest_quadratic_form
    y = np.geomspace(1e-6, spread, 20_000)
    one, others = start, start * (1 + y)
    largest = 0.0
    for boost in boosts:
        largest = max(largest, one + spread**0.5 * float((np.abs(others - one) / np.sqrt(y)).max()))
        one, others = boost * one * (2 - one), boost * others * (2 - others)
    return largest


def _lopsided_entry(federation: Federation, count: int) -> float:
    """The largest entry of W M on the way, when one direction is known and contexts lie nearly along it."""
    start, boosts = _start_and_boosts(federation, count)
    before, x = np.diag([federation.ridge, 1e6]), np.array([0.21, (federation.joint_norm**2 - 0.21**2) ** 0.5])
    gram, inverse = before + count * np.outer(x, x), start * np.linalg.inv(before)
    largest = 0.0
    for boost in boosts:
        product = gram @ inverse
        largest = max(largest, float(np.abs(product).max()))
        inverse = boost * inverse @ (2 * np.eye(2) - product)
    return largest


def test_how_many_interactions_a_model_holds(federation: Federation) -> None:
    most = federation.max_interactions
    protocols, readme = _flat(PROTOCOLS), _flat(README)
    assert f"{most:,} for 2 parties with 10 features and norm 1 each, 10 arms, ridge 1 and L = 20" in protocols
    assert f"{most:,} interactions for two parties with 20 features and 10 arms" in readme
    assert (DEFAULT_INTERACTIONS[0], DEFAULT_INTERACTIONS[-1]) == (10_000, 1_000_000)
    assert "up to a million" in protocols
    assert "10,000 must fit" in protocols
    assert "`max_interactions`" in FULL


def test_scores_are_bounded(federation: Federation) -> None:
    """By data that come close: one direction, seen as often as is best for it, with rewards of one."""
    assert "|score| <= S = (R / 2) sqrt(n / ridge)" in _flat(PROTOCOLS)
    bound = federation.joint_norm / 2 * sqrt(federation.max_interactions / federation.ridge)
    assert federation.score_bound == pytest.approx(bound)
    lengths = np.geomspace(1e-6, federation.joint_norm, 10_000)
    weights = federation.max_interactions * lengths / (federation.ridge + federation.max_interactions * lengths**2)
    assert 0.999 * bound < federation.joint_norm * weights.max() <= bound


def test_the_costs_of_a_step(federation: Federation, layouts: dict[str, Layout]) -> None:
    rounds, sent = layouts[STEP].rounds, layouts[STEP].bytes_to_each_peer(0)
    assert f"A strictly online step is this program: {rounds} rounds and {sent} bytes." in _flat(PROTOCOLS)
    every = RidgeSchedule(federation.numbers).gather_every
    gathered = _layout(federation, REPAIR, every).bytes_to_each_peer(0)
    assert f"After every {federation.repair_every:,} lessons the model is solved anew" in _flat(README)
    assert f"added to sums, for {gathered / every:,.0f} bytes more" in _flat(README)
    assert f"{gathered:,} bytes at 10 arms and 20 features" in _flat(PERFORMANCE)
    costs = dict(_table(README.split("## What it costs")[1], "", ""))
    assert costs == {
        "rounds per decision": str(layouts[DECIDE].rounds),
        "rounds per step (decide and learn)": str(rounds),
        "bytes per step from the dealer to the last party (corrections)": f"{8 * layouts[STEP].correction_words:,}",
    }


def test_rounds_depend_on_sizes_of_a_decision_only(layouts: dict[str, Layout]) -> None:
    for arms, decide_rounds in ((3, 3), (19, 3), (20, 4), (48, 4), (49, 12), (100, 12)):
        other = Federation(arms=arms, features=(10, 10), epsilon=0.5)
        assert _layout(other, DECIDE, 1).rounds == decide_rounds
        assert _layout(other, LEARN, 1).rounds == layouts[LEARN].rounds
        if other.learner.has_step:
            assert _layout(other, STEP, 1).rounds == decide_rounds + layouts[LEARN].rounds - 1
    assert "12 for 100 arms and two parties" in _flat(README)
    assert "12 rounds for 100 arms and two parties" in _flat(PROTOCOLS)


def test_rounds_by_arms_and_delays_in_the_figures(federation: Federation, layouts: dict[str, Layout]) -> None:
    for arms, decide_rounds, learn_rounds, _ in _table(
        PERFORMANCE, "arms", "rounds to decide", "rounds to learn", None
    ):
        other = Federation(arms=int(arms.replace(",", "")), features=(10, 10), epsilon=0.5)
        decide = _layout(other, DECIDE, 1).rounds
        step = sum(layout_of(text, 2, 1).rounds for text in program_texts(other).values())
        assert [int(decide_rounds), int(learn_rounds)] == [decide, step - decide]
    decision = 1 + layouts[DECIDE].rounds + 1
    # The answer goes out and the one-hot comes back; then the reward has come before it is needed.
    step = decision + 1 + layouts[STEP].rounds - layouts[DECIDE].rounds
    delays = f"a decision takes {decision} one-way delays (request, {decision - 2} rounds, answer), a step {step}"
    assert delays in _flat(PERFORMANCE)


@pytest.mark.parametrize("name", [DECIDE, LEARN])
def test_words_dealt(name: str, federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    operations = {
        programs: ("returned_mask", "dealt_share", "form", "folded_form", "lookup", "truncate"),
        payloads: ("compare", "_by_words"),
    }
    for module, names in operations.items():
        for operation in names:
            monkeypatch.setattr(module, operation, _counting(getattr(module, operation), counted))
    layout = _layout(federation, name, 1)
    table = _table(PROTOCOLS, "program", "operation", "words")
    *rows, (last, total) = [(operation, int(words)) for program, operation, words in table if program == name]
    assert last == "all"
    assert total == layout.correction_words == sum(words for _, words in rows)
    assert counted == [words for _, words in rows]
    if name == LEARN:
        both = total + _layout(federation, DECIDE, 1).correction_words
        assert _layout(federation, STEP, 1).correction_words == both
        assert "`step` takes the words of both" in PROTOCOLS


def _counting(operation: Callable[..., Any], counted: list[int]) -> Callable[..., Any]:
    """The operation, with the corrections that it asks for put on a list."""

    def in_rounds(run: Any, *arguments: Any, **options: Any) -> Any:
        before = run.correction_words
        result = yield from operation(run, *arguments, **options)
        counted.append(run.correction_words - before)
        return result

    def counting(run: Any, *arguments: Any, **options: Any) -> Any:
        before = run.correction_words
        result = operation(run, *arguments, **options)
        counted.append(run.correction_words - before)
        return result

    return in_rounds if isgeneratorfunction(operation) else counting


# Recorded programs


@pytest.fixture(scope="module")
def scripts(federation: Federation) -> dict[str, CompiledProgram]:
    programs = federation.learner.single_programs
    return {name: compile_program(program_text(federation, ProgramId(name, count)), 0, 2) for name, count in programs}


def test_what_a_party_runs_in_a_step(scripts: dict[str, CompiledProgram]) -> None:
    assert f"It has {len(OPERATIONS)} instructions" in _flat(ARCHITECTURE)
    counts = {name: _instructions(script) for name, script in scripts.items()}
    stated = f"party 0 runs {counts[DECIDE]} instructions to decide and {counts[LEARN]} to learn, or {counts[STEP]} in"
    assert stated in _flat(ARCHITECTURE)
    calls = len(scripts[STEP].segments)
    assert f"{calls} calls of the compiled machine, {counts[STEP]} instructions" in PERFORMANCE
    assert f"| rounds x exchange | {len(scripts[STEP].rounds)} rounds |" in PERFORMANCE


def _instructions(script: CompiledProgram) -> int:
    code, at, count = script.code.tolist(), 0, 0
    while at < len(code):
        at, count = at + 2 + code[at + 1], count + 1
    return count


def test_a_recorded_program_has_the_costs_of_its_layout(
    scripts: dict[str, CompiledProgram], layouts: dict[str, Layout]
) -> None:
    assert "a party's compiled program has the same" in _flat(PROTOCOLS)
    for name, script in scripts.items():
        assert script.expected.round_bytes == tuple(tuple(sizes) for sizes in layouts[name].round_bytes)
        assert script.expected.own_words == layouts[name].party_words[0]


@pytest.mark.parametrize("look", [bool, len, list, lambda words: words == words])
def test_a_program_cannot_look_at_its_words(look: Callable[[Any], object]) -> None:
    def text(run: Run) -> Program:
        if run.party is not None:
            look(run.random((3,)))
        yield ()
        return None

    assert "no truth value, no length, no equality and cannot be iterated" in _flat(ARCHITECTURE)
    with pytest.raises(TypeError, match="cannot look at its words"):
        compile_program(text, 0, 2)


def test_a_program_cannot_branch_on_a_secret() -> None:
    def text(run: Run) -> Program:
        if Shared((3,), run.random((3,))):
            yield ()

    with pytest.raises(TypeError, match="no truth value"):
        compile_program(text, 0, 2)


# Numbers


def test_bit_budgets(federation: Federation) -> None:
    rows = _table(PROTOCOLS, "value", "fractional bits", "bound on its magnitude", None)
    documented = {row[0].removesuffix(", before truncation"): row for row in rows if row[3]}
    short, gain = federation.fraction_bits, federation.gain_bits
    assert gain == short
    assert "G is `gain_bits`, L here" in _flat(PROTOCOLS)
    wide = federation.wide_gain_bits
    names = {2 * short: {"2L", "L + G"}, 3 * short: {"3L"}, short + gain: {"2L", "L + G"}, wide: {"G + P + 4"}}
    largest = federation.ridge + federation.max_interactions * max(federation.joint_norm, federation.joint_norm**2)
    values = [*truncated_values(federation), ("W, b", 2 * short, largest)]
    assert set(documented) == {name for name, _, _ in values}
    for name, fraction_bits, bound in values:
        assert documented[name][1] in names[fraction_bits]
        assert documented[name][3] == f"{fraction_bits + log2(bound * (1 + 2.0**-8)):.2f}"


def test_bits_of_a_key(federation: Federation) -> None:
    key = f"comparison key, at A = 10 and n = {federation.max_interactions:,}"
    rows = _table(PROTOCOLS, key, "bits")
    bits = [
        1,
        federation.score_range_bits,
        federation.key_fraction_bits,
        federation.tag_bits,
        federation.comparison_bits,
    ]
    assert [int(number) for _, number in rows] == bits
    least = [Federation(arms=10, features=(2,) * parties, epsilon=0.1).least_key_bits for parties in (2, 5)]
    assert f"0.004 at most: {least[0]} fractional bits for two parties, {least[1]} for five" in _flat(PROTOCOLS)
    assert f"exceed the {MAX_BITS} bits of the widest comparison" in _flat(PROTOCOLS)
    assert 2 * (federation.score_bound * (1 + 2.0**-8) + 0.02) <= 2.0**federation.score_range_bits


def test_limits_of_fraction_bits(federation: Federation) -> None:
    assert "`fraction_bits` lies in 12 to 30; at the defaults 16 to 20 fit" in _flat(PROTOCOLS)
    for bits in range(16, 21):
        assert replace(federation, fraction_bits=bits, max_interactions=0).fraction_bits == bits
    for bits in (11, 15, 21, 31):
        with pytest.raises(ConfigError, match="fraction_bits"):
            replace(federation, fraction_bits=bits, max_interactions=0)
    least = Federation(arms=10, features=(10, 10), epsilon=0.1, norms=(0.08, 0.08), fraction_bits=12, reciprocal_bits=4)
    assert least.fraction_bits == 12


def test_what_is_checked_when_a_federation_is_configured(federation: Federation) -> None:
    text = _flat(PROTOCOLS.split("## Bit budgets")[1])
    with pytest.raises(ConfigError, match="What would fit: fraction_bits = 19, or ridge = ") as refused:
        replace(federation, norms=(3.0, 3.0), max_interactions=0)
    for name in re.findall(r"(\w+) = ", str(refused.value)):
        assert f"`{name}`" in text
    assert f"The table has {MAX_RECIPROCAL_WORDS} words at most" in text
    assert f"leaves an error of {TOLERANCE} at most" in text
    assert f"must be at most {TOLERANCE}, for a batch" in _flat(PROTOCOLS)
    plans = batch_plan(federation.numbers, federation.max_batch), last_repair(federation.numbers)
    assert all(plan.holds and 0 < plan.error <= TOLERANCE for plan in plans)
    assert boosted_repair(federation.numbers).holds


def test_limits_that_are_stated() -> None:
    waits, stopped, gone = f"{MAX_PENDING:,}", f"{ANSWER_SECONDS:.0f} seconds", f"{Limits().silence_seconds} seconds"
    for text, numbers in (
        (README, (waits, stopped)),
        (THREATS, (waits, stopped, gone)),
        (ARCHITECTURE, (waits, stopped, gone, f"the last {KEPT_VERSIONS} versions")),
        (PYTHON, (stopped,)),
    ):
        assert all(number in _flat(text) for number in numbers)
    assert NO_FEATURES in f"it {_flat(THREATS).partition('a fixed text: that it ')[2]}"
    repair_every = Federation(arms=2, features=(1, 1), epsilon=0).repair_every
    assert f"({repair_every:,} unless given)" in _flat(PROTOCOLS)
    assert f"{GATHERED_AT_ONCE} of these at a time are added to the sums" in _flat(PROTOCOLS)


def test_the_numbers_that_a_kit_sets() -> None:
    rows = _table(PYTHON, "field", "unless given", "least", "most", "what it is")
    fields = KitFile.model_fields
    numbers = {name for name, field in fields.items() if field.annotation is int and field.default and field.metadata}
    assert {row[0].strip("`") for row in rows} == numbers
    for name, default, least, most, _ in rows:
        field = fields[name.strip("`")]
        bounds = {key: getattr(bound, key) for bound in field.metadata for key in ("ge", "le") if hasattr(bound, key)}
        assert [int(default), int(least), int(most)] == [field.default, bounds["ge"], bounds["le"]]
    batch, stock = fields["max_batch"].default, fields["stock"].default
    most = {row[0]: row[3] for row in rows}["`max_batch`"]
    assert f"A batch has at most {most} decisions or rewards, {batch} unless the kits say otherwise" in _flat(README)
    assert f"(`stock` in its kit, {stock} steps" in _flat(ARCHITECTURE)
    room = f"of the largest size, {MAX_KEY_BYTES} bytes, however they are escaped: {max_line_bytes(batch):,} bytes"
    assert f"{room} unless the kit says otherwise, and never less than {MAX_LINE_BYTES:,}" in _flat(PYTHON)


def test_how_roles_wait_and_work_ahead() -> None:
    architecture = _flat(ARCHITECTURE)
    assert f"nothing has happened for {1000 * transport.IDLE_SECONDS:.0f} ms (`on_idle`)" in architecture
    assert f"do not come within {LESSON_SECONDS:.0f} seconds" in _flat(PYTHON)
    assert f"more than {MAX_WAITING:,} lessons ahead" in _flat(PYTHON)
    assert BATCHES_IN_STOCK == 4
    assert "a quarter of the stock at a time" in architecture
    assert f"too late {answers._FAILURES} times in a row" in architecture
    assert f"for the next {answers._SKIPS} rounds" in architecture
    assert f"(nice {local_roles._BEHIND_OTHERS})" in architecture
    assert f"up to {process._KEPT_BYTES >> 20} MB of freed memory" in architecture


@pytest.mark.parametrize("number", [0, 1])
def test_only_party_0_tells_the_actor_what_was_learned(number: int, federation: Federation) -> None:
    sent: list[tuple[Identity, Frame]] = []
    clients = {Identity(Role.ACTOR), Identity(Role.REWARDER)}
    setup = Setup(federation, number, Mock(), 8, 2, 256, True, 0, CompiledPrograms(federation, number), lambda: 0.0)
    links = Links(Mock(), Mock(), lambda identity, frame: sent.append((identity, frame)))
    ledger = Ledger(MemoryPartyRecords(federation, number), Plan(1, bytes(6), INITIAL, 0), federation.policy, UNSPENT)
    party = PartyEpoch(setup, links, ledger, named=0, present=clients)
    party._lesson_ended(LessonEnded(Lesson(0, []), None, None, False))
    told = {identity for identity, frame in sent if frame.kind is Kind.LEARNED}
    assert told == (clients if number == 0 else {Identity(Role.REWARDER)})
    assert "LEARNED k (party 0)" in ARCHITECTURE
    assert "LEARNED from party 0" in THREATS


def test_what_the_benches_leave_out(federation: Federation) -> None:
    performance = _flat(PERFORMANCE)
    assert f"stretches of {session._STRETCH} at most" in performance
    assert f"a pause of {1000 * session._PAUSE_SECONDS:.0f} ms" in performance
    assert f"and {session._WARM_UP} steps until the processor is awake" in performance
    assert f"has at least {session._PLAIN_STEPS} steps" in performance
    assert "From about 45 arms on the stock, which is bounded in bytes, does not last" in performance
    made = session._STRETCH + session._WARM_UP
    assert [_stock(arms) // 2 >= made for arms in (10, 20, 30, 45)] == [True, True, True, False]


@pytest.mark.parametrize(("suite", "heading"), [("fast", "## Figures"), ("paper", "### The paper's suite")])
def test_what_the_operations_send_and_take(suite: str, heading: str) -> None:
    """As `bench ops` counts it, on as many elements at once as it runs."""
    columns = "operation", "rounds", "bytes to each peer", "dealt words", "of these, corrections"
    rows = _table(PERFORMANCE.split(heading)[1], *columns)
    found = operations.operations_of(suite, 2)
    assert [row[0] for row in rows] == [operation.name for operation in found]
    for operation, (_, *stated) in zip(found, rows, strict=True):
        text = operations._text(operation, () if operation.size is None else (operation.size,))
        count = min(10_000, operations._MOST_WORDS // max(1, layout_of(text, 2, 1).party_words[0]))
        layout = layout_of(text, 2, count)
        sent, words = layout.bytes_to_each_peer(0) / count, (layout.party_words[0], layout.correction_words)
        assert stated == [str(layout.rounds), f"{sent:,.1f}", *(f"{each / count:,.0f}" for each in words)]


def _stock(arms: int) -> int:
    """Steps that the last party has in stock; orders come when half of them are used."""
    other = Federation(arms=arms, features=(10, 10), epsilon=0.1)
    stock = int(KitFile.model_fields["stock"].default)
    return min(stock_steps(_layout(other, *program), stock) for program in (DECIDE_ONE, LEARN_ONE))


def test_decision_ids_look_as_documented() -> None:
    shown = set(re.findall(r"[0-9a-f]{12}-\d{6}-\w+", ARCHITECTURE + PYTHON))
    assert len(shown) == 1
    ids = DecisionIds("3f9c02d17ab4", bytes(32))
    with pytest.raises(DecisionIdError, match="was never made"):  # well-formed, but under another key
        ids.number_of(*shown)
    assert "MAC of 64 bits" in _flat(THREATS)
    assert 4 * len(ids.id_of(17).rpartition("-")[2]) == 64
    assert "the count B, t and its position side by side, in 16, 32 and 16 bits" in ARCHITECTURE
    assert decision_number(ProgramId(DECIDE, 3), 5, 2) == 3 << 48 | 5 << 16 | 2
    assert "a decision by `step` has the count 1" in _flat(ARCHITECTURE)
    assert decision_number(STEP_ONE, 5) == 1 << 48 | 5 << 16
    assert decision_number(ProgramId(DECIDE), 5) == 5


def test_the_shapes_of_the_reciprocal(federation: Federation) -> None:
    rows = _table(PROTOCOLS, "q up to", "degree", "nodes", "distance", "error", "words")
    for largest, *documented in rows:
        shape = reciprocal_shape(2 * federation.reciprocal_bits + 3, float(largest) + 0.0006, 2.0**-8)
        cells = [shape.degree, shape.nodes, f"1/{1 / shape.spacing:.0f}", f"2^{log2(shape.error):.1f}", shape.words]
        assert documented == [str(cell) for cell in cells]
    assert federation.reciprocal_shape.words == 96
    assert "96 for the default `reciprocal_bits` of 8 and q up to 2" in _flat(PROTOCOLS)
    wide, power = federation.gain_bits + federation.reciprocal_power_bits + 4, 2 * federation.reciprocal_bits + 4
    assert (federation.wide_gain_bits, federation.reciprocal_power_bits) == (wide, power)
    assert "P is 2 `reciprocal_bits` + 4, and g is looked up with G + P + 4 bits" in _flat(PROTOCOLS)


def test_the_table_of_roles_names_what_parties_tell_a_client() -> None:
    """Every message from a party to the actor or the rewarder, and that noise rests on norms and rewards."""
    assert messages.__doc__ is not None
    to_both = {"receiver": ("actor", "rewarder"), "anyone": ("actor", "rewarder")}
    for name, receiver in re.findall(r"^    ([A-Z_]+) +party -> (\w+)", messages.__doc__, re.MULTILINE):
        for role in to_both.get(receiver, (receiver,)):
            if role != "party":
                (row,) = [line for line in THREATS.splitlines() if line.startswith(f"| {role} |")]
                assert name in row, f"{role} is told {name}"
    (dealer,) = [line for line in THREATS.splitlines() if line.startswith("| dealer | which roles")]
    assert "noise" in dealer.split("|")[3], "it draws it"
    assert "Mechanisms with noise do" in _flat(THREATS)


def test_differential_privacy_of_one_action_and_of_many() -> None:
    rows = _table(THREATS, "arms", "epsilon", "T", "delta", None, None)
    for arms, epsilon, actions, delta, one, composed in rows:
        eta = log(int(arms) / float(epsilon) - int(arms) + 1)
        assert one == f"{eta:.2f}"
        digits = len(composed.partition(".")[2])
        assert composed == f"{_composed(int(arms), float(epsilon), int(actions), float(delta)):.{digits}f}"
        for completed in (0.0, 0.3, 1.0):  # how often a decision that is not explored is completed, and by which arm
            for best in (0.0, completed):
                whole = float(epsilon) + (1 - float(epsilon)) * completed
                chance = (float(epsilon) / int(arms) + (1 - float(epsilon)) * best) / whole
                bound = 1 - float(epsilon) + float(epsilon) / int(arms)
                assert float(epsilon) / int(arms) - 1e-12 <= chance <= bound + 1e-12
    limits = _flat(README.split("## Limits")[1])
    assert "eta = log(A/epsilon - A + 1): 4.51 for 10 arms" in limits
    assert "exact composed loss is 4263" in limits


def _composed(arms: int, epsilon: float, actions: int, delta: float) -> float:
    """The eta of randomised response, composed: sum over the loss of P(loss) (1 - e^(eta - loss)) = delta."""
    likely, unlikely = 1 - epsilon + epsilon / arms, epsilon / arms
    step = log(likely / unlikely)
    chances = np.ones(1)
    for _ in range(actions):
        chances = np.convolve(chances, [unlikely, 1 - likely - unlikely, likely])
    losses = step * np.arange(-actions, actions + 1)
    low, high = 0.0, actions * step
    while high - low > 1e-6:
        eta = (low + high) / 2
        spent = sum(p * (1 - exp(eta - loss)) for p, loss in zip(chances, losses, strict=True) if loss > eta)
        low, high = (eta, high) if spent > delta else (low, eta)
    return high


# Tables


def _flat(text: str) -> str:
    """Running text without its line breaks."""
    return " ".join(text.split())


def _table(text: str, *heads: str | None) -> list[list[str]]:
    """The cells of the first table with these column heads; None stands for any."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        cells = _cells(line)
        if len(cells) == len(heads) and all(head in (None, cell) for head, cell in zip(heads, cells, strict=True)):
            body = lines[at + 2 :]
            end = next((n for n, row in enumerate(body) if not row.startswith("|")), len(body))
            return [_cells(row) for row in body[:end]]
    raise AssertionError(f"no table with columns {heads}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().split("|")[1:-1]] if line.startswith("|") else []
