"""Every example runs as it lies there, and what it shows is true."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from deployment import PATIENCE, free_ports, require

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def stopwatch(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tell how long an example took, which `pytest -s` shows; it fails only where it hangs."""
    start = time.monotonic()
    yield
    print(f"\n{request.node.name}: {time.monotonic() - start:.0f} s")


def test_two_shops_learn_more_together_than_alone(tmp_path: Path) -> None:
    notebook = nbformat.reads((EXAMPLES / "two-shops.ipynb").read_text(), as_version=4)  # type: ignore[no-untyped-call]
    assert not [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]  # kept without outputs
    NotebookClient(notebook, timeout=int(PATIENCE), resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    found = re.search(r"together ([\d.]+), the bookshop alone ([\d.]+)", text)
    assert found is not None, text
    together, alone = map(float, found.groups())
    # Not seeded. Over 150 runs: together 0.85 with a standard deviation of 0.03, and 0.40 more than alone, with one of
    # 0.05. Both bounds are beyond six standard deviations; a uniform arm would have 0.25, and no difference.
    assert together > 0.55
    assert together > alone + 0.1


def test_a_travel_site_learns_by_curl_alone(tmp_path: Path) -> None:
    require("curl")
    text = (EXAMPLES / "travel" / "federation.toml").read_text()
    old = re.findall(r"\b(?:7400|7401|7402|84\d\d|94\d\d)\b", text)
    for name, port in zip(old, free_ports(len(old)), strict=True):
        text = text.replace(name, str(port))
    (tmp_path / "federation.toml").write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = EXAMPLES / "travel" / "run.sh"
    done = subprocess.run(
        ["bash", script, tmp_path / "run", tmp_path / "federation.toml"],
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "first private decision after" in done.stdout
    found = re.search(r"among the last 40: (\d+)", done.stdout)
    assert found is not None
    # Each arm is tried where it is little known, so all is learned long before the last 40; of those, exploring takes
    # 3 in 40: fewer than 22 of Binomial(40, 0.925) have probability 1.2e-11. By chance 10 would be booked.
    assert int(found[1]) >= 22, done.stdout


def test_a_sweep_over_epsilons(tmp_path: Path) -> None:
    out = tmp_path / "sweep.csv"
    command = [sys.executable, str(EXAMPLES / "sweep.py"), str(out), "--steps", "200", "--epsilons", "0.05", "1.0"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE)
    greedy, uniform = csv.DictReader(out.read_text().splitlines())
    assert (greedy["epsilon"], uniform["epsilon"]) == ("0.05", "1.0")
    assert float(greedy["reward"]) > float(uniform["reward"]) + 0.2
    assert float(greedy["agreement"]) == 1.0
    assert len(list((tmp_path / "sweep" / "runs").iterdir())) == 2


def test_every_example_is_listed() -> None:
    listed = re.findall(r"\]\(\.\./examples/([\w./-]+)\)", (EXAMPLES.parent / "docs" / "examples.md").read_text())
    found = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.*") if "__pycache__" not in path.parts}
    assert sorted(listed) == sorted(found)


def test_the_stopwatch_is_sound() -> None:
    """It installs with pip, which needs a network: here only its words are read."""
    subprocess.run(["bash", "-n", EXAMPLES / "stopwatch.sh"], check=True)
    assert '"$here/travel/run.sh" "$folder/run" "$file" 1' in (EXAMPLES / "stopwatch.sh").read_text()


def test_the_stopwatch_finds_in_the_travel_site_what_it_prints() -> None:
    """The line of run.sh that it looks for, through the commands that it looks with."""
    (told,) = re.findall(r'echo "first private decision.*?"(?=;)', (EXAMPLES / "travel" / "run.sh").read_text())
    (looked_with,) = re.findall(r"1 \| (grep .*)", (EXAMPLES / "stopwatch.sh").read_text())
    script = f'SECONDS=6 answer=\'{{"rewardActionId": "lake"}}\'; ({told}) | {looked_with}'
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True, timeout=PATIENCE)
    assert re.fullmatch(r"first private decision after \d+ s\n", done.stdout)
