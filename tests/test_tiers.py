"""The tiers of the tests: their lists name what is there, and a test in the wrong tier is found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deployment import require

TESTS = Path(__file__).parent
IMPORTS = "import socket\nimport subprocess\nimport sys\n\nimport pytest\n\n\n"
BREACHES = {
    "a process": "subprocess.run([sys.executable, '-c', ''])",
    "a process past the interpreter's report": (
        "import multiprocessing as m; p = m.get_context('spawn').Process(target=print); p.start(); p.join()"
    ),
    "a socket": "socket.create_server(('127.0.0.1', 0)).close()",
}


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest on one test, under the conftest of these tests."""
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    processes\n    long\n    timed\n")
    (folder / "test_one.py").write_text(IMPORTS + test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", *options, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.processes
@pytest.mark.parametrize("breach", BREACHES)
def test_a_test_that_should_be_marked_fails(tmp_path: Path, breach: str) -> None:
    ended = run(tmp_path, f"def test_it():\n    {BREACHES[breach]}\n")
    assert ended.returncode == 1
    assert "mark this test with `processes`" in ended.stdout


@pytest.mark.processes
def test_a_marked_test_passes_and_is_not_in_the_first_tier(tmp_path: Path) -> None:
    test = f"@pytest.mark.processes\ndef test_it():\n    {BREACHES['a process']}\n\n\ndef test_other():\n    pass\n"
    assert "2 passed" in run(tmp_path, test).stdout
    assert "1 passed, 1 deselected" in run(tmp_path, test, "-m", "not processes and not long").stdout


def test_all_that_is_listed_is_there(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    assert conftest is not None
    for names in (conftest.PROCESSES, conftest.LONG, conftest.TIMED, conftest.BEGIN_WITH):
        assert [name for name in names if not (TESTS / name).exists()] == []


def test_a_program_that_is_missing_skips_a_test_and_fails_it_where_all_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("bash")
    monkeypatch.delenv("HIDDENARM_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program not installed"):
        require("bash", "no-such-program")
    monkeypatch.setenv("HIDDENARM_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-program must be installed"):
        require("bash", "no-such-program")


def test_continuous_integration_looks_for_every_program_that_tests_require() -> None:
    """And `make test` says which tests were skipped, and why."""
    text = (TESTS.parent / ".ci" / "run").read_text()
    (programs,) = re.findall(r"^programs=\((.*)\)$", text, re.MULTILINE)
    called = [
        call
        for path in TESTS.rglob("test_*.py")
        for call in re.findall(r"^    require\((.*)\)$", path.read_text(), re.M)
    ]
    required = {name for call in called for name in re.findall(r'"([\w-]+)"', call)} - {"bash"}
    assert required == set(programs.split())
    (lines,) = re.findall(r"^test: .*\n((?:\t.*\n)+)", (TESTS.parent / "Makefile").read_text(), re.MULTILINE)
    assert all(" -rfEs " in line for line in lines.splitlines())
