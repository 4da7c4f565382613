"""docs/noisy-sums.md states what the code has: options, costs, and the numbers of the mechanism."""

from __future__ import annotations

import csv
import re
from dataclasses import MISSING, fields, replace
from math import sqrt
from pathlib import Path

import pytest

from hiddenarm.bandit.catalogue import REFRESH, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.planning import RESIDUAL_NODES
from hiddenarm.bandit.schedule import Run
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Layout
from hiddenarm.privacy.correlated import MOST_LEAVES, correlation
from hiddenarm.privacy.gaussian import advantage, tpr_at
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisyMechanism, NoisySums

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "noisy-sums.md").read_text()
FEDERATION = Federation(arms=10, features=(10, 10), epsilon=0.02, norms=(0.9, 0.6), privacy=NoisySums(1.0))


def table(first: str) -> list[list[str]]:
    """The rows of the table whose head begins with this."""
    lines = PAGE[PAGE.index(f"| {first} |") :].splitlines()
    rows = lines[2 : next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def layout(program: ProgramId, federation: Federation = FEDERATION) -> Layout:
    return layout_of(program_text(federation, program), 2, 1)


def runs_of_a_refresh(lessons: int) -> list[ProgramId]:
    plan = FEDERATION.learner.schedule().resumed(0, 0, lessons - 1).lesson(0, 1)
    return [action.program for action in plan.actions[1:] if isinstance(action, Run)]


@pytest.mark.parametrize(("kind", "head"), [(NoisySums, "option"), (NoisyGradient, "option of the gradient")])
def test_options_are_those_of_the_mechanism(kind: type[NoisyMechanism], head: str) -> None:
    for field, (name, default, _) in zip(fields(kind), table(head), strict=True):
        assert name == f"`{field.name}`"
        assert default == ("" if field.default is MISSING else f"{field.default}".replace("1e-06", "1e-6"))


def test_costs_are_those_of_the_programs() -> None:
    for name, runs, *costs in table("noisy program"):
        found = layout(ProgramId(name))
        assert [int(cost) for cost in costs] == [found.rounds, found.bytes_to_each_peer(0), found.correction_words]
        if runs.endswith("per refresh") and name.startswith("invert"):
            counted = [runs_of_a_refresh(at).count(ProgramId(name)) for at in (500, 56143)]
            assert runs.removesuffix(" per refresh") == " to ".join(map(str, sorted(set(counted))))


@pytest.mark.parametrize("lessons", [500, 56143])
def test_what_a_refresh_takes(lessons: int) -> None:
    layouts = [layout(program) for program in runs_of_a_refresh(lessons)]
    rounds, sent = sum(one.rounds for one in layouts), sum(one.bytes_to_each_peer(0) for one in layouts)
    assert re.search(rf"after {lessons} lessons (a refresh takes )?{rounds} rounds and {sent} bytes", PAGE, re.I)


def test_refreshes_of_60_000_lessons_cost_so_much_a_step() -> None:
    counts = [NoisySums(1.0).refresh_at(k) for k in range(1, 20)]
    assert counts[:4] == [500, 650, 845, 1098]
    assert NoisySums(1.0).refreshes_by(60_000) == 19
    sent = sum(layout(program).bytes_to_each_peer(0) for at in counts for program in runs_of_a_refresh(at))
    assert f"60,000 steps that is {sent / 60_000:.0f} bytes per step" in " ".join(PAGE.split())


def test_the_numbers_of_the_mechanism() -> None:
    for total, *stated in table("total epsilon | mu"):
        sums = NoisySums(float(total))
        widths = sums.sigma_gram(1.0), sums.sigma_moment(1.0)
        found = (sums.mu, *widths, sums.epsilon_replaced(), tpr_at(sums.mu, 0.01), advantage(sums.mu))
        for value, text in zip(found, stated, strict=True):
            assert f"{value:.{len(text.partition('.')[2])}f}" == text
    assert f"exploration 0.02: {NoisySums(1.0).epsilon_with_own_action(10, 0.02):.3f}" in PAGE


def test_what_is_said_of_correlated_noise() -> None:
    page = " ".join(PAGE.split())
    spreads = [max(correlation(leaves).spreads) for leaves in (8, 19, 60)]
    assert "at most {:.2f}, {:.2f} or {:.2f} times the noise of one, for n = 8, 19 or 60".format(*spreads) in page
    assert f"{sqrt(19):.2f} times after 19" in page
    widths = correlation(MOST_LEAVES).widths
    assert f"the w are {min(widths):.0f} to {max(widths):.2f} times" in page
    assert f"{correlation(19).coupling:.2f} for n = 19" in page
    privacy = NoisySums(1.0, correlated=19)
    federation = replace(FEDERATION, privacy=privacy)
    sent = layout_of(program_text(federation, ProgramId(REFRESH, 19)), 2, 1).bytes_to_each_peer(0)
    assert f"one round, {sent} bytes for 10 arms and 20 features" in page
    rounding = privacy.leaf_rounding(federation.joint_norm, federation.dimension, 2 * federation.fraction_bits)
    assert f"{rounding:.0e} of it here" in page


def rewards_kept() -> dict[tuple[str, str, str], dict[str, str]]:
    with (ROOT / "docs" / "results" / "beyond" / "privacy-over-time.csv").open(newline="") as file:
        return {(row["world"], row["mechanism"], row["total epsilon"]): row for row in csv.DictReader(file)}


def check_reward(found: dict[str, str], text: str) -> None:
    for name, number in zip(("reward", "deviation"), text.split(" ± "), strict=True):
        assert abs(float(found[name]) - float(number)) <= 0.00051


def test_rewards_are_those_of_the_results_that_are_kept() -> None:
    kept = rewards_kept()
    for total, *stated in table("total epsilon | fresh noise, emulated"):
        for mechanism, text in zip(("noisy sums", "noisy sums, correlated noise"), stated, strict=False):
            check_reward(kept["mnist", mechanism, f"{float(total):.1f}"], text)


def test_the_noisy_gradient_earns_what_is_kept() -> None:
    kept, stated = rewards_kept(), table("world | mechanism, emulated")
    assert {row[0] for row in stated} == {"mnist", "cover", "many"}
    for world, mechanism, *rewards in stated:
        for total, text in zip(("0.5", "1.0", "2.0", "4.0", "8.0"), rewards, strict=True):
            check_reward(kept[world, mechanism, total], text)


def test_costs_and_numbers_of_the_noisy_gradient() -> None:
    federation = replace(FEDERATION, privacy=NoisyGradient(1.0))
    for name, _, *costs in table("program of the gradient"):
        found = layout(ProgramId(name, 2 if name == REFRESH else 1), federation)
        assert [int(cost) for cost in costs] == [found.rounds, found.bytes_to_each_peer(0), found.correction_words]
    for total, *stated in table("total epsilon of the gradient"):
        gradient = NoisyGradient(float(total))
        numbers = gradient.mu, gradient.sigma_moment(1.0), gradient.epsilon_replaced()
        for value, text in zip(numbers, stated, strict=True):
            assert f"{value:.{len(text.partition('.')[2])}f}" == text
    coupling = correlation(NoisyGradient(1.0).correlated).coupling
    assert f"as much as {coupling:.1f} times" in " ".join(PAGE.split())
    assert f"The table has {RESIDUAL_NODES} nodes" in PAGE
