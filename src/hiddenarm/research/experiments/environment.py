"""Where and with what a result was obtained: versions, machine, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

UNKNOWN = "unknown"


@cache
def commit_of_source() -> str:
    """The commit of the source tree this runs from, with `+` if files differ from it; unknown where there is none.

    Asked for once: what is changed later is not what this process runs.
    """
    folder = Path(__file__).parent
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return UNKNOWN
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":/src")
    return f"{head}+" if changed else head


def surroundings() -> dict[str, str]:
    """What the page says about machine and versions."""
    packages = {name: version(name) for name in ("hiddenarm", "numpy", "scikit-learn", "cryptography", "matplotlib")}
    return {
        **packages,
        "Python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "--no-optional-locks", "-C", str(folder), *arguments), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
