"""A party's installation, from the wheel of `make wheel`: small, without a compiler, and roles run in it.

It installs packages and takes a minute, therefore it is part of `make soak` (`HIDDENARM_SOAK=1`) only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import venv
import zipfile
from pathlib import Path

import pytest

from deployment import ROLES, Deployment, provision
from hiddenarm.errors import ConfigError

pytestmark = pytest.mark.skipif(not os.environ.get("HIDDENARM_SOAK"), reason="part of `make soak`")

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
RESEARCH_ONLY = {"distributed", "joblib", "matplotlib", "psutil", "scikit-learn", "scipy"}
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = list(DIST.glob("hiddenarm-*.whl"))
    assert len(found) == 1, "run `make wheel` before"
    return found[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment that has the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("party")
    venv.create(folder, with_pip=True)
    before, start = _megabytes(folder), time.perf_counter()
    pip: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
    ]
    subprocess.run([*pip, "--only-binary", ":all:", wheel], check=True, env={**os.environ, **NO_COMPILER})
    seconds = time.perf_counter() - start
    print(f"\na party's installation: {_megabytes(folder) - before:.0f} MB in {seconds:.0f} s")
    return folder / "bin"


def _megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def run(installed: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [installed / "hiddenarm", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_the_wheel_runs_on_many_linuxes_and_has_no_source_of_c(wheel: Path) -> None:
    stated = re.search(r"glibc (\d+)\.(\d+)", (ROOT / "docs" / "deploying.md").read_text())
    assert stated is not None
    assert f"manylinux_{stated[1]}_{stated[2]}_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"hiddenarm/py.typed", "hiddenarm/ring/_kernels.pyi"} <= set(names)
    assert sum(name.endswith(".so") for name in names) == 2
    assert not [name for name in names if name.endswith((".c", ".h"))]


def test_a_party_has_no_library_of_research(installed: Path) -> None:
    listing = subprocess.run(
        [installed / "python", "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=True
    )
    names = {package["name"].lower() for package in json.loads(listing.stdout)}
    assert "hiddenarm" in names
    assert not names & RESEARCH_ONLY


@pytest.mark.parametrize("command", [(), ("serve",), ("provision",), ("demo",)], ids=str)
def test_help(command: tuple[str, ...], installed: Path, tmp_path: Path) -> None:
    ended = run(installed, *command, "--help", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Usage:" in ended.stdout


def test_research_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, "simulate", "--steps", "1", folder=tmp_path)
    assert ended.returncode == ConfigError.exit_code
    assert "pip install 'hiddenarm[research]'" in ended.stderr


def test_a_federation_is_provisioned_and_served(installed: Path, tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True)
    made = run(installed, "provision", "federation.toml", "--out", "others", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {path.name for path in (tmp_path / "others").iterdir()} == {path.name for path in kits.iterdir()}
    with Deployment(kits, installed / "python") as deployment:
        deployment.start(*ROLES)
        for _ in range(3):
            deployment.step()
        status = run(installed, "status", str(kits / "hotel"), folder=tmp_path)
        assert status.returncode == 0, status.stdout + status.stderr
