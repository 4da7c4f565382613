"""Every mutant is caught by the check that is for it, and the unbroken system passes the same check."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from checks import UNBROKEN, Check
from world import Violation

from hiddenarm.errors import HiddenArmError
from mutants import MUTANTS, Mutant

CHECKS = list({mutant.check.name: mutant.check for mutant in MUTANTS}.values())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def marks_of(check: Check) -> list[pytest.MarkDecorator]:
    return [pytest.mark.processes] if check.network else []


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=marks_of(mutant.check), id=f"{mutant.name}: {mutant.check.name}")
        for mutant in MUTANTS
    ],
)
def test_a_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.install(monkeypatch)
    found = set()
    for seed in mutant.check.seeds:
        try:
            mutant.check.run(seed)
        except (AssertionError, Violation, HiddenArmError, KeyError, ValueError) as error:
            if re.search(mutant.caught, str(error)):
                return
            found.add(f"{type(error).__name__}: {error}")
    raise AssertionError(f"{mutant.caught!r} was not noticed, but {sorted(found)}")


@pytest.mark.parametrize("check", [pytest.param(check, marks=marks_of(check), id=check.name) for check in CHECKS])
def test_the_unbroken_system_passes(check: Check) -> None:
    for seed in check.seeds[:UNBROKEN]:
        check.run(seed)
