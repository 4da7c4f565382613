"""`hiddenarm reproduce` as a user runs it: everything at the smallest size, again, interrupted, and wrongly."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Ended, check_error, hiddenarm, interrupted

from deployment import PATIENCE
from hiddenarm.errors import DataError
from hiddenarm.research.experiments.job_progress import UnderWay
from hiddenarm.research.experiments.policies import POLICIES
from hiddenarm.research.experiments.reproduction import experiments


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole reproduction, at the smallest size."""
    folder = tmp_path_factory.mktemp("reproduction")
    ended = reproduce(folder, "all", patience=3 * PATIENCE)
    assert ended.code == 0, ended.stderr
    return folder


def reproduce(folder: Path, *names: str, patience: float = PATIENCE) -> Ended:
    return hiddenarm("reproduce", *names, "--scale", "tiny", "--out", folder, folder=folder, patience=patience)


def test_every_figure_and_table_is_there(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert page.count("<svg") >= len(experiments())
    assert "8x8 digits in place of MNIST" in page
    for experiment in experiments():
        assert f"id='{experiment.name}'" in page
    figures = {path.stem for path in (folder / "figures").iterdir()}
    assert all(
        (folder / "figures" / f"{name}.{kind}").stat().st_size > 1_000 for name in figures for kind in ("svg", "png")
    )
    for table in (folder / "tables").glob("*.json"):
        assert json.loads(table.read_text())["rows"]
        assert table.with_suffix(".csv").exists()


def test_every_claim_is_decided_or_explained(folder: Path) -> None:
    claims = json.loads((folder / "claims.json").read_text())
    assert len(claims) >= len(experiments())
    assert all(claim["explanation"] or claim["verdict"] == "holds" for claim in claims)


def test_policies_are_drawn_side_by_side_and_kept(tmp_path: Path) -> None:
    ended = reproduce(tmp_path, "policies")
    assert ended.code == 0, ended.stderr
    assert (tmp_path / "figures" / "policies.svg").stat().st_size > 1_000
    with (tmp_path / "tables" / "policies-summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["world"] for row in rows} == {"digits", "cover"}
    assert {row["policy"] for row in rows} == set(POLICIES)
    assert all(float(row["agreement (%)"]) > 95 for row in rows)
    ended = reproduce(tmp_path, "policies")
    assert "10 runs, 10 of them kept from before" in " ".join(ended.stdout.split())


def test_finished_runs_are_kept(folder: Path) -> None:
    runs = {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    lost = min(path for path in runs if path.name.startswith("learner"))
    lost.unlink()
    ended = reproduce(folder, "all")
    assert ended.code == 0, ended.stderr
    assert f"{len(runs)} runs, {len(runs) - 1} of them kept from before" in " ".join(ended.stdout.split())
    again = {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    assert again.keys() == runs.keys()
    assert {path for path in runs if again[path] != runs[path]} == {lost}


def test_an_interrupt_says_what_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    arguments = ("reproduce", "training", "--quick", "--out", tmp_path)
    ended = interrupted(*arguments, folder=tmp_path, when="/8 runs")
    assert ended.code == 130
    assert "Traceback" not in ended.stderr
    kept = len(list((tmp_path / "runs").glob("*.npz")))
    assert kept < 8
    assert f"{kept} of 8 runs are kept in {tmp_path}; the same command goes on" in ended.stderr
    assert not (tmp_path / "index.html").exists()


@pytest.mark.parametrize("backend", ["loky", "dask"])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.5])
def test_ctrl_c_at_a_terminal_shows_no_traceback_of_a_worker(tmp_path: Path, backend: str, seconds: float) -> None:
    """A terminal sends it to all processes of a command, also to workers that are just being started."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "hiddenarm", "reproduce", "training", "--quick", "--out", str(out)]
    with subprocess.Popen(
        [*command, "--backend", backend], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            end = time.monotonic() + PATIENCE
            while not (out / "under-way").exists():
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(seconds)
            os.killpg(process.pid, signal.SIGINT)
            stderr = process.communicate(timeout=PATIENCE)[1].decode()
        finally:
            process.kill()
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert f"of 8 runs are kept in {out}; the same command goes on" in stderr
    assert not (out / "under-way").exists()


def test_the_workers_of_a_command_that_is_killed_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "hiddenarm", "reproduce", "training", "--quick", "--out", str(out)]
    under_way = UnderWay(out / "under-way")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + PATIENCE
        while not (news := under_way.read()) and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
    workers = [Path(f"/proc/{one.process}") for one in news.values()]
    assert workers
    while any(worker.exists() for worker in workers):
        assert time.monotonic() < end + PATIENCE
        time.sleep(0.1)


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    ended = hiddenarm("reproduce", "everything", "--out", tmp_path / "new", folder=tmp_path)
    check_error(ended, 2, "no experiment 'everything'", "training", "all")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = hiddenarm("reproduce", "newton", "--scale", "tiny", "--out", tmp_path / "file" / "below", folder=tmp_path)
    check_error(ended, 2, "cannot make the folder")


def test_a_folder_without_mnist_is_refused_before_any_work(tmp_path: Path) -> None:
    ended = hiddenarm("reproduce", "--data-dir", tmp_path, "--out", tmp_path / "out", folder=tmp_path)
    check_error(ended, DataError.exit_code, str(tmp_path))
    assert not (tmp_path / "out").exists()
